//! Implements `mh`, the kernel's Maglev hashing (net/netfilter/ipvs/ip_vs_mh.c).
//!
//! The table depends on the servers' addresses, ports and *last* weights above 0: a quiesced server keeps its entries,
//! and flows that select it are rejected or probe further entries. Unlike `sh`, `mh` probes by hashing the client's key
//! again with an offset, so the probed entries depend on the client and are computed for each flow.

use crate::Error;
use crate::availability::{Availability, Mode};
use crate::hash::hsiphash_1u32;

/// Number of entries in the table: the prime for the kernel's default `CONFIG_IP_VS_MH_TAB_INDEX` of 12.
pub const SIZE: u32 = 4093;

/// `IP_VS_MH_TAB_BITS`: weights are shifted to at most this many bits.
const TURN_BITS: u32 = 6;

/// Keys of the kernel's two hash functions (`generate_hash_secret`): for the offset and for the skip.
const KEY_OFFSET: u64 = 2_654_435_761;
const KEY_SKIP: u64 = 2_654_446_892;

/// A server of an `mh` service. A list of entries is in the kernel's order, newest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Entry {
    /// [`Member::dest`](crate::Member::dest), never 0.
    pub dest: u32,
    /// The last weight above 0, or 0 for a server that never had one. At most `i32::MAX`.
    pub last_weight: u32,
    /// [`hash::fold`](crate::hash::fold) of the server's address.
    pub fold: u32,
    /// The server's port.
    pub port: u16,
}

/// A server that fills entries, with its position in its permutation of the table.
struct Filler {
    dest: u32,
    position: u32,
    skip: u32,
    /// Number of consecutive entries that the server takes in a turn.
    turn_len: u32,
}

/// Builds the table: [`SIZE`] values of [`Entry::dest`], all 0 if no server ever had weight.
///
/// # Errors
/// [`Error::TooManyServers`] if there are more servers than entries. The kernel keeps its old table in this case.
pub fn table(entries: &[Entry]) -> Result<Vec<u32>, Error> {
    if entries.len() > SIZE as usize {
        return Err(Error::TooManyServers {
            servers: entries.len(),
            entries: SIZE as usize,
        });
    }
    let mut table = vec![0; SIZE as usize];
    let mut fillers = fillers(entries);
    let mut free_entries = table.len();
    while free_entries > 0 && !fillers.is_empty() {
        for filler in &mut fillers {
            for _ in 0..filler.turn_len.min(free_entries as u32) {
                while table[filler.position as usize] != 0 {
                    filler.position = (filler.position + filler.skip) % SIZE;
                }
                table[filler.position as usize] = filler.dest;
                free_entries -= 1;
            }
        }
    }
    Ok(table)
}

fn fillers(entries: &[Entry]) -> Vec<Filler> {
    let divisor = entries.iter().map(|entry| entry.last_weight).fold(0, gcd);
    if divisor == 0 {
        return Vec::new();
    }
    let max_weight = entries
        .iter()
        .map(|entry| entry.last_weight / divisor)
        .max()
        .unwrap_or(0);
    let bits = u32::BITS - max_weight.leading_zeros();
    let shift = bits.saturating_sub(TURN_BITS);
    entries
        .iter()
        .filter(|entry| entry.last_weight != 0)
        .map(|entry| Filler {
            dest: entry.dest,
            position: hash(entry.fold, entry.port, 0, KEY_OFFSET) % SIZE,
            skip: hash(entry.fold, entry.port, 0, KEY_SKIP) % (SIZE - 1) + 1,
            turn_len: ((entry.last_weight / divisor) >> shift).max(1),
        })
        .collect()
}

/// Returns the index in the table for a client. `fold` is the folded address of the client; `port` is its source port
/// with `mh-port`, and 0 without; `offset` is 0 for the first attempt.
#[must_use]
pub const fn index(fold: u32, port: u16, offset: u32) -> u32 {
    hash(fold, port, offset, KEY_OFFSET) % SIZE
}

const fn hash(fold: u32, port: u16, offset: u32, key: u64) -> u32 {
    hsiphash_1u32(offset.wrapping_add(port as u32).wrapping_add(fold), key)
}

/// Returns the server for a client, or `None` if the flow is rejected. The flow is also rejected after [`SIZE`] probes,
/// which might not have found every server. `table` must have [`SIZE`] entries; with a shorter one, an index beyond its
/// end rejects the flow.
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
        .map(|position| table.get(position as usize).copied().unwrap_or(0));
    mode.choose(owners, availability)
}

fn gcd(a: u32, b: u32) -> u32 {
    if b == 0 { a } else { gcd(b, a % b) }
}

#[cfg(test)]
mod tests;
