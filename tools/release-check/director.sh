#!/bin/sh
# The init process of a guest that is a director with the file /weir.toml, on virtio_net. The server and the clients are
# on the host. /gre.toml has a GRE tunnel with checksums.
#
# Prints "ready", then repeatedly the status, what `weir check` reports about /gre.toml, and the kernel's checksum error
# counters, until the host stops the guest.
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir -p /run && mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
mount -t cgroup2 cgroup2 /sys/fs/cgroup
exec >/dev/console 2>&1 </dev/null
while read -r module; do modprobe "$module" || echo "note: no module $module"; done </modules
echo "kernel $(uname -r)"
# shellcheck disable=SC2154
ip() { /bin/ip "$@"; }
ip link set lo up
ip link set eth0 up
ip addr add 10.0.0.3/24 dev eth0
ip addr add fd00::3/64 dev eth0 nodad

WEIR_CONFIG=/weir.toml weir run >/tmp/weir.log 2>&1 &
until grep -q ' running ' /tmp/weir.log; do
  kill -0 $! || { cat /tmp/weir.log; echo "FAILED: the daemon has ended"; poweroff -f; }
  sleep 1
done
echo "ready after $(cut -d . -f 1 /proc/uptime) s"
while sleep 2; do
  weir check -c /gre.toml 2>&1 | sed 's/^/check: /'
  weir status 2>&1 | sed 's/^/status: /'
  echo "status ends"
  sh /checksum-errors.sh
done
