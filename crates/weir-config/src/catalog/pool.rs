//! Defines the keys of pools, their servers and their scheduler.

use super::*;

/// Keys of `[pool.NAME]`.
pub(crate) static POOL: Section = Section {
    path: "pool.NAME",
    page: "pool",
    purpose: "A group of interchangeable servers. Services refer to it by NAME: letters, digits, `-`, `_`, `.`.",
    example: "[pool.images]\nscheduler = \"wlc\"\nservers = [\"10.0.0.5\", { address = \"10.0.0.6\", weight = 2 }]\n",
    keys: &[
        Key::new(
            "scheduler",
            Kind::Either(&Kind::OneOf(schedulers), &Kind::Table(&SCHEDULER)),
            Absent("`p2c` for `http` services, `wlc` for all others"),
            "How a server is selected for a new flow. Names used by HAProxy and nginx are accepted; `weir check` \
             reports the equivalent.",
            "scheduler = \"rr\"",
        )
        .known_as(&["balance", "lb_algo", "lvs_sched", "algorithm", "method"]),
        Key::new(
            "servers",
            Kind::List(&Kind::Either(&Kind::PoolServer, &Kind::Table(&SERVER))),
            Absent("no servers"),
            "The servers, in the order that schedulers use. A server without a port uses the port that the client \
             connected to. With `proxy` services, a server may be a Unix socket, `unix:PATH`: an absolute path of at \
             most 107 bytes. The daemon's user needs write permission on the socket and search permission on its \
             parent directories.",
            "servers = [\"10.0.0.5\", \"10.0.0.6:8080\", { address = \"2001:db8::5\", weight = 2 }]",
        )
        .known_as(&["server", "real", "real_server", "backends"]),
        Key::new(
            "adapt",
            Kind::OneOf(adapt_measurements),
            Default("none"),
            "With `latency`, the weights that layer 4 services use depend on the latency of each server; they are \
             adjusted every second, in small steps. A slow server gets fewer new flows, with every scheduler that uses \
             weights. Existing flows keep their servers. A server keeps at least one twentieth of its weight. \
             `least-time` considers the latency for each flow and does not need `adapt`.",
            "adapt = \"latency\"",
        ),
        Key::new(
            "servers_file",
            Kind::Text,
            Absent("no additional servers"),
            "Absolute path to a file with additional servers, maintained by another program. It contains either JSON \
             (a list as in `servers`, or an object with a `servers` key) or lines of the form `ADDRESS[:PORT] \
             [KEY=VALUE]…`, with `#` starting a comment. Allowed keys: `weight`, `max_connections`, `min_connections`, \
             and `check` with the name of a `[check.NAME]`; any other key is an error. The file must be owned by root, \
             by the daemon's user, or by the owner of its directory; a symbolic link must point to a file in the same \
             directory or below it. The file is watched, and changes apply immediately, without a reload. If the file \
             is missing or invalid, or has lost more than half of its servers at once, the previous servers are kept \
             and `weir status` reports it; `weir reload` applies the file as it is.",
            "servers_file = \"/run/discovery/images.json\"",
        ),
        Key::new(
            "servers_dns",
            Kind::Either(
                &Kind::Table(&SERVERS_DNS),
                &Kind::List(&Kind::Table(&SERVERS_DNS)),
            ),
            Absent("no additional servers"),
            "Additional servers from DNS, one name or a list of names: addresses, or SRV records with ports and \
             weights. If an address occurs more than once, its first occurrence applies.",
            "servers_dns = { name = \"_http._tcp.web.internal\", record = \"SRV\" }",
        )
        .known_as(&["server-template", "resolve", "resolvers"]),
        Key::new(
            "no_server",
            Kind::OneOf(no_server_actions),
            Default("reject"),
            "Response to new clients when no server is available. `reject`: an ICMP port unreachable at layer 4 \
             (rate-limited and counted), status 503 in `http` services. `drop`: no response.",
            "no_server = \"drop\"",
        ),
        Key::new(
            "on_remove",
            Kind::OneOf(on_remove_actions),
            Default("keep"),
            "What happens to the flows of a server that a reload removes: they continue (`keep`), are reset (`reset`), \
             or are assigned to another server (`reschedule`). `reset` answers each further packet from the client \
             with a TCP reset, or ICMP port unreachable for UDP, with the VIP as source; this is rate-limited, and \
             nothing is sent to the removed server. In `proxy` services, `reset` closes the connections to the server; \
             with the other values, they continue.",
            "on_remove = \"reschedule\"",
        ),
        Key::new(
            "sorry",
            Kind::Either(&Kind::PoolServer, &Kind::Table(&SERVER)),
            Absent("`no_server` applies"),
            "Server that is used only while no other is available. In table form it may have its own `check` and is \
             not used while that check fails; the pool's checks do not apply to it.",
            "sorry = \"10.0.0.9\"",
        )
        .known_as(&["sorry_server", "backup", "fallback"]),
        Key::new(
            "check",
            CHECKS,
            Absent("no checks: every server is considered up"),
            "Health checks for the servers: a table, several tables, or names of `[check.NAME]`.",
            "check = { kind = \"http\", path = \"/hello\" }",
        )
        .known_as(&["checks", "health_check", "option httpchk"]),
        Key::new(
            "tls",
            Kind::Either(&Kind::Flag, &Kind::Table(&SERVER_TLS)),
            Default("false"),
            "`proxy` services connect to the servers with TLS and verify their certificates.",
            "tls = { server_name = \"web.internal\" }",
        )
        .known_as(&["ssl", "proxy_ssl"]),
        Key::new(
            "host",
            Kind::DescribedText("a host name, with or without a port; may contain variables"),
            Absent("the host that the client requested"),
            "Value of `Host` in the requests that `http` services send to this pool's servers, instead of the \
             client's. Routes and `X-Forwarded-Host` still use the requested host. `\"{host}\"` removes the port that \
             the client sent, `\"{host}:8080\"` replaces it. If the values of the variables do not form a valid host, \
             the server receives the requested host.",
            "host = \"app.internal\"",
        )
        .known_as(&["upstream_vhost", "proxy_set_header Host", "http-send-name-header"]),
        Key::new(
            "http2",
            Kind::Flag,
            Default("false"),
            "`http` services use HTTP/2 for connections to the servers: negotiated with ALPN if `tls` is set, \
             otherwise with prior knowledge. Required for gRPC.",
            "http2 = true",
        ),
        Key::new(
            "notify",
            COMMAND,
            Absent("no notification"),
            "Absolute path to a program, and its arguments. It is run when a check changes the state of a server, \
             when the pool changes between `up`, `panic`, `below quorum` and `down`, and for each service that becomes \
             unavailable or available again. It runs with the daemon's privileges, without a shell, with these \
             environment variables: `WEIR_POOL`, `WEIR_SERVER` (empty unless a server changed), `WEIR_SERVICE` (empty \
             unless a service changed), `WEIR_FROM`, `WEIR_TO` and `WEIR_REASON`. It is killed after 30 seconds.",
            "notify = \"/usr/local/bin/notify\"",
        )
        .known_as(&["notify_up", "notify_down", "callback", "emailalert"]),
        Key::new(
            "require",
            Kind::OneOf(require_modes),
            Default("all"),
            "With several checks, whether all of them must pass (`all`) or one is enough (`any`).",
            "require = \"any\"",
        ),
        Key::new(
            "slow_start",
            Kind::Duration { min: Duration::ZERO, max: Duration::from_secs(86_400) },
            Default("0s"),
            "Time over which the weight of a recovered server grows from 1 to its configured value. Weights are \
             integers, so a weight of 1 cannot grow: use weights of 10 or 100.",
            "slow_start = \"30s\"",
        )
        .known_as(&["slowstart", "slow-start"]),
        Key::new(
            "queue_timeout",
            PROXY_TIMEOUT,
            Default("5s"),
            "How long a request to an `http` service, or a connection to a `tcp` service, waits while every available \
             server in the pool is at its `max_connections`. Waiting requests are served in order of arrival across \
             all workers; on timeout the response is 503.",
            "queue_timeout = \"30s\"",
        )
        .known_as(&["queue", "timeout_queue"]),
        Key::new(
            "sticky",
            Kind::Table(&STICKY),
            Absent("the scheduler selects a server for each request"),
            "Session affinity for `http` services, with a cookie.",
            "sticky = { cookie = \"SRV\" }",
        )
        .known_as(&["cookie", "stick", "appsession"]),
        Key::new(
            "proxy_protocol",
            Kind::OneOf(check::proxy_protocols),
            Absent("no PROXY protocol header"),
            "`proxy` services send a PROXY protocol header with the client's address to the servers. Server \
             connections are then not shared between clients.",
            "proxy_protocol = \"v2\"",
        )
        .known_as(&["send-proxy", "send-proxy-v2", "send_proxy"]),
        Key::new(
            "quorum",
            integer((0, 1_000_000)),
            Default("0"),
            "Minimum total weight of available servers. Below it, the sorry server replaces all servers. 0 = no \
             quorum.",
            "quorum = 3",
        ),
        Key::new(
            "quorum_hysteresis",
            integer((0, 1_000_000)),
            Default("0"),
            "The quorum is lost when the total weight is less than `quorum` minus this value, and regained when it is \
             at least `quorum` plus this value.",
            "quorum_hysteresis = 1",
        )
        .known_as(&["hysteresis"]),
        Key::new(
            "panic_threshold",
            integer((0, 99)),
            Absent("servers that are down are not used"),
            "If more than this percentage of the servers is down, all servers are used as if they were up: when most \
             servers fail at once, the checks may be wrong, and the remaining servers could not carry the load.",
            "panic_threshold = 50",
        ),
        Key::new(
            "max_ejected",
            integer((0, 100)),
            Default("50"),
            "Maximum percentage of servers that may be ejected. A server is ejected when client traffic shows that it \
             does not accept connections, or when all of the proxy's requests to it fail (failed connection, \
             connection closed early, 5xx), while other servers in the pool work. Ejection needs no check and is \
             reported separately. An ejected server is retried after 10 seconds; this time doubles with each \
             consecutive ejection, up to 5 minutes. 0 = no ejection. No effect with `strict_ipvs`.",
            "max_ejected = 30",
        ),
        Key::new(
            "max_latency",
            Kind::Duration { min: Duration::from_millis(1), max: Duration::from_secs(60) },
            Absent("no ejection because of latency"),
            "A layer 4 server is ejected if for 1.5 seconds all its replies took longer than this, while another \
             server in the pool was faster. `max_ejected` limits the number of ejected servers. An ejected server is \
             retried after 10 seconds; this time doubles with each consecutive ejection, up to 5 minutes.",
            "max_latency = \"500ms\"",
        ),
    ],
};

