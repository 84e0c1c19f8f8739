//! Conntrack, where firewall rules use it: packets for which its table has no room, or which it calls invalid.

use weir_netlink::Sysctl;

use crate::Diagnosis;
use crate::firewall::{self, Packet, Ruleset, Tracking};

/// Fill level of the table that is reported, in percent.
const NEARLY_FULL: u64 = 90;

fn number(name: &str) -> Option<u64> {
    let sysctl = Sysctl::new(format!("net/netfilter/{name}")).ok()?;
    sysctl.find().ok()??.parse().ok()
}

/// Reports a conntrack table that is nearly full.
pub fn full() -> Option<Diagnosis> {
    room(number("nf_conntrack_count")?, number("nf_conntrack_max")?)
}

fn room(count: u64, most: u64) -> Option<Diagnosis> {
    if most == 0 || count * 100 < most * NEARLY_FULL {
        return None;
    }
    let larger = most * 2;
    Some(
        Diagnosis::new(
            format!("conntrack's table holds {count} of {most} entries"),
            "when it is full the kernel drops the first packet of every further connection",
        )
        .fix(format!("sysctl -w net.netfilter.nf_conntrack_max={larger}")),
    )
}

/// Reports that connections older than conntrack's own entries are cut: conntrack may not pick them up.
pub fn unknown(rules: &Ruleset, client: Packet) -> Option<Diagnosis> {
    if number("nf_conntrack_tcp_loose") != Some(0) {
        return None;
    }
    let drop = rules.drops(client.later(Tracking::Invalid), firewall::INBOUND)?;
    Some(
        Diagnosis::new(
            format!(
                "net/netfilter/nf_conntrack_tcp_loose is 0, and the chain `{} {}` of {} drops what conntrack calls \
                 invalid",
                drop.table, drop.chain, drop.tool
            ),
            "connections whose beginning conntrack has not seen (rules that were reloaded, an entry that timed out \
             while they were silent) are cut: their clients hang",
        )
        .fix("sysctl -w net.netfilter.nf_conntrack_tcp_loose=1"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn room_in_the_table() {
        assert_eq!(room(0, 0), None);
        assert_eq!(room(89_999, 100_000), None);
        let found = room(90_000, 100_000).expect("it is nearly full");
        assert!(found.seen.contains("90000 of 100000"), "{found}");
        let fix = found.fix.expect("a command");
        assert!(fix.ends_with("nf_conntrack_max=200000"), "{fix}");
    }
}
