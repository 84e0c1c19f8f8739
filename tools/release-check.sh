#!/usr/bin/env bash
# Runs the checks for a release that CI cannot run: newly installed Debian systems, and the kernels of Debian 12 and 13.
#
#   tools/release-check.sh BINARY DIRECTORY [--only WHAT] [--suite 12|13] [--quick] [--run COMMAND] [--keep]
#
# debian:  for each suite, runs `make demo` and `make test` in a clone of HEAD on a new system with only git, Rust and
#          make. Rust and cargo's registry are this machine's, bind-mounted. --quick: `make deps`, `make build` and a
#          few test programs instead; --run: COMMAND instead. --keep keeps the build directories.
# kernels: release-check/kernels.sh runs BINARY and tests of flow tables with a different layout in virtual machines;
#          virtio.sh uses one as a server, virtio-director.sh as a director. --quick: `direct` only in kernels.sh.
# packages: release-check/packages.sh installs the packages of BINARY on new systems, as the manual's first-request page
#          describes, upgrades them under traffic, removes and purges them.
# programs: the static program's container image and the arm64 program (under qemu-user) serve 1 000 requests.
# reproducible: two static builds in different directories produce the same file.
# browser: the dashboard in chromium: contents, actions, accessibility, 10 000 servers, screenshots.
#
# DIRECTORY keeps base systems between runs (1.5 GB); a run needs up to 12 GB more. Exit code 0 = all checks passed.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
readonly MIRROR=${DEBIAN_MIRROR:-http://deb.debian.org/debian}
declare -rA SUITES=([12]=bookworm [13]=trixie)

[[ $# -ge 2 && -x $1 ]] || { sed -n '2,17p' "$0" >&2; exit 2; }
binary=$1
mkdir -p "$2"
DIR=$(cd "$2" && pwd)
readonly binary DIR
shift 2
only='' suites='12 13' quick=false keep=false run=''
while [[ $# -gt 0 ]]; do
  case $1 in
    --only)
      [[ $2 =~ ^(debian|kernels|packages|programs|reproducible|browser)$ ]] ||
        { echo "release-check.sh: --only $2 is unknown" >&2; exit 2; }
      only=$2 && shift
      ;;
    --suite) suites=$2 && shift ;;
    --quick) quick=true ;;
    --run) run=$2 && shift ;;
    --keep) keep=true ;;
    *) echo "release-check.sh: unknown option $1" >&2; exit 2 ;;
  esac
  shift
done
command -v debootstrap >/dev/null || { echo "debootstrap is missing: run make deps" >&2; exit 1; }

# Prints the commands of a run, which a user would type: nothing else is prepared.
commands() {
  if [[ -n $run ]]; then
    echo "$run"
  elif $quick; then
    echo 'make deps build'
    echo 'INSTA_UPDATE=no WEIR_TEST_REQUIRE_ROOT=1 cargo test --locked -p weir' \
      '--test drift --test package --test quickstart'
  else
    echo 'make demo'
    echo 'make test'
  fi
}

# Creates a minimal system once, with CA certificates, git and make, which the README requires in addition to Rust.
create_base() {
  local number=$1 tree=$DIR/debian-$1
  [[ -e $tree/complete ]] && return
  echo "  installing Debian $number (once, about a minute)"
  rm -rf "$tree"
  debootstrap --variant=minbase --include=git,make,ca-certificates "${SUITES[$number]}" "$tree" "$MIRROR" \
    >"$DIR/debian-$number.log" 2>&1 || { tail -n 5 "$DIR/debian-$number.log" >&2; exit 1; }
  touch "$tree/complete"
}

