//! Finds the addresses in keepalived's configuration files on this machine, including files that they include.
//!
//! The files are not parsed: every address in them counts, whatever its directive and its conditions. Addresses that no
//! virtual router manages do no harm, because they are not VIPs of services. `weir import` parses the files.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;
use std::path::Path;

use weir_import::Environment;

use crate::import::Machine;

/// The files that keepalived reads, and other files of its directory, which it may include.
const FILES: &str = "/etc/keepalived/*.conf";

/// The directory with these files.
const DIRECTORY: &str = "/etc/keepalived";

/// Maximum number of files that are read.
const MAX_FILES: usize = 256;

/// Maximum depth of included files.
const MAX_DEPTH: usize = 16;

/// The letters after `include` that make keepalived check the files (keepalived.conf(5)).
const INCLUDE_CHECKS: &str = "rmwba";

/// The addresses in keepalived's files.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct KeepalivedFiles {
    /// All addresses, without prefix lengths.
    pub(super) addresses: BTreeSet<IpAddr>,
    /// Whether all directories could be listed and all existing files could be read.
    pub(super) are_readable: bool,
}

/// Reads keepalived's files on this machine. Files that this user cannot read are skipped.
pub(super) fn read_keepalived() -> KeepalivedFiles {
    read_from(&Machine::default())
}

fn read_from(environment: &dyn Environment) -> KeepalivedFiles {
    let mut reader = Reader {
        environment,
        read_paths: BTreeSet::new(),
        result: KeepalivedFiles {
            addresses: BTreeSet::new(),
            are_readable: is_listable(Path::new(DIRECTORY)),
        },
    };
    for path in environment.glob(FILES) {
        reader.read(&path, 0);
    }
    reader.result
}

struct Reader<'e> {
    environment: &'e dyn Environment,
    /// Paths of the files read so far.
    read_paths: BTreeSet<String>,
    result: KeepalivedFiles,
}

impl Reader<'_> {
    /// Reads a file and the files that it includes. Skips a file that was already read, and stops at the limits.
    fn read(&mut self, path: &str, depth: usize) {
        if self.read_paths.len() >= MAX_FILES || !self.read_paths.insert(path.to_owned()) {
            return;
        }
        let Ok(text) = self.environment.read(path) else {
            self.result.are_readable = false;
            return;
        };
        self.result.addresses.extend(addresses(&text));
        if depth == MAX_DEPTH {
            return;
        }
        for pattern in lines(&text).filter_map(included_pattern) {
            // keepalived changes to the directory of the file that it reads.
            let directory = Path::new(path).parent().unwrap_or(Path::new("/"));
            let pattern = directory.join(pattern).display().to_string();
            let paths = self.environment.glob(&pattern);
            if paths.is_empty() {
                self.result.are_readable &= is_listable(fixed_directory(&pattern));
            }
            for path in paths {
                self.read(&path, depth + 1);
            }
        }
    }
}

/// Returns whether this user can list the directory. A missing directory counts as listable.
fn is_listable(directory: &Path) -> bool {
    fs::read_dir(directory).map_or_else(
        |error| error.kind() != ErrorKind::PermissionDenied,
        |mut entries| entries.all(|entry| entry.is_ok()),
    )
}

/// Returns the directory that contains a pattern's first component with a wildcard or, without wildcards, the file's
/// directory.
fn fixed_directory(pattern: &str) -> &Path {
    let wildcard = pattern.find(['*', '?', '[', '{']);
    let prefix = &pattern[..wildcard.unwrap_or(pattern.len())];
    let end = prefix.rfind('/').unwrap_or(0).max(1);
    Path::new(prefix.get(..end).unwrap_or("/"))
}

/// Returns the lines without comments, which begin with `#` or `!`.
fn lines(text: &str) -> impl Iterator<Item = &str> {
    text.lines()
        .filter_map(|line| line.split(['#', '!']).next())
}

/// Returns the addresses in a text, without prefix lengths.
pub(super) fn addresses(text: &str) -> BTreeSet<IpAddr> {
    lines(text)
        .flat_map(str::split_whitespace)
        .filter_map(|word| word.split('/').next()?.parse().ok())
        .collect()
}

/// Returns the pattern of the files that a line includes. The line may begin with conditions (`@host`).
fn included_pattern(line: &str) -> Option<&str> {
    let mut words = line
        .split_whitespace()
        .skip_while(|word| word.starts_with('@'));
    let checks = words.next()?.strip_prefix("include")?;
    let is_include = checks.chars().all(|check| INCLUDE_CHECKS.contains(check));
    let pattern = words.next().filter(|_| is_include)?.trim_matches('"');
    (!pattern.is_empty()).then_some(pattern)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Writes files below a root that is removed at the end of the test. Returns the result of reading them.
    fn read(name: &str, files: &[(&str, &str)]) -> KeepalivedFiles {
        let process = std::process::id();
        let root = std::env::temp_dir().join(format!("weir-keepalived-{name}-{process}"));
        for (path, text) in files {
            let path = root.join(path);
            fs::create_dir_all(path.parent().unwrap()).unwrap();
            fs::write(path, text).unwrap();
        }
        let result = read_from(&Machine::below(&root));
        fs::remove_dir_all(&root).unwrap();
        result
    }

    fn texts(result: &KeepalivedFiles) -> Vec<String> {
        result.addresses.iter().map(IpAddr::to_string).collect()
    }

    #[test]
    fn included_files_are_read() {
        let main = "include conf.d/*.cfg\n@other includer \"/srv/vips.{a,b}\" # include other\ninclude_check\n\
            virtual_ipaddress { 192.0.2.1/24 dev eth0 ! 192.0.2.99\n}\n";
        let result = read(
            "include",
            &[
                ("etc/keepalived/keepalived.conf", main),
                (
                    "etc/keepalived/conf.d/x.cfg",
                    "include nested/y\n192.0.2.2\n",
                ),
                ("etc/keepalived/conf.d/nested/y", "192.0.2.3\n"),
                ("etc/keepalived/conf.d/ignored", "192.0.2.98\n"),
                ("etc/keepalived/other.conf", "2001:db8::1/128\n"),
                ("srv/vips.a", "192.0.2.4\n"),
                ("srv/vips.b", "192.0.2.5\n"),
                ("etc/keepalived/other", "192.0.2.97\n"),
            ],
        );
        assert_eq!(
            texts(&result),
            [
                "192.0.2.1",
                "192.0.2.2",
                "192.0.2.3",
                "192.0.2.4",
                "192.0.2.5",
                "2001:db8::1"
            ]
        );
        assert!(result.are_readable);
    }

    #[test]
    fn circular_includes_end() {
        let result = read(
            "circular",
            &[
                (
                    "etc/keepalived/keepalived.conf",
                    "include ../keepalived/*.conf\n192.0.2.1\n",
                ),
                (
                    "etc/keepalived/a.conf",
                    "include keepalived.conf\ninclude missing\ninclude\n192.0.2.2\n",
                ),
            ],
        );
        assert_eq!(texts(&result), ["192.0.2.1", "192.0.2.2"]);
    }

    #[test]
    fn directory_of_a_pattern_has_no_wildcards() {
        for (pattern, directory) in [
            ("/etc/keepalived/conf.d/*.conf", "/etc/keepalived/conf.d"),
            ("/etc/*/x/y", "/etc"),
            ("/etc/x", "/etc"),
            ("/*", "/"),
            ("/srv/vips.{a,b}", "/srv"),
        ] {
            assert_eq!(fixed_directory(pattern), Path::new(directory), "{pattern}");
        }
    }
}
