//! The language of `weir.toml`: every section and key of it, those that this build lacks included.

mod check;

pub(crate) use check::{CHECK, EXPECT, NEEDED, OF_KINDS};

mod ipvs;
mod proxy;
mod tls;
mod vrrp;

use std::time::Duration;

use weir_model::{
    Forward, Ipvs, MAX_WEIGHT, NoServer, Node, OnRemove, Persistence, ProxyLimits, ProxyProtocol,
    ProxyTimeouts, SchedulerKind, Timeouts, TunnelChecksum, TunnelKind,
};

use crate::key::{Choices, Key, Kind, Presence, Section};
use crate::lower::ALIASES;

use check::{CHECKS, requires};

pub(crate) use ipvs::IPVS;
pub(crate) use proxy::{ACCESS_LOG, PROXY_LIMITS, PROXY_TIMEOUTS, ROUTE, STICKY};
pub(crate) use tls::{SERVER_TLS, SERVICE_TLS};
pub(crate) use vrrp::{VRRP, VRRP_TRACK};

use Presence::{Absent, Default, Required};

const fn integer((min, max): (u32, u32)) -> Kind {
    Kind::Integer { min, max }
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
            Default("65536"),
            "Servers over all pools and services made by ipvsadm.",
            "max_servers = 1000",
        ),
        Key::new(
            "max_services",
            integer(Node::MAX_SERVICES),
            Default("16384"),
            "Services of this file and of ipvsadm.",
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

/// `[pool.NAME]`.
pub(crate) static POOL: Section = Section {
    path: "pool.NAME",
    page: "pool",
    purpose: "Servers that stand in for each other. NAME is what services refer to: letters, digits, `-`, `_`, `.`.",
    example: "[pool.images]\nscheduler = \"wlc\"\nservers = [\"10.0.0.5\", { address = \"10.0.0.6\", weight = 2 }]\n",
    keys: &[
        Key::new(
            "scheduler",
            Kind::Either(&Kind::OneOf(schedulers), &Kind::Table(&SCHEDULER)),
            Absent("`wlc` for layer 4 services"),
            "Which server gets a new flow. HAProxy's and nginx's names are understood, and `weir check` tells what \
             they became.",
            "scheduler = \"rr\"",
        )
        .known_as(&["balance", "lb_algo", "lvs_sched", "algorithm", "method"]),
        Key::new(
            "servers",
            Kind::List(&Kind::Either(&Kind::ServerAddress, &Kind::Table(&SERVER))),
            Absent("no servers"),
            "The servers, in the order that schedulers count in. A port may be left out: then it is the port that the \
             client used.",
            "servers = [\"10.0.0.5\", \"10.0.0.6:8080\", { address = \"2001:db8::5\", weight = 2 }]",
        )
        .known_as(&["server", "real", "real_server", "backends"]),
        Key::new(
            "servers_file",
            Kind::Text,
            Absent("no others"),
            "A file, absolute, with more servers, which another program writes: JSON, as the value of `servers` or an object that \
             has it, or lines, `ADDRESS[:PORT] [weight=N]`, with `#` before a comment. It is watched, and a change takes effect \
             at once, without a reload. A file that is gone, is wrong, or has lost more than half of its servers at once is not \
             believed: the servers of before stay, and `weir status` says so; `weir reload` takes it as it is.",
            "servers_file = \"/run/discovery/images.json\"",
        ),
        Key::new(
            "no_server",
            Kind::OneOf(no_servers),
            Default("reject"),
            "What a new client gets when no server is usable: ICMP port unreachable, rate-limited and counted, or \
             silence.",
            "no_server = \"drop\"",
        ),
        Key::new(
            "on_remove",
            Kind::OneOf(on_removes),
            Default("keep"),
            "What becomes of the flows of a server that a reload removes: they live on, are reset, or choose a server anew. \
             `reset` answers each later packet from the client, in the VIP's name, with a TCP reset, datagrams with ICMP port \
             unreachable; it is rate-limited, and the removed server is told nothing.",
            "on_remove = \"reschedule\"",
        ),
        Key::new(
            "sorry",
            Kind::Either(&Kind::ServerAddress, &Kind::Table(&SERVER)),
            Absent("clients meet `no_server`"),
            "A server that is used when no other is usable, and only then.",
            "sorry = \"10.0.0.9\"",
        )
        .known_as(&["sorry_server", "backup", "fallback"]),
        Key::new(
            "check",
            CHECKS,
            Absent("no checks: every server counts as usable"),
            "How the servers' health is found out: a table, several of them, or names of `[check.NAME]`.",
            "check = { kind = \"http\", path = \"/hello\" }",
        )
        .known_as(&["checks", "health_check", "option httpchk"]),
        Key::new(
            "tls",
            Kind::Either(&Kind::Flag, &Kind::Table(&SERVER_TLS)),
            Default("false"),
            "`proxy` services connect to the servers by TLS, and verify who they are.",
            "tls = { server_name = \"web.internal\" }",
        )
        .known_as(&["ssl", "proxy_ssl"]),
        Key::new(
            "http2",
            Kind::Flag,
            Default("false"),
            "`http` services speak HTTP/2 with the servers: with `tls` as agreed on (ALPN), without it unasked. gRPC needs it.",
            "http2 = true",
        ),
        Key::new(
            "notify",
            Kind::List(&Kind::Text),
            Absent("nobody is told"),
            "A program, absolute, and its arguments, called when a check changes the state of a server, when the pool goes over \
             between `up`, `panic`, `below quorum` and `down`, and for each service whose clients then get an answer no more, \
             or again. It runs as the daemon does, without a shell, finds what happened in `WEIR_POOL`, `WEIR_SERVER` (empty: \
             the pool's or a service's change), `WEIR_SERVICE` (empty: none), `WEIR_FROM`, `WEIR_TO` and `WEIR_REASON`, and is \
             killed after half a minute.",
            "notify = [\"/usr/local/bin/tell\"]",
        )
        .known_as(&["notify_up", "notify_down", "callback", "emailalert"]),
        Key::new(
            "require",
            Kind::OneOf(requires),
            Default("all"),
            "Of several checks, whether all must pass or any one of them is enough.",
            "require = \"any\"",
        ),
        Key::new(
            "slow_start",
            Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(86_400) },
            Default("0s"),
            "How long the weight of a server that comes back takes to grow from 1 to its own. Weights are whole numbers, so \
             that a server of weight 1 has nothing to grow: give weights of 10 or 100.",
            "slow_start = \"30s\"",
        )
        .known_as(&["slowstart", "slow-start"]),
        Key::new(
            "queue_timeout",
            WAIT,
            Default("5s"),
            "How long a request, or a TCP client, of a `proxy` service waits while every usable server of the pool is at its \
             `max_connections`: in the order of arrival over all workers, then it is answered 503.",
            "queue_timeout = \"30s\"",
        )
        .known_as(&["queue", "timeout_queue"]),
        Key::new(
            "sticky",
            Kind::Table(&STICKY),
            Absent("each request goes where the scheduler says"),
            "Clients of `http` services stay with a server by a cookie.",
            "sticky = { cookie = \"SRV\" }",
        )
        .known_as(&["cookie", "stick", "appsession"]),
        Key::new(
            "proxy_protocol",
            Kind::OneOf(check::proxy_protocols),
            Absent("servers are told nothing in front"),
            "`proxy` services tell the servers of the client in front of the first octet, by the PROXY protocol. Connections \
             are not shared by clients then.",
            "proxy_protocol = \"v2\"",
        )
        .known_as(&["send-proxy", "send-proxy-v2", "send_proxy"]),
        Key::new(
            "quorum",
            integer((0, 1_000_000)),
            Default("0"),
            "The sum of the weights of usable servers below which the sorry server is used in place of all. 0 = no quorum.",
            "quorum = 3",
        ),
        Key::new(
            "quorum_hysteresis",
            integer((0, 1_000_000)),
            Default("0"),
            "How far the sum must fall below the quorum to lose it, and rise above it to regain it.",
            "quorum_hysteresis = 1",
        )
        .known_as(&["hysteresis"]),
        Key::new(
            "panic_threshold",
            integer((0, 99)),
            Absent("servers that are down are never used"),
            "Percent of servers that are down, above which all are used as if they were up: when most seem dead at once, \
             the checks are as likely to be wrong, and the rest would not carry the load.",
            "panic_threshold = 50",
        ),
        Key::new(
            "max_ejected",
            integer((0, 100)),
            Default("50"),
            "Percent of servers that may be ejected because clients' packets show that they take no connections, while others \
             do: without any check, and shown apart from them. An ejected server is tried again after 10 seconds, and if that \
             fails after twice as long. 0 = none is ever ejected. Layer 4 services only; with `strict_ipvs` none.",
            "max_ejected = 30",
        ),
    ],
};

