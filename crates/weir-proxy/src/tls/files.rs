//! Detects changes of the certificate files of a configuration.

use std::collections::BTreeSet;
use std::fs::{self, Metadata};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_model::Desired;
use weir_sys::privileged;

/// Files of a certificate in a separate directory, as certbot writes them, and its OCSP response.
const OF_CERTIFICATE: [&str; 3] = ["fullchain.pem", "privkey.pem", "ocsp.der"];

/// A number that changes when a certificate, key or authority that `desired` names is replaced, added or removed:
/// a hash of paths, inodes, sizes and times of modification.
pub fn certificate_files(desired: &Desired) -> u64 {
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
    let mut hasher = DefaultHasher::new();
    for path in others {
        add(Path::new(path), &mut hasher);
    }
    for path in certificates.into_iter().map(Path::new) {
        add(path, &mut hasher);
        let entries = privileged::list(path).ok().flatten();
        let mut entries = entries.unwrap_or_default();
        entries.sort();
        for entry in entries {
            add(&entry, &mut hasher);
            for name in OF_CERTIFICATE {
                add(&entry.join(name), &mut hasher);
            }
        }
    }
    hasher.finish()
}

/// A number that changes when one of these files is replaced, added or removed; see [`certificate_files`].
pub fn number_of_files(paths: &[PathBuf]) -> u64 {
    let mut hasher = DefaultHasher::new();
    for path in paths {
        add(path, &mut hasher);
    }
    hasher.finish()
}

/// Adds a file, as far as it exists.
fn add(path: &Path, hasher: &mut DefaultHasher) {
    let Ok(known) = known(path) else {
        return;
    };
    path.hash(hasher);
    let facts = (
        known.dev(),
        known.ino(),
        known.size(),
        known.mtime(),
        known.mtime_nsec(),
    );
    facts.hash(hasher);
}

/// A process without rights asks the helper for a file that it cannot see.
fn known(path: &Path) -> io::Result<Metadata> {
    match fs::metadata(path) {
        Err(error) if error.kind() == io::ErrorKind::PermissionDenied => {
            privileged::open(path)?.metadata()
        }
        known => known,
    }
}
