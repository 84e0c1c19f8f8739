//! Finds services whose connections are lost when another director takes over their VIP.
//!
//! A service is reported if another director can take over its VIP ([`Desired::can_move_vip`]). Floating IPs are
//! addresses that a virtual router in the configuration, or keepalived or Pacemaker on this machine, moves between
//! directors.

use std::collections::BTreeSet;
use std::fs;
use std::io::ErrorKind;
use std::net::IpAddr;

use weir_model::{Desired, FailoverLoss, Protocol, Source, VirtualRouter};

use super::keepalived::read_keepalived;

/// The file that defines Pacemaker's resources.
const PACEMAKER_CIB: &str = "/var/lib/pacemaker/cib/cib.xml";

/// A service whose connections are lost on a failover.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FailoverFinding {
    /// The service's name.
    pub service: String,
    /// The VIP.
    pub address: IpAddr,
    /// Where the service is configured.
    pub source: Source,
    /// Why its connections are lost.
    pub reason: FailoverLoss,
}

impl FailoverFinding {
    /// Returns a one-line description of the finding.
    pub fn message(&self) -> String {
        format!(
            "connections to service {} are lost when another director takes over {}",
            self.service, self.address
        )
    }

    /// Returns how to keep the connections.
    pub const fn fix() -> &'static str {
        "configure `[sync]`, so that directors exchange their flows; or use `scheduler = \"maglev\"` with `direct`, \
         `tunnel` or `l3dsr`, so that directors with the same file select the same servers"
    }
}

/// Returns each service whose connections are lost on a failover. No service is returned twice.
pub fn failover_findings(desired: &Desired) -> Vec<FailoverFinding> {
    if desired.services.is_empty() {
        return Vec::new();
    }
    find_failover_losses(desired, &floating_ips(desired))
}

/// Returns the floating IPs: the addresses of virtual routers, and the addresses in keepalived's and Pacemaker's files
/// on this machine. On a standby director, they are not on any interface.
pub fn floating_ips(desired: &Desired) -> BTreeSet<IpAddr> {
    let mut floating = read_keepalived().addresses;
    let managed = desired
        .vrrp
        .iter()
        .flat_map(VirtualRouter::managed_addresses);
    floating.extend(managed.map(|network| network.address));
    floating.extend(pacemaker_addresses(
        &fs::read_to_string(PACEMAKER_CIB).unwrap_or_default(),
    ));
    floating
}

/// Returns whether this process can read the files from which [`floating_ips`] reads addresses. A missing file counts
/// as readable. A daemon without privileges may be unable to read the files.
pub(super) fn knows_floating_ips() -> bool {
    let knows_pacemaker = match fs::File::open(PACEMAKER_CIB) {
        Ok(_) => true,
        Err(error) => error.kind() == ErrorKind::NotFound,
    };
    knows_pacemaker && read_keepalived().are_readable
}

/// Returns each layer 4 service with TCP connections that are lost on a failover. Local clients of `socket` connect
/// directly to the servers, so no failover affects them.
fn find_failover_losses(desired: &Desired, floating: &BTreeSet<IpAddr>) -> Vec<FailoverFinding> {
    let services = desired.services.iter();
    let services = services.filter(|service| service.forward.handles_packets());
    let found = services.filter_map(|service| {
        let listeners = service.listen.iter();
        let tcp = listeners.filter(|listener| listener.protocol == Protocol::Tcp);
        let mut addresses = tcp.map(|listener| listener.address);
        Some(FailoverFinding {
            address: addresses
                .find(|address| desired.can_move_vip(|| floating.contains(address)))?,
            reason: desired.failover_loss(service)?,
            service: service.name.clone(),
            source: service.source,
        })
    });
    found.collect()
}

/// Returns the addresses that are values of XML attributes.
fn pacemaker_addresses(text: &str) -> BTreeSet<IpAddr> {
    let values = text.split(['"', '\'']);
    values.filter_map(|value| value.parse().ok()).collect()
}

#[cfg(test)]
mod tests {
    use weir_config::{Host, parse};

    use super::*;
    use crate::configuration::Finding;
    use crate::configuration::keepalived::addresses as keepalived_addresses;

