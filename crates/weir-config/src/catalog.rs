//! The language of `weir.toml`: every section and key of it, those that this build lacks included.

mod check;

pub(crate) use check::{CHECK, EXPECT, NEEDED, OF_KINDS};

mod answer;
mod ipvs;
mod path;
mod pool;
mod proxy;
mod route;
mod service;
mod tls;
mod vrrp;

use std::time::Duration;

use weir_model::{
    Attach, Forward, Forwarded, Ipvs, MAX_WEIGHT, NoServer, Node, OnRemove, Persistence,
    ProxyLimits, ProxyProtocol, ProxyTimeouts, SchedulerKind, ServersRecord, SocketMode, Timeouts,
    TunnelChecksum, TunnelKind, Underscores,
};

use crate::key::{Choices, Key, Kind, Presence, Section};
use crate::lower::ALIASES;

use check::{CHECKS, COMMAND, requires};

pub(crate) use answer::{COMPRESSION, ERROR_PAGE};
pub(crate) use ipvs::IPVS;
pub(crate) use path::NORMALIZE_PATH;
pub(crate) use pool::{POOL, SCHEDULER, SERVER, SERVERS_DNS};
pub(crate) use proxy::{ACCESS_LOG, PROXY_LIMITS, PROXY_TIMEOUTS, STICKY};
pub(crate) use route::ROUTE;
pub(crate) use service::{PERSISTENCE, SERVICE, SNAT, TUNNEL};
pub(crate) use tls::{SECRET, SERVER_TLS, SERVICE_TLS};
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

fn attaches() -> Choices {
    Choices {
        now: Attach::ALL.iter().map(|attach| attach.as_str()).collect(),
        known_as: &[
            ("native", "xdp"),
            ("generic", "xdp"),
            ("tcx", "tc"),
            ("clsact", "tc"),
        ],
        ..Choices::default()
    }
}

fn socket_modes() -> Choices {
    Choices {
        now: SocketMode::ALL.iter().map(|mode| mode.as_str()).collect(),
        known_as: &[("600", "0600"), ("660", "0660")],
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
            "Interfaces that the packet path attaches to. Packets to a VIP that come in by another one are not balanced.",
            "interfaces = [\"eth0\", \"eth1\"]",
        )
        .known_as(&["interface", "devices", "device"]),
        Key::new(
            "attach",
            Kind::OneOf(attaches),
            Default("auto"),
            "Where the packet path runs. `xdp` comes before the stack: in the driver, or generic where the driver has none. `tc` \
             balances socket buffers (tcx, or clsact where the kernel has no tcx): checksums that the sender left to its \
             device and packets that stand for many segments stay as they are. `auto` is `tc` on devices whose packets may \
             carry unfinished checksums (veth, bridge, macvlan, tun; drivers of virtual machines that refuse XDP), else \
             native XDP where the driver has it, else generic XDP. With `xdp`, native XDP on veth, tap and the like leaves \
             packets whose checksum is unfinished to tc one by one; generic XDP does not tell them apart. `weir status` \
             shows mode, reason and the share of packets by way.",
            "attach = \"tc\"",
        )
        .known_as(&["mode", "xdp_mode", "hook"]),
        Key::new(
            "vip_interface",
            Kind::Interface,
            Absent("Weir adds no VIP"),
            "Weir adds the VIPs that this machine lacks to this interface, as /32 or /128, and announces them: those of `proxy` \
             services too, unspecified and loopback addresses aside. An address that was there before is never removed. An added \
             one is removed with the last service and connection that use it, and by `weir clean`.",
            "vip_interface = \"eth0\"",
        ),
        Key::new(
            "admin",
            Kind::Either(&Kind::SocketAddress, &Kind::Table(&ADMIN)),
            Absent("the unix socket only"),
            "Address of the HTTP API and of `/metrics`, in addition to the unix socket. An address that other machines can \
             connect to needs the table, with `tls`.",
            "admin = \"127.0.0.1:9900\"",
        ),
        Key::new(
            "socket_group",
            Kind::Words("the name of a group"),
            Absent("the group of the process that runs Weir"),
            "The group of the runtime directory and of the control socket. Its members may use the socket and see nothing else in \
             the directory.",
            "socket_group = \"weir\"",
        ),
        Key::new(
            "socket_mode",
            Kind::OneOf(socket_modes),
            Absent("`0660` with `socket_group`, `0600` without"),
            "The mode of the control socket. Users who are not in its group never reach it: the runtime directory is closed to them.",
            "socket_mode = \"0660\"",
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

/// `admin` of `[node]`, as a table.
pub(crate) static ADMIN: Section = Section {
    path: "node.admin",
    page: "node-admin",
    purpose: "The HTTP API over TCP: encryption, tokens, and the names it is called by. Certificates and tokens are read at start \
              and at each `weir reload`; a file that cannot be used refuses the reload.",
    example: "[node.admin]\nlisten = \"10.0.0.1:9900\"\ntls = { certificates = \"/etc/weir/admin.pem\" }\ntokens = \
              \"/etc/weir/tokens\"\nhosts = [\"lb1.example\"]\n",
    keys: &[
        Key::new(
            "listen",
            Kind::SocketAddress,
            Required,
            "Address and port. Other machines are served over TLS only: an address beyond loopback, `0.0.0.0` and `[::]` \
             included, needs `tls`.",
            "listen = \"10.0.0.1:9900\"",
        )
        .known_as(&["address", "bind"]),
        Key::new(
            "tls",
            Kind::Table(&SERVICE_TLS),
            Absent("plain HTTP, on loopback only"),
            "Certificates, as those of a service. With `client_ca` clients need a certificate and a token.",
            "tls = { certificates = \"/etc/weir/admin.pem\" }",
        ),
        Key::new(
            "tokens",
            Kind::Words("the path of a file"),
            Absent("only `token` in the runtime directory, for clients on loopback, with the role `write`"),
            "Who may do what: a line each of name, role and SHA-256 of the token, as `weir token add NAME --role ROLE` \
             writes it. Roles are `read`; `operate`, which may also drain, ready, maint and weigh servers; and `write`, which \
             may also plan, reload, add and remove servers, and use ipvsadm. `#` begins a comment. The file belongs to root \
             or to the user that the daemon runs as, and others may not access it (mode 0600).",
            "tokens = \"/etc/weir/tokens\"",
        )
        .known_as(&["token_file", "users", "userlist"]),
        Key::new(
            "read_requires_token",
            Kind::Flag,
            Absent("true beyond loopback, false on it"),
            "Whether `/metrics`, `/v1/status` and `/v1/explain` take a token as well.",
            "read_requires_token = true",
        ),
        Key::new(
            "hosts",
            Kind::List(&Kind::Text),
            Absent("the address itself, and `localhost` on loopback"),
            "Names that clients may use: a request whose `Host` is another one is refused with 421, so that a web page \
             cannot reach the API under a name of its own (DNS rebinding). Without a port any is allowed.",
            "hosts = [\"lb1.example\", \"localhost:8443\"]",
        )
        .known_as(&["server_name", "allowed_hosts"]),
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
pub(crate) static PAGES: [&Section; 26] = [
    &NODE,
    &ADMIN,
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
    &NORMALIZE_PATH,
    &ERROR_PAGE,
    &COMPRESSION,
    &ACCESS_LOG,
    &STICKY,
    &ROUTE,
    &VRRP,
    &VRRP_TRACK,
];
