//! Collects the state that this director reports to its group.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_cluster::{GroupKey, HealthView, LocalState, MemberRecord};
use weir_health::{ServerHealth, State};
use weir_model::{Announce, Cluster, Desired};

/// Returns the member record that this director registers. `mtu` is the smallest MTU of the interfaces with the packet
/// path, in bytes.
pub(super) fn member_record(config: &Cluster, desired: &Desired, mtu: Option<u32>) -> MemberRecord {
    MemberRecord {
        weir: env!("CARGO_PKG_VERSION").to_owned(),
        features: features(desired),
        secrets: secret_fingerprints(config, desired),
        order: servers_digest(desired),
        mtu,
        communities: desired.announce.as_ref().map(communities),
        ..MemberRecord::default()
    }
}

/// Assembles the state that this director reports. `stages_versions` is false; the caller sets it.
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
        stages_versions: false,
    }
}

/// Returns the communities of the routes that the director announces, sorted and without duplicates.
fn communities(announce: &Announce) -> Vec<String> {
    let communities: BTreeSet<String> = announce
        .communities
        .iter()
        .map(ToString::to_string)
        .collect();
    communities.into_iter().collect()
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
/// reveal nothing to anyone without it. Without a group key there are none, because a secret could be guessed from an
/// unkeyed fingerprint.
fn secret_fingerprints(config: &Cluster, desired: &Desired) -> BTreeMap<String, String> {
    let key = config.group_key.as_ref();
    let Some(Ok(key)) = key.map(|key| GroupKey::new(key.expose())) else {
        return BTreeMap::new();
    };
    let fingerprint = |bytes: &[u8]| key.digest(bytes)[..16].to_owned();
    let secrets = shared_secrets(desired).into_iter();
    secrets
        .map(|(name, secret)| (name, fingerprint(&secret)))
        .collect()
}

/// Returns whether the members have secrets in common that are not compared, because there is no group key.
pub(super) fn has_uncompared_secrets(config: &Cluster, desired: &Desired) -> bool {
    config.group_key.is_none() && !shared_secrets(desired).is_empty()
}

/// Returns the secrets that all members must share, by name.
fn shared_secrets(desired: &Desired) -> BTreeMap<String, Vec<u8>> {
    let mut secrets = BTreeMap::new();
    if let Some(sync) = &desired.sync {
        secrets.insert("key of [sync]".to_owned(), sync.key.expose().to_vec());
    }
    for pool in &desired.pools {
        let sticky = pool
            .sticky
            .as_ref()
            .and_then(|sticky| sticky.secret.as_ref());
        if let Some(secret) = sticky {
            let name = format!("secret of the cookie of pool {}", pool.name);
            secrets.insert(name, secret.expose().to_vec());
        }
    }
    for proxy in &desired.proxies {
        let keys = proxy.tls.iter().flat_map(|tls| &tls.ticket_keys);
        let keys: Vec<u8> = keys.flat_map(|key| key.expose().to_vec()).collect();
        if !keys.is_empty() {
            let name = format!("ticket keys of service {}", proxy.name);
            secrets.insert(name, keys);
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
