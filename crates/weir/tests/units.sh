# Runs Weir like the units weir.service and weir-helper.service: the keeper and its daemon as the account `weir` with
# no capability, and the helper service as root with the capabilities of its unit. There is no service manager here. The
# director is in the network namespace of this script; its client and its server are in others. $1 is the program, $2
# an empty directory that every account can enter, $3 the directory of the units. Prints the lines that the test
# compares.
set -u
weir=$1 dir=$2 units=$3
. "$(dirname "$0")/separation_common.sh"
echo 'lbadmin:x:992:' >>group
mkdir certs log
chmod 700 certs log
# As on a machine with systemd, the account cannot list the pins.
chmod 700 bpf

keeper= service= origin= load= client= server= blocker=
trap 'kill $keeper $service $origin $load $client $server $blocker 2>/dev/null; wait 2>/dev/null' EXIT
start_hosts 10.77
start_origin
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout key -out chain -subj /CN=localhost 2>/dev/null
cat chain key >certs/a.pem
chmod 600 certs/a.pem key
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
[service.translated]
listen = ["10.77.9.1:80"]
forward = "nat"
pool = "p"
[service.proxied]
listen = ["10.77.1.1:443"]
forward = "proxy"
protocol = "http"
pool = "p"
access_log = "$dir/log/access"
tls = { certificates = "$dir/certs" }
[[route]]
service = "proxied"
path = "/files/*"
files = { root = "$dir/web", strip = "/files" }
END
chmod 600 weir.toml
export WEIR_RUNTIME_DIR=$dir/run WEIR_PIN_DIR=$dir/bpf/weir WEIR_HELPER_SOCKET=$dir/helper/socket
export WEIR_CONFIG=$dir/weir.toml WEIR_TEST_ATTEMPTS=1
# Only the daemon receives this address as WEIR_TEST_VIP.
daemon_vip=10.77.9.5
cd /

# Prints the capabilities of a unit in setpriv's syntax.
bounding_set() {
  sed -n 's/^CapabilityBoundingSet=//p' "$units/$1" | tr ' ' '\n' | sed -n 's/^CAP_\(.*\)/+\1/p' | tr 'A-Z\n' 'a-z,'
}
helper_set=$(bounding_set weir-helper.service)
daemon_set=$(bounding_set weir.service)
start_service() {
  setpriv --bounding-set "-all,${helper_set%,}" --inh-caps -all --no-new-privs \
    "$weir" helper --service >>"$dir/out/helper" 2>&1 &
  service=$!
}
start_keeper() {
  setpriv --reuid weir --regid weir --clear-groups --bounding-set "-all${daemon_set:+,$daemon_set}" --inh-caps -all \
    --no-new-privs env "WEIR_TEST_VIP=$daemon_vip" "$weir" run >>"$dir/out/log" 2>&1 &
  keeper=$!
}

page() { in_client curl -sSk --max-time ${seconds:-2} "$1/page" | grep -q found; }
process() { pgrep -P "$1" -f "$2"; }
is_new() { new=$(process "$1" "$2") && [ "$new" != "$3" ]; }
served() { page "$2" && echo "$1: served"; }
owner_and_mode() { stat -c '%U %G %a' "$dir/$1"; }
nat=http://10.77.9.1 proxy=https://10.77.1.1
all_served() {
  served "$1 nat" $nat
  served "$1 proxy" $proxy
}
field() { awk "/^$2:/ {print \$2}" "/proc/$1/status"; }
privileges() { echo "user $(field "$1" Uid), CapEff $(field "$1" CapEff), NoNewPrivs $(field "$1" NoNewPrivs)"; }

# The keeper may start first: it waits for the service.
start_keeper
start_service
wait_for page $nat
wait_for page $proxy
all_served start
page "$proxy/files" && echo "files: served"
daemon=$(process $keeper 'weir.* run')
engine=$(process $service 'helper --engine')
echo "keeper: $(privileges $keeper)"
echo "daemon: $(privileges "$daemon"), CapBnd $(field "$daemon" CapBnd), Seccomp $(field "$daemon" Seccomp)"
echo "directories: $(owner_and_mode run), $(owner_and_mode helper), $(owner_and_mode helper/socket)"
echo "socket: $(owner_and_mode run/weir.sock)"
setpriv --reuid daemon --regid 992 --clear-groups "$weir" status >/dev/null && echo "status as a group member: ok"
echo "files: lock $(owner_and_mode run/lock), state $(owner_and_mode run/state.json), log $(owner_and_mode log/access)"
wait_for "$weir" status && echo "status: ok"

