//! Detects changes of the certificate files of a configuration.

use std::collections::BTreeSet;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_model::Desired;

/// A number that changes when a certificate, key or authority that `desired` names is replaced, added or removed:
/// a hash of paths, inodes, sizes and times of modification.
pub fn certificate_files(desired: &Desired) -> u64 {
    let mut paths: BTreeSet<&str> = BTreeSet::new();
    let admin = desired.node.admin.iter().flat_map(|admin| &admin.tls);
    for tls in desired
        .proxies
        .iter()
        .flat_map(|proxy| &proxy.tls)
        .chain(admin)
    {
        paths.insert(&tls.certificates);
        paths.extend(tls.client_ca.as_deref());
    }
    for tls in desired.pools.iter().flat_map(|pool| &pool.tls) {
        paths.extend(tls.ca.as_deref());
        paths.extend(tls.certificate.as_deref());
    }
    let mut hasher = DefaultHasher::new();
    for path in paths {
        add(Path::new(path), 2, &mut hasher);
    }
    hasher.finish()
}

/// Adds a file, or a directory and what it contains.
fn add(path: &Path, depth: usize, hasher: &mut DefaultHasher) {
    path.hash(hasher);
    let Ok(known) = fs::metadata(path) else {
        return;
    };
    if !known.is_dir() {
        let facts = (
            known.dev(),
            known.ino(),
            known.size(),
            known.mtime(),
            known.mtime_nsec(),
        );
        facts.hash(hasher);
        return;
    }
    if depth == 0 {
        return;
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    let mut paths: Vec<PathBuf> = entries.map(|entry| entry.path()).collect();
    paths.sort();
    paths.iter().for_each(|path| add(path, depth - 1, hasher));
}
