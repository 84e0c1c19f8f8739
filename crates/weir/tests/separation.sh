# Runs a proxy-only Weir as root with an account `weir`, in separate mount and network namespaces. $1 is the
# program, $2 an empty directory that every account can enter, $3 an older weir binary, to which the script downgrades
# and from which it upgrades again. Prints the lines that the test compares.
set -u
weir=$1 dir=$2 older=$3
. "$(dirname "$0")/separation_common.sh"
ip link set lo up
mkdir certs log
chmod 700 certs log
openssl req -x509 -newkey rsa:2048 -nodes -days 30 -keyout key -out chain -subj /CN=localhost \
  -addext subjectAltName=DNS:localhost 2>/dev/null
cat chain key >certs/a.pem
printf x >certs/a.pem.ocsp
chmod 600 certs/a.pem certs/a.pem.ocsp key
mkdir list parts
chmod 700 list parts
echo 127.0.0.1:8081 >list/servers
cat >probe <<END
id -un >$dir/out/script.new
mv -f $dir/out/script.new $dir/out/script
grep -c . /etc/shadow >$dir/out/shadow 2>/dev/null
exit 0
END
cat >weir.toml <<END
include = ["parts/*.toml"]
[check.script]
kind = "script"
command = ["/bin/sh", "$dir/probe"]
user = "daemon"
interval = "200ms"
[check.echo]
kind = "ping"
interval = "200ms"
[service.s]
listen = ["127.0.0.1:443"]
forward = "proxy"
protocol = "http"
pool = "p"
access_log = "$dir/log/access"
tls = { certificates = "$dir/certs" }
[[route]]
service = "s"
path = "/files/*"
files = { root = "$dir/web", strip = "/files" }
END
cat >parts/pool.toml <<END
[pool.p]
servers_file = "$dir/list/servers"
check = ["script", "echo"]
require = "all"
END
chmod 600 weir.toml parts/pool.toml
export WEIR_RUNTIME_DIR=$dir/run WEIR_PIN_DIR=$dir/pin WEIR_TEST_ATTEMPTS=1
(cd web && exec python3 -m http.server 8081 --bind 127.0.0.1) >/dev/null 2>&1 &
origin=$!
wait_for sh -c 'ss -ltn | grep -q "127.0.0.1:8081 "'
cd /
"$weir" run -c "$dir/weir.toml" >"$dir/out/log" 2>&1 &
keeper=$!
trap 'kill $keeper $origin 2>/dev/null; wait 2>/dev/null' EXIT

page() { curl -sSk --max-time 5 "https://127.0.0.1:${1:-443}/page" | grep -q found; }
process() { pgrep -P $keeper -f "$1"; }
is_new() { new=$(process "$1") && [ "$new" != "$2" ]; }
served() { page "${2:-443}" && echo "$1: served"; }
owner_and_mode() { stat -c '%U %a' "$dir/$1"; }

wait_for page
served start
curl -sk --max-time 5 https://127.0.0.1/files/page | grep -q found && echo "files: served"
daemon=$(process 'weir.* run ')
status=/proc/$daemon/status
grep -E '^(CapEff|CapPrm|CapBnd|CapAmb|NoNewPrivs|Seccomp):' "$status" | tr -d '\t' | sort | xargs echo daemon:
echo "daemon: $(stat -c %U "/proc/$daemon/stat") $(awk '/^Uid/ {print $2, $3, $4, $5}' "$status")"
for pid in $keeper $(pgrep -P $keeper); do grep ^NoNewPrivs "/proc/$pid/status"; done |
  tr -d '\t' | sort -u | xargs echo processes:
echo "directory: $(owner_and_mode run), socket: $(owner_and_mode run/weir.sock), lock: $(owner_and_mode run/lock)"
wait_for test -s "$dir/out/script"
echo "script: $(cat "$dir/out/script")"
wait_for test -s "$dir/log/access"
echo "log: $(owner_and_mode log/access)"
"$weir" status >/dev/null && echo "status: ok"

