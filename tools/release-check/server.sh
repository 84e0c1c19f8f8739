#!/bin/sh
# The init process of a guest that is a real server behind a director on the host, with virtio_net's default offloads.
# Each line of /methods is a forwarding method: its name, the last part of its VIPs, and the options of
# `weir real-server up`, if any.
#
# Prints "ready", then prints the kernel's checksum error counters every second until the host stops the guest.
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
# Replies to this client return through the director.
ip -4 route add 10.0.0.4/32 via 10.0.0.3
ip -6 route add fd00::4/128 via fd00::3

mkdir -p /tmp/www/cgi-bin
dd if=/dev/urandom of=/tmp/www/big bs=1000000 count=20 2>/dev/null
cd /tmp/www && md5sum big | cut -d ' ' -f 1 >sum && cd /
cp /upload.sh /tmp/www/cgi-bin/upload
httpd -p '[::]:80' -h /tmp/www

while read -r name last options; do
  [ -n "$options" ] || continue
  # shellcheck disable=SC2086
  weir real-server up $options --vip "10.0.0.$last" --vip "fd00::$last" </dev/null ||
    echo "FAILED real-server up for $name"
done </methods
echo "ready"
while sleep 1; do sh /checksum-errors.sh; done
