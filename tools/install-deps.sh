#!/usr/bin/env bash
# Installs the missing packages for building and testing Weir, and for comparing it with other programs, on Debian 12 or
# 13.
#
# Tests start nginx, HAProxy and PHP in network namespaces and need only the programs, but the packages would start
# services. A policy file prevents this during the installation, and is removed afterwards. Units of the installed
# packages are disabled, so that they do not start at the next boot either. Services that were installed before are not
# changed.
#
#   tools/install-deps.sh            install
#   tools/install-deps.sh --dry-run  only print what would be installed, and why
#   tools/install-deps.sh --soak     also install packages for the long forms of the tests
#   tools/install-deps.sh --dist     also install packages for building the static program and the arm64 program
set -euo pipefail

# Command or file that shows that the package is installed | package | purpose
readonly REQUIRED='
clang                            | clang          | compiles the BPF programs
llvm-strip                       | llvm           | strips the BPF objects
/usr/include/bpf/bpf_helpers.h   | libbpf-dev     | headers of the BPF helpers
/usr/include/linux/bpf.h         | linux-libc-dev | headers of the kernel interface
cc                               | gcc            | links the Rust programs
/usr/include/stdlib.h            | libc6-dev      | links the Rust programs
/etc/ssl/certs/ca-certificates.crt | ca-certificates | certificates for downloads by cargo and go
curl                             | curl           | fetches files in the tests
sysctl                           | procps         | sets kernel settings and ends processes in the tests
ip                               | iproute2       | creates namespaces, links and routes
ethtool                          | ethtool        | sets offloads of the test links
ping                             | iputils-ping   | tests ICMP to a VIP
nft                              | nftables       | peer: stateless direct routing and DNAT
/lib/systemd/systemd-networkd    | systemd        | removes foreign addresses, which weir doctor reports
systemd-analyze                  | systemd        | rates the units in the tests
dbus-daemon                      | dbus-daemon    | message bus for networkctl in the tests
iptables-legacy                  | iptables       | the firewall that weir doctor reads in addition to nftables
nginx                            | nginx-light    | the real servers of all experiments
haproxy                          | haproxy        | peer: the proxy
ab                               | apache2-utils  | load of the field reports
wrk                              | wrk            | load with keep-alive
ldirectord                       | ldirectord     | peer: health checks for IPVS, driving weir ipvsadm
openssl                          | openssl        | creates certificates in the tests, and is a TLS peer
bird                             | bird2          | peer: the BGP speaker that [announce] controls
exabgp                           | python3-exabgp | peer: another BGP speaker that [announce] controls
gobgpd                           | gobgpd         | peer: another BGP speaker that [announce] controls
etcd                             | etcd-server    | peer: the store of [cluster]
etcdctl                          | etcd-client    | client of etcd in the tests
keepalived                       | keepalived     | peer: its configuration check, compared with weir import
/usr/lib/frr/vrrpd               | frr            | peer: VRRP by FRR, and a BGP speaker that [announce] controls
corosync                         | corosync       | the cluster of clustered-rest --pacemaker
pacemakerd                       | pacemaker      | the cluster of clustered-rest --pacemaker
cibadmin                         | pacemaker-cli-utils | configures that cluster
ocf-tester                       | resource-agents | peer: the tester of agents for Pacemaker, and its functions
xmllint                          | libxml2-utils  | validates the metadata of the agent, for ocf-tester
go                               | golang-go      | builds h2spec, the HTTP/2 conformance suite
h2load                           | nghttp2-client | load with HTTP/2
node                             | nodejs         | an origin of the smuggling tests; decodes brotli
/usr/sbin/apache2                | apache2-bin    | an origin of the smuggling tests
zstd                             | zstd           | decodes compressed responses in the tests
socat                            | socat          | UDP servers in the tests
tmux                             | tmux           | a terminal for weir top in the tests
redis-server                     | redis-server   | peer of the redis check
dnsmasq                          | dnsmasq-base   | peer of the dns check
dig                              | bind9-dnsutils | DNS client over UDP and TCP in the tests
/usr/lib/python3/dist-packages/grpc | python3-grpcio | peer of the grpc check
exim4                            | exim4-daemon-light | peer of the smtp check
mariadbd                         | mariadb-server | peer of the mysql check
/usr/lib/postgresql/*/bin/postgres | postgresql     | peer of the postgres check
/usr/sbin/php-fpm*               | php-fpm        | pages of the stateless-direct experiment
promtool                         | prometheus     | checks the metrics and the alert rules in the tests
/usr/lib/python3/dist-packages/prometheus_client | python3-prometheus-client | parses OpenMetrics in the tests
bpftool                          | bpftool        | removes and changes BPF objects in the repair tests
c++                              | g++            | compiles libFuzzer for the long tests
strip                            | binutils       | builds the packages
debootstrap                      | debootstrap    | creates the systems of make release-check
lintian                          | lintian        | checks the packages
dpkg-scanpackages                | dpkg-dev       | creates the apt repository
gpg                              | gnupg          | signs the apt repository
rpmbuild                         | rpm            | builds the RPM
'
# Packages that only `make soak` needs.
readonly REQUIRED_SOAK='
chromium                         | chromium       | displays the dashboard in the long tests
chromedriver                     | chromium-driver | drives chromium in the long tests
npm                              | npm            | fetches axe-core, which checks the dashboard in the long tests
/usr/lib/python3*/ensurepip      | python3-venv   | installs the parser that the mutation tests use
'
# Packages that only distribution builds need.
readonly REQUIRED_DIST='
musl-gcc                         | musl-tools     | compiles C code for the static program
aarch64-linux-gnu-gcc            | gcc-aarch64-linux-gnu | compiles C code for arm64, and links the arm64 program
/usr/aarch64-linux-gnu/include/stdlib.h | libc6-dev-arm64-cross | links the Rust programs for arm64
qemu-aarch64-static              | qemu-user-static | runs the arm64 program in make release-check
'
required=$REQUIRED
readonly POLICY=/usr/sbin/policy-rc.d

