//! Defines the keys of `[announce]`: VIPs that `weir announcer` announces over BGP.

use std::time::Duration;

use weir_model::{RequiredServices, Speaker};

use super::integer;
use crate::key::{Choices, Key, Kind, Presence, Section};

use Presence::{Absent, Default, Required};

const COMMUNITIES: Kind = Kind::List(&Kind::DescribedText("a BGP community like \"65001:100\""));

fn speakers() -> Choices {
    Choices {
        values: Speaker::NAMES.to_vec(),
        known_as: &[("bird2", "bird"), ("bird3", "bird"), ("bgpd", "frr")],
        ..Choices::default()
    }
}

fn required_services() -> Choices {
    Choices {
        values: RequiredServices::ALL.iter().map(|it| it.as_str()).collect(),
        ..Choices::default()
    }
}

/// Keys of `[announce]`.
pub(crate) static ANNOUNCE: Section = Section {
    path: "announce",
    page: "announce",
    purpose: "Announces VIPs over BGP through a speaker that runs on this machine, so that routers distribute traffic \
              across several directors (ECMP). A VIP is announced while its services are usable (see `require`). A \
              service is usable if one of its pools has a usable server or sorry server; a layer 4 service also needs \
              an attached data plane.",
    example: "[announce]\nspeaker = \"bird\"\nwithdraw_after = \"10s\"\n",
    keys: &[
        Key::new(
            "speaker",
            Kind::OneOf(speakers),
            Required,
            "The BGP speaker. It maintains the BGP and BFD sessions with the routers; Weir only adds and withdraws \
             routes to VIPs.",
            "speaker = \"bird\"",
        ),
        Key::new(
            "withdraw_after",
            Kind::Duration {
                min: Duration::from_secs(2),
                max: Duration::from_secs(3600),
            },
            Default("10s"),
            "How long routes stay announced after the daemon has stopped. During this time, the kernel still forwards \
             packets, but servers are not checked.",
            "withdraw_after = \"30s\"",
        ),
        Key::new(
            "drain_delay",
            Kind::Duration {
                min: Duration::ZERO,
                max: Duration::from_secs(3600),
            },
            Default("5s"),
            "How long `weir node drain` announces the routes with `drain_communities` before it withdraws them.",
            "drain_delay = \"30s\"",
        ),
        Key::new(
            "services",
            Kind::List(&Kind::ServiceName),
            Absent("all services"),
            "Services whose VIPs are announced. Loopback, link-local and unspecified addresses are never announced.",
            "services = [\"images\"]",
        ),
        Key::new(
            "require",
            Kind::OneOf(required_services),
            Default("any"),
            "Whether all services that share a VIP must be usable, or only one of them.",
            "require = \"all\"",
        ),
        Key::new(
            "communities",
            COMMUNITIES,
            Absent("none"),
            "BGP communities (RFC 1997) that are attached to every route.",
            "communities = [\"65001:100\"]",
        ),
        Key::new(
            "drain_communities",
            COMMUNITIES,
            Absent("`[\"65535:0\"]`"),
            "Additional communities for the routes while the node is being drained. The default is GRACEFUL_SHUTDOWN \
             (RFC 8326); routers must be configured to prefer routes without it.",
            "drain_communities = [\"65001:999\"]",
        ),
        Key::new(
            "socket",
            Kind::DescribedText("an absolute path"),
            Default("/run/bird/bird.ctl"),
            "`bird` only: BIRD's control socket.",
            "socket = \"/run/bird-edge/bird.ctl\"",
        ),
        Key::new(
            "include",
            Kind::DescribedText("an absolute path"),
            Default("/run/bird/weir.conf"),
            "`bird` only: the file that Weir writes. Include it at the top level of bird.conf, with a wildcard, so \
             that BIRD accepts a missing file: `include \"/run/bird/weir*.conf\";`. The file should not survive a \
             reboot, because BIRD announces the routes in it as soon as it starts. Export the routes of the protocols \
             `weir4` and `weir6`.",
            "include = \"/run/bird-edge/weir.conf\"",
        ),
        Key::new(
            "pipe",
            Kind::DescribedText("an absolute path"),
            Default("/run/exabgp/exabgp.in"),
            "`exabgp` only: the named pipe of ExaBGP's API.",
            "pipe = \"/run/exabgp.in\"",
        ),
        Key::new(
            "command",
            Kind::List(&Kind::Text),
            Absent("`[\"gobgp\"]` or `[\"vtysh\"]`"),
            "`gobgp` and `frr` only: the program and its arguments. It runs without a shell.",
            "command = [\"/usr/local/bin/gobgp\", \"-p\", \"50052\"]",
        ),
        Key::new(
            "asn",
            integer((1, u32::MAX)),
            Absent("required for `frr`"),
            "`frr` only: the AS number of `router bgp`.",
            "asn = 65001",
        ),
        Key::new(
            "prefix_list",
            Kind::DescribedText("a name of letters, digits and `.`, `_`, `-`, `:`"),
            Absent("none"),
            "`frr` only: a prefix list that the neighbors use with `prefix-list NAME out`, in each address family with \
             VIPs. FRR waits 50 ms before it sends a withdrawal. If the prefix list changes, FRR sends the withdrawal \
             immediately, so Weir adds an entry that matches no route, and then removes the entry. Sequence number 1 \
             of the list must be free for this entry.",
            "prefix_list = \"OUT\"",
        ),
    ],
};
