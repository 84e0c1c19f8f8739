//! Creates the status document without a daemon, from the pinned data plane and persisted state.
//!
//! Counters are read from the maps, names and weights from `RUNTIME_DIR/state.json` and its journal, overrides from
//! `proxy.json`, and listeners and pools from the configuration file, if it is readable. Unavailable values are
//! `unknown`. This module only reads.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use weir_dataplane::{Maps, Mode, PinDir, PinnedPlane, open_readonly};
use weir_flow::model_forward;
use weir_model::{Desired, Forward, Indexed};
use weir_netlink::Netlink;
use weir_planner::allocation::{DestSlot, ServiceSlot};
use weir_state::{Override, SavedHealth, SavedServers, ServerStates};

use crate::override_file;
use crate::snapshot::ServerState;
use weir_engine::{PersistedState, Unreadable};

use super::{Counters, Flows, Interface, PacketPaths, Reason, Report, Server, Service, rfc3339};

const UNKNOWN: &str = "unknown";

/// Why the status cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing is pinned, another build has pinned the maps, or the maps cannot be read.
    #[error(transparent)]
    Dataplane(#[from] weir_dataplane::Error),
    /// The state file cannot be read.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The state file is invalid.
    #[error("{path}: {source}", path = path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// The parse error.
        source: serde_json::Error,
    },
    /// A newer version has written the state file.
    #[error("{path}: format version {found} is newer than this build supports", path = path.display())]
    Newer {
        /// The file.
        path: PathBuf,
        /// The version of the state file's format.
        found: u32,
    },
}

/// Reads the status. `desired` is the configuration; it is empty if the configuration cannot be read.
///
/// # Errors
/// Fails if nothing is pinned, another build has pinned the maps, the maps cannot be read, or the state file cannot be
/// read, is invalid or has a newer format.
pub async fn read(runtime_dir: &Path, pin_dir: &Path, desired: &Desired) -> Result<Report, Error> {
    let plane = open_readonly(&PinDir::new(pin_dir))?;
    let maps = &plane.maps;
    let mut report = Report {
        xdp: read_interfaces(&plane).await,
        flows: Flows {
            slots: u64::from(maps.flows.capacity()),
            entries: maps.flows.walk().count() as u64,
            expired: maps.sweep()?.expired,
        },
        reasons: read_reasons(maps)?,
        drift: crate::snapshot::Drift::default(),
        reloads: Vec::new(),
        ..Report::default()
    };
    let desired = &Indexed::from(desired.clone());
    let Some(persisted) = read_persisted(runtime_dir)? else {
        return Ok(report);
    };
    report.revision = persisted.revision;
    let local_addresses = read_local_addresses().await;
    let states = restore_states(runtime_dir, persisted.servers);
    // The rows of a removed service remain until its flows have ended.
    let current_services = persisted.services.iter().filter(|(_, slot)| !slot.removed);
    for (name, slot) in current_services {
        let mut service = describe_service(maps, name, slot, desired, &states)?;
        if let Some(configured) = desired.service(name) {
            let vip = configured.listen.first().map(|listener| listener.address);
            let is_local = vip.is_some_and(|vip| local_addresses.contains(&vip));
            service.vip = if is_local { "local" } else { "absent" }.to_owned();
        }
        report.services.push(service);
    }
    let names = desired.services.iter().map(|service| &service.name);
    let positions: HashMap<&String, usize> = names
        .enumerate()
        .map(|(index, name)| (name, index))
        .collect();
    let position = |service: &Service| positions.get(&service.name).copied().unwrap_or(usize::MAX);
    report.services.sort_by_key(position);
    let forwarded = report.services.iter();
    let forwarded = forwarded.map(|service| service.totals.packets_in + service.totals.packets_out);
    report.ways = PacketPaths::new(forwarded.sum(), &report.reasons);
    Ok(report)
}

/// Reads the state that the last daemon persisted; `None` = there is none.
fn read_persisted(runtime_dir: &Path) -> Result<Option<PersistedState>, Error> {
    let path = PersistedState::path(runtime_dir);
    PersistedState::read(runtime_dir).map_err(|unreadable| match unreadable {
        Unreadable::File(source) => Error::File { path, source },
        Unreadable::Content(source) => Error::State { path, source },
        Unreadable::Newer(found) => Error::Newer { path, found },
    })
}

/// Reads the states of servers from the last daemon's files.
fn restore_states(runtime_dir: &Path, saved: SavedServers) -> ServerStates {
    let overrides = override_file::overrides(runtime_dir);
    let has_override_file = overrides.is_some();
    let (health_states, since) = (SavedHealth::default(), BTreeMap::new());
    let mut states = ServerStates::restore(overrides.unwrap_or_default(), health_states, since);
    states.adopt(saved, has_override_file);
    states
}

