# Sourced by the scripts of the tests `separation` and `units`, with the empty directory of the test in $room: an
# account `weir`, network namespaces, waiting.
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
    [ $tries -lt 600 ] || { echo "failed: $*"; cat "$room"/out/log* "$room"/out/helper 2>/dev/null; exit 1; }
    sleep 0.05
  done
}

in_client() { nsenter -t $client -n "$@"; }
in_server() { nsenter -t $server -n "$@"; }

# link PEER PID NETWORK: creates the device to_PEER and its peer eth0 in the namespace of PID, with the addresses
# NETWORK.1 and NETWORK.2. The peer's default route is the device.
link() {
  ip link add "to_$1" type veth peer name eth0 netns "$2"
  ip address add "$3.1/24" dev "to_$1"
  ip link set "to_$1" up
  nsenter -t "$2" -n ip link set lo up
  nsenter -t "$2" -n ip address add "$3.2/24" dev eth0
  nsenter -t "$2" -n ip link set eth0 up
  nsenter -t "$2" -n ip route add default via "$3.1"
}

# start_hosts NETWORK: creates the namespaces of the client, NETWORK.1.2, and of the server, NETWORK.2.2, with the
# director in this one between them. Sets $client and $server, which the caller kills.
start_hosts() {
  space
  client=$!
  space
  server=$!
  wait_for is_apart $client
  wait_for is_apart $server
  ip link set lo up
  sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
  link client $client "$1.1"
  link server $server "$1.2"
}

# Serves the directory web on port 80 of the server. Sets $origin.
start_origin() {
  (cd "$room/web" && exec nsenter -t $server -n python3 -m http.server 80) >/dev/null 2>&1 &
  origin=$!
}

# Sends requests for the pages, one after another, until `lost`. The script defines `page`.
begin() {
  : >"$room/out/requests"
  while [ ! -e "$room/out/stop" ]; do
    for one in "$@"; do
      if page "$one"; then echo served; else echo lost; fi
    done
  done >"$room/out/requests" 3>&- 4<&- &
  load=$!
}
enough() { [ "$(grep -c served "$room/out/requests")" -gt 10 ]; }
# lost NAME: ends the requests and prints how many were lost.
lost() {
  wait_for enough
  touch "$room/out/stop"
  wait $load
  rm "$room/out/stop"
  echo "$1: $(grep -c lost "$room/out/requests") lost"
}
