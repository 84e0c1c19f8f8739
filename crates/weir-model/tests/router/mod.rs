//! Provides a virtual router.

use std::time::Duration;

use weir_model::*;

/// Returns a virtual router with two addresses on its own interface, one of which is not advertised, and one address on
/// another interface.
pub(crate) fn router(interface: Option<&str>) -> VirtualRouter {
    let network = |last: u8| Network {
        address: [192, 0, 2, last].into(),
        prefix: 24,
    };
    VirtualRouter {
        name: "v".to_owned(),
        interface: interface.map(str::to_owned),
        router_id: 1,
        priority: 100,
        version: 3,
        advert_interval: Duration::from_secs(1),
        addresses: vec![network(10), network(11)],
        excluded_addresses: vec![network(12)],
        other_interfaces: vec![AddressInterface {
            interface: "eth1".to_owned(),
            addresses: vec![[192, 0, 2, 11].into()],
        }],
        preempt: true,
        preempt_delay: Duration::ZERO,
        source: Some([192, 0, 2, 2].into()),
        peers: Vec::new(),
        unicast_ttl: None,
        unicast_min_ttl: None,
        group: None,
        track: Vec::new(),
        notify: Notify::default(),
        start_delay: Duration::ZERO,
        down_adverts: 3,
        pseudo_header: true,
        virtual_mac: false,
        track_interface: true,
        announcements: RouterAnnouncements {
            repeat: 5,
            second_announcement_delay: Duration::from_secs(5),
            refresh: Duration::ZERO,
            refresh_repeat: 1,
        },
        password: None,
        hmac: None,
        routes: Vec::new(),
        rules: Vec::new(),
        accept: Accept::All,
    }
}
