//! Collects the state that this director reports to its group.

use std::collections::BTreeMap;
use std::net::IpAddr;

use weir_cluster::{GroupKey, HealthView, LocalState, MemberRecord};
use weir_health::{ServerHealth, State};
use weir_model::{Cluster, Desired};
use weir_sys::ethtool;

/// Returns the member record that this director registers.
pub(super) fn member_record(config: &Cluster, desired: &Desired) -> MemberRecord {
    MemberRecord {
        weir: env!("CARGO_PKG_VERSION").to_owned(),
        features: features(desired),
        secrets: secret_fingerprints(config, desired),
        order: servers_digest(desired),
        mtu: smallest_mtu(desired),
        ..MemberRecord::default()
    }
}

/// Assembles the state that this director reports.
pub(super) fn local_state(
    record: MemberRecord,
    health_states: &BTreeMap<(String, String), ServerHealth>,
    vips: BTreeMap<IpAddr, bool>,
    may_apply_concurrently: bool,
) -> LocalState {
    let down = health_states
        .iter()
        .filter(|(_, server_health)| server_health.state == State::Down);
    let down = down.map(|((pool, server), server_health)| {
        (format!("{pool}/{server}"), server_health.reason.clone())
    });
    LocalState {
        record,
        vips,
        health: HealthView {
            reaches: health_states
                .values()
                .any(|server_health| server_health.state == State::Up),
            down: down.collect(),
        },
        applies_with_others: may_apply_concurrently,
    }
}

/// Returns the smallest MTU of `interfaces` in `[node]`, in bytes; `None` = no interface is configured, or no MTU can
/// be read.
fn smallest_mtu(desired: &Desired) -> Option<u32> {
    let names = desired.node.interfaces.iter().flatten();
    names.filter_map(|name| ethtool::mtu(name).ok()).min()
}

fn features(desired: &Desired) -> Vec<String> {
    let features = [
        ("[sync]", desired.sync.is_some()),
        ("[announce]", desired.announce.is_some()),
        ("[vrrp]", !desired.vrrp.is_empty()),
    ];
    let present = features.into_iter().filter(|(_, is_present)| *is_present);
    present.map(|(name, _)| name.to_owned()).collect()
}

/// Returns fingerprints of the secrets that all members must share. The fingerprints are keyed with the group key, and
/// reveal nothing to anyone without it.
fn secret_fingerprints(config: &Cluster, desired: &Desired) -> BTreeMap<String, String> {
    let key = config.group_key.as_ref();
    let Some(Ok(key)) = key.map(|key| GroupKey::new(key.expose())) else {
        return BTreeMap::new();
    };
    let fingerprint = |bytes: &[u8]| key.digest(bytes)[..16].to_owned();
    let mut secrets = BTreeMap::new();
    if let Some(sync) = &desired.sync {
        secrets.insert("key of [sync]".to_owned(), fingerprint(sync.key.expose()));
    }
    for pool in &desired.pools {
        let sticky = pool
            .sticky
            .as_ref()
            .and_then(|sticky| sticky.secret.as_ref());
        if let Some(secret) = sticky {
            let name = format!("secret of the cookie of pool {}", pool.name);
            secrets.insert(name, fingerprint(secret.expose()));
        }
    }
    for proxy in &desired.proxies {
        let keys = proxy.tls.iter().flat_map(|tls| &tls.ticket_keys);
        let keys: Vec<u8> = keys.flat_map(|key| key.expose().to_vec()).collect();
        if !keys.is_empty() {
            let name = format!("ticket keys of service {}", proxy.name);
            secrets.insert(name, fingerprint(&keys));
        }
    }
    secrets
}

/// Returns a digest of all servers, their order and their weights.
fn servers_digest(desired: &Desired) -> String {
    let mut text = String::new();
    for pool in &desired.pools {
        text.push_str(&pool.name);
        for server in &pool.servers {
            text.push_str(&format!(" {}*{}", server.name, server.weight));
        }
        text.push('\n');
    }
    weir_cluster::digest(text.as_bytes())[..16].to_owned()
}
