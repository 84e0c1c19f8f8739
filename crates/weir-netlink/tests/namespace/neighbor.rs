//! Tests managed neighbor entries.

use weir_netlink::{Change, Event, ManageOutcome, NeighborState, resolve};

use crate::{Pair, handle_in, in_namespace, ip, wait_for};

#[test]
fn managed_neighbors_are_resolved_without_traffic() {
    in_namespace(async || {
        let pair = Pair::new().await;
        let net = &pair.net;
        let server = ip("10.0.0.2");
        net.add_address(pair.a, ip("10.0.0.1"), 24).await.unwrap();
        pair.peer.add_address(pair.b, server, 24).await.unwrap();
        let mut watch = net.watch().unwrap();
        assert_eq!(net.neighbor(pair.a, server).await.unwrap(), None);
        assert_eq!(
            net.ensure_managed(pair.a, server).await.unwrap(),
            ManageOutcome::Added
        );
        assert_eq!(
            net.ensure_managed(pair.a, server).await.unwrap(),
            ManageOutcome::Present
        );
        let peer_mac = pair.peer.link("b").await.unwrap().unwrap().mac;
        let is_resolved = |event: &Event| {
            matches!(event, Event::Neighbor { neighbor, removed: false }
                if neighbor.ip == server && neighbor.usable_mac() == peer_mac)
        };
        wait_for(&mut watch, is_resolved).await;
        let state = net.state([server]).await.unwrap();
        let hop = &resolve(server, &state)[0];
        assert_eq!((hop.ifindex, hop.mac), (pair.a, peer_mac));

        assert_eq!(
            net.remove_managed(pair.a, server).await.unwrap(),
            Change::Made
        );
        let is_removed = |event: &Event| match event {
            Event::Neighbor { neighbor, removed } => *removed && neighbor.ip == server,
            _ => false,
        };
        wait_for(&mut watch, is_removed).await;
        assert_eq!(
            net.remove_managed(pair.a, server).await.unwrap(),
            Change::None
        );
        assert_eq!(net.remove_managed(999, server).await.unwrap(), Change::None);
    });
}

#[test]
fn entry_of_another_program_is_kept() {
    in_namespace(async || {
        let pair = Pair::new().await;
        let net = &pair.net;
        let server = ip("10.0.0.2");
        let add = handle_in(net).neighbours().add(pair.a, server);
        add.link_layer_address(&[2, 0, 0, 0, 0, 2])
            .execute()
            .await
            .unwrap();
        assert_eq!(
            net.ensure_managed(pair.a, server).await.unwrap(),
            ManageOutcome::Permanent
        );
        assert_eq!(
            net.remove_managed(pair.a, server).await.unwrap(),
            Change::None
        );
        let entry = net.neighbor(pair.a, server).await.unwrap().unwrap();
        assert_eq!(
            (entry.state, entry.managed),
            (NeighborState::Permanent, false)
        );
        assert!(net.neighbors().await.unwrap().contains(&entry));
        assert!(net.ensure_managed(999, server).await.is_err());
    });
}
