//! Finds other machines on the director's segments that reply to ARP requests or neighbor solicitations for a VIP.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::time::{Duration, Instant};

use weir_model::{Desired, Forward, Server};
use weir_netlink::{Link, NetState, Netlink, resolve};
use weir_sys::FrameSocket;
use weir_wire::{MacAddr, address_claim, address_query};

use crate::{ActivePeer, DaemonReport, Diagnosis};

/// Time limit for replies.
pub(crate) const TIMEOUT: Duration = Duration::from_millis(300);

const ETHERTYPE_ARP: u16 = 0x0806;
pub(crate) const ETHERTYPE_IPV6: u16 = 0x86dd;

/// A reply from another machine: the address in the query, and the machine's link-layer address.
pub(crate) type Claim = (IpAddr, String);

/// The findings about other machines that reply to queries for VIPs.
#[derive(Debug, Default)]
pub(crate) struct Claimants {
    pub(crate) findings: Vec<Diagnosis>,
    /// VIPs of an active director that are not in `addresses` on this machine.
    pub(crate) unlisted_vips: BTreeSet<IpAddr>,
}

/// Reports other machines that reply to queries for these VIPs. Skips VIPs in `failover_vips` that this machine does
/// not have, because the active director has them.
pub(crate) fn claimants(
    desired: &Desired,
    state: &NetState,
    (failover_vips, report): (&BTreeSet<IpAddr>, &DaemonReport),
    vips: &BTreeSet<IpAddr>,
) -> Claimants {
    let known_machines = KnownMachines {
        desired,
        state,
        failover_vips,
        report,
        servers: servers_by_mac(desired, state),
    };
    let mut found = Claimants::default();
    let is_usable = |link: &&Link| link.up && link.carrier && !link.loopback;
    for link in state.links.values().filter(is_usable) {
        let mut claims = BTreeSet::new();
        for is_ipv4 in [true, false] {
            let of_family = |address: &IpAddr| address.is_ipv4() == is_ipv4;
            let queried_vips = vips.iter().copied().filter(of_family);
            let peers = report.active_peers.iter().map(|peer| peer.address);
            let queried: Vec<IpAddr> = queried_vips.chain(peers.filter(of_family)).collect();
            if !vips.is_empty() {
                claims.extend(claims_on(link, (state, vips), &queried, TIMEOUT));
            }
        }
        known_machines.examine(&link.name, vips, &claims, &mut found);
    }
    found
}

/// Returns the replies of other machines on a device's segment to queries for `queried` that arrive within `limit`. The
/// addresses in `queried` have the same family. The source of the queries is an address of the device that is not in
/// `vips`; without such an address, or without the capability to send frames, the result is empty.
pub(crate) fn claims_on(
    link: &Link,
    (state, vips): (&NetState, &BTreeSet<IpAddr>),
    queried: &[IpAddr],
    limit: Duration,
) -> BTreeSet<Claim> {
    let mac = link.mac.map(|mac| MacAddr::new(mac.octets()));
    let is_ipv4 = queried.first().map(IpAddr::is_ipv4);
    let (Some(mac), Some(is_ipv4)) = (mac, is_ipv4) else {
        return BTreeSet::new();
    };
    let Some(sender) = sender_on(link, (state, vips), is_ipv4) else {
        return BTreeSet::new();
    };
    let ethertype = if is_ipv4 {
        ETHERTYPE_ARP
    } else {
        ETHERTYPE_IPV6
    };
    let frames = queried
        .iter()
        .filter_map(|address| address_query(mac, sender, *address));
    let replies = query_all((link.index, ethertype), frames, limit, &|frame| {
        parse_claim(frame, mac).filter(|(address, _)| queried.contains(address))
    });
    replies.unwrap_or_default()
}

/// Returns the source of queries on a device's segment: an address of the device that is not in `vips`.
pub(crate) fn sender_on(
    link: &Link,
    (state, vips): (&NetState, &BTreeSet<IpAddr>),
    is_ipv4: bool,
) -> Option<IpAddr> {
    // Segments with other subnets are queried too, because machines with AnyIP or a misplaced VIP reply there.
    state.addresses.iter().find_map(|address| {
        let matches = address.ifindex == link.index && address.ip.is_ipv4() == is_ipv4;
        (matches && !vips.contains(&address.ip) && !address.tentative).then_some(address.ip)
    })
}

