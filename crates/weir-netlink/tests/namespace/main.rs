//! Tests netlink requests against the running kernel.
//!
//! Each test has its own network namespaces. The tests require root and wait for conditions with a deadline.

mod device;
mod event;
mod handover;
mod neighbor;
mod pair;
mod route;
mod rule;

use std::net::IpAddr;
use std::os::fd::{AsFd, AsRawFd};
use std::time::Duration;

use rtnetlink::{Handle, LinkUnspec, LinkVeth};
use weir_netlink::{Event, Netlink, Watch};
use weir_sys::NetNs;

const TIMEOUT: Duration = Duration::from_secs(30);

/// A namespace with the veth device `a`, and a second namespace with its peer `b`. Both devices are up.
struct Pair {
    net: Netlink,
    peer: Netlink,
    a: u32,
    b: u32,
}

impl Pair {
    async fn new() -> Self {
        let peer_ns = NetNs::create().unwrap();
        let net = Netlink::open().unwrap();
        let peer = Netlink::open_in(&peer_ns).unwrap();
        let handle = handle_in(&net);
        handle
            .link()
            .add(LinkVeth::new("a", "b").build())
            .execute()
            .await
            .unwrap();
        let move_to_peer = LinkUnspec::new_with_name("b")
            .setns_by_fd(peer_ns.as_fd().as_raw_fd())
            .build();
        handle.link().set(move_to_peer).execute().await.unwrap();
        let a = net.link("a").await.unwrap().unwrap().index;
        let b = peer.link("b").await.unwrap().unwrap().index;
        bring_up(&handle, a).await;
        bring_up(&handle_in(&peer), b).await;
        Self { net, peer, a, b }
    }
}

/// Returns an rtnetlink handle, for creating devices and routes.
fn handle_in(net: &Netlink) -> Handle {
    let (connection, handle, _) = net
        .run_in_namespace(rtnetlink::new_connection)
        .unwrap()
        .unwrap();
    tokio::spawn(connection);
    handle
}

async fn bring_up(handle: &Handle, index: u32) {
    let message = LinkUnspec::new_with_index(index).up().build();
    handle.link().set(message).execute().await.unwrap();
}

fn ip(text: &str) -> IpAddr {
    text.parse().unwrap()
}

/// Runs `test` in a new namespace on a new runtime.
fn in_namespace(test: impl AsyncFnOnce() + Send) {
    if !weir_testing::require_root() {
        return;
    }
    let namespace = NetNs::create().unwrap();
    namespace
        .run(|| {
            let runtime = tokio::runtime::Builder::new_current_thread()
                .enable_all()
                .build()
                .unwrap();
            runtime.block_on(async { tokio::time::timeout(4 * TIMEOUT, test()).await.unwrap() });
        })
        .unwrap();
}

async fn wait_for(watch: &mut Watch, is_expected: impl Fn(&Event) -> bool) -> Event {
    let search = async {
        loop {
            let event = watch.next().await.unwrap();
            if is_expected(&event) {
                return event;
            }
        }
    };
    tokio::time::timeout(TIMEOUT, search)
        .await
        .expect("timed out waiting for the event")
}
