//! Defines the keys of `[vrrp.NAME]`: VIPs that fail over between directors, which `weir vrrp-agent` manages.

use std::time::Duration;

use weir_model::RouterHmacMode;

use super::integer;
use crate::key::{Choices, Key, Kind, Presence, Section};

use Presence::{Absent, Default, Required};

const INTERVAL: Kind = Kind::Duration {
    min: Duration::from_millis(10),
    max: Duration::from_secs(255),
};

const DELAY: Kind = Kind::Duration {
    min: Duration::ZERO,
    max: Duration::from_secs(86_400),
};

fn checksums() -> Choices {
    Choices {
        values: vec!["plain", "pseudo-header"],
        ..Choices::default()
    }
}

fn hmac_modes() -> Choices {
    let modes = RouterHmacMode::ALL.iter();
    Choices {
        values: modes.map(|mode| mode.as_str()).collect(),
        ..Choices::default()
    }
}

const COMMAND: Kind = Kind::List(&Kind::Text);

/// Keys of `[vrrp.NAME]`.
pub(crate) static VRRP: Section = Section {
    path: "vrrp.NAME",
    page: "vrrp",
    purpose: "A virtual router (RFC 9568): addresses that only the active director of a group holds. It interoperates \
              with other implementations, such as keepalived.",
    example: "[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\npriority = 150\naddresses = \
              [\"192.0.2.10/24\"]\n",
    keys: &[
        Key::new(
            "interface",
            Kind::Interface,
            Absent("the interface that has the `source` address; one of the two is required"),
            "Interface for advertisements and addresses.",
            "interface = \"eth0\"",
        ),
        Key::new(
            "virtual_router_id",
            integer((1, 255)),
            Absent("none; required unless `enabled = false`"),
            "Virtual router ID, the same on all directors that share the addresses.",
            "virtual_router_id = 51",
        ),
        Key::new(
            "enabled",
            Kind::Flag,
            Default("true"),
            "Whether the virtual router runs. With `false`, its keys are only checked: the director neither sends \
             advertisements nor takes the addresses.",
            "enabled = false",
        ),
        Key::new(
            "priority",
            integer((1, 255)),
            Default("100"),
            "Priority of this director. The one with the highest priority holds the addresses; 255 marks the address \
             owner.",
            "priority = 150",
        ),
        Key::new(
            "version",
            integer((2, 3)),
            Default("2"),
            "Protocol version; IPv6 requires 3. Version 3 supports intervals below one second, and a backup adopts the \
             interval of the active director.",
            "version = 3",
        ),
        Key::new(
            "advert_interval",
            INTERVAL,
            Default("1s"),
            "Interval between advertisements of the active director: whole seconds in version 2, up to 40.95 s in \
             version 3. A backup becomes active after three intervals and up to one more.",
            "advert_interval = \"2s\"",
        )
        .known_as(&["advert_int"]),
        Key::new(
            "addresses",
            Kind::List(&Kind::Network),
            Absent("none"),
            "Virtual addresses, listed in advertisements; all of one family. Without a prefix length: /32 or /128. The \
             director adds an IPv6 address with /128 as a deprecated address, so that it is not the source of its own \
             connections. An address that is already on the interface is also removed while the director is not \
             active, unless it is the source of the advertisements. Without addresses, the virtual router only decides \
             which director is active, for `notify` and `excluded_addresses`; it uses IPv4 unless `source` or \
             `unicast_peers` are IPv6. An advertisement lists the first 255 IPv4 or 89 IPv6 addresses.",
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
            "other_interfaces",
            Kind::List(&Kind::Table(&VRRP_INTERFACE)),
            Default("[]"),
            "Interfaces for addresses that are not assigned to `interface`. The addresses are added and announced \
             there.",
            "other_interfaces = [{ interface = \"eth1\", addresses = [\"192.0.2.10\"] }]",
        ),
        Key::new(
            "preempt",
            Kind::Flag,
            Default("true"),
            "Whether a director with a higher priority takes over from the active one.",
            "preempt = false",
        ),
        Key::new(
            "preempt_delay",
            DELAY,
            Default("0s"),
            "Delay before preemption.",
            "preempt_delay = \"30s\"",
        ),
        Key::new(
            "accept",
            Kind::Flag,
            Default("true"),
            "Whether the active director accepts packets to the addresses as its own. With `false` it drops those that \
             are not for a service in this configuration; address resolution and ICMP errors still work. Services are \
             balanced in either case. Requires nf_tables in the kernel.",
            "accept = false",
        ),
        Key::new(
            "start_delay",
            DELAY,
            Default("0s"),
            "Delay after the start of `weir run` before the virtual router starts.",
            "start_delay = \"30s\"",
        )
        .known_as(&["vrrp_startup_delay"]),
        Key::new(
            "down_adverts",
            integer((1, 100)),
            Default("3"),
            "Number of missed advertisements after which a backup becomes active. Values other than 3 deviate from the \
             RFC.",
            "down_adverts = 4",
        )
        .known_as(&["down_timer_adverts"]),
        Key::new(
            "checksum",
            Kind::OneOf(checksums),
            Default("plain"),
            "Checksum that version 3 uses over IPv4 until the first packet is received; after that, the peer's variant \
             is used. `plain`: RFC 9568; `pseudo-header`: keepalived without `v3_checksum_as_v2`, and FRR.",
            "checksum = \"pseudo-header\"",
        )
        .known_as(&["v3_checksum_as_v2"]),
        Key::new(
            "virtual_mac",
            Kind::Flag,
            Default("false"),
            "Whether advertisements and addresses use the virtual MAC address, on a macvlan device `vrrp.ID` (IPv4) or \
             `vrrp6.ID`. If `false`, they use the MAC address of the interface.",
            "virtual_mac = true",
        )
        .known_as(&["use_vmac"]),
        Key::new(
            "track_interface",
            Kind::Flag,
            Default("true"),
            "Whether the virtual router is in the fault state while its own interface is down or has no carrier. If \
             `false`, it keeps its state, and becomes active when it receives no advertisements.",
            "track_interface = false",
        )
        .known_as(&["dont_track_primary"]),
        Key::new(
            "garp_repeat",
            integer((1, 100)),
            Default("5"),
            "Number of announcements (gratuitous ARP, unsolicited NA) of an address at a takeover, or when it is added \
             again.",
            "garp_repeat = 3",
        )
        .known_as(&["garp_master_repeat"]),
        Key::new(
            "garp_delay",
            DELAY,
            Default("5s"),
            "Time from a takeover to a second announcement; `0s`: none.",
            "garp_delay = \"10s\"",
        )
        .known_as(&["garp_master_delay"]),
        Key::new(
            "garp_refresh",
            DELAY,
            Default("0s"),
            "Interval between further announcements while the director is active; `0s`: none.",
            "garp_refresh = \"1m\"",
        )
        .known_as(&["garp_master_refresh"]),
        Key::new(
            "garp_refresh_repeat",
            integer((1, 100)),
            Default("1"),
            "Number of announcements per address at each `garp_refresh` interval.",
            "garp_refresh_repeat = 2",
        )
        .known_as(&["garp_master_refresh_repeat"]),
        Key::new(
            "password",
            Kind::Secret,
            Absent("no authentication"),
            "Simple text password for version 2, at most 8 bytes. It is sent in clear text and protects only against \
             mistakes; `hmac` protects against attackers.",
            "password = { file = \"/etc/weir/vrrp.key\" }",
        )
        .known_as(&["auth_pass"]),
        Key::new(
            "hmac",
            Kind::Table(&VRRP_HMAC),
            Absent("no authentication"),
            "Authentication of advertisements by HMAC-SHA256, compatible with keepalived 2.4.2 and newer.",
            "hmac = { keys = [{ id = 1, secret = { file = \"/etc/weir/vrrp.key\" } }] }",
        )
        .known_as(&["auth_hmac"]),
        Key::new(
            "routes",
            Kind::List(&Kind::Table(&VRRP_ROUTE)),
            Default("[]"),
            "Routes that exist while the director is active.",
            "routes = [{ to = \"10.8.0.0/16\", via = \"192.0.2.1\" }]",
        )
        .known_as(&["virtual_routes"]),
        Key::new(
            "rules",
            Kind::List(&Kind::Table(&VRRP_RULE)),
            Default("[]"),
            "Policy routing rules that exist while the director is active.",
            "rules = [{ from = \"192.0.2.10\", table = 100 }]",
        )
        .known_as(&["virtual_rules"]),
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
            "unicast_ttl",
            integer((1, 255)),
            Default("255"),
            "TTL or hop limit of advertisements to `unicast_peers`.",
            "unicast_ttl = 64",
        ),
        Key::new(
            "unicast_min_ttl",
            integer((1, 255)),
            Absent("255 for IPv4; any for IPv6, where keepalived uses the kernel's hop limit"),
            "Lowest TTL or hop limit of advertisements that are accepted from `unicast_peers`. Each router between two \
             directors subtracts 1.",
            "unicast_min_ttl = 254",
        )
        .known_as(&["min_ttl"]),
        Key::new(
            "group",
            Kind::Text,
            Absent("no group"),
            "Name of a group; virtual routers in the same group fail over together. They become active when each of \
             them is ready, and a tracked object with `penalty` or `bonus` changes the priority of all of them.",
            "group = \"pair\"",
        )
        .known_as(&["vrrp_sync_group"]),
        Key::new(
            "track",
            Kind::List(&Kind::Table(&VRRP_TRACK)),
            Default("[]"),
            "Objects to track. A failure releases the addresses or changes the priority.",
            "track = [{ interface = \"eth1\" }]",
        ),
        Key::new(
            "notify",
            COMMAND,
            Absent("no notification"),
            "Program and arguments to run on every state change, with four additional arguments, the same as \
             keepalived's: `INSTANCE`; the name; `MASTER`, `BACKUP`, `FAULT` or `STOP`; and the priority.",
            "notify = [\"/usr/local/bin/notify\"]",
        ),
        Key::new(
            "notify_master",
            COMMAND,
            Absent("no notification"),
            "Program to run when the director becomes active.",
            "notify_master = [\"/usr/local/bin/notify\", \"up\"]",
        ),
        Key::new(
            "notify_backup",
            COMMAND,
            Absent("no notification"),
            "Program to run when the director becomes a backup.",
            "notify_backup = [\"/usr/local/bin/notify\", \"down\"]",
        ),
        Key::new(
            "notify_fault",
            COMMAND,
            Absent("no notification"),
            "Program to run when the virtual router enters the fault state.",
            "notify_fault = [\"/usr/local/bin/notify\", \"fault\"]",
        ),
        Key::new(
            "notify_stop",
            COMMAND,
            Absent("no notification"),
            "Program to run when `weir run` stops.",
            "notify_stop = [\"/usr/local/bin/notify\", \"stop\"]",
        ),
        Key::new(
            "notify_group",
            COMMAND,
            Absent("no notification"),
            "Program to run when the group changes its state, with the arguments `GROUP`, its name, the state and 0. \
             Set it in one virtual router of the group.",
            "notify_group = [\"/usr/local/bin/notify\"]",
        ),
        Key::new(
            "notify_fifo",
            Kind::Text,
            Absent("no FIFO"),
            "FIFO that receives a line for each state change, in keepalived's format: `INSTANCE \"outside\" MASTER \
             150`. The helper creates the FIFO if it does not exist (mode 0600, owned by `notify_user`), and then \
             removes it when `weir run` stops. Lines that no process reads are dropped when the FIFO is full.",
            "notify_fifo = \"/run/vrrp.fifo\"",
        )
        .known_as(&["vrrp_notify_fifo"]),
        Key::new(
            "notify_user",
            Kind::Text,
            Absent("`root`"),
            "Account that the notification programs run as.",
            "notify_user = \"weir\"",
        )
        .known_as(&["script_user"]),
    ],
};