/// The known machines that may reply.
struct KnownMachines<'a> {
    desired: &'a Desired,
    state: &'a NetState,
    failover_vips: &'a BTreeSet<IpAddr>,
    report: &'a DaemonReport,
    servers: BTreeMap<String, IpAddr>,
}

impl KnownMachines<'_> {
    /// Adds the findings about the replies on a device, which are for VIPs and for addresses of active directors.
    fn examine(
        &self,
        device: &str,
        vips: &BTreeSet<IpAddr>,
        claims: &BTreeSet<Claim>,
        found: &mut Claimants,
    ) {
        let own_macs: BTreeSet<String> = self
            .state
            .links
            .values()
            .filter_map(|link| Some(link.mac?.to_string()))
            .collect();
        let foreign_claims = claims
            .iter()
            .filter(|(vip, mac)| vips.contains(vip) && !own_macs.contains(mac));
        for (vip, mac) in foreign_claims {
            let server = self.servers.get(mac).copied();
            let mut addresses = self.state.addresses.iter();
            let is_local = addresses.any(|address| address.ip == *vip);
            let is_failover_vip = self.failover_vips.contains(vip);
            let peer = self.active_peer(*vip, mac, claims);
            match (server, peer) {
                (_, Some(peer)) if !is_failover_vip => {
                    if found.unlisted_vips.insert(*vip) {
                        found.findings.push(unlisted_vip(*vip, peer, is_local));
                    }
                }
                (None, _) if is_failover_vip && is_local => {
                    let is_waiting = self.report.waiting_vips.contains(vip);
                    let finding = second_active_director(device, *vip, mac, is_waiting);
                    found.findings.push(finding);
                }
                (None, _) if is_failover_vip => {}
                _ => {
                    let mut finding = diagnosis(self.desired, device, *vip, (mac, server));
                    if is_local && !is_failover_vip {
                        let fix = finding.fix.unwrap_or_default();
                        finding.fix = Some(format!("{fix}; {}", self.announcement(device, *vip)));
                    }
                    found.findings.push(finding);
                }
            }
        }
    }

    /// Returns the part of the fix that corrects the neighbor entries of clients and routers on a device's segment
    /// after the other machine has lost the VIP: traffic confirms a wrong entry as long as that machine responds. The
    /// daemon announces only VIPs on `vip_interface`, and only on the segment of this interface.
    fn announcement(&self, device: &str, vip: IpAddr) -> String {
        let is_on_device = |ifindex| {
            let link = self.state.links.get(&ifindex);
            link.is_some_and(|link| link.name == device)
        };
        let mut addresses = self.state.addresses.iter();
        if self.desired.node.vip_interface.as_deref() == Some(device)
            && addresses.any(|address| address.ip == vip && is_on_device(address.ifindex))
        {
            return "the daemon then announces the VIP, and clients use this director within seconds"
                .to_owned();
        }
        let correct = match vip {
            IpAddr::V4(_) => format!("on this machine: arping -U -c 3 -I {device} {vip}"),
            IpAddr::V6(_) => {
                "remove the VIP's entry from the neighbor tables of clients and routers".to_owned()
            }
        };
        format!("then {correct}; Weir announces only VIPs on the `vip_interface` of [node]")
    }

    /// Returns the active director with this link-layer address. If it is active for several virtual routers, prefers
    /// one with addresses of the VIP's family whose advertisements contain addresses other than those configured here.
    fn active_peer(
        &self,
        vip: IpAddr,
        mac: &String,
        claims: &BTreeSet<Claim>,
    ) -> Option<&ActivePeer> {
        let peers = self.report.active_peers.iter().filter(|peer| {
            virtual_macs(peer.router_id).contains(mac)
                || claims.contains(&(peer.address, mac.clone()))
        });
        peers.min_by_key(|peer| {
            let has_other_family = peer.address.is_ipv4() != vip.is_ipv4();
            (has_other_family, !peer.advertises_other_addresses)
        })
    }
}

/// Returns the link-layer addresses of a virtual router for IPv4 and IPv6 (RFC 9568 section 7.3).
fn virtual_macs(router_id: u8) -> [String; 2] {
    [1, 2].map(|family| MacAddr::new([0, 0, 0x5e, 0, family, router_id]).to_string())
}

