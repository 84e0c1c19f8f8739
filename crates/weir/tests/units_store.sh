# Replaces a Weir that runs as root in one unit by the units weir.service and weir-helper.service, and back, with a
# service manager of the test that stores descriptors. The director is in the network namespace of this script, its
# client and its server are in others. $1 is the program, $2 an empty directory that everybody can enter, $3 the
# directory of the units. Prints what the test compares.
set -u
weir=$1 room=$2 units=$3 tests=$(cd "$(dirname "$0")" && pwd)
. "$tests/separation_common.sh"

space
client=$!
space
server=$!
in_client() { nsenter -t $client -n "$@"; }
manager= service= origin= load=
trap 'exec 3>&-; kill $manager $service $origin $load $client $server 2>/dev/null; wait 2>/dev/null' EXIT
wait_for is_apart $client
wait_for is_apart $server
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
mkfifo out/orders out/answers
export WEIR_RUNTIME_DIR=$room/run WEIR_PIN_DIR=$room/bpf/weir WEIR_CONFIG=$room/weir.toml
cd /
python3 "$tests/units_manager.py" "$room/out/notify" "$room/out/log" <"$room/out/orders" >"$room/out/answers" &
manager=$!
exec 3>"$room/out/orders" 4<"$room/out/answers"
order() {
  echo "$*" >&3
  read -r answer <&4
}
# The capabilities of a unit, as setpriv wants them.
helper_set=$(sed -n 's/^CapabilityBoundingSet=//p' "$units/weir-helper.service" | tr ' ' '\n' |
  sed -n 's/^CAP_\(.*\)/+\1/p' | tr 'A-Z\n' 'a-z,')
start_service() {
  WEIR_HELPER_SOCKET=$room/helper/socket setpriv --bounding-set "-all,${helper_set%,}" --inh-caps -all \
    --no-new-privs "$weir" helper --service 3>&- 4<&- >>"$room/out/log.helper" 2>&1 &
  service=$!
}
start_units() {
  order start env "WEIR_HELPER_SOCKET=$room/helper/socket" setpriv --reuid weir --regid weir --clear-groups \
    --bounding-set -all --inh-caps -all --no-new-privs "$weir" run
  keeper=$answer
}
start_root() {
  order start "$weir" run
  keeper=$answer
}

page() { in_client curl -s --max-time 30 "http://$1/page" | grep -q found; }
rights() { awk '/^(Uid|CapEff):/ {print $2}' "/proc/$1/status" | xargs; }
daemon() { pgrep -P "$keeper" -f 'weir.* run'; }
is_up() { "$weir" status; }

start_root
wait_for is_up
page 10.81.9.1 && page 10.81.1.1:81 && echo "root: served"
echo "root: keeper $(awk '/^Uid/ {print $2}' "/proc/$keeper/status")"

# systemctl restart weir, after the package was installed.
begin 10.81.9.1 10.81.1.1:81
order stop
start_service
start_units
wait_for is_up
lost "root to units"
echo "units: keeper $(rights "$keeper"), daemon $(rights "$(daemon)")"
sed -i 's/10.81.9.1:80/10.81.9.2:80/' "$room/weir.toml"
"$weir" reload >"$room/out/reload" 2>&1 && page 10.81.9.2 && echo "units: reloaded" || cat "$room/out/reload"
sed -i 's/10.81.9.2:80/10.81.9.1:80/' "$room/weir.toml"
"$weir" reload >"$room/out/reload" 2>&1 || cat "$room/out/reload"

begin 10.81.9.1 10.81.1.1:81
order kill
start_units
wait_for is_up
lost "killed keeper"

# Back to the unit of an earlier version.
begin 10.81.9.1 10.81.1.1:81
order stop
kill $service
wait $service
service=
start_root
wait_for is_up
lost "units to root"
echo "root: keeper $(awk '/^Uid/ {print $2}' "/proc/$keeper/status")"
order stop
echo "stopped: $answer"
"$weir" clean >/dev/null 2>&1 && echo "clean: done"
