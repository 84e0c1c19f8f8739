#!/bin/sh
# The init process of a guest that tests Weir with a different kernel: every forwarding method, every attach mode, real
# servers and a reload, in namespaces. Prints one line for each check, "ok NAME" or "FAILED NAME: REASON", then "done, N
# failed", and powers off.
#
# It uses only busybox, iproute2 and weir, which tools/release-check/kernels.sh packs.
export PATH=/bin HOME=/tmp
export WEIR_CONFIG=/tmp/weir.toml

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir -p /run && mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
# All output goes to the console, as do messages of a kernel that panics.
exec >/dev/console 2>&1 </dev/null
/bin/ip link set lo up
while read -r module; do modprobe "$module" || echo "note: no module $module"; done </modules
echo "kernel $(uname -r)"

readonly SIZE=2000000
failed=0

ok() { echo "ok $1"; }
fail() { failed=$((failed + 1)); echo "FAILED $1: $2"; }

# --- The network: client, director and two servers on one bridge, with IPv4 and IPv6 ----------------------------------

# Overrides the ip applet of busybox's shell.
ip() { /bin/ip "$@"; }

in_ns() {
  local host=$1
  shift
  nsenter --net=/run/netns/"$host" "$@"
}

host() { # NAME NUMBER
  ip netns add "$1"
  ip -n "$1" link set lo up
  ip -n wire link add "$1" type veth peer name eth0 netns "$1"
  ip -n wire link set "$1" master br0 up
  in_ns "$1" sh -c 'for it in all default eth0; do echo 0 >/proc/sys/net/ipv6/conf/$it/accept_dad; done'
  ip -n "$1" link set eth0 up
  ip -n "$1" addr add "10.0.0.$2/24" dev eth0
  ip -n "$1" addr add "fd00::$2/64" dev eth0 nodad
}

build() {
  mkdir -p /run/netns
  ip netns add wire
  ip -n wire link add br0 type bridge forward_delay 0 mcast_snooping 0
  ip -n wire link set br0 up
  host client 2
  host director 3
  host server0 20
  host server1 21
  dd if=/dev/urandom of=/tmp/big bs=1000 count=$((SIZE / 1000)) 2>/dev/null
  for server in server0 server1; do
    mkdir -p "/tmp/www-$server"
    echo "$server" >"/tmp/www-$server/name"
    ln -s /tmp/big "/tmp/www-$server/big"
    in_ns "$server" httpd -p '[::]:80' -h "/tmp/www-$server"
    in_ns "$server" nc -ll -p 7 -e cat </dev/null >/dev/null 2>&1 &
  done
}

vip() { [ "$1" = 4 ] && echo 10.0.0.10 || echo fd00::10; }
bracketed() { [ "$1" = 4 ] && echo 10.0.0.10 || echo '[fd00::10]'; }

config() { # FAMILY FORWARD ATTACH WEIGHT
  [ "$1" = 4 ] && net=10.0.0. || net=fd00::
  echo '[node]'
  echo 'vip_interface = "eth0"'
  [ -n "$3" ] && echo "attach = \"$3\""
  # A small table: the guest has little memory.
  echo 'max_flows = 65536'
  echo '[pool.web]'
  echo 'scheduler = "rr"'
  echo "servers = [\"${net}20\", { address = \"${net}21\", weight = $4 }]"
  echo 'check = { kind = "tcp", port = 80 }'
  echo '[service.web]'
  echo "listen = [\"$(bracketed "$1"):80\", \"$(bracketed "$1"):7\"]"
  echo "forward = \"$2\""
  [ "$2" = proxy ] && echo 'protocol = "tcp"'
  echo 'pool = "web"'
}

weir_on() { # HOST ARGUMENTS
  local host=$1
  shift
  in_ns "$host" env WEIR_RUNTIME_DIR="/run/weir-$host" WEIR_PIN_DIR="/sys/fs/bpf/weir-$host" weir "$@"
}

# --- One round: a director with one forwarding method and one attach mode ---------------------------------------------

start() { # NAME
  # Not in a function, whose shell would get the signals.
  nsenter --net=/run/netns/director env WEIR_RUNTIME_DIR=/run/weir-director WEIR_PIN_DIR=/sys/fs/bpf/weir-director \
    weir run >/tmp/run.log 2>&1 &
  daemon=$!
  tries=0
  until weir_on director status >/tmp/status 2>&1 && grep -q ' up ' /tmp/status; do
    tries=$((tries + 1))
    if ! kill -0 "$daemon" 2>/dev/null || [ "$tries" -gt 900 ]; then
      fail "$1" "the daemon is not ready: $(tail -n 3 /tmp/run.log | tr '\n' ' ')"
      echo "status:"
      cat /tmp/status /tmp/run.log
      kill "$daemon"
      wait "$daemon" 2>/dev/null
      return 1
    fi
    sleep 1
  done
  echo "note: $1: ready after $tries s"
}

