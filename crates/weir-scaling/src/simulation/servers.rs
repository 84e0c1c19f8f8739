//! Models the servers, and the versions of the table that selects one of them.

use weir_sched::hash::mix_64;
use weir_sched::maglev;

use super::Step;
use crate::design::Design;

/// Number of rows in GLB's table.
const ROWS: usize = 1 << 16;

/// The servers of a service.
#[derive(Debug, Clone)]
pub(super) struct Servers {
    /// The servers, ordered by number, and whether each receives new connections.
    all: Vec<(u32, bool)>,
    /// Number of the next server to be added.
    next_id: u32,
}

impl Servers {
    pub(super) fn new(count: u32) -> Self {
        Self {
            all: (1..=count).map(|id| (id, true)).collect(),
            next_id: count + 1,
        }
    }

    fn get(&self, id: u32) -> Option<(u32, bool)> {
        let index = self.all.binary_search_by_key(&id, |(id, _)| *id).ok()?;
        Some(self.all[index])
    }

    /// Applies a step to the servers. Returns the server that died, if any. Steps for directors have no effect.
    pub(super) fn change(&mut self, step: Step) -> Option<u32> {
        let middle = self.all.len() / 2;
        match step {
            Step::ServerAdded => {
                self.all.push((self.next_id, true));
                self.next_id += 1;
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

/// One version of the table that directors use to select servers.
#[derive(Debug, Clone)]
pub(super) enum Version {
    Modulo(Vec<u32>),
    Maglev(Vec<u32>),
    /// All servers, and the two servers of each row; new connections go to the first one.
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

    /// Returns the next version of the table, after a change to the servers.
    pub(super) fn next(&self, servers: &Servers) -> Self {
        match self {
            Self::Modulo(_) => Self::Modulo(usable(servers)),
            Self::Maglev(_) => Self::Maglev(table(servers)),
            Self::Glb(before, rows) => {
                let mut rows = rows.clone();
                for (row, pair) in rows.iter_mut().enumerate() {
                    let is_removed = pair.iter().any(|&id| servers.get(id).is_none());
                    *pair = if is_removed {
                        two_best(row, &servers.all)
                    } else {
                        let added = servers.all.iter().skip(before.len());
                        let candidates = pair.iter().copied().chain(added.map(|(id, _)| *id));
                        let existing: Vec<_> =
                            candidates.filter_map(|id| servers.get(id)).collect();
                        two_best(row, &existing)
                    };
                }
                Self::Glb(servers.all.clone(), rows)
            }
        }
    }

    /// Returns the server for a new connection.
    pub(super) fn select(&self, hash: u64) -> u32 {
        match self {
            Self::Modulo(servers) => servers[(hash % servers.len() as u64) as usize],
            Self::Maglev(table) => table[scale(hash, table.len())],
            Self::Glb(_, rows) => rows[scale(hash, ROWS)][0],
        }
    }

    /// Returns whether a packet reaches `server` although no director has an entry for its connection.
    pub(super) fn reaches(&self, hash: u64, server: u32) -> bool {
        match self {
            Self::Modulo(_) | Self::Maglev(_) => self.select(hash) == server,
            Self::Glb(_, rows) => rows[scale(hash, ROWS)].contains(&server),
        }
    }
}

/// Maps a hash to an index in a table of this length, as [`maglev::lookup`] does.
fn scale(hash: u64, length: usize) -> usize {
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
        .expect("size_for returns at least the number of servers")
}

/// Returns the two servers with the greatest rendezvous hashes; a drained server is second (GLB's "draining" state).
fn two_best(row: usize, servers: &[(u32, bool)]) -> [u32; 2] {
    let score = |id: u32| mix_64(mix_64(row as u64) ^ u64::from(id));
    let mut best = [(0, 0, false); 2];
    for &(id, usable) in servers {
        let candidate = (score(id), id, usable);
        if candidate.0 > best[0].0 {
            best = [candidate, best[0]];
        } else if candidate.0 > best[1].0 {
            best[1] = candidate;
        }
    }
    if !best[0].2 && best[1].2 {
        best.swap(0, 1);
    }
    [best[0].1, best[1].1]
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_servers_with_the_greatest_hashes_are_selected_and_a_drained_one_is_second() {
        for row in 0..200 {
            let mut servers: Vec<(u32, bool)> = (1..=8).map(|id| (id, id % 3 != 0)).collect();
            let [first, second] = two_best(row, &servers);
            servers.sort_by_key(|(id, _)| mix_64(mix_64(row as u64) ^ u64::from(*id)));
            let (best, next) = (servers[7], servers[6]);
            let is_swapped = !best.1 && next.1;
            let expected = if is_swapped {
                [next.0, best.0]
            } else {
                [best.0, next.0]
            };
            assert_eq!([first, second], expected, "{row}");
        }
    }

    #[test]
    fn change_affects_one_server() {
        let mut servers = Servers::new(4);
        assert_eq!(servers.change(Step::ServerAdded), None);
        assert_eq!(servers.change(Step::ServerAdded), None);
        let numbers =
            |servers: &Servers| -> Vec<u32> { servers.all.iter().map(|(id, _)| *id).collect() };
        assert_eq!(numbers(&servers), [1, 2, 3, 4, 5, 6]);
        assert_eq!(servers.change(Step::ServerDrained), None);
        assert_eq!(usable(&servers), [1, 2, 3, 5, 6]);
        assert_eq!(servers.change(Step::ServerDied), Some(4));
        assert_eq!(servers.change(Step::ServerDied), Some(3));
        assert_eq!(servers.change(Step::DirectorAdded), None);
        assert_eq!(servers.change(Step::DirectorRemoved), None);
        assert_eq!(numbers(&servers), [1, 2, 5, 6]);
        servers.change(Step::ServerDrained);
        let states = [2, 3, 5, 6, 7].map(|id| servers.get(id));
        assert_eq!(
            states,
            [
                Some((2, true)),
                None,
                Some((5, false)),
                Some((6, true)),
                None
            ]
        );
    }
}
