#!/usr/bin/env bash
# Tests a built weir in virtual machines (software emulation) with the kernels of Debian 12 (6.1) and 13 (6.12).
#
#   tools/release-check/kernels.sh [--suite 12|13] [--parts LIST] [--forwards LIST] [--tests PROGRAMS] BINARY DIRECTORY
#
# --parts: any of forwards, features and programs. --forwards: the forwarding methods of the first part. --tests: a
# directory with test programs, which the guest runs.
#
# DIRECTORY contains a Debian 13 tree with QEMU 10 and the kernels' packages; it is created if it is missing, and kept.
# The guest is an initramfs with busybox, iproute2, curl and the binary; guest.sh is its init process. Requires root
# (debootstrap). /dev/kvm is not used.
set -euo pipefail
readonly HERE=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
readonly MIRROR=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
# The tests use veth, bridge and the classifiers, and `weir protect` needs tcp_diag; virtio_net is the guest's own
# device.
readonly MODULES="veth bridge sch_ingress cls_bpf act_bpf tcp_diag virtio_pci virtio_net"
declare -rA SUITES=([12]=bookworm [13]=trixie)

suites="12 13" parts="forwards features programs" forwards="" tests=""
while [[ ${1:-} == --* ]]; do
  case $1 in
    --suite) suites=$2 ;;
    --parts) parts=${2//,/ } ;;
    --forwards) forwards=${2//,/ } ;;
    --tests) tests=$2 ;;
    *) echo "kernels.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift 2