/// Returns the interfaces that the packet path is attached to. If an interface's name is unavailable, returns its
/// index instead.
async fn read_interfaces(plane: &PinnedPlane) -> Vec<Interface> {
    let links = match Netlink::open() {
        Ok(netlink) => netlink.links().await.unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    let name = |ifindex: u32| {
        let link = links.iter().find(|link| link.index == ifindex);
        link.map_or_else(|| ifindex.to_string(), |link| link.name.clone())
    };
    let interface = |attachment: &weir_dataplane::Attachment| {
        Some(Interface {
            interface: name(attachment.ifindex),
            mode: Mode::from_hook(attachment.hook)?.as_str().to_owned(),
            reason: String::new(),
        })
    };
    plane.attachments.iter().filter_map(interface).collect()
}

async fn read_local_addresses() -> Vec<std::net::IpAddr> {
    let Ok(netlink) = Netlink::open() else {
        return Vec::new();
    };
    let addresses = netlink.addresses().await.unwrap_or_default();
    addresses.into_iter().map(|address| address.ip).collect()
}

fn read_reasons(maps: &Maps) -> Result<Vec<Reason>, Error> {
    let counts = maps.reasons()?;
    let counted = |info: &weir_abi::ReasonInfo| {
        let packets = *counts.get(info.reason.number() as usize)?;
        (packets != 0).then(|| Reason {
            reason: info.label.to_owned(),
            description: info.text.to_owned(),
            packets,
        })
    };
    Ok(weir_abi::REASONS.iter().filter_map(counted).collect())
}

fn describe_service(
    maps: &Maps,
    name: &str,
    slot: &ServiceSlot,
    desired: &Indexed,
    states: &ServerStates,
) -> Result<Service, Error> {
    let configured = desired.service(name);
    let pool = configured.map_or(UNKNOWN, |service| service.pool.as_str());
    let mut totals = Counters::from(&slot.retired);
    let mut servers = Vec::new();
    for dest in slot.dests.iter().filter(|dest| !dest.staged) {
        let server = describe_server(maps, dest, (pool, name), states)?;
        totals.add(&server.totals);
        servers.push(server);
    }
    servers.sort_by_key(|server| server.removed);
    let mut forwards = servers
        .iter()
        .filter(|server| !server.removed)
        .map(|server| &server.forward);
    let first = forwards.next().cloned().unwrap_or_default();
    let mixed = !forwards.all(|forward| *forward == first);
    Ok(Service {
        name: name.to_owned(),
        origin: if weir_engine::is_from_ipvsadm(name) {
            "ipvsadm"
        } else {
            "file"
        }
        .to_owned(),
        listen: configured.map_or_else(Vec::new, weir_model::Service::listener_names),
        vip: UNKNOWN.to_owned(),
        forward: if mixed { "mixed".to_owned() } else { first },
        scheduler: slot.scheduler.clone(),
        pool: pool.to_owned(),
        pool_state: None,
        pool_cause: None,
        persistence: configured
            .and_then(|service| service.persistence.as_ref().map(ToString::to_string)),
        one_packet: configured.is_some_and(|service| service.one_packet),
        totals,
        proxy: None,
        servers,
    })
}

fn describe_server(
    maps: &Maps,
    dest: &DestSlot,
    (pool, service): (&str, &str),
    states: &ServerStates,
) -> Result<Server, Error> {
    let active = states.overrides().get(pool, &dest.name);
    let active = active.filter(|_| dest.removed.is_none());
    let server_health = states.health_in(pool, &dest.name, service);
    let dest_since = Duration::from_millis(dest.since_ms);
    let live = maps.live(dest.id)?;
    let traffic = maps.traffic(dest.id)?;
    let (state, since) = match (active, server_health) {
        _ if dest.removed.is_some() => (ServerState::Drain, dest_since),
        (Some(Override::Drain), _) => (ServerState::Drain, dest_since),
        (Some(Override::Maint), _) => (ServerState::Maint, dest_since),
        (_, Some(server_health)) => (server_health.state.into(), server_health.since),
        _ => (ServerState::Unchecked, dest_since),
    };
    Ok(Server {
        proxy: None,
        address: dest.name.clone(),
        pool: None,
        forward: forward_name(maps.dests.get(dest.id)?.forward).to_owned(),
        weight: dest.weight,
        effective_weight: dest.effective,
        state: state.as_str().to_owned(),
        reason: "as recorded by the last daemon".to_owned(),
        since: rfc3339(UNIX_EPOCH + since),
        overridden: active.map(|active| active.to_string()),
        removed: dest.removed.is_some(),
        check_weight: None,
        slow_start: None,
        ejected: None,
        warning: None,
        handshakes: None,
        latency: None,
        checks: Vec::new(),
        active_connections: live.active,
        inactive_connections: live.inactive,
        persistent_connections: live.persistent.into(),
        overloaded: maps.live(maps.dests.get(dest.id)?.live)?.overloaded != 0,
        totals: Counters {
            connections: live.total,
            stateless: live.stateless,
            packets_in: traffic.packets_in,
            packets_out: traffic.packets_out,
            bytes_in: traffic.bytes_in,
            bytes_out: traffic.bytes_out,
        },
    })
}

/// Returns the forwarding method in a row of the dest map; `unknown` for a free row.
fn forward_name(number: u8) -> &'static str {
    model_forward(number).map_or(UNKNOWN, Forward::as_str)
}
