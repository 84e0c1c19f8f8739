# Part of guest.sh: two unprivileged directors with VRRP and flow synchronization, local clients, least-time, checks
# through the path, HTTP/1 and HTTP/2, an upgrade, a failover, and `weir protect`.
readonly CONNECTIONS='direct 10.0.0.10
direct6 fd00::10
snat 10.0.0.13'

pair_config() { # ADDRESS PEER PRIORITY
  cat <<TOML
[node]
max_flows = 65536
balance_own = true
[sync]
listen = "$1:8482"
peers = ["$2:8482"]
key = { file = "/etc/weir/sync.key" }
[vrrp.four]
interface = "eth0"
virtual_router_id = 51
version = 3
priority = $3
addresses = ["10.0.0.10/32", "10.0.0.13/32", "10.0.0.14/32"]
excluded_addresses = ["10.0.0.100/32"]
group = "all"
[vrrp.six]
interface = "eth0"
virtual_router_id = 52
version = 3
priority = $3
addresses = ["fe80::51/64", "fd00::10/128"]
group = "all"
[pool.four]
scheduler = "least-time"
servers = ["10.0.0.20", "10.0.0.21"]
check = { kind = "tcp", port = 80, via = "both" }
[pool.six]
servers = ["fd00::20", "fd00::21"]
check = { kind = "tcp", port = 80 }
[pool.nat]
servers = ["10.0.0.20", "10.0.0.21"]
check = { kind = "tcp", port = 80 }
[pool.http]
scheduler = "rr"
servers = ["10.0.0.20:80", "10.0.0.21:80"]
check = { kind = "http", path = "/name" }
[service.direct]
listen = ["10.0.0.10:80", "10.0.0.10:7"]
forward = "direct"
pool = "four"
[service.direct6]
listen = ["[fd00::10]:80", "[fd00::10]:7"]
forward = "direct"
pool = "six"
[service.snat]
listen = ["10.0.0.13:80", "10.0.0.13:7"]
forward = "nat"
snat = { addresses = ["10.0.0.100"] }
pool = "nat"
[service.local]
listen = ["192.0.2.20:80", "udp/192.0.2.20:53"]
forward = "socket"
pool = "http"
[service.http]
listen = ["10.0.0.14:80"]
forward = "proxy"
protocol = "http"
pool = "http"
[service.https]
listen = ["10.0.0.14:443"]
forward = "proxy"
protocol = "http"
tls = { certificates = "/etc/certificate.pem" }
pool = "http"
TOML
}

unprivileged() { # HOST: the daemon runs as weir, the VRRP agent as weir-vrrp
  ps -o user,args >/tmp/processes
  grep -q '^weir .*weir' /tmp/processes && grep -q '^weir-vrr.* vrrp-agent' /tmp/processes && return
  cat /tmp/processes
  return 1
}

http() { # VERSION URL OPTIONS…: the response has this version, and is a server's name
  local version=$1 url=$2
  shift 2
  fetch client "$url/name" -w '%{http_version}\n' "$@" >/tmp/http || return 1
  grep -q '^server[01]$' /tmp/http && grep -q -x "$version" /tmp/http || { cat /tmp/http; return 1; }
}

# Options for a request over TLS.
readonly TLS='--resolve weir.example:443:10.0.0.14 --cacert /etc/certificate.pem'

# shellcheck disable=SC2086
secure() { http "$1" https://weir.example $TLS "--http$1"; }

# shellcheck disable=SC2086
big() { fetch client https://weir.example/big $TLS -o /tmp/fetched && cmp /tmp/big /tmp/fetched; }

has_latency() {
  for _ in 1 2 3 4 5 6 7 8; do fetch client http://10.0.0.10/name >/dev/null || return 1; done
  weir_on director status --json | grep -q '"method": *"timestamps"'
}

status_of() { weir_on "$1" status | grep -q -E "$2"; }

path_is_checked() {
  ip -n server0 addr del 10.0.0.10/32 dev lo
  within 60 status_of director 'path broken: no reply from the VIP 10.0.0.10 '
  local found=$?
  ip -n server0 addr add 10.0.0.10/32 dev lo
  within 60 is_up director && return "$found"
}

continue_all() { # CHANGE
  touch /tmp/go
  echo "$CONNECTIONS" | while read -r name _; do
    within 30 grep -q after "/tmp/received-$name" || { echo "$name: no reply"; return 1; }
  done
  [ $? = 0 ] || return 1
  touch /tmp/end
  sleep 2
}

open_all() {
  local name address
  rm -f /tmp/go /tmp/end
  echo "$CONNECTIONS" >/tmp/connections
  while read -r name address; do talk client "$address" "$name" </dev/null || return 1; done </tmp/connections
}

# Connections continue when the flow table becomes larger.
resizes() {
  open_all || return 1
  sed -i 's/^max_flows.*/max_flows = 131072/' /etc/weir/director.toml
  weir_on director reload && continue_all
}

upgrades() {
  open_all || return 1
  weir_on director upgrade && continue_all
}

# The director with the VIPs loses its link, as in a power failure; the other director takes over its connections.
fails_over() {
  open_all || return 1
  within 30 status_of second 'established' || return 1
  sleep 3
  ip -n wire link set director down
  within 30 holds second 10.0.0.10 && within 30 holds second fd00::10 || return 1
  continue_all && fetch client http://10.0.0.13/name
}

holds() { ip -n "$1" -o addr show dev eth0 | grep -q " $2/"; }

protects() {
  in_ns server0 weir protect --listen '[::]:80' -- sleep 3 &
  local protector=$!
  sleep 1
  fetch client http://10.0.0.20/name && wait "$protector"
}

prepare() {
  in_ns director sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
  in_ns second sh -c 'echo 1 >/proc/sys/net/ipv4/ip_forward'
  (umask 077 && echo 'a key for the guests of the release check' >/etc/weir/sync.key)
  pair_config 10.0.0.3 10.0.0.5 150 >/etc/weir/director.toml
  pair_config 10.0.0.5 10.0.0.3 100 >/etc/weir/second.toml
  for server in server0 server1; do
    weir_on "$server" real-server up --forward direct --vip 10.0.0.10 --vip fd00::10 || return 1
  done
  weir_on director check
}

features() {
  cp /accounts/* /etc/
  check protect protects
  check features-check prepare
  start director features-start || return
  check vrrp-active within 60 holds director 10.0.0.10
  check unprivileged unprivileged
  check path-check path_is_checked
  check least-time within 60 has_latency
  check http1 http 1.1 http://10.0.0.14
  check http2-prior-knowledge http 2 http://10.0.0.14 --http2-prior-knowledge
  check http1-tls secure 1.1
  check http2-tls secure 2
  check http2-big big
  check socket both_servers fetch director http://192.0.2.20/name
  check socket-other-namespace both_servers fetch routed http://192.0.2.20/name
  check balance-own fetch director http://10.0.0.10/name
  check resize resizes
  start second features-start-second || return
  check doctor weir_on director doctor
  check upgrade upgrades
  check failover fails_over
  stop director
  stop second
  for host in director second; do
    check "clean-$host" weir_on "$host" clean
    check "pins-$host" sh -c "! ls /sys/fs/bpf/weir-$host"
  done
  for server in server0 server1; do weir_on "$server" real-server down >/dev/null || fail "down-$server" ''; done
}

features
