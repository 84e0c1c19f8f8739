//! Restricts the daemon's requests to the files, sockets and programs that the configuration file names.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs::{self, File};
use std::hash::{DefaultHasher, Hash, Hasher};
use std::io::Read;
use std::net::{IpAddr, SocketAddr};
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use weir_config::{FileUse, Files, MAX_FILE_BYTES, named_files};
use weir_model::{Check, Desired, Probe, Publish, VirtualRouter};
use weir_sys::privileged::is_normalized;

use crate::Error;
use crate::machine::{Environment, parse};

/// The environment variable with the credentials directory, which the service manager sets (systemd.exec(5)).
const CREDENTIALS: &str = "CREDENTIALS_DIRECTORY";

/// The files, sockets and programs that one configuration permits.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Policy {
    read: BTreeSet<PathBuf>,
    /// Directories that were searched for included files.
    list: BTreeSet<PathBuf>,
    has_includes: bool,
    /// Files with certificates, and directories with such files.
    certificates: BTreeSet<PathBuf>,
    append: BTreeSet<PathBuf>,
    bind: BTreeSet<SocketAddr>,
    ping: bool,
    /// Files and directories that a published configuration may name; also in `certificates`.
    publishable_files: Vec<PathBuf>,
    /// Limits on the configurations that a group may publish.
    publish: Option<Publish>,
    /// Check programs, with their accounts.
    checks: BTreeSet<(Vec<String>, String)>,
    /// The notification program of each pool.
    notify: BTreeMap<String, Vec<String>>,
    /// The program of each notifier, with its account.
    notifiers: BTreeMap<String, (Vec<String>, String)>,
    /// See [`section_digest`].
    sections: u64,
}

/// Identifies the content of a file: device, inode, size, and change time in seconds and nanoseconds.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Version(u64, u64, u64, i64, i64);

/// The policies of the current and the previous version of the configuration file. At each request, the file is read
/// again if it has changed or includes other files.
#[derive(Debug)]
pub(super) struct Policies {
    path: PathBuf,
    version: Option<Version>,
    current: Policy,
    /// The previous policy. A daemon that is restarted after a crash uses the active configuration, even if the file
    /// has changed.
    previous: Policy,
}

impl Policies {
    pub(super) fn new(path: &Path) -> Self {
        Self {
            path: path.to_owned(),
            version: None,
            current: Policy::default(),
            previous: Policy::default(),
        }
    }

    /// Returns whether the current or the previous policy permits a request.
    pub(super) fn permits(&mut self, permits: impl Fn(&Policy) -> bool) -> bool {
        self.update();
        permits(&self.current) || permits(&self.previous)
    }

    /// Returns the result of `find` for the current policy, or for the previous policy if the first result is `None`.
    pub(super) fn find<T>(&mut self, find: impl Fn(&Policy) -> Option<T>) -> Option<T> {
        self.update();
        find(&self.current).or_else(|| find(&self.previous))
    }

    /// Returns whether `path` is the configuration file.
    pub(super) fn is_configuration(&self, path: &Path) -> bool {
        self.path == path
    }

    /// Reads the file if it has changed, and ignores an invalid file.
    fn update(&mut self) {
        match self.read() {
            Ok(None) => {}
            Ok(Some((version, policy))) => {
                self.version = Some(version);
                if policy != self.current {
                    self.previous = std::mem::replace(&mut self.current, policy);
                }
            }
            Err(error) => {
                tracing::warn!(%error, "failed to read the daemon's policy; it remains unchanged")
            }
        }
    }

    fn read(&self) -> Result<Option<(Version, Policy)>, Error> {
        let (file, metadata) = open_trusted(&self.path)?;
        let version = Version(
            metadata.dev(),
            metadata.ino(),
            metadata.len(),
            metadata.ctime(),
            metadata.ctime_nsec(),
        );
        // Included files may have changed although this file has not.
        if self.version.as_ref() == Some(&version) && !self.current.has_includes {
            return Ok(None);
        }
        let TrustedText {
            text,
            has_includes,
            included,
        } = load_trusted(&self.path, file)?;
        let desired = parse(&text, &Environment).map_err(|reason| Error::Configuration {
            path: self.path.clone(),
            reason,
        })?;
        let mut policy = Policy::new(&text, &desired);
        policy.has_includes = has_includes;
        policy.read.extend(included.read.into_inner());
        policy.list.extend(included.listed.into_inner());
        Ok(Some((version, policy)))
    }
}

/// The text of a configuration that only root can change.
#[derive(Debug)]
struct TrustedText {
    /// The text, with included files.
    text: String,
    has_includes: bool,
    included: IncludedFiles,
}

