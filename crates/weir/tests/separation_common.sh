# Sourced by the scripts of the tests `separation` and `units`, with the empty directory of the test in $dir and the
# program in $weir. Creates the account `weir`, and defines functions for network namespaces, waiting and requests.
cd "$dir" || exit 1
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
# The account might not be able to enter the directory of the repository.
touch program
mount --bind "$weir" program
weir=$dir/program

# Creates a network namespace. The caller kills its process, $!.
add_namespace() { unshare --net sleep 1000 & }
has_own_netns() { [ "$(readlink "/proc/$1/ns/net")" != "$(readlink /proc/self/ns/net)" ]; }

# wait_for COMMAND: waits until the command succeeds, for at most 30 s.
wait_for() {
  tries=0
  until "$@" >/dev/null 2>&1; do
    tries=$((tries + 1))
    [ $tries -lt 600 ] || { echo "failed: $*"; cat "$dir"/out/log* "$dir"/out/helper 2>/dev/null; exit 1; }
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
  add_namespace
  client=$!
  add_namespace
  server=$!
  wait_for has_own_netns $client
  wait_for has_own_netns $server
  ip link set lo up
  sysctl -qw net.ipv4.ip_forward=1 net.ipv4.conf.all.rp_filter=0 net.ipv4.conf.default.rp_filter=0
  link client $client "$1.1"
  link server $server "$1.2"
}

# Serves the directory web on port 80 of the server. Sets $origin.
start_origin() {
  (cd "$dir/web" && exec nsenter -t $server -n python3 -m http.server 80) >/dev/null 2>&1 &
  origin=$!
  wait_for in_server sh -c 'ss -ltn | grep -q ":80 "'
}

# start_requests PAGE…: requests the pages in turn until `stop_requests`. The script defines `page`, with a limit of
# $seconds. A request counts as lost after ten seconds, because on a busy machine the programs alone may take two.
start_requests() {
  seconds=10
  : >"$dir/out/requests"
  while [ ! -e "$dir/out/stop" ]; do
    for address in "$@"; do
      if page "$address" 2>"$dir/out/error"; then
        echo served
      else
        echo "lost at $(date +%T.%N) to $address: $(cat "$dir/out/error")"
      fi
    done
  done >"$dir/out/requests" 3>&- 4<&- &
  load=$!
}
has_enough_requests() { [ "$(grep -c served "$dir/out/requests")" -gt 10 ]; }
# stop_requests NAME: ends the requests and prints how many were lost. Appends the lost requests to out/losses, followed
# by the status.
stop_requests() {
  seconds=
  wait_for has_enough_requests
  touch "$dir/out/stop"
  wait $load
  rm "$dir/out/stop"
  echo "$1: $(grep lost "$dir/out/requests" | tee -a "$dir/out/losses" | wc -l) lost"
  ! grep -q lost "$dir/out/requests" || "$weir" status >>"$dir/out/losses" 2>&1
}