/// Keys of `hmac`.
pub(crate) static VRRP_HMAC: Section = Section {
    path: "vrrp.NAME.hmac",
    page: "vrrp-hmac",
    purpose: "Authentication of advertisements. To introduce it without a failover, use `receive-only` on all \
              directors, then `permissive`, then `enforce`. To change the key, add the new one to all directors first.",
    example: "[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [\"192.0.2.10/24\"]\nhmac = \
              { keys = [{ id = 1, secret = { file = \"/etc/weir/vrrp.key\" } }] }\n",
    keys: &[
        Key::new(
            "keys",
            Kind::List(&Kind::Table(&VRRP_HMAC_KEY)),
            Required,
            "Keys for signing and verifying advertisements.",
            "keys = [{ id = 1, secret = \"0123456789abcdef0123456789abcdef\" }]",
        ),
        Key::new(
            "active",
            integer((0, 255)),
            Absent("the first key"),
            "ID of the key that signs packets.",
            "active = 1",
        )
        .known_as(&["active_key"]),
        Key::new(
            "mode",
            Kind::OneOf(hmac_modes),
            Default("enforce"),
            "`enforce`: signs packets and requires signatures; `permissive`: signs packets, and accepts packets \
             without a signature; `receive-only`: does not sign packets, and accepts packets without a signature.",
            "mode = \"permissive\"",
        ),
        Key::new(
            "window",
            Kind::Duration {
                min: Duration::from_secs(1),
                max: Duration::from_secs(300),
            },
            Absent("three advertisement intervals, at least `5s`"),
            "How far the clocks of two directors may differ.",
            "window = \"10s\"",
        )
        .known_as(&["time_window"]),
    ],
};

