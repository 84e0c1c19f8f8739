#!/usr/bin/env bash
# Creates an apt repository from packages: pool, lists with checksums, and signatures.
#
#   tools/build-repository.sh DIRECTORY PACKAGE.deb…
#
# WEIR_SIGNING_KEY selects the signing key in gpg's key ring (GNUPGHOME). Without it, a key is generated for this
# repository, and its private key is deleted at the end. This is for tests, and for trying out packages.
#
# Line for sources.list: deb [signed-by=/usr/share/keyrings/weir-archive-keyring.gpg] URL stable main
set -euo pipefail
[[ $# -ge 2 ]] || { echo "usage: tools/build-repository.sh DIRECTORY PACKAGE.deb…" >&2; exit 2; }
for tool in gpg dpkg-scanpackages; do
  command -v "$tool" >/dev/null || { echo "$tool is missing (packages gnupg and dpkg-dev)" >&2; exit 1; }
done
readonly DIR=$1 GPG=(gpg --batch --yes --quiet --no-auto-check-trustdb)
shift
key=${WEIR_SIGNING_KEY:-}
if [[ -z $key ]]; then
  GNUPGHOME=$(mktemp -d)
  export GNUPGHOME
  trap 'gpgconf --kill all; rm -rf "$GNUPGHOME"' EXIT
  "${GPG[@]}" --passphrase '' --quick-generate-key 'Weir packages (made for one repository)' rsa3072 sign never
  key=$("${GPG[@]}" --with-colons --list-secret-keys | awk -F: '$1 == "fpr" { print $10; exit }')
  echo "signed with a key that was generated for this repository: $key"
fi

mkdir -p "$DIR/pool/main"
cp "$@" "$DIR/pool/main/"
cd "$DIR"
rm -rf dists
architectures=''
for package in pool/main/*.deb; do
  architecture=$(dpkg-deb -f "$package" Architecture)
  [[ $architecture == all || " $architectures " == *" $architecture "* ]] || architectures+=" $architecture"
done
for architecture in $architectures; do
  binary=dists/stable/main/binary-$architecture
  mkdir -p "$binary"
  dpkg-scanpackages --multiversion --arch "$architecture" pool >"$binary/Packages" 2>/dev/null
  gzip -9nk "$binary/Packages"
done
cd dists/stable
lists=$(find main -type f | LC_ALL=C sort)
{
  echo "Origin: Weir"
  echo "Label: Weir"
  echo "Suite: stable"
  echo "Codename: stable"
  echo "Date: $(date -u -R -d "@${SOURCE_DATE_EPOCH:-$(date +%s)}")"
  echo "Architectures:$architectures"
  echo "Components: main"
  echo "SHA256:"
  for list in $lists; do
    printf ' %s %s %s\n' "$(sha256sum <"$list" | cut -d ' ' -f 1)" "$(stat -c %s "$list")" "$list"
  done
} >Release
"${GPG[@]}" --local-user "$key" --clearsign --output InRelease Release
"${GPG[@]}" --local-user "$key" --armor --detach-sign --output Release.gpg Release
cd ../..
"${GPG[@]}" --export --output weir-archive-keyring.gpg "$key"
(find pool -name '*.deb' -print0 | LC_ALL=C sort -z | xargs -0 sha256sum) >SHA256SUMS
"${GPG[@]}" --local-user "$key" --armor --detach-sign --output SHA256SUMS.asc SHA256SUMS
echo "$DIR"
