//! Destroys local clients' sockets to removed or failed servers, so that the clients reconnect.
//!
//! The clients' connections then go to other servers. A TCP socket is destroyed if `on_remove` is `reset` or
//! `reschedule`: a socket cannot change its server, so both have the same effect. A connected UDP socket is always
//! destroyed, because it would send to a dead server forever.

use std::collections::{BTreeMap, BTreeSet};

use weir_abi::{
    DEST_RESCHEDULE, DEST_RESET, DEST_USABLE, POLICY_DOWN, SOCKET_CONNECTED, SOCKET_COUNTED,
};
use weir_model::Protocol;
use weir_netlink::destroy_sockets;
use weir_sys::NetNs;

use super::Engine;
use crate::error::Result;

/// Which of the sockets connected to a server are destroyed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketKinds {
    /// Only datagram sockets.
    Datagrams,
    /// All sockets.
    All,
}

/// Socket cookies by protocol.
type Cookies = BTreeMap<Protocol, BTreeSet<u64>>;

impl Engine {
    /// Destroys the sockets of removed and failed servers.
    ///
    /// # Errors
    /// Fails if a map cannot be read, or the kernel cannot list sockets.
    pub(super) fn destroy_sockets(&mut self) -> Result<()> {
        let kinds_to_destroy = self.kinds_to_destroy();
        if kinds_to_destroy.is_empty() {
            self.local_clients.destroyed.clear();
            return Ok(());
        }
        let cookies_to_destroy = self.sockets_to_destroy(&kinds_to_destroy)?;
        if cookies_to_destroy.is_empty() {
            return Ok(());
        }
        let mut destroyed = 0;
        for (protocol, cookies) in cookies_to_destroy {
            self.local_clients.destroyed.extend(&cookies);
            destroyed += destroy_everywhere(protocol, cookies)?;
        }
        if destroyed > 0 {
            tracing::info!(destroyed, "destroyed sockets of removed or failed servers");
        }
        Ok(())
    }

    /// Returns the server rows whose sockets must be destroyed, with the kinds of these sockets.
    fn kinds_to_destroy(&self) -> BTreeMap<u32, SocketKinds> {
        if self.local_clients.maps.is_none() {
            return BTreeMap::new();
        }
        let must_destroy = |flags: u8| flags & (DEST_RESET | DEST_RESCHEDULE) != 0;
        let removed = self.rows.removed_flags.iter().map(|(id, removed)| {
            let is_all = must_destroy(removed.flags);
            (
                *id,
                if is_all {
                    SocketKinds::All
                } else {
                    SocketKinds::Datagrams
                },
            )
        });
        let failed = self.rows.dests.iter().filter_map(|(id, row)| {
            let is_down = row.flags & DEST_USABLE == 0 && row.policy & POLICY_DOWN != 0;
            match (must_destroy(row.flags), is_down) {
                (true, _) => Some((*id, SocketKinds::All)),
                (false, true) => Some((*id, SocketKinds::Datagrams)),
                (false, false) => None,
            }
        });
        removed.chain(failed).collect()
    }

    fn sockets_to_destroy(&self, kinds_to_destroy: &BTreeMap<u32, SocketKinds>) -> Result<Cookies> {
        let mut cookies_to_destroy = Cookies::new();
        let Some(maps) = &self.local_clients.maps else {
            return Ok(cookies_to_destroy);
        };
        let destroyed = &self.local_clients.destroyed;
        maps.sockets.for_each(|key, record| {
            let connected = SOCKET_CONNECTED | SOCKET_COUNTED;
            let protocol = [Protocol::Tcp, Protocol::Udp]
                .into_iter()
                .find(|protocol| protocol.number() == record.proto);
            let (Some(protocol), Some(kinds)) = (protocol, kinds_to_destroy.get(&record.dest))
            else {
                return;
            };
            let destroys = *kinds == SocketKinds::All || protocol == Protocol::Udp;
            if destroys && record.state & connected == connected && !destroyed.contains(&key.cookie)
            {
                cookies_to_destroy
                    .entry(protocol)
                    .or_default()
                    .insert(key.cookie);
            }
        })?;
        Ok(cookies_to_destroy)
    }
}

/// Destroys sockets in this network namespace, then the remaining sockets in the namespaces of other processes. Returns
/// the number of destroyed sockets.
fn destroy_everywhere(protocol: Protocol, mut cookies: BTreeSet<u64>) -> Result<usize> {
    let total = cookies.len();
    destroy_sockets(protocol.number(), &mut cookies)?;
    let mut visited = BTreeSet::from([own_namespace()]);
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        if cookies.is_empty() {
            break;
        }
        let Ok(netns) = NetNs::open(process.path().join("ns/net")) else {
            continue;
        };
        if visited.insert(netns.id().ok().map(|id| id.inode)) {
            // Sockets in a namespace that cannot be entered are not destroyed.
            let remaining = &mut cookies;
            let _ = netns.run(|| destroy_sockets(protocol.number(), remaining));
        }
    }
    Ok(total - cookies.len())
}

fn own_namespace() -> Option<u64> {
    Some(NetNs::current().ok()?.id().ok()?.inode)
}
