//! Drops frames at switch ports without bringing their links down.

use crate::error::Result;
use crate::namespace::Namespace;
use crate::process;

/// The nftables table that drops frames.
const TABLE: &str = "cut";
/// The rule that drops all frames.
pub(crate) const ALL_FRAMES: &str = "drop";

/// Drops frames at the hooks (`ingress`, `egress`) of a port, as if a cable behind the port were cut. The link stays
/// up, so the switch keeps its forwarding table. Without the entry for the host, the switch would flood the frames to
/// the host to all ports, and other directors would forward them. `rule` selects the frames; [`ALL_FRAMES`] selects
/// all of them.
///
/// # Errors
/// Fails if nftables rejects the rules.
pub(crate) fn drop_frames(wire: &Namespace, port: &str, hooks: &[&str], rule: &str) -> Result<()> {
    let chain = |hook: &&str| {
        format!("chain {hook} {{ type filter hook {hook} device {port} priority 0; {rule}; }}")
    };
    let chains: Vec<String> = hooks.iter().map(chain).collect();
    let table = format!("table netdev {TABLE} {{\n{}\n}}\n", chains.join("\n"));
    let arguments = ["netns", "exec", wire.name(), "nft", "-f", "-"];
    process::run_with_input("ip", &arguments, &table).map(drop)
}

/// Reverts [`drop_frames`].
///
/// # Errors
/// Fails if no frames are being dropped.
pub(crate) fn pass_frames(wire: &Namespace) -> Result<()> {
    let delete = ["nft", "delete", "table", "netdev", TABLE];
    let prefix = ["netns", "exec", wire.name()];
    process::run("ip", &[&prefix[..], &delete].concat()).map(drop)
}
