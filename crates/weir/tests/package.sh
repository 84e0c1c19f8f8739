# Installs the packages of the apt repository $1 in a copy-on-write view of this machine with apt, as a newcomer does, upgrades them
# under traffic from 0.1.0 to 0.2.0, removes and purges them. Needs namespaces of its own for mounts and network; $2 is an empty
# directory. A stub takes systemctl's place: it starts, stops and signals a real daemon.
set -eu
mount -t tmpfs tmpfs "$2"
cd "$2"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
for place in proc sys dev; do mount --rbind "/$place" "root/$place"; done
mount -t tmpfs tmpfs root/run
mount -t bpf bpf root/sys/fs/bpf
mkdir -p root/run/systemd/system root/run/page
cp -r "$1" root/run/packages
echo "deb [signed-by=/run/packages/weir-archive-keyring.gpg] file:/run/packages stable main" >root/run/weir.list
# Another file in the old one's place: the name may be a link that the system manager reads.
rm -f root/usr/bin/systemctl
cat >root/usr/bin/systemctl <<'EOF2'
#!/bin/sh
echo "systemctl $*" >>/run/systemctl.log
case "$*" in
  "start weir") setsid weir run >/run/weir.log 2>&1 & echo $! >/run/keeper ;;
  "stop weir.service "*)
    if [ -e /run/keeper ]; then
      kill "$(cat /run/keeper)"
      while kill -0 "$(cat /run/keeper)" 2>/dev/null; do sleep 0.1; done
      rm /run/keeper
    fi ;;
esac
EOF2
chmod 755 root/usr/bin/systemctl
ip link set lo up
ip link add v0 type veth peer name v1
ip address add 10.9.0.1/24 dev v0
ip link set v0 up
ip link set v1 up

PATH=/usr/sbin:/usr/bin:/sbin:/bin DEBIAN_FRONTEND=noninteractive exec chroot root sh -eu <<'EOF'
apt() {
  apt-get -qq -y -o Dir::Etc::SourceList=/run/weir.list -o Dir::Etc::SourceParts=/dev/null -o APT::Sandbox::User=root \
    -o Dpkg::Use-Pty=0 -o APT::Get::List-Cleanup=0 "$@" </dev/null
}
# Steps of the quick start.
begun=$(date +%s)
apt update >/run/apt.log 2>&1
apt install weir=0.1.0 weir-ipvsadm=0.1.0 >>/run/apt.log 2>&1 || { cat /run/apt.log; exit 1; }
echo "named: $(ipvsadm --version)"
[ ! -e /run/keeper ] && weir check >/dev/null && echo "sample: $(stat -c %a /etc/weir/weir.toml)"
man -w weir-reload >/dev/null && [ -s /usr/share/bash-completion/completions/weir ] && echo "documented"
logrotate -d /etc/logrotate.d/weir >/dev/null 2>&1 || ! command -v logrotate >/dev/null && echo "rotated"
cat >/etc/weir/weir.toml <<'TOML'
[pool.local]
servers = ["127.0.0.1:8000"]
check   = { kind = "http" }
[service.local]
listen   = ["127.0.0.1:8080"]
forward  = "proxy"
protocol = "http"
pool     = "local"
[pool.web]
servers = ["10.9.0.5"]
[service.web]
listen = ["10.9.0.100:80"]
forward = "direct"
pool = "web"
TOML
echo hello >/run/page/index.html
python3 -m http.server --directory /run/page --bind 127.0.0.1 8000 >/dev/null 2>&1 &
server=$!
trap 'kill $server 2>/dev/null; [ ! -e /run/keeper ] || kill $(cat /run/keeper)' EXIT
weir check >/dev/null 2>&1 && echo "checked"
systemctl start weir
tries=0
until [ "$(curl -sS --max-time 2 http://127.0.0.1:8080/ 2>/dev/null)" = hello ]; do
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { cat /run/weir.log; exit 1; }
  sleep 0.1
done
echo "first request after $(($(date +%s) - begun)) s"
ipvsadm -A -t 10.9.0.101:80
# Clients during the upgrade.
(while [ ! -e /run/enough ]; do curl -sSf --max-time 20 http://127.0.0.1:8080/ || echo failed; done >/run/answers 2>&1) &
clients=$!
apt install weir=0.2.0 >/run/apt.log 2>&1 || { cat /run/apt.log; exit 1; }
grep "has taken over" /run/apt.log
touch /run/enough
wait $clients
echo "answers: $(grep -c hello /run/answers | sed 's/[1-9][0-9]*/some/'), others: $(grep -vc hello /run/answers || true)"
echo "kept: $(ipvsadm -Ln | grep -c 'TCP  10.9.0.10[01]:80')"
touch /etc/weir/mine
apt remove weir weir-ipvsadm >/run/apt.log 2>&1 || { cat /run/apt.log; exit 1; }
[ ! -e /usr/bin/weir ] && [ ! -e /usr/sbin/ipvsadm ] && [ ! -e /run/keeper ] && echo "removed"
[ ! -e /sys/fs/bpf/weir ] && [ -e /etc/weir/weir.toml ] && echo "cleaned"
apt purge weir >/run/apt.log 2>&1 || { cat /run/apt.log; exit 1; }
[ ! -e /etc/weir/weir.toml ] && [ ! -e /var/log/weir ] && [ -e /etc/weir/mine ] && [ ! -e /etc/logrotate.d/weir ] && echo "purged"
