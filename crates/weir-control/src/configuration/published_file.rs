//! Reads the certificate files that a published configuration names, and writes those received from the group.
//!
//! The director writes the received files to its runtime directory, and replaces the paths in the published part of the
//! configuration. Names of the written files depend on their content, so a renewed certificate is a change to the
//! configuration, and the previous files remain until the rollout has ended. Only the keys of published services, pools
//! and checks change: the director's own services always use its own files.

use std::collections::BTreeSet;
use std::fs::{self, DirBuilder};
use std::io;
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use weir_config::Desired;
use weir_model::{Check, Source};
use weir_proxy::{CertificateError, Problem, TlsFile, read_certificate_files, read_tls_file};
use weir_sys::replace_file;

use super::certificate::reject_if_fatal;
use super::{Loaded, Rejected};
use crate::group_configuration::{
    GroupConfiguration, PUBLISHED_FILES, PublishedFile, PublishedFiles,
};

const DIRECTORY_MODE: u32 = 0o700;

/// Reads the files that the published part of a configuration names, and returns the configuration unchanged. Uses
/// `previous` for files that this director does not have. `path` is the configuration file.
///
/// # Errors
/// Reports each file that cannot be read, with the position of the reference; or reports that the files are too many or
/// too large.
pub(crate) fn read_published_files(
    loaded: Loaded,
    previous: &PublishedFiles,
    path: &Path,
) -> Result<(Loaded, PublishedFiles), Rejected> {
    let desired = &loaded.desired;
    let (mut files, mut problems) = (PublishedFiles::default(), Vec::new());
    let mut bytes = 0;
    for reference in references(desired) {
        if files.0.contains_key(reference.path) {
            continue;
        }
        match read(&reference, previous) {
            Ok(read) => {
                bytes += read.iter().map(PublishedFile::bytes).sum::<usize>();
                files.0.insert(reference.path.to_owned(), read);
            }
            Err(error) => problems.push(unreadable(&error, reference.source)),
        }
        // The remaining files need not be read into memory.
        if bytes > PublishedFiles::MAX_BYTES {
            break;
        }
    }
    let loaded = reject_if_fatal(loaded, problems, path)?;
    match files.check_size() {
        Ok(()) => Ok((loaded, files)),
        Err(reason) => Err(rejected(loaded, reason)),
    }
}

fn read(
    reference: &Reference<'_>,
    previous: &PublishedFiles,
) -> Result<Vec<PublishedFile>, CertificateError> {
    let max_bytes = PublishedFiles::MAX_BYTES as u64;
    let read = match reference.has_private_key {
        true => read_certificate_files(reference.path, max_bytes),
        false => read_tls_file(reference.path, max_bytes).map(|file| vec![file]),
    };
    match (read, previous.0.get(reference.path)) {
        (Err(error), Some(previous)) if is_missing(&error) => Ok(previous.clone()),
        (read, _) => Ok(read?.into_iter().map(PublishedFile::from).collect()),
    }
}

fn is_missing(error: &CertificateError) -> bool {
    matches!(error, CertificateError::Unreadable { source, .. } if source.kind() == io::ErrorKind::NotFound)
}

impl From<TlsFile> for PublishedFile {
    fn from(file: TlsFile) -> Self {
        Self {
            path: file.path,
            pem: file.pem,
            ocsp: file.ocsp,
        }
    }
}

fn unreadable(error: &CertificateError, source: Source) -> Problem {
    Problem {
        fatal: true,
        message: error.to_string(),
        cause: "the group's configuration is published with its certificate files".to_owned(),
        fix: error.fix().to_owned(),
        source,
    }
}

fn rejected(loaded: Loaded, summary: String) -> Rejected {
    Rejected {
        diagnostics: format!("{}{summary}\n", loaded.findings),
        summary,
        found: loaded.found,
    }
}

/// A key of the published part that names a file.
struct Reference<'a> {
    path: &'a str,
    /// Whether the configuration key is `certificates` of a service: the private key and an OCSP response may be in
    /// separate files, and the path may be a directory.
    has_private_key: bool,
    source: Source,
}