/// Keys of an entry in `hmac.keys`.
pub(crate) static VRRP_HMAC_KEY: Section = Section {
    path: "vrrp.NAME.hmac.keys",
    page: "vrrp-hmac-key",
    purpose: "A key for signing advertisements.",
    example: "[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [\"192.0.2.10/24\"]\nhmac = \
              { keys = [{ id = 1, secret = { file = \"/etc/weir/vrrp.key\" } }] }\n",
    keys: &[
        Key::new(
            "id",
            integer((0, 255)),
            Required,
            "Key ID in packets.",
            "id = 1",
        ),
        Key::new(
            "secret",
            Kind::Secret,
            Required,
            "Key of 32 to 64 bytes: text, or `hex:` and hexadecimal digits.",
            "secret = { file = \"/etc/weir/vrrp.key\" }",
        ),
    ],
};

const TABLE: Kind = Kind::Integer {
    min: 1,
    max: u32::MAX,
};

/// Keys of an entry in `other_interfaces`.
pub(crate) static VRRP_INTERFACE: Section = Section {
    path: "vrrp.NAME.other_interfaces",
    page: "vrrp-interface",
    purpose: "Assigns addresses of a virtual router to an interface other than the one used for advertisements. The \
              state of this interface matters only with `track`.",
    example: "[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [\"192.0.2.10/24\", \
              \"10.0.0.10/24\"]\nother_interfaces = [{ interface = \"eth1\", addresses = [\"10.0.0.10\"] }]\n",
    keys: &[
        Key::new(
            "interface",
            Kind::Interface,
            Required,
            "Interface to add the addresses to.",
            "interface = \"eth1\"",
        ),
        Key::new(
            "addresses",
            Kind::List(&Kind::Address),
            Required,
            "Addresses listed in `addresses` or `excluded_addresses`, without the prefix length.",
            "addresses = [\"192.0.2.10\"]",
        ),
    ],
};

