//! Detects changes to the certificate files that a configuration names.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_model::Desired;
use weir_sys::privileged;

/// Files in a certificate's own directory, with the names that certbot uses, and the OCSP response.
const CERTIFICATE_FILES: [&str; 3] = ["fullchain.pem", "privkey.pem", "ocsp.der"];

/// Returns a fingerprint that changes when a certificate, key, CA, CRL or OCSP response that `desired` names is
/// replaced, added or removed, or when its owner or mode changes. It is a hash of paths, devices, inodes, sizes,
/// modification times, owners and modes. If an entry of `certificates` is a single file, its separate key and OCSP
/// response are not included. Compare fingerprints only within one process.
pub fn certificate_fingerprint(desired: &Desired) -> u64 {
    let (mut certificates, mut others) = (BTreeSet::new(), BTreeSet::new());
    let admin = desired.node.admin.iter().flat_map(|admin| &admin.tls);
    for tls in desired
        .proxies
        .iter()
        .flat_map(|proxy| &proxy.tls)
        .chain(admin)
    {
        certificates.extend(tls.certificates.iter().map(String::as_str));
        others.extend(tls.client_ca.as_deref());
        others.extend(tls.client_crl.as_deref());
    }
    for tls in desired.pools.iter().flat_map(|pool| &pool.tls) {
        others.extend(tls.ca.as_deref());
        others.extend(tls.certificate.as_deref());
    }
    let checks = desired.check_authorities.iter();
    others.extend(checks.filter_map(|authority| authority.ca.as_deref()));
    let mut hasher = DefaultHasher::new();
    for path in others {
        hash_file(Path::new(path), &mut hasher);
    }
    for path in certificates.into_iter().map(Path::new) {
        hash_file(path, &mut hasher);
        let entries = privileged::list(path).ok().flatten();
        let mut entries = entries.unwrap_or_default();
        entries.sort();
        for entry in entries {
            hash_file(&entry, &mut hasher);
            for name in CERTIFICATE_FILES {
                hash_file(&entry.join(name), &mut hasher);
            }
        }
    }
    hasher.finish()
}

/// Returns a fingerprint that changes when one of these files is replaced, added or removed; see
/// [`certificate_fingerprint`].
pub fn file_fingerprint(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        hash_file(path, &mut hasher);
    }
    hasher.finish()
}

/// Adds a file to the hash, if it exists.
fn hash_file(path: &Path, hasher: &mut DefaultHasher) {
    let Ok(metadata) = metadata(path) else {
        return;
    };
    path.hash(hasher);
    let identity = (
        metadata.dev(),
        metadata.ino(),
        metadata.size(),
        metadata.mtime(),
        metadata.mtime_nsec(),
        (metadata.uid(), metadata.gid(), metadata.mode()),
    );
    identity.hash(hasher);
}

/// Returns a file's metadata. An unprivileged process asks the privileged helper to open files that it cannot access.
fn metadata(path: &Path) -> io::Result<Metadata> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            privileged::open(path)?.metadata()
        }
        other => other,
    }
}