/// Keys of a table in `servers`.
pub(crate) static SERVER: Section = Section {
    path: "pool.NAME.servers",
    page: "server",
    purpose: "A server with additional settings.",
    example: "[pool.images]\nservers = [{ address = \"10.0.0.5:8080\", weight = 2, forward = \"nat\" }]\n",
    keys: &[
        Key::new(
            "address",
            Kind::PoolServer,
            Required,
            "Address, and the port if it differs from the one that the client uses; or `unix:PATH` with `proxy` \
             services. `nat` rewrites the destination port to this port; forwarding methods that keep the client's \
             port use it only for checks. `weir server POOL/ADDRESS` also accepts the address without the port, if \
             only one server in the pool has it.",
            "address = \"10.0.0.5:8080\"",
        )
        .known_as(&["ip", "host", "name"]),
        Key::new(
            "weight",
            integer((0, MAX_WEIGHT)),
            Default("1"),
            "Relative share of new flows. 0 quiesces the server: existing flows continue, but it receives no new ones.",
            "weight = 3",
        ),
        Key::new(
            "forward",
            Kind::OneOf(server_forwards),
            Absent("the service's setting"),
            "Forwarding method for this server, overriding the service's. `proxy` services ignore it.",
            "forward = \"tunnel\"",
        )
        .known_as(&["lb_kind", "lvs_method"]),
        Key::new(
            "tunnel",
            Kind::Either(&Kind::OneOf(tunnels), &Kind::Table(&TUNNEL)),
            Absent("the service's setting"),
            "Encapsulation for this server, overriding the service's.",
            "tunnel = \"gue\"",
        ),
        Key::new(
            "max_connections",
            integer((0, u32::MAX)),
            Default("0"),
            "Layer 4: maximum number of flows, active and inactive, across all services that use the pool; at the \
             limit the server receives no new flows (IPVS's upper threshold), except from persistent clients. `proxy` \
             services: maximum number of active requests (TCP: connections) across all workers; additional ones wait \
             in the queue. 0 = no limit.",
            "max_connections = 500",
        )
        .known_as(&["maxconn", "uthreshold", "max_conns"]),
        Key::new(
            "min_connections",
            integer((0, u32::MAX)),
            Default("0"),
            "A server that reached `max_connections` receives new flows again below this number (IPVS's lower \
             threshold). 0 = three quarters of `max_connections`. `proxy` services ignore it.",
            "min_connections = 0",
        )
        .known_as(&["lthreshold"]),
        Key::new(
            "backup",
            Kind::Flag,
            Default("false"),
            "Whether `proxy` services use the server only while no regular server in the pool is available. A server \
             at its `max_connections` is available: requests wait in the queue and are not sent to backup servers.",
            "backup = true",
        ),
        Key::new(
            "cookie",
            Kind::Text,
            Absent("a keyed hash of the server's address"),
            "Value of the pool's `sticky` cookie for this server, like `cookie` on HAProxy's `server` lines. Clients \
             that know or guess a value can choose the server, which the keyed hash prevents.",
            "cookie = \"s1\"",
        ),
        Key::new(
            "check",
            CHECKS,
            Absent("the pool's checks"),
            "Checks for this server, overriding the pool's.",
            "check = { kind = \"tcp\", port = 8081 }",
        ),
    ],
};

