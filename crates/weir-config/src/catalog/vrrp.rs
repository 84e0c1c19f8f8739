//! `[vrrp.NAME]`: VIPs that move between directors. Read and kept; nothing acts on it yet, and every run says so.

use std::time::Duration;

use super::integer;
use crate::key::{Key, Kind, Presence, Section};

use Presence::{Absent, Default, Required};

const PAUSE: Kind = Kind::Duration {
    min: Duration::from_millis(10),
    max: Duration::from_secs(255),
};

const LONG: Kind = Kind::Duration {
    min: Duration::ZERO,
    max: Duration::from_secs(86_400),
};

const COMMAND: Kind = Kind::List(&Kind::Text);

/// `[vrrp.NAME]`.
pub(crate) static VRRP: Section = Section {
    path: "vrrp.NAME",
    page: "vrrp",
    purpose: "A virtual router (RFC 9568): addresses that the live one of several directors has. This build reads and keeps \
              these tables and does not act on them; `weir check` warns. Until then keepalived moves the addresses.",
    example: "[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\npriority = 150\naddresses = \
              [\"192.0.2.10/24\"]\n",
    keys: &[
        Key::new(
            "interface",
            Kind::Interface,
            Absent("the one that `source` is on"),
            "Interface of advertisements and addresses.",
            "interface = \"eth0\"",
        ),
        Key::new(
            "virtual_router_id",
            integer((1, 255)),
            Required,
            "Number that all directors of the addresses share.",
            "virtual_router_id = 51",
        ),
        Key::new(
            "priority",
            integer((1, 255)),
            Default("100"),
            "The highest one has the addresses; 255 owns them.",
            "priority = 150",
        ),
        Key::new(
            "version",
            integer((2, 3)),
            Default("2"),
            "Of the protocol; IPv6 has 3 alone.",
            "version = 3",
        ),
        Key::new(
            "advert_interval",
            PAUSE,
            Default("1s"),
            "Between advertisements of the active one.",
            "advert_interval = \"100ms\"",
        )
        .known_as(&["advert_int"]),
        Key::new(
            "addresses",
            Kind::List(&Kind::Network),
            Default("[]"),
            "Addresses that are advertised and move.",
            "addresses = [\"192.0.2.10/24\"]",
        )
        .known_as(&["virtual_ipaddress"]),
        Key::new(
            "excluded_addresses",
            Kind::List(&Kind::Network),
            Default("[]"),
            "Addresses that move along and are not advertised.",
            "excluded_addresses = [\"2001:db8::10/64\"]",
        )
        .known_as(&["virtual_ipaddress_excluded"]),
        Key::new(
            "preempt",
            Kind::Flag,
            Default("true"),
            "Whether a higher priority takes the addresses back.",
            "preempt = false",
        ),
        Key::new(
            "preempt_delay",
            LONG,
            Default("0s"),
            "How long it waits before.",
            "preempt_delay = \"30s\"",
        ),
        Key::new(
            "accept",
            Kind::Flag,
            Default("true"),
            "Whether packets to the addresses are taken by one that does not own them.",
            "accept = false",
        ),
        Key::new(
            "source",
            Kind::Address,
            Absent("the interface's first"),
            "Source address of advertisements.",
            "source = \"192.0.2.1\"",
        )
        .known_as(&["mcast_src_ip", "unicast_src_ip"]),
        Key::new(
            "unicast_peers",
            Kind::List(&Kind::Address),
            Absent("multicast"),
            "Directors that advertisements go to in place of the group.",
            "unicast_peers = [\"192.0.2.2\"]",
        )
        .known_as(&["unicast_peer"]),
        Key::new(
            "group",
            Kind::Text,
            Absent("it moves alone"),
            "Virtual routers of one name move together.",
            "group = \"pair\"",
        )
        .known_as(&["vrrp_sync_group"]),
        Key::new(
            "track",
            Kind::List(&Kind::Table(&VRRP_TRACK)),
            Default("[]"),
            "What must be well for the addresses to stay.",
            "track = [{ interface = \"eth1\" }]",
        ),
        Key::new(
            "notify",
            COMMAND,
            Absent("nobody is told"),
            "Program and arguments, called on every change.",
            "notify = [\"/usr/local/bin/tell\"]",
        ),
        Key::new(
            "notify_master",
            COMMAND,
            Absent("nobody is told"),
            "The same, when the addresses come.",
            "notify_master = [\"/usr/local/bin/tell\", \"up\"]",
        ),
        Key::new(
            "notify_backup",
            COMMAND,
            Absent("nobody is told"),
            "The same, when they go.",
            "notify_backup = [\"/usr/local/bin/tell\", \"down\"]",
        ),
        Key::new(
            "notify_fault",
            COMMAND,
            Absent("nobody is told"),
            "The same, when something tracked fails.",
            "notify_fault = [\"/usr/local/bin/tell\", \"fault\"]",
        ),
        Key::new(
            "notify_stop",
            COMMAND,
            Absent("nobody is told"),
            "The same, when the daemon ends.",
            "notify_stop = [\"/usr/local/bin/tell\", \"stop\"]",
        ),
    ],
};

/// An entry of `track`: one of `interface`, `script`, `process` and `file`, and what follows from it.
pub(crate) static VRRP_TRACK: Section = Section {
    path: "vrrp.NAME.track",
    page: "vrrp-track",
    purpose: "Something that a virtual router depends on. Without `penalty` and `bonus` its failure gives the addresses up; \
              with one of them it changes the priority.",
    example: "[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\ntrack = [{ script = [\"/usr/local/bin/alive\"], \
              interval = \"2s\", penalty = 20 }]\n",
    keys: &[
        Key::new(
            "interface",
            Kind::Interface,
            Absent("no link"),
            "A link that must be up.",
            "interface = \"eth1\"",
        ),
        Key::new(
            "script",
            COMMAND,
            Absent("no program"),
            "A program that must end with 0.",
            "script = [\"/usr/local/bin/alive\"]",
        ),
        Key::new(
            "process",
            Kind::Text,
            Absent("no process"),
            "A process that must run.",
            "process = \"haproxy\"",
        ),
        Key::new(
            "file",
            Kind::Text,
            Absent("no file"),
            "A file whose number is added to the priority.",
            "file = \"/run/weight\"",
        ),
        Key::new(
            "interval",
            PAUSE,
            Default("1s"),
            "`script`: from one run to the next.",
            "interval = \"2s\"",
        ),
        Key::new(
            "timeout",
            PAUSE,
            Absent("`interval`"),
            "`script`: how long it may take.",
            "timeout = \"1s\"",
        ),
        Key::new(
            "rise",
            integer((1, 100)),
            Default("1"),
            "`script`: runs in a row that must pass.",
            "rise = 2",
        ),
        Key::new(
            "fall",
            integer((1, 100)),
            Default("1"),
            "`script`: runs in a row that must fail.",
            "fall = 3",
        ),
        Key::new(
            "user",
            Kind::Text,
            Absent("`nobody`"),
            "`script`: the account that it runs as.",
            "user = \"weir\"",
        ),
        Key::new(
            "penalty",
            integer((1, 254)),
            Absent("a failure gives the addresses up"),
            "Taken from the priority on failure.",
            "penalty = 20",
        ),
        Key::new(
            "bonus",
            integer((1, 254)),
            Absent("success adds nothing"),
            "Added to the priority on success.",
            "bonus = 10",
        ),
    ],
};
