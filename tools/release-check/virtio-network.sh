# The network of virtio.sh and virtio-director.sh: two clients, a director and a server on a bridge, in network
# namespaces. The director or the server is a virtual machine; its tap device is a port of the bridge. The sourcing
# script sets BINARY and DIR, the directory of kernels.sh with QEMU and the guest.
# shellcheck shell=bash disable=SC2034,SC2154
readonly TREE=$DIR/qemu TAG=rc$$ MB=20
readonly PIN_DIR=/sys/fs/bpf/$TAG
# Name, last part of the VIPs, options of `weir real-server up`. The guest reads the same table.
readonly METHODS='nat 10
snat 11
direct 12 --forward direct
ipip 13 --forward tunnel --tunnel ipip
gue 14 --forward tunnel --tunnel gue
gre 15 --forward tunnel --tunnel gre
l3dsr 16 --forward l3dsr'
work=$(mktemp -d)
guest_pid=''
result=0

in_ns() { # HOST COMMAND…
  local host=$1
  shift
  nsenter "--net=/run/netns/$TAG-$host" "$@"
}

# Weir's options on a host that is a namespace: its directories.
directories() { echo "--runtime-dir $work/run-$1 --pin-dir $PIN_DIR-$1"; }

# shellcheck disable=SC2046
weir_on() { # HOST ARGUMENTS…
  local host=$1
  shift
  in_ns "$host" "$BINARY" $(directories "$host") "$@"
}

# Stops the programs, including those that ignore SIGTERM, and removes the network.
# shellcheck disable=SC2046
cleanup() {
  local host tries
  kill $(jobs -rp) 2>/dev/null || true
  for ((tries = 0; tries < 200; tries++)); do
    [[ -n $(jobs -rp) ]] || break
    sleep 0.1
  done
  kill -KILL $(jobs -rp) 2>/dev/null || true
  wait 2>/dev/null || true
  for host in director server; do
    [[ -e /run/netns/$TAG-$host ]] || continue
    weir_on "$host" real-server down >/dev/null 2>&1 || true
    weir_on "$host" clean --force >/dev/null 2>&1 || true
  done
  for host in client routed director server wire; do ip netns del "$TAG-$host" 2>/dev/null || true; done
  rm -rf "$work"
}

fail() { # NAME REASON
  echo "    FAILED $1: $2"
  result=1
}

# --- The network -----------------------------------------------------------------------------------------------------

host() { # NAME NUMBER
  ip netns add "$TAG-$1"
  ip -n "$TAG-$1" link set lo up
  ip -n "$TAG-wire" link add "$1" type veth peer name eth0 netns "$TAG-$1"
  ip -n "$TAG-wire" link set "$1" master br0 up
  ip -n "$TAG-$1" link set eth0 up
  ip -n "$TAG-$1" addr add "10.0.0.$2/24" dev eth0
  ip -n "$TAG-$1" addr add "fd00::$2/64" dev eth0 nodad
}

# Creates the bridge with the clients and the guest's device. The server replies to the client `routed` through the
# director.
build_network() {
  ip netns add "$TAG-wire"
  ip -n "$TAG-wire" link add br0 type bridge forward_delay 0 mcast_snooping 0
  ip -n "$TAG-wire" link set br0 up
  host client 2
  host routed 4
  ip -n "$TAG-wire" tuntap add dev tap0 mode tap vnet_hdr
  ip -n "$TAG-wire" link set tap0 master br0 up
}

# --- The guest -------------------------------------------------------------------------------------------------------

