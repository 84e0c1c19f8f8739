//! Defines the schema of `weir.toml`: every section and key, including those that are not implemented yet.

mod announce;
mod basic_auth;
mod check;
mod cluster;

pub(crate) use check::{CHECK, CheckKind, EXCHANGE, EXPECT};

mod condition;
mod files;
mod forward_auth;
mod ipvs;
mod map;
mod notify;
mod path;
mod pool;
mod proxy;
mod response;
mod route;
mod service;
mod sync;
mod tls;
mod tracing;
mod vrrp;

use std::time::Duration;

use weir_model::{
    Adapt, Attach, Forward, Forwarded, Ipvs, LocalClient, MAX_WEIGHT, Metrics, Mirror, NoServer,
    Node, OnRemove, Persistence, ProxyLimits, ProxyProtocol, ProxyTimeouts, SchedulerKind,
    ServersRecord, SocketMode, Timeouts, TunnelChecksum, TunnelKind, Underscores,
};

use crate::key::{Choices, Key, Kind, Presence, Section};
use crate::lower::ALIASES;

use check::{CHECKS, COMMAND, require_modes};

pub(crate) use announce::ANNOUNCE;
pub(crate) use basic_auth::BASIC_AUTH;
pub(crate) use cluster::{CLUSTER, CLUSTER_PUBLISH, MARK};
#[cfg(test)]
pub(crate) use condition::is_condition;
pub(crate) use condition::{ADDRESS_FILE, HOST_FILE, ROUTE_NOT};
pub(crate) use files::FILES;
pub(crate) use forward_auth::FORWARD_AUTH;
pub(crate) use ipvs::IPVS;
pub(crate) use map::{MAP, ROUTE_POOL};
pub(crate) use notify::{NOTIFY, STATE as NOTIFY_STATES};
pub(crate) use path::NORMALIZE_PATH;
pub(crate) use pool::{POOL, SCHEDULER, SERVER, SERVERS_DNS};
pub(crate) use proxy::{ACCESS_LOG, PROXY_LIMITS, PROXY_TIMEOUTS, STICKY};
pub(crate) use response::{COMPRESSION, ERROR_PAGE, X_FORWARDED};
pub(crate) use route::{
    HEADER_REPLACEMENT, RESPONSE_HEADER, ROUTE, ROUTE_LIMITS, ROUTE_MIRROR, ROUTE_REWRITE,
    ROUTE_TIMEOUTS,
};
pub(crate) use service::{PERSISTENCE, SERVICE, SNAT, TUNNEL};
pub(crate) use sync::SYNC;
pub(crate) use tls::{SECRET, SERVER_TLS, SERVICE_TLS};
pub(crate) use tracing::TRACING;
pub(crate) use vrrp::{
    VRRP, VRRP_HMAC, VRRP_HMAC_KEY, VRRP_INTERFACE, VRRP_ROUTE, VRRP_RULE, VRRP_TRACK,
};

use Presence::{Absent, Default, Required};

/// A request rate per client, per second or per minute.
const RATE: Kind = Kind::Either(
    &Kind::Integer {
        min: 0,
        max: 60_000,
    },
    &Kind::DescribedText("`N/s` or `N/m`"),
);

const fn integer((min, max): (u32, u32)) -> Kind {
    Kind::Integer { min, max }
}

const fn size((min, max): (u32, u32)) -> Kind {
    Kind::Size { min, max }
}

/// A flow timeout; the data plane uses whole seconds.
const TIMEOUT: Kind = Kind::Duration {
    min: Duration::from_secs(1),
    max: Timeouts::MAX,
};

/// Returns the values of `forward` in a service.
fn forwards() -> Choices {
    let mut choices = server_forwards();
    choices.values.push(PROXY);
    choices
}

/// The `forward` value of proxy services.
pub(crate) const PROXY: &str = "proxy";