/// Keys of an entry in `routes`.
pub(crate) static VRRP_ROUTE: Section = Section {
    path: "vrrp.NAME.routes",
    page: "vrrp-route",
    purpose: "A route that exists while the director is active. A route that existed before is never removed.",
    example: "[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [\"192.0.2.10/24\"]\nroutes = \
              [{ to = \"10.8.0.0/16\", via = \"192.0.2.1\" }]\n",
    keys: &[
        Key::new(
            "to",
            Kind::Network,
            Required,
            "Destination; `0.0.0.0/0` or `::/0` for the default route.",
            "to = \"10.8.0.0/16\"",
        ),
        Key::new(
            "via",
            Kind::Address,
            Absent("the destination is directly connected"),
            "Next hop.",
            "via = \"192.0.2.1\"",
        ),
        Key::new(
            "interface",
            Kind::Interface,
            Absent("the interface of the virtual router"),
            "Outgoing interface.",
            "interface = \"eth1\"",
        ),
        Key::new(
            "source",
            Kind::Address,
            Absent("selected by the kernel"),
            "Preferred source address.",
            "source = \"192.0.2.10\"",
        ),
        Key::new(
            "table",
            TABLE,
            Default("254"),
            "Routing table; 254 is the main table.",
            "table = 100",
        ),
        Key::new(
            "metric",
            integer((0, u32::MAX)),
            Default("0"),
            "Metric; 0: the kernel's default.",
            "metric = 50",
        ),
    ],
};

