//! Loads configuration files for the daemon and the commands.
//!
//! Files are read with a size limit and parsed, and the findings are rendered. weir-config implements the format. This
//! module reads the files and queries this machine. A file whose name ends in `.json` is parsed as JSON; any other file
//! is parsed as TOML.

mod certificate;
mod failover;
mod finding;
mod gre_checksum;
mod group;
mod host;
mod include;
mod keepalived;
mod listed_server;
mod published_file;
mod routed_server;
mod secret;
mod vip;

use std::net::{SocketAddr, UdpSocket};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;

use rustix::io::Errno;
use rustix::net::netdevice::name_to_index;
use rustix::net::{AddressFamily, SocketType, socket};
use weir_config::{Code, Desired, Diagnostic, FileError, Machine, SecretValue, Severity};
use weir_model::{Family, SecretSource};
use weir_sys::names;

use crate::count::format_count;
use crate::group_configuration::GroupConfiguration;
use group::Unpublishable;

pub use certificate::{
    ListeningProcess, certificate_problems, findings, occupied_listeners, own_listeners,
    with_free_listeners, with_usable_files,
};
pub use failover::{FailoverFinding, failover_findings, floating_ips};
pub(crate) use finding::locations;
pub use finding::{Finding, FurtherPosition, Location};
pub(crate) use gre_checksum::needs_attached_interfaces;
pub use gre_checksum::{AttachedInterfaces, GreChecksum};
pub(crate) use group::{own_desired, own_part};
pub use host::{host_findings, host_warnings};
pub use listed_server::with_listed_servers;
pub(crate) use published_file::{
    differing_files, own_files_fingerprint, read_published_files, remove_unused_files,
    with_published_files,
};
pub use routed_server::RoutedServer;
pub use secret::RememberedSecrets;
pub use vip::{AbsentVip, absent_vips};
pub use weir_proxy::Problem;

/// The file name in findings about a configuration that is not a file.
pub(crate) const TEXT: &str = "text";

const LOCAL_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// A valid configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// The desired state.
    pub desired: Desired,
    /// The configuration text, with included files and the group's published part.
    pub text: String,
    /// Warnings and notes, rendered; empty = none.
    pub findings: String,
    /// The same findings, structured.
    pub found: Vec<Finding>,
    /// Number of warnings in the findings.
    pub warnings: usize,
}

/// A rejected configuration.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{summary}")]
pub struct Rejected {
    /// A one-line summary, for logs.
    pub summary: String,
    /// All findings, rendered as `weir check` shows them.
    pub diagnostics: String,
    /// The same findings, structured.
    pub found: Vec<Finding>,
}

impl Loaded {
    /// Returns the findings about this machine, which have no code.
    pub fn found_on_host(&self) -> impl Iterator<Item = &Finding> {
        self.found.iter().filter(|finding| finding.code.is_none())
    }

    /// Reduces the findings to their positions, for a caller that is not allowed to read the file.
    pub(crate) fn without_quotes(mut self) -> Self {
        self.findings = finding::locations(&self.found);
        self.found = Vec::new();
        self
    }
}

impl Rejected {
    /// Reduces the findings to their positions, for a caller that is not allowed to read the file.
    pub(crate) fn without_quotes(self) -> Self {
        let errors = self
            .found
            .iter()
            .filter(|finding| finding.severity == "error");
        Self {
            summary: format!("number of errors in the active file: {}", errors.count()),
            diagnostics: finding::locations(&self.found),
            found: Vec::new(),
        }
    }
}

/// Loads and checks the file at `path` for this machine; `color` applies to the rendered findings.
///
/// # Errors
/// Fails if the file cannot be read, is not UTF-8 text, or has an error.
pub fn load(path: &Path, color: bool) -> Result<Loaded, Rejected> {
    load_with(path, color, Secrets::Read)
}

/// Loads a file like [`load`], but takes secrets from `secrets`.
///
/// # Errors
/// See [`load`].
pub fn load_with(path: &Path, color: bool, secrets: Secrets<'_>) -> Result<Loaded, Rejected> {
    load_in_group(path, color, secrets, None)
}

