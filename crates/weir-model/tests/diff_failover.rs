//! Tests that changes outside pools and services are reported, each in one line and without secrets.
//!
//! These are announcements, virtual routers, flow synchronization, the group, notifiers and traces.

#![expect(clippy::too_many_lines, reason = "tables of keys")]

mod router;

use std::time::Duration;

use router::router;
use weir_model::*;

fn secret(text: &str) -> Secret {
    Secret::new(SecretSource::Text, text.as_bytes().to_vec())
}

fn announce() -> Announce {
    Announce {
        speaker: Speaker::Bird {
            socket: "/run/bird.ctl".into(),
            include: "/etc/bird/weir.conf".into(),
        },
        withdraw_after: Duration::from_secs(2),
        drain_delay: Duration::ZERO,
        services: None,
        require: RequiredServices::Any,
        communities: Vec::new(),
        drain_communities: Vec::new(),
    }
}

fn notifier(name: &str) -> Notifier {
    Notifier {
        name: name.to_owned(),
        pools: Vec::new(),
        states: Vec::new(),
        interval: Notifier::INTERVAL,
        command: vec!["/bin/notify".to_owned()],
        user: Notifier::USER.to_owned(),
        webhook: None,
        mail: None,
    }
}

fn base() -> Desired {
    Desired {
        announce: Some(announce()),
        vrrp: vec![router(Some("eth0"))],
        sync: Some(FlowSync {
            listen: "10.0.0.1:4000".parse().unwrap(),
            peers: vec!["10.0.0.2:4000".parse().unwrap()],
            key: secret("the first secret"),
        }),
        cluster: Some(Cluster::new("g")),
        notifiers: vec![notifier("a"), notifier("b")],
        tracing: Some(Tracing {
            endpoint: HttpReceiver::parse("http://collector.example").unwrap(),
            sample: 1,
            parent: ParentTrace::Continue,
            service_name: Tracing::SERVICE_NAME.to_owned(),
        }),
        ..Desired::default()
    }
}

type Change = fn(&mut Desired);

/// Returns the lines of the difference after a change.
fn lines(change: Change) -> Vec<String> {
    let mut new = base();
    change(&mut new);
    let changes = diff(&base(), &new);
    changes.iter().map(ToString::to_string).collect()
}

/// Asserts that each change results in one line, which starts with `prefix`.
fn check(prefix: &str, cases: &[(Change, &str)]) {
    for (change, expected) in cases {
        assert_eq!(lines(*change), [format!("{prefix}{expected}")]);
    }
}

fn mut_announce(desired: &mut Desired) -> &mut Announce {
    desired.announce.as_mut().unwrap()
}

fn sync(desired: &mut Desired) -> &mut FlowSync {
    desired.sync.as_mut().unwrap()
}

#[test]
fn equal_configurations_have_no_changes() {
    assert_eq!(lines(|_| ()), [""; 0]);
}

