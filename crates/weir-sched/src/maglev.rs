//! Weir's own Maglev table over the 5-tuple hash: for `maglev` services, and for flows that find no place in the flow table.
//!
//! It follows the paper (Eisenbud and others, NSDI 2016, §3.4) with two differences. Servers take their turns by credit in
//! proportion to weight, so shares are right for any weights and not for small ones only. And servers are known by a name
//! that comes from their address, in whose order they take turns, so that neither file order nor history changes the table:
//! directors with equal servers agree without talking. Nothing here is secret. `maglev` services look it up by a hash without a
//! key, the same on every director; flows that find no place in the flow table by the keyed one.

use crate::Error;
use crate::availability::{Availability, Mode};
use crate::hash::mix_64;

/// Table sizes: primes, so that every skip visits every place.
pub const SIZES: [u32; 10] = [
    251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131_071,
];

/// Places per server below which shares become coarse and removing a server moves many others' flows.
const PLACES_PER_SERVER: usize = 100;

/// The same of a spare table.
const SPARE_PLACES_PER_SERVER: usize = 20;

/// One server of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Who the server is: a number made from its address and port, the same on every director. Servers of equal name get
    /// places one after the other, by `dest`.
    pub name: u64,
    /// What the table holds for it, never 0.
    pub dest: u32,
    /// 0 gets no place.
    pub weight: u32,
}

/// The smallest size with a hundred places per server, the last but one where there is none, and the last for more servers
/// than that has places.
#[must_use]
pub fn size_for(servers: usize) -> u32 {
    let wanted = servers.saturating_mul(PLACES_PER_SERVER);
    let [usual @ .., largest] = SIZES;
    let [.., most] = usual;
    if servers > most as usize {
        return largest;
    }
    usual
        .into_iter()
        .find(|&size| size as usize >= wanted)
        .unwrap_or(most)
}

/// As [`size_for`], where only what finds no place in the flow table goes by the table: shares may be coarser, and ten
/// thousand services have one each.
#[must_use]
pub fn spare_size_for(servers: usize) -> u32 {
    let size = size_for(servers.div_ceil(PLACES_PER_SERVER / SPARE_PLACES_PER_SERVER));
    if servers > size as usize {
        return size_for(servers);
    }
    size
}

/// A server while the table fills.
struct Turn {
    entry: Entry,
    place: u32,
    skip: u32,
    credit: u64,
}

/// The table: `size` servers by [`Entry::dest`], all 0 when no entry has weight.
///
/// A server's places differ from its exact share of the table by less than two, or by less than one plus its exact share of
/// the number of servers when that is more.
///
/// # Errors
/// [`Error::TableSize`] when `size` is not one of [`SIZES`], [`Error::TooManyServers`] for more servers than places.
pub fn table(entries: &[Entry], size: u32) -> Result<Vec<u32>, Error> {
    if !SIZES.contains(&size) {
        return Err(Error::TableSize { size });
    }
    let mut turns: Vec<Turn> = entries
        .iter()
        .filter(|entry| entry.weight > 0)
        .map(|&entry| Turn::new(entry, size))
        .collect();
    if turns.len() > size as usize {
        return Err(Error::TooManyServers {
            servers: turns.len(),
            places: size as usize,
        });
    }
    turns.sort_by_key(|turn| (turn.entry.name, turn.entry.dest));
    let mut table = vec![0; size as usize];
    let Some(greatest) = turns.iter().map(|turn| u64::from(turn.entry.weight)).max() else {
        return Ok(table);
    };
    let mut free = table.len();
    while free > 0 {
        for turn in &mut turns {
            turn.credit += u64::from(turn.entry.weight);
            if turn.credit < greatest || free == 0 {
                continue;
            }
            turn.credit -= greatest;
            while table[turn.place as usize] != 0 {
                turn.place = (turn.place + turn.skip) % size;
            }
            table[turn.place as usize] = turn.entry.dest;
            free -= 1;
        }
    }
    Ok(table)
}

impl Turn {
    fn new(entry: Entry, size: u32) -> Self {
        let mixed = mix_64(entry.name);
        // Two independent numbers out of one: the halves of a well mixed word.
        let (high, low) = ((mixed >> 32) as u32, mixed as u32);
        Self {
            entry,
            place: high % size,
            skip: low % (size - 1) + 1,
            credit: 0,
        }
    }
}

/// The server for a flow's hash: the owner of its place, or of the next place whose owner takes it.
///
/// The place is the upper half of `hash` scaled to the table, which needs no prime and no division. An owner that is
/// overloaded is refused without `mode`'s fallback, as for `mh`; those that are out have no place.
pub fn lookup(
    table: &[u32],
    hash: u64,
    mode: Mode,
    availability: &dyn Fn(u32) -> Availability,
) -> Option<u32> {
    let first = (((hash >> 32) * table.len() as u64) >> 32) as usize;
    let (before, from) = table.split_at_checked(first)?;
    mode.choose(from.iter().chain(before).copied(), availability)
}

#[cfg(test)]
mod tests;