/// Reads the text of a configuration file, with its included files. The text is not validated.
///
/// # Errors
/// Fails if a file is not a regular file that only root can change, or cannot be read.
pub fn read_trusted(path: &Path) -> Result<String, Error> {
    let (file, _) = open_trusted(path)?;
    Ok(load_trusted(path, file)?.text)
}

fn open_trusted(path: &Path) -> Result<(File, fs::Metadata), Error> {
    let file_error = |source| Error::File {
        path: path.to_owned(),
        source,
    };
    let file = File::open(path).map_err(file_error)?;
    let metadata = file.metadata().map_err(file_error)?;
    if is_writable_only_by_root(&metadata) {
        return Ok((file, metadata));
    }
    Err(Error::Untrusted {
        path: path.to_owned(),
    })
}

fn load_trusted(path: &Path, file: File) -> Result<TrustedText, Error> {
    let mut text = String::new();
    let result = file.take(MAX_FILE_BYTES).read_to_string(&mut text);
    result.map_err(|source| Error::File {
        path: path.to_owned(),
        source,
    })?;
    let included = IncludedFiles::default();
    let bundle = weir_config::bundle(&text, path, &included);
    if let Some(error) = bundle.errors.first() {
        return Err(Error::Configuration {
            path: path.to_owned(),
            reason: error.message.clone(),
        });
    }
    Ok(TrustedText {
        has_includes: bundle.text != text,
        text: bundle.text,
        included,
    })
}

/// Reads included files, which must be trusted like the main file, and records their paths.
#[derive(Debug, Default)]
struct IncludedFiles {
    read: RefCell<BTreeSet<PathBuf>>,
    listed: RefCell<BTreeSet<PathBuf>>,
}

impl Files for IncludedFiles {
    fn read(&self, path: &Path) -> Result<(PathBuf, String), String> {
        let read = || {
            let mut file = File::open(path)?;
            if !is_writable_only_by_root(&file.metadata()?) {
                return Err(std::io::Error::other(
                    "it is not a regular file that only root can change",
                ));
            }
            let mut text = String::new();
            (&mut file).take(MAX_FILE_BYTES).read_to_string(&mut text)?;
            Ok((path.canonicalize()?, text))
        };
        let (name, text) = read().map_err(|error| error.to_string())?;
        self.read.borrow_mut().insert(path.to_owned());
        Ok((name, text))
    }

    fn list(&self, directory: &Path) -> Result<Vec<String>, String> {
        self.listed.borrow_mut().insert(directory.to_owned());
        let entries = fs::read_dir(directory).map_err(|error| error.to_string())?;
        let files = entries.flatten().filter(|entry| entry.path().is_file());
        Ok(files
            .filter_map(|entry| entry.file_name().into_string().ok())
            .collect())
    }
}

/// Returns a digest of the sections that other privileged processes read directly from the configuration file. An
/// unprivileged daemon compares it before it applies a configuration, and rejects a configuration with different
/// sections. Passwords are excluded, because only those processes read them.
pub fn section_digest(desired: &Desired) -> u64 {
    let mut hasher = DefaultHasher::new();
    for router in &desired.vrrp {
        let without_secrets = VirtualRouter {
            password: None,
            hmac: None,
            ..router.clone()
        };
        without_secrets.hash(&mut hasher);
    }
    if desired.announce.is_some() {
        let listeners = desired.services.iter().flat_map(|service| &service.listen);
        let mut vips: Vec<_> = listeners.map(|listener| listener.address).collect();
        let proxies = desired.proxies.iter().flat_map(|proxy| &proxy.listen);
        vips.extend(proxies.map(SocketAddr::ip));
        vips.sort_unstable();
        vips.hash(&mut hasher);
    }
    desired.announce.hash(&mut hasher);
    hasher.finish()
}

/// Returns a digest of the listeners of layer 4 services and the addresses of their servers. The digests of two
/// processes differ if the environment variables in the same text have different values.
pub fn address_digest(desired: &Desired) -> u64 {
    let mut hasher = DefaultHasher::new();
    for service in &desired.services {
        (&service.name, &service.listen).hash(&mut hasher);
        let pool = desired.pools.iter().find(|it| it.name == service.pool);
        for server in pool.iter().flat_map(|pool| &pool.servers) {
            (server.address, server.port).hash(&mut hasher);
        }
    }
    hasher.finish()
}

/// Returns whether the path is a regular file that root owns and that only root can write to.
pub fn is_trusted(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| is_writable_only_by_root(&metadata))
}

fn is_writable_only_by_root(metadata: &fs::Metadata) -> bool {
    metadata.is_file() && metadata.uid() == 0 && metadata.mode() & 0o022 == 0
}

