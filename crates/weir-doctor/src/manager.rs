//! Reports VIPs that systemd-networkd or NetworkManager will remove.
//!
//! When these programs reapply a device's configuration (`networkctl reconfigure`, `netplan apply`, `nmcli device
//! reapply`, or activating a connection), they remove addresses that they did not add.
//!
//! The following was observed with networkd 252 and 257 and NetworkManager 1.42. Addresses on `lo` are kept, unless
//! there is a NetworkManager profile or, with networkd 257, a network file for `lo`. ARP and `rp_filter` sysctls are
//! kept on every device. networkd 257 also removes addresses when it starts. Only processes in this network namespace
//! are relevant.

use std::fs;
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use crate::Diagnosis;

/// Process names of the network managers, as truncated by the kernel (`TASK_COMM_LEN`).
const NETWORKD: &str = "systemd-network";
const NETWORK_MANAGER: &str = "NetworkManager";

/// Directories of networkd's files. The drop-ins of `NAME` are in `NAME.d` in any of these directories.
const NETWORK_DIRECTORIES: [&str; 4] = [
    "etc/systemd/network",
    "run/systemd/network",
    "usr/lib/systemd/network",
    "lib/systemd/network",
];

/// Directories of NetworkManager's connection profiles.
const PROFILE_DIRECTORIES: [&str; 3] = [
    "etc/NetworkManager/system-connections",
    "run/NetworkManager/system-connections",
    "usr/lib/NetworkManager/system-connections",
];

const CONSEQUENCE: &str = "it removes addresses that are not in its configuration when it reapplies the configuration \
    of the device";

/// The consequence for `lo`, whose addresses networkd 252 keeps.
const LO_CONSEQUENCE: &str = "networkd 257 removes addresses that are not in its configuration from lo too, when it \
    starts or reapplies the configuration";

/// A VIP on a device.
#[derive(Clone, Debug)]
pub struct AssignedVip {
    /// The VIP.
    pub vip: IpAddr,
    /// The prefix length.
    pub prefix: u8,
    /// The interface's index.
    pub ifindex: u32,
    /// The interface's name.
    pub device: String,
}

/// Reports VIPs that a network manager will remove.
pub fn removed_vips(assigned_vips: &[AssignedVip]) -> Vec<Diagnosis> {
    let root = Path::new("/");
    let (networkd_runs, network_manager_runs) = (is_running(NETWORKD), is_running(NETWORK_MANAGER));
    let mut findings = Vec::new();
    for vip in assigned_vips {
        if networkd_runs {
            findings.extend(check_networkd(vip, root));
        }
        if network_manager_runs {
            findings.extend(check_network_manager(vip, root));
        }
    }
    findings
}

/// Returns whether a process with this name runs in the calling thread's network namespace.
fn is_running(name: &str) -> bool {
    let Ok(current) = fs::read_link("/proc/thread-self/ns/net") else {
        return false;
    };
    let Ok(processes) = fs::read_dir("/proc") else {
        return false;
    };
    processes.flatten().any(|process| {
        let path = process.path();
        fs::read_to_string(path.join("comm")).is_ok_and(|comm| comm.trim_end() == name)
            && fs::read_link(path.join("ns/net")).is_ok_and(|namespace| namespace == current)
    })
}

/// Returns the values of a key in lines of the form `key=value`, in order.
fn values<'a>(text: &'a str, key: &'a str) -> impl Iterator<Item = &'a str> {
    text.lines().filter_map(move |line| {
        let (name, value) = line.split_once('=')?;
        (name.trim() == key).then_some(value.trim())
    })
}

/// Returns whether a list of addresses with prefix lengths contains an address.
fn contains(list: &str, vip: IpAddr) -> bool {
    list.split([',', ';', ' ']).any(|word| {
        let address = word.split('/').next().unwrap_or_default();
        address.parse() == Ok(vip)
    })
}

fn check_networkd(assigned_vip: &AssignedVip, root: &Path) -> Option<Diagnosis> {
    let AssignedVip {
        vip,
        ifindex,
        device,
        ..
    } = assigned_vip;
    let state = fs::read_to_string(root.join(format!("run/systemd/netif/links/{ifindex}"))).ok()?;
    let file = PathBuf::from(values(&state, "NETWORK_FILE").next()?);
    let name = file.file_name()?.to_str()?;
    let mut text = fs::read_to_string(root.join(file.strip_prefix("/").ok()?)).unwrap_or_default();
    for path in drop_ins(root, name) {
        text += "\n";
        text += &fs::read_to_string(path).unwrap_or_default();
    }
    let keep = values(&text, "KeepConfiguration").last();
    let keeps_addresses = matches!(keep, Some("static" | "yes" | "true" | "on" | "1"));
    if keeps_addresses || values(&text, "Address").any(|list| contains(list, *vip)) {
        return None;
    }
    let directory = format!("/etc/systemd/network/{name}.d");
    Some(
        Diagnosis::new(
            format!(
                "systemd-networkd manages {device}, which has the VIP {vip}; its file {} does not list the VIP",
                file.display()
            ),
            if device == "lo" {
                LO_CONSEQUENCE.to_owned()
            } else {
                format!("{CONSEQUENCE}; networkd 257 also removes them when it starts")
            },
        )
        .fix(format!(
            "mkdir -p {directory} && printf '[Network]\\nKeepConfiguration=static\\n' > {directory}/60-weir.conf && \
             networkctl reload"
        )),
    )
}

