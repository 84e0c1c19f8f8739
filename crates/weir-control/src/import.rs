//! Gives `weir import` read-only access to this machine: files, host names and the environment.
//!
//! Host names are resolved concurrently and within one deadline, so an unresponsive name server delays the import by
//! two seconds in total rather than by ten seconds per name. Importers look up names one after another, so they run
//! once to collect the names, and again with the results.

mod resolve;

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::fs::File;
use std::io::{self, Read};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Dir, Mode, OFlags, ResolveFlags};
use weir_import::Environment;
use weir_ipvsadm::{Names, Protocol};
use weir_model::{Desired, VirtualRouter};
use weir_netlink::Netlink;
use weir_sys::names;

/// The timeout for resolving all host names of an import.
pub const RESOLVE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum number of runs of an importer after the first. If an importer looks up one name only after another has been
/// resolved, an additional run is needed.
const MAX_RERUNS: usize = 4;

/// This machine, with the names resolved so far.
#[derive(Debug, Default)]
pub struct Machine {
    /// The directory that replaces `/` in absolute paths. Its path must be absolute.
    root: Option<PathBuf>,
    resolved: BTreeMap<String, Vec<IpAddr>>,
    /// Names that were looked up but are not resolved yet.
    requested: RefCell<BTreeSet<String>>,
}

/// Runs an importer. Returns its result and the host names that were not resolved in time. `root` replaces `/` in
/// absolute paths.
pub fn run_importer<T>(root: Option<&Path>, import: impl Fn(&Machine) -> T) -> (T, Vec<String>) {
    let deadline = Instant::now() + RESOLVE_TIMEOUT;
    let mut machine = Machine {
        root: root.map(Path::to_owned),
        ..Machine::default()
    };
    let mut unresolved: Vec<String> = Vec::new();
    let mut imported = import(&machine);
    for _ in 0..MAX_RERUNS {
        let requested = machine.requested.take();
        if requested.is_empty() {
            break;
        }
        let found = resolve::resolve_all(&requested, deadline);
        unresolved.extend(
            requested
                .into_iter()
                .filter(|name| !found.contains_key(name)),
        );
        machine.resolved.extend(found);
        // Do not look up unresolved names again.
        machine
            .resolved
            .extend(unresolved.iter().map(|name| (name.clone(), Vec::new())));
        imported = import(&machine);
    }
    (imported, unresolved)
}

impl Machine {
    /// Returns a machine whose files are below `root`.
    #[cfg(test)]
    pub(crate) fn below(root: &Path) -> Self {
        Self {
            root: Some(root.to_owned()),
            ..Self::default()
        }
    }

    /// Returns the path of a file on this machine. Prepends the root to an absolute path that is not already below the
    /// root.
    fn path_of(&self, path: &str) -> String {
        let root = self.root.as_deref().filter(|root| {
            let path = Path::new(path);
            path.is_absolute() && !path.starts_with(root)
        });
        root.map_or_else(
            || path.to_owned(),
            |root| format!("{}{path}", root.display()),
        )
    }

    /// Opens a file or a directory. Below the root, `..` and links are resolved relative to the root, so a copy of
    /// another machine's files cannot refer to files on this machine.
    fn open(&self, path: &str, flags: OFlags) -> io::Result<File> {
        let flags = flags | OFlags::CLOEXEC;
        let absolute = std::path::absolute(path)?;
        let relative = self.root.as_deref().and_then(|root| {
            let relative = absolute.strip_prefix(root).ok()?;
            let is_root = relative.as_os_str().is_empty();
            Some((root, if is_root { Path::new(".") } else { relative }))
        });
        let Some((root, relative)) = relative else {
            return Ok(rustix::fs::open(path, flags, Mode::empty())?.into());
        };
        let directory = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let root = rustix::fs::open(root, directory, Mode::empty())?;
        let resolve = ResolveFlags::IN_ROOT | ResolveFlags::NO_MAGICLINKS;
        Ok(rustix::fs::openat2(root, relative, flags, Mode::empty(), resolve)?.into())
    }

    /// Returns whether the path leads to a regular file, possibly through links.
    fn is_file(&self, path: &str) -> io::Result<bool> {
        Ok(self.open(path, OFlags::PATH)?.metadata()?.is_file())
    }

