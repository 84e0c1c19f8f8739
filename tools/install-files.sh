#!/usr/bin/env bash
# Installs a built program below a root directory, with units, sample configuration, man pages, completions, the manual
# and licenses. The Debian packages and the RPM are made from this directory.
#
#   tools/install-files.sh BINARY ROOT
#
# ROOT must not be the root directory of this machine, because the modes of all files in ROOT/usr/share are set.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# -eq 2 && -x $1 ]] || { echo "usage: tools/install-files.sh BINARY ROOT" >&2; exit 2; }
readonly BINARY=$1 ROOT=$2
[[ $(realpath -m "$ROOT") != / ]] || { echo "install-files.sh: ROOT must not be /: install a package" >&2; exit 2; }
readonly FILES=docs/packaging/files
# A program for a different architecture cannot generate its man pages here.
readonly WEIR=${WEIR_NATIVE:-$BINARY}
umask 022

put() {
  install -D -m 644 "$1" "$ROOT/$2"
}

install -D -m 755 "$BINARY" "$ROOT/usr/bin/weir"
install -D -m 755 contrib/ocf/weir "$ROOT/usr/lib/ocf/resource.d/weir/weir"
${STRIP:-strip} --strip-unneeded -R .comment "$ROOT/usr/bin/weir"
for unit in weir weir-helper weir-proxy weir-real-server@; do
  put "docs/packaging/$unit.service" "usr/lib/systemd/system/$unit.service"
done
put "$FILES/weir.sysusers" usr/lib/sysusers.d/weir.conf
put "$FILES/weir.tmpfiles" usr/lib/tmpfiles.d/weir.conf
put "$FILES/weir.logrotate" etc/logrotate.d/weir
# The packages' scripts copy the sample from here, because systems can omit /usr/share/doc.
put "$FILES/weir.toml" usr/share/weir/weir.toml
install -d "$ROOT/usr/share/doc/weir/examples" "$ROOT/etc/weir/real-server"
ln -s ../../../weir/weir.toml "$ROOT/usr/share/doc/weir/examples/weir.toml"

install -d "$ROOT/usr/share/man/man1" "$ROOT/usr/share/man/man5"
"$WEIR" generate man "$ROOT/usr/share/man/man1"
mv "$ROOT/usr/share/man/man1/"*.5 "$ROOT/usr/share/man/man5/"
find "$ROOT/usr/share/man" -type f -exec gzip -9n {} +
completion() {
  install -d "$ROOT/$(dirname "$2")"
  "$WEIR" generate completion "$1" >"$ROOT/$2"
}
completion bash usr/share/bash-completion/completions/weir
completion zsh usr/share/zsh/vendor-completions/_weir
completion fish usr/share/fish/vendor_completions.d/weir.fish

cp -r docs/manual docs/performance.md docs/performance-log.md docs/scaling.md "$ROOT/usr/share/doc/weir/"
gzip -9n <CHANGELOG.md >"$ROOT/usr/share/doc/weir/CHANGELOG.md.gz"
tools/build-licenses.py | gzip -9n >"$ROOT/usr/share/doc/weir/THIRD-PARTY.gz"
put contrib/grafana/weir.json usr/share/doc/weir/examples/grafana/weir.json
put contrib/prometheus/weir-rules.yml usr/share/doc/weir/examples/prometheus/weir-rules.yml
find "$ROOT/usr/share" -type f -exec chmod 644 {} +