/// Loads a director's own file, without reading its secrets.
///
/// # Errors
/// See [`load`].
pub(crate) fn load_own(path: &Path, color: bool) -> Result<Loaded, Rejected> {
    load_with(path, color, Secrets::Unread)
}

/// Loads a file like [`load_with`], and adds the configuration that the director's group has published if the file
/// names that group.
///
/// # Errors
/// See [`load`]. Also fails if the published part contains control characters or would gain privileges.
pub(crate) fn load_in_group(
    path: &Path,
    color: bool,
    secrets: Secrets<'_>,
    group: Option<&GroupConfiguration>,
) -> Result<Loaded, Rejected> {
    let name = path.display().to_string();
    let file_error = |error: &FileError| Rejected {
        summary: error.to_string(),
        diagnostics: weir_config::render_file_error(error, &name, color),
        found: vec![Finding::from_file_error(error, &name)],
    };
    let (bytes, mode) = include::read(path).map_err(|error| file_error(&error))?;
    let text = weir_config::load(&bytes).map_err(|error| file_error(&error))?;
    let files = include::Disk::new(mode);
    let bundle = weir_config::bundle(text, path, &files);
    let with_published = group::with_published(&bundle.text, group)
        .map_err(|reason| unpublishable(reason, &name, color))?;
    let text: &str = &with_published;
    if !bundle.errors.is_empty() {
        return Err(rejected(text, &name, &bundle.errors, color));
    }
    let machine = ThisMachine {
        secrets,
        mode: Some(files.mode()),
    };
    let extension = path.extension();
    let is_json = extension.is_some_and(|extension| extension == "json");
    check_text(text, is_json, &machine, &name, color)
}

/// Checks a configuration that is not a file, together with the configuration that the director's group has published.
/// Text that begins with `{` is parsed as JSON; any other text is parsed as TOML.
///
/// # Errors
/// Fails if the text is too large or the configuration has an error, or if the published part contains control
/// characters or would gain privileges.
pub(crate) fn load_text_in_group(
    text: &str,
    color: bool,
    group: Option<&GroupConfiguration>,
) -> Result<Loaded, Rejected> {
    let text = weir_config::load(text.as_bytes()).map_err(|error| Rejected {
        summary: error.to_string(),
        diagnostics: weir_config::render_file_error(&error, TEXT, color),
        found: vec![Finding::from_file_error(&error, TEXT)],
    })?;
    let is_json = text.trim_start().starts_with('{');
    let with_published =
        group::with_published(text, group).map_err(|reason| unpublishable(reason, TEXT, color))?;
    check_text(
        &with_published,
        is_json,
        &ThisMachine::default(),
        TEXT,
        color,
    )
}

/// Rereads the list files of a valid configuration, with the secrets in `remembered`.
///
/// # Errors
/// Fails if a list cannot be used, or if the configuration now has another error.
pub(crate) fn reload_lists(text: &str, remembered: &RememberedSecrets) -> Result<Loaded, Rejected> {
    let is_json = text.trim_start().starts_with('{');
    let machine = ThisMachine {
        secrets: Secrets::Remembered(remembered),
        mode: None,
    };
    check_text(text, is_json, &machine, TEXT, false)
}

/// Checks whether a caller who is not the owner may apply `text`. `active` is the text of the active configuration.
/// Must be called before the text is loaded, because loading reads the secret files that the text references, and
/// errors reveal whether these files exist.
///
/// # Errors
/// Fails if the text, unlike the active configuration, would run a program, read or write a file, or change access to
/// the daemon.
pub fn permit(active: &str, text: &str, color: bool) -> Result<(), Rejected> {
    let found = weir_config::privileged_changes(active, text);
    if found.is_empty() {
        return Ok(());
    }
    Err(Rejected {
        summary: summary(TEXT, text, &found),
        diagnostics: weir_config::render(&found, text, TEXT, color),
        found: Finding::all(&found, text, TEXT),
    })
}

