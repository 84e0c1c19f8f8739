#!/usr/bin/env bash
# Changes pure crates at random positions and runs their tests. A change that no test detects is a survivor.
#
#   tools/mutants.sh [--seed N] [--count N] [--jobs N] [--again] [CRATE…]
#
# Default: a new seed, 300 mutants per crate, 1 job, all pure crates. --again tests the survivors of the last run.
#
# Exits with 1 if fewer than 95 % of a crate's mutants are caught. Survivors that cannot or need not be caught are in
# tools/mutants/accepted.txt with a reason, and count as caught. Mutants that do not compile are not counted.
# Uses cargo-mutants, and installs it below target/ if it is missing. Prints the seed: the same seed selects the same
# mutants of the same sources.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."

readonly version=27.1.0 share_min=95
seed=$(od -An -N4 -tu4 /dev/urandom | tr -d ' ') count=300 jobs=1 again='' crates=()
while (($#)); do
  case $1 in
    --seed) seed=${2:?--seed needs a number}; shift 2 ;;
    --count) count=${2:?--count needs a number}; shift 2 ;;
    --jobs) jobs=${2:?--jobs needs a number}; shift 2 ;;
    --again) again=1; shift ;;
    -*) sed -n '2,12s/^# \{0,1\}//p' "$0" >&2; exit 2 ;;
    *) crates+=("$1"); shift ;;
  esac
done

# The pure crates have a clippy.toml with their rules.
((${#crates[@]})) || mapfile -t crates < <(ls crates/*/clippy.toml | cut -d/ -f2)

readonly work=$PWD/target/mutants
mkdir -p "$work"
if ! command -v cargo-mutants >/dev/null; then
  PATH=$work/bin:$PATH
  command -v cargo-mutants >/dev/null ||
    cargo install --locked --root "$work" --version "$version" cargo-mutants
fi

# Simulations run fewer seeds, and property tests fewer cases. Without optimization, a simulation takes a minute.
export WEIR_RUNS=300 PROPTEST_CASES=32 CARGO_PROFILE_DEV_DEBUG=false CARGO_PROFILE_DEV_OPT_LEVEL=1 INSTA_UPDATE=no
# The copies of the sources share one target directory, so that dependencies are built once. With several jobs, a test
# would wait for another job's build and time out.
if ((jobs == 1)); then
  export CARGO_TARGET_DIR=$work/build.$$
  trap 'rm -rf "$CARGO_TARGET_DIR"' EXIT
fi

echo "seed $seed: tools/mutants.sh --seed $seed --count $count ${crates[*]}"

test_crate() { # CRATE
  local out=$work/$1 survivors=''
  if [[ -n $again ]]; then
    survivors=$(cat "$out/mutants.out/missed.txt")
    [[ -n $survivors ]] || { echo "$1: no survivors"; return; }
  fi
  rm -rf "$out"
  mkdir -p "$out/mutants.out"
  cargo mutants --package "$1" --list --json >"$out/all.json"
  # cargo-mutants applies --re to some kinds of mutants only, but --iterate skips every name that is listed as caught.
  python3 - "$seed" "$count" "$out" "$1" "$survivors" <<'PY'
import json, random, sys
seed, count, out, crate, survivors = int(sys.argv[1]), int(sys.argv[2]), sys.argv[3], sys.argv[4], sys.argv[5]
# The reference model is compared with the data plane packet by packet, by tests of weir-dataplane that need root.
compared = "crates/weir-flow/src/model/"
mutants = [mutant for mutant in json.load(open(f"{out}/all.json")) if mutant["package"] == crate]
names = sorted({mutant["name"] for mutant in mutants if not mutant["file"].startswith(compared)})
if survivors:
    drawn = set(survivors.splitlines()) & set(names)
else:
    drawn = set(random.Random(f"{seed} {crate}").sample(names, min(count, len(names))))
with open(f"{out}/mutants.out/caught.txt", "w") as file:
    file.write("".join(f"{mutant['name']}\n" for mutant in mutants if mutant["name"] not in drawn))
print(f"{crate}: {len(drawn)} of {len(names)} mutants")
PY
  # Exit code 2 = survivors, 3 = timeouts; both are evaluated below.
  local code=0
  cargo mutants --iterate --package "$1" --test-package "$1" --jobs "$jobs" --output "$out" --colors never \
    --cap-lints true --no-shuffle --baseline run --timeout-multiplier 5 --minimum-test-timeout 60 \
    -- --tests >"$out/log" 2>&1 || code=$?
  if ((code != 0 && code != 2 && code != 3)); then
    tail -20 "$out/log" >&2
    return 1
  fi
  python3 - "$out/mutants.out" "$1" "$share_min" <<'PY'
import re, sys
out, crate, share_min = sys.argv[1], sys.argv[2], int(sys.argv[3])
lines = lambda name: [line.rstrip("\n") for line in open(f"{out}/{name}.txt")]
# A change of the file moves lines and columns; the rest of a name does not change.
position = re.compile(r":\d+:\d+: ")
accepted = {}
for line in open("tools/mutants/accepted.txt"):
    if line.strip() and not line.startswith("#"):
        name, _, reason = line.rstrip("\n").partition(" -- ")
        accepted[name] = reason
caught, missed = len(lines("caught")) + len(lines("timeout")), lines("missed")
survivors = []
for name in missed:
    reason = accepted.get(position.sub(": ", name))
    caught += reason is not None
    if reason is None:
        survivors.append(name)
    else:
        print(f"  accepted: {name} -- {reason}")
for name in survivors:
    print(f"  SURVIVED: {name}")
total = caught + len(survivors)
share = 100 * caught / max(total, 1)
print(f"{crate}: {caught} of {total} caught, {share:.1f} %")
sys.exit(share < share_min)
PY
}

failed=0
for crate in "${crates[@]}"; do
  test_crate "$crate" || {
    echo "$crate: fewer than $share_min % caught, or the run failed; see $work/$crate" >&2
    failed=1
  }
done
exit "$failed"
