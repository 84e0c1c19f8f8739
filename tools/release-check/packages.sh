#!/usr/bin/env bash
# Installs the packages of a built weir on new systems, with the commands of the manual's first-request page.
#
#   tools/release-check/packages.sh [--suite 12|13] BINARY DIRECTORY
#
# Uses for each suite a minimal Debian (kept in DIRECTORY) and a signed apt repository with versions 0.1.0 and 0.2.0,
# served over HTTP. Runs crates/weir/tests/package.sh in it (first request, upgrade under traffic, remove, purge), and
# installs the RPM with `rpm --root`. Compares the dependencies with the versions in Ubuntu 24.04. Requires root.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/../.."
readonly MIRROR=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
declare -rA SUITES=([12]=bookworm [13]=trixie)
# Packages that Weir's packages are allowed to depend on, with their versions in Ubuntu 24.04 (noble).
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
  command -v "$tool" >/dev/null || { echo "$tool is missing" >&2; exit 1; }
done

# Creates a minimal system with curl and Python, which the page requires.
create_base() {
  local number=$1 tree=$DIR/packages-$1
  [[ -e $tree/complete ]] && return
  echo "  installing Debian $number (once, about a minute)"
  rm -rf "$tree"
  debootstrap --variant=minbase --include=curl,python3 "${SUITES[$number]}" "$tree" "$MIRROR" \
    >"$DIR/packages-$number.log" 2>&1 || { tail -n 5 "$DIR/packages-$number.log" >&2; exit 1; }
  rm -f "$tree"/var/cache/apt/archives/*.deb
  touch "$tree/complete"
}

# Checks whether Ubuntu has the dependencies of a package.
check_ubuntu() {
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

# Tests installation, upgrade and removal of the Debian packages; prints the output of package.sh.
test_deb() {
  local view
  view=$(mktemp -d "$DIR/view.XXXXXX")
  unshare --net --mount --propagation private sh crates/weir/tests/package.sh "$work/apt" "$view" "$1" \
    docs/manual/first-request.md
  rmdir "$view" 2>/dev/null || true
}

# Checks whether the output of package.sh contains every result, at most 12 steps and less than five minutes.
has_passed() {
  local line steps seconds
  for line in 'servers: both' 'sample: 644 600' documented 'without documents' 'configured again' rotated \
    'responses: some, others: 0' 'version: 0.2.0' 'kept: 2' removed cleaned purged; do
    grep -qxF "$line" "$1" || return 1
  done
  steps=$(sed -n 's/^steps: \([0-9]*\),.*/\1/p' "$1")
  seconds=$(sed -n 's/^steps: .* after \([0-9]*\) s$/\1/p' "$1")
  [[ -n $steps && $steps -le 12 && -n $seconds && $seconds -lt 300 ]]
}

# Installs an RPM in an overlay of a system, checks its files, upgrades it to a newer RPM, and removes it.
test_rpm() {
  local view
  view=$(mktemp -d "$DIR/view.XXXXXX")
  unshare --mount --propagation private bash -euc '
    mount -t tmpfs tmpfs "$2"
    mkdir "$2"/{upper,work,root}
    root=$2/root
    mount -t overlay overlay -o "lowerdir=$1,upperdir=$2/upper,workdir=$2/work" "$root"
    mount -t proc proc "$root/proc"
    rpm --root "$root" --initdb
    # --nodeps: the libraries are from Debian packages, which the database of rpm does not contain.
    # --excludedocs: container images install packages in this way.
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
check_ubuntu "$(find "$work/deb" -name 'weir_0.1.0_*.deb')" || result=1
for number in $suites; do
  echo "  Debian $number, newly installed:"
  create_base "$number"
  log=$DIR/packages-$number-run.log
  if test_deb "$DIR/packages-$number" >"$log" 2>&1 && has_passed "$log"; then
    sed 's/^/    ok debian: /' "$log"
  else
    echo "    FAILED debian:"
    sed 's/^/      /' "$log"
    result=1
  fi
  if [[ -z $rpm ]]; then
    echo "    no RPM: rpmbuild is missing"
  elif test_rpm "$DIR/packages-$number" "$rpm" "$newer_rpm" >"$log" 2>&1; then
    echo "    ok rpm: $(basename "$rpm"): $(sed -n '/^weir [0-9]/p' "$log")"
  else
    echo "    FAILED rpm:"
    sed 's/^/      /' "$log"
    result=1
  fi
done
exit "$result"