fn check_text(
    text: &str,
    is_json: bool,
    machine: &ThisMachine<'_>,
    name: &str,
    color: bool,
) -> Result<Loaded, Rejected> {
    let parsed = if is_json {
        weir_config::parse_json(text, machine)
    } else {
        weir_config::parse(text, machine)
    };
    match parsed {
        Ok(parsed) => Ok(Loaded {
            findings: weir_config::render(&parsed.findings, text, name, color),
            found: Finding::all(&parsed.findings, text, name),
            warnings: count(&parsed.findings, Severity::Warning),
            desired: parsed.desired,
            text: text.to_owned(),
        }),
        Err(found) => Err(rejected(text, name, &found, color)),
    }
}

fn unpublishable(reason: Unpublishable, name: &str, color: bool) -> Rejected {
    match reason {
        Unpublishable::ControlCharacters => {
            let summary = "the published text contains control characters".to_owned();
            Rejected {
                diagnostics: format!("{summary}\n"),
                summary,
                found: Vec::new(),
            }
        }
        Unpublishable::Findings { bundle, found } => rejected(&bundle, name, &found, color),
    }
}

fn rejected(text: &str, name: &str, found: &[Diagnostic], color: bool) -> Rejected {
    Rejected {
        summary: summary(name, text, found),
        diagnostics: weir_config::render(found, text, name, color),
        found: Finding::all(found, text, name),
    }
}

/// Provides weir-config with information about this machine, from the kernel and the file system.
#[derive(Debug, Default)]
struct ThisMachine<'a> {
    secrets: Secrets<'a>,
    /// Permission bits of the configuration file; `None` = the configuration is not a file.
    mode: Option<u32>,
}

/// The source of a configuration's secrets.
#[derive(Debug, Clone, Copy, Default)]
pub enum Secrets<'a> {
    /// Read them from their sources.
    #[default]
    Read,
    /// Use the secrets of the active configuration, and read missing secrets from their sources.
    Remembered(&'a RememberedSecrets),
    /// Do not read them. List files, interfaces, addresses and programs are not checked either.
    Unread,
}

impl Machine for ThisMachine<'_> {
    fn secret(&self, source: &SecretSource) -> Option<Result<SecretValue, String>> {
        if *source == SecretSource::Text {
            let exposed = self.mode.filter(|mode| mode & 0o004 != 0)?;
            return Some(Ok(SecretValue {
                bytes: Vec::new(),
                exposed: Some(exposed),
            }));
        }
        match self.secrets {
            Secrets::Unread => None,
            Secrets::Read => secret::read(source),
            Secrets::Remembered(remembered) => match remembered.get(source) {
                Some(value) => Some(Ok(value)),
                None => secret::read(source),
            },
        }
    }

    fn list_file(&self, path: &str) -> Option<Result<String, String>> {
        match self.secrets {
            Secrets::Unread => None,
            Secrets::Read | Secrets::Remembered(_) => Some(secret::list_file(Path::new(path))),
        }
    }

    fn local_ports(&self) -> Option<(u16, u16)> {
        let text = std::fs::read_to_string(LOCAL_PORTS).ok()?;
        let mut words = text.split_whitespace().map(str::parse);
        Some((words.next()?.ok()?, words.next()?.ok()?))
    }

    fn has_group(&self, name: &str) -> Option<bool> {
        Some(names::group_id(name).is_some())
    }

    /// Returns whether the thread's network namespace has the interface; `None` = unknown, for example because the
    /// caller only reads the configuration.
    fn has_interface(&self, name: &str) -> Option<bool> {
        if matches!(self.secrets, Secrets::Unread) {
            return None;
        }
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None).ok()?;
        match name_to_index(socket, name) {
            Ok(_) => Some(true),
            Err(Errno::NODEV) => Some(false),
            Err(_) => None,
        }
    }

    fn has_address(&self, address: SocketAddr) -> Option<bool> {
        if matches!(self.secrets, Secrets::Unread) {
            return None;
        }
        let mut any_port = address;
        any_port.set_port(0);
        match UdpSocket::bind(any_port) {
            Ok(_) => Some(true),
            Err(error) if error.kind() == std::io::ErrorKind::AddrNotAvailable => Some(false),
            Err(_) => None,
        }
    }

    /// Returns whether the file exists and is executable; `None` = unknown, for example because this user cannot access
    /// the directory.
    fn has_program(&self, path: &str) -> Option<bool> {
        if matches!(self.secrets, Secrets::Unread) {
            return None;
        }
        match std::fs::metadata(path) {
            Ok(metadata) => Some(metadata.is_file() && metadata.permissions().mode() & 0o111 != 0),
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => Some(false),
            Err(_) => None,
        }
    }

    fn forwards(&self, family: Family) -> Option<bool> {
        forwards(family)
    }
}

