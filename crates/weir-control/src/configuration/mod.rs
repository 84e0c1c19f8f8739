//! A configuration file as the daemon and the commands take it: opened, bounded, parsed, its findings as text.
//!
//! The language itself is weir-config's; here are the file and the machine that it is read on. A name that ends in
//! `.json` is read as JSON, any other as TOML.

mod certificate;
mod finding;
mod vip;

use std::fs::File;
use std::io::{self, Read};
use std::path::Path;

use weir_config::{Code, Desired, Diagnostic, FileError, MAX_FILE_BYTES, Machine, Severity};
use weir_model::Family;

pub use certificate::{doubtful_certificates, render_doubt};
pub use finding::{Finding, Place};
pub use vip::{AbsentVip, absent_vips};

const LOCAL_PORTS: &str = "/proc/sys/net/ipv4/ip_local_port_range";

/// A file that may take effect.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Loaded {
    /// What it asks for.
    pub desired: Desired,
    /// The file itself.
    pub text: String,
    /// Warnings and notes, rendered; empty for none.
    pub findings: String,
    /// The same, one by one.
    pub found: Vec<Finding>,
    /// How many of them are warnings.
    pub warnings: usize,
}

/// A file that may not.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{summary}")]
pub struct Rejected {
    /// One line, for a log.
    pub summary: String,
    /// Every finding, rendered as `weir check` shows it.
    pub diagnostics: String,
    /// The same, one by one.
    pub found: Vec<Finding>,
}

/// Reads and judges the file at `path` for this machine; `color` is for the rendered findings.
///
/// # Errors
/// The file cannot be read, is no text, or holds an error.
pub fn load(path: &Path, color: bool) -> Result<Loaded, Rejected> {
    let name = path.display().to_string();
    let broken = |error: &FileError| Rejected {
        summary: error.to_string(),
        diagnostics: weir_config::render_file_error(error, &name, color),
        found: vec![Finding::of_file(error, &name)],
    };
    let bytes = read(path).map_err(|error| broken(&error))?;
    let text = weir_config::load(&bytes).map_err(|error| broken(&error))?;
    let parsed = if path
        .extension()
        .is_some_and(|extension| extension == "json")
    {
        weir_config::parse_json(text, &ThisMachine)
    } else {
        weir_config::parse(text, &ThisMachine)
    };
    match parsed {
        Ok(parsed) => Ok(Loaded {
            findings: weir_config::render(&parsed.findings, text, &name, color),
            found: Finding::all(&parsed.findings, &name),
            warnings: count(&parsed.findings, Severity::Warning),
            desired: parsed.desired,
            text: text.to_owned(),
        }),
        Err(found) => Err(Rejected {
            summary: summary(&name, &found),
            diagnostics: weir_config::render(&found, text, &name, color),
            found: Finding::all(&found, &name),
        }),
    }
}

fn read(path: &Path) -> Result<Vec<u8>, FileError> {
    let failed = |error: io::Error| match error.kind() {
        io::ErrorKind::NotFound => FileError::Missing {
            path: path.to_owned(),
        },
        _ => FileError::Unreadable {
            path: path.to_owned(),
            reason: error.to_string(),
        },
    };
    let file = File::open(path).map_err(failed)?;
    let size = file.metadata().map_err(failed)?.len();
    if size > MAX_FILE_BYTES {
        return Err(FileError::TooLarge { bytes: size });
    }
    let mut bytes = Vec::new();
    // What is no regular file has no size beforehand.
    file.take(MAX_FILE_BYTES + 1)
        .read_to_end(&mut bytes)
        .map_err(failed)?;
    Ok(bytes)
}

/// This machine, as its kernel describes it.
struct ThisMachine;

impl Machine for ThisMachine {
    fn local_ports(&self) -> Option<(u16, u16)> {
        let text = std::fs::read_to_string(LOCAL_PORTS).ok()?;
        let mut words = text.split_whitespace().map(str::parse);
        Some((words.next()?.ok()?, words.next()?.ok()?))
    }

    /// Of the thread's network namespace.
    fn forwards(&self, family: Family) -> Option<bool> {
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
}

fn count(found: &[Diagnostic], severity: Severity) -> usize {
    let same = |one: &&Diagnostic| one.severity() == severity;
    found.iter().filter(same).count()
}

fn summary(name: &str, found: &[Diagnostic]) -> String {
    let errors = count(found, Severity::Error);
    let first = found.iter().find(|one| one.severity() == Severity::Error);
    let first = first.map_or_else(String::new, |one| {
        let code: Code = one.code;
        let at = one.at;
        format!(
            "{name}:{}:{}: {}: {}",
            at.line,
            at.column,
            code.as_str(),
            one.message
        )
    });
    match errors {
        0 | 1 => first,
        more => format!("{first}, and {} more", more - 1),
    }
}

/// "2 services, 1 pool, 4 servers".
pub fn extent(desired: &Desired) -> String {
    let servers = desired.pools.iter().map(|pool| pool.servers.len()).sum();
    let counted = |count: usize, word: &str| {
        let plural = if count == 1 { "" } else { "s" };
        format!("{count} {word}{plural}")
    };
    [
        counted(desired.services.len() + desired.proxies.len(), "service"),
        counted(desired.pools.len(), "pool"),
        counted(servers, "server"),
    ]
    .join(", ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_no_file_has_its_own_words() {
        let missing = load(Path::new("/nonexistent/weir.toml"), false).unwrap_err();
        assert!(missing.summary.contains("does not exist"), "{missing}");
        let directory = load(Path::new("/"), false).unwrap_err();
        assert!(directory.summary.contains("cannot be read"), "{directory}");
        let endless = load(Path::new("/dev/zero"), false).unwrap_err();
        assert!(endless.summary.contains("at most"), "{endless}");
    }

    #[test]
    fn the_summary_names_the_first_error_and_counts_the_others() {
        let text = "[pool.a]\nservers = [1]\n[nod]\n";
        let found = weir_config::parse(text, &ThisMachine).unwrap_err();
        insta::assert_snapshot!(summary("weir.toml", &found));
    }

    #[test]
    fn the_extent_counts_servers_over_all_pools() {
        let text = "[pool.a]\nservers = [\"10.0.0.1\"]\n[pool.b]\nservers = [\"10.0.0.1\", \"10.0.0.2\"]\n";
        let parsed = weir_config::parse(text, &ThisMachine).unwrap();
        assert_eq!(extent(&parsed.desired), "0 services, 2 pools, 3 servers");
        assert_eq!(
            extent(&Desired::default()),
            "0 services, 0 pools, 0 servers"
        );
    }
}
