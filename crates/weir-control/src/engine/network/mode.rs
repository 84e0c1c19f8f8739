//! Where on a device the packet path runs: under XDP or at tc, and where packets may come with unfinished checksums.

use weir_dataplane::Mode;
use weir_model::Attach;
use weir_netlink::Link;
use weir_sys::ethtool;

use super::Network;

/// Kinds of devices whose packets come from a stack of this machine, which leaves checksums to hardware that is not there.
/// Bonds, teams and VLANs are what is below them.
const SOFTWARE: [&str; 14] = [
    "bridge",
    "dummy",
    "geneve",
    "gretap",
    "ifb",
    "ip6gretap",
    "ipvlan",
    "ipvtap",
    "macvlan",
    "macvtap",
    "netkit",
    "tun",
    "veth",
    "vxlan",
];

/// Drivers whose other side may be such a stack. Where XDP can be attached, it has agreed on whole checksums.
const PARAVIRTUAL: [&str; 4] = ["hv_netvsc", "virtio_net", "vif", "vmxnet3"];

/// What is to be tried on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Plan {
    /// tc.
    Tc,
    /// Native XDP, else generic.
    Xdp,
    /// Native XDP, else tc.
    NativeOrTc,
}

impl Network {
    /// Where the path shall run on a device.
    pub(in crate::engine) fn plan_for(&self, ifindex: u32, attach: Attach) -> Plan {
        match attach {
            Attach::Tc => Plan::Tc,
            Attach::Xdp => Plan::Xdp,
            Attach::Auto if self.is_paravirtual(ifindex) => Plan::NativeOrTc,
            Attach::Auto => Plan::Xdp,
        }
    }

    /// Why packets that come in there may carry unfinished checksums; `None` = they do not.
    pub(in crate::engine) fn unfinished(&self, ifindex: u32) -> Option<String> {
        let below = self.below(ifindex);
        let mut links = below.iter().filter_map(|at| self.state.links.get(at));
        let found = links.find(|link| is_software(link))?;
        let kind = found.kind.as_deref().unwrap_or("loopback");
        let on = if found.index == ifindex {
            String::new()
        } else {
            format!(" on {}", found.name)
        };
        Some(format!(
            "{kind}{on}: packets may carry unfinished checksums"
        ))
    }

    fn is_paravirtual(&self, ifindex: u32) -> bool {
        let Some(name) = self.name_of(ifindex) else {
            return false;
        };
        let driver = self.netlink.inside(|| ethtool::driver(name));
        driver.is_ok_and(|driver| driver.is_ok_and(|it| PARAVIRTUAL.contains(&it.as_str())))
    }

    /// Why the path runs there as it does.
    pub(in crate::engine) fn why(&self, ifindex: u32, mode: Mode, attach: Attach) -> String {
        let why = match (attach, mode) {
            (Attach::Tc, Mode::Tc) => "attach = \"tc\"",
            (Attach::Xdp, _) => "attach = \"xdp\"",
            (_, Mode::Tc) => "the driver refuses XDP",
            (_, Mode::Native) => "the driver has XDP",
            (_, Mode::Generic) => "the driver has no XDP",
        };
        match self.unfinished(ifindex) {
            Some(device) if mode == Mode::Native && self.leaves_unfinished() => {
                format!("{why}; {device}, which go to tc")
            }
            _ => why.to_owned(),
        }
    }

    /// Whether XDP leaves packets with unfinished checksums to tc, on all devices alike. Generic XDP must not: what it says about
    /// a packet does not reach tc on a bridge.
    pub(in crate::engine) fn leaves_unfinished(&self) -> bool {
        let generic = self.attached.values().any(|mode| *mode == Mode::Generic);
        let mut native = (self.attached.iter()).filter(|(_, mode)| **mode == Mode::Native);
        !generic && native.any(|(ifindex, _)| self.unfinished(*ifindex).is_some())
    }
}

fn is_software(link: &Link) -> bool {
    link.loopback
        || link
            .kind
            .as_deref()
            .is_some_and(|kind| SOFTWARE.contains(&kind))
}
