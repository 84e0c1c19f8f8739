//! Closes sockets of local programs to removed or failed servers, so that the programs connect to other servers.
//!
//! A TCP connection ends if `on_remove` requires it: a socket cannot change its server, so that `reschedule` is the
//! same as `reset`. A connected UDP socket always ends, because it would send to a dead server forever.

use std::collections::{BTreeMap, BTreeSet};

use weir_abi::{
    DEST_RESCHEDULE, DEST_RESET, DEST_USABLE, POLICY_DOWN, SOCKET_CONNECTED, SOCKET_COUNTED,
};
use weir_model::Protocol;
use weir_netlink::destroy_sockets;
use weir_sys::NetNs;

use super::Engine;
use crate::error::Result;

/// Which connected sockets of a server are ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum SocketKinds {
    /// Only datagram sockets.
    Datagrams,
    /// All sockets.
    All,
}

/// Cookies of sockets by protocol.
type Cookies = BTreeMap<Protocol, BTreeSet<u64>>;

impl Engine {
    /// Ends the sockets of removed and failed servers.
    ///
    /// # Errors
    /// A map cannot be read, or the kernel cannot list sockets.
    pub(super) fn end_sockets(&mut self) -> Result<()> {
        let kinds_to_end = self.kinds_to_end();
        if kinds_to_end.is_empty() {
            self.local_clients.ended.clear();
            return Ok(());
        }
        let cookies_to_end = self.sockets_to_end(&kinds_to_end)?;
        if cookies_to_end.is_empty() {
            return Ok(());
        }
        let mut ended = 0;
        for (protocol, cookies) in cookies_to_end {
            self.local_clients.ended.extend(&cookies);
            ended += end_everywhere(protocol, cookies)?;
        }
        if ended > 0 {
            tracing::info!(ended, "sockets of removed or failed servers were closed");
        }
        Ok(())
    }

    /// Returns the server rows whose sockets must be ended.
    fn kinds_to_end(&self) -> BTreeMap<u32, SocketKinds> {
        if self.local_clients.maps.is_none() {
            return BTreeMap::new();
        }
        let must_end = |flags: u8| flags & (DEST_RESET | DEST_RESCHEDULE) != 0;
        let removed = self.rows.removed.iter().map(|(id, removed)| {
            let is_all = must_end(removed.flags);
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
            match (must_end(row.flags), is_down) {
                (true, _) => Some((*id, SocketKinds::All)),
                (false, true) => Some((*id, SocketKinds::Datagrams)),
                (false, false) => None,
            }
        });
        removed.chain(failed).collect()
    }

    fn sockets_to_end(&self, kinds_to_end: &BTreeMap<u32, SocketKinds>) -> Result<Cookies> {
        let mut cookies_to_end = Cookies::new();
        let Some(maps) = &self.local_clients.maps else {
            return Ok(cookies_to_end);
        };
        let ended = &self.local_clients.ended;
        maps.sockets.each(|key, record| {
            let connected = SOCKET_CONNECTED | SOCKET_COUNTED;
            let protocol = [Protocol::Tcp, Protocol::Udp]
                .into_iter()
                .find(|protocol| protocol.number() == record.proto);
            let (Some(protocol), Some(ending)) = (protocol, kinds_to_end.get(&record.dest)) else {
                return;
            };
            let ends = *ending == SocketKinds::All || protocol == Protocol::Udp;
            if ends && record.state & connected == connected && !ended.contains(&key.cookie) {
                cookies_to_end
                    .entry(protocol)
                    .or_default()
                    .insert(key.cookie);
            }
        })?;
        Ok(cookies_to_end)
    }
}

/// Ends sockets in this network namespace, and the remaining ones in the namespaces of other processes. Returns the
/// number of ended sockets.
fn end_everywhere(protocol: Protocol, mut cookies: BTreeSet<u64>) -> Result<usize> {
    let total = cookies.len();
    destroy_sockets(protocol.number(), &mut cookies)?;
    let mut seen = BTreeSet::from([own_namespace()]);
    let processes = std::fs::read_dir("/proc").into_iter().flatten().flatten();
    for process in processes {
        if cookies.is_empty() {
            break;
        }
        let Ok(netns) = NetNs::open(process.path().join("ns/net")) else {
            continue;
        };
        if seen.insert(netns.id().ok().map(|id| id.inode)) {
            // A namespace that cannot be entered keeps its sockets.
            let remaining = &mut cookies;
            let _ = netns.run(|| destroy_sockets(protocol.number(), remaining));
        }
    }
    Ok(total - cookies.len())
}

fn own_namespace() -> Option<u64> {
    Some(NetNs::current().ok()?.id().ok()?.inode)
}
