//! Selects XDP or tc for a device, depending on whether its packets may have partial checksums.

use std::collections::BTreeSet;

use weir_dataplane::Mode;
use weir_model::Attach;
use weir_sys::ethtool;

use super::Network;

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
        let is_software = || self.partial_checksum_reason(ifindex).is_some();
        plan(attach, is_software, || {
            self.paravirtual_driver(ifindex).is_some()
        })
    }

    /// Returns why packets from this device may have partial checksums; `None` = they do not.
    pub(crate) fn partial_checksum_reason(&self, ifindex: u32) -> Option<String> {
        let below = self.devices_below(ifindex);
        // The device itself comes first.
        let device_and_below = std::iter::once(&ifindex).chain(&below);
        let mut links = device_and_below.filter_map(|index| self.state.links.get(index));
        let found = links.find(|link| link.is_software())?;
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
            is_paravirtual(&driver).then_some(driver)
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
                format!("the driver rejects native XDP{device}")
            }
            (_, Mode::Native, _) => "the driver supports native XDP".to_owned(),
            (_, Mode::Generic, _) => "the driver does not support native XDP".to_owned(),
        }
    }

    /// Returns whether XDP must leave packets with partial checksums to tc: a device with native XDP may receive such
    /// packets, and no device has generic XDP, whose metadata does not reach tc on a bridge. The result applies to all
    /// devices.
    pub(crate) fn xdp_receives_partial_checksums(&self) -> bool {
        let generic = self.attached.values().any(|mode| *mode == Mode::Generic);
        let native = (self.attached.iter()).filter(|(_, mode)| **mode == Mode::Native);
        let native = native.map(|(ifindex, _)| ifindex);
        let mut native = native.chain(&self.expected_native);
        !generic && native.any(|ifindex| self.partial_checksum_reason(*ifindex).is_some())
    }

    /// Records the devices that the packet path and native XDP are about to be attached to, so the settings are correct
    /// for the first packet.
    pub(crate) fn expect_attached(&mut self, devices: &BTreeSet<u32>, attach: Attach) {
        let plan = |ifindex: &&u32| self.plan_for(**ifindex, attach) == Plan::Xdp;
        let xdp: BTreeSet<u32> = devices.iter().filter(plan).copied().collect();
        let native = |ifindex| {
            self.xdp_features
                .get(ifindex)
                .is_some_and(|it| it.can_run_in_driver())
        };
        let all_native = xdp.iter().all(native);
        self.expected_native = if all_native { xdp } else { BTreeSet::new() };
        self.expected.clone_from(devices);
    }
}

/// Returns the hooks to try on a device. `is_software` returns whether its packets may come from a network stack of
/// this machine, `is_paravirtual` whether its driver is in `PARAVIRTUAL_DRIVERS`.
fn plan(
    attach: Attach,
    is_software: impl FnOnce() -> bool,
    is_paravirtual: impl FnOnce() -> bool,
) -> Plan {
    match attach {
        Attach::Tc => Plan::Tc,
        Attach::Xdp => Plan::Xdp,
        Attach::Auto if is_software() => Plan::Tc,
        Attach::Auto if is_paravirtual() => Plan::NativeOrTc,
        Attach::Auto => Plan::Xdp,
    }
}

/// Returns whether a driver's peer may be a network stack on the same machine, as in virtual machines:
/// `attach = "auto"` selects tc where this driver does not accept native XDP.
pub fn is_paravirtual(driver: &str) -> bool {
    PARAVIRTUAL_DRIVERS.contains(&driver)
}

fn partial_checksum_text(device: &str) -> String {
    format!("{device}: packets may carry partial checksums")
}

#[cfg(test)]
mod tests {
    use weir_netlink::Link;

    use super::*;

    fn link(index: u32, kind: Option<&str>) -> Link {
        Link {
            index,
            name: format!("dev{index}"),
            kind: kind.map(str::to_owned),
            mac: None,
            mtu: 1500,
            up: true,
            carrier: true,
            loopback: false,
            master: None,
            lower: None,
            vlan: None,
        }
    }

    fn above(lower: u32, link: Link) -> Link {
        Link {
            lower: Some(lower),
            ..link
        }
    }

    fn port_of(master: u32, link: Link) -> Link {
        Link {
            master: Some(master),
            ..link
        }
    }

    fn loopback(link: Link) -> Link {
        Link {
            loopback: true,
            ..link
        }
    }

    /// For each device: its driver, and the hooks with `auto`.
    #[tokio::test]
    async fn attach_mode_follows_device_and_driver() {
        let cases = [
            (loopback(link(1, None)), None, Plan::Tc),
            (link(2, Some("veth")), Some("veth"), Plan::Tc),
            (link(3, Some("bridge")), Some("bridge"), Plan::Tc),
            (link(4, Some("tun")), Some("tun"), Plan::Tc),
            (link(5, Some("dummy")), Some("dummy"), Plan::Tc),
            (
                above(2, link(6, Some("vlan"))),
                Some("802.1Q VLAN Support"),
                Plan::Tc,
            ),
            (
                above(10, link(7, Some("macvlan"))),
                Some("macvlan"),
                Plan::Tc,
            ),
            (link(8, Some("bond")), Some("bonding"), Plan::Tc),
            (port_of(8, link(9, Some("veth"))), Some("veth"), Plan::Tc),
            (link(10, None), Some("ixgbe"), Plan::Xdp),
            (link(11, None), None, Plan::Xdp),
            (
                above(10, link(12, Some("vlan"))),
                Some("802.1Q VLAN Support"),
                Plan::Xdp,
            ),
            (link(13, Some("bond")), Some("bonding"), Plan::Xdp),
            (port_of(13, link(14, None)), Some("mlx5_core"), Plan::Xdp),
            (link(15, None), Some("virtio_net"), Plan::NativeOrTc),
            (link(16, None), Some("vmxnet3"), Plan::NativeOrTc),
            (link(17, None), Some("hv_netvsc"), Plan::NativeOrTc),
            (link(18, None), Some("vif"), Plan::NativeOrTc),
        ];
        let mut network = Network::open().expect("open a netlink socket");
        let links = cases.iter().map(|(link, ..)| (link.index, link.clone()));
        network.state.links = links.collect();
        for (link, driver, expected) in cases {
            let reason = network.partial_checksum_reason(link.index);
            for (attach, expected) in [
                (Attach::Auto, expected),
                (Attach::Xdp, Plan::Xdp),
                (Attach::Tc, Plan::Tc),
            ] {
                let actual = plan(
                    attach,
                    || reason.is_some(),
                    || driver.is_some_and(is_paravirtual),
                );
                assert_eq!(actual, expected, "{attach:?} {driver:?} {link:?}");
            }
        }
    }
}
