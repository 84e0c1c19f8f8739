//! Tests virtual routers and `announce`.

use std::net::IpAddr;
use std::time::Duration;

use weir_model::{
    Accept, AcceptedPorts, AddressInterface, Announce, RequiredServices, Speaker, Track,
    TrackObject, TrackScript, VirtualRouter,
};

use crate::{POOL, desired, messages};

fn with_router(lines: &str) -> String {
    format!(
        "[vrrp.a]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [\"192.0.2.9/24\"]\n{lines}\n"
    )
}

#[track_caller]
fn router(lines: &str) -> VirtualRouter {
    desired(&with_router(lines)).vrrp.remove(0)
}

fn address(text: &str) -> IpAddr {
    text.parse().expect("parse address")
}

#[test]
fn router_has_the_defaults_of_version_2() {
    let found = router("");
    assert_eq!(
        (found.name.as_str(), found.interface.as_deref()),
        ("a", Some("eth0"))
    );
    assert_eq!(
        (found.router_id, found.priority, found.version),
        (51, 100, 2)
    );
    assert_eq!(found.advert_interval, Duration::from_secs(1));
    assert!(found.preempt && found.track_interface && !found.virtual_mac && !found.pseudo_header);
    assert_eq!(
        (found.unicast_ttl, found.unicast_min_ttl, found.down_adverts),
        (None, None, 3)
    );
    assert_eq!(
        (found.accept, found.notify.user.as_str()),
        (Accept::All, "root")
    );
    let announcements = &found.announcements;
    assert_eq!((announcements.repeat, announcements.refresh_repeat), (5, 1));
    assert_eq!(
        announcements.second_announcement_delay,
        Duration::from_secs(5)
    );
    assert_eq!(
        (found.track, found.routes, found.rules),
        (vec![], vec![], vec![])
    );
}

