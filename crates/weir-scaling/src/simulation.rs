//! Lets servers and directors change, and counts the connections of a sample that reach another server than before.
//!
//! All connections exist before the first change. After each change every connection sends a packet. A connection is
//! broken once a packet of it reaches a server that does not know it and cannot pass it on. Connections of a server
//! that died are lost in every design; they are counted apart.

mod servers;

use serde::Serialize;
use weir_sched::hash::mix_64;

use crate::design::Design;
use crate::router::{Router, Spread};
use servers::{Servers, Version};

/// One change.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
#[serde(rename_all = "kebab-case")]
pub enum Step {
    /// A server is added.
    ServerAdded,
    /// A server gets no new connections and keeps those it has.
    ServerDrained,
    /// A server dies with its connections.
    ServerDied,
    /// The router gets a further director.
    DirectorAdded,
    /// The router loses a director: it was drained, withdrawn, or it died.
    DirectorRemoved,
}

/// Changes that happen one after the other, sooner than connections end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct Scenario {
    /// The name in tables.
    pub name: &'static str,
    /// In this order.
    pub steps: &'static [Step],
}

impl Scenario {
    /// The scenarios of docs/scaling.md.
    pub const ALL: [Self; 10] = {
        use Step::{DirectorAdded, DirectorRemoved, ServerAdded, ServerDied, ServerDrained};
        const fn of(name: &'static str, steps: &'static [Step]) -> Scenario {
            Scenario { name, steps }
        }
        [
            of("server added", &[ServerAdded]),
            of("server drained", &[ServerDrained]),
            of("server died", &[ServerDied]),
            of("director added", &[DirectorAdded]),
            of("director removed", &[DirectorRemoved]),
            of(
                "server added, director removed",
                &[ServerAdded, DirectorRemoved],
            ),
            of(
                "server drained, director added",
                &[ServerDrained, DirectorAdded],
            ),
            of(
                "server drained, director removed",
                &[ServerDrained, DirectorRemoved],
            ),
            of(
                "server died, director removed",
                &[ServerDied, DirectorRemoved],
            ),
            of(
                "2 servers added, director removed",
                &[ServerAdded, ServerAdded, DirectorRemoved],
            ),
        ]
    };
}

/// The group before the changes.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Group {
    /// Number of directors; 1 to 1 000.
    pub directors: u32,
    /// Number of servers of equal weight; 2 to 30 000.
    pub servers: u32,
    /// Connections that are simulated; 1 to 10 000 000.
    pub sample: u32,
    /// Share of the connections that are too young to have been synchronized when a director changes.
    pub unsynced: f64,
    /// Seed of the connections' hashes.
    pub seed: u64,
}

/// A value of [`Group`] outside its range.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Error {
    /// The value's name.
    pub value: &'static str,
    /// The smallest allowed value.
    pub least: u32,
    /// The largest allowed value.
    pub most: u32,
}

impl std::fmt::Display for Error {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Self { value, least, most } = self;
        write!(f, "{value} must be between {least} and {most}")
    }
}

impl std::error::Error for Error {}

impl Group {
    /// # Errors
    /// A value outside its range.
    pub fn check(&self) -> Result<(), Error> {
        let range = |value, number: u32, least: u32, most: u32| match number {
            number if (least..=most).contains(&number) => Ok(()),
            _ => Err(Error { value, least, most }),
        };
        range("directors", self.directors, 1, 1_000)?;
        range("servers", self.servers, 2, 30_000)?;
        range("sample", self.sample, 1, 10_000_000)
    }
}

/// What happened to the sample. Shares are of all its connections.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub struct Outcome {
    /// Connections that reached a server that does not know them.
    pub broken: f64,
    /// Connections of servers that died.
    pub lost: f64,
    /// Connections that have another director than at the beginning.
    pub moved: f64,
    /// Connections for which the table selects another server than at the beginning.
    pub changed: f64,
}

struct Connection {
    hash: u64,
    director: u32,
    server: u32,
    ended: bool,
}

/// A sample of connections of one design, before any change.
#[derive(Debug)]
pub struct Simulation {
    group: Group,
    design: Design,
    first: Version,
    /// Each connection's hash and server.
    connections: Vec<(u64, u32)>,
}

impl Simulation {
    /// Selects a server for each connection.
    ///
    /// # Errors
    /// A value of `group` outside its range.
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

    /// Lets the changes of a scenario happen.
    #[must_use]
    pub fn run(&self, router: Router, scenario: &Scenario) -> Outcome {
        let started = Spread::new(router, self.group.directors);
        let mut spread = started.clone();
        let mut servers = Servers::new(self.group.servers);
        let (mut version, mut previous) = (self.first.clone(), self.first.clone());
        let mut connections: Vec<Connection> = self
            .connections
            .iter()
            .map(|&(hash, server)| Connection {
                hash,
                director: started.director(router_hash(hash)),
                server,
                ended: false,
            })
            .collect();
        let (mut broken, mut lost) = (0u32, 0u32);
        for (number, step) in scenario.steps.iter().enumerate() {
            match step {
                Step::DirectorAdded => spread.add(self.group.directors + number as u32),
                Step::DirectorRemoved => spread.remove(self.group.directors as usize / 3),
                Step::ServerAdded | Step::ServerDrained | Step::ServerDied => {
                    let died = servers.change(*step);
                    let next = version.next(&servers);
                    previous = std::mem::replace(&mut version, next);
                    for connection in connections
                        .iter_mut()
                        .filter(|connection| Some(connection.server) == died)
                    {
                        lost += 1;
                        connection.ended = true;
                    }
                }
            }
            for connection in connections
                .iter_mut()
                .filter(|connection| !connection.ended)
            {
                let director = spread.director(router_hash(connection.hash));
                let known = self.is_known(connection, director, number);
                connection.director = director;
                let (hash, server) = (connection.hash, connection.server);
                let reaches = known
                    || version.reaches(hash, server)
                    || self.design == Design::SecondHop && previous.select(hash) == server;
                if !reaches {
                    broken += 1;
                    connection.ended = true;
                }
            }
        }
        let share = |count: usize| count as f64 / f64::from(self.group.sample);
        let hashes = || self.connections.iter().map(|(hash, _)| *hash);
        let moved = |hash: &u64| {
            started.director(router_hash(*hash)) != spread.director(router_hash(*hash))
        };
        let changed = |hash: &u64| self.first.select(*hash) != version.select(*hash);
        Outcome {
            broken: share(broken as usize),
            lost: share(lost as usize),
            moved: share(hashes().filter(moved).count()),
            changed: share(hashes().filter(changed).count()),
        }
    }

    /// Whether the director has an entry of the connection.
    fn is_known(&self, connection: &Connection, director: u32, step: usize) -> bool {
        let young = draw(connection.hash, step) < self.group.unsynced;
        let synchronized = self.design == Design::Sync && !young;
        self.design.remembers() && (director == connection.director || synchronized)
    }
}

/// The router's hash, which is unrelated to that of the directors.
fn router_hash(hash: u64) -> u32 {
    mix_64(hash ^ 0x5bd1_e995) as u32
}

/// A number in 0..1 from a connection's hash, another one for each step.
fn draw(hash: u64, step: usize) -> f64 {
    (mix_64(hash ^ (step as u64 + 1)) >> 11) as f64 / (1u64 << 53) as f64
}

#[cfg(test)]
mod tests;
