//! Implements Weir's Maglev table, which the 5-tuple hash indexes.
//!
//! It is used for `maglev` services, and for flows without an entry in the flow table.
//!
//! The algorithm is from the paper (Eisenbud and others, NSDI 2016, section 3.4), with two differences. First, servers
//! take turns according to a credit that is proportional to their weight, so shares are correct for all weights, not
//! only for small ones. Second, servers are identified by a number derived from their address, which also determines
//! their order, so neither file order nor history affects the table: directors with the same servers build the same
//! tables. The table is not secret. Lookups for `maglev` services without persistence use an unkeyed hash, which is the
//! same on every director; all other lookups use the keyed hash.

use crate::Error;
use crate::availability::{Availability, Mode};
use crate::hash::mix_64;

/// Table sizes. They are primes, so every skip visits every entry.
pub const SIZES: [u32; 10] = [
    251, 509, 1021, 2039, 4093, 8191, 16381, 32749, 65521, 131_071,
];

/// Minimum number of entries per server: with fewer, shares become coarse, and removing a server moves many flows of
/// other servers.
const ENTRIES_PER_SERVER: usize = 100;

/// Minimum number of entries per server in a spare table.
const SPARE_ENTRIES_PER_SERVER: usize = 20;

/// A server in the table.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// Number that identifies the server: it is derived from the server's address and port, and is the same on every
    /// director. Servers with the same name share a permutation and take turns in the order of `dest`.
    pub name: u64,
    /// The server's value in the table, never 0.
    pub dest: u32,
    /// Weight of the server. A server with weight 0 has no entries.
    pub weight: u32,
}

/// Returns the smallest size with at least a hundred entries per server. If there is none, returns the second largest
/// size, or the largest if the second largest has fewer entries than servers.
#[must_use]
pub fn size_for(servers: usize) -> u32 {
    let entries = servers.saturating_mul(ENTRIES_PER_SERVER);
    let [ordinary @ .., largest] = SIZES;
    let [.., second_largest] = ordinary;
    if servers > second_largest as usize {
        return largest;
    }
    ordinary
        .into_iter()
        .find(|&size| size as usize >= entries)
        .unwrap_or(second_largest)
}

/// Returns a size, like [`size_for`], for tables that are used only for flows without an entry in the flow table:
/// coarser shares are acceptable, and there can be ten thousand services with such a table.
#[must_use]
pub fn spare_size_for(servers: usize) -> u32 {
    let size = size_for(servers.div_ceil(ENTRIES_PER_SERVER / SPARE_ENTRIES_PER_SERVER));
    if servers > size as usize {
        return size_for(servers);
    }
    size
}

/// State of a server while the table is filled.
struct Filler {
    entry: Entry,
    position: u32,
    skip: u32,
    credit: u64,
}

/// Builds the table: `size` values of [`Entry::dest`], all 0 if no entry has weight.
///
/// The number of a server's entries differs from its exact share of the table by less than two or, if that is more, by
/// less than one plus its exact share of the number of servers.
///
/// # Errors
/// [`Error::TableSize`] if `size` is not one of [`SIZES`]; [`Error::TooManyServers`] if there are more servers than
/// entries.
pub fn table(entries: &[Entry], size: u32) -> Result<Vec<u32>, Error> {
    if !SIZES.contains(&size) {
        return Err(Error::TableSize { size });
    }
    let mut fillers: Vec<Filler> = entries
        .iter()
        .filter(|entry| entry.weight > 0)
        .map(|&entry| Filler::new(entry, size))
        .collect();
    if fillers.len() > size as usize {
        return Err(Error::TooManyServers {
            servers: fillers.len(),
            entries: size as usize,
        });
    }
    fillers.sort_by_key(|filler| (filler.entry.name, filler.entry.dest));
    let mut table = vec![0; size as usize];
    let Some(max_weight) = fillers
        .iter()
        .map(|filler| u64::from(filler.entry.weight))
        .max()
    else {
        return Ok(table);
    };
    let mut free_entries = table.len();
    while free_entries > 0 {
        for filler in &mut fillers {
            filler.credit += u64::from(filler.entry.weight);
            if filler.credit < max_weight || free_entries == 0 {
                continue;
            }
            filler.credit -= max_weight;
            while table[filler.position as usize] != 0 {
                filler.position = (filler.position + filler.skip) % size;
            }
            table[filler.position as usize] = filler.entry.dest;
            free_entries -= 1;
        }
    }
    Ok(table)
}

/// Assigns each entry whose owner is not usable to the next usable owner after it; all other entries are unchanged.
/// Directors with the same table therefore differ only in the entries of servers whose states differ.
///
/// Returns false, and leaves the table unchanged, if no owner is usable. The result of [`lookup`] does not change.
pub fn skip_unusable(table: &mut [u32], is_usable: &dyn Fn(u32) -> bool) -> bool {
    let usable: Vec<bool> = table.iter().map(|&dest| is_usable(dest)).collect();
    let Some(first) = usable.iter().position(|usable| *usable) else {
        return false;
    };
    let mut next_usable = table[first];
    for (dest, usable) in table.iter_mut().zip(usable).rev() {
        if usable {
            next_usable = *dest;
        } else {
            *dest = next_usable;
        }
    }
    true
}

impl Filler {
    fn new(entry: Entry, size: u32) -> Self {
        let hash = mix_64(entry.name);
        // The halves of the hash are two independent numbers.
        let (high, low) = ((hash >> 32) as u32, hash as u32);
        Self {
            entry,
            position: high % size,
            skip: low % (size - 1) + 1,
            credit: 0,
        }
    }
}

/// Returns the server for a flow's hash: the owner of its entry, or of the next entry whose owner accepts the flow.
///
/// The index is the upper half of `hash`, scaled to the size of the table without a division. If the owner is
/// overloaded, the flow is rejected unless `mode` allows fallback, as with `mh`. Quiesced servers have no entries.
pub fn lookup(
    table: &[u32],
    hash: u64,
    mode: Mode,
    availability: &dyn Fn(u32) -> Availability,
) -> Option<u32> {
    let first = (((hash >> 32) * table.len() as u64) >> 32) as usize;
    let (head, tail) = table.split_at_checked(first)?;
    mode.choose(tail.iter().chain(head).copied(), availability)
}

#[cfg(test)]
mod tests;
