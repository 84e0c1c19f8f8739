//! Determines whether sysctls set at run time are set again at boot, from the files of sysctl.d(5).

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Diagnosis;

/// Directories of systemd units, relative to `/`. The first one also contains the links that enable units.
pub const UNIT_DIRECTORIES: [&str; 4] = [
    "etc/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
];

/// Directories of configuration files. A file replaces files of the same name in later directories.
const DIRECTORIES: [&str; 5] = [
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
    "lib/sysctl.d",
];

/// The file for Weir's settings.
const OWN_FILE: &str = "etc/sysctl.d/60-weir.conf";

/// The file that procps reads last. systemd installs a link to this file in one of `DIRECTORIES`.
const LAST_FILE: &str = "etc/sysctl.conf";

/// Values set at boot, by the sysctl's path below `/proc/sys`. Paths can be globs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct BootSettings {
    values: BTreeMap<String, (String, PathBuf)>,
    globs: Vec<(String, String, PathBuf)>,
    /// Names to which patterns do not apply.
    excluded: BTreeSet<String>,
}

impl BootSettings {
    /// Reads the files below the directory `root`, which is `/` except in tests.
    fn read(root: &Path) -> Self {
        let mut files: BTreeMap<OsString, PathBuf> = BTreeMap::new();
        for directory in DIRECTORIES {
            let Ok(entries) = fs::read_dir(root.join(directory)) else {
                continue;
            };
            for entry in entries.flatten() {
                let path = entry.path();
                if path
                    .extension()
                    .is_some_and(|extension| extension == "conf")
                {
                    files.entry(entry.file_name()).or_insert(path);
                }
            }
        }
        let mut boot_settings = Self::default();
        for path in files.into_values().chain([root.join(LAST_FILE)]) {
            if let Ok(text) = fs::read_to_string(&path) {
                boot_settings.parse(&text, &path);
            }
        }
        boot_settings
    }

    fn parse(&mut self, text: &str, path: &Path) {
        for line in text.lines() {
            let line = line.trim();
            if line.starts_with(['#', ';']) {
                continue;
            }
            let after_dash = line.strip_prefix('-');
            let Some((name, value)) = after_dash.unwrap_or(line).split_once('=') else {
                // A name alone after `-` is excluded from the patterns of all files (sysctl.d(5)).
                self.excluded
                    .extend(after_dash.map(|name| slash_form(name.trim())));
                continue;
            };
            let (name, value) = (slash_form(name.trim()), value.trim().to_owned());
            let path = path.to_owned();
            if name.contains('*') {
                self.globs.push((name, value, path));
            } else {
                self.values.insert(name, (value, path));
            }
        }
    }

    /// Returns the value that a sysctl is set to at boot, and the file that sets it.
    fn get(&self, name: &str) -> Option<(&str, &Path)> {
        if let Some((value, path)) = self.values.get(name) {
            return Some((value, path));
        }
        if self.excluded.contains(name) {
            return None;
        }
        let mut globs = self.globs.iter().rev();
        let (_, value, path) = globs.find(|(glob, ..)| glob_matches(glob, name))?;
        Some((value, path))
    }
}