#[test]
fn router_settings_are_in_the_model() {
    let found = router(
        "excluded_addresses = [\"192.0.2.8/24\"]\nother_interfaces = [{ interface = \"eth1\", addresses = \
         [\"192.0.2.8\"] }]\nsource = \"192.0.2.1\"\nunicast_peers = [\"192.0.2.2\"]\nunicast_ttl = \
         9\nunicast_min_ttl = 8\ngroup = \"g\"\npreempt_delay = \"7s\"\nversion = 3\nadvert_interval = \
         \"40950ms\"\nchecksum = \"pseudo-header\"\nstart_delay = \"6s\"\ndown_adverts = 4\ntrack_interface = \
         false\nnotify = [\"/n\", \"x\"]\nnotify_fifo = \"/f\"\nnotify_user = \"u\"\ngarp_repeat = 2\ngarp_delay = \
         \"3s\"\ngarp_refresh = \"4s\"\ngarp_refresh_repeat = 5\nroutes = [{ to = \"10.8.0.0/16\", via = \
         \"192.0.2.1\" }]\nrules = [{ from = \"10.9.0.0/16\", table = 7 }]",
    );
    let other = AddressInterface {
        interface: "eth1".to_owned(),
        addresses: vec![address("192.0.2.8")],
    };
    assert_eq!(
        (found.excluded_addresses.len(), found.other_interfaces),
        (1, vec![other])
    );
    assert_eq!(found.source, Some(address("192.0.2.1")));
    assert_eq!(found.peers, [address("192.0.2.2")]);
    assert_eq!(
        (found.unicast_ttl, found.unicast_min_ttl),
        (Some(9), Some(8))
    );
    assert_eq!(
        (found.group.as_deref(), found.preempt_delay.as_secs()),
        (Some("g"), 7)
    );
    assert_eq!(
        (found.version, found.advert_interval.as_millis()),
        (3, 40_950)
    );
    assert!(found.pseudo_header && !found.track_interface);
    assert_eq!((found.start_delay.as_secs(), found.down_adverts), (6, 4));
    assert_eq!(found.notify.all, ["/n", "x"]);
    assert_eq!(
        (found.notify.fifo.as_deref(), found.notify.user.as_str()),
        (Some("/f"), "u")
    );
    let announcements = &found.announcements;
    assert_eq!((announcements.repeat, announcements.refresh_repeat), (2, 5));
    assert_eq!(announcements.second_announcement_delay.as_secs(), 3);
    assert_eq!(announcements.refresh.as_secs(), 4);
    let route = &found.routes[0];
    assert_eq!(
        (route.via, route.table, route.metric),
        (Some(address("192.0.2.1")), 254, 0)
    );
    let rule = &found.rules[0];
    assert_eq!(
        (rule.to.is_none(), rule.table, rule.priority),
        (true, 7, 16_384)
    );
    assert_eq!(
        router("unicast_peers = [\"192.0.2.2\"]\nunicast_ttl = 255").unicast_ttl,
        None
    );
    assert_eq!(
        router("password = \"12345678\"")
            .password
            .expect("no password")
            .0,
        b"12345678"
    );
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn contradictory_router_settings_are_reported() {
    let whole_seconds = "version 2 only supports intervals of whole seconds";
    let steps = "version 3 only supports intervals from 10 ms to 40.95 s in steps of 10 ms";
    for (lines, message) in [
        ("advert_interval = \"1500ms\"", whole_seconds),
        ("version = 3\nadvert_interval = \"40960ms\"", steps),
        ("version = 3\nadvert_interval = \"1005ms\"", steps),
        (
            "priority = 255\npreempt = false",
            "the address owner always preempts",
        ),
        (
            "priority = 255\naccept = false",
            "the address owner always accepts packets to the addresses",
        ),
        (
            "preempt = false\npreempt_delay = \"1s\"",
            "`preempt_delay` has no effect with `preempt = false`",
        ),
        (
            "priority = 255\npreempt_delay = \"1s\"",
            "`preempt_delay` has no effect: the address owner takes over immediately",
        ),
        (
            "unicast_ttl = 9",
            "`unicast_ttl` has no effect without `unicast_peers`",
        ),
        (
            "unicast_min_ttl = 9",
            "`unicast_min_ttl` has no effect without `unicast_peers`",
        ),
        (
            "priority = 255\ntrack = [{ process = \"x\", penalty = 1 }]",
            "`penalty` and `bonus` have no effect: the priority of the address owner does not change",
        ),
        (
            "priority = 255\ntrack = [{ process = \"x\", bonus = 1 }]",
            "`penalty` and `bonus` have no effect: the priority of the address owner does not change",
        ),
        (
            "version = 3\npassword = \"x\"",
            "version 3 does not support passwords",
        ),
        (
            "password = \"123456789\"",
            "the password has 9 bytes; version 2 allows at most 8",
        ),
        (
            "virtual_mac = true\nunicast_peers = [\"192.0.2.2\"]",
            "`virtual_mac` and `unicast_peers` are mutually exclusive",
        ),
        (
            "source = \"192.0.2.2\"\nunicast_peers = [\"192.0.2.2\"]",
            "`unicast_peers` contains `source`, the address of this director",
        ),
        (
            "source = \"fd00::1\"",
            "`source` has a different address family than `addresses`",
        ),
        (
            "unicast_peers = [\"fd00::1\"]",
            "`unicast_peers` has a different address family than `addresses`",
        ),
        (
            "excluded_addresses = [\"0.0.0.0\"]",
            "`0.0.0.0` cannot be a virtual address",
        ),
        (
            "excluded_addresses = [\"224.0.0.1\"]",
            "`224.0.0.1` cannot be a virtual address",
        ),
        (
            "excluded_addresses = [\"255.255.255.255\"]",
            "`255.255.255.255` cannot be a virtual address",
        ),
        (
            "excluded_addresses = [\"192.0.2.9/24\"]",
            "192.0.2.9 is configured twice in virtual routers",
        ),
        (
            "other_interfaces = [{ interface = \"eth1\", addresses = [\"192.0.2.7\"] }]",
            "192.0.2.7 is not in `addresses` or `excluded_addresses`",
        ),
        (
            "other_interfaces = [{ interface = \"eth1\", addresses = [\"192.0.2.9\", \"192.0.2.9\"] }]",
            "192.0.2.9 is listed twice",
        ),
        (
            "group = \"\"",
            "this string is empty or contains a control character",
        ),
        (
            "notify_user = \"a\\n\"",
            "this string is empty or contains a control character",
        ),
        (
            "source = \"192.0.2.1:1\"",
            "a port is not allowed in `192.0.2.1:1`",
        ),
        (
            "routes = [{ to = \"10.8.0.0/16\", via = \"fd00::1\" }]",
            "`via` and `source` must have the same address family as `to`",
        ),
        (
            "rules = [{ table = 7 }]",
            "a rule needs `from` or `to`, which determine its address family",
        ),
        (
            "rules = [{ from = \"10.0.0.0/8\", to = \"fd00::/8\", table = 7 }]",
            "`from` and `to` must have the same address family",
        ),
    ] {
        assert_eq!(messages(&with_router(lines)), [message], "{lines}");
    }
    for lines in [
        "version = 3\nadvert_interval = \"10ms\"",
        "advert_interval = \"2s\"",
        "priority = 254\npreempt = false\naccept = false",
        "track = [{ process = \"x\", penalty = 1, bonus = 2 }]",
        "rules = [{ from = \"10.0.0.0/8\", to = \"10.1.0.0/16\", table = 7 }]",
    ] {
        assert_eq!(
            messages(&with_router(lines)),
            Vec::<String>::new(),
            "{lines}"
        );
    }
}

#[test]
fn version_3_router_may_have_ipv6_addresses() {
    let text = with_router("version = 3").replace("192.0.2.9/24", "2001:db8::9/64");
    assert!(!desired(&text).vrrp[0].is_ipv4());
    let found = messages(&text.replace("version = 3", ""));
    assert_eq!(found, ["version 2 does not support IPv6"]);
    let text = text.replace("\"2001:db8::9/64\"", "\"2001:db8::9/64\", \"192.0.2.9/24\"");
    assert_eq!(
        messages(&text),
        ["`addresses` contains IPv4 and IPv6 addresses"]
    );
}

#[test]
fn accept_lists_the_listeners_on_the_addresses() {
    let accept = |listen: &str| {
        let text = format!(
            "{}{POOL}[service.s]\nlisten = [\"{listen}\"]\nforward = \"proxy\"\nprotocol = \"tcp\"\npool = \"p\"\n",
            with_router("accept = false")
        );
        match desired(&text).vrrp.remove(0).accept {
            Accept::Services(ports) => ports,
            Accept::All => panic!("all"),
        }
    };
    let ports = AcceptedPorts {
        address: address("192.0.2.9"),
        protocol: 6,
        first: 80,
        last: 80,
    };
    for (listen, expected) in [
        ("192.0.2.9:80", vec![ports]),
        ("0.0.0.0:80", vec![ports]),
        ("[::]:80", vec![ports]),
        ("192.0.2.8:80", vec![]),
    ] {
        assert_eq!(accept(listen), expected, "{listen}");
    }
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn track_entry_has_one_object() {
    let track = |object, penalty, bonus, fault| Track {
        object,
        penalty,
        bonus,
        fault,
    };
    let text = |text: &str| text.to_owned();
    let script = |interval, timeout, rise, fall, user: &str| {
        TrackObject::Script(TrackScript {
            command: vec!["/s".to_owned()],
            interval: Duration::from_secs(interval),
            timeout: Duration::from_secs(timeout),
            rise,
            fall,
            user: user.to_owned(),
        })
    };
    for (entry, expected) in [
        (
            "interface = \"eth1\"",
            track(TrackObject::Interface(text("eth1")), 0, 0, false),
        ),
        (
            "process = \"x\", penalty = 3",
            track(TrackObject::Process(text("x")), 3, 0, false),
        ),
        (
            "file = \"/f\", bonus = 4",
            track(TrackObject::File(text("/f")), 0, 4, false),
        ),
        (
            "file = \"/f\", fault = true",
            track(TrackObject::File(text("/f")), 0, 0, true),
        ),
        (
            "data_plane = true",
            track(TrackObject::DataPlane, 0, 0, false),
        ),
        (
            "script = [\"/s\"], user = \"u\"",
            track(script(1, 1, 1, 1, "u"), 0, 0, false),
        ),
        (
            "script = [\"/s\"], interval = \"5s\", timeout = \"2s\", rise = 3, fall = 4, user = \"u\"",
            track(script(5, 2, 3, 4, "u"), 0, 0, false),
        ),
        (
            "script = [\"/s\"], interval = \"5s\", user = \"u\"",
            track(script(5, 5, 1, 1, "u"), 0, 0, false),
        ),
    ] {
        assert_eq!(
            router(&format!("track = [{{ {entry} }}]")).track,
            [expected],
            "{entry}"
        );
    }
    let not_one = "each entry in `track` must specify exactly one object";
    for (entry, message) in [
        ("penalty = 1", not_one),
        ("process = \"x\", file = \"/f\"", not_one),
        (
            "process = \"x\", fault = true",
            "`fault` has no effect without `file`",
        ),
        ("service = \"x\"", "service `x` does not exist"),
        ("pool = \"x\"", "pool `x` does not exist"),
        (
            "file = \"/f\", fault = true, penalty = 1",
            "`fault` cannot be combined with `penalty` or `bonus`: the number does not change the priority",
        ),
        (
            "file = \"/f\", bonus = 1, penalty = 1",
            "`file` cannot have both `penalty` and `bonus`: its number is multiplied by one of them",
        ),
    ] {
        let found = messages(&with_router(&format!("track = [{{ {entry} }}]")));
        assert_eq!(found, [message], "{entry}");
    }
}

/// A director that cannot forward packets must not have the addresses.
#[test]
fn data_plane_is_tracked_for_layer_4_services() {
    let service = format!(
        "{POOL}[service.s]\nlisten = [\"192.0.2.9:80\"]\nforward = \"nat\"\npool = \"p\"\n"
    );
    for (track, expected) in [("", 1), ("track = [{ data_plane = false }]", 0)] {
        let text = format!("{service}{}", with_router(track));
        let found = crate::messages(&text);
        assert_eq!(found, Vec::<String>::new(), "{track}");
        assert_eq!(desired(&text).vrrp[0].track.len(), expected, "{track}");
    }
}

fn with_announce(lines: &str) -> String {
    format!("[announce]\n{lines}\n")
}

#[track_caller]
fn announce(lines: &str) -> Announce {
    desired(&with_announce(lines))
        .announce
        .expect("no `announce`")
}

#[test]
#[expect(clippy::too_many_lines, reason = "a table of cases")]
fn each_speaker_has_its_own_keys() {
    let text = |text: &str| text.to_owned();
    for (lines, speaker) in [
        (
            "speaker = \"bird\"",
            Speaker::Bird {
                socket: "/run/bird/bird.ctl".into(),
                include: "/run/bird/weir.conf".into(),
            },
        ),
        (
            "speaker = \"bird\"\nsocket = \"/s\"\ninclude = \"/i\"",
            Speaker::Bird {
                socket: "/s".into(),
                include: "/i".into(),
            },
        ),
        (
            "speaker = \"exabgp\"",
            Speaker::Exabgp {
                pipe: "/run/exabgp/exabgp.in".into(),
            },
        ),
        (
            "speaker = \"gobgp\"",
            Speaker::Gobgp {
                command: vec![text("gobgp")],
            },
        ),
        (
            "speaker = \"gobgp\"\ncommand = [\"/g\", \"x\"]",
            Speaker::Gobgp {
                command: vec![text("/g"), text("x")],
            },
        ),
        (
            "speaker = \"frr\"\nasn = 65001\nprefix_list = \"a.b_c-d:1\"",
            Speaker::Frr {
                command: vec![text("vtysh")],
                asn: 65_001,
                prefix_list: Some(text("a.b_c-d:1")),
            },
        ),
    ] {
        assert_eq!(announce(lines).speaker, speaker, "{lines}");
    }
    for (lines, message) in [
        (
            "speaker = \"bird\"\npipe = \"/p\"",
            "`pipe` does not apply to speaker \"bird\"",
        ),
        (
            "speaker = \"bird\"\nasn = 1",
            "`asn` does not apply to speaker \"bird\"",
        ),
        (
            "speaker = \"exabgp\"\nsocket = \"/s\"",
            "`socket` does not apply to speaker \"exabgp\"",
        ),
        (
            "speaker = \"bird\"\nsocket = \"s\"",
            "`socket` must be an absolute path without control characters",
        ),
        (
            "speaker = \"bird\"\nsocket = \"/s\\n\"",
            "`socket` must be an absolute path without control characters",
        ),
        ("speaker = \"gobgp\"\ncommand = []", "`command` is empty"),
        ("speaker = \"frr\"", "speaker \"frr\" requires `asn`"),
        (
            "speaker = \"frr\"\nasn = 1\nprefix_list = \"a b\"",
            "\"a b\" is not a valid prefix list name",
        ),
        (
            "speaker = \"frr\"\nasn = 1\nprefix_list = \"\"",
            "\"\" is not a valid prefix list name",
        ),
        (
            "speaker = \"bird\"\nservices = []",
            "`services` is empty: nothing would be announced",
        ),
        (
            "speaker = \"bird\"\nservices = [\"x\"]",
            "service `x` does not exist",
        ),
        (
            "speaker = \"bird\"\ncommunities = [\"65001\"]",
            "\"65001\" is not a BGP community",
        ),
    ] {
        assert_eq!(messages(&with_announce(lines)), [message], "{lines}");
    }
}

#[test]
fn announce_has_delays_and_communities() {
    let found = announce("speaker = \"exabgp\"");
    assert_eq!(
        (found.withdraw_after.as_secs(), found.drain_delay.as_secs()),
        (10, 5)
    );
    assert_eq!(
        (found.services, found.require),
        (None, RequiredServices::default())
    );
    assert_eq!(found.communities, []);
    assert_eq!(found.drain_communities, [Announce::GRACEFUL_SHUTDOWN]);
    let found = announce(
        "speaker = \"exabgp\"\nwithdraw_after = \"3s\"\ndrain_delay = \"4s\"\ncommunities = [\"65001:100\", \
         \"65001:200\"]\ndrain_communities = []",
    );
    assert_eq!(
        (found.withdraw_after.as_secs(), found.drain_delay.as_secs()),
        (3, 4)
    );
    assert_eq!(
        (found.communities.len(), found.drain_communities.len()),
        (2, 0)
    );
}
