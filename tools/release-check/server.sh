#!/bin/sh
# The init process of a guest that is a real server behind a director on the host, with virtio_net's default offloads.
# Prints "ready", then every second the kernel's checksum error counters, until the host stops the guest.
export PATH=/bin HOME=/tmp
mount -t proc proc /proc
mount -t sysfs sys /sys
mount -t devtmpfs dev /dev
mount -t tmpfs tmp /tmp
mkdir -p /run && mount -t tmpfs run /run
mount -t bpf bpf /sys/fs/bpf
exec >/dev/console 2>&1 </dev/null
while read -r module; do modprobe "$module" || echo "note: no module $module"; done </modules
echo "kernel $(uname -r)"
for device in /sys/class/net/e*; do device=${device##*/}; done
# shellcheck disable=SC2154
ip() { /bin/ip "$@"; }
ip link set lo up
ip link set "$device" up
ip addr add 10.0.0.20/24 dev "$device"
ip addr add fd00::20/64 dev "$device" nodad
mkdir -p /tmp/www
dd if=/dev/urandom of=/tmp/www/big bs=1000000 count=20 2>/dev/null
cd /tmp/www && md5sum big | cut -d ' ' -f 1 >sum && cd /
httpd -p '[::]:80' -h /tmp/www
weir real-server up --forward direct --vip 10.0.0.10 --vip fd00::10 || echo "FAILED real-server up"
echo "ready"
while sleep 1; do
  # The first line of a protocol contains the names of the counters, and the second line contains their values.
  awk '/^(Tcp|Udp):/ { if (!($1 in seen)) { seen[$1] = $0; split($0, names) } else { split($0, values)
    for (i in names) if (names[i] == "InCsumErrors") print "errors", $1, values[i] } }' /proc/net/snmp
done
