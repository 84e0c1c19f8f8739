#!/usr/bin/env bash
# Tests a virtual machine as a real server: transfers 20 MB to the server and 20 MB back through every forwarding
# method of a director in a namespace, over IPv4 and IPv6. All devices have their default offloads. In the second and
# third round, the director computes checksums in software, because the guest accepts partial checksums, which would
# hide errors.
#
#   tools/release-check/virtio.sh BINARY DIRECTORY
#
# DIRECTORY is the directory of kernels.sh, which must have created the tree with QEMU and the guest. Exit code 0 = all
# transfers are intact, and guest, clients and director counted no wrong checksums.
set -euo pipefail
readonly HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
[[ $# -eq 2 && -x $1 && -e $2/qemu/complete ]] || { sed -n '2,10p' "$0" >&2; exit 2; }
readonly BINARY=$(realpath "$1") DIR=$(cd "$2" && pwd)
readonly LOG=$DIR/virtio.log
# Attach mode, and whether the director leaves checksums to its device.
readonly ROUNDS='auto on
auto off
xdp off'
# shellcheck source=virtio-network.sh
. "$HERE/virtio-network.sh"
trap cleanup EXIT

is_up() {
  local status
  grep -q ready "$LOG" && status=$(weir_on director status 2>/dev/null) && grep -q ' up ' <<<"$status" &&
    ! grep -q ' down ' <<<"$status"
}

build_network
host director 3
start_guest "$LOG" "$HERE/server.sh" '' "$HERE"/{upload,checksum-errors}.sh
config auto >"$work/weir.toml"
# shellcheck disable=SC2046
nsenter "--net=/run/netns/$TAG-director" "$BINARY" $(directories director) run -c "$work/weir.toml" \
  >"$work/weir.log" 2>&1 &
wait_until 600 "the servers are not up; see $LOG" is_up || { tail -n 5 "$work/weir.log" >&2; exit 1; }
echo "    note: the servers are up after $SECONDS s"

prepare_transfers
while read -r attach offload; do
  in_ns director ethtool -K eth0 tx "$offload" >/dev/null
  config "$attach" >"$work/weir.toml"
  weir_on director reload >"$work/reload.log" 2>&1 </dev/null || { cat "$work/reload.log" >&2; exit 1; }
  transfers "$attach-tx-$offload"
done <<<"$ROUNDS"
! grep FAILED "$LOG" || result=1
check_checksums "$LOG" client routed director
echo "    note: $SECONDS s in total"
exit "$result"
