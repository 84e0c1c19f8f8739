//! Pools, their servers and their scheduler.

use super::*;

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
             has it, or lines, `ADDRESS[:PORT] [KEY=VALUE]…`, with `#` before a comment. An entry has an address, `weight`, \
             `max_connections`, `min_connections`, and as `check` the name of a `[check.NAME]`; every other key is an error. The \
             file must belong to root, to the account that runs Weir, or to the owner of its directory; if it is a link, it must lead to \
             a file in its directory or below. It is watched, and a change takes effect at once, without a reload. A file that is gone, is wrong, or has lost more than half of its servers at once is not \
             believed: the servers of before stay, and `weir status` says so; `weir reload` takes it as it is.",
            "servers_file = \"/run/discovery/images.json\"",
        ),
        Key::new(
            "servers_dns",
            Kind::Table(&SERVERS_DNS),
            Absent("no others"),
            "More servers, that the domain name system knows: addresses, or SRV records with ports and weights.",
            "servers_dns = { name = \"_http._tcp.web.internal\", record = \"SRV\" }",
        )
        .known_as(&["server-template", "resolve", "resolvers"]),
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
            "A server that is used when no other is usable, and only then. As a table it may have a `check` of its own, and is not \
             used while that fails; the pool's does not apply to it.",
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
            COMMAND,
            Absent("nobody is told"),
            "A program, absolute, and its arguments, called when a check changes the state of a server, when the pool goes over \
             between `up`, `panic`, `below quorum` and `down`, and for each service whose clients then get an answer no more, \
             or again. It runs as the daemon does, without a shell, finds what happened in `WEIR_POOL`, `WEIR_SERVER` (empty: \
             the pool's or a service's change), `WEIR_SERVICE` (empty: none), `WEIR_FROM`, `WEIR_TO` and `WEIR_REASON`, and is \
             killed after half a minute.",
            "notify = \"/usr/local/bin/tell\"",
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
            "Percent of servers that may be ejected because clients' packets show that they take no connections, or their \
             answers to a proxy that nothing good comes from them (not reached, broken off, 5xx), while others of the pool \
             do well: without any check, and shown apart from them. An ejected server is tried again after 10 seconds, and \
             if that fails after twice as long. 0 = none is ever ejected. With `strict_ipvs` none.",
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

fn servers_records() -> Choices {
    Choices {
        now: ServersRecord::ALL
            .iter()
            .map(|record| record.as_str())
            .collect(),
        known_as: &[("srv", "SRV"), ("a", "A"), ("aaaa", "AAAA")],
        ..Choices::default()
    }
}

/// `servers_dns`.
pub(crate) static SERVERS_DNS: Section = Section {
    path: "pool.NAME.servers_dns",
    page: "servers-dns",
    purpose: "Servers that the domain name system knows, asked again when the answer's time to live is over. A name that is gone, \
              an answer that does not come, and one that has lost more than half of its servers at once are not believed: the \
              servers of before stay, and `weir status` says so; `weir reload` takes the last answer as it is.",
    example: "[pool.web]\nservers_dns = { name = \"web.internal\", port = 8080, resolvers = [\"10.0.0.53\"] }\n",
    keys: &[
        Key::new(
            "name",
            Kind::Words("a complete name"),
            Required,
            "The name, complete: search domains are not tried.",
            "name = \"web.internal\"",
        )
        .known_as(&["host", "hostname"]),
        Key::new(
            "record",
            Kind::OneOf(servers_records),
            Default("address"),
            "Which records are servers: `address` = those of A and AAAA together. Of SRV records those of the lowest priority, with \
             their ports, and their weights as servers' weights (0 counts as 1).",
            "record = \"SRV\"",
        )
        .known_as(&["type"]),
        Key::new(
            "port",
            integer((1, 65_535)),
            Absent("the port that the client used"),
            "The servers' port.",
            "port = 8080",
        ),
        Key::new(
            "resolvers",
            Kind::List(&Kind::ServerAddress),
            Absent("those of `/etc/resolv.conf`"),
            "Whom to ask, the first one first; the port is 53 unless it is said.",
            "resolvers = [\"127.0.0.1:8600\", \"10.0.0.53\"]",
        )
        .known_as(&["nameservers", "nameserver"]),
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