    /// Returns the files that match a pattern with `*`, `?` and `[…]`, sorted.
    fn files(&self, pattern: &str) -> Vec<String> {
        let mut found = vec![if pattern.starts_with('/') { "/" } else { "" }.to_owned()];
        for part in pattern.split('/').filter(|part| !part.is_empty()) {
            let has_wildcard = part.contains(['*', '?', '[']);
            let mut matching = Vec::new();
            for base in &found {
                let directory = if base.is_empty() { "." } else { base };
                let names = if has_wildcard {
                    self.listing(directory, part)
                } else {
                    vec![part.to_owned()]
                };
                let slash = if base.is_empty() || base.ends_with('/') {
                    ""
                } else {
                    "/"
                };
                matching.extend(names.into_iter().map(|name| format!("{base}{slash}{name}")));
            }
            found = matching;
        }
        found.retain(|path| self.is_file(path).unwrap_or(false));
        found
    }

    /// Returns the matching names in a directory, sorted. Hidden names match only patterns that begin with a dot.
    fn listing(&self, directory: &str, pattern: &str) -> Vec<String> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let Ok(entries) = self
            .open(directory, flags)
            .and_then(|directory| Ok(Dir::new(directory)?))
        else {
            return Vec::new();
        };
        let pattern: Vec<char> = pattern.chars().collect();
        let mut names: Vec<String> = entries
            .flatten()
            .filter_map(|entry| entry.file_name().to_str().ok().map(str::to_owned))
            .filter(|name| !matches!(name.as_str(), "." | ".."))
            .filter(|name| !name.starts_with('.') || pattern.first() == Some(&'.'))
            .filter(|name| matches(&pattern, &name.chars().collect::<Vec<char>>()))
            .collect();
        names.sort();
        names
    }

    fn addresses(&self, host: &str) -> &[IpAddr] {
        match self.resolved.get(host) {
            Some(found) => found,
            None => {
                self.requested.borrow_mut().insert(host.to_owned());
                &[]
            }
        }
    }
}

/// Resolves names in ipvsadm lines.
impl Names for Machine {
    fn address(&self, host: &str) -> Option<Ipv4Addr> {
        self.addresses(host).iter().find_map(|found| match found {
            IpAddr::V4(v4) => Some(*v4),
            IpAddr::V6(_) => None,
        })
    }

    fn address6(&self, host: &str) -> Option<Ipv6Addr> {
        self.addresses(host).iter().find_map(|found| match found {
            IpAddr::V6(v6) => Some(*v6),
            IpAddr::V4(_) => None,
        })
    }

    fn port(&self, service: &str, protocol: Protocol) -> Option<u16> {
        names::port_of(service, protocol.as_str())
    }

    /// Returns `None`, because imports print addresses rather than names.
    fn host(&self, _: IpAddr) -> Option<String> {
        None
    }

    fn service(&self, port: u16, protocol: Protocol) -> Option<String> {
        names::service_of(port, protocol.as_str())
    }
}

/// Maximum number of VIPs that the comment lists.
const MAX_VIPS_SHOWN: usize = 4;

/// Returns comment lines about the VIPs in an imported file; empty if it has no VIPs or is invalid. Like the original
/// program, Weir expects the VIPs to be on this machine already, unless they are addresses of a virtual router. Only
/// the operator can decide whether Weir should add them, because Weir must not add VIPs that another director has.
pub async fn vip_comment(toml: &str) -> String {
    let Ok(parsed) = weir_config::parse(toml, &weir_config::Host::default()) else {
        return String::new();
    };
    // If the interfaces cannot be read, list the VIPs without interfaces.
    let interfaces = interfaces().await.unwrap_or_default();
    comment(&parsed.desired, &interfaces)
}