/// Returns the values of `forward` in a server.
fn server_forwards() -> Choices {
    Choices {
        values: Forward::ALL
            .iter()
            .map(|forward| forward.as_str())
            .collect(),
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

/// Returns the values of `persistence.client`.
fn local_clients() -> Choices {
    Choices {
        values: LocalClient::ALL
            .iter()
            .map(|client| client.as_str())
            .collect(),
        ..Choices::default()
    }
}

fn protocols() -> Choices {
    Choices {
        values: ProxyProtocol::ALL
            .iter()
            .map(|protocol| protocol.as_str())
            .collect(),
        ..Choices::default()
    }
}

fn metrics() -> Choices {
    Choices {
        values: Metrics::ALL
            .iter()
            .map(|metrics| metrics.as_str())
            .collect(),
        ..Choices::default()
    }
}

fn attach_hooks() -> Choices {
    Choices {
        values: Attach::ALL.iter().map(|attach| attach.as_str()).collect(),
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
        values: SocketMode::ALL.iter().map(|mode| mode.as_str()).collect(),
        known_as: &[("600", "0600"), ("660", "0660")],
        ..Choices::default()
    }
}

fn tunnels() -> Choices {
    Choices {
        values: TunnelKind::ALL.iter().map(|kind| kind.as_str()).collect(),
        ..Choices::default()
    }
}

fn checksums() -> Choices {
    Choices {
        values: TunnelChecksum::ALL
            .iter()
            .map(|checksum| checksum.as_str())
            .collect(),
        ..Choices::default()
    }
}

fn adapt_measurements() -> Choices {
    Choices {
        values: Adapt::ALL.iter().map(|choice| choice.as_str()).collect(),
        ..Choices::default()
    }
}

fn no_server_actions() -> Choices {
    Choices {
        values: NoServer::ALL.iter().map(|choice| choice.as_str()).collect(),
        ..Choices::default()
    }
}

fn on_remove_actions() -> Choices {
    Choices {
        values: OnRemove::ALL.iter().map(|choice| choice.as_str()).collect(),
        ..Choices::default()
    }
}

fn schedulers() -> Choices {
    let (built, planned): (Vec<_>, Vec<_>) = SchedulerKind::ALL
        .into_iter()
        .partition(|kind| kind.works_at_layer4() || kind.works_in_proxy());
    Choices {
        values: built.into_iter().map(SchedulerKind::as_str).collect(),
        aliases: ALIASES.iter().map(|alias| alias.name).collect(),
        known_as: &[],
        planned: planned.into_iter().map(SchedulerKind::as_str).collect(),
    }
}

fn scheduler_flags() -> Choices {
    Choices {
        values: vec!["sh-port", "sh-fallback", "mh-port", "mh-fallback"],
        ..Choices::default()
    }
}

/// Top-level keys of the file.
pub(crate) static ROOT: Section = Section {
    path: "",
    page: "",
    purpose: "",
    example: "",
    keys: &[
        Key::new(
            "include",
            Kind::List(&Kind::DescribedText("a file path, which may contain the wildcards `*` and `?` in its last \
                                             component")),
            Absent("no other files"),
            "Additional configuration files. Relative paths are resolved against the directory of the file that \
             contains the key. Files that match a pattern are read in name order; names that begin with `.` do not \
             match. Their tables are added to those in this file. It is an error if two files set the same key, or if \
             a file is included twice. All files are read at startup and at each `weir reload`.",
            "include = [\"conf.d/*.toml\"]",
        ),
        Key::new(
            "defaults",
            Kind::Table(&DEFAULTS),
            Absent("each key's default"),
            "Default values for services, pools and checks that do not set a key themselves.",
            "",
        ),
        Key::new(
            "node",
            Kind::Table(&NODE),
            Absent("each key's default"),
            "The director itself.",
            "",
        )
        .known_as(&["global", "global_defs", "director"]),
        Key::new(
            "timeouts",
            Kind::Table(&TIMEOUTS),
            Absent("each key's default"),
            "How long idle flows are kept.",
            "",
        )
        .known_as(&["timeout"]),
        Key::new(
            "pool",
            Kind::Named(&POOL),
            Absent("no pools"),
            "Groups of interchangeable servers.",
            "",
        )
        .known_as(&["backend", "upstream", "pools", "servers"]),
        Key::new(
            "service",
            Kind::Named(&SERVICE),
            Absent("no services"),
            "Virtual services that clients connect to.",
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
            "Routing rules for the requests of an `http` service; the first match applies.",
            "",
        )
        .known_as(&["routes", "location", "acl", "use_backend"]),
        Key::new(
            "check",
            Kind::Named(&CHECK),
            Absent("no shared checks"),
            "Health checks shared by several pools. A server in several of these pools is probed once.",
            "",
        )
        .known_as(&["checks", "healthcheck", "health"]),
        Key::new(
            "map",
            Kind::Named(&MAP),
            Absent("no maps"),
            "Lookup tables that select pools or provide values for variables.",
            "",
        )
        .known_as(&["maps"]),
        Key::new(
            "vrrp",
            Kind::Named(&VRRP),
            Absent("no virtual routers"),
            "Virtual addresses that fail over between directors (VRRP).",
            "",
        )
        .known_as(&["vrrp_instance"]),
        Key::new(
            "notify",
            Kind::Named(&NOTIFY),
            Absent("no notifications"),
            "Notifications of state changes through a program, a web request or email.",
            "",
        )
        .known_as(&["notifications", "mailers"]),
        Key::new(
            "tracing",
            Kind::Table(&TRACING),
            Absent("no traces"),
            "Traces of proxied requests for an OpenTelemetry collector.",
            "",
        )
        .known_as(&["opentelemetry", "otel"]),
        Key::new(
            "ipvs",
            Kind::Table(&IPVS),
            Absent("the kernel's defaults"),
            "IPVS settings, named as in `/proc/sys/net/ipv4/vs`.",
            "",
        ),
        Key::new(
            "sync",
            Kind::Table(&SYNC),
            Absent("flows are not synchronized"),
            "Synchronizes flows between directors.",
            "",
        )
        .known_as(&["lvs_sync_daemon"]),
        Key::new(
            "announce",
            Kind::Table(&ANNOUNCE),
            Absent("no announcements"),
            "Announces VIPs over BGP through a speaker on this machine.",
            "",
        ),
        Key::new(
            "cluster",
            Kind::Table(&CLUSTER),
            Absent("no group"),
            "State that directors share in etcd.",
            "cluster = { etcd = [\"https://10.0.0.11:2379\"], name = \"edge\" }",
        ),
    ],
};

/// Keys of `[defaults]`.
pub(crate) static DEFAULTS: Section = Section {
    path: "defaults",
    page: "defaults",
    purpose: "Default values for all services, pools and checks that do not set a key themselves. A value applies only \
              where its key is valid: a key for `http` services does not apply to `tcp` services, and a key for one \
              kind of check does not apply to other kinds. `timeouts` and `limits` are merged key by key.",
    example: "[defaults.service]\ntimeouts = { server = \"30s\" }\n\n[defaults.check]\ninterval = \
              \"5s\"\n\n[pool.web]\nservers = [\"10.0.0.5\"]\ncheck = {}\n\n[service.web]\nlisten = \
              [\"0.0.0.0:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n",
    keys: &[
        Key::new(
            "service",
            Kind::Table(&SERVICE),
            Absent("no defaults"),
            "Keys of `[service.NAME]`, except `listen`.",
            "service = { strict_ipvs = true }",
        ),
        Key::new(
            "pool",
            Kind::Table(&POOL),
            Absent("no defaults"),
            "Keys of `[pool.NAME]`, except those for its servers (`servers`, `servers_file`, `servers_dns`, `sorry`).",
            "pool = { scheduler = \"wlc\" }",
        ),
        Key::new(
            "check",
            Kind::Table(&CHECK),
            Absent("no defaults"),
            "Keys of checks, whether in `[check.NAME]`, in a pool or in a server. This does not add a check to a pool \
             that has none.",
            "check = { interval = \"5s\", fall = 2 }",
        ),
    ],
};

/// Keys of `[node]`.
pub(crate) static NODE: Section = Section {
    path: "node",
    page: "node",
    purpose: "Settings of the director itself: interfaces, table sizes and administration. A file with only this \
              section is valid.",
    example: "[node]\ninterfaces = [\"eth0\"]\nadmin = \"127.0.0.1:9900\"\n",
    keys: &[
        Key::new(
            "interfaces",
            Kind::List(&Kind::Interface),
            Absent(
                "the interfaces that are up (except loopback) and that are the `vip_interface`, have a VIP or a \
                 server's address, or are used by routes to servers or by default routes",
            ),
            "Interfaces that the data plane attaches to. Packets to a VIP that arrive on another interface are not \
             balanced.",
            "interfaces = [\"eth0\", \"eth1\"]",
        )
        .known_as(&["interface", "devices", "device"]),
        Key::new(
            "attach",
            Kind::OneOf(attach_hooks),
            Default("auto"),
            "Hook that the data plane attaches to. `xdp` runs before the network stack: in the driver (native mode), \
             or in generic mode if the driver does not support XDP. `tc` processes socket buffers (tcx, or clsact on \
             kernels without tcx) and preserves checksum offload and segmentation offload (GSO packets). `auto` \
             selects `tc` on devices whose packets may carry partial checksums (veth, bridge, macvlan, tun, and \
             virtual machine drivers that reject XDP), otherwise native XDP if the driver supports it, otherwise \
             generic XDP. With `xdp`, native XDP on veth, tap and similar devices passes each packet with a partial \
             checksum to tc; generic XDP cannot detect such packets. `weir status` shows the mode, the reason, and the \
             share of packets per hook.",
            "attach = \"tc\"",
        )
        .known_as(&["mode", "xdp_mode", "hook"]),
        Key::new(
            "vip_interface",
            Kind::Interface,
            Absent("Weir adds no VIPs"),
            "Weir adds missing VIPs to this interface, as /32 or /128, and announces them. This includes the addresses \
             of `proxy` services, except unspecified and loopback addresses. IPv6 addresses are added as deprecated \
             addresses, so that they are not the source of the director's own connections. Addresses that already \
             exist are never removed. An added address is removed when no service or connection uses it any more, and \
             by `weir clean`. A virtual router on the same interface takes over such an address without interruption.",
            "vip_interface = \"eth0\"",
        ),
        Key::new(
            "admin",
            Kind::Either(&Kind::SocketAddress, &Kind::Table(&ADMIN)),
            Absent("the Unix socket only"),
            "Address of the dashboard, the HTTP API and `/metrics`, in addition to the Unix socket. An address \
             that is reachable from other machines requires the table form with `tls`.",
            "admin = \"127.0.0.1:9900\"",
        ),
        Key::new(
            "balance_own",
            Kind::Flag,
            Default("false"),
            "Balances this machine's own connections to its layer 4 services: connect() and sendmsg() are redirected \
             to a server's address, as with `forward = \"socket\"`. Only processes in the director's network namespace \
             are affected. The servers must accept connections to their own addresses.",
            "balance_own = true",
        ),
        Key::new(
            "latency",
            Kind::Flag,
            Default("true"),
            "Estimates the latency of layer 4 servers from client packets; `weir status --json` shows it. If `false`, \
             there is no cost per packet, `least-time` behaves like `lc`, and the pool keys `adapt` and `max_latency` \
             have no effect at layer 4.",
            "latency = false",
        ),
        Key::new(
            "socket_group",
            Kind::DescribedText("the name of a group"),
            Absent("the group of the daemon process"),
            "Group that owns the runtime directory and the control socket. Its members can use the socket, but cannot \
             list or read anything else in the directory.",
            "socket_group = \"weir\"",
        ),
        Key::new(
            "socket_mode",
            Kind::OneOf(socket_modes),
            Absent("`0660` with `socket_group`, `0600` without"),
            "Mode of the control socket. Users outside its group have no access in any case, because they cannot enter \
             the runtime directory.",
            "socket_mode = \"0660\"",
        ),
        Key::new(
            "max_flows",
            integer(Node::MAX_FLOWS_RANGE),
            Default("1048576"),
            "Capacity of the flow table, allocated at startup. When the table is full, new flows are balanced by hash \
             without an entry.",
            "max_flows = 4194304",
        )
        .known_as(&["maxconn", "max_connections"]),
        Key::new(
            "max_servers",
            integer(Node::MAX_SERVERS_RANGE),
            Default("16384"),
            "Maximum number of servers across all services, including those created by ipvsadm. If omitted, the limit \
             is at least twice the number that the file needs, rounded up to a power of two. Only `weir clean` \
             releases the memory.",
            "max_servers = 1000",
        ),
        Key::new(
            "max_services",
            integer(Node::MAX_SERVICES_RANGE),
            Default("4096"),
            "Maximum number of services, including those created by ipvsadm. If omitted, the limit is at least twice \
             the number in the file, rounded up to a power of two.",
            "max_services = 100",
        ),
        Key::new(
            "syn_budget",
            integer(Node::SYN_BUDGET_RANGE),
            Default("125000"),
            "Maximum number of new TCP and UDP flows per second and CPU that get a flow table entry. SYNs and \
             datagrams above the limit are balanced by hash without an entry, so that a flood cannot fill the table. \
             With `nat`, SYNs above the limit are dropped; UDP flows always get an entry.",
            "syn_budget = 50000",
        ),
        Key::new(
            "drain_timeout",
            Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(86_400) },
            Default("10s"),
            "How long proxied connections may continue after SIGTERM. Layer 4 flows need no drain time: they continue \
             without the daemon.",
            "drain_timeout = \"30s\"",
        ),
        Key::new(
            "metrics",
            Kind::OneOf(metrics),
            Default("default"),
            "Level of detail of `/metrics`. With `default`, queue, connect, response and total times have histograms \
             per service, route and pool, but only sums, counts and quantiles per server. `full` adds histograms per \
             server: 56 additional series per server.",
            "metrics = \"full\"",
        ),
    ],
};

/// Keys of `[node] admin` in table form.
pub(crate) static ADMIN: Section = Section {
    path: "node.admin",
    page: "node-admin",
    purpose: "The HTTP API over TCP: TLS, tokens and allowed host names. Certificates and tokens are read at startup \
              and at each `weir reload`; an invalid file makes the reload fail.",
    example: "[node.admin]\nlisten = \"10.0.0.1:9900\"\ntls = { certificates = \"/etc/weir/admin.pem\" }\ntokens = \
              \"/etc/weir/tokens\"\nhosts = [\"lb1.example\"]\n",
    keys: &[
        Key::new(
            "listen",
            Kind::SocketAddress,
            Required,
            "Address and port. `tls` is required for every address except loopback, including `0.0.0.0` and `[::]`.",
            "listen = \"10.0.0.1:9900\"",
        )
        .known_as(&["address", "bind"]),
        Key::new(
            "tls",
            Kind::Table(&SERVICE_TLS),
            Absent("plain HTTP; allowed on loopback only"),
            "Certificates, as in a service's `tls`. With `client_ca`, clients need a certificate and a token.",
            "tls = { certificates = \"/etc/weir/admin.pem\" }",
        ),
        Key::new(
            "tokens",
            Kind::DescribedText("a file path"),
            Absent("only `token` in the runtime directory, valid for loopback clients, with role `write`"),
            "Token file. Each line has a name, a role and the SHA-256 of a token. `weir token add NAME --role ROLE` \
             adds a line and prints the token. Roles: `read`; `operate`, which may also set the state of a server \
             (drain, maint, ready) and its weight; `write`, which may also plan, reload, add and remove servers, and \
             use ipvsadm. `#` starts a comment. The file must be owned by root or by the daemon's user and must not \
             be accessible to others (mode 0600).",
            "tokens = \"/etc/weir/tokens\"",
        )
        .known_as(&["token_file", "users", "userlist"]),
        Key::new(
            "read_requires_token",
            Kind::Flag,
            Absent("false on loopback, true otherwise"),
            "Whether `/metrics`, `/v1/status` and `/v1/explain` require a token too. The dashboard page itself never \
             requires a token, but it reads `/v1/status`.",
            "read_requires_token = true",
        ),
        Key::new(
            "hosts",
            Kind::List(&Kind::Text),
            Absent("the listen address, and `localhost` on loopback"),
            "Host names that clients may use. Requests with any other `Host` are rejected with 421, which prevents DNS \
             rebinding attacks from web pages. A name without a port matches any port.",
            "hosts = [\"lb1.example\", \"localhost:8443\"]",
        )
        .known_as(&["server_name", "allowed_hosts"]),
    ],
};

/// Keys of `[timeouts]`.
pub(crate) static TIMEOUTS: Section = Section {
    path: "timeouts",
    page: "timeouts",
    purpose: "Flow idle timeouts in whole seconds, as set by `ipvsadm --set`.",
    example: "[timeouts]\ntcp = \"15m\"\n",
    keys: &[
        Key::new(
            "tcp",
            TIMEOUT,
            Default("15m"),
            "Idle timeout of an established TCP connection.",
            "tcp = \"1h\"",
        ),
        Key::new(
            "tcp_fin",
            TIMEOUT,
            Default("2m"),
            "Idle timeout of a TCP connection after a FIN.",
            "tcp_fin = \"30s\"",
        )
        .known_as(&["tcpfin"]),
        Key::new(
            "udp",
            TIMEOUT,
            Default("5m"),
            "Idle timeout of a UDP flow.",
            "udp = \"30s\"",
        ),
    ],
};

/// A timeout of a proxy service.
const PROXY_TIMEOUT: Kind = Kind::Duration {
    min: ProxyTimeouts::BOUNDS.0,
    max: ProxyTimeouts::BOUNDS.1,
};

/// A boolean sysctl.
const SWITCH: Kind = integer((0, 1));

/// Every section with a manual page, in the order of the manual.
pub(crate) static PAGES: [&Section; 54] = [
    &DEFAULTS,
    &NODE,
    &ADMIN,
    &TIMEOUTS,
    &IPVS,
    &POOL,
    &SERVER,
    &SERVERS_DNS,
    &SCHEDULER,
    &CHECK,
    &EXCHANGE,
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
    &X_FORWARDED,
    &COMPRESSION,
    &ACCESS_LOG,
    &STICKY,
    &ROUTE,
    &ROUTE_NOT,
    &ROUTE_TIMEOUTS,
    &ADDRESS_FILE,
    &HOST_FILE,
    &RESPONSE_HEADER,
    &HEADER_REPLACEMENT,
    &ROUTE_POOL,
    &ROUTE_REWRITE,
    &ROUTE_LIMITS,
    &ROUTE_MIRROR,
    &BASIC_AUTH,
    &FORWARD_AUTH,
    &FILES,
    &MAP,
    &VRRP,
    &VRRP_TRACK,
    &VRRP_INTERFACE,
    &VRRP_ROUTE,
    &VRRP_RULE,
    &VRRP_HMAC,
    &VRRP_HMAC_KEY,
    &ANNOUNCE,
    &CLUSTER,
    &CLUSTER_PUBLISH,
    &SYNC,
    &NOTIFY,
    &TRACING,
];