# Starts the guest of kernels.sh with a different init process and further files: the kernel unpacks the second archive
# over the first. The console is LOG.
start_guest() { # LOG INIT DEVICE_OPTIONS FILES…
  local log=$1 init=$2 device=$3 root=$TREE/tmp/virtio
  shift 3
  rm -rf "$root"
  install -D -m 755 "$init" "$root/init"
  echo "$METHODS" >"$root/methods"
  [[ $# -eq 0 ]] || cp "$@" "$root/"
  chroot "$TREE" sh -ec 'cd /tmp/virtio && find . | cpio --quiet -o -H newc | gzip -1 >/tmp/init.gz'
  cat "$TREE"/tmp/{guest-13.cpio,init}.gz >"$TREE/tmp/virtio.cpio.gz"
  mkdir -p "$TREE/dev/net"
  [[ -e $TREE/dev/net/tun ]] || mknod "$TREE/dev/net/tun" c 10 200
  # in_ns is not used here: the signal from the cleanup would end only the subshell that runs the function.
  nsenter "--net=/run/netns/$TAG-wire" chroot "$TREE" qemu-system-x86_64 -accel tcg -M q35 -cpu max -smp 1 -m 1024 \
    -no-reboot -nographic -monitor none -serial stdio -kernel /tmp/vmlinuz-13 -initrd /tmp/virtio.cpio.gz \
    -append 'console=ttyS0 quiet panic=-1' \
    -netdev tap,id=n0,ifname=tap0,script=no,downscript=no,vhost=off -device "virtio-net-pci,netdev=n0$device" \
    </dev/null >"$log" 2>&1 &
  guest_pid=$!
}

stop_guest() {
  kill "$guest_pid" 2>/dev/null || true
  wait "$guest_pid" 2>/dev/null || true
  guest_pid=''
}

# Waits until a command succeeds.
wait_until() { # SECONDS MESSAGE COMMAND…
  local end=$((SECONDS + $1)) message=$2
  shift 2
  until "$@"; do
    if ((SECONDS >= end)) || ! kill -0 "$guest_pid" 2>/dev/null; then
      echo "  timed out: $message" >&2
      return 1
    fi
    sleep 1
  done
}

# --- Weir on the director --------------------------------------------------------------------------------------------

service() { # NAME FAMILY LISTENER
  echo "[service.$1$2]"
  echo "listen = [\"$3\"]"
  echo "pool = \"v$2\""
  case $1 in
    snat) echo 'forward = "nat"'; echo 'snat = true' ;;
    ipip | gue | gre) echo 'forward = "tunnel"'; echo "tunnel = \"$1\"" ;;
    *) echo "forward = \"$1\"" ;;
  esac
}

config() { # ATTACH
  cat <<TOML
[node]
vip_interface = "eth0"
attach = "$1"
max_flows = 65536
[pool.v4]
servers = ["10.0.0.20"]
check = { kind = "tcp", port = 80, timeout = "5s", interval = "6s" }
[pool.v6]
servers = ["fd00::20"]
check = { kind = "tcp", port = 80, timeout = "5s", interval = "6s" }
TOML
  local name last
  while read -r name last _; do
    service "$name" 4 "10.0.0.$last:80"
    service "$name" 6 "[fd00::$last]:80"
  done <<<"$METHODS"
}

# --- Transfers -------------------------------------------------------------------------------------------------------

# Without this machine's proxy settings.
fetch() { # CLIENT URL OPTIONS…
  local client=$1 url=$2
  shift 2
  in_ns "$client" curl --noproxy '*' -sSfg --connect-timeout 15 --max-time 120 "$@" "$url"
}

# Creates the file that clients send. The server has a different one.
prepare_transfers() {
  head -c ${MB}000000 /dev/urandom >"$work/upload"
  upload_sum=$(md5sum <"$work/upload" | cut -d ' ' -f 1)
  download_sum=$(fetch client http://10.0.0.20/sum)
}

# Transfers the files in both directions; prints the seconds that this took.
transfer() { # CLIENT URL
  local start=$SECONDS sum
  sum=$(fetch "$1" "$2/cgi-bin/upload" -H 'Expect:' --data-binary "@$work/upload") || return 1
  [[ $sum == "$upload_sum" ]] || { echo "the server received a different file: $sum" >&2; return 1; }
  sum=$(fetch "$1" "$2/big" | md5sum | cut -d ' ' -f 1) || return 1
  [[ $sum == "$download_sum" ]] || { echo "the client received a different file: $sum" >&2; return 1; }
  echo $((SECONDS - start))
}

# Runs the transfers of one round through all methods.
transfers() { # ROUND
  local name last address client seconds
  while read -r name last _; do
    client=client
    [[ $name != nat ]] || client=routed
    for address in "10.0.0.$last" "[fd00::$last]"; do
      if seconds=$(transfer "$client" "http://$address" 2>"$work/error" </dev/null); then
        echo "    ok virtio-$1-$name-$address: $MB MB in each direction in $seconds s"
      else
        fail "virtio-$1-$name-$address" "$(tail -n 2 "$work/error" | tr '\n' ' ')"
      fi
    done
  done <<<"$METHODS"
}

# Checks that the guest and the hosts received no packets with wrong checksums.
check_checksums() { # LOG HOSTS…
  local log=$1 errors host
  shift
  # The guest prints its counters every few seconds.
  sleep 6
  errors=$(tr -d '\r' <"$log" |
    awk '/^errors/ { last[$2] = $3; found = 1 }
      END { for (name in last) sum += last[name]; print found ? sum + 0 : "an unknown number of" }')
  echo "    note: the guest counted $errors wrong checksums"
  [[ $errors == 0 ]] || fail virtio-checksums "the guest counted $errors wrong checksums"
  for host in "$@"; do
    errors=$(in_ns "$host" sh "$HERE/checksum-errors.sh" | awk '{ sum += $3 } END { print sum + 0 }')
    [[ $errors == 0 ]] || fail virtio-checksums "$host counted $errors wrong checksums"
  done
}
