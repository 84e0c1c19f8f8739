#!/bin/sh
# Starts a node of the cluster, which has its own mount, UTS, IPC and PID namespaces.
#
#   node.sh SESSION DIRECTORY NAME
set -e
session=$1 directory=$2 name=$3
hostname "$name"
mount --make-rprivate /
# The lab's directory is below /run.
mount --bind "$session" /mnt
for path in /run /var/lib/corosync /var/lib/pacemaker /var/log /dev/shm; do
    mkdir -p "$path"
    mount -t tmpfs -o mode=755 tmpfs "$path"
done
chmod 1777 /dev/shm
mkdir -p "$session"
mount --move /mnt "$session"
mkdir -p /run/bpf
mount -t bpf bpf /run/bpf
mkdir -p /run/lock /run/resource-agents /var/log/cluster /var/log/pacemaker
mkdir -p /var/lib/pacemaker/cib /var/lib/pacemaker/pengine /var/lib/pacemaker/cores /var/lib/pacemaker/blackbox
chown -R hacluster:haclient /var/lib/pacemaker /var/log/pacemaker
mount --bind "$directory/corosync" /etc/corosync
cp -a /usr/lib/ocf/resource.d/. "$directory/agents/"
mount --bind "$directory/agents" /usr/lib/ocf/resource.d
corosync -f >"$directory/corosync.log" 2>&1 &
# pacemakerd waits only a few seconds for corosync to respond.
while ! corosync-cfgtool -s >/dev/null 2>&1; do sleep 0.2; done
exec pacemakerd -f >"$directory/pacemakerd.log" 2>&1
