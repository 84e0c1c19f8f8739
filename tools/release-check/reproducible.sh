#!/usr/bin/env bash
# Builds HEAD twice, in two clones whose directories have different names and depths, and compares the programs.
#
#   tools/release-check/reproducible.sh DIRECTORY [TARGET]
#
# TARGET is x86_64-unknown-linux-musl by default. The builds remain in DIRECTORY (about 4 GB); an interrupted build is
# continued. Exit code 0 = the two programs, and the container images made from them, are identical.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
[[ $# -ge 1 ]] || { sed -n '2,7p' "$0" >&2; exit 2; }
readonly TARGET=${2:-x86_64-unknown-linux-musl}
mkdir -p "$1"
DIR=$(cd "$1" && pwd)
HEAD=$(git rev-parse HEAD)
readonly DIR HEAD
sums=()
for place in one another/directory; do
  tree=$DIR/$place/weir
  [[ -d $tree ]] || git clone -q --no-hardlinks . "$tree"
  git -C "$tree" fetch -q origin "$HEAD" && git -C "$tree" checkout -q --detach "$HEAD"
  program=$("$tree/tools/build-dist.sh" "$TARGET" "$DIR/$place/target" 2>"$DIR/$(basename "$place").log") ||
    { tail -n 5 "$DIR/$(basename "$place").log" >&2; exit 1; }
  image=$("$tree/tools/build-image.sh" "$program" "$DIR/$place/image" | tail -1)
  sums+=("$(sha256sum <"$program" | cut -d ' ' -f 1) $(sha256sum <"$image" | cut -d ' ' -f 1)")
  echo "    $place: program ${sums[-1]/ /, image }"
done
if [[ ${sums[0]} == "${sums[1]}" ]]; then
  echo "    ok reproducible: both builds of ${HEAD:0:12} are identical"
else
  echo "    FAILED reproducible: the builds differ"
  exit 1
fi