# Runs the commands in an overlay of the base system and discards the changes. Needs its own mount and PID namespaces.
# $1 suite number, $2 directory for the changes
fresh_system() {
  local number=$1 work=$2 root=$2/root
  mount --make-rprivate /
  mkdir -p "$work"/{upper,work,root}
  mount -t overlay overlay -o "lowerdir=$DIR/debian-$number,upperdir=$work/upper,workdir=$work/work" "$root"
  mount -t proc proc "$root/proc"
  mount -t sysfs sysfs "$root/sys"
  mount -t bpf bpf "$root/sys/fs/bpf"
  mount --rbind /sys/fs/cgroup "$root/sys/fs/cgroup"
  mount --rbind /dev "$root/dev"
  mount -t tmpfs tmpfs "$root/run"
  mount -t tmpfs tmpfs "$root/tmp"
  local cargo=${CARGO_HOME:-$HOME/.cargo} rustup=${RUSTUP_HOME:-$HOME/.rustup}
  mkdir -p "$root/root/.cargo/"{bin,registry} "$root/root/.rustup"
  mount --bind "$cargo/bin" "$root/root/.cargo/bin"
  mount --bind "$cargo/registry" "$root/root/.cargo/registry"
  mount --bind "$rustup" "$root/root/.rustup"
  cp /etc/resolv.conf "$root/etc/resolv.conf"
  # The CAs that this machine's administrator has added, for example the CA of a proxy that intercepts TLS.
  if compgen -G '/usr/local/share/ca-certificates/*.crt' >/dev/null; then
    cp -L /usr/local/share/ca-certificates/*.crt "$root/usr/local/share/ca-certificates/"
    chroot "$root" update-ca-certificates >/dev/null
  fi
  git clone -q --no-hardlinks . "$root/root/weir"
  local settings=(HOME=/root "PATH=/root/.cargo/bin:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
    CI=true LANG=C.UTF-8 CARGO_INCREMENTAL=0)
  local name
  for name in http_proxy https_proxy no_proxy GOPROXY GOFLAGS CARGO_BUILD_JOBS; do
    [[ -n ${!name:-} ]] && settings+=("$name=${!name}")
  done
  local lines
  lines=$(commands)
  # chroot is not used, because a program that enters a different mount namespace would leave it. Mounts are shared, as
  # with systemd.
  cd "$root"
  pivot_root . .
  umount -l .
  cd /
  mount --make-rshared /
  while read -r line; do
    echo "+ $line"
    env -i "${settings[@]}" sh -ec "cd /root/weir && $line" </dev/null || exit 1
  done <<<"$lines"
}

if [[ ${RELEASE_CHECK_INSIDE:-} == yes ]]; then
  fresh_system "$suites" "$DIR/run-$suites"
  exit
fi

debian() {
  local number=$1 log=$DIR/debian-$1-run.log code=0 start_seconds=$SECONDS
  create_base "$number"
  echo "  $(commands | paste -sd ';' | sed 's/;/; /g') (the output is in $log)"
  local inner_options=(--suite "$number")
  $quick && inner_options+=(--quick)
  [[ -n $run ]] && inner_options+=(--run "$run")
  RELEASE_CHECK_INSIDE=yes unshare --mount --pid --fork --kill-child --mount-proc \
    "$0" "$binary" "$DIR" "${inner_options[@]}" >"$log" 2>&1 || code=$?
  grep -E '^(\+ |test result:|test .* FAILED|Missing|report:|error)|SKIPPED' "$log" |
    grep -v ' 0 passed; 0 failed' | sed 's/^/    /' | tail -n 60
  $keep || rm -rf "$DIR/run-$number"
  echo "  Debian $number: $([[ $code == 0 ]] && echo passed || echo FAILED) after $((SECONDS - start_seconds)) s"
  return "$code"
}

# Builds the test programs for the virtual machines.
guest_tests() {
  local program
  program=$("${CARGO:-cargo}" test --locked -p weir-dataplane --test migration --no-run 2>&1 |
    sed -n 's/^ *Executable .*(\(.*\))$/\1/p')
  mkdir -p "$DIR/tests"
  install "$program" "$DIR/tests/migration" && echo previous_layout >"$DIR/tests/migration.arguments"
}

result=0
if [[ -z $only || $only == packages ]]; then
  echo "the packages:"
  for number in $suites; do
    tools/release-check/packages.sh --suite "$number" "$binary" "$DIR" || result=1
  done
fi
if [[ -z $only || $only == browser ]]; then
  echo "the dashboard in a browser (the output is in $DIR/browser.log):"
  { tools/install-deps.sh --soak && WEIR_TEST_REQUIRE_ROOT=1 WEIR_SOAK=1 WEIR_SCREENSHOTS=$DIR/screenshots \
    "${CARGO:-cargo}" test --locked --release -p weir --test admin -- --nocapture --test-threads=1 page; } \
    >"$DIR/browser.log" 2>&1 || result=1
  grep -E ' (ok|FAILED)$|^ok$|^test result|[0-9] KB$|10000 servers|axe: ' "$DIR/browser.log" | sed 's/^/    /' || true
fi
if [[ -z $only || $only == programs ]]; then
  echo "the container image, and arm64:"
  dist=${WEIR_DIST:-$DIR/dist}
  if static=$(tools/build-dist.sh x86_64-unknown-linux-musl "$dist" 2>"$DIR/static.log") &&
    image=$(tools/build-image.sh "$static" "$DIR/image" 2>>"$DIR/static.log" | tail -1); then
    tools/release-check/program.py image "$image" | sed 's/^/    /' || result=1
  else
    echo "    FAILED image: $(tail -n 1 "$DIR/static.log") (the output is in $DIR/static.log)"
    result=1
  fi
  if arm64=$(tools/build-dist.sh aarch64-unknown-linux-gnu "$dist" 2>"$DIR/arm64.log"); then
    tools/release-check/program.py arm64 "$arm64" | sed 's/^/    /' || result=1
  else
    echo "    FAILED arm64: $(tail -n 1 "$DIR/arm64.log") (the output is in $DIR/arm64.log)"
    result=1
  fi
fi
if [[ -z $only || $only == reproducible ]]; then
  echo "two builds in different directories:"
  tools/release-check/reproducible.sh "$DIR/reproducible" || result=1
fi
if [[ -z $only || $only == debian ]]; then
  for number in $suites; do
    echo "Debian $number, newly installed:"
    debian "$number" || result=1
  done
fi
if [[ -z $only || $only == kernels ]]; then
  $quick || guest_tests
  for number in $suites; do
    options=(--suite "$number" --tests "$DIR/tests")
    $quick && options=(--suite "$number" --parts forwards --forwards direct)
    tools/release-check/kernels.sh "${options[@]}" "$binary" "$DIR" || result=1
  done
  if [[ $suites == *13* ]]; then
    echo "a virtual machine as a server:"
    tools/release-check/virtio.sh "$binary" "$DIR" || result=1
    echo "a virtual machine as a director:"
    tools/release-check/virtio-director.sh "$binary" "$DIR" || result=1
  fi
fi
exit "$result"
