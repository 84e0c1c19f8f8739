//! Network managers that remove addresses which they did not add: systemd-networkd and NetworkManager, when they apply
//! a device's configuration again (`networkctl reconfigure`, `netplan apply`, `nmcli device reapply`, a connection that
//! comes up).
//!
//! Observed with networkd 252 and NetworkManager 1.42: addresses on `lo` stay, unless `lo` has a NetworkManager profile
//! that an operator wrote; sysctls of ARP and `rp_filter` stay on every device. Only processes in this network
//! namespace count.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::Diagnosis;

/// Names of their processes, truncated by the kernel (`TASK_COMM_LEN`).
const NETWORKD: &str = "systemd-network";
const NETWORK_MANAGER: &str = "NetworkManager";

/// Directories of networkd's files; drop-ins of a file are in a directory of its name in any of them.
const NETWORKS: [&str; 4] = [
    "etc/systemd/network",
    "run/systemd/network",
    "usr/lib/systemd/network",
    "lib/systemd/network",
];

const PROFILES: [&str; 3] = [
    "etc/NetworkManager/system-connections",
    "run/NetworkManager/system-connections",
    "usr/lib/NetworkManager/system-connections",
];

const WHY: &str = "it does not know that address, and removes it when it applies the configuration of that device \
 again";

/// A VIP on a device.
#[derive(Clone, Debug)]
pub struct Held {
    /// The VIP.
    pub vip: IpAddr,
    /// Its prefix length.
    pub prefix: u8,
    /// The interface's index.
    pub ifindex: u32,
    /// The interface's name.
    pub device: String,
}

/// VIPs that a network manager will remove.
pub fn removed_vips(held: &[Held]) -> Vec<Diagnosis> {
    let root = Path::new("/");
    let (by_networkd, by_manager) = (runs_here(NETWORKD), runs_here(NETWORK_MANAGER));
    let mut found = Vec::new();
    for one in held {
        if by_networkd {
            found.extend(networkd(one, root));
        }
        if by_manager {
            found.extend(network_manager(one, root));
        }
    }
    found
}

/// Whether a process of that name is in the calling thread's network namespace.
fn runs_here(name: &str) -> bool {
    let Ok(own) = fs::read_link("/proc/thread-self/ns/net") else {
        return false;
    };
    let Ok(processes) = fs::read_dir("/proc") else {
        return false;
    };
    processes.flatten().any(|process| {
        let path = process.path();
        fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
            && fs::read_link(path.join("ns/net")).is_ok_and(|it| it == own)
    })
}

/// The values of a key in text of the form `key=value`, in order.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then_some(value.trim())
    })
}

/// Whether a list of addresses with prefix lengths has an address.
fn names(list: &str, vip: IpAddr) -> bool {
    list.split([',', ';', ' ']).any(|word| {
        let address = word.split('/').next().unwrap_or_default();
        address.parse() == Ok(vip)
    })
}

fn networkd(held: &Held, root: &Path) -> Option<Diagnosis> {
    let Held {
        vip,
        ifindex,
        device,
        ..
    } = held;
    let state = fs::read_to_string(root.join(format!("run/systemd/netif/links/{ifindex}"))).ok()?;
    let file = PathBuf::from(values(&state, "NETWORK_FILE").next()?);
    if device == "lo" {
        return None;
    }
    let name = file.file_name()?.to_str()?;
    let mut text = fs::read_to_string(root.join(file.strip_prefix("/").ok()?)).unwrap_or_default();
    for path in additions(root, name) {
        text += "\n";
        text += &fs::read_to_string(path).unwrap_or_default();
    }
    let keeps = values(&text, "KeepConfiguration").last();
    let keeps = matches!(keeps, Some("static" | "yes" | "true" | "on" | "1"));
    if keeps || values(&text, "Address").any(|list| names(list, *vip)) {
        return None;
    }
    let directory = format!("/etc/systemd/network/{name}.d");
    Some(
        Diagnosis::new(
            format!(
                "systemd-networkd manages {device}, on which the VIP {vip} is, by {}",
                file.display()
            ),
            WHY,
        )
        .fix(format!(
            "mkdir -p {directory} && printf '[Network]\\nKeepConfiguration=static\\n' > {directory}/60-weir.conf && \
             networkctl reload"
        )),
    )
}

/// Fragments of a network's file, as they are read: by name, the first directory's hides others.
fn additions(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut found = std::collections::BTreeMap::new();
    for directory in NETWORKS {
        let entries = fs::read_dir(root.join(directory).join(format!("{name}.d")));
        for entry in entries.into_iter().flatten().flatten() {
            found.entry(entry.file_name()).or_insert(entry.path());
        }
    }
    found.into_values().collect()
}

