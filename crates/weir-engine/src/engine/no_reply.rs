//! Warns about `nat` servers whose replies bypass the director, from counters of SYNs and replies.
//!
//! Only services without `snat` are watched. A warning does not change weights. weir-health's `ReplyWatch` evaluates
//! the counters.

use std::collections::{HashMap, HashSet};
use std::net::IpAddr;
use std::time::{Duration, Instant, UNIX_EPOCH};

use weir_abi::{KIND_FORWARD, State};
use weir_health::{Client, Finding, Key, NoReplyWarning, ReplyCounters, Silence};
use weir_model::{Indexed, NO_REPLY_LIFETIME, Service};
use weir_planner::allocation::DestSlot;
use weir_state::ServerStates;
use weir_sys::SteadyClock;

use super::Engine;
use crate::error::Result;
use crate::reply_monitor::ReplyMonitor;
use crate::snapshot::Warning;

/// Scans of the flow table take at most 1/[`SCAN_TIME_DIVISOR`] of the time, and run at most once per
/// [`SCAN_INTERVAL`].
const SCAN_TIME_DIVISOR: u32 = 20;
const SCAN_INTERVAL: Duration = Duration::from_millis(500);

/// A server that is checked for replies.
#[derive(Clone, Copy)]
struct WatchedServer<'a> {
    service: &'a str,
    server: &'a str,
    address: IpAddr,
    dest: u32,
    generation: u32,
    counters: ReplyCounters,
}

const fn key(dest: u32, generation: u32) -> Key {
    (generation as u64) << 32 | dest as u64
}

impl WatchedServer<'_> {
    const fn key(&self) -> Key {
        key(self.dest, self.generation)
    }
}

impl Engine {
    /// Evaluates the counters since the last call and logs changes.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub(super) fn update_reply_monitor(&mut self, states: &ServerStates) -> Result<()> {
        let mut reply_monitor = std::mem::take(&mut self.reply_monitor);
        let result = self.check_replies(&mut reply_monitor, states);
        self.reply_monitor = reply_monitor;
        result
    }

    fn check_replies(&self, reply_monitor: &mut ReplyMonitor, states: &ServerStates) -> Result<()> {
        let now = SteadyClock::of_process().now();
        let (mut present, mut suspects) = (HashSet::new(), Vec::new());
        for watched in self.watched_servers(states)? {
            let (key, mut counters) = (watched.key(), watched.counters);
            present.insert(key);
            if reply_monitor.servers.needs_replies(key, counters) {
                counters.replies = Some(self.plane.maps().traffic(watched.dest)?.packets_out);
            }
            match reply_monitor.servers.observe(key, counters, now) {
                Finding::Suspect => suspects.push(watched),
                Finding::Replied => tracing::info!(
                    service = watched.service,
                    server = watched.server,
                    "a server's replies pass through the director again"
                ),
                Finding::Expired => tracing::info!(
                    service = watched.service,
                    server = watched.server,
                    minutes = NO_REPLY_LIFETIME.as_secs() / 60,
                    "the warning about missing replies has ended: no client has tried again"
                ),
                Finding::Unchanged => {}
            }
        }
        if !suspects.is_empty() && Instant::now() >= reply_monitor.next_scan {
            self.read_waiting_clients(reply_monitor, &suspects, now);
        }
        reply_monitor.servers.retain(|key| present.contains(&key));
        Ok(())
    }

    /// Returns the counters of servers that pass their checks and must reply through the director.
    fn watched_servers(&self, states: &ServerStates) -> Result<Vec<WatchedServer<'_>>> {
        let mut servers = Vec::new();
        let services = self.desired.services.iter();
        for service in services.filter(|service| service.snat.is_none()) {
            let Some(slot) = self.state.allocation.services.get(&service.name) else {
                continue;
            };
            for dest in slot.dests.iter().filter(|dest| dest.removed.is_none()) {
                let row = self.plane.maps().dests.get(dest.id)?;
                if row.forward != weir_abi::Forward::Nat as u8 || !is_up(states, service, dest) {
                    continue;
                }
                let live = self.plane.maps().live(dest.id)?;
                servers.push(WatchedServer {
                    service: &service.name,
                    server: &dest.name,
                    address: dest.address,
                    dest: dest.id,
                    generation: dest.generation,
                    counters: ReplyCounters {
                        syns: live.syns,
                        answered: live.answered,
                        replies: None,
                        detection_time: match live.answered == 0 && live.syns > 0 {
                            true => detection_time(&self.desired, service, &dest.name),
                            false => Duration::MAX,
                        },
                    },
                });
            }
        }
        Ok(servers)
    }

    /// Finds the clients in the flow table that are waiting for a reply from a suspect server.
    fn read_waiting_clients(
        &self,
        reply_monitor: &mut ReplyMonitor,
        suspects: &[WatchedServer<'_>],
        now: Duration,
    ) {
        let started = Instant::now();
        let rows = suspects.iter().map(|suspect| (suspect.dest, Vec::new()));
        let mut waiting: HashMap<u32, Vec<Client>> = rows.collect();
        for flow in self.plane.maps().flows.walk() {
            let meta = flow.meta();
            if meta.kind == KIND_FORWARD
                && meta.state == State::SynRecv as u8
                && let Some(clients) = waiting.get_mut(&flow.dest())
            {
                let client = flow.cold.src.to_ip();
                // Replies to this machine's own addresses always arrive here.
                if self.network.device_with(client).is_none() {
                    clients.push((client, flow.cold.sport.get()));
                }
            }
        }
        reply_monitor.next_scan =
            Instant::now() + (started.elapsed() * SCAN_TIME_DIVISOR).max(SCAN_INTERVAL);
        for watched in suspects {
            let clients = waiting.remove(&watched.dest).unwrap_or_default();
            let (key, syns) = (watched.key(), watched.counters.syns);
            let is_neighbor = |client| self.network.is_same_segment(client, watched.address);
            let servers = &mut reply_monitor.servers;
            if let Some(warning) = servers.add_clients(key, syns, clients, is_neighbor, now) {
                tracing::warn!(
                    service = watched.service,
                    server = watched.server,
                    cause = reason(warning),
                    "clients of a server receive no replies"
                );
            }
        }
    }

    /// Returns the period in which the server has sent no reply, if clients are waiting for one.
    pub(super) fn silence(&self, dest: &DestSlot) -> Option<Silence> {
        let key = key(dest.id, dest.generation);
        self.reply_monitor.servers.silence(key)
    }

    /// Returns the warning about a server that has not been removed. Reads the server's counters: a reply ends the
    /// warning immediately, not only when the counters are next read for passive checks.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub(super) fn warning(&self, dest: &DestSlot) -> Result<Option<Warning>> {
        let (key, servers) = (key(dest.id, dest.generation), &self.reply_monitor.servers);
        if dest.removed.is_some() || servers.warning(key).is_none() {
            return Ok(None);
        }
        let live = self.plane.maps().live(dest.id)?;
        let counters = ReplyCounters {
            syns: live.syns,
            answered: live.answered,
            replies: Some(self.plane.maps().traffic(dest.id)?.packets_out),
            detection_time: Duration::MAX,
        };
        let now = SteadyClock::of_process().now();
        Ok(servers.warning_at(key, counters).map(|warning| Warning {
            reason: reason(warning),
            since: UNIX_EPOCH + warning.since,
            last_seen_seconds: now.saturating_sub(warning.last_syn).as_secs(),
        }))
    }
}

