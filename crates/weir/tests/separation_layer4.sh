# Runs two directors with an account `weir` that exchange flows; the first one also probes a server along the path of
# its service. The first director is in this script's network namespace; the second one, the client and the server
# are in separate ones. $1 is the program, $2 an empty directory that every account can enter. Prints the lines that the
# test compares.
set -u
weir=$1 dir=$2
. "$(dirname "$0")/separation_common.sh"

first= second= origin= held= client= server= peer=
trap 'kill $first $second $origin $held $client $server $peer 2>/dev/null; wait 2>/dev/null' EXIT
start_hosts 10.79
add_namespace
peer=$!
wait_for has_own_netns $peer
link peer $peer 10.79.3
# The VIP of `direct` is on the server, which at first replies to ARP requests for it.
in_server ip address add 10.79.9.2/32 dev lo
start_origin

head -c 32 /dev/urandom | base64 >sync.key
chmod 600 sync.key
# config OWN PEER NODE: prints a director's configuration with the keys NODE of [node].
config() {
  cat <<END
[node]
$3
[pool.p]
servers = ["10.79.2.2:80"]
[pool.q]
servers = ["10.79.2.2"]
check = { kind = "tcp", via = "path", interval = "100ms", fall = 1, rise = 1 }
[service.translated]
listen = ["10.79.9.1:80"]
forward = "nat"
pool = "p"
[service.direct]
listen = ["10.79.9.2:80"]
forward = "direct"
pool = "q"
[service.proxied]
listen = ["10.79.9.3:80"]
forward = "proxy"
protocol = "tcp"
pool = "p"
[sync]
listen = "10.79.3.$1:8482"
peers = ["10.79.3.$2:8482"]
key = { file = "$dir/sync.key" }
END
}
config 1 2 'interfaces = ["to_client", "to_server"]
vip_interface = "to_client"' >first.toml
config 2 1 'interfaces = ["eth0"]' >second.toml
chmod 600 first.toml second.toml
cd /
at_first() { WEIR_RUNTIME_DIR=$dir/run WEIR_PIN_DIR=$dir/bpf/first "$@"; }
at_second() { WEIR_RUNTIME_DIR=$dir/run2 WEIR_PIN_DIR=$dir/bpf/second nsenter -t $peer -n "$@"; }
# These commands do not use the functions, because $! would be the process of the function.
WEIR_TEST_ATTEMPTS=1 WEIR_RUNTIME_DIR=$dir/run WEIR_PIN_DIR=$dir/bpf/first \
  "$weir" run -c "$dir/first.toml" >"$dir/out/log" 2>&1 &
first=$!
WEIR_RUNTIME_DIR=$dir/run2 WEIR_PIN_DIR=$dir/bpf/second \
  nsenter -t $peer -n "$weir" run -c "$dir/second.toml" >"$dir/out/log2" 2>&1 &
second=$!

page() { in_client curl -sS --max-time ${seconds:-2} http://10.79.9.1/page | grep -q found; }
process() { pgrep -P "$1" -f "$2"; }
is_new() { new=$(process "$1" "$2") && [ "$new" != "$3" ]; }
rights() { awk '/^(Uid|CapEff|NoNewPrivs):/ {print $2}' "/proc/$(process "$1" 'weir.* run ')/status" | xargs; }
wait_for page
echo "start: served"
wait_for at_second "$weir" status
echo "first daemon: $(rights $first)"
echo "second daemon: $(rights $second)"

# Check that flows are synchronized.
nsenter -t $client -n python3 -c '
import socket, time
held = socket.create_connection(("10.79.9.1", 80))
proxied = socket.create_connection(("10.79.9.3", 80))
time.sleep(1000)' >/dev/null 2>&1 &
held=$!
is_established() { at_first "$weir" status --json | grep -q '"state": *"established"'; }
wait_for is_established
echo "peer: established"
has_flow() { at_second "$weir" ipvsadm -Lnc | grep -q '10.79.1.2:.*10.79.9.1:80.*10.79.2.2:80'; }
wait_for has_flow
echo "flow: synchronized"
# The second director has a list of the connections to the proxy, and sends segments when it gets the VIP. The first one
# drops them, because it still has the VIP.
has_number() { at_second "$weir" status --json | grep -q "\"$1\": *[1-9]"; }
wait_for has_number proxied_connections
echo "proxied connection: listed"
nsenter -t $peer -n ip address add 10.79.9.3/32 dev lo
wait_for has_number reset_prompts
echo "takeover: segments sent"
nsenter -t $peer -n ip address del 10.79.9.3/32 dev lo
at_first "$weir" ipvsadm -L --daemon | grep -q 'master sync daemon' && echo "daemons: listed"
at_first "$weir" ipvsadm --stop-daemon master && echo "daemon: stopped by root"
at_first "$weir" ipvsadm -L --daemon | grep -q 'master sync daemon' || echo "daemons: stopped"
at_first "$weir" ipvsadm --start-daemon master && echo "daemon: started by root"

# Check a server along the path of its service.
has_reason() { at_first "$weir" status | grep -q "$1"; }
wait_for has_reason 'the server replies to ARP requests for the VIP 10.79.9.2'
echo "path: the server replies to ARP requests"
in_server sysctl -qw net.ipv4.conf.all.arp_ignore=1
path_is_up() { at_first "$weir" status | grep -Eq '10.79.2.2 +direct +up'; }
wait_for path_is_up
echo "path: up"
in_server ip address del 10.79.9.2/32 dev lo
wait_for has_reason 'no reply from the VIP 10.79.9.2'
echo "path: VIP missing"
in_server ip address add 10.79.9.2/32 dev lo
wait_for path_is_up
echo "path: up"

# While the engine process is absent, checks do not change the states of servers.
engine=$(process $first 'helper --engine')
kill -9 "$engine"
wait_for is_new $first 'helper --engine' "$engine"
wait_for at_first "$weir" status
wait_for is_established
wait_for path_is_up
page && echo "new engine: served"
daemon=$(process $first 'weir.* run ')
kill -9 "$daemon"
wait_for is_new $first 'weir.* run ' "$daemon"
wait_for at_first "$weir" status
wait_for is_established
wait_for path_is_up
echo "new daemon: $(rights $first)"
at_first "$weir" upgrade "$weir" >"$dir/out/upgrade" 2>&1 && echo "upgrade: ok" || cat "$dir/out/upgrade"
wait_for is_established
wait_for path_is_up
page && echo "upgraded: served"
grep -q 'server went down.*privileged process' "$dir/out/log" || echo "no server went down while the engine was absent"

# A submitted text cannot configure a different peer; root's file can.
sed 's/10.79.3.2:8482/10.79.3.9:8482/' "$dir/first.toml" >"$dir/text"
chmod 600 "$dir/text"
at_first "$weir" reload -c "$dir/text" >"$dir/out/refused" 2>&1 && echo "text: applied" || echo "text: refused"
cp "$dir/text" "$dir/first.toml"
at_first "$weir" reload >"$dir/out/reload" 2>&1 && echo "file: applied" || cat "$dir/out/reload"
has_peer() { at_first "$weir" status | grep -q '10.79.3.9:8482'; }
wait_for has_peer
echo "file: new peer"
kill $first
wait $first
first=
at_first "$weir" clean >/dev/null 2>&1 && echo "clean: done"
kill $second
wait $second
second=
at_second "$weir" clean >/dev/null 2>&1 && echo "clean: done"
