#!/usr/bin/env bash
# Creates Debian packages of a built program: `weir`, its debug symbols, and `weir-ipvsadm`, which replaces ipvsadm with
# it.
#
#   tools/build-deb.sh BINARY DIRECTORY    write weir_VERSION_ARCH.deb, weir-dbgsym_… and weir-ipvsadm_VERSION_all.deb
#
# For a program for a different architecture, set WEIR_PACKAGE_ARCH=arm64, WEIR_NATIVE to a program for this machine (it
# generates the man pages), and CROSS=aarch64-linux-gnu- for binutils.
#
# WEIR_PACKAGE_VERSION replaces the program's version. Times in the packages are SOURCE_DATE_EPOCH, by default the time
# of the last commit, so the same program results in the same packages.
#
# Installing a package does not start or enable anything. An upgrade of the package runs `weir upgrade` if Weir is
# running, so connections continue. Removing the package stops the unit and removes Weir's objects from the kernel.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

if [[ $# -ne 2 || ! -x $1 ]]; then
  echo "usage: tools/build-deb.sh BINARY DIRECTORY (build the program first: make build)" >&2
  exit 2
fi
readonly BINARY=$1 OUT=$2
readonly CROSS=${CROSS:-}
export STRIP=${STRIP:-${CROSS}strip}
for tool in dpkg-deb "$STRIP" "${CROSS}objcopy" readelf; do
  command -v "$tool" >/dev/null || { echo "$tool is missing (packages dpkg and binutils)" >&2; exit 1; }
done

VERSION=${WEIR_PACKAGE_VERSION:-$("${WEIR_NATIVE:-$BINARY}" --version | awk '{ print $2 }')}
ARCH=${WEIR_PACKAGE_ARCH:-$(dpkg --print-architecture)}
# The newest glibc symbol version that the program uses determines the dependency; a static program has none. Compressed
# relocations (DT_RELR) need the loader of glibc 2.36.
LIBC=$(readelf -W --dyn-syms "$BINARY" 2>/dev/null | grep -o 'GLIBC_2\.[0-9]*' | sort -uV | tail -1 || true)
if [[ -n $LIBC ]]; then
  LIBC=$({
    echo "$LIBC"
    readelf -W --dynamic "$BINARY" | awk '/\(RELR\)/ { print "GLIBC_2.36" }'
  } | sort -V | tail -1)
fi
readonly VERSION ARCH LIBC=${LIBC#GLIBC_}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct 2>/dev/null || echo 1)}
export SOURCE_DATE_EPOCH

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
umask 022

# Prints the installed size in KiB, as dpkg-gencontrol counts: the size of each file, rounded up, and 1 for everything
# else. The result does not depend on the file system of the working directory.
installed_size() {
  find "$1" -mindepth 1 -path "$1/DEBIAN" -prune -o -printf '%y %s\n' |
    awk '{ sum += $1 == "f" ? int(($2 + 1023) / 1024) : 1 } END { print sum + 0 }'
}

# control PACKAGE ARCHITECTURE DEPENDS DESCRIPTION [MORE FIELDS]
control() {
  mkdir -p "$work/$1/DEBIAN"
  cat >"$work/$1/DEBIAN/control" <<END
Package: $1
Version: $VERSION
Architecture: $2
Maintainer: The Weir authors <weir@example.invalid>
Installed-Size: $(installed_size "$work/$1")
Section: net
Priority: optional
${3:+Depends: $3
}${5:+$5
}Description: $4
END
}

documents() {
  local doc="$work/$1/usr/share/doc/$1"
  mkdir -p "$doc"
  {
    echo "Copyright: The Weir authors"
    echo
    echo "Rust code: MIT or Apache-2.0, at your option. BPF programs: GPL-2.0 or BSD-2-Clause."
    echo "Libraries in the program: /usr/share/doc/weir/THIRD-PARTY.gz lists them with their licenses."
    echo
    echo "/usr/share/common-licenses/Apache-2.0 and /usr/share/common-licenses/GPL-2 contain two of the texts. MIT:"
    echo
    cat LICENSE-MIT
  } >"$doc/copyright"
  # Writes a changelog in Debian's format that refers to the full list of changes.
  gzip -9n >"$doc/changelog.gz" <<END
weir ($VERSION) unstable; urgency=medium

  * Changes, and what an upgrade changes: CHANGELOG.md.gz and
    manual/upgrade-notes.md in /usr/share/doc/weir.

 -- The Weir authors <weir@example.invalid>  $(date -u -R -d "@$SOURCE_DATE_EPOCH")
END
}

# Builds the package from $work/$1 for architecture $2.
pack() {
  local root="$work/$1"
  [[ ! -d docs/packaging/$1 ]] || install -m 755 "docs/packaging/$1/"* "$root/DEBIAN/"
  find "$root" -type d -exec chmod 755 {} +
  (cd "$root" &&
    find . -path ./DEBIAN -prune -o -type f -printf '%P\0' | LC_ALL=C sort -z | xargs -0r md5sum) \
    >"$root/DEBIAN/md5sums"
  chmod 644 "$root/DEBIAN/md5sums"
  mkdir -p "$OUT"
  dpkg-deb --root-owner-group --build "$root" "$OUT/$1_${VERSION}_$2.deb" >/dev/null
  echo "$OUT/$1_${VERSION}_$2.deb"
}

# --- weir -----------------------------------------------------------------------------------------------------------

root=$work/weir
tools/install-files.sh "$BINARY" "$root"
documents weir
install -D -m 644 /dev/stdin "$root/usr/share/lintian/overrides/weir" <<'END'
# Only systemctl can list the instances of weir-real-server@.
weir: maintainer-script-calls-systemctl *
END
control weir "$ARCH" "${LIBC:+libc6 (>= $LIBC), libgcc-s1, }passwd" "load balancer from packet to request
 Layer 4 in XDP with the semantics of IPVS, health checks, and an HTTP and TCP
 proxy over the same pools, by one daemon and one configuration file." "Suggests: ca-certificates, nftables"
echo /etc/logrotate.d/weir >"$root/DEBIAN/conffiles"
pack weir "$ARCH"

# --- debug symbols, found by the build ID ---------------------------------------------------------------------------

id=$(readelf -n "$BINARY" | awk '/Build ID/ { print $3 }')
if [[ -n $id ]]; then
  debug=$work/weir-dbgsym/usr/lib/debug/.build-id/${id:0:2}/${id:2}.debug
  mkdir -p "$(dirname "$debug")"
  "${CROSS}objcopy" --only-keep-debug "$BINARY" "$debug"
  chmod 644 "$debug"
  mkdir -p "$work/weir-dbgsym/usr/share/doc"
  ln -s weir "$work/weir-dbgsym/usr/share/doc/weir-dbgsym"
  control weir-dbgsym "$ARCH" "weir (= $VERSION)" "debug symbols for weir
 Names of functions, for debuggers, profilers and backtraces." "Build-Ids: $id
Auto-Built-Package: debug-symbols"
  sed -i 's/^Section: .*/Section: debug/' "$work/weir-dbgsym/DEBIAN/control"
  pack weir-dbgsym "$ARCH"
fi

# --- weir-ipvsadm: ldirectord and others depend on a package with the name ipvsadm -----------------------------------

documents weir-ipvsadm
install -D -m 755 -t "$work/weir-ipvsadm/usr/sbin" contrib/ipvsadm/*
install -d "$work/weir-ipvsadm/usr/share/man/man8"
for page in ipvsadm ipvsadm-save ipvsadm-restore; do
  ln -s ../man1/weir-ipvsadm.1.gz "$work/weir-ipvsadm/usr/share/man/man8/$page.8.gz"
done
control weir-ipvsadm all "weir (>= $VERSION)" "Weir under the name of ipvsadm
 Command lines, messages, exit codes and listings of ipvsadm 1.31, over Weir." "Provides: ipvsadm
Conflicts: ipvsadm
Replaces: ipvsadm"
pack weir-ipvsadm all
