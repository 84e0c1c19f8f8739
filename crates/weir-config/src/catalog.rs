//! The language of `weir.toml`: every section and key of it, those that this build lacks included.

mod check;

pub(crate) use check::{CHECK, EXPECT, NEEDED, OF_KINDS};

mod answer;
mod ipvs;
mod pool;
mod proxy;
mod route;
mod service;
mod tls;
mod vrrp;

use std::time::Duration;

use weir_model::{
    Forward, Forwarded, Ipvs, MAX_WEIGHT, NoServer, Node, OnRemove, Persistence, ProxyLimits,
    ProxyProtocol, ProxyTimeouts, SchedulerKind, ServersRecord, Timeouts, TunnelChecksum,
    TunnelKind,
};

use crate::key::{Choices, Key, Kind, Presence, Section};
use crate::lower::ALIASES;

use check::{CHECKS, COMMAND, requires};

pub(crate) use answer::{COMPRESSION, ERROR_PAGE};
pub(crate) use ipvs::IPVS;
pub(crate) use pool::{POOL, SCHEDULER, SERVER, SERVERS_DNS};
pub(crate) use proxy::{ACCESS_LOG, PROXY_LIMITS, PROXY_TIMEOUTS, STICKY};
pub(crate) use route::ROUTE;
pub(crate) use service::{PERSISTENCE, SERVICE, SNAT, TUNNEL};
pub(crate) use tls::{SERVER_TLS, SERVICE_TLS};
pub(crate) use vrrp::{VRRP, VRRP_TRACK};

use Presence::{Absent, Default, Required};

const fn integer((min, max): (u32, u32)) -> Kind {
    Kind::Integer { min, max }
}

const fn size((min, max): (u32, u32)) -> Kind {
    Kind::Size { min, max }
}

/// A timeout of flows; the data plane counts them in whole seconds.
const TIMEOUT: Kind = Kind::Duration {
    min: Duration::from_secs(1),
    max: Timeouts::MAX,
};

/// Of a service.
fn forwards() -> Choices {
    let mut choices = server_forwards();
    choices.now.push(PROXY);
    choices
}

/// The `forward` of a service whose clients talk to the director itself.
pub(crate) const PROXY: &str = "proxy";

/// Of a server: what packets can be given.
fn server_forwards() -> Choices {
    Choices {
        now: Forward::ALL
            .iter()
            .map(|forward| forward.as_str())
            .collect(),
        later: vec!["socket"],
        known_as: &[
            ("DR", "direct"),
            ("dsr", "direct"),
            ("gate", "direct"),
            ("masq", "nat"),
            ("TUN", "tunnel"),
            ("ipip", "tunnel"),
        ],
        ..Choices::default()
    }
}

fn protocols() -> Choices {
    Choices {
        now: ProxyProtocol::ALL
            .iter()
            .map(|protocol| protocol.as_str())
            .collect(),
        ..Choices::default()
    }
}

fn tunnels() -> Choices {
    Choices {
        now: TunnelKind::ALL.iter().map(|kind| kind.as_str()).collect(),
        ..Choices::default()
    }
}

fn checksums() -> Choices {
    Choices {
        now: TunnelChecksum::ALL
            .iter()
            .map(|checksum| checksum.as_str())
            .collect(),
        ..Choices::default()
    }
}

fn no_servers() -> Choices {
    Choices {
        now: NoServer::ALL.iter().map(|choice| choice.as_str()).collect(),
        ..Choices::default()
    }
}

fn on_removes() -> Choices {
    Choices {
        now: OnRemove::ALL.iter().map(|choice| choice.as_str()).collect(),
        ..Choices::default()
    }
}

fn schedulers() -> Choices {
    let (now, later): (Vec<_>, Vec<_>) = SchedulerKind::ALL
        .into_iter()
        .partition(|kind| kind.is_built() || kind.works_in_proxy());
    Choices {
        now: now.into_iter().map(SchedulerKind::as_str).collect(),
        aliases: ALIASES.iter().map(|alias| alias.name).collect(),
        known_as: &[],
        later: later.into_iter().map(SchedulerKind::as_str).collect(),
    }
}

fn scheduler_flags() -> Choices {
    Choices {
        now: vec!["sh-port", "sh-fallback", "mh-port", "mh-fallback"],
        ..Choices::default()
    }
}

/// The whole file.
pub(crate) static ROOT: Section = Section {
    path: "",
    page: "",
    purpose: "",
    example: "",
    keys: &[
        Key::new(
            "node",
            Kind::Table(&NODE),
            Absent("every default"),
            "The director itself.",
            "",
        )
        .known_as(&["global", "global_defs", "director"]),
        Key::new(
            "timeouts",
            Kind::Table(&TIMEOUTS),
            Absent("every default"),
            "How long a silent flow lives.",
            "",
        )
        .known_as(&["timeout"]),
        Key::new(
            "pool",
            Kind::Named(&POOL),
            Absent("no pools"),
            "Servers that stand in for each other.",
            "",
        )
        .known_as(&["backend", "upstream", "pools", "servers"]),
        Key::new(
            "service",
            Kind::Named(&SERVICE),
            Absent("no services"),
            "What clients connect to.",
            "",
        )
        .known_as(&[
            "virtual",
            "virtual_server",
            "frontend",
            "listen",
            "services",
        ]),
        Key::new(
            "route",
            Kind::List(&Kind::Table(&ROUTE)),
            Absent("every request goes to its service's pool"),
            "Which requests of an `http` service go where; the first that fits decides.",
            "",
        )
        .known_as(&["routes", "location", "acl", "use_backend"]),
        Key::new(
            "check",
            Kind::Named(&CHECK),
            Absent("no shared checks"),
            "Health checks that several pools share. A server that several of them have is probed once.",
            "",
        )
        .known_as(&["checks", "healthcheck", "health"]),
        Key::new(
            "vrrp",
            Kind::Named(&VRRP),
            Absent("no virtual routers"),
            "Addresses that move between directors; kept for a later build.",
            "",
        )
        .known_as(&["vrrp_instance"]),
        Key::new(
            "ipvs",
            Kind::Table(&IPVS),
            Absent("the kernel's defaults"),
            "Keys of `/proc/sys/net/ipv4/vs` by their names.",
            "",
        ),
    ],
};

