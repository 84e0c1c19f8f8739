//! Selects XDP or tc for a device, depending on whether its packets may have partial checksums.

use std::collections::BTreeSet;

use weir_dataplane::Mode;
use weir_model::Attach;
use weir_netlink::Link;
use weir_sys::ethtool;

use super::Network;

/// Kinds of devices that receive packets from a network stack on this machine, which leaves checksums to hardware that
/// does not exist. Bonds, teams and VLANs depend on their lower devices.
const SOFTWARE_KINDS: [&str; 17] = [
    "bridge",
    "dummy",
    "erspan",
    "geneve",
    "gretap",
    "ifb",
    "ip6erspan",
    "ip6gretap",
    "ipvlan",
    "ipvtap",
    "macvlan",
    "macvtap",
    "netkit",
    "openvswitch",
    "tun",
    "veth",
    "vxlan",
];

/// Drivers whose peer may be a network stack on the same machine. If XDP can be attached, the driver has negotiated
/// complete checksums.
const PARAVIRTUAL_DRIVERS: [&str; 4] = ["hv_netvsc", "virtio_net", "vif", "vmxnet3"];

/// The hooks to try on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Plan {
    /// tc.
    Tc,
    /// Native XDP, otherwise generic XDP.
    Xdp,
    /// Native XDP, otherwise tc: generic XDP does not detect packets with partial checksums.
    NativeOrTc,
}

impl Network {
    /// Returns the hooks to try on a device.
    pub(crate) fn plan_for(&self, ifindex: u32, attach: Attach) -> Plan {
        match attach {
            Attach::Tc => Plan::Tc,
            Attach::Xdp => Plan::Xdp,
            Attach::Auto if self.partial_checksum_reason(ifindex).is_some() => Plan::Tc,
            Attach::Auto if self.paravirtual_driver(ifindex).is_some() => Plan::NativeOrTc,
            Attach::Auto => Plan::Xdp,
        }
    }

    /// Returns why packets from this device may have partial checksums; `None` = they do not.
    pub(crate) fn partial_checksum_reason(&self, ifindex: u32) -> Option<String> {
        let below = self.devices_below(ifindex);
        // The device itself comes first.
        let device_and_below = std::iter::once(&ifindex).chain(&below);
        let mut links = device_and_below.filter_map(|index| self.state.links.get(index));
        let found = links.find(|link| is_software(link))?;
        let kind = found.kind.as_deref().unwrap_or("loopback");
        let suffix = if found.index == ifindex {
            String::new()
        } else {
            format!(" on {}", found.name)
        };
        Some(partial_checksum_text(&format!("{kind}{suffix}")))
    }

    /// Returns the driver of the device or of a lower device, if it is in `PARAVIRTUAL_DRIVERS`.
    fn paravirtual_driver(&self, ifindex: u32) -> Option<String> {
        let below = self.devices_below(ifindex);
        let mut names = below.iter().filter_map(|index| self.name_of(*index));
        names.find_map(|name| {
            let driver = self
                .netlink
                .run_in_namespace(|| ethtool::driver(name))
                .ok()?
                .ok()?;
            PARAVIRTUAL_DRIVERS
                .contains(&driver.as_str())
                .then_some(driver)
        })
    }

    /// Returns the reason for the selected mode.
    pub(crate) fn mode_reason(&self, ifindex: u32, mode: Mode, attach: Attach) -> String {
        let device = self.partial_checksum_reason(ifindex);
        match (attach, mode, device) {
            (Attach::Tc, Mode::Tc, _) => "attach = \"tc\"".to_owned(),
            (Attach::Xdp, Mode::Native, Some(device)) if self.xdp_receives_partial_checksums() => {
                format!("attach = \"xdp\"; {device}; such packets go to tc")
            }
            (Attach::Xdp, Mode::Generic, Some(device)) => {
                format!("attach = \"xdp\"; {device}; generic XDP cannot detect such packets")
            }
            (Attach::Xdp, ..) => "attach = \"xdp\"".to_owned(),
            (_, Mode::Tc, Some(device)) => device,
            (_, Mode::Tc, None) => {
                let driver = self
                    .paravirtual_driver(ifindex)
                    .map(|driver| partial_checksum_text(&driver));
                let device = driver.map_or_else(String::new, |driver| format!("; {driver}"));
                format!("the driver has no XDP{device}")
            }
            (_, Mode::Native, _) => "the driver has XDP".to_owned(),
            (_, Mode::Generic, _) => "the driver has no XDP".to_owned(),
        }
    }

    /// Returns whether XDP leaves packets with partial checksums to tc, on all devices. Generic XDP must not do this,
    /// because its metadata does not reach tc on a bridge.
    pub(crate) fn xdp_receives_partial_checksums(&self) -> bool {
        let generic = self.attached.values().any(|mode| *mode == Mode::Generic);
        let native = (self.attached.iter()).filter(|(_, mode)| **mode == Mode::Native);
        let native = native.map(|(ifindex, _)| ifindex);
        let mut native = native.chain(&self.expected_native);
        !generic && native.any(|ifindex| self.partial_checksum_reason(*ifindex).is_some())
    }

    /// Records the devices that the packet path and native XDP are about to be attached to, so the settings are correct
    /// for the first packet.
    pub(crate) fn expect_attached(&mut self, wanted: &BTreeSet<u32>, attach: Attach) {
        let plan = |ifindex: &&u32| self.plan_for(**ifindex, attach) == Plan::Xdp;
        let xdp: BTreeSet<u32> = wanted.iter().filter(plan).copied().collect();
        let native = |ifindex| {
            self.drivers
                .get(ifindex)
                .is_some_and(|it| it.can_run_in_driver())
        };
        let all_native = xdp.iter().all(native);
        self.expected_native = if all_native { xdp } else { BTreeSet::new() };
        self.expected.clone_from(wanted);
    }
}

fn partial_checksum_text(device: &str) -> String {
    format!("{device}: packets may carry partial checksums")
}

fn is_software(link: &Link) -> bool {
    link.loopback
        || link
            .kind
            .as_deref()
            .is_some_and(|kind| SOFTWARE_KINDS.contains(&kind))
}
