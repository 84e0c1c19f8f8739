//! What the rules of nftables do to the packets that balancing lives by.
//!
//! The rules are read, not tried: a packet of which only some things are known is led through them, and only where each of
//! that kind is dropped there is a finding. Rules in the kernel's old iptables tables (`iptables-legacy`) are not seen.

mod compare;
mod packet;
mod ruleset;
#[cfg(test)]
mod tests;
mod walk;

use std::net::IpAddr;
use std::process::{Command, Stdio};

pub(crate) use packet::{Packet, Tracking};
pub(crate) use ruleset::Ruleset;
pub(crate) use walk::Drop;

use super::Ailment;

/// Hooks of a packet that this machine takes for itself.
pub(crate) const INBOUND: &[&str] = &["ingress", "prerouting", "input"];

/// Hooks of a packet that it sends.
pub(crate) const OUTBOUND: &[&str] = &["output", "postrouting"];

/// Hooks of a packet that it passes on.
pub(crate) const PASSING: &[&str] = &["ingress", "prerouting", "forward", "postrouting"];

/// The rules of the calling thread's network namespace; none = there is no nft, or it may not be asked.
pub(crate) fn read() -> Option<Ruleset> {
    let output = Command::new("nft")
        .args(["-j", "list", "ruleset"])
        .stdin(Stdio::null())
        .output()
        .ok()?;
    if !output.status.success() {
        return None;
    }
    Ruleset::parse(&String::from_utf8_lossy(&output.stdout))
}

/// How rules call an address's family.
pub(crate) const fn family_word(address: IpAddr) -> &'static str {
    if address.is_ipv4() { "ip" } else { "ip6" }
}

/// The finding that packets are dropped, and a rule in front of it that lets them pass. `which` is what they are, `rule` how nft
/// is told of them.
pub(crate) fn ailment(drop: &Drop, which: &str, why: &str, rule: &str) -> Ailment {
    let Drop { chain, rule: by } = drop;
    let by = match by {
        Some(words) => format!("its rule `{words}`"),
        None => "its policy".to_owned(),
    };
    Ailment::new(
        format!("the chain `{chain}` of nftables drops {which}, by {by}"),
        why,
    )
    .mend(format!("nft insert rule {chain} {rule} accept"))
}
