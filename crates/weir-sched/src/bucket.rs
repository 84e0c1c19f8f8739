//! Implements `dh` and `sh`: a hash of an address selects one of 256 buckets, each of which has an owner.
//!
//! The kernel's implementations are net/netfilter/ipvs/ip_vs_{dh,sh}.c.
//!
//! The table of owners depends only on the list, and is rebuilt when the list changes. If the owner is unavailable, the
//! [`Mode`] determines what happens; the kernel's probe order depends only on the first bucket. The kernel's `dh` has
//! no fallback; here it uses the fallback of `sh`.

use crate::Member;
use crate::availability::{Availability, Mode};
use crate::hash::hash_32_to_8;

/// Number of buckets: `IP_VS_SH_TAB_SIZE` and `IP_VS_DH_TAB_SIZE`.
pub const BUCKETS: usize = 256;

/// [`Member::dest`] of each bucket's owner; 0 = no owner.
pub type Buckets = [u32; BUCKETS];

/// Returns the owners for `sh`: in rounds that begin with the newest server, each server takes as many consecutive
/// buckets as its weight. A server with weight 0 takes one bucket, because the kernel advances only after filling a
/// bucket.
#[must_use]
pub fn sh_owners(members: &[Member]) -> Buckets {
    owners(members, |member| member.weight.max(1))
}

/// Returns the owners for `dh`: in rounds that begin with the newest server, each server takes one bucket.
#[must_use]
pub fn dh_owners(members: &[Member]) -> Buckets {
    owners(members, |_| 1)
}

fn owners(members: &[Member], turn_len: impl Fn(&Member) -> u32) -> Buckets {
    let mut buckets = [0; BUCKETS];
    let turn = |member| std::iter::repeat_n(member, turn_len(member).min(BUCKETS as u32) as usize);
    for (bucket, member) in buckets
        .iter_mut()
        .zip(members.iter().cycle().flat_map(turn))
    {
        *bucket = member.dest;
    }
    buckets
}

/// Returns the first bucket of a client for `sh`. `fold` is [`hash::fold`](crate::hash::fold) of the source address;
/// `port` is the source port with `sh-port`, and 0 without.
#[must_use]
pub const fn sh_index(fold: u32, port: u16) -> u8 {
    hash_32_to_8(fold.wrapping_add(port as u32))
}

/// Returns the bucket of a destination address for `dh`.
#[must_use]
pub const fn dh_index(fold: u32) -> u8 {
    hash_32_to_8(fold)
}

/// Returns the bucket to try if the owner of bucket `index` is unavailable; `step` counts from 0 to 255. The kernel
/// adds the index of the first bucket to the hash that selected it, so the first probe is at twice the index, not next
/// to it. Over all steps, every bucket is tried once.
#[must_use]
pub const fn probe(index: u8, step: u8) -> u8 {
    index.wrapping_mul(2).wrapping_add(step)
}

/// Returns the server for bucket `index`, or `None` if the flow is rejected.
pub fn lookup(
    owners: &Buckets,
    index: u8,
    mode: Mode,
    availability: &dyn Fn(u32) -> Availability,
) -> Option<u32> {
    let probes = (0..=u8::MAX).map(|step| probe(index, step));
    let owners = std::iter::once(index)
        .chain(probes)
        .map(|bucket| owners[usize::from(bucket)]);
    mode.choose(owners, availability)
}

#[cfg(test)]
mod tests;