/// Keys of an entry in `rules`.
pub(crate) static VRRP_RULE: Section = Section {
    path: "vrrp.NAME.rules",
    page: "vrrp-rule",
    purpose: "A policy routing rule that exists while the director is active: packets that match all conditions use \
              `table`. A rule that existed before is never removed.",
    example: "[vrrp.outside]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [\"192.0.2.10/24\"]\nrules = \
              [{ from = \"192.0.2.10\", table = 100 }]\n",
    keys: &[
        Key::new(
            "from",
            Kind::Network,
            Absent("any source"),
            "Source network.",
            "from = \"192.0.2.10\"",
        ),
        Key::new(
            "to",
            Kind::Network,
            Absent("any destination"),
            "Destination network.",
            "to = \"10.8.0.0/16\"",
        ),
        Key::new(
            "interface",
            Kind::Interface,
            Absent("any interface"),
            "Receiving interface.",
            "interface = \"eth1\"",
        )
        .known_as(&["iif"]),
        Key::new(
            "mark",
            integer((1, u32::MAX)),
            Absent("any mark"),
            "Firewall mark.",
            "mark = 7",
        )
        .known_as(&["fwmark"]),
        Key::new("table", TABLE, Required, "Routing table.", "table = 100"),
        Key::new(
            "priority",
            integer((1, 32_765)),
            Default("16384"),
            "Priority of the rule; a rule with a lower number is evaluated first.",
            "priority = 1000",
        ),
    ],
};

/// Keys of an entry in `track`: an object and its effect.
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
            "Name of a process that must be running. The helper looks for it in `/proc` once per second. If `/proc` is \
             mounted with `hidepid`, it might not see the process.",
            "process = \"haproxy\"",
        ),
        Key::new(
            "file",
            Kind::Text,
            Absent("no file"),
            "File that contains a number to add to the priority. A number below -253 releases the addresses. A file \
             that is missing or contains no number counts as 0.",
            "file = \"/run/weight\"",
        ),
        Key::new(
            "service",
            Kind::ServiceName,
            Absent("no service"),
            "Service whose pool must have a usable server, or meet its quorum.",
            "service = \"images\"",
        ),
        Key::new(
            "pool",
            Kind::PoolName,
            Absent("no pool"),
            "Pool that must have a usable server, or meet its quorum.",
            "pool = \"images\"",
        ),
        Key::new(
            "data_plane",
            Kind::Flag,
            Absent("tracked if there are layer 4 services"),
            "Whether the data plane must be able to forward. With `false`, a director may have the addresses even if \
             its data plane is not attached.",
            "data_plane = true",
        ),
        Key::new(
            "interval",
            INTERVAL,
            Default("1s"),
            "`script`: interval between runs.",
            "interval = \"2s\"",
        ),
        Key::new(
            "timeout",
            INTERVAL,
            Absent("`interval`"),
            "`script`: maximum run time.",
            "timeout = \"1s\"",
        ),
        Key::new(
            "rise",
            integer((1, 100)),
            Default("1"),
            "`script`: number of consecutive successes after which the object is up.",
            "rise = 2",
        ),
        Key::new(
            "fall",
            integer((1, 100)),
            Default("1"),
            "`script`: number of consecutive failures after which the object is down.",
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
            "Number to subtract from the priority on failure. With `file`, the file's number is multiplied by it \
             before it is subtracted.",
            "penalty = 20",
        ),
        Key::new(
            "bonus",
            integer((1, 254)),
            Absent("success adds nothing"),
            "Number to add to the priority on success. With `file`, the file's number is multiplied by it before it is \
             added.",
            "bonus = 10",
        ),
        Key::new(
            "fault",
            Kind::Flag,
            Default("false"),
            "`file`: whether every number except 0 releases the addresses, instead of changing the priority.",
            "fault = true",
        ),
    ],
};