/// Returns whether forwarding is enabled on any device except `lo` in the thread's network namespace; `None` = unknown.
pub(crate) fn forwards(family: Family) -> Option<bool> {
    let name = match family {
        Family::V4 => "ipv4",
        Family::V6 => "ipv6",
    };
    let devices = std::fs::read_dir(format!("/proc/sys/net/{name}/conf")).ok()?;
    let mut values = devices
        .flatten()
        .filter(|device| device.file_name() != "default" && device.file_name() != "lo")
        .filter_map(|device| std::fs::read_to_string(device.path().join("forwarding")).ok());
    Some(values.any(|value| value.trim() != "0"))
}

fn count(found: &[Diagnostic], severity: Severity) -> usize {
    let has_severity = |diagnostic: &&Diagnostic| diagnostic.severity() == severity;
    found.iter().filter(has_severity).count()
}

fn summary(name: &str, text: &str, found: &[Diagnostic]) -> String {
    let files = weir_config::files(text);
    let errors = count(found, Severity::Error);
    let first = found
        .iter()
        .find(|diagnostic| diagnostic.severity() == Severity::Error);
    let first = first.map_or_else(String::new, |diagnostic| {
        let code: Code = diagnostic.code;
        let position = diagnostic.at;
        let included = files
            .get(position.file as usize)
            .filter(|name| !name.is_empty());
        let name = included.map_or(name, String::as_str);
        format!(
            "{name}:{}:{}: {}: {}",
            position.line,
            position.column,
            code.as_str(),
            diagnostic.message
        )
    });
    match errors {
        0 | 1 => first,
        more => format!("{first}, and {} more", more - 1),
    }
}

/// Returns the number of services, pools and servers as text: `2 services, 1 pool, 4 servers`.
pub fn object_counts(desired: &Desired) -> String {
    let servers = desired.pools.iter().map(|pool| pool.servers.len()).sum();
    let format_count = |count: usize, word: &str| format_count(count as u64, word);
    [
        format_count(desired.services.len() + desired.proxies.len(), "service"),
        format_count(desired.pools.len(), "pool"),
        format_count(servers, "server"),
    ]
    .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn missing_unreadable_and_oversized_files_have_separate_errors() {
        let missing = load(Path::new("/nonexistent/weir.toml"), false).unwrap_err();
        assert!(missing.summary.contains("does not exist"), "{missing}");
        let directory = load(Path::new("/"), false).unwrap_err();
        assert!(directory.summary.contains("cannot be read"), "{directory}");
        let endless = load(Path::new("/dev/zero"), false).unwrap_err();
        assert!(endless.summary.contains("the maximum is"), "{endless}");
    }

    #[test]
    fn summary_shows_the_first_error_and_counts_the_others() {
        let text = "[pool.a]\nservers = [1]\n[nod]\n";
        let found = weir_config::parse(text, &ThisMachine::default()).unwrap_err();
        insta::assert_snapshot!(summary("weir.toml", text, &found));
    }

    #[test]
    fn object_counts_include_servers_of_all_pools() {
        let text = "[pool.a]\nservers = [\"10.0.0.1\"]\n[pool.b]\nservers = [\"10.0.0.1\", \"10.0.0.2\"]\n";
        let parsed = weir_config::parse(text, &ThisMachine::default()).unwrap();
        assert_eq!(
            object_counts(&parsed.desired),
            "0 services, 2 pools, 3 servers"
        );
        assert_eq!(
            object_counts(&Desired::default()),
            "0 services, 0 pools, 0 servers"
        );
    }
}
