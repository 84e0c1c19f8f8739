#!/usr/bin/env bash
# Creates an RPM of a built program, with the files of the Debian package and equivalent scripts.
#
#   tools/build-rpm.sh BINARY DIRECTORY
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# -eq 2 && -x $1 ]] || { echo "usage: tools/build-rpm.sh BINARY DIRECTORY" >&2; exit 2; }
command -v rpmbuild >/dev/null || { echo "rpmbuild is missing (package rpm)" >&2; exit 1; }
BINARY=$(realpath "$1")
readonly BINARY
mkdir -p "$2"
OUT=$(cd "$2" && pwd)
VERSION=${WEIR_PACKAGE_VERSION:-$("$BINARY" --version | awk '{ print $2 }')}
SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct 2>/dev/null || echo 1)}
export SOURCE_DATE_EPOCH
readonly OUT VERSION
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/files
tools/install-files.sh "$BINARY" "$root"
# Fedora's directory for zsh completions.
mkdir -p "$root/usr/share/zsh/site-functions"
mv "$root/usr/share/zsh/vendor-completions/_weir" "$root/usr/share/zsh/site-functions/_weir"
rmdir "$root/usr/share/zsh/vendor-completions"
install -m 644 LICENSE-MIT LICENSE-APACHE "$root/usr/share/doc/weir/"
chmod -R u+w "$root"

cat >"$work/weir.spec" <<END
Name: weir
Version: $VERSION
Release: 1
Summary: load balancer from packet to request
License: (MIT OR Apache-2.0) AND (GPL-2.0-only OR BSD-2-Clause)
AutoReqProv: yes
%global __os_install_post %{nil}
%global debug_package %{nil}
%global _binary_payload w3.zstdio
%global use_source_date_epoch_as_buildtime 1
%global clamp_mtime_to_source_date_epoch 1
%global build_mtime_policy clamp_to_source_date_epoch
%global _buildhost reproducible

%description
Layer 4 in XDP with the semantics of IPVS, health checks, and an HTTP and TCP
proxy over the same pools, by one daemon and one configuration file.

%install
cp -a $root/. %{buildroot}/

%post
if [ ! -e /etc/weir/weir.toml ]; then
  install -m 600 /usr/share/weir/weir.toml /etc/weir/weir.toml
fi
! command -v systemd-sysusers >/dev/null || systemd-sysusers weir.conf || :
for account in weir weir-vrrp; do
  getent passwd "\$account" >/dev/null ||
    useradd --system --user-group --no-create-home --home-dir /nonexistent --shell /sbin/nologin "\$account" || :
done
[ -d /var/log/weir ] || install -d -m 750 /var/log/weir
[ ! -d /run/systemd/system ] || systemctl --system daemon-reload || :
if [ "\$1" -gt 1 ] && weir status >/dev/null 2>&1; then
  weir upgrade /usr/bin/weir || echo "weir: upgrade failed; the running daemon continues with the previous program" >&2
fi

%preun
if [ "\$1" = 0 ]; then
  if [ -d /run/systemd/system ]; then
    systemctl stop weir.service weir-helper.service weir-proxy.service 'weir-real-server@*.service' || :
    systemctl --no-reload disable weir.service weir-proxy.service || :
  fi
  weir clean >/dev/null || :
fi

%postun
[ ! -d /run/systemd/system ] || systemctl --system daemon-reload || :

%files
%defattr(-,root,root,-)
%config(noreplace) /etc/logrotate.d/weir
%dir /etc/weir
%dir /etc/weir/real-server
/usr/bin/weir
%dir /usr/lib/ocf
%dir /usr/lib/ocf/resource.d
/usr/lib/ocf/resource.d/weir
/usr/lib/systemd/system/*
/usr/lib/sysusers.d/weir.conf
/usr/lib/tmpfiles.d/weir.conf
/usr/share/bash-completion/completions/weir
/usr/share/fish/vendor_completions.d/weir.fish
/usr/share/zsh/site-functions/_weir
/usr/share/man/man1/*
/usr/share/man/man5/*
%dir /usr/share/weir
/usr/share/weir/weir.toml
%doc /usr/share/doc/weir
END
rpmbuild -bb --quiet --define "_topdir $work/top" --define "_rpmdir $work/rpms" \
  --define '_build_id_links none' "$work/weir.spec" >"$work/log" 2>&1 || { tail -20 "$work/log" >&2; exit 1; }
find "$work/rpms" -name '*.rpm' -exec cp {} "$OUT/" \;
find "$OUT" -name "weir-$VERSION-*.rpm"