# `reload -c` fails if the daemon's account cannot read the file. Afterwards, the same text is applied as the daemon's
# own file.
# The text has no route with `files`, which the older program may not support.
sed -e 's/127.0.0.1:443/127.0.0.1:444/' -e '/^\[\[route/,$d' "$dir/weir.toml" >"$dir/text"
chmod 600 "$dir/text"
"$weir" reload -c "$dir/text" >"$dir/out/refused" 2>&1 && echo "text: applied" || echo "text: refused"
grep -o "the daemon runs as the account weir" "$dir/out/refused"
grep -o "copy it over the daemon.s file" "$dir/out/refused"
served after-refusal
cp "$dir/text" "$dir/weir.toml"
"$weir" reload >"$dir/out/reload" 2>&1 && echo "file: applied" || cat "$dir/out/reload"
grep -o "a.pem.ocsp: not an OCSP response" "$dir/out/reload" | sort -u
served file 444

helper=$(process 'helper --daemon')
kill -9 "$helper"
served without-helper 444
sed 's/127.0.0.1:444/127.0.0.1:445/' "$dir/text" >"$dir/weir.toml"
"$weir" reload >"$dir/out/reload" 2>&1 && echo "new helper: reloaded" || cat "$dir/out/reload"
served new-helper 445

daemon=$(process 'weir.* run ')
kill -9 "$daemon"
wait_for is_new 'weir.* run ' "$daemon"
wait_for page 445
served killed-daemon 445

cp /bin/true "$dir/foreign"
chown daemon "$dir/foreign"
# upgrade PROGRAM NAME
upgrade() {
  if "$weir" upgrade "$1" >/dev/null 2>&1; then echo "$2: ok"; else echo "$2: refused"; fi
}
upgrade "$dir/foreign" "foreign program"
upgrade /bin/false "failed upgrade"
echo "directory: $(owner_and_mode run)"
"$weir" upgrade "$weir" >/dev/null 2>&1 && echo "upgrade: ok" || echo "upgrade: failed"
wait_for page 445
served upgraded 445
# A link that the daemon's account owns points to root's program, and to another program after the upgrade.
mkdir "$dir/account"
printf '#!/bin/sh\nid -un >%s/out/other\n' "$dir" >"$dir/account/other"
chmod 755 "$dir/account/other"
ln -s "$weir" "$dir/account/link"
chown -h weir "$dir/account" "$dir/account/link"
upgrade "$dir/account/link" "upgrade through a symlink"
wait_for page 445
ln -sfn other "$dir/account/link"
helper=$(process 'helper --daemon')
kill -9 "$helper"
wait_for is_new 'helper --daemon' "$helper"
served replaced-link 445
[ -e "$dir/out/other" ] && echo "other program: ran as $(cat "$dir/out/other")"
"$weir" upgrade "$older" >/dev/null 2>&1 && echo "older: ok" || echo "older: failed"
wait_for page 445
served older 445
"$weir" upgrade "$weir" >/dev/null 2>&1 && echo "newer: ok" || echo "newer: failed"
wait_for page 445
served newer 445
echo "restarted: $("$weir" status --json | grep -o '"restarts": *[0-9]*')"

# A compromised daemon requests an upgrade to a program that root has not permitted. The daemon's channel then contains
# an unexpected reply, so this case must be last.
cat >"$dir/request.py" <<'END'
import array, ctypes, json, os, socket, sys
libc = ctypes.CDLL(None, use_errno=True)
process = libc.syscall(434, int(sys.argv[1]), 0)  # pidfd_open(2)
for number in os.listdir(f"/proc/{sys.argv[1]}/fd"):
    try:
        if not os.readlink(f"/proc/{sys.argv[1]}/fd/{number}").startswith("socket:"):
            continue
    except OSError:
        continue
    connection = socket.socket(fileno=libc.syscall(438, process, int(number), 0))  # pidfd_getfd(2)
    if (connection.family, connection.type) == (socket.AF_UNIX, socket.SOCK_SEQPACKET):
        state = array.array("i", [os.memfd_create("state")])
        request = json.dumps({"upgrade": {"program": "/bin/sh"}}).encode()
        try:
            connection.sendmsg([request], [(socket.SOL_SOCKET, socket.SCM_RIGHTS, state)])
        except OSError:
            pass
END
# The previous daemon may still be running.
is_alone() { [ "$(process 'weir.* run ' | wc -l)" = 1 ]; }
wait_for is_alone
python3 "$dir/request.py" "$(process 'weir.* run ')"
is_refused() { grep -q 'root has not permitted /bin/sh' "$dir/out/log"; }
wait_for is_refused && echo "unpermitted program: refused"
kill $keeper
wait $keeper
echo "stopped: $(owner_and_mode run)"
