//! `mh`: Maglev hashing as in the kernel (net/netfilter/ipvs/ip_vs_mh.c).
//!
//! The table depends on the servers' addresses, ports and *last* weights above 0: a quiesced server keeps its entries,
//! and its clients are refused or probe further. Unlike `sh`, probing hashes the client's key again with an offset, so
//! it depends on the client and happens per flow.

use crate::Error;
use crate::availability::{Availability, Mode};
use crate::hash::hsiphash_1u32;

/// Entries of the table: the prime of the kernel's default `CONFIG_IP_VS_MH_TAB_INDEX` of 12.
pub const SIZE: u32 = 4093;

/// `IP_VS_MH_TAB_BITS`: weights are shifted to at most this many bits.
const TURN_BITS: u32 = 6;

const KEY_OFFSET: u64 = 2_654_435_761;
const KEY_SKIP: u64 = 2_654_446_892;

/// One server of an `mh` service; a list of them is in the kernel's order, the newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// [`Member::dest`](crate::Member::dest), never 0.
    pub dest: u32,
    /// The last weight above 0, or 0 for a server that had none since it was added. At most `i32::MAX`.
    pub last_weight: u32,
    /// [`hash::fold`](crate::hash::fold) of the server's address.
    pub fold: u32,
    /// The server's port.
    pub port: u16,
}

/// A server's position in its permutation of the table.
struct Filler {
    dest: u32,
    place: u32,
    skip: u32,
    /// Consecutive entries that it takes.
    count: u32,
}

/// The table: [`SIZE`] servers by [`Entry::dest`], all 0 when no server ever had weight.
///
/// # Errors
/// [`Error::TooManyServers`] for more servers than entries. The kernel then keeps its old table.
pub fn table(entries: &[Entry]) -> Result<Vec<u32>, Error> {
    if entries.len() > SIZE as usize {
        return Err(Error::TooManyServers {
            servers: entries.len(),
            entries: SIZE as usize,
        });
    }
    let mut table = vec![0; SIZE as usize];
    let mut turns = turns(entries);
    let mut free = table.len();
    while free > 0 && !turns.is_empty() {
        for turn in &mut turns {
            for _ in 0..turn.count.min(free as u32) {
                while table[turn.place as usize] != 0 {
                    turn.place = (turn.place + turn.skip) % SIZE;
                }
                table[turn.place as usize] = turn.dest;
                free -= 1;
            }
        }
    }
    Ok(table)
}

fn turns(entries: &[Entry]) -> Vec<Filler> {
    let divisor = entries.iter().map(|entry| entry.last_weight).fold(0, gcd);
    if divisor == 0 {
        return Vec::new();
    }
    let greatest = entries
        .iter()
        .map(|entry| entry.last_weight / divisor)
        .max()
        .unwrap_or(0);
    let bits = u32::BITS - greatest.leading_zeros();
    let shift = bits.saturating_sub(TURN_BITS);
    entries
        .iter()
        .filter(|entry| entry.last_weight != 0)
        .map(|entry| Filler {
            dest: entry.dest,
            place: hash(entry.fold, entry.port, 0, KEY_OFFSET) % SIZE,
            skip: hash(entry.fold, entry.port, 0, KEY_SKIP) % (SIZE - 1) + 1,
            count: ((entry.last_weight / divisor) >> shift).max(1),
        })
        .collect()
}

/// Index in the table for a client: `fold` of its address, `port` its source port with `mh-port` and 0 without,
/// `offset` 0 for the first try.
#[must_use]
pub const fn index(fold: u32, port: u16, offset: u32) -> u32 {
    hash(fold, port, offset, KEY_OFFSET) % SIZE
}

const fn hash(fold: u32, port: u16, offset: u32, key: u64) -> u32 {
    hsiphash_1u32(offset.wrapping_add(port as u32).wrapping_add(fold), key)
}

/// The server for a client; `None` = the flow is refused, also after [`SIZE`] probes, which may not have found every
/// server. `table` has [`SIZE`] entries; indexes beyond a shorter one refuse the flow.
pub fn lookup(
    table: &[u32],
    fold: u32,
    port: u16,
    mode: Mode,
    availability: &dyn Fn(u32) -> Availability,
) -> Option<u32> {
    let first = index(fold, port, 0);
    let probes = (0..SIZE).map(|step| index(fold, port, (first + step) % SIZE));
    let owners = std::iter::once(first)
        .chain(probes)
        .map(|place| table.get(place as usize).copied().unwrap_or(0));
    mode.choose(owners, availability)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
