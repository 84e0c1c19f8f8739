//! Changes servers and directors, and counts the sampled connections that reach a different server than before.
//!
//! All connections exist before the first change. After each change, every connection sends a packet. A connection is
//! broken when one of its packets reaches a server that does not have the connection and cannot forward the packet to
//! the right server. Connections of a server that died are lost in every design; they are counted separately.

mod servers;

use serde::Serialize;
use weir_sched::hash::mix_64;

use crate::design::Design;
use crate::router::{NextHops, Router};
use servers::{Servers, Version};

/// One change to the servers or directors.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A server is added.
    ServerAdded,
    /// A server receives no new connections and keeps its existing ones.
    ServerDrained,
    /// A server dies, and its connections are lost.
    ServerDied,
    /// A director is added to the router's next hops.
    DirectorAdded,
    /// A director is removed from the router's next hops: it was drained or withdrawn, or it died.
    DirectorRemoved,
}

/// Changes made one after another, before any connection ends.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Scenario {
    /// The name in result tables.
    pub name: &'static str,
    /// The changes, in order.
    pub steps: &'static [Step],
}

impl Scenario {
    /// The scenarios in docs/scaling.md.
    pub const ALL: [Self; 10] = {
        use Step::{DirectorAdded, DirectorRemoved, ServerAdded, ServerDied, ServerDrained};
        const fn scenario(name: &'static str, steps: &'static [Step]) -> Scenario {
            Scenario { name, steps }
        }
        [
            scenario("server added", &[ServerAdded]),
            scenario("server drained", &[ServerDrained]),
            scenario("server died", &[ServerDied]),
            scenario("director added", &[DirectorAdded]),
            scenario("director removed", &[DirectorRemoved]),
            scenario(
                "server added, director removed",
                &[ServerAdded, DirectorRemoved],
            ),
            scenario(
                "server drained, director added",
                &[ServerDrained, DirectorAdded],
            ),
            scenario(
                "server drained, director removed",
                &[ServerDrained, DirectorRemoved],
            ),
            scenario(
                "server died, director removed",
                &[ServerDied, DirectorRemoved],
            ),
            scenario(
                "2 servers added, director removed",
                &[ServerAdded, ServerAdded, DirectorRemoved],
            ),
        ]
    };
}

/// The group before the changes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Group {
    /// Number of directors; 1 to 1,000.
    pub directors: u32,
    /// Number of servers, all of equal weight; 2 to 30,000.
    pub servers: u32,
    /// Number of simulated connections; 1 to 10,000,000.
    pub sample: u32,
    /// Share of the connections that are too young to be synchronized when the set of directors changes.
    pub unsynced: f64,
    /// Seed for the hashes of the connections.
    pub seed: u64,
}

/// A value of [`Group`] is outside its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error {
    /// The value's name.
    pub value: &'static str,
    /// The smallest allowed value.
    pub min: u32,
    /// The largest allowed value.
    pub max: u32,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { value, min, max } = self;
        write!(f, "{value} must be between {min} and {max}")
    }
}

impl std::error::Error for Error {}

impl Group {
    /// Checks the numbers of directors, servers and connections.
    ///
    /// # Errors
    /// Fails if one of these numbers is outside its range.
    pub fn check(&self) -> Result<(), Error> {
        let range = |value, number: u32, min: u32, max: u32| match number {
            number if (min..=max).contains(&number) => Ok(()),
            _ => Err(Error { value, min, max }),
        };
        range("directors", self.directors, 1, 1_000)?;
        range("servers", self.servers, 2, 30_000)?;
        range("sample", self.sample, 1, 10_000_000)
    }
}

/// The results for a sample, as shares of all its connections.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    /// Connections with a packet that reached a server that does not have the connection and cannot forward the packet
    /// to the right server.
    pub broken: f64,
    /// Connections of servers that died.
    pub lost: f64,
    /// Connections whose director differs from the initial one.
    pub moved: f64,
    /// Connections for which the table selects a server other than the initial one.
    pub changed: f64,
}

