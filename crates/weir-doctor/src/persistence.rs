//! Whether settings made at run time survive a boot: reads the files of sysctl.d(5).

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fs;
use std::path::{Path, PathBuf};

use crate::Diagnosis;

/// Directories of fragments: a file hides files of the same name in later directories.
const DIRECTORIES: [&str; 5] = [
    "etc/sysctl.d",
    "run/sysctl.d",
    "usr/local/lib/sysctl.d",
    "usr/lib/sysctl.d",
    "lib/sysctl.d",
];

/// Read by procps after all fragments; systemd has a link to it among them.
const LAST: &str = "etc/sysctl.conf";

/// Units of the service manager and boot scripts.
const BOOT: [&str; 7] = [
    "etc/systemd/system",
    "usr/local/lib/systemd/system",
    "usr/lib/systemd/system",
    "lib/systemd/system",
    "etc/network/interfaces",
    "etc/network/interfaces.d",
    "etc/rc.local",
];

/// Values after a boot, by the sysctl's path below `/proc/sys`, globs included.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct AtBoot {
    values: BTreeMap<String, (String, PathBuf)>,
    globs: Vec<(String, String, PathBuf)>,
}

impl AtBoot {
    /// Reads the files below `root`, `/` for this machine's.
    fn read(root: &Path) -> Self {
        let mut files: BTreeMap<OsString, PathBuf> = BTreeMap::new();
        for directory in DIRECTORIES {
            let Ok(entries) = fs::read_dir(root.join(directory)) else {
                continue;
            };
            for entry in entries.flatten() {
                let path = entry.path();
                if path.extension().is_some_and(|it| it == "conf") {
                    files.entry(entry.file_name()).or_insert(path);
                }
            }
        }
        let mut at_boot = Self::default();
        for path in files.into_values().chain([root.join(LAST)]) {
            if let Ok(text) = fs::read_to_string(&path) {
                at_boot.take(&text, &path);
            }
        }
        at_boot
    }

    fn take(&mut self, text: &str, path: &Path) {
        for line in text.lines() {
            let line = line.trim();
            let line = line.strip_prefix('-').unwrap_or(line);
            let Some((name, value)) = line.split_once('=') else {
                continue;
            };
            if line.starts_with(['#', ';']) {
                continue;
            }
            let (name, value) = (slashed(name.trim()), value.trim().to_owned());
            let path = path.to_owned();
            if name.contains('*') {
                self.globs.push((name, value, path));
            } else {
                self.values.insert(name, (value, path));
            }
        }
    }

    /// The value that a sysctl gets, and from which file.
    fn of(&self, name: &str) -> Option<(&str, &Path)> {
        if let Some((value, path)) = self.values.get(name) {
            return Some((value, path));
        }
        let mut globs = self.globs.iter().rev();
        let (_, value, path) = globs.find(|(glob, ..)| fits(glob, name))?;
        Some((value, path))
    }
}

/// The path form of a name: the separator that comes first separates, the other is part of a component (sysctl.d(5)).
fn slashed(name: &str) -> String {
    match name.find(['.', '/']) {
        Some(at) if name[at..].starts_with('.') => name
            .chars()
            .map(|letter| match letter {
                '.' => '/',
                '/' => '.',
                other => other,
            })
            .collect(),
        _ => name.to_owned(),
    }
}

/// The name as `sysctl` and its files take it.
fn dotted(name: &str) -> String {
    let swap = |letter| match letter {
        '/' => '.',
        '.' => '/',
        other => other,
    };
    name.chars().map(swap).collect()
}

/// `*` matches any part of one component.
fn fits(glob: &str, name: &str) -> bool {
    let (mut globs, mut names) = (glob.split('/'), name.split('/'));
    loop {
        match (globs.next(), names.next()) {
            (None, None) => return true,
            (Some(glob), Some(name)) if component_fits(glob, name) => {}
            _ => return false,
        }
    }
}

fn component_fits(glob: &str, name: &str) -> bool {
    match glob.split_once('*') {
        None => glob == name,
        Some((before, after)) => name.strip_prefix(before).is_some_and(|rest| {
            let mut ends = rest.char_indices().map(|(at, _)| at).chain([rest.len()]);
            ends.any(|at| component_fits(after, &rest[at..]))
        }),
    }
}