dry_run=false
case "${1:-}" in
  '') ;;
  --dry-run) dry_run=true ;;
  --soak) required+=$REQUIRED_SOAK ;;
  --dist) required+=$REQUIRED_DIST ;;
  *) echo "usage: tools/install-deps.sh [--dry-run|--soak|--dist]" >&2; exit 2 ;;
esac

is_present() {
  if [[ $1 == /* ]]; then
    compgen -G "$1" >/dev/null
  else
    PATH="$PATH:/usr/sbin:/sbin:/usr/local/go/bin" command -v "$1" >/dev/null
  fi
}

# Prints "package reason" for each line of the table whose command or file is missing.
list_missing() {
  local proof package reason
  while IFS='|' read -r proof package reason; do
    proof=$(xargs <<<"$proof") package=$(xargs <<<"$package") reason=$(xargs <<<"$reason")
    [[ -z $proof ]] && continue
    is_present "$proof" || printf '%s %s\n' "$package" "$reason"
  done <<<"$1"
}

require_debian() {
  local id='' like='' version=''
  if [[ -r /etc/os-release ]]; then
    id=$(. /etc/os-release && echo "${ID:-}")
    like=$(. /etc/os-release && echo "${ID_LIKE:-}")
    version=$(. /etc/os-release && echo "${VERSION_ID:-}")
  fi
  if ! command -v apt-get >/dev/null; then
    echo "apt-get not found (the system is \"${id:-unknown}\"). Install these packages manually:" >&2
    list_missing "$required" | sed 's/^/  /' >&2
    exit 1
  fi
  if [[ $id != debian || ! $version =~ ^1[23]$ ]]; then
    echo "note: Debian 12 and 13 are supported; this is ${id:-unknown} ${version:-} ${like:+(like $like)};" \
      "trying anyway"
  fi
}

# --- The policy that prevents packages from starting services; see /usr/share/doc/init-system-helpers ----------------

saved_policy=''
is_policy_replaced=false

forbid_services() {
  if [[ -e $POLICY || -L $POLICY ]]; then
    saved_policy=$(mktemp -d)
    cp -a "$POLICY" "$saved_policy/policy-rc.d"
  fi
  is_policy_replaced=true
  # The policy file is replaced by renaming, because an existing symbolic link must not be followed.
  local new_policy
  new_policy=$(mktemp "$POLICY.XXXXXX")
  printf '%s\n' '#!/bin/sh' '# Prevents services from starting while Weir installs packages; removed afterwards.' \
    'exit 101' >"$new_policy"
  chmod 755 "$new_policy"
  mv -f "$new_policy" "$POLICY"
}

restore_policy() {
  $is_policy_replaced || return 0
  rm -f "$POLICY"
  if [[ -n $saved_policy ]]; then
    cp -a "$saved_policy/policy-rc.d" "$POLICY"
    rm -rf "$saved_policy"
  fi
  is_policy_replaced=false
}

# --- Units of the installed packages ---------------------------------------------------------------------------------

installed_packages() {
  dpkg-query -W -f '${Package} ${db:Status-Status}\n' | awk '$2 == "installed" { print $1 }' | sort
}

# Disables the units of the packages listed on standard input. Without systemd, nothing would start them.
disable_units() {
  command -v systemctl >/dev/null || return 0
  local package file unit
  while read -r package; do
    while read -r file; do
      unit=${file##*/}
      [[ $unit == *@.* ]] && continue
      if [[ $(systemctl is-enabled "$unit" 2>/dev/null || true) == enabled ]]; then
        systemctl disable --quiet "$unit" && echo "  disabled $unit of package $package"
      fi
    done < <(dpkg -L "$package" | grep -E '/systemd/system/[^/]+\.(service|socket|timer)$' || true)
  done
}

# Directory with lists of the installed packages, before and after. Global, because the EXIT trap uses it.
lists=''

install() {
  lists=$(mktemp -d)
  trap 'restore_policy; rm -rf "$lists"' EXIT
  trap 'exit 130' INT
  trap 'exit 143' TERM
  installed_packages >"$lists/before"
  forbid_services
  export DEBIAN_FRONTEND=noninteractive
  echo "  (apt-get update, then apt-get install; no service will be started)"
  # Old lists may be sufficient: an unreachable mirror of other packages must not prevent the installation.
  apt-get update -qq || echo "  apt-get update failed; using the existing lists"
  apt-get install -y -qq --no-install-recommends "$@" </dev/null
  restore_policy
  installed_packages >"$lists/after"
  comm -13 "$lists/before" "$lists/after" | disable_units
}

main() {
  local missing
  missing=$(list_missing "$required")
  if [[ -n $missing ]]; then
    require_debian
    echo "Missing packages and their purposes:"
    sed 's/^\([^ ]*\) /  \1: /' <<<"$missing"
    if ! $dry_run; then
      if [[ $(id -u) -ne 0 ]]; then
        echo "The installation needs root. Try: sudo -E make deps" >&2
        exit 1
      fi
      local packages
      mapfile -t packages < <(cut -d ' ' -f 1 <<<"$missing" | sort -u)
      install "${packages[@]}"
      missing=$(list_missing "$required")
      if [[ -n $missing ]]; then
        echo "Still missing after the installation:" >&2
        sed 's/^\([^ ]*\) /  \1: /' <<<"$missing" >&2
        exit 1
      fi
      echo "Installed. No service was started."
    fi
  else
    echo "All required packages are installed."
  fi
}

main