fn comment(desired: &Desired, interfaces: &BTreeMap<IpAddr, String>) -> String {
    let routers = desired.vrrp.iter();
    let managed: BTreeSet<IpAddr> = routers
        .flat_map(VirtualRouter::managed_addresses)
        .map(|network| network.address)
        .collect();
    let listeners = desired.services.iter();
    let listeners = listeners.flat_map(|service| &service.listen);
    let vips: BTreeSet<IpAddr> = listeners
        .map(|listener| listener.address)
        .filter(|vip| !managed.contains(vip))
        .collect();
    let mut text = String::new();
    if !managed.is_empty() {
        text = format!(
            "# VIPs of [vrrp]: {}.\n# Weir adds them while this director is active: before Weir starts, stop the \
             program that adds them now.\n\n",
            list(&managed, interfaces)
        );
    }
    if vips.is_empty() {
        return text;
    }
    let interface = vips.iter().find_map(|vip| interfaces.get(vip));
    let interface = interface.filter(|name| *name != "lo");
    let interface = interface.map_or("INTERFACE", String::as_str);
    let listed = list(&vips, interfaces);
    if let Some(interface) = &desired.node.vip_interface {
        return text
            + &format!(
                "# VIPs: {listed}.\n# Weir adds and announces missing ones on {interface} (`vip_interface`); no other \
                 program has to add them.\n\n"
            );
    }
    let alternative = match vips.iter().all(|vip| !interfaces.contains_key(vip)) {
        true => "",
        false => "Either keep the program that adds them now, or ",
    };
    let advice = match alternative.is_empty() {
        true => "Add them with the machine's network configuration, or set",
        false => "set",
    };
    text + &format!(
        "# VIPs: {listed}.\n# Weir adds them only if `vip_interface` is set. {alternative}{advice}\n\
         # `vip_interface`, if no other director has them at the same time; Weir then adds and announces missing \
         ones:\n# [node]\n\
         # vip_interface = \"{interface}\"\n\n"
    )
}

/// Returns comment lines for a file imported from ipvsadm's table, which must be cleared before Weir uses the file.
pub const fn ipvsadm_comment() -> &'static str {
    "# Before Weir uses this file, remove the services that ipvsadm has created; their connections end:\n\
     # - in Weir's table, before `weir plan`, `weir reload` or `weir run`: weir ipvsadm -C\n\
     # - in the kernel's table, after Weir has started: ipvsadm -C (Weir sees packets first)\n\n"
}

/// Returns the VIPs with their interfaces, as text.
fn list(vips: &BTreeSet<IpAddr>, interfaces: &BTreeMap<IpAddr, String>) -> String {
    let mut listed: Vec<String> = vips
        .iter()
        .take(MAX_VIPS_SHOWN)
        .map(|vip| match interfaces.get(vip) {
            Some(interface) => format!("{vip} (now on {interface})"),
            None => format!("{vip} (now on no interface)"),
        })
        .collect();
    if vips.len() > MAX_VIPS_SHOWN {
        listed.push(format!("and {} more", vips.len() - MAX_VIPS_SHOWN));
    }
    listed.join(", ")
}

/// Returns this machine's addresses, each with its interface name.
async fn interfaces() -> Result<BTreeMap<IpAddr, String>, weir_netlink::Error> {
    let netlink = Netlink::open()?;
    let links = netlink.links().await?;
    let link = |index: u32| links.iter().find(|link| link.index == index);
    let addresses = netlink.addresses().await?.into_iter();
    Ok(addresses
        .filter_map(|address| Some((address.ip, link(address.ifindex)?.name.clone())))
        .collect())
}

/// Maximum size of a configuration file in bytes.
pub const MAX_BYTES: u64 = 64 << 20;

impl Environment for Machine {
    fn read(&self, path: &str) -> Result<String, String> {
        let to_text = |error: io::Error| error.to_string();
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
        let file = self.open(&self.path_of(path), flags).map_err(to_text)?;
        let metadata = file.metadata().map_err(to_text)?;
        if !metadata.is_file() || metadata.len() > MAX_BYTES {
            return Err("not a regular file, or larger than 64 MiB".to_owned());
        }
        let mut bytes = Vec::new();
        file.take(MAX_BYTES)
            .read_to_end(&mut bytes)
            .map_err(to_text)?;
        // Comments can be in an encoding other than UTF-8.
        Ok(String::from_utf8_lossy(&bytes).into_owned())
    }

    fn has_file(&self, path: &str) -> Option<bool> {
        match self.is_file(&self.path_of(path)) {
            Ok(is_file) => Some(is_file),
            Err(error) => (error.kind() == io::ErrorKind::NotFound).then_some(false),
        }
    }

    fn glob(&self, pattern: &str) -> Vec<String> {
        let mut found: Vec<String> = Vec::new();
        for pattern in alternatives(&self.path_of(pattern)) {
            found.extend(self.files(&pattern));
        }
        found
    }

    fn address(&self, host: &str, ipv6: bool) -> Option<IpAddr> {
        let found = self.addresses(host).iter();
        found.copied().find(|address| address.is_ipv6() == ipv6)
    }

