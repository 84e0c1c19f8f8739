#!/usr/bin/env bash
# Makes Debian packages of a built program: `weir`, and `weir-ipvsadm`, which puts it in ipvsadm's place.
#
#   tools/build-deb.sh BINARY DIRECTORY    write weir_VERSION_ARCH.deb and weir-ipvsadm_VERSION_all.deb
#
# Installing starts nothing and enables nothing. Installing a newer version over a running Weir runs `weir upgrade`:
# connections continue. Removing stops the unit and removes from the kernel what Weir created there.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ $# -ne 2 || ! -x $1 ]]; then
  echo "usage: tools/build-deb.sh BINARY DIRECTORY (build the program first: make build)" >&2
  exit 2
fi
readonly BINARY=$1 OUT=$2
for tool in dpkg-deb strip objdump; do
  command -v "$tool" >/dev/null || { echo "needs $tool (packages dpkg and binutils)" >&2; exit 1; }
done

VERSION=$("$BINARY" --version | awk '{ print $2 }')
ARCH=$(dpkg --print-architecture)
# What the program asks of the C library decides where it can be installed.
LIBC=$(objdump -T "$BINARY" | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -1)
readonly VERSION ARCH LIBC=${LIBC#GLIBC_}

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

# control PACKAGE ARCHITECTURE DEPENDS DESCRIPTION [MORE FIELDS]
control() {
  mkdir -p "$work/$1/DEBIAN"
  cat >"$work/$1/DEBIAN/control" <<EOF
Package: $1
Version: $VERSION
Architecture: $2
Maintainer: The Weir authors <weir@example.invalid>
Section: net
Priority: optional
Depends: $3
${5:+$5
}Description: $4
EOF
}

documents() {
  local doc="$work/$1/usr/share/doc/$1"
  mkdir -p "$doc"
  {
    echo "Rust code: MIT or Apache-2.0, as you choose. BPF programs: GPL-2.0 or BSD-2-Clause."
    echo "/usr/share/common-licenses has the Apache-2.0 and GPL-2 texts; MIT:"
    echo
    cat LICENSE-MIT
  } >"$doc/copyright"
  gzip -9n <CHANGELOG.md >"$doc/changelog.gz"
}

pack() {
  install -m 755 "docs/packaging/$1/"* "$work/$1/DEBIAN/"
  find "$work/$1" -type d -exec chmod 755 {} +
  mkdir -p "$OUT"
  dpkg-deb --root-owner-group --build "$work/$1" "$OUT/$1_${VERSION}_$2.deb" >/dev/null
  echo "$OUT/$1_${VERSION}_$2.deb"
}

control weir "$ARCH" "libc6 (>= $LIBC), libgcc-s1" "load balancer from packet to request
 Layer 4 in XDP with the semantics of IPVS, health checks, and an HTTP and TCP
 proxy over the same pools, by one daemon and one configuration file."
install -D -m 755 "$BINARY" "$work/weir/usr/bin/weir"
strip --strip-unneeded "$work/weir/usr/bin/weir"
install -D -m 644 docs/packaging/weir.service "$work/weir/usr/lib/systemd/system/weir.service"
install -D -m 644 docs/packaging/weir-proxy.service "$work/weir/usr/lib/systemd/system/weir-proxy.service"
install -D -m 644 docs/packaging/weir.sysusers "$work/weir/usr/lib/sysusers.d/weir.conf"
install -D -m 644 docs/packaging/weir-real-server@.service "$work/weir/usr/lib/systemd/system/weir-real-server@.service"
install -d "$work/weir/etc/weir/real-server"
documents weir
cp -r docs/manual docs/performance.md "$work/weir/usr/share/doc/weir/"
find "$work/weir/usr/share/doc" -type f -exec chmod 644 {} +
pack weir "$ARCH"

# ldirectord and others look for both paths, and depend on a package of that name.
control weir-ipvsadm all "weir (>= $VERSION)" "Weir under the name of ipvsadm
 Command lines, messages, exit codes and listings of ipvsadm 1.31, over Weir." "Provides: ipvsadm
Conflicts: ipvsadm
Replaces: ipvsadm"
documents weir-ipvsadm
pack weir-ipvsadm all