#[test]
fn announcement_key_changes_are_edits() {
    check(
        "~ announce: ",
        &[
            (|it| it.announce = None, "speaker bird -> none"),
            (
                |it| mut_announce(it).withdraw_after = Duration::from_secs(3),
                "withdraw_after 2s -> 3s",
            ),
            (
                |it| mut_announce(it).drain_delay = Duration::from_secs(1),
                "drain_delay 0s -> 1s",
            ),
            (
                |it| mut_announce(it).services = Some(vec!["a".to_owned(), "b".to_owned()]),
                "services all -> a, b",
            ),
            (
                |it| mut_announce(it).services = Some(Vec::new()),
                "services all -> none",
            ),
            (
                |it| mut_announce(it).require = RequiredServices::All,
                "require any -> all",
            ),
            (
                |it| mut_announce(it).communities = vec![Community(65001, 100)],
                "communities none -> 65001:100",
            ),
            (
                |it| mut_announce(it).drain_communities = vec![Announce::GRACEFUL_SHUTDOWN],
                "drain_communities none -> 65535:0",
            ),
            (
                |it| {
                    mut_announce(it).speaker = Speaker::Bird {
                        socket: "/run/other.ctl".into(),
                        include: "/etc/other.conf".into(),
                    };
                },
                "socket /run/bird.ctl -> /run/other.ctl, include /etc/bird/weir.conf -> /etc/other.conf",
            ),
            (
                |it| {
                    mut_announce(it).speaker = Speaker::Exabgp {
                        pipe: "/run/exabgp.in".into(),
                    };
                },
                "speaker bird -> exabgp, socket /run/bird.ctl -> none, include /etc/bird/weir.conf -> none, \
                 pipe none -> /run/exabgp.in",
            ),
            (
                |it| {
                    mut_announce(it).speaker = Speaker::Gobgp {
                        command: vec!["gobgp".to_owned(), "-p1".to_owned()],
                    };
                },
                "speaker bird -> gobgp, socket /run/bird.ctl -> none, include /etc/bird/weir.conf -> none, \
                 command none -> gobgp, -p1",
            ),
            (
                |it| {
                    mut_announce(it).speaker = Speaker::Frr {
                        command: vec!["vtysh".to_owned()],
                        asn: 65001,
                        prefix_list: Some("weir".to_owned()),
                    };
                },
                "speaker bird -> frr, socket /run/bird.ctl -> none, include /etc/bird/weir.conf -> none, \
                 command none -> vtysh, asn none -> 65001, prefix_list none -> weir",
            ),
        ],
    );
    let mut without = base();
    without.announce = None;
    let added = diff(&without, &base());
    assert_eq!(added[0].to_string(), "~ announce: speaker none -> bird");
}

#[test]
fn virtual_router_key_changes_are_edits() {
    check(
        "~ vrrp v: ",
        &[
            (|it| it.vrrp[0].interface = None, "interface eth0 -> none"),
            (|it| it.vrrp[0].router_id = 2, "virtual_router_id 1 -> 2"),
            (|it| it.vrrp[0].priority = 90, "priority 100 -> 90"),
            (|it| it.vrrp[0].version = 2, "version 3 -> 2"),
            (
                |it| it.vrrp[0].advert_interval = Duration::from_secs(5),
                "advert_interval 1s -> 5s",
            ),
            (
                |it| it.vrrp[0].addresses.truncate(1),
                "addresses 192.0.2.10/24, 192.0.2.11/24 -> 192.0.2.10/24",
            ),
            (
                |it| it.vrrp[0].excluded_addresses.clear(),
                "excluded_addresses 192.0.2.12/24 -> none",
            ),
            (
                |it| it.vrrp[0].other_interfaces.clear(),
                "other_interfaces changed",
            ),
            (|it| it.vrrp[0].preempt = false, "preempt true -> false"),
            (
                |it| it.vrrp[0].preempt_delay = Duration::from_secs(9),
                "preempt_delay 0s -> 9s",
            ),
            (
                |it| it.vrrp[0].start_delay = Duration::from_secs(9),
                "start_delay 0s -> 9s",
            ),
            (|it| it.vrrp[0].down_adverts = 4, "down_adverts 3 -> 4"),
            (|it| it.vrrp[0].source = None, "source 192.0.2.2 -> none"),
            (
                |it| it.vrrp[0].peers = vec![[192, 0, 2, 3].into()],
                "unicast_peers none -> 192.0.2.3",
            ),
            (
                |it| it.vrrp[0].unicast_ttl = Some(1),
                "unicast_ttl none -> 1",
            ),
            (
                |it| it.vrrp[0].unicast_min_ttl = Some(254),
                "unicast_min_ttl none -> 254",
            ),
            (
                |it| it.vrrp[0].group = Some("g".to_owned()),
                "group none -> g",
            ),
            (|it| it.vrrp[0].pseudo_header = false, "checksum changed"),
            (
                |it| it.vrrp[0].virtual_mac = true,
                "virtual_mac false -> true",
            ),
            (
                |it| it.vrrp[0].track_interface = false,
                "track_interface true -> false",
            ),
            (
                |it| {
                    it.vrrp[0].track = vec![Track {
                        object: TrackObject::DataPlane,
                        penalty: 0,
                        bonus: 0,
                        fault: false,
                    }];
                },
                "track changed",
            ),
            (
                |it| it.vrrp[0].notify.user = "root".to_owned(),
                "notify changed",
            ),
            (|it| it.vrrp[0].announcements.repeat = 1, "garp changed"),
            (
                |it| it.vrrp[0].password = Some(RouterKey(b"secret".to_vec())),
                "password changed",
            ),
            (
                |it| {
                    it.vrrp[0].hmac = Some(RouterHmac {
                        keys: vec![(1, RouterKey(vec![7; 32]))],
                        active: 1,
                        mode: RouterHmacMode::Enforce,
                        window: Duration::from_secs(5),
                    });
                },
                "hmac changed",
            ),
            (
                |it| {
                    it.vrrp[0].routes = vec![VirtualRoute {
                        to: it.vrrp[0].addresses[0],
                        via: None,
                        interface: None,
                        source: None,
                        table: 254,
                        metric: 0,
                    }];
                },
                "routes changed",
            ),
            (
                |it| {
                    it.vrrp[0].rules = vec![VirtualRule {
                        from: None,
                        to: None,
                        interface: None,
                        mark: Some(1),
                        table: 100,
                        priority: 10,
                    }];
                },
                "rules changed",
            ),
            (
                |it| it.vrrp[0].accept = Accept::Services(Vec::new()),
                "accept changed",
            ),
        ],
    );
    check(
        "",
        &[
            (|it| it.vrrp.clear(), "- vrrp v"),
            (
                |it| {
                    let mut added = router(None);
                    added.name = "w".to_owned();
                    it.vrrp.push(added);
                },
                "+ vrrp w",
            ),
        ],
    );
    let debug = format!("{:?}", RouterKey(b"secret".to_vec()));
    assert_eq!(debug, "RouterKey", "`Debug` omits the key");
}

