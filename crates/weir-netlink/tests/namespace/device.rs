//! Tests links, VLAN devices, XDP features, sysctls and offloads.

use rtnetlink::{LinkBridge, LinkUnspec, LinkVeth, LinkVlan};
use weir_netlink::{Netlink, Sysctl, resolve};
use weir_sys::NetNs;
use weir_sys::ethtool::{self, Features};

use crate::{Pair, handle_in, in_namespace, ip};

#[test]
fn link_has_kind_master_and_state() {
    in_namespace(async || {
        let net = Netlink::open().unwrap();
        let handle = handle_in(&net);
        handle
            .link()
            .add(LinkVeth::new("a", "b").build())
            .execute()
            .await
            .unwrap();
        handle
            .link()
            .add(LinkBridge::new("br").build())
            .execute()
            .await
            .unwrap();
        let bridge = net.link("br").await.unwrap().unwrap();
        let a = net.link("a").await.unwrap().unwrap();
        assert!(!a.up && a.mac.is_some() && a.vlan.is_none());
        assert_eq!(
            (a.kind.as_deref(), a.mtu, a.master),
            (Some("veth"), 1500, None)
        );
        let enslave = LinkUnspec::new_with_index(a.index)
            .controller(bridge.index)
            .up()
            .build();
        handle.link().set(enslave).execute().await.unwrap();
        let a = net.link("a").await.unwrap().unwrap();
        assert_eq!((a.up, a.master), (true, Some(bridge.index)));
        let lo = net.link("lo").await.unwrap().unwrap();
        assert!(lo.loopback && lo.kind.is_none() && lo.mac.is_none());
        assert_eq!(net.link("none").await.unwrap(), None);
        assert_eq!(net.undecodable_count().await, 0);
    });
}

#[test]
fn vlan_device_resolves_to_its_lower_device() {
    in_namespace(async || {
        let pair = Pair::new().await;
        let handle = handle_in(&pair.net);
        let vlan = LinkVlan::new("a.7", pair.a, 7).up().build();
        if let Err(error) = handle.link().add(vlan).execute().await {
            // The kernel may be built without VLAN devices.
            assert!(error.to_string().contains("not supported"), "{error}");
            println!("skipped: this kernel is built without VLAN devices");
            return;
        }
        let device = pair.net.link("a.7").await.unwrap().unwrap();
        pair.net
            .add_address(device.index, ip("10.7.0.1"), 24)
            .await
            .unwrap();
        let server = ip("10.7.0.2");
        let state = pair.net.state([server]).await.unwrap();
        let next_hops = resolve(server, &state);
        assert_eq!((next_hops[0].ifindex, next_hops[0].vlan), (pair.a, Some(7)));
    });
}

#[test]
fn xdp_features_of_veth_and_bridge_are_read() {
    in_namespace(async || {
        let pair = Pair::new().await;
        let Some(features) = pair.net.xdp_features(pair.a).await.unwrap() else {
            println!("skipped: this kernel is older than 6.3");
            return;
        };
        assert!(features.can_run_in_driver() && features.can_redirect());
        let handle = handle_in(&pair.net);
        handle
            .link()
            .add(LinkBridge::new("br").build())
            .execute()
            .await
            .unwrap();
        let bridge = pair.net.link("br").await.unwrap().unwrap().index;
        let features = pair.net.xdp_features(bridge).await.unwrap().unwrap();
        assert!(!features.can_run_in_driver() && !features.can_transmit());
        assert!(pair.net.xdp_features(999).await.is_err());
    });
}

#[test]
fn sysctls_are_read_in_the_right_namespace() {
    in_namespace(async || {
        let pair = Pair::new().await;
        let peer_sysctl = Sysctl::for_device(false, "b", "arp_ignore").unwrap();
        assert_eq!(peer_sysctl.find().unwrap(), None);
        assert_eq!(pair.peer.sysctl(&peer_sysctl).unwrap(), "0");
        let set = |value: &str| {
            pair.peer
                .run_in_namespace(|| peer_sysctl.set(value))
                .unwrap()
        };
        assert_eq!(set("1").unwrap().as_deref(), Some("0"));
        assert_eq!(set("1").unwrap(), None);
        assert_eq!(pair.peer.sysctl(&peer_sysctl).unwrap(), "1");
        assert!(set("many").is_err());
        let current_namespace = NetNs::current().unwrap().id().unwrap();
        assert_eq!(pair.net.netns().id().unwrap(), current_namespace);
    });
}

#[test]
fn device_features_are_read_in_the_right_namespace() {
    in_namespace(async || {
        let pair = Pair::new().await;
        assert!(Features::read("b").is_err());
        let changed = pair
            .peer
            .run_in_namespace(|| ethtool::disable_receive_offloads("b"))
            .unwrap()
            .unwrap();
        let features = pair
            .peer
            .run_in_namespace(|| Features::read("b"))
            .unwrap()
            .unwrap();
        assert!(!features.is_active(ethtool::GRO));
        pair.peer
            .run_in_namespace(|| features.set(&changed))
            .unwrap()
            .unwrap();
    });
}
