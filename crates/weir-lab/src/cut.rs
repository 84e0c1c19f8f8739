//! Ports of a switch that carry nothing, although their links are up.

use crate::error::Result;
use crate::namespace::Namespace;
use crate::process;

/// The table of nftables that drops frames.
const TABLE: &str = "cut";
/// The rule for all frames.
pub(crate) const ALL_FRAMES: &str = "drop";

/// Drops frames of a port, on their way in and out (`ingress`, `egress`). The switch keeps its table, as with a cable
/// that is cut behind it: otherwise it sends frames for the host to all ports, and other directors forward them.
///
/// # Errors
/// nftables rejects the rules.
pub(crate) fn drop_frames(wire: &Namespace, port: &str, hooks: &[&str], rule: &str) -> Result<()> {
    let chain = |hook: &&str| {
        format!("chain {hook} {{ type filter hook {hook} device {port} priority 0; {rule}; }}")
    };
    let chains: Vec<String> = hooks.iter().map(chain).collect();
    let table = format!("table netdev {TABLE} {{\n{}\n}}\n", chains.join("\n"));
    let arguments = ["netns", "exec", wire.name(), "nft", "-f", "-"];
    process::run_with_input("ip", &arguments, &table).map(drop)
}

/// Ends [`drop_frames`].
///
/// # Errors
/// No frames are dropped.
pub(crate) fn pass_frames(wire: &Namespace) -> Result<()> {
    let delete = ["nft", "delete", "table", "netdev", TABLE];
    let inside = ["netns", "exec", wire.name()];
    process::run("ip", &[&inside[..], &delete].concat()).map(drop)
}