fn servers_records() -> Choices {
    Choices {
        values: ServersRecord::ALL
            .iter()
            .map(|record| record.as_str())
            .collect(),
        known_as: &[("srv", "SRV"), ("a", "A"), ("aaaa", "AAAA")],
        ..Choices::default()
    }
}

/// Keys of `servers_dns`.
pub(crate) static SERVERS_DNS: Section = Section {
    path: "pool.NAME.servers_dns",
    page: "servers-dns",
    purpose: "Servers from DNS, resolved again when the TTL expires. If the name no longer exists, a query fails, or a \
              response has lost more than half of the servers at once, the previous servers are kept and `weir status` \
              reports it; `weir reload` applies the last response as it is. Several names are handled independently.",
    example: "[pool.web]\nservers_dns = { name = \"web.internal\", port = 8080, resolvers = [\"10.0.0.53\"] }\n",
    keys: &[
        Key::new(
            "name",
            Kind::DescribedText("a fully qualified name"),
            Required,
            "Fully qualified name; search domains are not used.",
            "name = \"web.internal\"",
        )
        .known_as(&["host", "hostname"]),
        Key::new(
            "record",
            Kind::OneOf(servers_records),
            Default("address"),
            "Record type: `address` = A and AAAA. For SRV, the records with the lowest priority are used, with their \
             ports, and their weights as server weights (0 counts as 1).",
            "record = \"SRV\"",
        )
        .known_as(&["type"]),
        Key::new(
            "port",
            integer((1, 65_535)),
            Absent("the port that the client used"),
            "Server port.",
            "port = 8080",
        ),
        Key::new(
            "resolvers",
            Kind::List(&Kind::ServerAddress),
            Absent("the servers in `/etc/resolv.conf`"),
            "DNS servers, tried in order; the default port is 53.",
            "resolvers = [\"127.0.0.1:8600\", \"10.0.0.53\"]",
        )
        .known_as(&["nameservers", "nameserver"]),
        Key::new(
            "weight",
            integer((0, MAX_WEIGHT)),
            Default("1"),
            "Weight of each server; not allowed with SRV records, which contain weights.",
            "weight = 2",
        ),
        Key::new(
            "max_connections",
            integer((0, u32::MAX)),
            Default("0"),
            "Maximum number of connections to each server; 0 = no limit.",
            "max_connections = 500",
        )
        .known_as(&["maxconn", "max_conns"]),
        Key::new(
            "cookie",
            Kind::DescribedText("a cookie value: letters, digits, `-` and `_`"),
            Absent("a value that Weir computes for each server"),
            "Value of the pool's `sticky` cookie for the server with this name; if the name has several addresses, for \
             the first one.",
            "cookie = \"web1\"",
        ),
        Key::new(
            "backup",
            Kind::Flag,
            Default("false"),
            "Whether `proxy` services use these servers only while no regular server in the pool is available.",
            "backup = true",
        ),
    ],
};