fetches() { # FAMILY: four requests reach both servers, and a large file arrives intact
  : >/tmp/names
  for _ in 1 2 3 4; do
    in_ns client wget -q -T 10 -O - "http://$(bracketed "$1")/name" >>/tmp/names || return 1
  done
  [ "$(sort -u /tmp/names | wc -l)" = 2 ] || { echo "replies only from $(sort -u /tmp/names | tr '\n' ' ')"; return 1; }
  in_ns client wget -q -T 60 -O /tmp/fetched "http://$(bracketed "$1")/big" || {
    echo "the large file was not received"
    return 1
  }
  cmp /tmp/big /tmp/fetched || return 1
}

reload_keeps() { # FAMILY FORWARD ATTACH: a connection continues across a reload that changes a weight
  mkfifo /tmp/sent
  in_ns client nc "$(vip "$1")" 7 </tmp/sent >/tmp/received &
  talker=$!
  exec 5>/tmp/sent
  echo before >&5
  tries=0
  until grep -q before /tmp/received || [ "$tries" -gt 20 ]; do tries=$((tries + 1)); sleep 1; done
  config "$1" "$2" "$3" 2 >/tmp/weir.toml
  result=0
  weir_on director reload >/tmp/reload.log 2>&1 || { cat /tmp/reload.log; result=1; }
  echo after >&5
  tries=0
  until grep -q after /tmp/received || [ "$tries" -gt 20 ]; do tries=$((tries + 1)); sleep 1; done
  grep -q after /tmp/received || { echo "no reply on the open connection after the reload"; result=1; }
  exec 5>&-
  kill "$talker" 2>/dev/null
  wait "$talker" 2>/dev/null
  rm -f /tmp/sent
  return "$result"
}

servers() { # up|down FORWARD FAMILY
  for server in server0 server1; do
    case $2 in
      direct | tunnel | l3dsr)
        if [ "$1" = up ]; then
          [ "$2" = l3dsr ] && to="$(bracketed "$3"):1-65535" || to=$(vip "$3")
          weir_on "$server" real-server up --forward "$2" --vip "$to" || return 1
        else
          weir_on "$server" real-server down || return 1
        fi
        ;;
      nat)
        # The client is on the servers' segment, but replies must go through the director.
        [ "$3" = 4 ] && to="-4 route add 10.0.0.2/32 via 10.0.0.3" || to="-6 route add fd00::2/128 via fd00::3"
        [ "$1" = up ] || to=$(echo "$to" | sed 's/ add / del /')
        # shellcheck disable=SC2086
        ip -n "$server" $to || return 1
        ;;
    esac
  done
}

round() { # FAMILY FORWARD ATTACH
  local name="$2-ipv$1${3:+-$3}"
  config "$1" "$2" "$3" 1 >/tmp/weir.toml
  if ! servers up "$2" "$1" >/tmp/servers.log 2>&1; then
    fail "real-server-$name" "$(tail -n 3 /tmp/servers.log | tr '\n' ' ')"
    servers down "$2" "$1" >/dev/null 2>&1
    return
  fi
  if start "$name"; then
    grep -m 1 -iE 'xdp|tc ' /tmp/status | sed "s/^/note: $name: /"
    if fetches "$1" >/tmp/why 2>&1; then ok "$name"; else fail "$name" "$(tail -n 2 /tmp/why | tr '\n' ' ')"; fi
    if reload_keeps "$1" "$2" "$3" >/tmp/why 2>&1; then
      ok "reload-$name"
    else
      fail "reload-$name" "$(cat /tmp/why)"
    fi
    kill "$daemon"
    wait "$daemon" 2>/dev/null
  fi
  weir_on director clean >/tmp/clean.log 2>&1 || fail "clean-$name" "$(cat /tmp/clean.log)"
  servers down "$2" "$1" >/tmp/servers.log 2>&1 || fail "real-server-down-$name" "$(cat /tmp/servers.log)"
  remaining=$(ip -n director -o addr show dev eth0 | grep -c "$(vip "$1")/")
  [ "$remaining" = 0 ] || fail "clean-$name" "the VIP was not removed"
}

build
attaches=${ATTACHES:-}
weir schema | grep -q '"attach"' && attaches="auto xdp tc"
for attach in ${attaches:-default}; do
  [ "$attach" = default ] && attach=
  for forward in ${FORWARDS:-nat direct tunnel l3dsr}; do
    for family in 4 6; do round "$family" "$forward" "$attach"; done
  done
done
for family in 4 6; do round "$family" proxy ""; done
[ -x /extra.sh ] && . /extra.sh
echo "done, $failed failed"
poweroff -f
