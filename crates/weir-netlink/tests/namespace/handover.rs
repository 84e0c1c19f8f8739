//! Tests addresses that are handed over between two owners.

use weir_netlink::{Address, Change, Netlink};

use crate::{Pair, in_namespace, ip};

async fn find(net: &Netlink, address: &str) -> Vec<Address> {
    let mut found = net.addresses().await.unwrap();
    found.retain(|it| it.ip == ip(address));
    found
}

#[test]
fn handed_over_address_stays_and_can_be_taken_over() {
    in_namespace(async || {
        let pair = Pair::new().await;
        let (net, device) = (&pair.net, pair.a);
        for (other, prefix, address) in [("10.0.0.1", 24, "10.0.0.10"), ("fd00::1", 64, "fd00::10")]
        {
            net.add_address(device, ip(other), prefix).await.unwrap();
            for prefix in [prefix, if prefix == 24 { 32 } else { 128 }] {
                net.add_address(device, ip(address), prefix).await.unwrap();
                let found = find(net, address).await;
                let is_single = prefix == 128;
                let state = (found[0].handed_over, found[0].destination_only);
                assert_eq!(state, (false, is_single), "{found:?}");
                let must_be_removed = net
                    .hand_over_address(device, ip(address), prefix)
                    .await
                    .unwrap();
                assert_eq!(must_be_removed, prefix == 24, "{address}/{prefix}");
                if must_be_removed {
                    let removed = net.remove_address(device, ip(address), prefix).await;
                    assert_eq!(removed.unwrap(), Change::Made);
                }
                let found = find(net, address).await;
                let (prefix, handed_over) = (found[0].prefix, found[0].handed_over);
                assert!(found.len() == 1 && handed_over, "{found:?}");
                // The other address and its route do not depend on the address that was handed over.
                assert!(find(net, other).await.iter().all(|it| !it.handed_over));
                net.take_over_address(device, ip(address), prefix)
                    .await
                    .unwrap();
                let found = find(net, address).await;
                let state = (found[0].handed_over, found[0].destination_only);
                assert_eq!((found.len(), state), (1, (false, is_single)), "{found:?}");
                net.remove_address(device, ip(address), prefix)
                    .await
                    .unwrap();
                assert_eq!(find(net, address).await, []);
            }
            let neighbor = if prefix == 24 { "10.0.0.2" } else { "fd00::2" };
            let route = net.route_get(ip(neighbor), None, 0).await.unwrap();
            assert_eq!(route.next_hops[0].ifindex, device, "{route:?}");
        }
    });
}
