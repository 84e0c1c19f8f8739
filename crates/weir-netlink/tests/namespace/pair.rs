//! Tests the veth pair for packets with a firewall mark.

use weir_netlink::{Change, MacAddr, Netlink};

use crate::in_namespace;

#[test]
fn veth_pair_is_created_brought_up_and_removed() {
    in_namespace(async || {
        let net = Netlink::open().unwrap();
        let mac = MacAddr([2, 0x57, 0x65, 0x69, 0x72, 0]);
        let created = net
            .add_veth_pair("weir0", "weir1", mac, 9216)
            .await
            .unwrap();
        assert_eq!(created, Change::Made);
        for name in ["weir0", "weir1"] {
            let link = net.link(name).await.unwrap().unwrap();
            assert_eq!((link.mac, link.mtu, link.up), (Some(mac), 9216, false));
            net.bring_up(link.index).await.unwrap();
            assert!(net.link(name).await.unwrap().unwrap().up);
        }
        let second = net
            .add_veth_pair("weir0", "weir1", mac, 9216)
            .await
            .unwrap();
        assert_eq!(second, Change::None);
        let entry = net.link("weir0").await.unwrap().unwrap().index;
        let route = net.add_default_route(true, 99, entry).await.unwrap();
        assert_eq!(route, Change::Made);
        assert_eq!(net.remove_link(entry).await.unwrap(), Change::Made);
        assert_eq!(net.link("weir1").await.unwrap(), None);
        assert_eq!(net.remove_link(entry).await.unwrap(), Change::None);
    });
}
