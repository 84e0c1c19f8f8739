//! Reports a conntrack table that is nearly full, and rules that drop packets that conntrack considers invalid.

use weir_netlink::Sysctl;

use crate::Diagnosis;
use crate::firewall::{self, Packet, Ruleset, Tracking};

/// Minimum fill level at which a table is reported, in percent.
const NEARLY_FULL_PERCENT: u64 = 90;

fn read_sysctl(name: &str) -> Option<u64> {
    let sysctl = Sysctl::new(format!("net/netfilter/{name}")).ok()?;
    sysctl.find().ok()??.parse().ok()
}

/// Reports a conntrack table that is nearly full.
pub fn nearly_full_table() -> Option<Diagnosis> {
    evaluate_fill_level(
        read_sysctl("nf_conntrack_count")?,
        read_sysctl("nf_conntrack_max")?,
    )
}

fn evaluate_fill_level(count: u64, max: u64) -> Option<Diagnosis> {
    if max == 0 || count * 100 < max * NEARLY_FULL_PERCENT {
        return None;
    }
    let larger = max * 2;
    Some(
        Diagnosis::new(
            format!("the conntrack table contains {count} of {max} entries"),
            "when the table is full, the kernel drops the first packet of every new connection",
        )
        .fix(format!("sysctl -w net.netfilter.nf_conntrack_max={larger}")),
    )
}

/// Reports that packets of connections that have no conntrack entry are dropped, because conntrack does not pick up
/// existing connections.
pub fn missing_pickup(rules: &Ruleset, client: Packet) -> Option<Diagnosis> {
    if read_sysctl("nf_conntrack_tcp_loose") != Some(0) {
        return None;
    }
    let drop = rules.find_drop(client.ack(Tracking::Invalid), firewall::INBOUND)?;
    Some(
        Diagnosis::new(
            format!(
                "net/netfilter/nf_conntrack_tcp_loose is 0, and the chain `{} {}` of {} drops packets that conntrack \
                 considers invalid",
                drop.table, drop.chain, drop.tool
            ),
            "connections whose handshake conntrack has not seen (because rules were reloaded, or the entry of an idle \
             connection timed out) are dropped: their clients hang",
        )
        .fix("sysctl -w net.netfilter.nf_conntrack_tcp_loose=1"),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nearly_full_table_is_reported() {
        assert_eq!(evaluate_fill_level(0, 0), None);
        assert_eq!(evaluate_fill_level(89_999, 100_000), None);
        let finding = evaluate_fill_level(90_000, 100_000).expect("reported");
        assert!(finding.observation.contains("90000 of 100000"), "{finding}");
        let fix = finding.fix.expect("has a fix");
        assert!(fix.ends_with("nf_conntrack_max=200000"), "{fix}");
    }
}
