# Follows the manual's first-request page in a copy-on-write overlay of a system: runs the page's commands, writes its
# configuration file, and installs packages from the apt repository $1, which is served over HTTP. Then upgrades the
# packages under traffic from 0.1.0 to 0.2.0, removes and purges them. Must run in its own mount and network namespaces.
# $2 is an empty directory, $3 the root directory of the system, $4 the page. A stub systemctl starts the real daemon.
set -eu
mount -t tmpfs tmpfs "$2"
page=$(realpath "$4")
repository=$(realpath "$1")
system=$(realpath "$3")
cd "$2"
mkdir upper work root www
mount -t overlay overlay -o "lowerdir=$system,upperdir=upper,workdir=work" root
for directory in proc sys dev; do mount --rbind "/$directory" "root/$directory"; done
# Copy dpkg's database, so that a package installation on this machine during the test does not interfere.
cp -a "$system/var/lib/dpkg" dpkg
rm -f dpkg/updates/*
mount --bind dpkg root/var/lib/dpkg
mount -t tmpfs tmpfs root/run
mount -t tmpfs tmpfs root/tmp
chmod 1777 root/tmp
mount -t bpf bpf root/sys/fs/bpf
mkdir -p root/run/systemd/system
# The page's repository is the only one, and its name resolves to this machine.
rm -rf root/etc/apt/sources.list root/etc/apt/sources.list.d
mkdir root/etc/apt/sources.list.d
echo 'Acquire::http::Proxy::packages.example "DIRECT";' >root/etc/apt/apt.conf.d/99packages-example
echo '127.0.0.1 packages.example' >>root/etc/hosts
printf 'Package: weir weir-*\nPin: version 0.1.0\nPin-Priority: 1001\n' >root/etc/apt/preferences.d/weir
# Remove the file before it is written: it may be a link to the service manager's program.
rm -f root/usr/bin/systemctl
# Exclude documents, as Debian's slim container images do: packages must not need files in /usr/share/doc.
mkdir -p root/etc/dpkg/dpkg.cfg.d
printf 'path-exclude=/usr/share/doc/*\npath-include=/usr/share/doc/*/copyright\n' >root/etc/dpkg/dpkg.cfg.d/no-documents
cat >root/usr/bin/systemctl <<'EOF2'
#!/bin/sh
echo "systemctl $*" >>/run/systemctl.log
# Starts the processes as weir-helper.service and weir.service do.
start() {
  export WEIR_HELPER_SOCKET=/run/weir-helper/socket
  setsid weir helper --service >/run/helper.log 2>&1 &
  echo $! >/run/service
  setsid setpriv --reuid weir --regid weir --init-groups --bounding-set -all --inh-caps -all --no-new-privs \
    weir run >/run/weir.log 2>&1 &
  echo $! >/run/keeper
  # The unit is Type=notify: systemctl returns when the daemon is ready.
  tries=0
  until weir status >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { cat /run/weir.log /run/helper.log; exit 1; }
    sleep 0.1
  done
}
stop() {
  [ -e /run/keeper ] || return 0
  for process in "$(cat /run/keeper)" "$(cat /run/service)"; do
    kill "$process"
    while kill -0 "$process" 2>/dev/null; do sleep 0.1; done
  done
  rm /run/keeper /run/service
}
case "$*" in
  "enable --now weir")
    mkdir -p /etc/systemd/system/multi-user.target.wants
    ln -s /usr/lib/systemd/system/weir.service /etc/systemd/system/multi-user.target.wants/weir.service
    start
    ;;
  "restart weir") stop; start ;;
  "kill --kill-whom=main --signal=USR1 weir.service "*) kill -USR1 "$(cat /run/keeper)" ;;
  "stop weir.service "*) stop ;;
esac
EOF2
chmod 755 root/usr/bin/systemctl