impl Policy {
    fn new(text: &str, desired: &Desired) -> Self {
        let mut policy = Self::default();
        for file in named_files(text) {
            let path = PathBuf::from(&file.name);
            match file.used {
                FileUse::Read | FileUse::List => policy.read.insert(path),
                FileUse::Certificates => policy.certificates.insert(path),
                FileUse::Append => policy.append.insert(path),
                FileUse::Credential => std::env::var_os(CREDENTIALS)
                    .is_some_and(|directory| policy.read.insert(Path::new(&directory).join(path))),
            };
        }
        let listeners = desired.proxies.iter().flat_map(|proxy| &proxy.listen);
        policy.bind = listeners.copied().collect();
        policy
            .bind
            .extend(desired.node.admin.iter().map(|admin| admin.listen));
        for check in checks(desired) {
            match &check.probe {
                Probe::Script(script) => {
                    let program = (script.command.clone(), script.user.clone());
                    policy.checks.insert(program);
                }
                Probe::Ping => policy.ping = true,
                _ => {}
            }
        }
        for pool in &desired.pools {
            let command = &pool.health.notify;
            if !command.is_empty() {
                policy.notify.insert(pool.name.clone(), command.clone());
            }
        }
        for notifier in &desired.notifiers {
            if !notifier.command.is_empty() {
                let program = (notifier.command.clone(), notifier.user.clone());
                policy.notifiers.insert(notifier.name.clone(), program);
            }
        }
        if let Some(cluster) = &desired.cluster {
            policy.publishable_files = cluster.files.iter().map(PathBuf::from).collect();
            policy.publish.clone_from(&cluster.publish);
        }
        policy.sections = section_digest(desired);
        policy
    }

    pub(super) const fn permits_sections(&self, digest: u64) -> bool {
        self.sections == digest
    }

    pub(super) fn permits_reading(&self, path: &Path) -> bool {
        if !is_normalized(path) {
            return false;
        }
        let is_ocsp_response = |certificates: &PathBuf| {
            let mut response = OsString::from(certificates);
            response.push(".ocsp");
            path == Path::new(&response)
        };
        let is_below = |certificates: &PathBuf| path.starts_with(certificates);
        let certificates = &self.certificates;
        self.read.contains(path)
            || certificates.iter().any(|it| is_below(it) || is_ocsp_response(it))
            // A pool's client certificate can have an OCSP response too.
            || self.read.iter().any(is_ocsp_response)
    }

    pub(super) fn permits_listing(&self, path: &Path) -> bool {
        is_normalized(path)
            && (self.certificates.contains(path)
                || self.list.contains(path)
                || self.publishable_files.iter().any(|it| path.starts_with(it)))
    }

    pub(super) fn permits_appending(&self, path: &Path) -> bool {
        self.append.contains(path)
    }

    pub(super) fn permits_binding(&self, address: SocketAddr) -> bool {
        let publish = self.publish.as_ref();
        self.bind.contains(&address) || publish.is_some_and(|it| it.permits_proxy(address))
    }

    /// Returns whether echo requests to this address are permitted. If the configuration has a ping check, all
    /// addresses are permitted; otherwise, only the servers that a group may publish.
    pub(super) fn permits_ping(&self, to: IpAddr) -> bool {
        let publish = self.publish.as_ref();
        self.ping || publish.is_some_and(|it| it.permits_server(to))
    }

    pub(super) fn permits_check(&self, command: &[String], user: &str) -> bool {
        self.checks.contains(&(command.to_vec(), user.to_owned()))
    }

    /// Returns the program and the account of a notifier.
    pub(super) fn notifier(&self, name: &str) -> Option<(Vec<String>, String)> {
        self.notifiers.get(name).cloned()
    }

    pub(super) fn permits_notify(&self, pool: &str, command: &[String]) -> bool {
        self.notify
            .get(pool)
            .is_some_and(|configured| configured == command)
    }
}

/// Returns all checks of a configuration.
fn checks(desired: &Desired) -> impl Iterator<Item = &Check> {
    let named_checks = desired.checks.iter().map(|(_, check)| check);
    let pool_checks = desired.pools.iter().flat_map(|pool| {
        let servers = pool.servers.iter().chain(&pool.sorry);
        let server_checks = servers
            .filter_map(|server| server.checks.as_ref())
            .flatten();
        pool.checks.iter().chain(server_checks)
    });
    named_checks.chain(pool_checks)
}

#[cfg(test)]
mod tests {
    use std::net::Ipv4Addr;

    use super::*;

