#!/usr/bin/env bash
# Tests a virtual machine as a real server: fetches 20 MB over IPv4 and over IPv6 through a director on this machine,
# with the default offloads of every device. Director, client and bridge are network namespaces; the guest's tap device
# is a port of the bridge.
#
#   tools/release-check/virtio.sh BINARY DIRECTORY
#
# DIRECTORY is that of kernels.sh, which must have created the tree with QEMU and the guest. Exit code 0 = both files
# are intact, and the guest counted no wrong checksums.
set -euo pipefail
readonly HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ $# -eq 2 && -x $1 && -e $2/qemu/complete ]] || { sed -n '2,9p' "$0" >&2; exit 2; }
readonly BINARY=$(realpath "$1") DIR=$(cd "$2" && pwd) TAG=rc$$
readonly TREE=$DIR/qemu LOG=$DIR/virtio.log
work=$(mktemp -d)
pids=()

cleanup() {
  [[ ${#pids[@]} -eq 0 ]] || kill "${pids[@]}" 2>/dev/null || true
  wait 2>/dev/null || true
  in_ns director "$BINARY" --runtime-dir "$work/run" --pin-dir "/sys/fs/bpf/$TAG" clean --force >/dev/null 2>&1 || true
  for host in client director wire; do ip netns del "$TAG-$host" 2>/dev/null || true; done
  rm -rf "$work"
}
trap cleanup EXIT

in_ns() {
  local host=$1
  shift
  nsenter "--net=/run/netns/$TAG-$host" "$@"
}

host() { # NAME NUMBER
  ip netns add "$TAG-$1"
  ip -n "$TAG-$1" link set lo up
  ip -n "$TAG-wire" link add "$1" type veth peer name eth0 netns "$TAG-$1"
  ip -n "$TAG-wire" link set "$1" master br0 up
  ip -n "$TAG-$1" link set eth0 up
  ip -n "$TAG-$1" addr add "10.0.0.$2/24" dev eth0
  ip -n "$TAG-$1" addr add "fd00::$2/64" dev eth0 nodad
}

ip netns add "$TAG-wire"
ip -n "$TAG-wire" link add br0 type bridge forward_delay 0 mcast_snooping 0
ip -n "$TAG-wire" link set br0 up
host client 2
host director 3
ip -n "$TAG-wire" tuntap add dev tap0 mode tap vnet_hdr
ip -n "$TAG-wire" link set tap0 master br0 up

# The guest of kernels.sh with a different init process: the kernel unpacks the second archive over the first.
install -D -m 755 "$HERE/server.sh" "$TREE/tmp/server/init"
chroot "$TREE" sh -ec 'cd /tmp/server && echo init | cpio --quiet -o -H newc | gzip -1 >/tmp/init.gz'
cat "$TREE"/tmp/{guest-13.cpio,init}.gz >"$TREE/tmp/server.cpio.gz"
mkdir -p "$TREE/dev/net"
[[ -e $TREE/dev/net/tun ]] || mknod "$TREE/dev/net/tun" c 10 200
# in_ns is not used here: the signal from the cleanup would end only the subshell that runs the function.
nsenter "--net=/run/netns/$TAG-wire" chroot "$TREE" qemu-system-x86_64 -accel tcg -M q35 -cpu max -smp 1 -m 1024 \
  -no-reboot -nographic -monitor none -serial stdio -kernel /tmp/vmlinuz-13 -initrd /tmp/server.cpio.gz \
  -append 'console=ttyS0 quiet panic=-1' \
  -netdev tap,id=n0,ifname=tap0,script=no,downscript=no,vhost=off -device virtio-net-pci,netdev=n0 \
  </dev/null >"$LOG" 2>&1 &
pids+=($!)

cat >"$work/weir.toml" <<TOML
[node]
vip_interface = "eth0"
[pool.v4]
servers = ["10.0.0.20"]
check = { kind = "tcp", port = 80, timeout = "5s", interval = "6s" }
[pool.v6]
servers = ["fd00::20"]
check = { kind = "tcp", port = 80, timeout = "5s", interval = "6s" }
[service.v4]
listen = ["10.0.0.10:80"]
forward = "direct"
pool = "v4"
[service.v6]
listen = ["[fd00::10]:80"]
forward = "direct"
pool = "v6"
TOML
options=(--runtime-dir "$work/run" --pin-dir "/sys/fs/bpf/$TAG")
nsenter "--net=/run/netns/$TAG-director" "$BINARY" "${options[@]}" run -c "$work/weir.toml" >"$work/weir.log" 2>&1 &
pids+=($!)

for ((tries = 0; ; tries++)); do
  grep -q ready "$LOG" && status=$(in_ns director "$BINARY" "${options[@]}" status 2>/dev/null) &&
    [[ $(grep -c ' up ' <<<"$status") == 2 ]] && break
  [[ $tries -lt 300 ]] || {
    echo "  the servers are not up after 300 s; see $LOG" >&2
    tail -n 5 "$work/weir.log" >&2
    exit 1
  }
  sleep 1
done
result=0
for vip in 10.0.0.10 '[fd00::10]'; do
  sum=$(in_ns client curl -sSg --max-time 60 "http://$vip/sum" || true)
  start=$SECONDS
  received=$(in_ns client curl -sSg --max-time 300 "http://$vip/big" | md5sum | cut -d ' ' -f 1 || true)
  if [[ -n $sum && $sum == "$received" ]]; then
    echo "    ok virtio-$vip: 20 MB in $((SECONDS - start)) s"
  else
    echo "    FAILED virtio-$vip: the received file differs"
    result=1
  fi
done
sleep 2
errors=$(tr -d '\r' <"$LOG" |
  awk '/^errors/ { last[$2] = $3 } END { for (name in last) sum += last[name]; print sum + 0 }')
echo "    note: the guest counted $errors wrong checksums"
[[ $errors == 0 ]] || result=1
exit "$result"
