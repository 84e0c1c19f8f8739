//! Services, and what they say by tables of their own.

use super::proxy::retry_conditions;
use super::*;

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
            "retry_on",
            Kind::List(&Kind::Either(
                &Kind::OneOf(retry_conditions),
                &Kind::Either(&Kind::StatusCodes, &Kind::Integer { min: 400, max: 599 }),
            )),
            Default("[\"connect\", \"empty\"]"),
            "What makes a `proxy` service ask another server, `limits.retries` times at most: `connect` (it could not be reached), \
             `empty` (it ended before it said anything), `timeout` (its response did not begin in time), `malformed` (what it said \
             is no response), or statuses from 400 to 599. But for `connect` this is for requests that may be repeated, within \
             `limits.retry_budget`. When no other server is left the client gets the response as it is.",
            "retry_on = [\"connect\", \"empty\", \"timeout\", \"502-504\"]",
        )
        .known_as(&["retry-on", "proxy_next_upstream"]),
        Key::new(
            "forwarded",
            Kind::Either(&Kind::Flag, &Kind::OneOf(forwardeds)),
            Default("true"),
            "Servers of an `http` service are told of the client: with `true` its address in `X-Forwarded-For`, `http` or \
             `https` in `X-Forwarded-Proto`; with `rfc7239` both, and the host that was asked for, in `Forwarded`; with `both` by \
             all of these. What the client itself says there, in other `X-Forwarded-…` and `X-Real-IP` is left out, unless it \
             is `trusted`. With `false` nothing is added and nothing left out.",
            "forwarded = \"rfc7239\"",
        ),
        Key::new(
            "normalize_path",
            Kind::Either(&Kind::Flag, &Kind::Table(&NORMALIZE_PATH)),
            Default("true"),
            "Routes of an `http` service, `hash` and `limits` compare paths in their normal form, so that `//admin`, `/%61dmin` and \
             `/x/../admin` are `/admin`; with a table, in a form of your choice. With `false` they are compared as they are \
             received, as HAProxy does. Servers are asked for the path as it was received in either case, unless the table's \
             `forward` or a `rewrite` of the route says otherwise.",
            "normalize_path = { forward = \"normalized\" }",
        )
        .known_as(&["normalize-uri", "merge_slashes"]),
        Key::new(
            "underscores",
            Kind::OneOf(underscores),
            Default("drop"),
            "What becomes of fields and trailers with `_` in their names, in requests to an `http` service. Many \
             servers cannot tell `X_Forwarded_For` from `X-Forwarded-For`, which Weir itself writes. With `drop` \
             neither routes nor servers see them, with `keep` they are passed on, with `reject` the request is \
             answered with 400. Responses keep theirs.",
            "underscores = \"keep\"",
        )
        .known_as(&["underscores_in_headers"]),
        Key::new(
            "connect",
            Kind::Flag,
            Default("false"),
            "Clients of an `http` service may ask by CONNECT for a tunnel, which the server makes: the pool holds forward proxies. \
             Of HTTP/1.1 clients only; without it the answer is 405.",
            "connect = true",
        ),
        Key::new(
            "abort_on_close",
            Kind::Flag,
            Default("true"),
            "A client of an `http` service that closes its side of the connection while its request is queued or a server works \
             on it ends the request: the connection to the server is closed, or its stream reset. With `false` only a reset by \
             the client ends it, and a client that closes its sending side first (`printf … | nc`) gets its response.",
            "abort_on_close = false",
        )
        .known_as(&["abortonclose", "proxy_ignore_client_abort", "ignore_client_abort"]),
        Key::new(
            "request_buffering",
            Kind::Flag,
            Default("true"),
            "An `http` service collects a request's body before it chooses a server, so that a client that sends slowly occupies no \
             connection to one: the whole body, or the first 16 KiB of a longer one. Each part must arrive within \
             `timeouts.client`. Bodies without a length (chunked, HTTP/2 without `content-length`, so gRPC streams) and those of \
             requests with `Expect: 100-continue` are not waited for. With `false` none is.",
            "request_buffering = false",
        )
        .known_as(&["http-buffer-request", "proxy_request_buffering"]),
        Key::new(
            "error_pages",
            Kind::List(&Kind::Table(&ERROR_PAGE)),
            Absent("the status in words"),
            "What clients of an `http` service get when Weir answers in a server's place; of several the first that fits.",
            "error_pages = [{ status = \"500-599\", file = \"/etc/weir/sorry.html\" }]",
        )
        .known_as(&["errorfile", "error_page", "errorfiles"]),
        Key::new(
            "compression",
            Kind::Either(&Kind::Flag, &Kind::Table(&COMPRESSION)),
            Default("false"),
            "Responses of an `http` service are compressed where the client can read that, unless the server has done it, forbids \
             it (`no-transform`), or sends a part (206).",
            "compression = true",
        )
        .known_as(&["gzip", "compress", "filter compression"]),
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

fn underscores() -> Choices {
    Choices {
        now: Underscores::ALL.iter().map(|one| one.as_str()).collect(),
        known_as: &[("on", "keep"), ("off", "drop")],
        ..Choices::default()
    }
}

fn forwardeds() -> Choices {
    Choices {
        now: Forwarded::ALL.iter().map(|one| one.as_str()).collect(),
        ..Choices::default()
    }
}
