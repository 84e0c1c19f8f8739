#!/usr/bin/env bash
# Fuzzes every parser of external input, guided by coverage, and keeps the inputs that it finds.
#
#   tools/fuzz.sh [--seconds N] [--jobs N] [TARGET…]     default: 600 seconds each, as many jobs as CPUs, all targets
#
# Exits with 1 if an input causes a panic, a hang (10 s) or the use of more than 512 MiB; the input is in
# target/fuzz/found/. Inputs that reach new code are added to crates/weir-fuzz/corpus/TARGET.txt for `cargo test`.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

seconds=600 jobs=$(nproc) targets=()
while (($#)); do
  case $1 in
    --seconds) seconds=${2:?--seconds needs a number}; shift 2 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    -*) sed -n '2,8s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) targets+=("$1"); shift ;;
  esac
done

# Use a separate target directory: in the common one, these flags would rebuild everything that the tests use.
readonly work=$PWD/target/fuzz
readonly counters="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
-Cllvm-args=-sanitizer-coverage-inline-8bit-counters \
-Cllvm-args=-sanitizer-coverage-pc-table -Cllvm-args=-sanitizer-coverage-trace-compares"
readonly triple=$(rustc -vV | sed -n 's/^host: //p')
mkdir -p "$work/found"
# With --target, the flags do not apply to build scripts, which are not tested.
RUSTFLAGS="$counters -Cdebug-assertions -Coverflow-checks" CARGO_TARGET_DIR=$work \
  cargo build --locked --release --target "$triple" -p weir-fuzz --features libfuzzer
readonly fuzz=$work/$triple/release/weir-fuzz
corpus() { WEIR_FUZZ_COMMAND="$*" "$fuzz" 2>/dev/null; }
((${#targets[@]})) || mapfile -t targets < <(corpus list)

fuzz_target() { # TARGET
  local kept=$work/kept/$1 merged=$work/merged/$1 log=$work/found/$1.log
  rm -rf "$kept" "$merged"
  mkdir -p "$merged"
  corpus unpack "$1" "$kept"
  if ! WEIR_FUZZ_TARGET=$1 "$fuzz" -max_total_time="$seconds" -timeout=10 -rss_limit_mb=512 -malloc_limit_mb=256 \
    -max_len="$(corpus longest "$1")" -print_final_stats=1 -artifact_prefix="$work/found/$1-" "$kept" >"$log" 2>&1; then
    echo "$1: FAILED; see $log and $work/found/$1-*"
    grep -m 3 -E 'panicked|ERROR' "$log" || true
    return 1
  fi
  WEIR_FUZZ_TARGET=$1 "$fuzz" -merge=1 "$merged" "$kept" >>"$log" 2>&1
  corpus pack "$1" "$merged"
  printf '%-18s %12s runs %6s inputs kept, peak %s MiB\n' "$1" \
    "$(sed -n 's/^stat::number_of_executed_units: *//p' "$log")" "$(wc -l <"crates/weir-fuzz/corpus/$1.txt")" \
    "$(sed -n 's/^stat::peak_rss_mb: *//p' "$log")"
}

failed=0
for target in "${targets[@]}"; do
  while (($(jobs -rp | wc -l) >= jobs)); do wait -n || failed=1; done
  fuzz_target "$target" &
done
while (($(jobs -p | wc -l))); do wait -n || { code=$?; ((code == 127)) && break; failed=1; }; done
exit "$failed"
