//! Collects the findings about this machine for a valid configuration.

use std::collections::BTreeSet;
use std::net::IpAddr;

use weir_model::Desired;

use super::failover::knows_floating_ips;
use super::gre_checksum::{AttachedInterfaces, gre_checksums};
use super::routed_server::routed_servers;
use super::{Finding, absent_vips, failover_findings};

/// Maximum number of services whose VIPs a daemon looks up, and of servers (of `direct` or of GRE tunnels with
/// checksums) whose routes it looks up. Each lookup takes microseconds, but the daemon handles nothing else in the
/// meantime.
const MAX_LOOKUPS: usize = 256;

/// Returns the findings about this machine, with similar ones merged: VIPs that are on no interface, servers of
/// `direct` behind a router, GRE tunnels whose packets are dropped, connections that are lost on a failover, and
/// `others`. `desired` should contain the servers of lists ([`super::with_listed_servers`]). `added` contains the VIPs
/// that Weir has added, with their interfaces; `attached` contains the interfaces of a running director; `file` is the
/// name of the configuration file.
///
/// If the machine's addresses or routes cannot be read, nothing is reported about them.
pub async fn host_findings(
    desired: &Desired,
    added: &BTreeSet<(String, IpAddr)>,
    attached: &AttachedInterfaces,
    others: impl IntoIterator<Item = Finding>,
    file: &str,
) -> Vec<Finding> {
    let mut found = addresses_and_routes(desired, added, attached, file, usize::MAX).await;
    let failovers = failover_findings(desired);
    found.extend(
        failovers
            .iter()
            .map(|it| Finding::from_failover(it, desired.file_name(it.source, file))),
    );
    found.extend(others);
    Finding::merge_similar(found)
}

/// Returns the warnings that a daemon reports about a configuration: VIPs that are on no interface, if there are at
/// most 256 services, and servers of `direct` behind a router and GRE tunnels whose packets are dropped, if there are
/// at most 256 of these servers. A daemon without access to keepalived's and Pacemaker's files reports nothing about
/// VIPs, because these programs may manage them. The arguments are those of [`host_findings`].
pub async fn host_warnings(
    desired: &Desired,
    added: &BTreeSet<(String, IpAddr)>,
    attached: &AttachedInterfaces,
    file: &str,
) -> Vec<Finding> {
    let mut found = addresses_and_routes(desired, added, attached, file, MAX_LOOKUPS).await;
    if !knows_floating_ips() {
        found.retain(|finding| finding.code.is_some());
    }
    Finding::merge_similar(found)
}

async fn addresses_and_routes(
    desired: &Desired,
    added: &BTreeSet<(String, IpAddr)>,
    attached: &AttachedInterfaces,
    file: &str,
    lookups_max: usize,
) -> Vec<Finding> {
    let absent = match desired.services.len() + desired.proxies.len() <= lookups_max {
        true => absent_vips(desired, added).await.unwrap_or_default(),
        false => Vec::new(),
    };
    let routed = routed_servers(desired, lookups_max)
        .await
        .unwrap_or_default();
    let checksums = gre_checksums(desired, attached, lookups_max)
        .await
        .unwrap_or_default();
    let absent = absent
        .iter()
        .map(|vip| Finding::from_absent_vip(vip, desired.file_name(vip.source, file)));
    let routed = routed
        .iter()
        .map(|it| Finding::from_routed_server(it, desired.file_name(it.source, file)));
    let checksums = checksums
        .iter()
        .map(|it| Finding::from_gre_checksum(it, desired.file_name(it.source, file)));
    absent.chain(routed).chain(checksums).collect()
}
