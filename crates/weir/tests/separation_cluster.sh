# Runs two directors of a group that get their layer 4 services from a real etcd. The first one runs as with the units:
# keeper and daemon as the account `weir`, and the helper service as root; it also has a virtual router and announced
# VIPs. The second one is started by root. The group also publishes a certificate, whose files are then removed. The
# first director is in this script's network namespace; the second one, the client and the server are in others. $1
# is the program, $2 an empty directory that every account can enter, $3 the directory of the units. Prints the lines
# that the test compares.
set -u
weir=$1 dir=$2 units=$3
. "$(dirname "$0")/separation_common.sh"
# As on a machine with systemd, the account cannot list the pins.
chmod 700 bpf

add_namespace
client=$!
add_namespace
server=$!
add_namespace
peer=$!
in_client() { nsenter -t $client -n "$@"; }
service= first= second= origin= load= bird= etcd=
data=$(mktemp -d /dev/shm/weir-separation.XXXXXX)
trap 'kill $first $second $service $origin $load $bird $etcd $client $server $peer 2>/dev/null; wait 2>/dev/null
rm -rf "$data"' EXIT
for pid in $client $server $peer; do wait_for has_own_netns "$pid"; done
ip link set lo up
sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
# link NAME PID NUMBER: creates a link to another namespace, with addresses of 10.80.NUMBER.0/24.
link() {
  ip link add "$1" type veth peer name eth0 netns "$2"
  ip address add "10.80.$3.1/24" dev "$1"
  ip link set "$1" up
  nsenter -t "$2" -n ip address add "10.80.$3.2/24" dev eth0
  nsenter -t "$2" -n ip link set eth0 up
  nsenter -t "$2" -n ip link set lo up
  nsenter -t "$2" -n ip route add default via "10.80.$3.1"
}
link to_client $client 1
link to_server $server 2
link to_peer $peer 3
(cd web && exec nsenter -t $server -n python3 -m http.server 80) >/dev/null 2>&1 &
origin=$!
wait_for in_server sh -c 'ss -ltn | grep -q ":80 "'

start_etcd() {
  etcd --name e --data-dir "$data/etcd" --listen-client-urls http://10.80.3.1:2379 \
    --advertise-client-urls http://10.80.3.1:2379 --listen-peer-urls http://10.80.3.1:2380 \
    --initial-advertise-peer-urls http://10.80.3.1:2380 --initial-cluster e=http://10.80.3.1:2380 \
    >"$dir/out/log.etcd" 2>&1 &
  etcd=$!
  wait_for env ETCDCTL_API=3 etcdctl --endpoints http://10.80.3.1:2379 get x
}
start_etcd

cat >bird.conf <<END
router id 10.80.1.1;
protocol device {}
include "$dir/routes.conf";
END
touch routes.conf
bird -f -c bird.conf -s bird.ctl -P bird.pid >/dev/null 2>&1 &
bird=$!
wait_for test -S bird.ctl

# Only root can read the certificate.
mkdir -m 700 certs
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:P-256 -nodes -days 90 -subj /CN=www.test \
  -addext subjectAltName=DNS:www.test -keyout certs/www.key -out certs/www.crt 2>/dev/null
cp certs/www.crt "$dir/out/www.pem"

# config MEMBER: prints the configuration of a member.
config() {
  cat <<END
[cluster]
etcd = ["http://10.80.3.1:2379"]
name = "edge"
member = "$1"
lease = "2s"
group_key = "a key of sixteen bytes or more"
files = ["$dir/certs"]
[cluster.publish]
vips = ["10.80.9.0/24", "0.0.0.0"]
servers = ["10.80.2.0/24"]
ports = ["80", "81", "8443"]
forwards = ["nat", "tunnel", "proxy"]
END
}
{
  config first
  cat <<END
[node]
vip_interface = "to_client"
[vrrp.outside]
interface = "to_client"
virtual_router_id = 51
version = 3
priority = 150
advert_interval = "100ms"
addresses = ["10.80.9.5/32"]
accept = false
[announce]
speaker = "bird"
socket = "$dir/bird.ctl"
include = "$dir/routes.conf"
END
} >first.toml
config second >second.toml
chmod 600 first.toml second.toml
# published_config VIP: prints a configuration with a service at this address, one at the address of the virtual router,
# a proxy service at a privileged port, one with TLS, and one with a second hop.
published_config() {
  cat <<END
[check.open]
kind = "tcp"
interval = "100ms"
rise = 1
[pool.p]
scheduler = "maglev"
servers = ["10.80.2.2:80"]
check = "open"
[service.translated]
listen = ["10.80.9.1:80", "$1:80"]
forward = "nat"
pool = "p"
[service.routed]
listen = ["10.80.9.5:80"]
forward = "nat"
pool = "p"
[pool.w]
servers = ["10.80.2.2:80"]
[service.proxied]
listen = ["0.0.0.0:81"]
forward = "proxy"
protocol = "http"
pool = "w"
[service.secure]
listen = ["0.0.0.0:8443"]
forward = "proxy"
protocol = "http"
pool = "w"
tls = { certificates = ["$dir/certs"] }
[pool.g]
scheduler = "maglev"
servers = ["10.80.2.2"]
[service.encapsulated]
listen = ["10.80.9.6:80"]
forward = "tunnel"
tunnel = "gue"
pool = "g"
END
}

