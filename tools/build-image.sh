#!/usr/bin/env bash
# Creates a container image of a built program in the OCI layout, without a container daemon.
#
#   tools/build-image.sh BINARY DIRECTORY    write DIRECTORY/weir-VERSION-ARCH.oci.tar
#
# The image contains the program, the libraries that it needs (none if it is static), CA certificates, the accounts that
# it uses, the sample configuration and licenses. The same program, libraries and certificates result in the same image:
# all times are SOURCE_DATE_EPOCH, by default the time of the last commit.
set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")/.."
[[ $# -eq 2 && -x $1 ]] || { echo "usage: tools/build-image.sh BINARY DIRECTORY" >&2; exit 2; }
readonly BINARY=$1 OUT=$2
VERSION=${WEIR_PACKAGE_VERSION:-$("$BINARY" --version | awk '{ print $2 }')}
ARCH=${WEIR_PACKAGE_ARCH:-$(dpkg --print-architecture)}
EPOCH=${SOURCE_DATE_EPOCH:-$(git -c safe.directory='*' log -1 --format=%ct 2>/dev/null || echo 1)}
readonly VERSION ARCH EPOCH
umask 022
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
root=$work/root blobs=$work/image/blobs/sha256
mkdir -p "$root"/{etc/weir,run/weir,tmp,usr/bin,etc/ssl/certs,sys/fs/bpf,proc,dev} "$blobs"
chmod 1777 "$root/tmp"

install -m 755 "$BINARY" "$root/usr/bin/weir"
${STRIP:-strip} --strip-unneeded -R .comment "$root/usr/bin/weir"
ln -s ../bin/weir "$root/usr/bin/ipvsadm"
# Copies each library, under the name by which the program loads it, and the loader.
ldd "$BINARY" 2>/dev/null | awk '{ for (n = 1; n <= NF; n++) if ($n ~ /^\//) print $n }' | sort -u |
  while read -r library; do
    install -D -m 755 "$(readlink -f "$library")" "$root$library"
  done
install -m 644 /etc/ssl/certs/ca-certificates.crt "$root/etc/ssl/certs/"
install -m 600 docs/packaging/files/weir.toml "$root/etc/weir/"
install -D -m 644 LICENSE-MIT "$root/usr/share/doc/weir/LICENSE-MIT"
install -m 644 LICENSE-APACHE "$root/usr/share/doc/weir/"
tools/build-licenses.py | gzip -9n >"$root/usr/share/doc/weir/THIRD-PARTY.gz"
printf '%s\n' 'root:x:0:0:root:/:/usr/bin/weir' 'weir:x:989:989::/:/usr/bin/weir' \
  'weir-vrrp:x:990:990::/:/usr/bin/weir' \
  'nobody:x:65534:65534::/:/usr/bin/weir' >"$root/etc/passwd"
printf '%s\n' 'root:x:0:' 'weir:x:989:' 'weir-vrrp:x:990:' 'nogroup:x:65534:' >"$root/etc/group"

# add MEDIA-TYPE FILE: stores a blob and prints its descriptor.
add() {
  local sum size
  sum=$(sha256sum <"$2" | cut -d ' ' -f 1)
  size=$(stat -c %s "$2")
  cp "$2" "$blobs/$sum"
  printf '{"mediaType":"%s","digest":"sha256:%s","size":%s}' "$1" "$sum" "$size"
}

tar --create --sort=name --format=gnu --mtime="@$EPOCH" --owner=0 --group=0 --numeric-owner -C "$root" . \
  >"$work/layer.tar"
diff_id=$(sha256sum <"$work/layer.tar" | cut -d ' ' -f 1)
gzip -n "$work/layer.tar"
layer=$(add application/vnd.oci.image.layer.v1.tar+gzip "$work/layer.tar.gz")
created=$(date -u -d "@$EPOCH" +%Y-%m-%dT%H:%M:%SZ)
cat >"$work/config.json" <<END
{"created":"$created","architecture":"$ARCH","os":"linux",
 "config":{"Entrypoint":["/usr/bin/weir"],"Cmd":["run"],"Env":["PATH=/usr/bin"],
  "Labels":{"org.opencontainers.image.title":"weir","org.opencontainers.image.version":"$VERSION",
   "org.opencontainers.image.description":"load balancer from packet to request",
   "org.opencontainers.image.licenses":"(MIT OR Apache-2.0) AND (GPL-2.0-only OR BSD-2-Clause)"}},
 "rootfs":{"type":"layers","diff_ids":["sha256:$diff_id"]},
 "history":[{"created":"$created","created_by":"tools/build-image.sh"}]}
END
config=$(add application/vnd.oci.image.config.v1+json "$work/config.json")
cat >"$work/manifest.json" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.manifest.v1+json","config":$config,"layers":[$layer]}
END
manifest=$(add application/vnd.oci.image.manifest.v1+json "$work/manifest.json")
echo '{"imageLayoutVersion":"1.0.0"}' >"$work/image/oci-layout"
cat >"$work/image/index.json" <<END
{"schemaVersion":2,"mediaType":"application/vnd.oci.image.index.v1+json","manifests":[${manifest%\}},
 "platform":{"architecture":"$ARCH","os":"linux"},
 "annotations":{"org.opencontainers.image.ref.name":"$VERSION","io.containerd.image.name":"weir:$VERSION"}}]}
END
mkdir -p "$OUT"
readonly IMAGE=$OUT/weir-$VERSION-$ARCH.oci.tar
tar --create --sort=name --format=gnu --mtime="@$EPOCH" --owner=0 --group=0 --numeric-owner -C "$work/image" . >"$IMAGE"
echo "$IMAGE"