/// Returns the drop-ins of a network file in the order in which networkd reads them: sorted by name. A file in an
/// earlier directory replaces files of the same name in later directories.
fn drop_ins(root: &Path, name: &str) -> Vec<PathBuf> {
    let mut by_name = std::collections::BTreeMap::new();
    for directory in NETWORK_DIRECTORIES {
        let entries = fs::read_dir(root.join(directory).join(format!("{name}.d")));
        for entry in entries.into_iter().flatten().flatten() {
            by_name.entry(entry.file_name()).or_insert(entry.path());
        }
    }
    by_name.into_values().collect()
}

fn check_network_manager(assigned_vip: &AssignedVip, root: &Path) -> Option<Diagnosis> {
    let AssignedVip {
        vip,
        prefix,
        ifindex,
        device,
    } = assigned_vip;
    let state =
        fs::read_to_string(root.join(format!("run/NetworkManager/devices/{ifindex}"))).ok()?;
    if values(&state, "managed").next() != Some("true") {
        return None;
    }
    let uuid = values(&state, "connection-uuid").next()?;
    let profile = profile(root, uuid).unwrap_or_default();
    // NetworkManager generated this profile from an external configuration and does not apply it.
    if values(&profile, "external").any(|value| value == "true") {
        return None;
    }
    let mut lines = profile
        .lines()
        .filter(|line| line.trim().starts_with("address"));
    if lines.any(|line| {
        line.split_once('=')
            .is_some_and(|(_, list)| contains(list.trim(), *vip))
    }) {
        return None;
    }
    let family = if vip.is_ipv4() { "ipv4" } else { "ipv6" };
    Some(
        Diagnosis::new(
            format!(
                "NetworkManager manages {device}, which has the VIP {vip}; its connection {uuid} does not list the VIP"
            ),
            format!(
                "{CONSEQUENCE}. If keepalived or Pacemaker moves the VIP, do not add it to the connection; set the \
                 device to unmanaged instead (nmcli device set {device} managed no)"
            ),
        )
        .fix(format!(
            "nmcli connection modify {uuid} +{family}.addresses {vip}/{prefix}"
        )),
    )
}

/// Returns the text of the connection profile with this UUID, or `None` if it is not found.
fn profile(root: &Path, uuid: &str) -> Option<String> {
    for directory in PROFILE_DIRECTORIES {
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

    fn assigned_vip(device: &str) -> AssignedVip {
        AssignedVip {
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

    /// A temporary root directory.
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
        assert!(check_networkd(&assigned_vip("eth0"), root).is_none());
        let state = "run/systemd/netif/links/3";
        write(root, state, "ADMIN_STATE=unmanaged\n");
        assert!(check_networkd(&assigned_vip("eth0"), root).is_none());
        let file = "etc/systemd/network/10-eth0.network";
        let line = format!("ADMIN_STATE=configured\nNETWORK_FILE=/{file}\n");
        write(root, state, &line);
        write(root, file, "[Network]\nAddress = 10.0.0.1/24\n");
        let finding = check_networkd(&assigned_vip("eth0"), root).unwrap();
        assert!(
            finding
                .fix
                .unwrap()
                .contains("/10-eth0.network.d/60-weir.conf")
        );
        let lo_finding = check_networkd(&assigned_vip("lo"), root).unwrap();
        assert!(lo_finding.consequence.contains("from lo too"));
        write(
            root,
            file,
            "[Network]\nAddress=10.0.0.1/24\nAddress=192.0.2.20/32\n",
        );
        assert!(check_networkd(&assigned_vip("eth0"), root).is_none());
        write(root, file, "[Network]\nKeepConfiguration=no\n");
        assert!(check_networkd(&assigned_vip("eth0"), root).is_some());
        let drop_in = "run/systemd/network/10-eth0.network.d/a.conf";
        write(root, drop_in, "[Network]\nKeepConfiguration=static\n");
        assert!(check_networkd(&assigned_vip("eth0"), root).is_none());
    }

    #[test]
    fn vips_that_network_manager_removes_are_reported() {
        let root = Root::new("manager");
        let root = root.0.as_path();
        let state = "run/NetworkManager/devices/3";
        write(root, state, "[device]\nmanaged=false\nconnection-uuid=7\n");
        assert!(check_network_manager(&assigned_vip("eth0"), root).is_none());
        write(root, state, "[device]\nmanaged=true\nconnection-uuid=7\n");
        let profile = "etc/NetworkManager/system-connections/x.nmconnection";
        write(
            root,
            profile,
            "[connection]\nuuid=7\n[ipv4]\naddress1=10.0.0.1/24\n",
        );
        let finding = check_network_manager(&assigned_vip("eth0"), root).unwrap();
        assert_eq!(
            finding.fix.as_deref(),
            Some("nmcli connection modify 7 +ipv4.addresses 192.0.2.20/32")
        );
        write(
            root,
            profile,
            "[connection]\nuuid=7\n[ipv4]\naddress1=10.0.0.1/24\naddress2=192.0.2.20/32\n",
        );
        assert!(check_network_manager(&assigned_vip("eth0"), root).is_none());
        write(
            root,
            profile,
            "[connection]\nuuid=7\n[.nmmeta]\nexternal=true\n",
        );
        assert!(check_network_manager(&assigned_vip("eth0"), root).is_none());
    }
}