cd /
# Prints the capabilities of a unit in setpriv's syntax.
bounding_set() {
  sed -n 's/^CapabilityBoundingSet=//p' "$units/$1" | tr ' ' '\n' | sed -n 's/^CAP_\(.*\)/+\1/p' | tr 'A-Z\n' 'a-z,'
}
helper_set=$(bounding_set weir-helper.service)
export WEIR_HELPER_SOCKET=$dir/helper/socket
at_first() { WEIR_RUNTIME_DIR=$dir/run WEIR_PIN_DIR=$dir/bpf/first "$@"; }
at_second() { WEIR_RUNTIME_DIR=$dir/run2 WEIR_PIN_DIR=$dir/bpf/second nsenter -t $peer -n "$@"; }
# This does not use at_first, because $! would be the process of the function.
start_service() {
  WEIR_RUNTIME_DIR=$dir/run WEIR_PIN_DIR=$dir/bpf/first WEIR_CONFIG=$dir/first.toml \
    setpriv --bounding-set "-all,${helper_set%,}" --inh-caps -all --no-new-privs \
    "$weir" helper --service >>"$dir/out/helper" 2>&1 &
  service=$!
}
start_service
WEIR_TEST_ATTEMPTS=1 WEIR_RUNTIME_DIR=$dir/run WEIR_PIN_DIR=$dir/bpf/first WEIR_CONFIG=$dir/first.toml \
  setpriv --reuid weir --regid weir --clear-groups --bounding-set -all --inh-caps -all --no-new-privs \
  "$weir" run >"$dir/out/log" 2>&1 &
first=$!
(
  unset WEIR_HELPER_SOCKET
  WEIR_RUNTIME_DIR=$dir/run2 WEIR_PIN_DIR=$dir/bpf/second exec nsenter -t $peer -n "$weir" run \
    -c "$dir/second.toml" >"$dir/out/log2" 2>&1
) &
second=$!

page() { in_client curl -sS --max-time ${seconds:-2} "http://$1/page" | grep -q found; }
secure_page() {
  in_client curl -sS --max-time 2 --cacert "$dir/out/www.pem" --resolve www.test:8443:10.80.1.1 \
    https://www.test:8443/page | grep -q found
}
process() { pgrep -P "$1" -f "$2"; }
is_new() { new=$(process "$1" "$2") && [ "$new" != "$3" ]; }
privileges() { awk '/^(Uid|CapEff|NoNewPrivs):/ {print $2}' "/proc/$(process "$1" 'weir.* run')/status" | xargs; }
all_served() {
  page 10.80.9.1 && page "$2" && page 10.80.9.5 && page 10.80.1.1:81 && secure_page && echo "$1: served"
}
is_member() { "$1" "$weir" cluster status | grep -Eq "$2 .*present"; }
wait_for at_first "$weir" status
wait_for at_second "$weir" status
has_both_members() { [ "$(at_first "$weir" cluster status --json | grep -o '"present"' | wc -l)" = 2 ]; }
wait_for has_both_members
echo "first daemon: $(privileges $first)"
echo "second daemon: $(privileges $second)"

# publish at_first|at_second [GUARD]: publishes the configuration on standard input from that director.
publish() { "$1" "$weir" cluster publish - --guard "${2:-0s}"; }
published_config 10.80.9.2 | publish at_second >"$dir/out/publish" 2>&1 && echo "published" || cat "$dir/out/publish"
wait_for page 10.80.9.1
wait_for page 10.80.9.5
wait_for page 10.80.1.1:81
rm -r "$dir/certs"
wait_for secure_page
all_served start 10.80.9.2
has_rule() { nft list ruleset | tee "$dir/out/rules" | grep -q '10.80.9.5.*dport 80'; }
wait_for has_rule
echo "virtual router: accepts the published service"
announces() { birdc -s "$dir/bird.ctl" show route | grep -q "^$1/32"; }
wait_for announces 10.80.9.2
echo "published VIP: announced"
on_second() { at_second "$weir" status | grep -q '10.80.9.2:80'; }
wait_for on_second
echo "second: services applied"

# Configurations that root's files do not permit are rejected, by the director that publishes and by the others.
refuse() {
  publish at_second >"$dir/out/refused" 2>&1 && echo "$1: published"
  grep -o "$2" "$dir/out/refused" | head -1
}
published_config 198.51.100.1 | refuse vip '198.51.100.1 is not in .vips. of \[cluster.publish\]'
published_config 10.80.9.2 | sed 's/"10.80.2.2:80"/"10.80.1.2:80"/' | refuse server '10.80.1.2 is not in .servers. of'
published_config 10.80.9.2 | sed '0,/"nat"/s//"direct"/' | refuse forward 'direct is not in .forwards. of'
published_config 10.80.9.2 | sed 's/9.2:80/9.2:82/' | refuse port 'port 82 is not in .ports. of'
# On the second director, root permits more than on the first.
sed -i 's/"0.0.0.0"/"0.0.0.0", "198.51.100.0\/24"/' "$dir/second.toml"
at_second "$weir" reload >"$dir/out/reload" 2>&1 || cat "$dir/out/reload"
published_config 198.51.100.1 | refuse other 'was stopped by first'
at_first "$weir" cluster status | grep -o '198.51.100.1 is not in .vips. of' | head -1
all_served after-refusal 10.80.9.2