fn network_manager(held: &Held, root: &Path) -> Option<Diagnosis> {
    let Held {
        vip,
        prefix,
        ifindex,
        device,
    } = held;
    let state =
        fs::read_to_string(root.join(format!("run/NetworkManager/devices/{ifindex}"))).ok()?;
    if values(&state, "managed").next() != Some("true") {
        return None;
    }
    let uuid = values(&state, "connection-uuid").next()?;
    let profile = profile(root, uuid).unwrap_or_default();
    // Written down from what others have set up, and not applied.
    if values(&profile, "external").any(|value| value == "true") {
        return None;
    }
    let mut lines = profile
        .lines()
        .filter(|line| line.trim().starts_with("address"));
    if lines.any(|line| {
        line.split_once('=')
            .is_some_and(|(_, list)| names(list.trim(), *vip))
    }) {
        return None;
    }
    let family = if vip.is_ipv4() { "ipv4" } else { "ipv6" };
    Some(
        Diagnosis::new(
            format!("NetworkManager manages {device}, on which the VIP {vip} is, by the connection {uuid}"),
            format!(
                "{WHY}; where keepalived or Pacemaker moves the VIP it must not be in the connection, and the device \
                 is better not managed (nmcli device set {device} managed no)"
            ),
        )
        .fix(format!(
            "nmcli connection modify {uuid} +{family}.addresses {vip}/{prefix}"
        )),
    )
}

fn profile(root: &Path, uuid: &str) -> Option<String> {
    for directory in PROFILES {
        let entries = fs::read_dir(root.join(directory));
        for entry in entries.into_iter().flatten().flatten() {
            let text = fs::read_to_string(entry.path()).unwrap_or_default();
            if values(&text, "uuid").next() == Some(uuid) {
                return Some(text);
            }
        }
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn held(device: &str) -> Held {
        Held {
            vip: "192.0.2.20".parse().unwrap(),
            prefix: 32,
            ifindex: 3,
            device: device.to_owned(),
        }
    }

    fn write(root: &Path, name: &str, text: &str) {
        let path = root.join(name);
        fs::create_dir_all(path.parent().unwrap()).unwrap();
        fs::write(path, text).unwrap();
    }

    /// A directory of this test's own.
    struct Root(PathBuf);

    impl Root {
        fn new(name: &str) -> Self {
            let path = std::env::temp_dir().join(format!("weir-{name}-{}", std::process::id()));
            fs::create_dir_all(&path).unwrap();
            Self(path)
        }
    }

    impl Drop for Root {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    #[test]
    fn vips_that_networkd_removes_are_reported() {
        let root = Root::new("networkd");
        let root = root.0.as_path();
        assert!(networkd(&held("eth0"), root).is_none());
        let state = "run/systemd/netif/links/3";
        write(root, state, "ADMIN_STATE=unmanaged\n");
        assert!(networkd(&held("eth0"), root).is_none());
        let file = "etc/systemd/network/10-eth0.network";
        let line = format!("ADMIN_STATE=configured\nNETWORK_FILE=/{file}\n");
        write(root, state, &line);
        write(root, file, "[Network]\nAddress = 10.0.0.1/24\n");
        let found = networkd(&held("eth0"), root).unwrap();
        assert!(
            found
                .fix
                .unwrap()
                .contains("/10-eth0.network.d/60-weir.conf")
        );
        assert!(networkd(&held("lo"), root).is_none());
        write(
            root,
            file,
            "[Network]\nAddress=10.0.0.1/24\nAddress=192.0.2.20/32\n",
        );
        assert!(networkd(&held("eth0"), root).is_none());
        write(root, file, "[Network]\nKeepConfiguration=no\n");
        assert!(networkd(&held("eth0"), root).is_some());
        let more = "run/systemd/network/10-eth0.network.d/a.conf";
        write(root, more, "[Network]\nKeepConfiguration=static\n");
        assert!(networkd(&held("eth0"), root).is_none());
    }

    #[test]
    fn vips_that_network_manager_removes_are_reported() {
        let root = Root::new("manager");
        let root = root.0.as_path();
        let state = "run/NetworkManager/devices/3";
        write(root, state, "[device]\nmanaged=false\nconnection-uuid=7\n");
        assert!(network_manager(&held("eth0"), root).is_none());
        write(root, state, "[device]\nmanaged=true\nconnection-uuid=7\n");
        let profile = "etc/NetworkManager/system-connections/x.nmconnection";
        write(
            root,
            profile,
            "[connection]\nuuid=7\n[ipv4]\naddress1=10.0.0.1/24\n",
        );
        let found = network_manager(&held("eth0"), root).unwrap();
        assert_eq!(
            found.fix.as_deref(),
            Some("nmcli connection modify 7 +ipv4.addresses 192.0.2.20/32")
        );
        write(
            root,
            profile,
            "[connection]\nuuid=7\n[ipv4]\naddress1=10.0.0.1/24\naddress2=192.0.2.20/32\n",
        );
        assert!(network_manager(&held("eth0"), root).is_none());
        write(
            root,
            profile,
            "[connection]\nuuid=7\n[.nmmeta]\nexternal=true\n",
        );
        assert!(network_manager(&held("eth0"), root).is_none());
    }
}
