# Runs a director with an account `weir`: layer 4 services, a proxy service, checks. The director is in the network
# namespace of this script, its client and its server are in others. $1 is the program, $2 an empty directory that
# every account can enter. Prints the lines that the test compares.
set -u
weir=$1 dir=$2
. "$(dirname "$0")/separation_common.sh"
echo 'lbadmin:x:992:daemon' >>group

keeper= origin= load= client= server=
trap 'kill $keeper $origin $load $client $server 2>/dev/null; wait 2>/dev/null' EXIT
start_hosts 10.77
in_server ip address add 10.77.9.2/32 dev lo
# The replies of the `direct` server bypass the director.
in_client sysctl -qw net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
in_client ip link add from_server type veth peer name eth1 netns $server
in_client ip address add 10.77.3.1/24 dev from_server
in_client ip link set from_server up
in_server ip address add 10.77.3.2/24 dev eth1
in_server ip link set eth1 up
in_server ip route add default via 10.77.3.1 table 100
in_server ip rule add from 10.77.9.2 lookup 100
start_origin

cat >weir.toml <<END
[node]
vip_interface = "to_client"
socket_group = "lbadmin"
socket_mode = "0660"
[check.open]
kind = "tcp"
interval = "200ms"
[pool.p]
servers = ["10.77.2.2:80"]
check = "open"
[pool.q]
servers = ["\${WEIR_TEST_SERVER:-10.77.2.9}"]
[service.translated]
listen = ["10.77.9.1:80"]
forward = "nat"
pool = "p"
[service.direct]
listen = ["\${WEIR_TEST_VIP}:80"]
forward = "direct"
pool = "q"
[service.proxied]
listen = ["10.77.1.1:8080"]
forward = "proxy"
protocol = "http"
pool = "p"
END
chmod 600 weir.toml
export WEIR_RUNTIME_DIR=$dir/run WEIR_PIN_DIR=$dir/bpf/weir WEIR_TEST_ATTEMPTS=1
export WEIR_TEST_VIP=10.77.9.2 WEIR_TEST_SERVER=10.77.2.2
cd /
"$weir" run -c "$dir/weir.toml" >"$dir/out/log" 2>&1 &
keeper=$!

page() { in_client curl -sS --max-time ${seconds:-2} "http://$1/page" | grep -q found; }
process() { pgrep -P $keeper -f "$1"; }
is_new() { new=$(process "$1") && [ "$new" != "$2" ]; }
served() { page "$2" && echo "$1: served"; }
all_served() {
  served "$1 nat" 10.77.9.1
  served "$1 direct" 10.77.9.2
  served "$1 proxy" 10.77.1.1:8080
}
owner_and_mode() { stat -c '%U %a' "$dir/$1"; }

wait_for page 10.77.9.1
wait_for page 10.77.9.2
wait_for page 10.77.1.1:8080
all_served start
daemon=$(process 'weir.* run ')
engine=$(process 'helper --engine')
rights() {
  grep -E '^(CapEff|CapPrm|CapBnd|NoNewPrivs|Seccomp):' "/proc/$1/status" | tr -d '\t' | sort | xargs
}
echo "daemon: $(rights "$daemon")"
echo "daemon: $(awk '/^Uid/ {print $2, $3, $4, $5}' "/proc/$daemon/status")"
field() { awk "/^$2:/ {print \$2}" "/proc/$1/status"; }
# BPF, PERFMON, NET_ADMIN, NET_RAW, NET_BIND_SERVICE, SYS_ADMIN, SYS_RESOURCE, CHOWN, FOWNER, DAC_OVERRIDE,
# DAC_READ_SEARCH: this machine may lack some of them.
needed=0xc00120340f
other=$(((0x$(field "$engine" CapEff) | 0x$(field "$engine" CapBnd)) & ~needed))
echo "engine: user $(field "$engine" Uid), other capabilities: $other, NoNewPrivs: $(field "$engine" NoNewPrivs)"
directory="directory: $(stat -c '%U %G %a' "$dir/run")"
echo "$directory, state: $(owner_and_mode run/state.json), overrides: $(owner_and_mode run/proxy.json)"
wait_for "$weir" status && echo "status: ok"
ip -o address show dev to_client | grep -c 'inet 10\.77\.9\.' | sed 's/^/added VIPs: /'
"$weir" server p/10.77.2.2:80 drain >/dev/null 2>&1 && echo "server: drained"
"$weir" ipvsadm -Ln | grep -q '10.77.2.2:80 *Masq *0' && echo "ipvsadm: lists weight 0"
"$weir" server p/10.77.2.2:80 ready >/dev/null 2>&1 && echo "server: ready"

