# Replaces a Weir that runs as root in one unit with the units weir.service and weir-helper.service, and back, using
# the test's service manager, which stores descriptors. The director is in the network namespace of this script, its
# client and its server are in others. $1 is the program, $2 an empty directory that every account can enter, $3 the
# directory of the units. Prints the lines that the test compares.
set -u
weir=$1 dir=$2 units=$3 tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/separation_common.sh"

add_namespace
client=$!
add_namespace
server=$!
in_client() { nsenter -t $client -n "$@"; }
manager= service= origin= load=
trap 'exec 3>&-; kill $manager $service $origin $load $client $server 2>/dev/null; wait 2>/dev/null' EXIT
wait_for has_own_netns $client
wait_for has_own_netns $server
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
ip link add to_client type veth peer name eth0 netns $client
ip link add to_server type veth peer name eth0 netns $server
ip address add 10.81.1.1/24 dev to_client
ip address add 10.81.2.1/24 dev to_server
ip link set to_client up
ip link set to_server up
in_client ip address add 10.81.1.2/24 dev eth0
in_client ip link set eth0 up
in_client ip route add default via 10.81.1.1
nsenter -t $server -n ip address add 10.81.2.2/24 dev eth0
nsenter -t $server -n ip link set eth0 up
nsenter -t $server -n ip route add default via 10.81.2.1
(cd web && exec nsenter -t $server -n python3 -m http.server 80) >/dev/null 2>&1 &
origin=$!
wait_for nsenter -t $server -n sh -c 'ss -ltn | grep -q ":80 "'
cat >weir.toml <<END
[node]
vip_interface = "to_client"
[pool.p]
servers = ["10.81.2.2:80"]
[service.translated]
listen = ["10.81.9.1:80"]
forward = "nat"
pool = "p"
[service.proxied]
listen = ["10.81.1.1:81"]
forward = "proxy"
protocol = "http"
pool = "p"
END
chmod 600 weir.toml
mkfifo out/manager-requests out/manager-replies
export WEIR_RUNTIME_DIR=$dir/run WEIR_PIN_DIR=$dir/bpf/weir WEIR_CONFIG=$dir/weir.toml
cd /
python3 "$tests/units_manager.py" "$dir/out/notify" "$dir/out/log" \
  <"$dir/out/manager-requests" >"$dir/out/manager-replies" &
manager=$!
exec 3>"$dir/out/manager-requests" 4<"$dir/out/manager-replies"
request() {
  echo "$*" >&3
  read -r reply <&4
}
# The capabilities of the unit in setpriv's syntax.
helper_set=$(sed -n 's/^CapabilityBoundingSet=//p' "$units/weir-helper.service" | tr ' ' '\n' |
  sed -n 's/^CAP_\(.*\)/+\1/p' | tr 'A-Z\n' 'a-z,')
start_service() {
  WEIR_HELPER_SOCKET=$dir/helper/socket setpriv --bounding-set "-all,${helper_set%,}" --inh-caps -all \
    --no-new-privs "$weir" helper --service 3>&- 4<&- >>"$dir/out/log.helper" 2>&1 &
  service=$!
}
start_units() {
  request start env "WEIR_HELPER_SOCKET=$dir/helper/socket" setpriv --reuid weir --regid weir --clear-groups \
    --bounding-set -all --inh-caps -all --no-new-privs "$weir" run
  keeper=$reply
}
start_root() {
  request start "$weir" run
  keeper=$reply
}

page() { in_client curl -sS --max-time 30 "http://$1/page" | grep -q found; }
rights() { awk '/^(Uid|CapEff):/ {print $2}' "/proc/$1/status" | xargs; }
daemon() { pgrep -P "$keeper" -f 'weir.* run'; }
is_up() { "$weir" status; }

start_root
wait_for is_up
page 10.81.9.1 && page 10.81.1.1:81 && echo "root: served"
echo "root: keeper $(awk '/^Uid/ {print $2}' "/proc/$keeper/status")"

# Restart as `systemctl restart weir` does after the installation of the package.
start_requests 10.81.9.1 10.81.1.1:81
request stop
start_service
start_units
wait_for is_up
stop_requests "root to units"
echo "units: keeper $(rights "$keeper"), daemon $(rights "$(daemon)")"
sed -i 's/10.81.9.1:80/10.81.9.2:80/' "$dir/weir.toml"
"$weir" reload >"$dir/out/reload" 2>&1 && page 10.81.9.2 && echo "units: reloaded" || cat "$dir/out/reload"
sed -i 's/10.81.9.2:80/10.81.9.1:80/' "$dir/weir.toml"
"$weir" reload >"$dir/out/reload" 2>&1 || cat "$dir/out/reload"

start_requests 10.81.9.1 10.81.1.1:81
request kill
start_units
wait_for is_up
stop_requests "killed keeper"

# Return to the unit of an earlier version.
start_requests 10.81.9.1 10.81.1.1:81
request stop
kill $service
wait $service
service=
start_root
wait_for is_up
stop_requests "units to root"
echo "root: keeper $(awk '/^Uid/ {print $2}' "/proc/$keeper/status")"
request stop
echo "stopped: $reply"
"$weir" clean >/dev/null 2>&1 && echo "clean: done"