/// `[node]`.
pub(crate) static NODE: Section = Section {
    path: "node",
    page: "node",
    purpose: "The director itself: where packets come in, and how much it may hold. A file with nothing else is valid.",
    example: "[node]\ninterfaces = [\"eth0\"]\nadmin = \"127.0.0.1:9900\"\n",
    keys: &[
        Key::new(
            "interfaces",
            Kind::List(&Kind::Interface),
            Absent("found from the routes to VIPs and servers"),
            "Interfaces that the XDP program attaches to. Packets to a VIP that come in by another one are not balanced.",
            "interfaces = [\"eth0\", \"eth1\"]",
        )
        .known_as(&["interface", "devices", "device"]),
        Key::new(
            "vip_interface",
            Kind::Interface,
            Absent("Weir adds no VIP"),
            "Weir adds the VIPs that this machine lacks to this interface, as /32 or /128, and announces them. An \
             address that was there before is never removed.",
            "vip_interface = \"eth0\"",
        ),
        Key::new(
            "admin",
            Kind::SocketAddress,
            Absent("the unix socket only"),
            "Address of the HTTP API and of `/metrics`, beside the unix socket.",
            "admin = \"127.0.0.1:9900\"",
        ),
        Key::new(
            "max_flows",
            integer(Node::MAX_FLOWS),
            Default("1048576"),
            "Places in the flow table, allocated at start. A flow that finds no place is balanced by its hash, without \
             an entry.",
            "max_flows = 4194304",
        )
        .known_as(&["maxconn", "max_connections"]),
        Key::new(
            "max_servers",
            integer(Node::MAX_SERVERS),
            Default("16384"),
            "Servers over all services, those made by ipvsadm included. Left out, it is also twice what the file needs, \
             rounded up to a power of two. Memory is given back by `weir clean` only.",
            "max_servers = 1000",
        ),
        Key::new(
            "max_services",
            integer(Node::MAX_SERVICES),
            Default("4096"),
            "Services of this file and of ipvsadm. Left out, it is also twice what the file has, rounded up to a power of \
             two.",
            "max_services = 100",
        ),
        Key::new(
            "syn_budget",
            integer(Node::SYN_BUDGET),
            Default("125000"),
            "New flows per CPU and second that get an entry: half-open ones, and those of UDP. Above it a SYN or a \
             datagram is balanced by its hash, without an entry, so that a flood fills no table. Under `nat` a SYN \
             above it is dropped, and UDP flows get their entry all the same.",
            "syn_budget = 50000",
        ),
        Key::new(
            "drain_timeout",
            Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(86_400) },
            Default("10s"),
            "What proxied connections get between SIGTERM and the end. Layer 4 flows need none: they go on without \
             the daemon.",
            "drain_timeout = \"30s\"",
        ),
    ],
};

/// `[timeouts]`.
pub(crate) static TIMEOUTS: Section = Section {
    path: "timeouts",
    page: "timeouts",
    purpose: "How long a flow without packets lives, as `ipvsadm --set` has it. Whole seconds.",
    example: "[timeouts]\ntcp = \"15m\"\n",
    keys: &[
        Key::new(
            "tcp",
            TIMEOUT,
            Default("15m"),
            "An established TCP connection.",
            "tcp = \"1h\"",
        ),
        Key::new(
            "tcp_fin",
            TIMEOUT,
            Default("2m"),
            "A TCP connection after a FIN.",
            "tcp_fin = \"30s\"",
        )
        .known_as(&["tcpfin"]),
        Key::new(
            "udp",
            TIMEOUT,
            Default("5m"),
            "A UDP flow.",
            "udp = \"30s\"",
        ),
    ],
};

/// How long a proxy service may be told to wait.
const WAIT: Kind = Kind::Duration {
    min: ProxyTimeouts::BOUNDS.0,
    max: ProxyTimeouts::BOUNDS.1,
};

/// A switch of `/proc/sys`.
const SWITCH: Kind = integer((0, 1));

/// Every section that has a page, in the manual's order.
pub(crate) static PAGES: [&Section; 24] = [
    &NODE,
    &TIMEOUTS,
    &IPVS,
    &POOL,
    &SERVER,
    &SERVERS_DNS,
    &SCHEDULER,
    &CHECK,
    &EXPECT,
    &SERVICE,
    &PERSISTENCE,
    &TUNNEL,
    &SNAT,
    &PROXY_TIMEOUTS,
    &PROXY_LIMITS,
    &SERVICE_TLS,
    &SERVER_TLS,
    &ERROR_PAGE,
    &COMPRESSION,
    &ACCESS_LOG,
    &STICKY,
    &ROUTE,
    &VRRP,
    &VRRP_TRACK,
];
