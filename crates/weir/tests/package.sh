# Installs the packages of $1 in a copy-on-write view of this machine, runs what they bring, installs them again over a running
# daemon, and removes them. Needs namespaces of its own for mounts and network; $2 is an empty directory.
set -eu
mount -t tmpfs tmpfs "$2"
cd "$2"
mkdir upper work root
mount -t overlay overlay -o lowerdir=/,upperdir=upper,workdir=work root
for place in proc sys dev; do mount --rbind "/$place" "root/$place"; done
mount -t tmpfs tmpfs root/run
mount -t bpf bpf root/sys/fs/bpf
mkdir root/run/packages root/etc/weir
cp "$1"/*.deb root/run/packages/
cat >root/etc/weir/weir.toml <<'EOF'
[pool.web]
servers = ["10.9.0.5"]
[service.web]
listen = ["10.9.0.100:80"]
forward = "direct"
pool = "web"
EOF
ip link add v0 type veth peer name v1
ip address add 10.9.0.1/24 dev v0
ip link set v0 up
ip link set v1 up

PATH=/usr/sbin:/usr/bin:/sbin:/bin exec chroot root sh -eu <<'EOF'
dpkg --install --force-depends /run/packages/*.deb >/dev/null 2>&1
echo "named: $(ipvsadm --version)"
weir check >/dev/null 2>&1 && echo "checked"
weir run >/run/weir.log 2>&1 &
keeper=$!
trap 'kill $keeper 2>/dev/null; wait $keeper' EXIT
tries=0
until weir status >/dev/null 2>&1; do
  tries=$((tries + 1))
  [ $tries -lt 300 ] || { cat /run/weir.log; exit 1; }
  sleep 0.1
done
ipvsadm -A -t 10.9.0.101:80
dpkg --install --force-depends /run/packages/weir_*.deb 2>&1 | grep "has taken over"
echo "kept: $(ipvsadm -Ln | grep -c 'TCP  10.9.0.10[01]:80')"
kill $keeper
wait $keeper
trap - EXIT
dpkg --remove --force-depends weir-ipvsadm weir >/dev/null 2>&1
[ ! -e /usr/bin/weir ] && [ ! -e /usr/sbin/ipvsadm ] && echo "removed"
[ ! -e /sys/fs/bpf/weir ] && echo "cleaned"
EOF