# The service accepts only requests from the account and from root, and the account cannot permit programs.
ask() { python3 "$dir/ask.py" "$WEIR_HELPER_SOCKET" "$1"; }
cat >"$dir/ask.py" <<'END'
import socket, sys
connection = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
connection.settimeout(5)
connection.connect(sys.argv[1])
connection.send(sys.argv[2].encode())
print(connection.recv(4096).decode())
END
as() { account=$1; shift; setpriv --reuid "$account" --regid 991 --clear-groups "$@"; }
permit='{"permit":{"program":"/bin/sh"}}'
as weir /usr/bin/python3 "$dir/ask.py" "$WEIR_HELPER_SOCKET" "$permit"
as daemon /usr/bin/python3 "$dir/ask.py" "$WEIR_HELPER_SOCKET" '{"keeper":{"version":1}}'
as weir /usr/bin/python3 "$dir/ask.py" "$WEIR_HELPER_SOCKET" '{"keeper":{"version":99}}'
cp /bin/true "$dir/foreign"
chown daemon "$dir/foreign"
ask "{\"permit\":{\"program\":\"$dir/foreign\"}}" | grep -o 'must be owned by root'

reload() {
  sed -i "s/10.77.1.1:$1/10.77.1.1:$2/" "$dir/weir.toml"
  "$weir" reload >"$dir/out/reload" 2>&1 && echo "$3: reloaded" || cat "$dir/out/reload"
  wait_for page https://10.77.1.1:"$2"
  served "$3" https://10.77.1.1:"$2"
}
start_requests $nat
reload 443 444 reload

kill -9 "$engine"
wait_for is_new $service 'helper --engine' "$engine"
wait_for "$weir" status
"$weir" server p/10.77.2.2:80 weight 3 >/dev/null 2>&1 && echo "new engine: weight set"

"$weir" ipvsadm -A -t 10.77.9.3:80 -s rr && "$weir" ipvsadm -D -t 10.77.9.3:80 && echo "ipvsadm as root: done"
echo "edits: $(owner_and_mode run/edits.sock)"

# The service rejects a configuration with a variable that has another value in the daemon or is not set in the service.
cp "$dir/weir.toml" "$dir/original.toml"
for address in '${WEIR_TEST_VIP}' '${WEIR_TEST_VIP:-10.77.9.1}'; do
  sed "s/10.77.9.1:80/$address:80/" "$dir/original.toml" >"$dir/weir.toml"
  "$weir" reload >"$dir/out/reload" 2>&1 && echo "variable: applied"
  grep -o 'WEIR_TEST_VIP is not set\|have different values' "$dir/out/reload"
done
cp "$dir/original.toml" "$dir/weir.toml"
"$weir" reload >"$dir/out/reload" 2>&1 || cat "$dir/out/reload"

# Kill the service, which ends every helper.
engine=$(process $service 'helper --engine')
kill -9 $service
wait $service 2>/dev/null
start_service
wait_for is_new $service 'helper --engine' "$engine"
wait_for "$weir" status
reload 444 445 "new service"

# Restart the service as `systemctl restart weir-helper` does.
engine=$(process $service 'helper --engine')
kill $service
wait $service
echo "service ended: $?"
start_service
wait_for is_new $service 'helper --engine' "$engine"
wait_for "$weir" status
echo "directories: $(owner_and_mode run)"

daemon=$(process $keeper 'weir.* run')
kill -9 "$daemon"
wait_for is_new $keeper 'weir.* run' "$daemon"
wait_for "$weir" status
served "killed daemon" https://10.77.1.1:445

"$weir" upgrade "$dir/foreign" >/dev/null 2>&1 || echo "foreign program: refused"
"$weir" upgrade /bin/false >/dev/null 2>&1 || echo "failed upgrade: refused"
cp "$weir" "$dir/next"
setpriv --reuid weir --regid weir --clear-groups "$weir" upgrade "$dir/next" >/dev/null 2>&1 ||
  echo "program owned by the account: refused"
"$weir" upgrade "$dir/next" >"$dir/out/upgrade" 2>&1 && echo "upgrade: ok" || cat "$dir/out/upgrade"
is_next() { [ "$(readlink "/proc/$(process "$1" "$2")/exe")" = "$dir/next" ]; }
wait_for is_next $service 'helper --engine'
wait_for is_next $keeper 'next.* run'
served upgraded https://10.77.1.1:445
stop_requests "all steps"

# systemd would pass the sockets to the next keeper.
kill -9 $keeper
wait $keeper 2>/dev/null
start_keeper
wait_for page https://10.77.1.1:445
all_served_again() { page $nat && page https://10.77.1.1:445; }
wait_for all_served_again && echo "killed keeper: served"
echo "directories: $(owner_and_mode run)"

kill $keeper
wait $keeper
echo "keeper ended: $?"
keeper=
is_owned_by_root() { [ "$(owner_and_mode run)" = "root root 700" ]; }
wait_for is_owned_by_root
echo "directories: $(owner_and_mode run)"
kill $service
wait $service
echo "service ended: $?"
service=
page $nat && echo "stopped: served"
"$weir" clean >/dev/null 2>&1 && echo "clean: done"

# A start that fails, here because another program uses the port, leaves none of the account's files.
rm -rf "$dir/run"
python3 -c '
import socket, time
listener = socket.socket()
listener.bind(("0.0.0.0", 445))
listener.listen()
time.sleep(1000)' &
blocker=$!
is_blocked() { [ -n "$(ss -Hltn sport = :445)" ]; }
wait_for is_blocked
start_service
start_keeper
wait $keeper
echo "failed start: $?, files: $(ls "$dir/run" | xargs)"
keeper=