/// A table in `servers`.
pub(crate) static SERVER: Section = Section {
    path: "pool.NAME.servers",
    page: "server",
    purpose: "One server with more than an address.",
    example: "[pool.images]\nservers = [{ address = \"10.0.0.5:8080\", weight = 2, forward = \"nat\" }]\n",
    keys: &[
        Key::new(
            "address",
            Kind::ServerAddress,
            Required,
            "Address, and the port if it differs from the client's. `weir server POOL/ADDRESS` takes it as it is \
             written here. `nat` rewrites to the port; where the client's port stays it is for checks only.",
            "address = \"10.0.0.5:8080\"",
        )
        .known_as(&["ip", "host", "name"]),
        Key::new(
            "weight",
            integer((0, MAX_WEIGHT)),
            Default("1"),
            "Share of new flows. 0 quiesces the server: its flows live on, and it gets no new ones.",
            "weight = 3",
        ),
        Key::new(
            "forward",
            Kind::OneOf(server_forwards),
            Absent("the service's"),
            "Forwarding method of this server, in place of the service's. A `proxy` service connects to every server in the same way.",
            "forward = \"tunnel\"",
        )
        .known_as(&["lb_kind", "lvs_method"]),
        Key::new(
            "tunnel",
            Kind::Either(&Kind::OneOf(tunnels), &Kind::Table(&TUNNEL)),
            Absent("the service's"),
            "Encapsulation of this server, in place of the service's.",
            "tunnel = \"gue\"",
        ),
        Key::new(
            "max_connections",
            integer((0, u32::MAX)),
            Default("0"),
            "At this many flows, active and inactive, over all services of the pool, the server gets no new ones: IPVS's \
             upper threshold. 0 = no limit. Persistent clients still come.",
            "max_connections = 500",
        )
        .known_as(&["maxconn", "uthreshold", "max_conns"]),
        Key::new(
            "min_connections",
            integer((0, u32::MAX)),
            Default("0"),
            "A server that was at `max_connections` gets new flows again below this many: IPVS's lower threshold. 0 = \
             below three quarters of `max_connections`.",
            "min_connections = 0",
        )
        .known_as(&["lthreshold"]),
        Key::new(
            "backup",
            Kind::Flag,
            Default("false"),
            "Of `proxy` services: used only while no other server of the pool is usable.",
            "backup = true",
        ),
        Key::new(
            "check",
            CHECKS,
            Absent("the pool's"),
            "Checks of its own, in place of the pool's.",
            "check = { kind = \"tcp\", port = 8081 }",
        ),
    ],
};