/// Reports that the active director has a VIP that would not move to this machine.
fn unlisted_vip(vip: IpAddr, peer: &ActivePeer, is_local: bool) -> Diagnosis {
    let (address, router) = (peer.address, &peer.router);
    let header = weir_config::header(&["vrrp", router]);
    let observation = format!(
        "{address}, the active director of the virtual router {router}, has the VIP {vip}, which `addresses` in \
         {header} does not list"
    );
    let consequence = if is_local {
        "this machine also has the VIP: clients and routers send packets to the director that replied last"
    } else {
        "this director does not take over the VIP when the active director fails"
    };
    Diagnosis::new(observation, consequence).fix(format!(
        "add {vip} to `addresses` in {header}; then: weir reload"
    ))
}

/// Reports other machines that reply to queries for this machine's VIPs. Waits for replies, up to the time limit, for
/// each device and address family.
///
/// # Errors
/// Fails if the network state cannot be read.
pub async fn contested_vips(
    desired: &Desired,
    failover_vips: &BTreeSet<IpAddr>,
) -> Result<Vec<Diagnosis>, weir_netlink::Error> {
    let servers = desired.pools.iter().flat_map(|pool| &pool.servers);
    let state = Netlink::open()?
        .state(servers.filter_map(Server::ip))
        .await?;
    let mut vips = all_vips(desired);
    vips.retain(|vip| state.addresses.iter().any(|address| address.ip == *vip));
    let report = DaemonReport::default();
    Ok(claimants(desired, &state, (failover_vips, &report), &vips).findings)
}

/// Returns the VIPs of all services.
pub(crate) fn all_vips(desired: &Desired) -> BTreeSet<IpAddr> {
    let mut vips = layer_4_vips(desired);
    vips.extend(desired.proxy_addresses());
    vips
}

/// Returns the VIPs of layer 4 services.
pub(crate) fn layer_4_vips(desired: &Desired) -> BTreeSet<IpAddr> {
    let services = desired.services.iter();
    let addressed = services.filter(|service| service.forward.handles_packets());
    let listeners = addressed.flat_map(|service| &service.listen);
    listeners.map(|listener| listener.address).collect()
}

/// Returns the servers on this machine's segments, by link-layer address.
fn servers_by_mac(desired: &Desired, state: &NetState) -> BTreeMap<String, IpAddr> {
    let servers = desired.pools.iter().flat_map(|pool| &pool.servers);
    let mut by_mac = BTreeMap::new();
    for server in servers.filter_map(Server::ip) {
        let paths = resolve(server, state).into_iter();
        let direct = paths.filter(|path| path.gateway.is_none());
        by_mac.extend(direct.filter_map(|path| Some((path.mac?.to_string(), server))));
    }
    by_mac
}

/// Returns the forwarding method that a server must be prepared for. Returns `None` if packets are addressed to the
/// server itself, or if no service with this VIP uses the server.
fn required_preparation(desired: &Desired, vip: IpAddr, server: IpAddr) -> Option<Forward> {
    desired.services.iter().find_map(|service| {
        let listens = service
            .listen
            .iter()
            .any(|listener| listener.address == vip);
        let mut servers = desired.pool(&service.pool)?.servers.iter();
        let server = servers.find(|candidate| candidate.address == server && listens)?;
        Some(server.forward_in(service)).filter(|forward| *forward != Forward::Nat)
    })
}

/// Reports that a second director has a VIP that only the active director should have. `is_waiting` is true if the
/// virtual router on this machine starts, changes or stops when the reload guard ends.
fn second_active_director(device: &str, vip: IpAddr, mac: &str, is_waiting: bool) -> Diagnosis {
    let finding = Diagnosis::new(
        format!("{mac} on {device} also has the VIP {vip}: two directors are active"),
        "clients and routers send packets to the director that replied last",
    );
    if is_waiting {
        return finding.fix(
            "wait until this director's guarded reload ends: until then, this director runs the virtual routers of the \
             previous configuration, so the other director receives no advertisements of the new ones",
        );
    }
    finding.fix(
        "VRRP: use the same `virtual_router_id` on both directors, and allow IP protocol 112 to 224.0.0.18 or the \
         unicast peers; Pacemaker: allow Corosync's ports; if one director is a standby, remove the address there",
    )
}