# Check who may edit ipvsadm's services.
edit() { "$@" "$weir" ipvsadm -A -t 10.77.9.3:80 -s rr; }
edit >"$dir/out/edit" 2>&1 && echo "ipvsadm as root: done" || cat "$dir/out/edit"
"$weir" ipvsadm -a -t 10.77.9.3:80 -r 10.77.2.2:80 -m && served "ipvsadm" 10.77.9.3
"$weir" ipvsadm -D -t 10.77.9.3:80
as_member() { setpriv --reuid 1 --regid 1 --groups "$1" "$weir" ipvsadm -A -t 10.77.9.4:80 -s rr; }
as_member 992 >"$dir/out/edit" 2>&1 && echo "ipvsadm as a group member: done" || cat "$dir/out/edit"
as_member 1 >/dev/null 2>&1 && echo "ipvsadm as another user: done" || echo "ipvsadm as another user: refused"

# ipvsadm and a proxy service cannot have the same address.
"$weir" ipvsadm -A -t 10.77.1.1:8080 2>&1
"$weir" ipvsadm -A -t 10.77.1.1:8081 -s rr
cp -p "$dir/weir.toml" "$dir/original.toml"
sed -i 's/10.77.1.1:8080/10.77.1.1:8081/' "$dir/weir.toml"
"$weir" reload 2>&1 | grep -o 'ipvsadm -D .*:8081'
mv "$dir/original.toml" "$dir/weir.toml"
"$weir" ipvsadm -D -t 10.77.1.1:8081

# A submitted text can change only the proxy services.
sed 's/10.77.9.1:80/10.77.9.7:80/' "$dir/weir.toml" >"$dir/text"
chmod 600 "$dir/text"
"$weir" reload -c "$dir/text" >"$dir/out/refused" 2>&1 && echo "text: applied" || echo "text: refused"
all_served after-refusal
cp "$dir/text" "$dir/weir.toml"
"$weir" reload >"$dir/out/reload" 2>&1 && echo "file: applied" || cat "$dir/out/reload"
served file 10.77.9.7

start_requests 10.77.9.7
kill -9 "$engine"
wait_for is_new 'helper --engine' "$engine"
wait_for "$weir" status
stop_requests killed-engine
all_served_again() { page 10.77.9.7 && page 10.77.9.2 && page 10.77.1.1:8080; }
all_served_again && echo "new engine: served"
"$weir" server q/10.77.2.2 weight 3 >/dev/null 2>&1 && echo "new engine: weight set"
sed -i 's/10.77.9.7:80/10.77.9.8:80/' "$dir/weir.toml"
"$weir" reload >"$dir/out/reload" 2>&1 && echo "new engine: reloaded" || cat "$dir/out/reload"

start_requests 10.77.9.8
daemon=$(process 'weir.* run ')
kill -9 "$daemon"
wait_for is_new 'weir.* run ' "$daemon"
wait_for "$weir" status
stop_requests killed-daemon
served killed-daemon 10.77.9.8

start_requests 10.77.9.8
"$weir" upgrade /bin/false >/dev/null 2>&1 || echo "failed upgrade: refused"
echo "directory: $(stat -c '%U %G %a' "$dir/run")"
"$weir" upgrade "$weir" >"$dir/out/upgrade" 2>&1 && echo "upgrade: ok" || cat "$dir/out/upgrade"
stop_requests upgrade
served upgraded 10.77.9.8
"$weir" ipvsadm -Ln | grep -q '10.77.9.4:80' && echo "ipvsadm: kept"
# Wait until the previous daemon and its engine process have exited.
is_alone() { [ "$(process "$1" | wc -l)" = 1 ]; }
wait_for is_alone 'weir.* run '
wait_for is_alone 'helper --engine'
daemon=$(process 'weir.* run ')
echo "daemon: $(awk '/^Uid/ {print $2, $3, $4, $5}' "/proc/$daemon/status")"
kill $keeper
wait $keeper
keeper=
echo "stopped: $(owner_and_mode run)"
served stopped 10.77.9.8
"$weir" ipvsadm -A -t 10.77.9.5:80 -s rr && echo "ipvsadm without a daemon: done"
"$weir" clean >/dev/null 2>&1 && echo "clean: done"
