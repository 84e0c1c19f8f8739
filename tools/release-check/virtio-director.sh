#!/usr/bin/env bash
# Tests a virtual machine as a director with `attach = "auto"`: transfers 20 MB to a server and 20 MB back through every
# forwarding method, over IPv4 and IPv6. With QEMU's default virtio device, Weir must use native XDP; with a device that
# cannot change the offloads of received packets, the driver rejects XDP, and Weir must use tc. All devices have their
# default offloads, but the bridge computes checksums in software before packets reach server and clients, which would
# accept partial checksums.
#
#   tools/release-check/virtio-director.sh BINARY DIRECTORY
#
# DIRECTORY is that of kernels.sh, which must have created the tree with QEMU and the guest. Exit code 0 = the modes are
# correct, `weir check` warns about a GRE tunnel with checksums at tc only, all transfers are intact, and guest, clients
# and server counted no wrong checksums.
set -euo pipefail
readonly HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ $# -eq 2 && -x $1 && -e $2/qemu/complete ]] || { sed -n '2,12p' "$0" >&2; exit 2; }
readonly BINARY=$(realpath "$1") DIR=$(cd "$2" && pwd)
# Mode as in the status, and options of the virtio device.
readonly ROUNDS='xdp native,
tc,ctrl_guest_offloads=off'
# shellcheck source=virtio-network.sh
. "$HERE/virtio-network.sh"
trap cleanup EXIT

# Prints the guest's last complete status.
last_status() { # LOG
  tr -d '\r' <"$1" | awk '/^status: / { text = text $0 "\n" } /^status ends/ { last = text; text = "" }
    END { printf "%s", last }'
}

is_up() { # LOG
  local status
  status=$(last_status "$1")
  grep -q ' up ' <<<"$status" && ! grep -q ' down ' <<<"$status"
}

# Prepares the server, which serves the files over HTTP.
serve() {
  local name last options www=$work/www
  host server 20
  in_ns server ip -4 route add 10.0.0.4/32 via 10.0.0.3
  in_ns server ip -6 route add fd00::4/128 via fd00::3
  while read -r name last options; do
    # shellcheck disable=SC2086
    [[ -z $options ]] ||
      weir_on server real-server up $options --vip "10.0.0.$last" --vip "fd00::$last" >/dev/null </dev/null
  done <<<"$METHODS"
  mkdir -p "$www/cgi-bin"
  head -c ${MB}000000 /dev/urandom >"$www/big"
  md5sum <"$www/big" | cut -d ' ' -f 1 >"$www/sum"
  cp "$HERE/upload.sh" "$www/cgi-bin/upload"
  nsenter "--net=/run/netns/$TAG-server" "$TREE/usr/bin/busybox" httpd -f -p '[::]:80' -h "$www" &
}

# Checks the mode, and that `weir check` warns at tc.
check_mode() { # MODE LOG
  local mode=$1 log=$2 name=virtio-director-${1// /-} warned=no expected=no status
  status=$(last_status "$log" | head -n 1)
  if [[ $status == *", $mode on eth0"* ]]; then echo "    ok $name: $status"; else fail "$name" "$status"; fi
  ! grep -q '^check: warning\[W013\]' "$log" || warned=yes
  [[ $mode != tc ]] || expected=yes
  [[ $warned == "$expected" ]] || fail "$name-check" "the warning W013 is shown: $warned, expected: $expected"
}

build_network
serve
for port in client routed server; do in_ns wire ethtool -K "$port" tx off >/dev/null; done
prepare_transfers
config auto >"$work/weir.toml"
sed 's/^tunnel = "gre"/tunnel = { type = "gre", checksum = "full" }/' "$work/weir.toml" >"$work/gre.toml"
while IFS=, read -r mode device; do
  log=$DIR/virtio-director-${mode// /-}.log
  start_guest "$log" "$HERE/director.sh" "${device:+,$device}" "$HERE/checksum-errors.sh" "$work"/{weir,gre}.toml
  wait_until 1800 "the director is not ready; see $log" is_up "$log" || exit 1
  echo "    note: $mode: the servers are up after $SECONDS s"
  check_mode "$mode" "$log"
  transfers "director-${mode// /-}"
  ! grep FAILED "$log" || result=1
  check_checksums "$log" client routed server
  stop_guest
done <<<"$ROUNDS"
echo "    note: $SECONDS s in total"
exit "$result"