fn diagnosis(
    desired: &Desired,
    device: &str,
    vip: IpAddr,
    (mac, server): (&str, Option<IpAddr>),
) -> Diagnosis {
    let protocol = if vip.is_ipv4() {
        "ARP requests"
    } else {
        "neighbor solicitations"
    };
    let (machine, host) = match server {
        Some(server) => (
            format!("server {server} ({mac})"),
            format!("server {server}"),
        ),
        None => (mac.to_owned(), "that machine".to_owned()),
    };
    let preparation = server.and_then(|server| required_preparation(desired, vip, server));
    let show = format!("on {host}: {}", show_interface(vip));
    let fix = match preparation {
        Some(forward) => format!("{show}; {}", move_to_lo(vip, forward.as_str())),
        None => format!("{show}; ip addr del {vip}/PREFIX dev INTERFACE"),
    };
    Diagnosis::new(
        format!("{machine} on {device} replies to {protocol} for the VIP {vip}"),
        "clients and routers that receive this reply send their packets there, bypassing the director",
    )
    .fix(fix)
}

/// Returns the command that prints the interface with a VIP.
pub(crate) fn show_interface(vip: IpAddr) -> String {
    format!("ip -br addr show to {vip} prints the interface that has it, and PREFIX")
}

/// Returns the commands that stop ARP replies for a VIP on a server with this forwarding method. The kernel replies for
/// an address of the receiving interface regardless of arp_ignore, so the VIP must be removed there first. The
/// preparation stops replies only for VIPs on lo.
pub(crate) fn move_to_lo(vip: IpAddr, forward: &str) -> String {
    format!(
        "unless the interface is lo: ip addr del {vip}/PREFIX dev INTERFACE; then weir real-server up --forward \
         {forward} --vip {vip}, which adds the VIP to lo and prevents ARP replies for it"
    )
}

/// Parses a reply. Ignores replies from `local`, which is this machine's MAC address.
fn parse_claim(frame: &[u8], local: MacAddr) -> Option<Claim> {
    let (address, mac) = address_claim(frame)?;
    (mac != local).then(|| (address, mac.to_string()))
}

