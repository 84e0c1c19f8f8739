//! Where on a device the packet path runs: under XDP or at tc, and where packets may come with unfinished checksums.

use weir_dataplane::Mode;
use weir_model::Attach;
use weir_netlink::Link;
use weir_sys::ethtool;

use super::Network;

/// Kinds of devices whose packets come from a stack of this machine, which leaves checksums to hardware that is not there.
/// Bonds, teams and VLANs are what is below them.
const SOFTWARE: [&str; 17] = [
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

/// Drivers whose other side may be such a stack. Where XDP can be attached, it has agreed on whole checksums.
const PARAVIRTUAL: [&str; 4] = ["hv_netvsc", "virtio_net", "vif", "vmxnet3"];

/// What is to be tried on a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::engine) enum Plan {
    /// tc.
    Tc,
    /// Native XDP, else generic.
    Xdp,
    /// Native XDP, else tc: generic XDP could not leave packets to it.
    NativeOrTc,
}

impl Network {
    /// Where the path shall run on a device.
    pub(in crate::engine) fn plan_for(&self, ifindex: u32, attach: Attach) -> Plan {
        match attach {
            Attach::Tc => Plan::Tc,
            Attach::Xdp => Plan::Xdp,
            Attach::Auto if !self.may_be_unfinished(ifindex) => Plan::Xdp,
            Attach::Auto if self.is_next_to_generic(ifindex) => Plan::Tc,
            Attach::Auto => Plan::NativeOrTc,
        }
    }

    /// Whether packets that come in there may carry unfinished checksums, as long as XDP does not keep the driver from it.
    pub(in crate::engine) fn may_be_unfinished(&self, ifindex: u32) -> bool {
        self.unfinished(ifindex).is_some() || self.paravirtual(ifindex).is_some()
    }

    /// Whether native XDP there could not leave packets to tc, because XDP is generic on a device whose hardware has none.
    fn is_next_to_generic(&self, ifindex: u32) -> bool {
        let generic = (self.attached.iter()).filter(|(_, mode)| **mode == Mode::Generic);
        let mut others = generic.filter(|(other, _)| **other != ifindex);
        self.unfinished(ifindex).is_some()
            && others.any(|(other, _)| !self.may_be_unfinished(*other))
    }

    /// Why packets that come in there may carry unfinished checksums; `None` = they do not.
    pub(in crate::engine) fn unfinished(&self, ifindex: u32) -> Option<String> {
        let below = self.below(ifindex);
        // The device itself comes first.
        let in_turn = std::iter::once(&ifindex).chain(&below);
        let mut links = in_turn.filter_map(|at| self.state.links.get(at));
        let found = links.find(|link| is_software(link))?;
        let kind = found.kind.as_deref().unwrap_or("loopback");
        let on = if found.index == ifindex {
            String::new()
        } else {
            format!(" on {}", found.name)
        };
        Some(carrying(&format!("{kind}{on}")))
    }

    /// The driver, there or below, whose other side may be such a stack.
    fn paravirtual(&self, ifindex: u32) -> Option<String> {
        let below = self.below(ifindex);
        let mut names = below.iter().filter_map(|at| self.name_of(*at));
        names.find_map(|name| {
            let driver = self.netlink.inside(|| ethtool::driver(name)).ok()?.ok()?;
            PARAVIRTUAL.contains(&driver.as_str()).then_some(driver)
        })
    }

    /// Why the path runs there as it does.
    pub(in crate::engine) fn why(&self, ifindex: u32, mode: Mode, attach: Attach) -> String {
        let why = match (attach, mode) {
            (Attach::Tc, Mode::Tc) => "attach = \"tc\"",
            (Attach::Xdp, _) => "attach = \"xdp\"",
            (_, Mode::Tc) if self.is_next_to_generic(ifindex) => {
                "XDP is generic on another interface"
            }
            (_, Mode::Tc) => "the driver has no XDP",
            (_, Mode::Native) => "the driver has XDP",
            (_, Mode::Generic) => "the driver has no XDP",
        };
        let device = self.unfinished(ifindex);
        match (device, mode) {
            (Some(device), Mode::Native) if self.leaves_unfinished() => {
                format!("{why}; {device}, which go to tc")
            }
            (device, Mode::Tc) if attach == Attach::Auto => {
                let device = device.or_else(|| Some(carrying(&self.paravirtual(ifindex)?)));
                device.map_or_else(|| why.to_owned(), |device| format!("{why}; {device}"))
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

fn carrying(device: &str) -> String {
    format!("{device}: packets may carry unfinished checksums")
}

fn is_software(link: &Link) -> bool {
    link.loopback
        || link
            .kind
            .as_deref()
            .is_some_and(|kind| SOFTWARE.contains(&kind))
}