    fn port(&self, service: &str, protocol: &str) -> Option<u16> {
        names::port_of(service, protocol)
    }

    fn host_name(&self) -> String {
        let system = rustix::system::uname();
        system.nodename().to_string_lossy().into_owned()
    }

    /// Returns `None` if there is a root, because this process's environment is not that of the machine whose files are
    /// below the root.
    fn variable(&self, name: &str) -> Option<String> {
        match self.root {
            Some(_) => None,
            None => std::env::var(name).ok(),
        }
    }
}

/// Expands `a{b,c}d` to `abd` and `acd`. Once there are 256 patterns, further braces are not expanded.
fn alternatives(pattern: &str) -> Vec<String> {
    let mut pending = vec![pattern.to_owned()];
    let mut expanded = Vec::new();
    while let Some(pattern) = pending.pop() {
        let braces = pattern
            .split_once('{')
            .and_then(|(before, remainder)| Some((before, remainder.split_once('}')?)));
        match braces {
            Some((before, (inner, after))) if expanded.len() + pending.len() < 256 => {
                let words = inner.split(',').rev();
                pending.extend(words.map(|word| format!("{before}{word}{after}")));
            }
            _ => expanded.push(pattern),
        }
    }
    expanded
}

/// Returns whether a name matches a pattern. After a mismatch, the last star matches one more character.
fn matches(pattern: &[char], name: &[char]) -> bool {
    let (mut p, mut n) = (0, 0);
    let mut star: Option<(usize, usize)> = None;
    loop {
        if n == name.len() {
            return pattern[p..].iter().all(|c| *c == '*');
        }
        if pattern.get(p) == Some(&'*') {
            star = Some((p + 1, n));
            p += 1;
            continue;
        }
        match match_one(&pattern[p..], name[n]) {
            Some(length) => {
                p += length;
                n += 1;
            }
            None => match &mut star {
                Some((after, start)) => {
                    *start += 1;
                    (p, n) = (*after, *start);
                }
                None => return false,
            },
        }
    }
}

