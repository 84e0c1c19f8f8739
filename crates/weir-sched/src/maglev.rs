//! Weir's Maglev table over the 5-tuple hash: for `maglev` services, and for flows without a slot in the flow table.
//!
//! It follows the paper (Eisenbud and others, NSDI 2016, section 3.4) with two differences. Servers take turns by
//! credit in proportion to weight, so shares are correct for all weights, not only for small ones. And servers are
//! identified by a number derived from their address, which also determines their order, so neither file order nor
//! history affects the table: directors with equal servers build equal tables. Nothing here is secret. `maglev`
//! services use an unkeyed hash for lookups, the same on every director; flows without a slot use the keyed hash.

use crate::Error;
use crate::availability::{Availability, Mode};
use crate::hash::mix_64;

/// Table sizes: primes, so that every skip visits every entry.
pub const SIZES: [u32; 10] = [
    251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131_071,
];

/// Minimum entries per server: with fewer, shares become coarse and removing a server moves many flows of others.
const PLACES_PER_SERVER: usize = 100;

/// Minimum entries per server in a spare table.
const SPARE_ENTRIES_PER_SERVER: usize = 20;

/// One server of the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Identifies the server: derived from its address and port, the same on every director. Servers with equal names
    /// take entries one after the other, by `dest`.
    pub name: u64,
    /// The server's value in the table, never 0.
    pub dest: u32,
    /// A server of weight 0 gets no entry.
    pub weight: u32,
}

/// The smallest size with a hundred entries per server; the second largest if there is none, and the largest if that
/// has fewer entries than servers.
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

/// Like [`size_for`], for tables that only serve flows without a slot in the flow table: coarser shares are acceptable,
/// and ten thousand services have one each.
#[must_use]
pub fn spare_size_for(servers: usize) -> u32 {
    let size = size_for(servers.div_ceil(PLACES_PER_SERVER / SPARE_ENTRIES_PER_SERVER));
    if servers > size as usize {
        return size_for(servers);
    }
    size
}

/// State of a server while the table is filled.
struct Filler {
    entry: Entry,
    place: u32,
    skip: u32,
    credit: u64,
}

/// The table: `size` servers by [`Entry::dest`], all 0 when no entry has weight.
///
/// A server's number of entries differs from its exact share of the table by less than two, or by less than one plus
/// its exact share of the number of servers if that is more.
///
/// # Errors
/// [`Error::TableSize`] when `size` is not one of [`SIZES`], [`Error::TooManyServers`] for more servers than entries.
pub fn table(entries: &[Entry], size: u32) -> Result<Vec<u32>, Error> {
    if !SIZES.contains(&size) {
        return Err(Error::TableSize { size });
    }
    let mut turns: Vec<Filler> = entries
        .iter()
        .filter(|entry| entry.weight > 0)
        .map(|&entry| Filler::new(entry, size))
        .collect();
    if turns.len() > size as usize {
        return Err(Error::TooManyServers {
            servers: turns.len(),
            entries: size as usize,
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

/// Gives each entry of an owner that is not usable to the next usable owner after it; all other entries are unchanged.
/// Directors that agree on a table therefore differ only in the entries of servers that they see differently.
///
/// Returns false, and leaves the table as it is, if no owner is usable. The result of [`lookup`] is the same before and
/// after.
pub fn skip(table: &mut [u32], is_usable: &dyn Fn(u32) -> bool) -> bool {
    let usable: Vec<bool> = table.iter().map(|&dest| is_usable(dest)).collect();
    let Some(first) = usable.iter().position(|usable| *usable) else {
        return false;
    };
    let mut next = table[first];
    for (dest, usable) in table.iter_mut().zip(usable).rev() {
        if usable {
            next = *dest;
        } else {
            *dest = next;
        }
    }
    true
}

impl Filler {
    fn new(entry: Entry, size: u32) -> Self {
        let mixed = mix_64(entry.name);
        // Two independent numbers from the halves of a mixed word.
        let (high, low) = ((mixed >> 32) as u32, mixed as u32);
        Self {
            entry,
            place: high % size,
            skip: low % (size - 1) + 1,
            credit: 0,
        }
    }
}

/// The server for a flow's hash: the owner of its entry, or of the next entry whose owner accepts it.
///
/// The index is the upper half of `hash` scaled to the table, which needs no division. An overloaded owner refuses the
/// flow unless `mode` allows fallback, as for `mh`; unavailable servers have no entry.
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