/// Returns the keys of the published part that name files, `certificates` of services first: a file that is also used
/// as a CA is then published with its private key.
fn references(desired: &Desired) -> Vec<Reference<'_>> {
    let published = |source: &Source| desired.is_published(*source);
    let services = desired.proxies.iter().flat_map(|proxy| &proxy.tls);
    let services = services.filter(|tls| published(&tls.source));
    let certificates = services.clone().flat_map(|tls| {
        let paths = tls.certificates.iter();
        paths.map(|path| (path, true, tls.source))
    });
    let authorities = services.flat_map(|tls| {
        let paths = tls.client_ca.iter().chain(&tls.client_crl);
        paths.map(|path| (path, false, tls.source))
    });
    let pools = desired.pools.iter().flat_map(|pool| &pool.tls);
    let pools = pools.filter(|tls| published(&tls.source)).flat_map(|tls| {
        let paths = tls.ca.iter().chain(&tls.certificate);
        paths.map(|path| (path, false, tls.source))
    });
    let checks = desired.check_authorities.iter();
    let checks = checks.filter(|it| published(&it.source));
    let checks = checks.flat_map(|it| it.ca.iter().map(|path| (path, false, it.source)));
    certificates
        .chain(authorities)
        .chain(pools)
        .chain(checks)
        .map(|(path, has_private_key, source)| Reference {
            path,
            has_private_key,
            source,
        })
        .collect()
}

/// Writes the group's published files that the configuration uses to the runtime directory, and replaces their paths in
/// the published part of the configuration.
///
/// # Errors
/// Fails if the files cannot be written.
pub(crate) fn with_published_files(
    mut loaded: Loaded,
    group: Option<&GroupConfiguration>,
    runtime_dir: &Path,
) -> Result<Loaded, Rejected> {
    let Some(group) = group.filter(|group| !group.files.is_empty()) else {
        return Ok(loaded);
    };
    let directory = runtime_dir.join(PUBLISHED_FILES);
    let result = write_used_files(&loaded.desired, &group.files, &directory);
    if let Err(error) = result {
        let directory = directory.display();
        let summary =
            format!("{directory}: failed to write the group's certificate files: {error}");
        return Err(rejected(loaded, summary));
    }
    replace_paths(&mut loaded.desired, &group.files, &directory);
    Ok(loaded)
}

/// Writes the files that the published part of the configuration names.
fn write_used_files(desired: &Desired, files: &PublishedFiles, directory: &Path) -> io::Result<()> {
    let references = references(desired).into_iter();
    let used: BTreeSet<&str> = references.map(|it| it.path).collect();
    let files = used.into_iter().filter_map(|path| files.0.get(path));
    files.flatten().try_for_each(|file| write(file, directory))
}

/// Writes a file with mode 0600, unless it exists with the same size. An existing file is complete, because it is
/// created under a temporary name, but it may be empty after a power failure.
fn write(file: &PublishedFile, directory: &Path) -> io::Result<()> {
    match DirBuilder::new().mode(DIRECTORY_MODE).create(directory) {
        Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
        _ => {}
    }
    let replace = |path: &Path, bytes: &[u8]| match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_file() && metadata.len() == bytes.len() as u64 => Ok(()),
        _ => replace_file(path, bytes),
    };
    let path = directory.join(file.name());
    if let Some(ocsp) = &file.ocsp {
        replace(&ocsp_path(&path), ocsp)?;
    }
    replace(&path, file.pem.as_bytes())
}

/// Returns the path at which weir-proxy reads the OCSP response of a certificate.
fn ocsp_path(path: &Path) -> PathBuf {
    let mut path = path.as_os_str().to_owned();
    path.push(".ocsp");
    path.into()
}