#[test]
fn changes_to_synchronization_group_notifiers_and_traces_are_reported() {
    check(
        "",
        &[
            (
                |it| sync(it).listen = "10.0.0.3:4000".parse().unwrap(),
                "~ sync: listen 10.0.0.1:4000 -> 10.0.0.3:4000",
            ),
            (
                |it| sync(it).peers.push("10.0.0.3:4000".parse().unwrap()),
                "~ sync: peers 10.0.0.2:4000 -> 10.0.0.2:4000, 10.0.0.3:4000",
            ),
            (
                |it| sync(it).key = secret("another secret"),
                "~ sync: key changed",
            ),
            (
                |it| sync(it).key = Secret::new(SecretSource::Env("K".to_owned()), Vec::new()),
                "~ sync: key text -> environment variable K",
            ),
            (|it| it.sync = None, "- sync"),
            (
                |it| it.cluster.as_mut().unwrap().agreement = false,
                "~ cluster",
            ),
            (|it| it.cluster = None, "- cluster"),
            (
                |it| it.notifiers[1].pools = vec!["p".to_owned()],
                "~ notify b",
            ),
            (|it| drop(it.notifiers.remove(0)), "- notify a"),
            (|it| it.notifiers.push(notifier("c")), "+ notify c"),
            (|it| it.tracing.as_mut().unwrap().sample = 9, "~ tracing"),
            (|it| it.tracing = None, "- tracing"),
        ],
    );
    let without = Desired {
        announce: base().announce,
        vrrp: base().vrrp,
        notifiers: base().notifiers,
        ..Desired::default()
    };
    let added = diff(&without, &base());
    let added: Vec<String> = added.iter().map(ToString::to_string).collect();
    assert_eq!(added, ["+ sync", "+ cluster", "+ tracing"]);
}
