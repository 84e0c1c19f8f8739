//! The status document without a daemon: what is pinned, by the names that the last daemon remembered.
//!
//! Counts come from the maps, names and weights from `RUNTIME_DIR/state.json` and its journal, listeners and pools from
//! the configuration file where it can be read. What none of these tells is `unknown`. Nothing is changed.

use std::collections::{BTreeMap, HashMap};
use std::io;
use std::path::{Path, PathBuf};
use std::time::{Duration, UNIX_EPOCH};

use serde::Deserialize;
use serde::de::IgnoredAny;
use weir_dataplane::{Maps, Mode, PinDir, PinnedPlane, open_readonly};
use weir_model::{Desired, Forward, Indexed};
use weir_netlink::Netlink;

use crate::engine::journal::{self, JOURNAL, STATE};

use super::{Counters, Flows, Interface, Reason, Report, Server, Service, Ways, rfc3339};

const UNKNOWN: &str = "unknown";

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// Nothing is pinned, or another build's maps are.
    #[error(transparent)]
    Dataplane(#[from] weir_dataplane::Error),
    /// The state file cannot be read.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The state file is none.
    #[error("{path}: {source}", path = path.display())]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        source: serde_json::Error,
    },
}

/// The part of the state file that a listing needs; the engine, whose file it is, keeps more there.
#[derive(Debug, Deserialize)]
struct Remembered {
    #[serde(default)]
    number: u64,
    revision: u64,
    allocation: Rows,
    overrides: BTreeMap<String, BTreeMap<String, Word>>,
    #[serde(default)]
    standings: Standings,
}

/// What checks said last.
#[derive(Debug, Default, Deserialize)]
struct Standings {
    #[serde(default)]
    servers: BTreeMap<String, BTreeMap<String, Standing>>,
}

#[derive(Debug, Deserialize)]
struct Standing {
    state: String,
    since_ms: u64,
    /// In services with paths of their own.
    #[serde(default)]
    paths: BTreeMap<String, Standing>,
}

/// The same of the journal that continues it.
#[derive(Debug, Deserialize)]
struct Record {
    numbers: Option<(u64, u64, u32)>,
    #[serde(default)]
    services: Vec<(String, Option<ServiceRow>)>,
    #[serde(default)]
    overrides: Vec<(String, String, Option<Word>)>,
    #[serde(default)]
    standings: Vec<(String, String, Option<Standing>)>,
}

impl Remembered {
    fn follow(&mut self, record: Record) {
        if let Some((revision, _, _)) = record.numbers {
            self.revision = revision;
        }
        for (name, row) in record.services {
            match row {
                Some(row) => drop(self.allocation.services.insert(name, row)),
                None => drop(self.allocation.services.remove(&name)),
            }
        }
        for (pool, server, word) in record.overrides {
            let words = self.overrides.entry(pool).or_default();
            match word {
                Some(word) => drop(words.insert(server, word)),
                None => drop(words.remove(&server)),
            }
        }
        for (pool, server, standing) in record.standings {
            let standings = self.standings.servers.entry(pool).or_default();
            match standing {
                Some(standing) => drop(standings.insert(server, standing)),
                None => drop(standings.remove(&server)),
            }
        }
    }
}

#[derive(Debug, Deserialize)]
struct Rows {
    services: BTreeMap<String, ServiceRow>,
}

#[derive(Debug, Deserialize)]
struct ServiceRow {
    scheduler: String,
    dests: Vec<DestRow>,
    retired: crate::snapshot::Totals,
}

#[derive(Debug, Deserialize)]
struct DestRow {
    id: u32,
    name: String,
    weight: u32,
    effective: u32,
    removed: Option<IgnoredAny>,
    since_ms: u64,
}

#[derive(Clone, Copy, Debug, Deserialize)]
#[serde(rename_all = "lowercase")]
enum Word {
    Drain,
    Maint,
    Weight(u32),
}

/// Reads it all. `desired` is the configuration, as far as it is known.
///
/// # Errors
/// Nothing is pinned, or the state file is damaged.
pub async fn read(runtime_dir: &Path, pin_dir: &Path, desired: &Desired) -> Result<Report, Error> {
    let plane = open_readonly(&PinDir::new(pin_dir))?;
    let maps = &plane.maps;
    let mut report = Report {
        xdp: interfaces(&plane).await,
        flows: Flows {
            places: u64::from(maps.flows.capacity()),
            entries: maps.flows.walk().count() as u64,
            expired: maps.sweep()?.expired,
        },
        reasons: reasons(maps)?,
        drift: crate::snapshot::Drift::default(),
        ..Report::default()
    };
    let desired = &Indexed::from(desired.clone());
    let Some(remembered) = remembered(runtime_dir)? else {
        return Ok(report);
    };
    report.revision = remembered.revision;
    let local = local_addresses().await;
    for (name, row) in &remembered.allocation.services {
        let mut service = service(maps, name, row, desired, &remembered)?;
        if let Some(known) = desired.service(name) {
            let vip = known.listen.first().map(|listener| listener.address);
            let is_local = vip.is_some_and(|vip| local.contains(&vip));
            service.vip = if is_local { "local" } else { "absent" }.to_owned();
        }
        report.services.push(service);
    }
    let names = desired.services.iter().map(|service| &service.name);
    let places: HashMap<&String, usize> = names.enumerate().map(|(at, name)| (name, at)).collect();
    let place = |service: &Service| places.get(&service.name).copied().unwrap_or(usize::MAX);
    report.services.sort_by_key(place);
    let forwarded = report.services.iter();
    let forwarded = forwarded.map(|service| service.totals.packets_in + service.totals.packets_out);
    report.ways = Ways::new(forwarded.sum(), &report.reasons);
    Ok(report)
}