/// Converts a sysctl name to its path below `/proc/sys`. The first `.` or `/` in the name is the component separator;
/// the other character is part of a component (sysctl.d(5)).
fn slash_form(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(index) if name[index..].starts_with('.') => name
            .chars()
            .map(|char| match char {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// Converts a path to the dotted name that `sysctl` and its files use.
fn dotted_form(name: &str) -> String {
    let swap = |char| match char {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    name.chars().map(swap).collect()
}

/// Returns whether a glob matches a path; `*` matches any part of one component.
fn glob_matches(glob: &str, name: &str) -> bool {
    let (mut globs, mut names) = (glob.split('/'), name.split('/'));
    loop {
        match (globs.next(), names.next()) {
            (None, None) => return true,
            (Some(glob), Some(name)) if component_matches(glob, name) => {}
            _ => return false,
        }
    }
}

fn component_matches(glob: &str, name: &str) -> bool {
    match glob.split_once('*') {
        None => glob == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|remainder| {
            let mut ends = remainder
                .char_indices()
                .map(|(index, _)| index)
                .chain([remainder.len()]);
            ends.any(|end| component_matches(after, &remainder[end..]))
        }),
    }
}

/// Reports settings, by path below `/proc/sys`, that will be lost at the next boot: one finding for all settings that
/// no file contains, and one for each setting that a file sets to a different value.
pub fn settings_lost_at_boot(
    active: &BTreeMap<String, String>,
    root: &Path,
    consequence: &str,
) -> Vec<Diagnosis> {
    let boot_settings = BootSettings::read(root);
    let mut findings = Vec::new();
    let mut absent = Vec::new();
    for (name, value) in active {
        match boot_settings.get(name) {
            None => absent.push((name, value)),
            Some((boot_value, _)) if boot_value == value => {}
            Some((boot_value, path)) => findings.push(
                Diagnosis::new(
                    format!(
                        "{name} is {value} until the next boot: {} sets it to {boot_value}",
                        path.display()
                    ),
                    consequence,
                )
                .fix(format!(
                    "echo '{} = {value}' >> {}",
                    dotted_form(name),
                    file_for_override(path, root).display()
                )),
            ),
        }
    }
    if !absent.is_empty() {
        let list: Vec<String> = absent
            .iter()
            .map(|(name, value)| format!("{name} is {value}"))
            .collect();
        let lines: Vec<String> = absent
            .iter()
            .map(|(name, value)| format!("{} = {value}\\n", dotted_form(name)))
            .collect();
        findings.push(
            Diagnosis::new(
                format!(
                    "only until the next boot: {}; no file in sysctl.d sets them",
                    list.join(", ")
                ),
                consequence,
            )
            .fix(format!(
                "mkdir -p /etc/sysctl.d && printf '{}' >> /{OWN_FILE}",
                lines.concat()
            )),
        );
    }
    findings
}

/// Returns the file for a line that overrides the value in `path`: the same file if it is the operator's, otherwise one
/// that is read later, because an update of the package replaces `path`.
fn file_for_override(path: &Path, root: &Path) -> PathBuf {
    if path.starts_with(root.join("etc")) {
        return path.to_owned();
    }
    let own_path = Path::new("/").join(OWN_FILE);
    if path.file_name() < own_path.file_name() {
        return own_path;
    }
    let stem = path.file_stem().unwrap_or_default().to_string_lossy();
    own_path.with_file_name(format!("{stem}_weir.conf"))
}

#[cfg(test)]
mod tests {
    use super::*;

    const ARP_IGNORE: &str = "net/ipv4/conf/all/arp_ignore";

    fn boot_settings_from(texts: &[&str]) -> BootSettings {
        let mut boot_settings = BootSettings::default();
        for (number, text) in texts.iter().enumerate() {
            boot_settings.parse(text, Path::new(&format!("/{number}.conf")));
        }
        boot_settings
    }

    #[test]
    fn last_file_and_exact_name_take_precedence() {
        let boot_settings = boot_settings_from(&[
            "# net.ipv4.conf.all.arp_ignore = 7\nnet.ipv4.conf.all.arp_ignore=0",
            "-net/ipv4/conf/all/arp_ignore = 1\nnet.ipv4.conf.*.arp_ignore = 2\nnonsense",
        ]);
        assert_eq!(
            boot_settings.get(ARP_IGNORE),
            Some(("1", Path::new("/1.conf")))
        );
        let other = boot_settings.get("net/ipv4/conf/eth0/arp_ignore");
        assert_eq!(other.map(|(value, _)| value), Some("2"));
        assert_eq!(boot_settings.get("net/ipv4/conf/eth0/arp_announce"), None);
    }

    #[test]
    fn patterns_do_not_apply_to_excluded_name() {
        let pattern = "net.ipv4.conf.*.arp_ignore = 1";
        let boot_settings = boot_settings_from(&["-net.ipv4.conf.all.arp_ignore", pattern]);
        assert_eq!(boot_settings.get(ARP_IGNORE), None);
        let other = boot_settings.get("net/ipv4/conf/eth0/arp_ignore");
        assert_eq!(other.map(|(value, _)| value), Some("1"));
        let exact = "net.ipv4.conf.all.arp_ignore = 2";
        let boot_settings = boot_settings_from(&["-net.ipv4.conf.all.arp_ignore", pattern, exact]);
        assert_eq!(
            boot_settings.get(ARP_IGNORE).map(|(value, _)| value),
            Some("2")
        );
    }

    #[test]
    fn files_of_packages_are_not_changed() {
        let root = Path::new("/");
        for (path, expected) in [
            ("/etc/sysctl.d/90-other.conf", "/etc/sysctl.d/90-other.conf"),
            ("/etc/sysctl.conf", "/etc/sysctl.conf"),
            (
                "/usr/lib/sysctl.d/50-default.conf",
                "/etc/sysctl.d/60-weir.conf",
            ),
            (
                "/usr/lib/sysctl.d/99-cloud.conf",
                "/etc/sysctl.d/99-cloud_weir.conf",
            ),
        ] {
            let file = file_for_override(Path::new(path), root);
            assert_eq!(file, Path::new(expected));
            assert!(
                file.file_name() >= Path::new(path).file_name(),
                "{path} is read after the override"
            );
        }
    }

    #[test]
    fn device_name_can_contain_dots() {
        let boot_settings = boot_settings_from(&["net.ipv4.conf.eth0/100.rp_filter = 2"]);
        let name = "net/ipv4/conf/eth0.100/rp_filter";
        assert_eq!(boot_settings.get(name).map(|(value, _)| value), Some("2"));
        assert_eq!(dotted_form(name), "net.ipv4.conf.eth0/100.rp_filter");
        assert!(glob_matches("net/ipv4/conf/e*0/x", "net/ipv4/conf/eth0/x"));
        assert!(!glob_matches("net/ipv4/*/x", "net/ipv4/conf/eth0/x"));
    }
}
