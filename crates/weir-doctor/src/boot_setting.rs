//! Determines whether settings made at run time are restored at boot, from the files of sysctl.d(5).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Diagnosis;

/// Directories of configuration files. A file replaces files of the same name in later directories.
const DIRECTORIES: [&str; 5] = [
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
    "lib/sysctl.d",
];

/// The file that procps reads last. systemd installs a link to this file in one of `DIRECTORIES`.
const LAST_FILE: &str = "etc/sysctl.conf";

/// Directories of systemd units, and files and directories of boot scripts.
const BOOT_FILES: [&str; 7] = [
    "etc/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "etc/network/interfaces",
    "etc/network/interfaces.d",
    "etc/rc.local",
];

/// Values set at boot, by the sysctl's path below `/proc/sys`. Paths can be globs.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct BootSettings {
    values: BTreeMap<String, (String, PathBuf)>,
    globs: Vec<(String, String, PathBuf)>,
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
            let line = line.strip_prefix('-').unwrap_or(line);
            let Some((name, value)) = line.split_once('=') else {
                continue;
            };
            if line.starts_with(['#', ';']) {
                continue;
            }
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
        let mut globs = self.globs.iter().rev();
        let (_, value, path) = globs.find(|(glob, ..)| glob_matches(glob, name))?;
        Some((value, path))
    }
}

/// Converts a sysctl name to its path below `/proc/sys`. The first `.` or `/` in the name is the component
/// separator; the other character is part of a component (sysctl.d(5)).
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
                    path.display()
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
                    "only until the next boot: {}; no file in sysctl.d sets this",
                    list.join(", ")
                ),
                consequence,
            )
            .fix(format!(
                "printf '{}' >> /etc/sysctl.d/60-weir.conf",
                lines.concat()
            )),
        );
    }
    findings
}

/// Returns whether a unit or script that runs at boot calls `weir real-server up`. A template counts only if an
/// instance of it is enabled.
pub fn is_prepared_at_boot(root: &Path) -> bool {
    let calls = |path: &Path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines().map(str::trim);
        lines.any(|line| !line.starts_with(['#', ';']) && line.contains("real-server up"))
    };
    let is_template = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.contains("@."))
    };
    let paths = BOOT_FILES.iter().map(|path| root.join(path));
    let mut files = paths.flat_map(|path| match path.is_file() {
        true => vec![path],
        false => entries(&path),
    });
    files.any(|file| !is_template(&file) && calls(&file))
        || enabled_units(root).any(|link| calls(&link_target(root, &link)))
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let all = fs::read_dir(directory).into_iter().flatten().flatten();
    all.map(|entry| entry.path()).collect()
}

/// Returns the links that enable units, including instances of templates.
fn enabled_units(root: &Path) -> impl Iterator<Item = PathBuf> {
    let directories = entries(&root.join(BOOT_FILES[0])).into_iter();
    let wants = directories.filter(|path| {
        let extension = path.extension().and_then(|extension| extension.to_str());
        matches!(extension, Some("wants" | "requires"))
    });
    wants.flat_map(|directory| entries(&directory))
}

/// Returns the target of a link. An absolute target is relative to `root`.
fn link_target(root: &Path, link: &Path) -> PathBuf {
    match fs::read_link(link) {
        Ok(target) if target.is_absolute() => {
            root.join(target.strip_prefix("/").unwrap_or(&target))
        }
        Ok(target) => link.with_file_name(target),
        Err(_) => link.to_owned(),
    }
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
    fn last_file_and_exact_name_have_precedence() {
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
    fn device_name_can_contain_dots() {
        let boot_settings = boot_settings_from(&["net.ipv4.conf.eth0/100.rp_filter = 2"]);
        let name = "net/ipv4/conf/eth0.100/rp_filter";
        assert_eq!(boot_settings.get(name).map(|(value, _)| value), Some("2"));
        assert_eq!(dotted_form(name), "net.ipv4.conf.eth0/100.rp_filter");
        assert!(glob_matches("net/ipv4/conf/e*0/x", "net/ipv4/conf/eth0/x"));
        assert!(!glob_matches("net/ipv4/*/x", "net/ipv4/conf/eth0/x"));
    }

    #[test]
    fn templates_count_only_when_an_instance_is_enabled() {
        let root = std::env::temp_dir().join(format!("weir-boot-{}", std::process::id()));
        let units = root.join("usr/lib/systemd/system");
        fs::create_dir_all(&units).unwrap();
        let template = "weir-real-server@.service";
        fs::write(
            units.join(template),
            "[Service]\nExecStart=/usr/bin/weir real-server up --vip %i\n",
        )
        .unwrap();
        assert!(!is_prepared_at_boot(&root));
        let wants = root.join("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        std::os::unix::fs::symlink(
            Path::new("/usr/lib/systemd/system").join(template),
            wants.join("weir-real-server@192.0.2.10.service"),
        )
        .unwrap();
        assert!(is_prepared_at_boot(&root));
        fs::remove_dir_all(&root).unwrap();
    }
}
