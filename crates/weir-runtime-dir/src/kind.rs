//! Defines the names and kinds of Weir's files.

/// Weir's regular files. `NAME.new` exists while `NAME` is being written.
pub(crate) const FILES: &[&str] = &[
    "lock",
    "network-namespace",
    "token",
    "in-force.toml",
    "in-force.json",
    "state.json",
    "state.journal",
    "layer4-configuration",
    "proxy.json",
    "proxy-left.json",
    "vips.json",
    "vrrp.json",
    "vrrp-configuration",
    "node.json",
    "cluster.json",
    "announced.json",
    "announced-speakers.json",
    "announce-configuration",
    "cookie.key",
    "members.json",
    "members-origins.json",
    "real-server.json",
    "real-server.lock",
    "protect.lock",
    "protect.sysctl",
];
/// Sockets of the API, the VRRP agent, the announcer, the engine process and the keeper.
const SOCKETS: &[&str] = &[
    "weir.sock",
    "weir.sock.new",
    "weir.sock.held",
    "vrrp.sock",
    "announce.sock",
    EDITS_SOCKET,
    UPGRADE_SOCKET,
];
/// The engine process's socket, on which a client authorizes ipvsadm edits before requesting them from the daemon.
pub const EDITS_SOCKET: &str = "edits.sock";
/// The keeper's socket, on which root authorizes the executable for an upgrade.
pub const UPGRADE_SOCKET: &str = "upgrade.sock";
/// The link to the active configuration.
const LINKS: &[&str] = &["configuration", "configuration.new"];
/// Directories that contain only files: the records of draining daemons, and the certificates of a group.
const DIRECTORIES: &[&str] = &["draining", "published-files"];

pub(crate) const FILE: &str = "a regular file";
pub(crate) const SOCKET: &str = "a socket";
pub(crate) const LINK: &str = "a symbolic link";
pub(crate) const DIRECTORY: &str = "a directory";

/// Returns the kind of the file with this name; `None` = the file does not belong to Weir.
pub(crate) fn expected_kind(name: &str) -> Option<&'static str> {
    let base = name.strip_suffix(".new").unwrap_or(name);
    let kinds = [
        (FILES, FILE, base),
        (SOCKETS, SOCKET, name),
        (LINKS, LINK, name),
        (DIRECTORIES, DIRECTORY, name),
    ];
    let entry = kinds.iter().find(|(names, _, name)| names.contains(name));
    entry.map(|(_, kind, _)| *kind)
}