/// Replaces the paths of published files in the published part of a configuration.
fn replace_paths(desired: &mut Desired, files: &PublishedFiles, directory: &Path) {
    let written = |path: &str| -> Option<Vec<String>> {
        let files = files.0.get(path)?.iter();
        let paths = files.map(|file| directory.join(file.name()));
        Some(
            paths
                .map(|path| path.to_string_lossy().into_owned())
                .collect(),
        )
    };
    let replace = |path: &mut Option<String>| {
        let written = path.as_deref().and_then(written);
        if let Some(first) = written.and_then(|paths| paths.into_iter().next()) {
            *path = Some(first);
        }
    };
    let file_count = u32::try_from(desired.files.len()).unwrap_or(u32::MAX);
    let is_published_file = |file| {
        desired.is_published(Source {
            file,
            ..Source::default()
        })
    };
    let published_files: BTreeSet<u32> = (0..file_count)
        .filter(|it| is_published_file(*it))
        .collect();
    let is_published = |source: Source| published_files.contains(&source.file);

    let services = desired.proxies.iter_mut().filter_map(|it| it.tls.as_mut());
    for tls in services.filter(|tls| is_published(tls.source)) {
        let paths = std::mem::take(&mut tls.certificates).into_iter();
        let paths = paths.flat_map(|path| written(&path).unwrap_or_else(|| vec![path]));
        tls.certificates = paths.collect();
        replace(&mut tls.client_ca);
        replace(&mut tls.client_crl);
    }
    let pools = desired.pools.iter_mut().filter_map(|it| it.tls.as_mut());
    for tls in pools.filter(|tls| is_published(tls.source)) {
        replace(&mut tls.ca);
        replace(&mut tls.certificate);
    }
    // A check has no position. A CA that the director's own part names too stays the director's own file.
    let authorities = desired.check_authorities.clone().into_iter();
    let (published, own): (Vec<_>, Vec<_>) = authorities.partition(|it| is_published(it.source));
    let own: BTreeSet<_> = own.into_iter().map(|it| it.ca).collect();
    let published = published.into_iter().map(|it| it.ca);
    let published: BTreeSet<_> = published.filter(|ca| !own.contains(ca)).collect();
    for authority in &mut desired.check_authorities {
        if published.contains(&authority.ca) {
            replace(&mut authority.ca);
        }
    }
    for check in checks_mut(desired) {
        if let Some(tls) = &mut check.target.tls
            && published.contains(&tls.ca)
        {
            replace(&mut tls.ca);
        }
    }
}

/// Returns all checks of a configuration.
fn checks_mut(desired: &mut Desired) -> impl Iterator<Item = &mut Check> {
    let named = desired.checks.iter_mut().map(|(_, check)| check);
    let pool_checks = desired.pools.iter_mut().flat_map(|pool| {
        let servers = pool.servers.iter_mut().chain(&mut pool.sorry);
        let server_checks = servers
            .filter_map(|server| server.checks.as_mut())
            .flatten();
        pool.checks.iter_mut().chain(server_checks)
    });
    named.chain(pool_checks)
}

/// Returns the paths whose files on this director differ from the published ones. A missing or unreadable file does not
/// count as a difference.
pub(crate) fn differing_files(files: &PublishedFiles) -> Vec<String> {
    let max_bytes = PublishedFiles::MAX_BYTES as u64;
    let differs = |path: &str, published: &[PublishedFile]| {
        let is_same = |read: Vec<TlsFile>| {
            read.into_iter()
                .map(PublishedFile::from)
                .eq(published.iter().cloned())
        };
        let is_ca = || read_tls_file(path, max_bytes).is_ok_and(|file| is_same(vec![file]));
        // The configuration may name the file as a certificate or as a CA.
        read_certificate_files(path, max_bytes).is_ok_and(|read| !is_same(read) && !is_ca())
    };
    let differing = files
        .0
        .iter()
        .filter(|(path, published)| differs(path, published));
    differing.map(|(path, _)| path.clone()).collect()
}

/// Returns a fingerprint that changes when a file on this director that [`differing_files`] reads is replaced, added or
/// removed. Replacing only a private key in a separate file is not detected.
pub(crate) fn own_files_fingerprint(files: &PublishedFiles) -> u64 {
    let names = files.0.iter().flat_map(|(path, published)| {
        let published = published.iter().map(|file| file.path.as_str());
        std::iter::once(path.as_str()).chain(published)
    });
    let paths: Vec<PathBuf> = names.map(PathBuf::from).collect();
    weir_proxy::file_fingerprint(&paths)
}

