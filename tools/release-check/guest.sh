#!/bin/sh
# The init process of a guest that tests Weir with a different kernel, in namespaces. Prints one line for each check,
# "ok NAME" or "FAILED NAME: REASON", then "done, N failed", and powers off. The parts are forwards.sh, features.sh and
# programs.sh; PARTS selects the parts to run.
#
# It uses only busybox, iproute2, curl and weir, which tools/release-check/kernels.sh packs.
export PATH=/bin HOME=/tmp

mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir -p /run && mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
# All output goes to the console, as do messages of a kernel that panics.
exec >/dev/console 2>&1 </dev/null
/bin/ip link set lo up
while read -r module; do modprobe "$module" || echo "note: no module $module"; done </modules
echo "kernel $(uname -r)"

readonly SIZE=2000000
failed=0

now() { cut -d . -f 1 /proc/uptime; }
ok() { echo "ok $1 ($(now) s)"; }
fail() { failed=$((failed + 1)); echo "FAILED $1: $2"; }

# Runs a command for a check: the check fails with the command's output.
check() { # NAME COMMAND…
  local name=$1
  shift
  if "$@" >/tmp/why 2>&1; then ok "$name"; else fail "$name" "$(tail -n 4 /tmp/why | tr '\n' ' ')"; fi
}

# Repeats a command once per second until it succeeds.
within() { # SECONDS COMMAND…
  local end=$(($(now) + $1))
  shift
  until "$@" >/tmp/within 2>&1; do
    [ "$(now)" -lt "$end" ] || { cat /tmp/within; echo "timed out: $*"; return 1; }
    sleep 1
  done
}

# --- The network: clients, directors and two servers on one bridge, with IPv4 and IPv6 --------------------------------

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
  # The servers reply to this client through the director.
  host routed 4
  host director 3
  host second 5
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

# --- Weir ------------------------------------------------------------------------------------------------------------

bracketed() { case $1 in *:*) echo "[$1]" ;; *) echo "$1" ;; esac; }

# Each host has its own directories. The configuration is /etc/weir/HOST.toml.
weir_on() { # HOST ARGUMENTS
  local host=$1
  shift
  in_ns "$host" env "WEIR_CONFIG=/etc/weir/$host.toml" "WEIR_RUNTIME_DIR=/run/weir-$host" \
    "WEIR_PIN_DIR=/sys/fs/bpf/weir-$host" weir "$@"
}

# Starts a director and waits until its servers are up. Its process ID is in /tmp/HOST.pid.
start() { # HOST CHECK
  local host=$1 start_time
  start_time=$(now)
  # This is not in a function, because the function's shell would get the signals.
  nsenter "--net=/run/netns/$host" env "WEIR_CONFIG=/etc/weir/$host.toml" "WEIR_RUNTIME_DIR=/run/weir-$host" \
    "WEIR_PIN_DIR=/sys/fs/bpf/weir-$host" weir run >"/tmp/$host.log" 2>&1 &
  echo $! >"/tmp/$host.pid"
  # `weir status` takes CPU time that the kernel needs to verify the programs.
  if ! within 1800 is_running "$host" || grep -q ended /tmp/within || ! within 300 is_up "$host"; then
    fail "$2" "the daemon is not ready: $(tail -n 3 "/tmp/$host.log" | tr '\n' ' ')"
    cat /tmp/within "/tmp/$host.log"
    stop "$host"
    return 1
  fi
  echo "note: $2: ready after $(($(now) - start_time)) s: $(head -n 1 /tmp/status)"
}

# Also succeeds if the daemon has ended, and then prints "ended".
is_running() { # HOST
  grep -q ' running ' "/tmp/$1.log" && return
  if kill -0 "$(cat "/tmp/$1.pid")" 2>/dev/null; then return 1; fi
  echo ended
}

is_up() { # HOST
  weir_on "$1" status >/tmp/status && grep -q ' up ' /tmp/status && ! grep ' down ' /tmp/status
}

stop() { # HOST
  kill "$(cat "/tmp/$1.pid")" 2>/dev/null
  wait "$(cat "/tmp/$1.pid")" 2>/dev/null
}

# Opens a connection that sends "before", and "after" when /tmp/go exists, and ends when /tmp/end exists.
talk() { # CLIENT ADDRESS NAME
  {
    echo before
    until [ -e /tmp/go ]; do sleep 3; done
    echo after
    until [ -e /tmp/end ]; do sleep 3; done
  } | in_ns "$1" nc "$2" 7 >"/tmp/received-$3" 2>&1 &
  within 30 grep -q before "/tmp/received-$3"
}

fetch() { # CLIENT URL OPTIONS…
  local client=$1 url=$2
  shift 2
  in_ns "$client" curl -sSfg --max-time 60 "$@" "$url"
}

both_servers() { # COMMAND…: the outputs of four runs contain both servers' names
  : >/tmp/names
  for _ in 1 2 3 4; do "$@" >>/tmp/names || return 1; done
  [ "$(sort -u /tmp/names | wc -l)" = 2 ] || { echo "replies only from $(sort -u /tmp/names | tr '\n' ' ')"; return 1; }
}

build
mkdir -p /etc/weir
for part in ${PARTS:-forwards features programs}; do
  echo "note: $part ($(now) s)"
  # shellcheck source=/dev/null
  . "/$part.sh"
done
echo "done, $failed failed"
poweroff -f
