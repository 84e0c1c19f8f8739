#!/usr/bin/env bash
# Installs the packages of a built weir in fresh systems, by the commands of the manual's page for newcomers.
#
#   tools/release-check/packages.sh [--suite 12|13] BINARY DIRECTORY
#
# For each suite: a minimal Debian (kept in DIRECTORY), the signed apt repository with versions 0.1.0 and 0.2.0, served
# by HTTP, crates/weir/tests/package.sh in it (first request, upgrade under traffic, remove, purge), and the RPM by
# `rpm --root`. The dependencies are compared with the versions that Ubuntu 24.04 has. Needs root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly MIRROR=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
declare -rA SUITES=([12]=bookworm [13]=trixie)
# What Ubuntu 24.04 (noble) has of the libraries that the packages may depend on.
declare -rA UBUNTU=([libc6]=2.39 [libgcc-s1]=14 [passwd]=4.13)

suites="12 13"
while [[ ${1:-} == --* ]]; do
  case $1 in
    --suite) suites=$2 ;;
    *) echo "packages.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
[[ $# -eq 2 && -x $1 ]] || { sed -n '2,8p' "$0" >&2; exit 2; }
BINARY=$(realpath "$1")
mkdir -p "$2"
DIR=$(cd "$2" && pwd)
readonly BINARY DIR
for tool in debootstrap python3 curl unshare; do
  command -v "$tool" >/dev/null || { echo "needs $tool" >&2; exit 1; }
done

# What the page requires: curl and Python.
base() {
  local number=$1 tree=$DIR/packages-$1
  [[ -e $tree/complete ]] && return
  echo "  making a Debian $number (once, about a minute)"
  rm -rf "$tree"
  debootstrap --variant=minbase --include=curl,python3 "${SUITES[$number]}" "$tree" "$MIRROR" \
    >"$DIR/packages-$number.log" 2>&1 || { tail -n 5 "$DIR/packages-$number.log" >&2; exit 1; }
  rm -f "$tree"/var/cache/apt/archives/*.deb
  touch "$tree/complete"
}

# Whether Ubuntu has what a package depends on.
ubuntu() {
  local dependency name version code=0
  while read -r dependency; do
    [[ -n $dependency ]] || continue
    name=${dependency%% *} version=$(sed -n 's/.*(>= \(.*\))/\1/p' <<<"$dependency")
    if [[ -z ${UBUNTU[$name]:-} ]] || ! dpkg --compare-versions "${UBUNTU[$name]}" ge "${version:-0}"; then
      echo "    FAILED ubuntu-24.04: the package depends on $dependency"
      code=1
    fi
  done < <(dpkg-deb -f "$1" Depends | tr ',' '\n' | sed 's/^ *//')
  [[ $code != 0 ]] || echo "    ok ubuntu-24.04: has $(dpkg-deb -f "$1" Depends)"
  return "$code"
}

# The newcomer's path and the rest of the packages' life; the output is that of package.sh.
apt() {
  local view
  view=$(mktemp -d "$DIR/view.XXXXXX")
  unshare --net --mount --propagation private sh crates/weir/tests/package.sh "$work/apt" "$view" "$1" \
    docs/manual/first-request.md
  rmdir "$view" 2>/dev/null || true
}

# Whether the output of package.sh has every result, at most 12 steps and less than five minutes.
passed() {
  local line steps seconds
  for line in 'servers: both' 'sample: 644 600' documented 'without documents' 'configured again' rotated \
    'answers: some, others: 0' 'version: 0.2.0' 'kept: 2' removed cleaned purged; do
    grep -qxF "$line" "$1" || return 1
  done
  steps=$(sed -n 's/^steps: \([0-9]*\),.*/\1/p' "$1")
  seconds=$(sed -n 's/^steps: .* after \([0-9]*\) s$/\1/p' "$1")
  [[ -n $steps && $steps -le 12 && -n $seconds && $seconds -lt 300 ]]
}

# Installs an RPM in a view of a system, checks what it brings, upgrades it to another one, and removes it.
rpm_package() {
  local view
  view=$(mktemp -d "$DIR/view.XXXXXX")
  unshare --mount --propagation private bash -euc '
    mount -t tmpfs tmpfs "$2"
    mkdir "$2"/{upper,work,root}
    root=$2/root
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$root"
    mount -t proc proc "$root/proc"
    rpm --root "$root" --initdb
    # The system has its libraries from Debian packages, of which rpm knows nothing.
    # As images of containers install it, without documents.
    rpm --root "$root" --nodeps --nosignature --excludedocs --install "$3"
    rpm --root "$root" --verify --nodeps weir
    chroot "$root" weir --version
    chroot "$root" weir check
    test "$(stat -c %a "$root/etc/weir/weir.toml")" = 600
    grep -q ^weir: "$root/etc/passwd"
    grep -q ^weir-vrrp: "$root/etc/passwd"
    echo "# mine" >>"$root/etc/weir/weir.toml"
    rpm --root "$root" --nodeps --nosignature --upgrade "$4"
    test "$(rpm --root "$root" --query --queryformat "%{version}" weir)" = 0.2.0
    grep -q "^# mine" "$root/etc/weir/weir.toml"
    rpm --root "$root" --nodeps --erase weir
    test ! -e "$root/usr/bin/weir" -a -e "$root/etc/weir/weir.toml"
  ' sh "$1" "$view" "$2" "$3"
  rmdir "$view" 2>/dev/null || true
}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
export DPKG_DEB_COMPRESSOR_TYPE=${DPKG_DEB_COMPRESSOR_TYPE:-gzip}
for version in 0.1.0 0.2.0; do
  WEIR_PACKAGE_VERSION=$version tools/build-deb.sh "$BINARY" "$work/deb" >/dev/null
done
rm -f "$work"/deb/weir-dbgsym_*
tools/build-repository.sh "$work/apt" "$work"/deb/*.deb >/dev/null
rpm='' newer_rpm=''
if command -v rpmbuild >/dev/null; then
  rpm=$(WEIR_PACKAGE_VERSION=0.1.0 tools/build-rpm.sh "$BINARY" "$work/rpm" | tail -1)
  newer_rpm=$(WEIR_PACKAGE_VERSION=0.2.0 tools/build-rpm.sh "$BINARY" "$work/rpm" | tail -1)
fi

result=0
ubuntu "$(find "$work/deb" -name 'weir_0.1.0_*.deb')" || result=1
for number in $suites; do
  echo "  Debian $number, fresh:"
  base "$number"
  log=$DIR/packages-$number-run.log
  if apt "$DIR/packages-$number" >"$log" 2>&1 && passed "$log"; then
    sed 's/^/    ok debian: /' "$log"
  else
    echo "    FAILED debian:"
    sed 's/^/      /' "$log"
    result=1
  fi
  if [[ -z $rpm ]]; then
    echo "    no RPM: needs rpmbuild"
  elif rpm_package "$DIR/packages-$number" "$rpm" "$newer_rpm" >"$log" 2>&1; then
    echo "    ok rpm: $(basename "$rpm"): $(sed -n '/^weir [0-9]/p' "$log")"
  else
    echo "    FAILED rpm:"
    sed 's/^/      /' "$log"
    result=1
  fi
done
exit "$result"