struct Connection {
    hash: u64,
    director: u32,
    server: u32,
    /// Whether the connection is broken or lost.
    failed: bool,
}

/// The sampled connections of one design before any change.
#[derive(Debug)]
pub struct Simulation {
    group: Group,
    design: Design,
    first: Version,
    /// Each connection's hash and server.
    connections: Vec<(u64, u32)>,
}

impl Simulation {
    /// Creates the connections and selects a server for each of them.
    ///
    /// # Errors
    /// Fails if a value of `group` is outside its range.
    pub fn new(group: Group, design: Design) -> Result<Self, Error> {
        group.check()?;
        let first = Version::new(design, &Servers::new(group.servers));
        let connections = (0..u64::from(group.sample))
            .map(|number| mix_64(mix_64(group.seed) ^ number))
            .map(|hash| (hash, first.select(hash)))
            .collect();
        Ok(Self {
            group,
            design,
            first,
            connections,
        })
    }

    /// Applies the changes of a scenario and returns the outcome.
    #[must_use]
    pub fn run(&self, router: Router, scenario: &Scenario) -> Outcome {
        let initial_hops = NextHops::new(router, self.group.directors);
        let mut next_hops = initial_hops.clone();
        let mut servers = Servers::new(self.group.servers);
        let (mut version, mut previous) = (self.first.clone(), self.first.clone());
        let mut connections: Vec<Connection> = self
            .connections
            .iter()
            .map(|&(hash, server)| Connection {
                hash,
                director: initial_hops.director(router_hash(hash)),
                server,
                failed: false,
            })
            .collect();
        let (mut broken, mut lost) = (0u32, 0u32);
        for (number, step) in scenario.steps.iter().enumerate() {
            match step {
                Step::DirectorAdded => next_hops.add(self.group.directors + number as u32),
                Step::DirectorRemoved => next_hops.remove(self.group.directors as usize / 3),
                Step::ServerAdded | Step::ServerDrained | Step::ServerDied => {
                    let dead_server = servers.change(*step);
                    let next = version.next(&servers);
                    previous = std::mem::replace(&mut version, next);
                    for connection in connections
                        .iter_mut()
                        .filter(|connection| Some(connection.server) == dead_server)
                    {
                        lost += 1;
                        connection.failed = true;
                    }
                }
            }
            for connection in connections
                .iter_mut()
                .filter(|connection| !connection.failed)
            {
                let director = next_hops.director(router_hash(connection.hash));
                let has_entry = self.has_entry(connection, director, number);
                connection.director = director;
                let (hash, server) = (connection.hash, connection.server);
                let reaches = has_entry
                    || version.reaches(hash, server)
                    || self.design == Design::SecondHop && previous.select(hash) == server;
                if !reaches {
                    broken += 1;
                    connection.failed = true;
                }
            }
        }
        let share = |count: usize| count as f64 / f64::from(self.group.sample);
        let hashes = || self.connections.iter().map(|(hash, _)| *hash);
        let is_moved = |hash: &u64| {
            initial_hops.director(router_hash(*hash)) != next_hops.director(router_hash(*hash))
        };
        let is_changed = |hash: &u64| self.first.select(*hash) != version.select(*hash);
        Outcome {
            broken: share(broken as usize),
            lost: share(lost as usize),
            moved: share(hashes().filter(is_moved).count()),
            changed: share(hashes().filter(is_changed).count()),
        }
    }

    /// Returns whether the director has an entry for the connection.
    fn has_entry(&self, connection: &Connection, director: u32, step: usize) -> bool {
        let is_young = pseudorandom(connection.hash, step) < self.group.unsynced;
        let is_synchronized = self.design == Design::Sync && !is_young;
        self.design.has_flow_table() && (director == connection.director || is_synchronized)
    }
}

/// Returns the router's hash, which is independent of the directors' hash.
fn router_hash(hash: u64) -> u32 {
    mix_64(hash ^ 0x5bd1_e995) as u32
}

/// Returns a pseudorandom number in 0..1 for a connection and a step.
fn pseudorandom(hash: u64, step: usize) -> f64 {
    (mix_64(hash ^ (step as u64 + 1)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
