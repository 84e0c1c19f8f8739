//! Finds firewall rules that drop the packets of load balancing.
//!
//! The rules are evaluated on paper: a packet with some known fields is followed through them, and it is reported only
//! if every packet with these fields is dropped. The kernel has two sets of tables, those of nftables and those of
//! `iptables-legacy`; a packet passes the chains of both.

mod compare;
mod legacy;
mod packet;
mod ruleset;
#[cfg(test)]
mod tests;
mod tool;
mod walk;

use std::fs;
use std::process::{Command, Stdio};

pub use packet::{Packet, Port, Tracking};
pub use ruleset::Ruleset;
pub use tool::{End, Tool, Which};
pub use walk::Drop;

use crate::Diagnosis;

/// Hooks of a packet that is delivered to this machine.
pub const INBOUND: &[&str] = &["ingress", "prerouting", "input"];

/// Hooks of a packet that it sends.
pub const OUTBOUND: &[&str] = &["output", "postrouting"];

/// Hooks of a packet that it forwards.
pub const PASSING: &[&str] = &["ingress", "prerouting", "forward", "postrouting"];

/// Programs that print tables of x_tables, with the file that lists the tables in use; the first program is preferred.
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

/// The firewalls of the calling thread's network namespace.
#[derive(Debug, Default)]
pub struct Firewall {
    /// The rules of all tables that can be read.
    pub rules: Ruleset,
    /// Tables that are in use and that no installed program can print.
    pub unseen: Vec<Diagnosis>,
}

/// Reads the rules. Without nft, or without the right to run it, those of nftables are missing.
pub fn read() -> Firewall {
    let nft = printed("nft", &["-j", "list", "ruleset"]);
    let mut firewall = Firewall {
        rules: nft
            .and_then(|text| Ruleset::parse(&text))
            .unwrap_or_default(),
        unseen: Vec::new(),
    };
    for (tool, list, programs) in LEGACY {
        // Printing would create the tables, so nothing is run where none are in use.
        let names = fs::read_to_string(format!("/proc/thread-self/net/{list}"));
        let names = names.unwrap_or_default();
        let tables: Vec<&str> = names.split_whitespace().collect();
        if tables.is_empty() {
            continue;
        }
        let mut texts = programs.iter().filter_map(|program| printed(program, &[]));
        match texts.find(|text| !is_nft(text)) {
            Some(text) => firewall.rules.add_saved(tool, &text),
            None => firewall.unseen.push(
                Diagnosis::new(
                    format!(
                        "tables of {tool} are in use ({}), and no installed program shows their rules",
                        tables.join(", ")
                    ),
                    "a packet passes them in addition to nftables' chains; packets that they drop are not reported",
                )
                .fix("apt-get install -y iptables"),
            ),
        }
    }
    firewall
}

/// A program's output; `None` = it is not installed or fails.
fn printed(program: &str, arguments: &[&str]) -> Option<String> {
    let output = Command::new(program)
        .args(arguments)
        .stdin(Stdio::null())
        .output()
        .ok()?;
    let succeeded = output.status.success();
    succeeded.then(|| String::from_utf8_lossy(&output.stdout).into_owned())
}

/// Whether this was printed by the iptables that uses nftables, which does not show the other tables.
fn is_nft(saved: &str) -> bool {
    let first = saved.lines().next().unwrap_or_default();
    first.is_empty() || first.contains("nft") || first.contains("nf_tables")
}

/// The finding that packets are dropped, and a rule in front of it that lets them pass. `what` they are for an
/// operator, `which` for the rule.
pub fn diagnosis(drop: &Drop, what: &str, why: &str, which: &Which) -> Diagnosis {
    let Drop {
        tool,
        table,
        chain,
        rule,
    } = drop;
    let by = match rule {
        Some(words) => format!("its rule `{words}`"),
        None => "its policy".to_owned(),
    };
    Diagnosis::new(
        format!("the chain `{table} {chain}` of {tool} drops {what}, by {by}"),
        why,
    )
    .fix(tool.accept(table, chain, which))
}