    #[test]
    fn failover_note_is_shown_once_per_service_that_loses_connections() {
        let keepalived = "vrrp_instance a {\n  virtual_ipaddress {\n\
            \x20   192.0.2.1/32 dev eth0 # 192.0.2.9\n    192.0.2.2\n  }\n}\n";
        let text = "[pool.p]\nservers = [\"10.0.0.5\"]\n\n\
            [pool.m]\nscheduler = \"maglev\"\nservers = [\"10.0.0.5\"]\n\n\
            [service.a]\nforward = \"direct\"\npool = \"p\"\nlisten = [\"192.0.2.1:80\", \"192.0.2.2:80\"]\n\n\
            [service.b]\nforward = \"nat\"\npool = \"m\"\nlisten = [\"192.0.2.2:81\"]\n\n\
            [service.c]\nforward = \"direct\"\npool = \"m\"\nlisten = [\"192.0.2.1:82\"]\n\n\
            [service.d]\nforward = \"direct\"\npool = \"p\"\nlisten = [\"192.0.2.9:80\"]\n\n\
            [node]\nvip_interface = \"eth0\"\n";
        let desired = parse(text, &Host::default()).unwrap().desired;
        let losses = find_failover_losses(&desired, &keepalived_addresses(keepalived));
        let notes: String = losses
            .iter()
            .map(|finding| Finding::from_failover(finding, "weir.toml").render())
            .collect();
        insta::assert_snapshot!(notes);
        let key = "1234567890123456";
        let sync = format!(
            "\n[sync]\nlisten = \"10.1.0.1:8482\"\npeers = [\"10.1.0.2:8482\"]\nkey = \"{key}\"\n"
        );
        let synchronized = parse(&(text.to_owned() + &sync), &Host::default())
            .unwrap()
            .desired;
        assert_eq!(
            find_failover_losses(&synchronized, &keepalived_addresses(keepalived)),
            []
        );
        let pacemaker = "<nvpair name=\"ip\" value=\"192.0.2.9\" id=\"vip-ip\"/>";
        assert_eq!(
            find_failover_losses(&desired, &pacemaker_addresses(pacemaker)).len(),
            1
        );
    }

    #[test]
    fn losses_are_reported_only_if_another_director_can_take_over_the_vip() {
        let unmanaged = "[pool.p]\nservers = [\"10.0.0.5\"]\n\n[service.s]\nlisten = [\"10.0.0.10:80\"]\npool = \"p\"\n\
            forward = \"direct\"\n\n";
        let single = format!("[node]\nvip_interface = \"eth0\"\n\n{unmanaged}");
        let announce = "[announce]\nspeaker = \"bird\"\n";
        let sync = "[sync]\nlisten = \"10.1.0.1:8482\"\npeers = [\"10.1.0.2:8482\"]\nkey = \"1234567890123456\"\n";
        let maglev = single.replace("[pool.p]\n", "[pool.p]\nscheduler = \"maglev\"\n");
        let udp = unmanaged.replace("10.0.0.10:80", "udp/10.0.0.10:80");
        let socket = unmanaged.replace("direct", "socket");
        for (text, floating, is_lost) in [
            (single.clone(), None, false),
            (single.clone(), Some("10.0.0.10"), true),
            (single.clone(), Some("10.0.0.11"), false),
            // An operator may move an address that Weir does not add.
            (unmanaged.to_owned(), None, true),
            (format!("{single}{announce}"), None, true),
            (format!("{single}{sync}"), Some("10.0.0.10"), false),
            (format!("{maglev}{announce}"), None, false),
            (udp, None, false),
            (socket, None, false),
        ] {
            let desired = parse(&text, &Host::default()).unwrap().desired;
            let floating = floating.iter().map(|ip| ip.parse().unwrap()).collect();
            let losses = find_failover_losses(&desired, &floating);
            assert_eq!(!losses.is_empty(), is_lost, "{text}");
        }
    }

    #[test]
    fn virtual_router_addresses_are_floating_ips() {
        let text = "[vrrp.a]\ninterface = \"eth0\"\nvirtual_router_id = 1\n\
            addresses = [\"192.0.2.1/24\"]\nexcluded_addresses = [\"2001:db8::1\"]\n";
        let desired = parse(text, &Host::default()).unwrap().desired;
        let floating = floating_ips(&desired);
        for vip in ["192.0.2.1", "2001:db8::1"] {
            let vip = vip.parse().unwrap();
            assert!(
                floating.contains(&vip) && desired.is_vrrp_address(vip),
                "{vip}"
            );
        }
    }
}
