//! `[vrrp.NAME]`: VIPs that move between directors. Run by `weir vrrp-agent`.

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
    purpose: "A virtual router (RFC 9568): addresses held by the active one of several directors. It works with \
              other implementations, such as keepalived.",
    example: "[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\npriority = 150\naddresses = \
              [\"192.0.2.10/24\"]\n",
    keys: &[
        Key::new(
            "interface",
            Kind::Interface,
            Absent("the interface that has the `source` address; one of both is required"),
            "Interface for advertisements and addresses.",
            "interface = \"eth0\"",
        ),
        Key::new(
            "virtual_router_id",
            integer((1, 255)),
            Required,
            "Virtual router ID, the same on all directors that share the addresses.",
            "virtual_router_id = 51",
        ),
        Key::new(
            "priority",
            integer((1, 255)),
            Default("100"),
            "The director with the highest priority holds the addresses; 255 marks the address owner.",
            "priority = 150",
        ),
        Key::new(
            "version",
            integer((2, 3)),
            Default("2"),
            "Protocol version; IPv6 requires 3. Version 3 has intervals below one second, and a backup adopts the \
             interval of the active director.",
            "version = 3",
        ),
        Key::new(
            "advert_interval",
            PAUSE,
            Default("1s"),
            "Interval between advertisements of the active director: whole seconds in version 2, up to 40.95 s in \
             version 3. A backup becomes active after three intervals and up to one more.",
            "advert_interval = \"2s\"",
        )
        .known_as(&["advert_int"]),
        Key::new(
            "addresses",
            Kind::List(&Kind::Network),
            Required,
            "Virtual addresses, listed in advertisements; all of one family, at least one. Without a prefix length: \
             /32 or /128. An address that is already on the interface is never removed.",
            "addresses = [\"192.0.2.10/24\"]",
        )
        .known_as(&["virtual_ipaddress"]),
        Key::new(
            "excluded_addresses",
            Kind::List(&Kind::Network),
            Default("[]"),
            "Virtual addresses that are not listed in advertisements.",
            "excluded_addresses = [\"2001:db8::10/64\"]",
        )
        .known_as(&["virtual_ipaddress_excluded"]),
        Key::new(
            "preempt",
            Kind::Flag,
            Default("true"),
            "Whether a director with a higher priority takes over from the active one.",
            "preempt = false",
        ),
        Key::new(
            "preempt_delay",
            LONG,
            Default("0s"),
            "Delay before preemption.",
            "preempt_delay = \"30s\"",
        ),
        Key::new(
            "accept",
            Kind::Flag,
            Default("true"),
            "Whether a director that is active but not the address owner accepts packets to the addresses. Only `true` \
             is implemented.",
            "accept = true",
        ),
        Key::new(
            "source",
            Kind::Address,
            Absent("the first address of the interface"),
            "Source address of advertisements.",
            "source = \"192.0.2.1\"",
        )
        .known_as(&["mcast_src_ip", "unicast_src_ip"]),
        Key::new(
            "unicast_peers",
            Kind::List(&Kind::Address),
            Absent("multicast"),
            "Directors to send advertisements to, instead of the multicast group.",
            "unicast_peers = [\"192.0.2.2\"]",
        )
        .known_as(&["unicast_peer"]),
        Key::new(
            "group",
            Kind::Text,
            Absent("no group"),
            "Name of a group; virtual routers in the same group move together.",
            "group = \"pair\"",
        )
        .known_as(&["vrrp_sync_group"]),
        Key::new(
            "track",
            Kind::List(&Kind::Table(&VRRP_TRACK)),
            Default("[]"),
            "Conditions for keeping the addresses.",
            "track = [{ interface = \"eth1\" }]",
        ),
        Key::new(
            "notify",
            COMMAND,
            Absent("no notification"),
            "Program and arguments, called on every state change, with four more arguments as from keepalived: \
             `INSTANCE`, the name, `MASTER`, `BACKUP`, `FAULT` or `STOP`, and the priority.",
            "notify = [\"/usr/local/bin/tell\"]",
        ),
        Key::new(
            "notify_master",
            COMMAND,
            Absent("no notification"),
            "Called when the director becomes active.",
            "notify_master = [\"/usr/local/bin/tell\", \"up\"]",
        ),
        Key::new(
            "notify_backup",
            COMMAND,
            Absent("no notification"),
            "Called when the director becomes backup.",
            "notify_backup = [\"/usr/local/bin/tell\", \"down\"]",
        ),
        Key::new(
            "notify_fault",
            COMMAND,
            Absent("no notification"),
            "Called when a tracked object fails.",
            "notify_fault = [\"/usr/local/bin/tell\", \"fault\"]",
        ),
        Key::new(
            "notify_stop",
            COMMAND,
            Absent("no notification"),
            "Called when `weir run` stops.",
            "notify_stop = [\"/usr/local/bin/tell\", \"stop\"]",
        ),
    ],
};

/// An entry of `track`: one of `interface`, `script`, `process` and `file`, and its effect.
pub(crate) static VRRP_TRACK: Section = Section {
    path: "vrrp.NAME.track",
    page: "vrrp-track",
    purpose: "An object that a virtual router tracks. Without `penalty` and `bonus`, its failure releases the \
              addresses; with one of them, it changes the priority.",
    example: "[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [\"192.0.2.10/24\"]\ntrack = \
              [{ script = [\"/usr/local/bin/alive\"], interval = \"2s\", penalty = 20 }]\n",
    keys: &[
        Key::new(
            "interface",
            Kind::Interface,
            Absent("no interface"),
            "Interface that must be up.",
            "interface = \"eth1\"",
        ),
        Key::new(
            "script",
            COMMAND,
            Absent("no program"),
            "Program that must exit with 0.",
            "script = [\"/usr/local/bin/alive\"]",
        ),
        Key::new(
            "process",
            Kind::Text,
            Absent("no process"),
            "Name of a process that must be running.",
            "process = \"haproxy\"",
        ),
        Key::new(
            "file",
            Kind::Text,
            Absent("no file"),
            "File that contains a number to add to the priority.",
            "file = \"/run/weight\"",
        ),
        Key::new(
            "interval",
            PAUSE,
            Default("1s"),
            "`script`: interval between runs.",
            "interval = \"2s\"",
        ),
        Key::new(
            "timeout",
            PAUSE,
            Absent("`interval`"),
            "`script`: maximum run time.",
            "timeout = \"1s\"",
        ),
        Key::new(
            "rise",
            integer((1, 100)),
            Default("1"),
            "`script`: consecutive successes required.",
            "rise = 2",
        ),
        Key::new(
            "fall",
            integer((1, 100)),
            Default("1"),
            "`script`: consecutive failures required.",
            "fall = 3",
        ),
        Key::new(
            "user",
            Kind::Text,
            Absent("`nobody`"),
            "`script`: account that the program runs as.",
            "user = \"weir\"",
        ),
        Key::new(
            "penalty",
            integer((1, 254)),
            Absent("a failure releases the addresses"),
            "Subtracted from the priority on failure.",
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
