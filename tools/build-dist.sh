#!/usr/bin/env bash
# Builds the program for distribution: for one target, in a separate directory, without paths of this machine, so that
# checkouts in different directories produce the same file.
#
#   tools/build-dist.sh TARGET DIRECTORY    prints the path of the program
#
# It fails if the program is larger than 30 MiB without its symbols.
#
# x86_64-unknown-linux-musl    a static program: for the container image, and for systems with a different or older libc
# x86_64-unknown-linux-gnu     for the packages of this machine's distribution
# aarch64-unknown-linux-gnu    for arm64, with Debian's cross compiler
#
# rustup installs the Rust library for the target if necessary; without rustup, it must be installed already. Missing
# programs are reported with their Debian packages.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# -eq 2 ]] || { sed -n '2,14p' "$0" >&2; exit 2; }
readonly TARGET=$1
mkdir -p "$2"
DIR=$(cd "$2" && pwd)
ROOT=$(pwd -P)
readonly DIR ROOT

need() { # PROGRAM PACKAGE
  command -v "$1" >/dev/null || { echo "tools/build-dist.sh: $1 is missing (package $2)" >&2; exit 1; }
}

# Maximum size of a stripped program, in bytes.
readonly LIMIT=$((30 * 1024 * 1024))

need clang clang
strip=strip
flags=()
case $TARGET in
  x86_64-unknown-linux-musl)
    need musl-gcc musl-tools
    export CC_x86_64_unknown_linux_musl=musl-gcc
    ;;
  x86_64-unknown-linux-gnu) ;;
  aarch64-unknown-linux-gnu)
    need aarch64-linux-gnu-gcc 'gcc-aarch64-linux-gnu and libc6-dev-arm64-cross'
    export CC_aarch64_unknown_linux_gnu=aarch64-linux-gnu-gcc
    strip=aarch64-linux-gnu-strip
    export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
    ;;
  *) echo "tools/build-dist.sh: unknown target $TARGET" >&2; exit 2 ;;
esac

if command -v rustup >/dev/null; then
  rustup target list --installed | grep -qx "$TARGET" || rustup target add "$TARGET" >&2
fi

# Replaces paths in panics, debug information and assertions of C code with short ones that are the same on all
# machines. Of several matching replacements, rustc and gcc use the last one; the target directory may be inside the
# tree.
CARGO=${CARGO_HOME:-$HOME/.cargo}
SYSROOT=$(rustc --print sysroot)
for map in "$CARGO/registry/src=registry" "$SYSROOT=rust" "$ROOT=weir" "$DIR=target"; do
  flags+=("--remap-path-prefix=$map")
done
c_flags="-ffile-prefix-map=$CARGO/registry/src=registry -ffile-prefix-map=$ROOT=weir -ffile-prefix-map=$DIR=target"
export "CFLAGS_${TARGET//-/_}=$c_flags" "CXXFLAGS_${TARGET//-/_}=$c_flags"
CARGO_ENCODED_RUSTFLAGS=$(printf '%s\x1f' "${flags[@]}")
export CARGO_ENCODED_RUSTFLAGS=${CARGO_ENCODED_RUSTFLAGS%$'\x1f'}
# The time of the last commit, for compilers that write a time.
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct 2>/dev/null || echo 1)}
export SOURCE_DATE_EPOCH CARGO_INCREMENTAL=0
# Compressed relocations save 3 % of the file. They need glibc 2.36, which Debian 12 has, or musl 1.2.4. GNU ld 2.40
# ignores the option for arm64.
CARGO_TARGET_DIR=$DIR cargo rustc --profile dist --locked -p weir --bin weir --target "$TARGET" -- \
  -C link-arg=-Wl,-z,pack-relative-relocs >&2
program=$DIR/$TARGET/dist/weir
stripped=$(mktemp)
trap 'rm -f "$stripped"' EXIT
"$strip" --strip-unneeded -R .comment -o "$stripped" "$program"
size=$(stat -c %s "$stripped")
echo "$TARGET: $size bytes without symbols" >&2
if ((size > LIMIT)); then
  echo "tools/build-dist.sh: the stripped program for $TARGET is too large: $size bytes, the limit is $LIMIT" >&2
  exit 1
fi
echo "$program"
