# Runs a director with an account `weir`, and with the features that other root processes implement: virtual routers
# with programs, announced VIPs and a notifier. The director is in this script's network namespace; its client and its
# server are in separate ones. $1 is the program, $2 an empty directory that every account can enter. Prints the lines
# that the test compares.
set -u
weir=$1 dir=$2
. "$(dirname "$0")/separation_common.sh"

keeper= origin= bird= client= server=
trap 'kill $keeper $origin $bird $client $server 2>/dev/null; wait 2>/dev/null' EXIT
start_hosts 10.78
start_origin

cat >bird.conf <<END
router id 10.78.1.1;
protocol device {}
include "$dir/routes.conf";
END
touch routes.conf
bird -f -c bird.conf -s bird.ctl -P bird.pid >/dev/null 2>&1 &
bird=$!
wait_for test -S bird.ctl

cat >weir.toml <<END
[node]
interfaces = ["to_client", "to_server"]
[check.open]
kind = "tcp"
interval = "100ms"
fall = 2
rise = 1
[pool.p]
servers = ["10.78.2.2:80"]
check = "open"
[service.translated]
listen = ["10.78.1.100:80"]
forward = "nat"
pool = "p"
[notify.page]
command = ["/bin/sh", "-c", "(id -un; cat) >> $dir/out/page"]
user = "daemon"
[vrrp.outside]
interface = "to_client"
virtual_router_id = 51
version = 3
priority = 150
advert_interval = "100ms"
addresses = ["10.78.1.100/24"]
notify_master = ["/bin/sh", "-c", "id -un > $dir/out/master"]
notify_user = "daemon"
[announce]
speaker = "bird"
socket = "$dir/bird.ctl"
include = "$dir/routes.conf"
END
chmod 600 weir.toml
export WEIR_RUNTIME_DIR=$dir/run WEIR_PIN_DIR=$dir/bpf/weir WEIR_TEST_ATTEMPTS=1
cd /
"$weir" run -c "$dir/weir.toml" >"$dir/out/log" 2>&1 &
keeper=$!

page() { in_client curl -sS --max-time ${seconds:-2} "http://${1:-10.78.1.100}/page" | grep -q found; }
process() { pgrep -P $keeper -f "$1"; }
is_new() { new=$(process "$1") && [ "$new" != "$2" ]; }
served() { page && echo "$1: served"; }
holds() { ip -o address show dev to_client | grep -q "inet $1/"; }
lacks() { ! holds "$1"; }
routes() { birdc -s "$dir/bird.ctl" show route; }
announces() { routes | grep -q "^$1/32"; }
withdraws() { ! announces "$1"; }
daemon() { process 'weir.* run '; }
rights() { awk '/^(Uid|CapEff|NoNewPrivs):/ {print $2}' "/proc/$(daemon)/status" | xargs; }

wait_for page
served start
echo "daemon: $(rights)"
echo "directory: $(stat -c '%U %G %a' "$dir/run")"
wait_for test -s "$dir/out/master"
echo "program of the router: $(cat "$dir/out/master")"
wait_for announces 10.78.1.100
echo "announced: yes"
is_active() { "$weir" status --json | grep -q '"state": *"active"'; }
wait_for is_active
echo "status: active"

# A server's state change reaches the notifier and the announced VIPs.
kill $origin
wait_for withdraws 10.78.1.100
echo "withdrawn: yes"
wait_for test -s "$dir/out/page"
echo "notifier: $(head -1 "$dir/out/page")"
start_origin
wait_for announces 10.78.1.100
served again

# Requests that root's file does not permit are rejected.
wait_for grep -q 'does not permit the requested \[vrrp\]' "$dir/out/log"
lacks 192.0.2.77 && echo "attempted address: absent"
sed 's/10.78.1.100/10.78.1.101/' "$dir/weir.toml" >"$dir/text"
chmod 600 "$dir/text"
"$weir" reload -c "$dir/text" >"$dir/out/refused" 2>&1 && echo "text: applied" || echo "text: refused"
served after-refusal
cp "$dir/text" "$dir/weir.toml"
"$weir" reload >"$dir/out/reload" 2>&1 && echo "file: applied" || cat "$dir/out/reload"
moved() { holds 10.78.1.101 && lacks 10.78.1.100 && announces 10.78.1.101 && page 10.78.1.101; }
wait_for moved
echo "file: moved"

# Kill each process.
old=$(daemon)
kill -9 "$old"
wait_for is_new 'weir.* run ' "$old"
wait_for "$weir" status
moved && echo "killed daemon: served"
echo "daemon: $(rights)"
sleep 1.1
old=$(process 'helper --config')
kill -9 "$old"
wait_for is_new 'helper --config' "$old"
wait_for moved
echo "killed helper: served"
old=$(process announcer)
kill -9 "$old"
wait_for is_new announcer "$old"
wait_for moved
echo "killed announcer: served"
"$weir" upgrade "$weir" >"$dir/out/upgrade" 2>&1 && echo "upgrade: ok" || cat "$dir/out/upgrade"
# Wait until the previous daemon has exited.
is_alone() { [ "$(daemon | wc -l)" = 1 ]; }
wait_for is_alone
wait_for moved
echo "daemon: $(rights)"
"$weir" node drain >/dev/null
wait_for lacks 10.78.1.101
echo "drained: released"
"$weir" node ready >/dev/null
wait_for moved
echo "ready: served"
# The VIP moves to a different owner and back, without being absent.
cp "$dir/weir.toml" "$dir/routers.toml"
sed -i -e '/^\[vrrp/,$d' -e 's/^\[node\]/&\nvip_interface = "to_client"/' "$dir/weir.toml"
watch() { while :; do holds 10.78.1.101 || echo absent >>"$dir/out/absent"; done; }
watch &
watcher=$!
"$weir" reload >"$dir/out/reload" 2>&1 && echo "vip_interface: applied" || cat "$dir/out/reload"
is_without_agent() { ! process vrrp-agent; }
wait_for is_without_agent
has_permanently() { ip -o address show dev to_client | grep "inet $1 " | grep -qv dynamic; }
wait_for has_permanently 10.78.1.101/32
cp "$dir/routers.toml" "$dir/weir.toml"
"$weir" reload >"$dir/out/reload" 2>&1 && echo "router: applied" || cat "$dir/out/reload"
wait_for is_active
wait_for has_permanently 10.78.1.101/24
wait_for moved
kill $watcher
[ -e "$dir/out/absent" ] && echo "absent: $(wc -l <"$dir/out/absent")" || echo "absent: never"
# Without virtual routers, no address or route remains.
sed -i -e '/^\[vrrp/,$d' "$dir/weir.toml"
"$weir" reload >"$dir/out/reload" 2>&1 && echo "without: applied" || cat "$dir/out/reload"
wait_for lacks 10.78.1.101
wait_for withdraws 10.78.1.101
echo "without: removed"
kill $keeper
wait $keeper
keeper=
echo "stopped: $(stat -c '%U %a' "$dir/run")"
"$weir" clean >/dev/null 2>&1 && echo "clean: done"