done
[[ $# -eq 2 && -x $1 ]] || { sed -n '2,7p' "$0" >&2; exit 2; }
readonly BINARY=$1
mkdir -p "$2"
readonly DIR=$(cd "$2" && pwd)
readonly TREE=$DIR/qemu

# Creates a Debian 13 tree with QEMU 10 and the guest's programs.
create_tree() {
  [[ -e $TREE/complete && -x $TREE/usr/bin/curl ]] && return
  echo "  creating a Debian 13 tree with QEMU (once, about three minutes)"
  rm -rf "$TREE"
  debootstrap --variant=minbase \
    --include=qemu-system-x86,busybox-static,iproute2,curl,openssl,cpio,kmod,xz-utils,zstd,binutils \
    trixie "$TREE" "$MIRROR" \
    >"$DIR/debootstrap.log" 2>&1 || { tail -n 5 "$DIR/debootstrap.log" >&2; exit 1; }
  rm -f "$TREE"/var/cache/apt/archives/*.deb
  touch "$TREE/complete"
}

# Fetches the newest kernel of a suite, and unpacks it in the tree: kernel-N with boot/ and usr/lib/modules/.
fetch_kernel() {
  local number=$1 suite=${SUITES[$1]} to=$TREE/kernel-$1
  [[ -e $to/complete ]] && return
  echo "  fetching the kernel of Debian $number"
  rm -rf "$to"
  mkdir -p "$to/lists/partial" "$to/archives/partial"
  local options=(-o "Dir::Etc::sourcelist=$to/sources.list" -o Dir::Etc::sourceparts=- -o "Dir::State::lists=$to/lists"
    -o "Dir::Cache=$to" -o APT::Install-Recommends=false)
  echo "deb [signed-by=/usr/share/keyrings/debian-archive-keyring.gpg] $MIRROR $suite main" >"$to/sources.list"
  apt-get "${options[@]}" update -qq
  local package
  package=$(apt-cache "${options[@]}" depends linux-image-cloud-amd64 |
    awk '/Depends: linux-image-/ { print $2; exit }')
  (cd "$to" && apt-get "${options[@]}" download -qq "$package")
  dpkg-deb -x "$to"/*.deb "$to"
  # The modules of 6.12 are compressed, which busybox does not support.
  chroot "$TREE" find "/kernel-$number" -name '*.ko.xz' -exec xz -d {} +
  mkdir -p "$to/usr/lib"
  [[ -e $to/usr/lib/modules ]] || mv "$to/lib/modules" "$to/usr/lib/"
  rm -rf "$to/lib"
  ln -s usr/lib "$to/lib"
  chroot "$TREE" depmod -b "/kernel-$number" "$(ls "$to/usr/lib/modules")"
  rm -rf "$to"/*.deb "$to/lists" "$to/archives"
  touch "$to/complete"
}

# Copies a program and the libraries that it needs from one root directory to another.
copy_program() { # ROOT PATH INTO
  install -D "$1$2" "$3/bin/${2##*/}"
  local library
  chroot "$1" ldd "$2" | grep -o '/[^ ]*' | while read -r library; do
    install -D "$(realpath "$1$library")" "$3$library"
  done
}

# Packs a directory of the tree's /tmp as an initramfs, with the tree's cpio.
pack() { # DIRECTORY FILE
  chroot "$TREE" sh -ec "cd /tmp/$1 && find . | cpio --quiet -o -H newc | gzip -1 >/tmp/$2"
}

# Packs the guest's root directory in the tree: tmp/guest-N.cpio.gz.
create_initramfs() {
  local number=$1 root=$TREE/tmp/root-$1 kernel=$TREE/kernel-$1 version module
  version=$(ls "$kernel/usr/lib/modules")
  rm -rf "$root"
  mkdir -p "$root"/{bin,proc,sys,dev,tmp,run,etc,"lib/modules/$version"}
  install "$TREE/usr/bin/busybox" "$root/bin/"
  "$root/bin/busybox" --list | while read -r applet; do
    [[ $applet == busybox || $applet == ip || $applet == tc ]] || ln -s busybox "$root/bin/$applet"
  done
  copy_program "$TREE" /usr/bin/ip "$root"
  copy_program "$TREE" /usr/sbin/tc "$root"
  copy_program "$TREE" /usr/bin/curl "$root"
  install -D "$BINARY" "$TREE/tmp/weir"
  chroot "$TREE" strip /tmp/weir
  copy_program "$TREE" /tmp/weir "$root"
  mkdir "$root/tests"
  if [[ -n $tests ]]; then
    install "$tests"/* "$root/tests/"
    chroot "$TREE" find "/tmp/root-$number/tests" -type f ! -name '*.arguments' -exec strip {} +
  fi
  # Accounts of the unprivileged processes, for the second part.
  mkdir "$root/accounts"
  printf '%s\n' root:x:0:0::/:/bin/sh weir:x:990:990::/:/bin/sh weir-vrrp:x:991:991::/:/bin/sh >"$root/accounts/passwd"
  printf '%s\n' root:x:0: weir:x:990: weir-vrrp:x:991: >"$root/accounts/group"
  chroot "$TREE" openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 30 \
    -subj /CN=weir.example -addext subjectAltName=DNS:weir.example -keyout /tmp/key.pem -out /tmp/certificate.pem \
    2>/dev/null
  cat "$TREE"/tmp/{certificate,key}.pem >"$root/etc/certificate.pem"
  tr ' ' '\n' <<<"$MODULES" >"$root/modules"
  for module in $MODULES; do
    chroot "$TREE" modprobe -d "/kernel-$number" -S "$version" --show-depends "$module" 2>/dev/null || true
  done | awk '$1 == "insmod" { print $2 }' | sort -u | while read -r module; do
    install -D "$TREE$module" "$root/lib/modules/${module#*/lib/modules/}"
  done
  cp "$kernel/usr/lib/modules/$version"/modules.{dep,alias,symbols,builtin,order} "$root/lib/modules/$version/"
  {
    echo '#!/bin/sh'
    echo "export PARTS='$parts' FORWARDS='$forwards'"
    echo 'exec /bin/sh /guest.sh'
  } >"$root/init"
  chmod 755 "$root/init"
  install "$HERE"/{guest,forwards,features,programs}.sh "$root/"
  pack "root-$number" "guest-$number.cpio.gz"
  rm -rf "$root"
}

# Boots the guest and prints its reports; succeeds if the guest reports no failure.
boot() {
  local number=$1 log=$DIR/guest-$1.log
  cp "$TREE/kernel-$number"/boot/vmlinuz-* "$TREE/tmp/vmlinuz-$number"
  timeout --foreground 7200 chroot "$TREE" qemu-system-x86_64 -accel tcg -M q35 -cpu max -smp 1 -m 1024 \
    -no-reboot -nographic -monitor none -serial stdio \
    -kernel "/tmp/vmlinuz-$number" -initrd "/tmp/guest-$number.cpio.gz" \
    -netdev user,id=n0 -device virtio-net-pci,netdev=n0,romfile= \
    -append 'console=ttyS0 quiet panic=-1' </dev/null 2>&1 | stdbuf -oL tr -d '\r' | tee "$log" |
    grep --line-buffered -E '^(ok|FAILED|kernel|note:|done)|BUG|panic|Oops' | sed 's/^/    /' || true
  grep -q '^done, 0 failed' "$log"
}

create_tree
result=0
for number in $suites; do
  echo "Debian $number's kernel:"
  fetch_kernel "$number"
  create_initramfs "$number"
  if boot "$number"; then
    echo "  Debian $number's kernel: $(grep -c '^ok ' "$DIR/guest-$number.log") checks passed"
  else
    echo "  Debian $number's kernel: FAILED (the console is in $DIR/guest-$number.log)" >&2
    result=1
  fi
done
exit "$result"