/// Returns the length of the part of the pattern that matches one character; `None` = the part does not match the
/// character.
fn match_one(pattern: &[char], c: char) -> Option<usize> {
    match pattern.first()? {
        '?' => Some(1),
        '[' => {
            let end = pattern.iter().skip(2).position(|c| *c == ']')? + 2;
            let (is_negated, set) = match pattern.get(1) {
                Some('!' | '^') => (true, &pattern[2..end]),
                _ => (false, &pattern[1..end]),
            };
            let mut is_in_set = set.contains(&c);
            for range in set.windows(3) {
                is_in_set |= range[1] == '-' && (range[0]..=range[2]).contains(&c);
            }
            (is_in_set != is_negated).then_some(end + 1)
        }
        literal => (*literal == c).then_some(1),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn comment_distinguishes_vips_of_virtual_routers() {
        let vrrp = "[vrrp.a]\ninterface = \"eth0\"\nvirtual_router_id = 5\naddresses = [\"10.0.0.10/32\"]\n";
        let pool = "[pool.p]\nservers = [\"10.0.1.5:80\"]\n";
        let service = |vip: &str| {
            format!("[service.s]\nlisten = [\"{vip}:80\"]\nforward = \"nat\"\npool = \"p\"\n")
        };
        let comment = |text: String| {
            let parsed = weir_config::parse(&text, &weir_config::Host::default());
            let desired = parsed.expect("parse the configuration").desired;
            super::comment(&desired, &BTreeMap::new())
        };
        let both = "# VIPs of [vrrp]: 10.0.0.10 (now on no interface).\n# Weir adds them";
        let of_service = comment(format!("{vrrp}{pool}{}", service("10.0.0.10")));
        assert!(of_service.starts_with(both), "{of_service}");
        assert!(!of_service.contains("does not add"), "{of_service}");
        let other = comment(format!("{vrrp}{pool}{}", service("10.0.0.11")));
        assert!(other.starts_with(both), "{other}");
        assert!(other.contains("# VIPs: 10.0.0.11 (now"), "{other}");
        let without = comment(format!("{pool}{}", service("10.0.0.10")));
        assert!(without.starts_with("# VIPs: 10.0.0.10 (now"), "{without}");
        assert!(!without.contains("keep the program"), "{without}");
        let text = format!("{pool}{}", service("10.0.0.10"));
        let parsed = weir_config::parse(&text, &weir_config::Host::default());
        let desired = parsed.expect("parse the configuration").desired;
        let vip = "10.0.0.10".parse().expect("parse the address");
        let present = super::comment(&desired, &[(vip, "eth0".to_owned())].into());
        assert!(
            present.contains("keep the program that adds them now, or"),
            "{present}"
        );
        let node = "[node]\nvip_interface = \"eth0\"\n";
        let managed = comment(format!("{node}{pool}{}", service("10.0.0.10")));
        assert!(
            managed.contains("Weir adds and announces missing ones on eth0"),
            "{managed}"
        );
        assert!(!managed.contains("program that adds"), "{managed}");
    }

    #[test]
    fn patterns_match_as_in_a_shell() {
        let is_match = |pattern: &str, name: &str| {
            let pattern: Vec<char> = pattern.chars().collect();
            matches(&pattern, &name.chars().collect::<Vec<char>>())
        };
        assert!(is_match("*.conf", "a.conf"));
        assert!(is_match("*a*b", "xaayb"));
        assert!(is_match("web-[0-9]?", "web-1x"));
        assert!(is_match("[!a]", "b"));
        assert!(!is_match("*.conf", "a.conf.bak"));
        assert!(!is_match("[a-c]", "d"));
        assert!(!is_match("?", ""));
        assert!(!is_match("[", "["));
    }

    #[test]
    fn files_outside_the_root_are_inaccessible() {
        let base = std::env::temp_dir().join(format!("weir-import-root-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&base);
        let root = base.join("root");
        std::fs::create_dir_all(root.join("etc/sites")).unwrap();
        std::fs::write(base.join("secret"), "secret").unwrap();
        std::fs::write(root.join("etc/site"), "site").unwrap();
        let link = |target: &str, name: &str| {
            std::os::unix::fs::symlink(target, root.join(name)).unwrap();
        };
        link("/etc/site", "etc/sites/site");
        link("../../../secret", "etc/sites/outside");
        link("/proc/self/cwd", "etc/sites/magic");
        let machine = Machine {
            root: Some(root.clone()),
            ..Machine::default()
        };
        let read = |path: &str| machine.read(path);
        // Debian's sites-enabled has absolute links.
        assert_eq!(read("/etc/sites/site").as_deref(), Ok("site"));
        let with_root = root.join("etc/sites/site");
        assert_eq!(read(with_root.to_str().unwrap()).as_deref(), Ok("site"));
        for outside in [
            "/etc/sites/outside",
            "/etc/../../secret",
            "/../secret",
            "/etc/sites/magic/Cargo.toml",
        ] {
            assert!(read(outside).is_err(), "{outside}");
        }
        // Neither the contents nor the names of files outside the root are revealed.
        let paths = |found: &[&str]| -> Vec<String> {
            let path = |path: &&str| format!("{}{path}", root.display());
            found.iter().map(path).collect()
        };
        assert_eq!(
            machine.glob("/etc/sites/*"),
            paths(&["/etc/sites/site"]),
            "links to files outside the root are not followed"
        );
        assert_eq!(machine.glob("/../*cret"), paths(&[]));
        assert_eq!(
            machine.glob("/etc/../../*/site"),
            paths(&["/etc/../../etc/site"])
        );
        assert_eq!(machine.glob("/etc/sites/magic/*"), paths(&[]));
        assert_eq!(machine.has_file("/etc/sites/site"), Some(true));
        for outside in ["/../secret", "/etc/sites/outside"] {
            assert_eq!(machine.has_file(outside), Some(false), "{outside}");
        }
        assert_eq!(machine.variable("PATH"), None, "a variable of this process");
        assert!(Machine::default().variable("PATH").is_some());
        let file = base.join("secret");
        assert_eq!(
            Machine::default().read(file.to_str().unwrap()).as_deref(),
            Ok("secret")
        );
        assert!(Machine::default().read("/dev/zero").is_err());
        std::fs::remove_dir_all(&base).unwrap();
    }

    #[test]
    fn braces_are_expanded() {
        assert_eq!(alternatives("a{b,c}d"), ["abd", "acd"]);
        assert_eq!(alternatives("a{b"), ["a{b"]);
        assert_eq!(alternatives("{a,b}{c,d}").len(), 4);
    }
}