/// Keys of `scheduler` in table form.
pub(crate) static SCHEDULER: Section = Section {
    path: "pool.NAME.scheduler",
    page: "scheduler",
    purpose: "A scheduler with options.",
    example: "[pool.images]\nscheduler = { name = \"mh\", flags = [\"mh-port\"] }\nservers = [\"10.0.0.5\"]\n",
    keys: &[
        Key::new(
            "name",
            Kind::OneOf(schedulers),
            Required,
            "Name of the scheduler.",
            "name = \"mh\"",
        ),
        Key::new(
            "flags",
            Kind::List(&Kind::OneOf(scheduler_flags)),
            Default("[]"),
            "`sh-port`, `mh-port`: include the client's port in the hash. `sh-fallback`, `mh-fallback`: assign clients \
             of an unavailable server to the next server in hash order instead of rejecting them. Each flag applies to \
             the scheduler it is named after.",
            "flags = [\"mh-port\", \"mh-fallback\"]",
        ),
        Key::new(
            "max_load",
            Kind::Factor {
                min: 100,
                max: 10_000,
            },
            Absent("the load is not limited"),
            "Bounded load, for `dh`, `sh`, `mh`, `maglev`, and `hash` in proxy services: if a server has reached this \
             multiple of its weighted share of the service's active flows, new ones go to the next server in hash \
             order.",
            "max_load = 1.25",
        ),
        Key::new(
            "key",
            Kind::DescribedText("`source`, `uri`, `path`, `header:NAME`, `cookie:NAME` or `query:NAME`"),
            Default("source"),
            "Key of `hash`: the client's address, the path with the query, only the path, or the value of a header \
             field, a cookie or a query parameter. If a request does not contain the value, or the value is in a field \
             that the client is not allowed to set (`trusted`), the client's address is used.",
            "key = \"header:X-User\"",
        )
        .known_as(&["on", "hash", "uri"]),
    ],
};