fn remembered(runtime_dir: &Path) -> Result<Option<Remembered>, Error> {
    let path = &runtime_dir.join(STATE);
    let text = match std::fs::read(path) {
        Ok(text) => text,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => {
            return Err(Error::File {
                path: path.to_owned(),
                source,
            });
        }
    };
    let mut remembered: Remembered =
        serde_json::from_slice(&text).map_err(|source| Error::State {
            path: path.to_owned(),
            source,
        })?;
    for record in journal::read(&runtime_dir.join(JOURNAL), remembered.number) {
        remembered.follow(record);
    }
    Ok(Some(remembered))
}

/// Where XDP is, by names; by numbers where they cannot be had.
async fn interfaces(plane: &PinnedPlane) -> Vec<Interface> {
    let links = match Netlink::open() {
        Ok(netlink) => netlink.links().await.unwrap_or_default(),
        Err(_) => Vec::new(),
    };
    let name = |ifindex: u32| {
        let link = links.iter().find(|link| link.index == ifindex);
        link.map_or_else(|| ifindex.to_string(), |link| link.name.clone())
    };
    let interface = |at: &weir_dataplane::Attachment| {
        Some(Interface {
            interface: name(at.ifindex),
            mode: Mode::of(at.hook)?.as_str().to_owned(),
            reason: String::new(),
        })
    };
    plane.attachments.iter().filter_map(interface).collect()
}

async fn local_addresses() -> Vec<std::net::IpAddr> {
    let Ok(netlink) = Netlink::open() else {
        return Vec::new();
    };
    let addresses = netlink.addresses().await.unwrap_or_default();
    addresses.into_iter().map(|address| address.ip).collect()
}

fn reasons(maps: &Maps) -> Result<Vec<Reason>, Error> {
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

fn service(
    maps: &Maps,
    name: &str,
    row: &ServiceRow,
    desired: &Indexed,
    remembered: &Remembered,
) -> Result<Service, Error> {
    let known = desired.service(name);
    let pool = known.map_or(UNKNOWN, |service| service.pool.as_str());
    let words = remembered.overrides.get(pool);
    let standings = remembered.standings.servers.get(pool);
    let mut totals = Counters::from(&row.retired);
    let mut servers = Vec::new();
    for dest in &row.dests {
        let word = words.and_then(|words| words.get(&dest.name)).copied();
        let standing = standings.and_then(|standings| standings.get(&dest.name));
        let standing = standing.map(|it| it.paths.get(name).unwrap_or(it));
        let server = server(
            maps,
            dest,
            word.filter(|_| dest.removed.is_none()),
            standing,
        )?;
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
        origin: if crate::engine::is_made(name) {
            "ipvsadm"
        } else {
            "file"
        }
        .to_owned(),
        listen: known.map_or_else(Vec::new, weir_model::Service::listens_on),
        vip: UNKNOWN.to_owned(),
        forward: if mixed { "mixed".to_owned() } else { first },
        scheduler: row.scheduler.clone(),
        pool: pool.to_owned(),
        pool_state: None,
        pool_cause: None,
        persistence: known
            .and_then(|service| service.persistence.as_ref().map(ToString::to_string)),
        one_packet: known.is_some_and(|service| service.one_packet),
        totals,
        proxy: None,
        servers,
    })
}

fn server(
    maps: &Maps,
    dest: &DestRow,
    word: Option<Word>,
    standing: Option<&Standing>,
) -> Result<Server, Error> {
    let live = maps.live(dest.id)?;
    let traffic = maps.traffic(dest.id)?;
    let (state, since_ms) = match (word, standing) {
        _ if dest.removed.is_some() => ("drain", dest.since_ms),
        (Some(Word::Drain), _) => ("drain", dest.since_ms),
        (Some(Word::Maint), _) => ("maint", dest.since_ms),
        (_, Some(standing)) => (standing.state.as_str(), standing.since_ms),
        _ => ("unchecked", dest.since_ms),
    };
    Ok(Server {
        address: dest.name.clone(),
        pool: None,
        forward: forward(maps.dests.get(dest.id)?.forward).to_owned(),
        weight: dest.weight,
        effective_weight: dest.effective,
        state: state.to_owned(),
        reason: "as the last daemon left it".to_owned(),
        since: rfc3339(UNIX_EPOCH + Duration::from_millis(since_ms)),
        overridden: word.map(|word| match word {
            Word::Drain => "drain".to_owned(),
            Word::Maint => "maint".to_owned(),
            Word::Weight(weight) => format!("weight {weight}"),
        }),
        removed: dest.removed.is_some(),
        check_weight: None,
        slow_start: None,
        ejected: None,
        warning: None,
        handshakes: None,
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

/// The method of a row; a row that is free has none.
fn forward(number: u8) -> &'static str {
    let known = [
        (weir_abi::Forward::Nat, Forward::Nat),
        (weir_abi::Forward::Direct, Forward::Direct),
        (weir_abi::Forward::Tunnel, Forward::Tunnel),
        (weir_abi::Forward::L3dsr, Forward::L3dsr),
    ];
    let found = known.iter().find(|(row, _)| *row as u8 == number);
    found.map_or(UNKNOWN, |(_, forward)| forward.as_str())
}