/// `scheduler` as a table.
pub(crate) static SCHEDULER: Section = Section {
    path: "pool.NAME.scheduler",
    page: "scheduler",
    purpose: "A scheduler with flags.",
    example: "[pool.images]\nscheduler = { name = \"mh\", flags = [\"mh-port\"] }\nservers = [\"10.0.0.5\"]\n",
    keys: &[
        Key::new(
            "name",
            Kind::OneOf(schedulers),
            Required,
            "Which scheduler.",
            "name = \"mh\"",
        ),
        Key::new(
            "flags",
            Kind::List(&Kind::OneOf(scheduler_flags)),
            Default("[]"),
            "`sh-port`, `mh-port`: the client's port is hashed too. `sh-fallback`, `mh-fallback`: clients of an \
             unusable server go to the next of the hash instead of being refused. Each for its own scheduler.",
            "flags = [\"mh-port\", \"mh-fallback\"]",
        ),
        Key::new(
            "max_load",
            Kind::Factor {
                min: 100,
                max: 10_000,
            },
            Absent("a hash decides alone"),
            "Bounded load, for `dh`, `sh`, `mh`, `maglev`, and `hash` of proxy services: a server that has this many times its share by weight of the \
             service's active flows gives new ones to the next of the hash.",
            "max_load = 1.25",
        ),
        Key::new(
            "key",
            Kind::Words("`source`, `uri`, `path`, `header:NAME`, `cookie:NAME` or `query:NAME`"),
            Default("source"),
            "What `hash` hashes: the client's address, path and query, the path alone, or the value of a header field, a \
             cookie, a parameter of the query. A request that has none goes by its client's address.",
            "key = \"header:X-User\"",
        )
        .known_as(&["on", "hash", "uri"]),
    ],
};

