//! The servers, and each version of the table that selects one of them.

use weir_sched::hash::mix_64;
use weir_sched::maglev;

use super::Step;
use crate::design::Design;

/// Rows of GLB's table.
const ROWS: usize = 1 << 16;

/// The servers of a service.
#[derive(Debug, Clone)]
pub(super) struct Servers {
    /// Servers that exist, by number, and whether each gets new connections.
    all: Vec<(u32, bool)>,
    /// Number of the next server.
    next: u32,
}

impl Servers {
    pub(super) fn new(count: u32) -> Self {
        Self {
            all: (1..=count).map(|id| (id, true)).collect(),
            next: count + 1,
        }
    }

    fn get(&self, id: u32) -> Option<(u32, bool)> {
        let at = self.all.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.all[at])
    }

    /// Changes one server and returns the one that died.
    pub(super) fn change(&mut self, step: Step) -> Option<u32> {
        let middle = self.all.len() / 2;
        match step {
            Step::ServerAdded => {
                self.all.push((self.next, true));
                self.next += 1;
                None
            }
            Step::ServerDrained => {
                self.all[middle].1 = false;
                None
            }
            Step::ServerDied => Some(self.all.remove(middle).0),
            Step::DirectorAdded | Step::DirectorRemoved => None,
        }
    }
}

/// What directors know of the servers at one time.
#[derive(Debug, Clone)]
pub(super) enum Version {
    Modulo(Vec<u32>),
    Maglev(Vec<u32>),
    /// Servers, and the two of each row: new connections go to the first one.
    Glb(Vec<(u32, bool)>, Vec<[u32; 2]>),
}

impl Version {
    pub(super) fn new(design: Design, servers: &Servers) -> Self {
        match design {
            Design::Modulo => Self::Modulo(usable(servers)),
            Design::Glb => {
                let rows = (0..ROWS).map(|row| two_best(row, &servers.all)).collect();
                Self::Glb(servers.all.clone(), rows)
            }
            Design::Maglev | Design::FlowTable | Design::Sync | Design::SecondHop => {
                Self::Maglev(table(servers))
            }
        }
    }

    /// The version after a change.
    pub(super) fn next(&self, servers: &Servers) -> Self {
        match self {
            Self::Modulo(_) => Self::Modulo(usable(servers)),
            Self::Maglev(_) => Self::Maglev(table(servers)),
            Self::Glb(before, rows) => {
                let mut rows = rows.clone();
                for (row, two) in rows.iter_mut().enumerate() {
                    let gone = two.iter().any(|&id| servers.get(id).is_none());
                    *two = if gone {
                        two_best(row, &servers.all)
                    } else {
                        let added = servers.all.iter().skip(before.len());
                        let candidates = two.iter().copied().chain(added.map(|(id, _)| *id));
                        let known: Vec<_> = candidates.filter_map(|id| servers.get(id)).collect();
                        two_best(row, &known)
                    };
                }
                Self::Glb(servers.all.clone(), rows)
            }
        }
    }

    /// The server of a new connection.
    pub(super) fn select(&self, hash: u64) -> u32 {
        match self {
            Self::Modulo(servers) => servers[(hash % servers.len() as u64) as usize],
            Self::Maglev(table) => table[scaled(hash, table.len())],
            Self::Glb(_, rows) => rows[scaled(hash, ROWS)][0],
        }
    }

    /// Whether a packet reaches `server` without any memory of its connection.
    pub(super) fn reaches(&self, hash: u64, server: u32) -> bool {
        match self {
            Self::Modulo(_) | Self::Maglev(_) => self.select(hash) == server,
            Self::Glb(_, rows) => rows[scaled(hash, ROWS)].contains(&server),
        }
    }
}

/// The upper half of the hash scaled to a table, as [`maglev::lookup`] does.
fn scaled(hash: u64, length: usize) -> usize {
    (((hash >> 32) * length as u64) >> 32) as usize
}

fn usable(servers: &Servers) -> Vec<u32> {
    servers
        .all
        .iter()
        .filter(|(_, usable)| *usable)
        .map(|(id, _)| *id)
        .collect()
}

fn table(servers: &Servers) -> Vec<u32> {
    let entries: Vec<_> = usable(servers)
        .into_iter()
        .map(|id| maglev::Entry {
            name: mix_64(u64::from(id)),
            dest: id,
            weight: 1,
        })
        .collect();
    maglev::table(&entries, maglev::size_for(entries.len()))
        .expect("size_for has a place for each server")
}

/// The two servers with the greatest rendezvous hash; one that is drained comes second (GLB's "draining" state).
fn two_best(row: usize, servers: &[(u32, bool)]) -> [u32; 2] {
    let score = |id: u32| mix_64(mix_64(row as u64) ^ u64::from(id));
    let mut best = [(0, 0, false); 2];
    for &(id, usable) in servers {
        let this = (score(id), id, usable);
        if this.0 > best[0].0 {
            best = [this, best[0]];
        } else if this.0 > best[1].0 {
            best[1] = this;
        }
    }
    if !best[0].2 && best[1].2 {
        best.swap(0, 1);
    }
    [best[0].1, best[1].1]
}