start_requests 10.80.9.1
published_config 10.80.9.3 | publish at_first >"$dir/out/publish" 2>&1 && echo "published again" ||
  cat "$dir/out/publish"
wait_for page 10.80.9.3
stop_requests publication
wait_for announces 10.80.9.3

# With a guard, both directors stage the new servers of the service with a second hop before one of them uses it.
with_new_server() { published_config 10.80.9.3 | sed 's/"10.80.2.2"\]/"10.80.2.2", "10.80.2.3"]/'; }
with_new_server | publish at_second 1s >"$dir/out/publish" 2>&1 && echo "published with a guard" ||
  cat "$dir/out/publish"
for log in log log2; do
  grep -q "staged the servers of another version" "$dir/out/$log" && echo "$log: staged"
done

start_requests 10.80.9.1
engine=$(process $service 'helper --engine')
kill -9 "$engine"
wait_for is_new $service 'helper --engine' "$engine"
wait_for at_first "$weir" status
helper=$(process $service 'helper --daemon')
kill -9 "$helper"
daemon=$(process $first 'weir.* run')
kill -9 "$daemon"
wait_for is_new $first 'weir.* run' "$daemon"
wait_for at_first "$weir" status
stop_requests "killed engine, helper and daemon"
all_served "killed engine, helper and daemon" 10.80.9.3

# Kill the service, which ends every helper. The virtual router starts again.
start_requests 10.80.9.1
engine=$(process $service 'helper --engine')
kill -9 $service
wait $service 2>/dev/null
start_service
wait_for is_new $service 'helper --engine' "$engine"
wait_for at_first "$weir" status
stop_requests "killed service"
wait_for all_served x 10.80.9.3
all_served "killed service" 10.80.9.3
# A standby process takes over from each of these processes.
for program in vrrp-agent announcer; do
  old=$(process $service "$program" | head -1)
  kill -9 "$old"
  has_ended() { [ -n "$(process $service "$program")" ] && ! process $service "$program" | grep -qx "$old"; }
  wait_for has_ended
done
wait_for all_served x 10.80.9.3
announces 10.80.9.3 && echo "killed agent and announcer: served"

start_requests 10.80.9.1
at_first "$weir" upgrade "$weir" >"$dir/out/upgrade" 2>&1 && echo "upgrade: ok" || cat "$dir/out/upgrade"
stop_requests upgrade
is_alone() { [ "$(process $first 'weir.* run' | wc -l)" = 1 ]; }
wait_for is_alone
echo "first daemon: $(privileges $first)"
published_config 10.80.9.4 | publish at_second >"$dir/out/publish" 2>&1 && echo "published after the upgrade" ||
  cat "$dir/out/publish"
wait_for page 10.80.9.4

# Without etcd, the last configuration remains active, even after a restart of the daemon.
kill -9 $etcd
wait $etcd 2>/dev/null
daemon=$(process $first 'weir.* run')
kill -9 "$daemon"
wait_for is_new $first 'weir.* run' "$daemon"
wait_for at_first "$weir" status
all_served "without etcd" 10.80.9.4
start_etcd

# A reload is rejected if the file permits less than the group has published.
cp "$dir/first.toml" "$dir/out/first.toml"
sed -i 's/"10.80.9.0\/24"/"10.80.9.1", "10.80.9.5"/' "$dir/first.toml"
at_first "$weir" reload >"$dir/out/reload" 2>&1 && echo "narrow: applied"
grep -o '10.80.9.4 is not in .vips. of' "$dir/out/reload" | head -1
sed -i '/^\[cluster.publish/,/^forwards/d' "$dir/first.toml"
at_first "$weir" reload >"$dir/out/reload" 2>&1 && echo "without: applied"
grep -o 'cannot be published without \[cluster.publish\]' "$dir/out/reload" | head -1
cat "$dir/out/first.toml" >"$dir/first.toml"
at_first "$weir" reload >"$dir/out/reload" 2>&1 && echo "restored: applied" || cat "$dir/out/reload"
all_served end 10.80.9.4
wait_for grep -q 'does not permit the requested \[vrrp\]' "$dir/out/helper"
ip -o address show dev to_client | grep -q 192.0.2.77 || echo "attempted address: absent"

kill $first
wait $first
first=
kill $service
wait $service
service=
page 10.80.9.1 && echo "stopped: served"
at_first "$weir" clean >/dev/null 2>&1 && echo "clean: done"
kill $second
wait $second
second=
at_second "$weir" clean >/dev/null 2>&1 && echo "clean: done"