/// `[service.NAME]`.
pub(crate) static SERVICE: Section = Section {
    path: "service.NAME",
    page: "service",
    purpose: "What clients connect to. NAME appears in status and metrics: letters, digits, `-`, `_`, `.`.",
    example: "[pool.images]\nservers = [\"10.0.0.5\"]\n\n[service.images]\nlisten = [\"192.0.2.10:80\"]\nforward = \
              \"direct\"\npool = \"images\"\n",
    keys: &[
        Key::new(
            "listen",
            Kind::List(&Kind::Listener),
            Required,
            "The VIPs and ports. TCP where no protocol is written; IPv6 in brackets. Where several listeners of an \
             address hold a port, an exact port comes before a range, and a range before `*`; one address and port \
             twice is an error. A `proxy` service listens on single TCP ports, and may do so on all addresses: \
             `0.0.0.0:80`, `[::]:80`. `fwmark/N` and `fwmark6/N` stand for the IPv4 and IPv6 packets that a firewall rule \
             gave the mark N, whatever their address, protocol and port; they pass the kernel's stack, which must \
             forward, and listeners with an address come first.",
            "listen = [\"192.0.2.10:80\", \"udp/192.0.2.10:8000-8999\", \"[2001:db8::10]:*\"]",
        )
        .known_as(&["bind", "vip", "virtual_address", "address", "listener"]),
        Key::new(
            "forward",
            Kind::OneOf(forwards),
            Required,
            "Forwarding method. `nat` rewrites address and port, and replies come back through the director. `direct` \
             rewrites the destination MAC only. `tunnel` encapsulates. `l3dsr` rewrites the address, marks the flow by \
             DSCP, and routes it. With the last three, replies go straight to the client. `proxy` ends the client's \
             connection here and opens its own to a server; it needs `protocol`, and neither XDP nor root.",
            "forward = \"direct\"",
        )
        .known_as(&["lb_kind", "lvs_method", "mode", "gate", "masq"]),
        Key::new("pool", Kind::PoolName, Required, "The pool whose servers are used.", "pool = \"images\"")
            .known_as(&["backend", "default_backend", "proxy_pass", "use_backend"]),
        Key::new(
            "tunnel",
            Kind::Either(&Kind::OneOf(tunnels), &Kind::Table(&TUNNEL)),
            Default("ipip"),
            "Encapsulation of `forward = \"tunnel\"`.",
            "tunnel = { type = \"gue\", port = 6080, checksum = \"full\" }",
        )
        .known_as(&["tun_type", "encap"]),
        Key::new(
            "snat",
            Kind::Either(&Kind::Flag, &Kind::Table(&SNAT)),
            Default("false"),
            "Under `nat`, rewrites the source too, so that servers need no route back through the director; they see \
             its address in place of the client's.",
            "snat = true",
        )
        .known_as(&["masquerade"]),
        Key::new(
            "dscp",
            integer((0, 63)),
            Default("1"),
            "Under `l3dsr`, the mark by which the server knows the packets to turn back. 0 = no mark.",
            "dscp = 10",
        ),
        Key::new(
            "strict_ipvs",
            Kind::Flag,
            Default("false"),
            "Behave as the kernel's IPVS does, to the last choice: connections count per service, UDP flows are not \
             active, and a hash may choose a server that is down.",
            "strict_ipvs = true",
        ),
        Key::new(
            "protocol",
            Kind::OneOf(protocols),
            Absent("an error where `forward` is `proxy`"),
            "What a `proxy` service understands: octets both ways, or requests and responses of HTTP/1.0 and 1.1, each \
             request to a server of its own.",
            "protocol = \"http\"",
        ),
        Key::new(
            "timeouts",
            Kind::Table(&PROXY_TIMEOUTS),
            Absent("every default"),
            "How long a `proxy` service waits for what.",
            "timeouts = { connect = \"2s\", server = \"30s\" }",
        ),
        Key::new(
            "limits",
            Kind::Table(&PROXY_LIMITS),
            Absent("every default"),
            "How much a `proxy` service takes.",
            "limits = { connections = 20000 }",
        ),
        Key::new(
            "forwarded",
            Kind::Flag,
            Default("true"),
            "Servers of an `http` service are told of the client: its address in `X-Forwarded-For`, `http` or \
             `https` in `X-Forwarded-Proto`. What the client itself says there, in other `X-Forwarded-…`, `Forwarded` and \
             `X-Real-IP` is left out, unless it is `trusted`. With `false` nothing is added and nothing left out.",
            "forwarded = false",
        ),
        Key::new(
            "trusted",
            Kind::List(&Kind::Network),
            Default("[]"),
            "Networks of proxies in front of Weir: what they say of their clients is passed on, and added to.",
            "trusted = [\"10.0.0.0/8\", \"2001:db8::1\"]",
        )
        .known_as(&["set_real_ip_from"]),
        Key::new(
            "proxy_protocol",
            Kind::Flag,
            Default("false"),
            "Clients of a `proxy` service tell in front of the first octet for whom they speak, by the PROXY protocol, version \
             1 or 2. With `trusted`, those do, and others speak for themselves; without it, all must.",
            "proxy_protocol = true",
        )
        .known_as(&["accept-proxy", "accept_proxy"]),
        Key::new(
            "access_log",
            Kind::Either(&Kind::Words("a file"), &Kind::Table(&ACCESS_LOG)),
            Absent("exchanges are counted, not written down"),
            "A line for each request of a `proxy` service, or for each client of a `tcp` one, appended to a file. It is \
             written by a thread of its own; when that cannot keep up, lines are left out and counted. A reload opens \
             the file anew.",
            "access_log = \"/var/log/weir/access.log\"",
        )
        .known_as(&["log", "log-format", "accesslog"]),
        Key::new(
            "persistence",
            Kind::Either(&Kind::Flag, &Kind::Table(&PERSISTENCE)),
            Default("false"),
            "A client's new flows go to the server that its last one went to, IPVS's `-p` and `-M`. With several listeners \
             all of them share the choice; with one that is a range or `*`, all its ports do.",
            "persistence = true",
        )
        .known_as(&["persistent", "persistence_timeout", "persistent_timeout", "sticky"]),
        Key::new(
            "one_packet",
            Kind::Flag,
            Default("false"),
            "Every UDP packet is scheduled and none is remembered, IPVS's `-o`. Under `nat` replies keep the server's \
             address.",
            "one_packet = true",
        )
        .known_as(&["ops"]),
        Key::new(
            "tls",
            Kind::Table(&SERVICE_TLS),
            Absent("clients come without TLS"),
            "TLS with the clients of a `proxy` service.",
            "tls = { certificates = \"/etc/weir/certs\" }",
        )
        .known_as(&["ssl", "crt", "ssl_certificate"]),
        Key::new(
            "http2",
            Kind::Flag,
            Default("true"),
            "Clients of an `http` service may speak HTTP/2: agreed on by TLS (ALPN), or without TLS where the client knows it \
             beforehand.",
            "http2 = false",
        )
        .known_as(&["alpn"]),
    ],
};