/// Removes the files that `active` does not contain, and the directory if it becomes empty. Logs errors.
pub(crate) fn remove_unused_files(active: Option<&GroupConfiguration>, runtime_dir: &Path) {
    let directory = runtime_dir.join(PUBLISHED_FILES);
    let Ok(entries) = fs::read_dir(&directory) else {
        return;
    };
    let files = active.into_iter().flat_map(|group| group.files.0.values());
    let used: BTreeSet<String> = files.flatten().map(PublishedFile::name).collect();
    for entry in entries.flatten() {
        let name = entry.file_name();
        let name = name.to_string_lossy();
        if used.contains(name.strip_suffix(".ocsp").unwrap_or(&name)) {
            continue;
        }
        if let Err(error) = fs::remove_file(entry.path()) {
            let path = entry.path();
            tracing::warn!(%error, path = %path.display(), "failed to remove an unused certificate file");
        }
    }
    if used.is_empty() {
        let _ = fs::remove_dir(&directory);
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    const GROUP: &str = "edge";

    /// A directory that is removed when the test ends.
    struct Directory(PathBuf);

    impl Directory {
        fn new(name: &str) -> Self {
            let name = format!("weir-published-{}-{name}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).expect("create the directory");
            Self(path)
        }

        fn path(&self, name: &str) -> String {
            let path = self.0.join(name);
            path.to_str().expect("path is not UTF-8").to_owned()
        }

        fn write(&self, name: &str, content: &str) -> String {
            fs::write(self.path(name), content).expect("write the file");
            self.path(name)
        }

        fn received(&self) -> Vec<String> {
            let Ok(entries) = fs::read_dir(self.0.join(PUBLISHED_FILES)) else {
                return Vec::new();
            };
            let names = entries.map(|it| it.expect("read the directory").file_name());
            let names = names.map(|it| it.into_string().expect("name is not UTF-8"));
            let mut names: Vec<String> = names.collect();
            names.sort_unstable();
            names
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    /// Returns a configuration with a director's own part and a published part, each with a service, a pool and a check
    /// that name `certificates` and `ca`.
    fn loaded(certificates: &str, ca: &str) -> Loaded {
        let part = |name: &str, port: u16, check_ca: &str| {
            format!(
                "[check.{name}]\nkind = \"tls\"\nca = {check_ca:?}\n[pool.{name}]\nservers = \
                 [\"10.0.0.5:443\"]\ncheck = \"{name}\"\ntls = {{ ca = {ca:?} }}\n[service.{name}]\nlisten = \
                 [\"127.0.0.1:{port}\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"{name}\"\n\
                 tls = {{ certificates = [{certificates:?}], client_ca = {ca:?} }}\n"
            )
        };
        let own = format!(
            "[cluster]\netcd = [\"http://127.0.0.1:2379\"]\nname = {GROUP:?}\n{}",
            part("own", 8443, "/own/ca.pem")
        );
        let text = weir_config::with_published(&own, GROUP, &part("web", 9443, ca));
        let parsed = weir_config::parse(&text, &weir_config::Host::default());
        Loaded {
            desired: parsed.expect("parse the configuration").desired,
            text,
            findings: String::new(),
            found: Vec::new(),
            warnings: 0,
        }
    }

    fn group(files: PublishedFiles) -> GroupConfiguration {
        GroupConfiguration {
            group: GROUP.to_owned(),
            files,
            ..GroupConfiguration::default()
        }
    }

    fn read_files(loaded: Loaded, previous: &PublishedFiles) -> Result<PublishedFiles, Rejected> {
        let read = read_published_files(loaded, previous, Path::new("weir.toml"));
        read.map(|(_, files)| files)
    }

    /// Returns the paths of the service's certificates, of its CA, of the pool's CA, and of the check's CA.
    fn paths(desired: &Desired, name: &str) -> Vec<String> {
        let proxy = desired.proxy(name).expect("service is missing");
        let pool = desired.pool(name).expect("pool is missing");
        let tls = proxy.tls.as_ref().expect("service has no TLS settings");
        let check = pool.checks[0]
            .target
            .tls
            .as_ref()
            .expect("check has no TLS settings");
        let pool_ca = pool.tls.as_ref().and_then(|tls| tls.ca.clone());
        let authorities = [tls.client_ca.clone(), pool_ca, check.ca.clone()];
        let authorities = authorities.into_iter().flatten();
        tls.certificates
            .iter()
            .cloned()
            .chain(authorities)
            .collect()
    }

    #[test]
    fn published_part_uses_received_files_and_own_part_uses_own_files() {
        let directory = Directory::new("received");
        fs::create_dir(directory.path("certs")).expect("create the directory");
        directory.write("certs/a.pem", "A");
        directory.write("certs/b.crt", "B");
        directory.write("certs/b.key", "KEY");
        directory.write("certs/b.ocsp", "OCSP");
        let (certs, ca) = (directory.path("certs"), directory.write("ca.pem", "CA"));
        let files = read_files(loaded(&certs, &ca), &PublishedFiles::default());
        let files = files.expect("read the files");

        let use_files = |files: &PublishedFiles| {
            let group = group(files.clone());
            let loaded = with_published_files(loaded(&certs, &ca), Some(&group), &directory.0);
            (group, loaded.expect("write the files").desired)
        };
        let (first, desired) = use_files(&files);
        let own = [&certs, &ca, &ca, "/own/ca.pem"].map(str::to_owned);
        assert_eq!(paths(&desired, "own"), own);
        let published = paths(&desired, "web");
        let contents = published.iter().map(|path| {
            let mode = fs::metadata(path)
                .expect("file is missing")
                .permissions()
                .mode();
            assert_eq!(mode & 0o777, 0o600, "{path}");
            fs::read_to_string(path).expect("read the file")
        });
        let contents: Vec<String> = contents.collect();
        assert_eq!(contents, ["A", "KEY\nB", "CA", "CA", "CA"]);
        let ocsp = fs::read(format!("{}.ocsp", published[1]));
        assert_eq!(ocsp.expect("response is missing"), b"OCSP");
        assert_eq!(directory.received().len(), 4);

        // Only the path of the renewed certificate changes. The previous file remains until it is unused.
        directory.write("certs/a.pem", "A2");
        let renewed = read_files(loaded(&certs, &ca), &files).expect("read the files");
        let (second, desired) = use_files(&renewed);
        let renewed_paths = paths(&desired, "web");
        assert_ne!(renewed_paths[0], published[0]);
        assert_eq!(renewed_paths[1..], published[1..]);
        assert_eq!(directory.received().len(), 5);
        remove_unused_files(Some(&second), &directory.0);
        assert_eq!(directory.received().len(), 4);
        assert!(Path::new(&renewed_paths[0]).exists() && !Path::new(&published[0]).exists());

        // A rollback writes the previous file again.
        use_files(&first.files);
        assert!(Path::new(&published[0]).exists());
        remove_unused_files(None, &directory.0);
        assert_eq!(directory.received(), Vec::<String>::new());
        assert!(!directory.0.join(PUBLISHED_FILES).exists());
    }

    #[test]
    fn missing_file_is_reported_unless_the_group_has_published_it() {
        let directory = Directory::new("missing");
        let (certificate, ca) = (
            directory.write("a.pem", "A"),
            directory.write("ca.pem", "CA"),
        );
        let all = read_files(loaded(&certificate, &ca), &PublishedFiles::default());
        let all = all.expect("read the files");
        fs::remove_file(&certificate).expect("remove the file");
        directory.write("ca.pem", "CA2");
        let error = read_files(loaded(&certificate, &ca), &PublishedFiles::default());
        let error = error.expect_err("a missing file was accepted").summary;
        let position = format!("cluster/{GROUP}:13:");
        assert!(
            error.starts_with(&position) && error.contains("a.pem: No such file"),
            "{error}"
        );
        let files =
            read_files(loaded(&certificate, &ca), &all).expect("the published file is not used");
        assert_eq!(files.0.get(&certificate), all.0.get(&certificate));
        assert_eq!(files.0.get(&ca).map(|it| it[0].pem.as_str()), Some("CA2"));
        assert_eq!(differing_files(&all), [ca.as_str()]);
        assert_eq!(differing_files(&files), Vec::<String>::new());
        // Anything but a missing file is an error.
        fs::create_dir(&certificate).expect("create the directory");
        let error = read_files(loaded(&certificate, &ca), &all)
            .expect_err("an empty directory was accepted");
        assert!(error.summary.contains("no certificate"), "{error}");
    }
}
