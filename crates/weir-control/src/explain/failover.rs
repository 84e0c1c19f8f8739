//! Describes the effect of a failover on a connection. `weir check` uses the same rule ([`Desired::can_move_vip`]).

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_model::{Desired, Protocol, Service};

use super::Packet;

/// Describes what happens to a packet's connection if another director with the same configuration file takes over the
/// VIP. Returns `None` if the packet is not TCP, if the service's forwarding method does not handle packets, or if no
/// other director can take over the VIP. `floating_ips` returns the addresses that virtual routers, keepalived and
/// Pacemaker manage.
pub(crate) fn describe_failover(
    packet: &Packet,
    desired: &Desired,
    service: &Service,
    floating_ips: impl FnOnce() -> BTreeSet<IpAddr>,
) -> Option<String> {
    let vip = packet.destination.ip();
    if packet.protocol != Protocol::Tcp || !service.forward.handles_packets() {
        return None;
    }
    if !desired.can_move_vip(|| floating_ips().contains(&vip)) {
        return None;
    }
    Some(match desired.failover_loss(service) {
        None if desired.sync.is_some() => format!(
            "the connection continues with the same server if another director takes over {vip}: [sync] sends the \
            flow to that director once the connection is established"
        ),
        None => format!(
            "the connection continues with the same server if another director with the same configuration takes \
            over {vip}"
        ),
        Some(reason) => {
            format!("the connection ends if another director takes over {vip}: {reason}")
        }
    })
}

#[cfg(test)]
mod tests {
    use weir_config::{Host, parse};

    use super::*;

    const POOL: &str = "[pool.p]\nservers = [\"10.0.0.5\"]\n\n\
        [service.s]\nlisten = [\"10.0.0.10:80\"]\npool = \"p\"\nforward = \"direct\"\n\n";
    const VIP_INTERFACE: &str = "[node]\nvip_interface = \"eth0\"\n\n";

    fn description(text: &str, packet: &str, floating: &[&str]) -> Option<String> {
        let desired = parse(text, &Host::default()).unwrap().desired;
        let floating = floating.iter().map(|ip| ip.parse().unwrap()).collect();
        let packet = packet.parse().unwrap();
        describe_failover(&packet, &desired, &desired.services[0], || floating)
    }

    #[test]
    fn failover_is_described_only_if_another_director_can_take_over_the_vip() {
        let packet = "tcp 10.0.0.100:4000 10.0.0.10:80";
        let single = format!("{VIP_INTERFACE}{POOL}");
        let ends = "the connection ends if another director takes over 10.0.0.10: the servers selected by `wlc` are \
                    only stored on this director";
        let sync = "[sync]\nlisten = \"10.1.0.1:8482\"\npeers = [\"10.1.0.2:8482\"]\nkey = \"1234567890123456\"\n";
        let announce = "[announce]\nspeaker = \"bird\"\n";
        assert_eq!(description(&single, packet, &[]), None);
        // Another program may move an address that Weir does not add.
        assert_eq!(description(POOL, packet, &[]).as_deref(), Some(ends));
        let floating = description(&single, packet, &["10.0.0.10"]);
        assert_eq!(floating.as_deref(), Some(ends));
        assert_eq!(description(&single, packet, &["10.0.0.11"]), None);
        let udp = packet.replace("tcp", "udp");
        assert_eq!(description(&single, &udp, &["10.0.0.10"]), None);
        let announced = description(&format!("{single}{announce}"), packet, &[]);
        assert_eq!(announced.as_deref(), Some(ends));
        let continues = description(&format!("{single}{sync}"), packet, &[]);
        assert!(continues.is_some_and(|text| text.contains("continues with the same server")));
    }
}