/// How long a proxy service may be told to wait.
const WAIT: Kind = Kind::Duration {
    min: ProxyTimeouts::BOUNDS.0,
    max: ProxyTimeouts::BOUNDS.1,
};

/// `persistence` as a table.
pub(crate) static PERSISTENCE: Section = Section {
    path: "service.NAME.persistence",
    page: "persistence",
    purpose: "Persistence with a time and client networks of your choice.",
    example: "[pool.shop]\nservers = [\"10.1.0.5\", \"10.1.0.6\"]\n\n[service.shop]\nlisten = [\"192.0.2.10:80\", \
              \"192.0.2.10:443\"]\nforward = \"direct\"\npool = \"shop\"\npersistence = { timeout = \"10m\", netmask = 24 }\n",
    keys: &[
        Key::new(
            "timeout",
            Kind::Duration {
                min: Duration::from_secs(1),
                max: Persistence::MAX_TIMEOUT,
            },
            Default("5m"),
            "How long a choice is remembered after a client's last new flow; longer while flows that came by it live. \
             Whole seconds.",
            "timeout = \"10m\"",
        ),
        Key::new(
            "netmask",
            integer((1, 32)),
            Default("32"),
            "Prefix length of the IPv4 network whose clients count as one.",
            "netmask = 24",
        )
        .known_as(&["granularity", "persistence_granularity", "mask"]),
        Key::new(
            "netmask6",
            integer((1, 128)),
            Default("128"),
            "Prefix length of the IPv6 network whose clients count as one.",
            "netmask6 = 64",
        ),
    ],
};