/// Sends the queries on a device and returns the claims that arrive within `limit`.
///
/// # Errors
/// Fails if frames cannot be sent on the device.
pub(crate) fn query_all(
    (ifindex, ethertype): (u32, u16),
    queries: impl Iterator<Item = Vec<u8>>,
    limit: Duration,
    parse: &dyn Fn(&[u8]) -> Option<Claim>,
) -> Result<BTreeSet<Claim>, weir_sys::Error> {
    let socket = FrameSocket::open_listener(ifindex, ethertype)?;
    for frame in queries {
        socket.send(ifindex, &frame)?;
    }
    let (deadline, mut frame) = (Instant::now() + limit, [0; 128]);
    let mut claims = BTreeSet::new();
    loop {
        let remaining = deadline.saturating_duration_since(Instant::now());
        if remaining.is_zero() {
            return Ok(claims);
        }
        let Some(length) = socket.receive_within(&mut frame, remaining)? else {
            return Ok(claims);
        };
        claims.extend(frame.get(..length).and_then(parse));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::reach::tests::state;

    const PEER: &str = "02:00:00:00:00:01";
    const OTHER: &str = "02:00:00:00:00:09";

    fn ip(text: &str) -> IpAddr {
        text.parse().expect("address is valid")
    }

    fn peer(router: &str, router_id: u8, advertises_other_addresses: bool) -> ActivePeer {
        ActivePeer {
            router: router.to_owned(),
            router_id,
            address: ip("10.0.0.1"),
            advertises_other_addresses,
        }
    }

    /// Returns the findings about replies for 10.0.0.11, which no virtual router lists, and the VIPs in
    /// [`Claimants::unlisted_vips`].
    fn found(peers: &[ActivePeer], claims: &[(&str, &str)]) -> (Vec<String>, BTreeSet<IpAddr>) {
        let vips = BTreeSet::from([ip("10.0.0.10"), ip("10.0.0.11")]);
        let (desired, state) = (Desired::default(), NetState::default());
        let known_machines = KnownMachines {
            desired: &desired,
            state: &state,
            failover_vips: &BTreeSet::from([ip("10.0.0.10")]),
            report: &DaemonReport {
                active_peers: peers.to_vec(),
                ..DaemonReport::default()
            },
            servers: BTreeMap::new(),
        };
        let claims = claims.iter();
        let claims = claims.map(|(address, mac)| (ip(address), (*mac).to_owned()));
        let mut found = Claimants::default();
        known_machines.examine("eth0", &vips, &claims.collect(), &mut found);
        let findings = found.findings.iter().map(ToString::to_string);
        (findings.collect(), found.unlisted_vips)
    }

    #[test]
    fn unlisted_vip_of_the_active_director_is_one_finding() {
        let peers = [peer("other", 7, false), peer("web", 51, true)];
        let expected = "10.0.0.1, the active director of the virtual router web, has the VIP 10.0.0.11, which \
                        `addresses` in [vrrp.web] does not list\n  why:  this director does not take over the VIP \
                        when the active director fails\n  fix:  add 10.0.0.11 to `addresses` in [vrrp.web]; then: \
                        weir reload\n";
        let listed = ("10.0.0.10", PEER);
        for claims in [
            [listed, ("10.0.0.1", PEER), ("10.0.0.11", PEER)],
            [
                listed,
                ("10.0.0.1", PEER),
                ("10.0.0.11", "00:00:5e:00:01:33"),
            ],
        ] {
            let (findings, unlisted) = found(&peers, &claims);
            assert_eq!(findings, [expected], "{claims:?}");
            assert_eq!(unlisted, BTreeSet::from([ip("10.0.0.11")]), "{claims:?}");
        }
    }

    #[test]
    fn vip_of_another_machine_is_reported() {
        let expected = "replies to ARP requests for the VIP 10.0.0.11";
        for (peers, claims) in [
            (vec![], [("10.0.0.1", PEER), ("10.0.0.11", PEER)]),
            (
                vec![peer("web", 51, true)],
                [("10.0.0.1", PEER), ("10.0.0.11", OTHER)],
            ),
            (
                vec![peer("web", 52, true)],
                [("10.0.0.1", PEER), ("10.0.0.11", "00:00:5e:00:01:33")],
            ),
        ] {
            let (findings, unlisted) = found(&peers, &claims);
            assert!(findings[0].contains(expected), "{findings:?}");
            assert_eq!((findings.len(), unlisted.len()), (1, 0), "{claims:?}");
        }
    }

    /// The daemon announces a VIP only on `vip_interface`, and only if the VIP is there.
    #[test]
    fn fix_contains_an_announcement_unless_the_daemon_sends_it() {
        let (vip, daemon) = ("10.0.0.1", "the daemon then announces the VIP");
        let arping =
            "then on this machine: arping -U -c 3 -I eth0 10.0.0.1; Weir announces only VIPs";
        let mut state = state(None, None);
        let mut fix = |vip_interface: &str, holder: &str| {
            if let Some(link) = state.links.get_mut(&2) {
                holder.clone_into(&mut link.name);
            }
            let mut desired = Desired::default();
            desired.node.vip_interface = (!vip_interface.is_empty()).then(|| vip_interface.into());
            let known_machines = KnownMachines {
                desired: &desired,
                state: &state,
                failover_vips: &BTreeSet::new(),
                report: &DaemonReport::default(),
                servers: BTreeMap::new(),
            };
            let mut found = Claimants::default();
            let claims = [(ip(vip), OTHER.to_owned())].into();
            known_machines.examine("eth0", &[ip(vip)].into(), &claims, &mut found);
            found.findings.remove(0).fix.expect("finding has a fix")
        };
        for (vip_interface, holder, expected) in [
            ("eth0", "eth0", daemon),
            ("eth0", "lo", arping),
            ("eth1", "eth1", arping),
            ("", "eth0", arping),
        ] {
            let fix = fix(vip_interface, holder);
            assert!(fix.contains(expected), "{vip_interface} {holder}: {fix}");
        }
    }

    #[test]
    fn guarded_reload_is_named_as_the_cause_of_a_second_active_director() {
        let fix = |is_waiting| {
            let finding = second_active_director("eth0", ip("10.0.0.10"), PEER, is_waiting);
            finding.fix.unwrap_or_default()
        };
        assert!(fix(false).contains("virtual_router_id"));
        let waiting_fix = fix(true);
        assert!(
            waiting_fix.contains("guard") && !waiting_fix.contains("virtual_router_id"),
            "{waiting_fix}"
        );
    }

    #[test]
    fn vip_on_both_directors_is_reported_with_its_effect() {
        let finding = unlisted_vip(ip("10.0.0.11"), &peer("web", 51, true), true);
        assert!(
            finding
                .consequence
                .starts_with("this machine also has the VIP"),
            "{finding}"
        );
    }
}
