//! Finds firewall rules that drop load-balanced packets.
//!
//! The rules are evaluated for a packet with some known fields. A drop is reported only if every packet with these
//! fields is dropped. The kernel has two independent sets of tables, nftables and `iptables-legacy`; a packet traverses
//! the chains of both.

mod compare;
mod evaluate;
mod legacy;
mod packet;
mod ruleset;
#[cfg(test)]
mod tests;
mod tool;

use std::fs;
use std::process::{Command, Stdio};

pub use evaluate::Drop;
pub use packet::{Packet, Port, Tracking};
pub use ruleset::Ruleset;
pub use tool::{PacketFilter, Side, Tool};

use crate::Diagnosis;

/// Hooks that a packet to this machine traverses.
pub const INBOUND: &[&str] = &["ingress", "prerouting", "input"];

/// Hooks that a packet from this machine traverses.
pub const OUTBOUND: &[&str] = &["output", "postrouting"];

/// Hooks that a forwarded packet traverses.
pub const FORWARDED: &[&str] = &["ingress", "prerouting", "forward", "postrouting"];

/// For each x_tables tool, the file that lists the tables in use, and the programs that print the rules, the preferred
/// one first.
const LEGACY: [(Tool, &str, [&str; 2]); 2] = [
    (
        Tool::Iptables,
        "ip_tables_names",
        ["iptables-legacy-save", "iptables-save"],
    ),
    (
        Tool::Ip6tables,
        "ip6_tables_names",
        ["ip6tables-legacy-save", "ip6tables-save"],
    ),
];

/// The firewall rules of the calling thread's network namespace.
#[derive(Debug, Default)]
pub struct Firewall {
    /// The rules of all tables that can be read.
    pub rules: Ruleset,
    /// Findings about tables that are in use but that no installed program can print.
    pub unreadable: Vec<Diagnosis>,
}

/// Reads the rules. The result contains no nftables rules if nft is not installed or fails.
pub fn read() -> Firewall {
    let nft = program_output("nft", &["-j", "list", "ruleset"]);
    let mut firewall = Firewall {
        rules: nft
            .and_then(|text| Ruleset::parse(&text))
            .unwrap_or_default(),
        unreadable: Vec::new(),
    };
    for (tool, list, programs) in LEGACY {
        // Printing creates the tables, so the program is run only if tables are in use.
        let names = fs::read_to_string(format!("/proc/thread-self/net/{list}"));
        let names = names.unwrap_or_default();
        let tables: Vec<&str> = names.split_whitespace().collect();
        if tables.is_empty() {
            continue;
        }
        let mut texts = programs
            .iter()
            .filter_map(|program| program_output(program, &[]));
        match texts.find(|text| !is_nft(text)) {
            Some(text) => firewall.rules.add_iptables_tables(tool, &text),
            None => firewall.unreadable.push(
                Diagnosis::new(
                    format!(
                        "tables of {tool} are in use ({}), and no installed program can print their rules",
                        tables.join(", ")
                    ),
                    "packets traverse them in addition to the nftables chains; this report does not include packets \
                     that they drop",
                )
                .fix(install_hint(programs[0])),
            ),
        }
    }
    firewall
}

/// Returns how to install an x_tables program. Distributions give its package different names.
fn install_hint(program: &str) -> String {
    format!(
        "install {program}, which is in the package iptables or iptables-legacy, depending on the distribution"
    )
}

/// Returns a program's output, or `None` if the program is not installed or fails.
fn program_output(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let succeeded = output.status.success();
    succeeded.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Returns whether `saved` is empty or the output of the iptables variant that uses nftables, which does not print the
/// legacy tables.
fn is_nft(saved: &str) -> bool {
    let first = saved.lines().next().unwrap_or_default();
    first.is_empty() || first.contains("nft") || first.contains("nf_tables")
}

/// Creates a finding about dropped packets. The fix inserts an accepting rule at the start of the chain. `packets`
/// describes the packets to the operator; `filter` selects them in the rule.
pub fn diagnosis(
    drop: &Drop,
    packets: &str,
    consequence: &str,
    filter: &PacketFilter,
) -> Diagnosis {
    let Drop {
        tool,
        table,
        chain,
        rule,
    } = drop;
    let cause = match rule {
        Some(text) => format!("its rule `{text}`"),
        None => "its policy".to_owned(),
    };
    Diagnosis::new(
        format!("the chain `{table} {chain}` of {tool} drops {packets} because of {cause}"),
        consequence,
    )
    .fix(tool.accept(table, chain, filter))
}