/// Settings, by path below `/proc/sys`, that are lost at the next boot: one finding for those that no file has, one for
/// each that a file sets to another value. `why` is the consequence.
pub fn lost(active: &BTreeMap<String, String>, root: &Path, why: &str) -> Vec<Diagnosis> {
    let at_boot = AtBoot::read(root);
    let mut found = Vec::new();
    let mut absent = Vec::new();
    for (name, value) in active {
        match at_boot.of(name) {
            None => absent.push((name, value)),
            Some((kept, _)) if kept == value => {}
            Some((kept, path)) => found.push(
                Diagnosis::new(
                    format!(
                        "{name} is {value} until the next boot: {} sets it to {kept}",
                        path.display()
                    ),
                    why,
                )
                .fix(format!(
                    "echo '{} = {value}' >> {}",
                    dotted(name),
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
            .map(|(name, value)| format!("{} = {value}\\n", dotted(name)))
            .collect();
        found.push(
            Diagnosis::new(
                format!(
                    "until the next boot only: {}; no file of sysctl.d sets them",
                    list.join(", ")
                ),
                why,
            )
            .fix(format!(
                "printf '{}' >> /etc/sysctl.d/60-weir.conf",
                lines.concat()
            )),
        );
    }
    found
}

/// Whether a unit or script that runs at boot calls `weir real-server up`. A template counts only if an instance of it
/// is enabled.
pub fn prepared_at_boot(root: &Path) -> bool {
    let calls = |path: &Path| {
        let text = fs::read_to_string(path).unwrap_or_default();
        let mut lines = text.lines().map(str::trim);
        lines.any(|line| !line.starts_with(['#', ';']) && line.contains("real-server up"))
    };
    let is_template = |path: &Path| {
        let name = path.file_name().and_then(|name| name.to_str());
        name.is_some_and(|name| name.contains("@."))
    };
    let paths = BOOT.iter().map(|path| root.join(path));
    let mut files = paths.flat_map(|path| match path.is_file() {
        true => vec![path],
        false => entries(&path),
    });
    files.any(|file| !is_template(&file) && calls(&file))
        || enabled(root).any(|link| calls(&target(root, &link)))
}

fn entries(directory: &Path) -> Vec<PathBuf> {
    let found = fs::read_dir(directory).into_iter().flatten().flatten();
    found.map(|entry| entry.path()).collect()
}

/// The links by which units are enabled, instances of templates included.
fn enabled(root: &Path) -> impl Iterator<Item = PathBuf> {
    let directories = entries(&root.join(BOOT[0])).into_iter();
    let wants = directories.filter(|path| {
        let extension = path.extension().and_then(|it| it.to_str());
        matches!(extension, Some("wants" | "requires"))
    });
    wants.flat_map(|directory| entries(&directory))
}

/// What a link below `root` leads to; an absolute target begins at `root`.
fn target(root: &Path, link: &Path) -> PathBuf {
    match fs::read_link(link) {
        Ok(to) if to.is_absolute() => root.join(to.strip_prefix("/").unwrap_or(&to)),
        Ok(to) => link.with_file_name(to),
        Err(_) => link.to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ALL: &str = "net/ipv4/conf/all/arp_ignore";

    fn taken(texts: &[&str]) -> AtBoot {
        let mut at_boot = AtBoot::default();
        for (number, text) in texts.iter().enumerate() {
            at_boot.take(text, Path::new(&format!("/{number}.conf")));
        }
        at_boot
    }

    #[test]
    fn last_file_wins_and_a_name_overrides_a_glob() {
        let at_boot = taken(&[
            "# net.ipv4.conf.all.arp_ignore = 7\nnet.ipv4.conf.all.arp_ignore=0",
            "-net/ipv4/conf/all/arp_ignore = 1\nnet.ipv4.conf.*.arp_ignore = 2\nnonsense",
        ]);
        assert_eq!(at_boot.of(ALL), Some(("1", Path::new("/1.conf"))));
        let other = at_boot.of("net/ipv4/conf/eth0/arp_ignore");
        assert_eq!(other.map(|(value, _)| value), Some("2"));
        assert_eq!(at_boot.of("net/ipv4/conf/eth0/arp_announce"), None);
    }

    #[test]
    fn device_names_may_contain_dots() {
        let at_boot = taken(&["net.ipv4.conf.eth0/100.rp_filter = 2"]);
        let name = "net/ipv4/conf/eth0.100/rp_filter";
        assert_eq!(at_boot.of(name).map(|(value, _)| value), Some("2"));
        assert_eq!(dotted(name), "net.ipv4.conf.eth0/100.rp_filter");
        assert!(fits("net/ipv4/conf/e*0/x", "net/ipv4/conf/eth0/x"));
        assert!(!fits("net/ipv4/*/x", "net/ipv4/conf/eth0/x"));
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
        assert!(!prepared_at_boot(&root));
        let wants = root.join("etc/systemd/system/multi-user.target.wants");
        fs::create_dir_all(&wants).unwrap();
        std::os::unix::fs::symlink(
            Path::new("/usr/lib/systemd/system").join(template),
            wants.join("weir-real-server@192.0.2.10.service"),
        )
        .unwrap();
        assert!(prepared_at_boot(&root));
        fs::remove_dir_all(&root).unwrap();
    }
}