/// Returns the maximum time until a server's checks detect that the server has failed; unlimited without a check.
fn detection_time(desired: &Indexed, service: &Service, server: &str) -> Duration {
    let pool = desired.pool(&service.pool);
    let checks = pool.and_then(|pool| Some(pool.checks_of(pool.server(server)?)));
    let times = checks.into_iter().flatten();
    let times = times.map(|check| check.timing.detection_time());
    times.max().unwrap_or(Duration::MAX)
}

fn is_up(states: &ServerStates, service: &Service, dest: &DestSlot) -> bool {
    let server_health = states.health_in(&service.pool, &dest.name, &service.name);
    server_health.is_some_and(|health| health.state == weir_health::State::Up)
}

fn reason(warning: &NoReplyWarning) -> String {
    // Clients whose flows were removed before the search of the flow table are not known.
    let clients = match warning.clients {
        1 => "at least 1 client".to_owned(),
        many => format!("at least {many} clients"),
    };
    let other_path = "the server's replies take another path (with `nat` but without `snat`, the director must be the \
                      server's default gateway), or the server drops clients' SYNs";
    let cause = match warning.neighbor {
        Some(client) if warning.neighbors == warning.clients => format!(
            "the client {client} is on the server's own segment, so the server replies to it directly (`nat` \
             without `snat`)"
        ),
        Some(client) => format!(
            "{other_path}; the server replies directly to clients on its own segment, such as {client}"
        ),
        None => other_path.to_owned(),
    };
    format!(
        "{} SYNs from {clients} received no reply through the director, although the check passes: {cause}",
        warning.syns
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn reason_mentions_the_gateway_unless_all_clients_are_neighbors() {
        let neighbor = Some(IpAddr::from([10, 0, 0, 100]));
        for (neighbors, neighbor, is_gateway, is_named) in [
            (0, None, true, false),
            (1, neighbor, true, true),
            (4, neighbor, false, true),
        ] {
            let warning = NoReplyWarning {
                syns: 10,
                clients: 4,
                neighbors,
                neighbor,
                since: Duration::ZERO,
                last_syn: Duration::ZERO,
            };
            let reason = reason(&warning);
            assert!(
                reason.starts_with("10 SYNs from at least 4 clients "),
                "{reason}"
            );
            let causes = (
                reason.contains("default gateway"),
                reason.contains("10.0.0.100"),
            );
            assert_eq!(causes, (is_gateway, is_named), "{reason}");
        }
    }
}
