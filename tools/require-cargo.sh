#!/usr/bin/env bash
# Fails with instructions unless PATH contains a Rust toolchain that can build Weir.
set -euo pipefail

root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
needed=$(sed -n 's/^rust-version = "\(.*\)"$/\1/p' "$root/Cargo.toml")

advise() {
  cat >&2 <<EOF
$1
Debian's own Rust is too old for Weir. Rust's installer changes only your home directory:
  curl --proto '=https' --tlsv1.2 -sSf https://sh.rustup.rs | sh -s -- -y --profile minimal -c rustfmt -c clippy
Then open a new shell, or run:  . "\$HOME/.cargo/env"
EOF
  exit 1
}

command -v cargo >/dev/null || advise "cargo is missing: Weir needs Rust $needed or newer."

found=$(rustc --version | awk '{ print $2 }')
oldest=$(printf '%s\n%s\n' "$needed" "${found%%-*}" | sort -V | head -n 1)
[[ $oldest == "$needed" ]] || advise "Rust $found is older than $needed, which Weir needs."
