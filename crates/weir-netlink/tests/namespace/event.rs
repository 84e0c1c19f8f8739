//! Tests watches, and requests whose futures are dropped.

use rtnetlink::{LinkBridge, LinkUnspec};
use weir_netlink::{Event, Netlink};

use crate::{Pair, handle_in, in_namespace, ip, wait_for};

#[test]
fn watch_reports_addresses_routes_and_links() {
    in_namespace(async || {
        let pair = Pair::new().await;
        let net = &pair.net;
        let mut watch = net.watch().unwrap();
        net.add_address(pair.a, ip("10.0.0.1"), 24).await.unwrap();
        wait_for(&mut watch, |event| {
            matches!(event, Event::Address { address, removed: false } if address.ip == ip("10.0.0.1"))
        })
        .await;
        wait_for(&mut watch, |event| {
            matches!(event, Event::Route { route, removed: false }
                if route.destination == ip("10.0.0.0") && route.prefix == 24)
        })
        .await;
        net.remove_address(pair.a, ip("10.0.0.1"), 24)
            .await
            .unwrap();
        wait_for(&mut watch, |event| {
            matches!(event, Event::Address { address, removed: true } if address.ip == ip("10.0.0.1"))
        })
        .await;
        handle_in(net).link().del(pair.a).execute().await.unwrap();
        wait_for(
            &mut watch,
            |event| matches!(event, Event::Link { link, removed: true } if link.name == "a"),
        )
        .await;
    });
}

#[test]
fn port_that_leaves_a_bridge_is_not_reported_as_removed() {
    in_namespace(async || {
        let pair = Pair::new().await;
        let net = &pair.net;
        let handle = handle_in(net);
        handle
            .link()
            .add(LinkBridge::new("br").up().build())
            .execute()
            .await
            .unwrap();
        let bridge = net.link("br").await.unwrap().unwrap().index;
        let enslave = LinkUnspec::new_with_index(pair.a)
            .controller(bridge)
            .build();
        handle.link().set(enslave).execute().await.unwrap();
        let mut watch = net.watch().unwrap();
        let release = LinkUnspec::new_with_index(pair.a).nocontroller().build();
        handle.link().set(release).execute().await.unwrap();
        handle.link().del(bridge).execute().await.unwrap();
        let mut removed_links = Vec::new();
        loop {
            if let Event::Link {
                link,
                removed: true,
            } = watch.next().await.unwrap()
            {
                removed_links.push(link.index);
                if link.index == bridge {
                    break;
                }
            }
        }
        assert_eq!(removed_links, [bridge]);
    });
}

#[test]
fn overrun_is_reported_and_watch_recovers() {
    in_namespace(async || {
        let pair = Pair::new().await;
        let net = &pair.net;
        let mut watch = net.watch().unwrap();
        for _ in 0..3_000 {
            net.add_address(pair.a, ip("10.0.0.1"), 24).await.unwrap();
            net.remove_address(pair.a, ip("10.0.0.1"), 24)
                .await
                .unwrap();
        }
        wait_for(&mut watch, |event| *event == Event::Lost).await;
        net.add_address(pair.a, ip("10.0.0.9"), 24).await.unwrap();
        wait_for(
            &mut watch,
            |event| matches!(event, Event::Address { address, .. } if address.ip == ip("10.0.0.9")),
        )
        .await;
    });
}

#[test]
fn reply_to_dropped_request_is_skipped() {
    in_namespace(async || {
        let all_links = Netlink::open().unwrap().links().await.unwrap();
        let mut dropped = 0;
        for _ in 0..20 {
            // With a new socket, the first poll of the future returns `Pending`, because the runtime does not know yet
            // that the socket is writable. The second poll sends the request, and the future is dropped while it waits
            // for the reply.
            let net = Netlink::open().unwrap();
            tokio::select! {
                biased;
                _ = net.routes() => {}
                () = tokio::task::yield_now() => dropped += 1,
            }
            assert_eq!(net.links().await.unwrap(), all_links);
        }
        assert!(
            dropped > 0,
            "every reply arrived before its request was dropped"
        );
    });
}