# Convert the page's commands (continued lines are joined) and its file to a script.
awk '
  /^```/ {
    if (file) print "END OF FILE"
    file = 0; inside = !inside; toml = inside && /toml/; next
  }
  !inside { next }
  toml && !file { file = 1; steps++; printf "cat >%s <<\"END OF FILE\"\n", $2; next }
  toml { print; next }
  { sub(/^# /, "") }
  /\\$/ { sub(/\\$/, ""); printf "%s", $0; next }
  { steps++; print }
  END { print "steps=" steps }
' "$page" >root/run/page.sh

ip link set lo up
ip link add v0 type veth peer name v1
ip address add 10.9.0.1/24 dev v0
ip link set v0 up
ip link set v1 up
ln -s "$repository" www/weir
python3 -m http.server --directory www --bind 127.0.0.1 80 >/dev/null 2>&1 &
web=$!
trap 'kill $web' EXIT
tries=0
until curl -sSf -o root/run/key http://127.0.0.1/weir/weir-archive-keyring.gpg 2>/dev/null; do
  tries=$((tries + 1))
  [ $tries -lt 100 ] || { echo "the repository's web server does not respond" >&2; exit 1; }
  sleep 0.1
done

PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive no_proxy='*' chroot root sh -eu <<'EOF'
finish() {
  [ ! -e /run/keeper ] || kill "$(cat /run/keeper)" "$(cat /run/service)"
  for server in $(cat /run/servers 2>/dev/null); do kill "$server" 2>/dev/null || true; done
}
trap finish EXIT
started=$(date +%s)
set +e
# Run the page's script in a separate shell, which exits at the first command that fails.
(
  trap 'jobs -p >/run/servers' EXIT
  set -e
  . /run/page.sh >/run/page.out 2>/run/page.err </dev/null
  echo "$steps" >/run/steps
)
status=$?
set -e
[ $status = 0 ] || { cat /run/page.out /run/page.err; exit 1; }
# On a busy machine, the first check may run before the web servers listen. The page says to repeat the last command.
reply=$(tail -n 1 /run/page.out)
tries=0
until [ "$reply" = one ] || [ "$reply" = two ]; do
  tries=$((tries + 1))
  [ $tries -lt 600 ] || { cat /run/weir.log; exit 1; }
  sleep 0.1
  reply=$(curl -sS http://127.0.0.1:8080/)
done
echo "steps: $(cat /run/steps), first reply '$reply' after $(($(date +%s) - started)) s"
tries=0
: >/run/replies
until [ "$(grep -xE 'one|two' /run/replies | sort -u | wc -l)" = 2 ]; do
  tries=$((tries + 1))
  [ $tries -lt 600 ] || { sort /run/replies | uniq -c; exit 1; }
  curl -sS http://127.0.0.1:8080/ >>/run/replies
  sleep 0.05
done
echo "servers: both"

echo "sample: $(stat -c %a /usr/share/weir/weir.toml) $(stat -c %a /etc/weir/weir.toml)"
[ -s /usr/share/man/man1/weir-reload.1.gz ] && [ -s /usr/share/man/man5/weir.toml.5.gz ] &&
  [ -s /usr/share/bash-completion/completions/weir ] && echo "documented"
[ ! -e /usr/share/doc/weir/manual/README.md ] && [ -s /usr/share/doc/weir/copyright ] && echo "without documents"
# The postinst script can run again: files and accounts stay the same.
package_state() {
  find /etc/weir /var/log/weir -printf '%p %u %g %m %T@\n' | sort
  getent passwd weir weir-vrrp
}
package_state >/run/before
/var/lib/dpkg/info/weir.postinst configure ""
package_state >/run/after
cmp /run/before /run/after && [ "$(grep -c '^weir' /run/after)" = 2 ] && echo "configured again"
# After a rotation, the log is created again, and the rotated file keeps its lines.
sed 's,^listen .*8080.*,&\naccess_log = "/var/log/weir/access.log",' /etc/weir/weir.toml >/run/weir.toml
cat /run/weir.toml >/etc/weir/weir.toml
weir reload >/run/reload.out 2>&1 || { cat /run/reload.out; exit 1; }
# wait_for_lines FILE: waits until a file is not empty.
wait_for_lines() {
  tries=0
  until [ -s "$1" ]; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { echo "no lines in $1"; cat /run/weir.log; exit 1; }
    sleep 0.1
  done
}
curl -sSf -o /dev/null http://127.0.0.1:8080/
wait_for_lines /var/log/weir/access.log
if command -v logrotate >/dev/null; then
  logrotate --state /run/logrotate --force /etc/logrotate.d/weir
else
  mv /var/log/weir/access.log /var/log/weir/access.log.1
  sed -n '/postrotate/,/endscript/{//!p}' /etc/logrotate.d/weir | sh
fi
# The daemon may handle the next request before the signal.
tries=0
until [ -s /var/log/weir/access.log ]; do
  tries=$((tries + 1))
  [ $tries -lt 100 ] || { cat /run/systemctl.log /run/weir.log; exit 1; }
  curl -sSf -o /dev/null http://127.0.0.1:8080/
  sleep 0.2
done
[ -s /var/log/weir/access.log.1 ] && echo "rotated"
cat >>/etc/weir/weir.toml <<'TOML'
[pool.images]
servers = ["10.9.0.5"]
[service.images]
listen = ["10.9.0.100:80"]
forward = "direct"
pool = "images"
TOML
systemctl restart weir
apt-get -q -y install weir-ipvsadm >/run/apt.log 2>&1 </dev/null || { cat /run/apt.log; exit 1; }
echo "named: $(ipvsadm --version)"
ipvsadm -A -t 10.9.0.101:80
# Save and restore the table as the scripts of ipvsadm's package do.
ipvsadm-save -n | grep 10.9.0.101 >/run/table
ipvsadm -D -t 10.9.0.101:80
ipvsadm-restore </run/table
# Send requests during the upgrade.
(while [ ! -e /run/enough ]; do
  curl -sSf --max-time 20 http://127.0.0.1:8080/ || echo failed
done >/run/responses 2>&1) &
clients=$!
rm /etc/apt/preferences.d/weir
apt-get -q -y install weir >/run/apt.log 2>&1 </dev/null || { cat /run/apt.log; exit 1; }
grep "has taken over" /run/apt.log
touch /run/enough
wait $clients
echo "responses: $(grep -cE '^(one|two)$' /run/responses | sed 's/[1-9][0-9]*/some/')," \
  "others: $(grep -cvE '^(one|two)$' /run/responses || true)"
echo "version: $(dpkg-query -W -f '${Version}' weir)"
echo "kept: $(ipvsadm -Ln | grep -c 'TCP  10.9.0.10[01]:80')"
touch /etc/weir/own-file
apt-get -q -y remove weir weir-ipvsadm >/run/apt.log 2>&1 </dev/null || { cat /run/apt.log; exit 1; }
[ ! -e /usr/bin/weir ] && [ ! -e /usr/sbin/ipvsadm ] && [ ! -e /run/keeper ] && echo "removed"
[ ! -e /sys/fs/bpf/weir ] && [ -e /etc/weir/weir.toml ] && echo "cleaned"
apt-get -q -y purge weir >/run/apt.log 2>&1 </dev/null || { cat /run/apt.log; exit 1; }
[ ! -e /etc/weir/weir.toml ] && [ ! -e /var/log/weir ] && [ ! -e /etc/logrotate.d/weir ] && [ -e /etc/weir/own-file ] &&
  [ ! -L /etc/systemd/system/multi-user.target.wants/weir.service ] && echo "purged"
EOF