/// A switch of `/proc/sys`.
const SWITCH: Kind = integer((0, 1));

/// `tunnel` as a table.
pub(crate) static TUNNEL: Section = Section {
    path: "service.NAME.tunnel",
    page: "tunnel",
    purpose: "An encapsulation with more than a name; in a service, or in a server.",
    example: "[pool.far]\nservers = [\"10.1.0.5\"]\n\n[service.far]\nlisten = [\"192.0.2.10:80\"]\nforward = \
              \"tunnel\"\npool = \"far\"\ntunnel = { type = \"gue\", checksum = \"full\" }\n",
    keys: &[
        Key::new("type", Kind::OneOf(tunnels), Required, "IP in IP, generic UDP encapsulation, or GRE.", "type = \"gue\"")
            .known_as(&["kind", "name"]),
        Key::new("port", integer((1, 65_535)), Default("6080"), "UDP destination port; `gue` only.", "port = 6081"),
        Key::new(
            "checksum",
            Kind::OneOf(checksums),
            Default("none"),
            "Checksum over what is encapsulated: `full` for `gue` and `gre`, `remote` (checksum offload at the server) \
             for `gue` only.",
            "checksum = \"remote\"",
        )
        .known_as(&["csum"]),
    ],
};

/// `snat` as a table.
pub(crate) static SNAT: Section = Section {
    path: "service.NAME.snat",
    page: "snat",
    purpose: "Source rewriting with addresses and ports of your choice.",
    example: "[pool.far]\nservers = [\"10.1.0.5\"]\n\n[service.far]\nlisten = [\"192.0.2.10:80\"]\nforward = \
              \"nat\"\npool = \"far\"\nsnat = { addresses = [\"10.0.0.1\"], ports = \"20000-32767\" }\n",
    keys: &[
        Key::new(
            "addresses",
            Kind::List(&Kind::Address),
            Absent("the director's own, chosen by the route to the server"),
            "Source addresses. Each must be routed to the director.",
            "addresses = [\"10.0.0.1\", \"10.0.0.2\"]",
        )
        .known_as(&["address"]),
        Key::new(
            "ports",
            Kind::PortRange,
            Default("20000-32767"),
            "Source ports. They must not meet the ports that the director's own connections use, \
             `net.ipv4.ip_local_port_range`; `weir check` warns.",
            "ports = \"10000-29999\"",
        )
        .known_as(&["port", "port_range"]),
    ],
};

/// Every section that has a page, in the manual's order.
pub(crate) static PAGES: [&Section; 21] = [
    &NODE,
    &TIMEOUTS,
    &IPVS,
    &POOL,
    &SERVER,
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
    &ACCESS_LOG,
    &STICKY,
    &ROUTE,
    &VRRP,
    &VRRP_TRACK,
];
