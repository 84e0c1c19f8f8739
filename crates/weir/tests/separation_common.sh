# Sourced by the scripts of the test `separation`, with the empty directory of the test in $room: an account `weir`,
# network namespaces, waiting.
cd "$room" || exit 1
cp /etc/passwd passwd
cp /etc/group group
echo 'weir:x:991:991::/nonexistent:/usr/sbin/nologin' >>passwd
echo 'weir:x:991:' >>group
mount --bind passwd /etc/passwd
mount --bind group /etc/group
mkdir bpf web out
chmod 1777 out
mount -t bpf bpf bpf
echo found >web/page

# A network namespace that ends with the script.
space() { unshare --net sleep 1000 & }
is_apart() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }

# Waits for the command to succeed.
wait_for() {
  tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { echo "failed: $*"; cat "$room"/out/log*; exit 1; }
    sleep 0.05
  done
}