    const TEXT: &str = r#"
[check.deep]
kind = "script"
command = ["/usr/bin/deep", "-v"]
user = "daemon"
[pool.p]
servers = ["10.0.0.1:80"]
check = "deep"
[service.s]
listen = ["10.0.0.9:443"]
forward = "proxy"
protocol = "http"
pool = "p"
access_log = "/var/log/weir.log"
tls = { certificates = "/etc/weir/certs" }
[notify.n]
command = ["/usr/bin/page"]
user = "daemon"
"#;

    fn policy() -> Policy {
        let desired = parse(TEXT, &Environment).unwrap();
        Policy::new(TEXT, &desired)
    }

    #[test]
    fn only_named_files_may_be_opened() {
        let policy = policy();
        for path in [
            "/etc/weir/certs/a.pem",
            "/etc/weir/certs/a/fullchain.pem",
            "/etc/weir/certs.ocsp",
        ] {
            assert!(policy.permits_reading(Path::new(path)), "{path}");
        }
        for path in [
            "/etc/shadow",
            "/etc/weir/certs/../../shadow",
            "/etc/weir/certs/./../x",
            "/etc/weir/certificates/a.pem",
            "etc/weir/certs/a.pem",
            "/var/log/weir.log",
        ] {
            assert!(!policy.permits_reading(Path::new(path)), "{path}");
        }
        assert!(policy.permits_appending(Path::new("/var/log/weir.log")));
        assert!(!policy.permits_appending(Path::new("/var/log/other.log")));
        assert!(policy.permits_listing(Path::new("/etc/weir/certs")));
        assert!(!policy.permits_listing(Path::new("/etc/weir")));
    }

    #[test]
    fn only_configured_addresses_and_programs_are_permitted() {
        let policy = policy();
        let words = |words: &[&str]| {
            words
                .iter()
                .map(|&word| word.to_owned())
                .collect::<Vec<_>>()
        };
        assert!(policy.permits_binding("10.0.0.9:443".parse().unwrap()));
        assert!(!policy.permits_binding("10.0.0.9:80".parse().unwrap()));
        assert!(!policy.permits_binding("0.0.0.0:443".parse().unwrap()));
        let command = words(&["/usr/bin/deep", "-v"]);
        assert!(policy.permits_check(&command, "daemon"));
        assert!(!policy.permits_check(&command, "root"));
        assert!(!policy.permits_check(&words(&["/bin/sh"]), "daemon"));
        assert!(!policy.permits_notify("p", &command));
        let page = (words(&["/usr/bin/page"]), "daemon".to_owned());
        assert_eq!(policy.notifier("n"), Some(page));
        assert_eq!(policy.notifier("m"), None);
        assert!(!policy.permits_ping(Ipv4Addr::LOCALHOST.into()));
    }

    #[test]
    fn published_services_are_permitted_only_within_configured_limits() {
        let text = format!(
            "{TEXT}[cluster]\netcd = [\"http://10.0.0.1:2379\"]\nname = \"edge\"\nfiles = [\"/etc/weir/shared\"]\n\
             [cluster.publish]\nvips = [\"192.0.2.0/24\"]\nports = [\"80\"]\nservers = [\"10.0.0.0/8\"]\n"
        );
        let policy = |text: &str| {
            let desired = parse(text, &Environment).unwrap();
            Policy::new(text, &desired)
        };
        let policy_with_group = policy(&text);
        assert!(policy_with_group.permits_binding("10.0.0.9:443".parse().unwrap()));
        assert!(policy_with_group.permits_binding("192.0.2.7:80".parse().unwrap()));
        assert!(!policy_with_group.permits_binding("192.0.2.7:443".parse().unwrap()));
        assert!(!policy_with_group.permits_binding("0.0.0.0:80".parse().unwrap()));
        assert!(policy_with_group.permits_ping("10.9.9.9".parse().unwrap()));
        assert!(!policy_with_group.permits_ping("192.0.2.7".parse().unwrap()));
        assert!(policy_with_group.permits_reading(Path::new("/etc/weir/shared/a/fullchain.pem")));
        assert!(policy_with_group.permits_listing(Path::new("/etc/weir/shared/a")));
        assert!(!policy_with_group.permits_reading(Path::new("/etc/weir/shared/../../shadow")));
        assert!(!policy_with_group.permits_reading(Path::new("/etc/weir/sharedx")));
        assert!(!policy_with_group.permits_appending(Path::new("/etc/weir/shared/log")));
        let without_proxy = policy(&format!("{text}forwards = [\"nat\"]\n"));
        assert!(!without_proxy.permits_binding("192.0.2.7:80".parse().unwrap()));
    }
}
