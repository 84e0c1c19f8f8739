//! Defines the keys of services and their sub-tables.

use super::proxy::retry_conditions;
use super::*;

/// Keys of `[service.NAME]`.
pub(crate) static SERVICE: Section = Section {
    path: "service.NAME",
    page: "service",
    purpose: "A virtual service that clients connect to. NAME appears in status and metrics: letters, digits, `-`, \
              `_`, `.`.",
    example: "[pool.images]\nservers = [\"10.0.0.5\"]\n\n[service.images]\nlisten = [\"192.0.2.10:80\"]\nforward = \
              \"direct\"\npool = \"images\"\n",
    keys: &[
        Key::new(
            "listen",
            Kind::List(&Kind::Listener),
            Required,
            "VIPs and ports. The default protocol is TCP; IPv6 addresses are in brackets. If several listeners on an \
             address include a port, an exact port takes precedence over a range, and a range over `*`; a duplicate \
             address and port is an error. A `proxy` service listens on single TCP ports, on one address or on all \
             addresses: `0.0.0.0:80`, `[::]:80`. `fwmark/N` and `fwmark6/N` match IPv4 and IPv6 packets that a \
             firewall rule marked with N, regardless of their address, protocol and port; these packets pass through \
             the kernel's stack, which must have forwarding enabled, and listeners with an address take precedence.",
            "listen = [\"192.0.2.10:80\", \"udp/192.0.2.10:8000-8999\", \"[2001:db8::10]:*\"]",
        )
        .known_as(&["bind", "vip", "virtual_address", "address", "listener"]),
        Key::new(
            "forward",
            Kind::OneOf(forwards),
            Required,
            "Forwarding method. `nat` rewrites the address and port, and replies return through the director. `direct` \
             rewrites only the destination MAC. `tunnel` encapsulates. `l3dsr` rewrites the address, marks the packets \
             with a DSCP value, and routes them. With the last three, replies go directly to the client. `socket` \
             balances the connections of clients on this machine: it replaces the destination address when they \
             connect, and no packets pass through Weir. `proxy` terminates the client's connection and opens its own \
             to a server; it requires `protocol`, and needs neither XDP nor root.",
            "forward = \"direct\"",
        )
        .known_as(&["lb_kind", "lvs_method", "gate", "masq"]),
        Key::new("pool", Kind::PoolName, Required, "The pool whose servers are used.", "pool = \"images\"")
            .known_as(&["backend", "default_backend", "proxy_pass", "use_backend"]),
        Key::new(
            "tunnel",
            Kind::Either(&Kind::OneOf(tunnels), &Kind::Table(&TUNNEL)),
            Default("ipip"),
            "Encapsulation for `forward = \"tunnel\"`.",
            "tunnel = { type = \"gue\", port = 6080, checksum = \"full\" }",
        )
        .known_as(&["tun_type", "encap"]),
        Key::new(
            "snat",
            Kind::Either(&Kind::Flag, &Kind::Table(&SNAT)),
            Default("false"),
            "With `nat`, also rewrites the source address, so servers do not need a route back through the director; \
             they see the director's address instead of the client's.",
            "snat = true",
        )
        .known_as(&["masquerade"]),
        Key::new(
            "dscp",
            integer((0, 63)),
            Default("1"),
            "With `l3dsr`, the DSCP value that identifies these packets to the server. 0 = no DSCP.",
            "dscp = 10",
        ),
        Key::new(
            "cgroup",
            Kind::DescribedText("a cgroup path"),
            Absent("the root of cgroup2"),
            "With `socket`, the cgroup (version 2) whose processes' connections are balanced, including those of its \
             descendants. It must exist. The default covers every process and container on the machine.",
            "cgroup = \"/sys/fs/cgroup/system.slice\"",
        ),
        Key::new(
            "strict_ipvs",
            Kind::Flag,
            Default("false"),
            "Replicates the kernel's IPVS exactly: connections are counted per service, UDP flows are not counted as \
             active, and a hash may select a server that is down.",
            "strict_ipvs = true",
        ),
        Key::new(
            "protocol",
            Kind::OneOf(protocols),
            Absent("required if `forward` is `proxy`"),
            "Protocol of a `proxy` service: `tcp` relays bytes in both directions; `http` processes HTTP requests and \
             selects a server for each.",
            "protocol = \"http\"",
        )
        .known_as(&["mode"]),
        Key::new(
            "timeouts",
            Kind::Table(&PROXY_TIMEOUTS),
            Absent("the defaults of its keys"),
            "Timeouts of a `proxy` service.",
            "timeouts = { connect = \"2s\", server = \"30s\" }",
        ),
        Key::new(
            "limits",
            Kind::Table(&PROXY_LIMITS),
            Absent("the defaults of its keys"),
            "Limits of a `proxy` service.",
            "limits = { connections = 20000 }",
        ),
        Key::new(
            "retry_on",
            Kind::List(&Kind::Either(
                &Kind::OneOf(retry_conditions),
                &Kind::Either(&Kind::StatusCodes, &Kind::Integer { min: 400, max: 599 }),
            )),
            Default("[\"connect\", \"empty\"]"),
            "When a `proxy` service retries on another server, at most `limits.retries` times: `connect` (connection \
             failed), `empty` (closed without a response), `timeout` (no response in time), `malformed` (invalid \
             response), or status codes from 400 to 599. Except for `connect`, only requests that can be repeated are \
             retried, within `limits.retry_budget`. If no other server is available, the client receives the response \
             unchanged.",
            "retry_on = [\"connect\", \"empty\", \"timeout\", \"502-504\"]",
        )
        .known_as(&["retry-on", "proxy_next_upstream"]),
        Key::new(
            "forwarded",
            Kind::Either(&Kind::Flag, &Kind::OneOf(forwarded_formats)),
            Default("true"),
            "Client information that is sent to the servers of an `http` service. `true`: the address in \
             `X-Forwarded-For` and `http` or `https` in `X-Forwarded-Proto`. `rfc7239`: both, and the requested host, \
             in `Forwarded`. `both`: all of these. Such fields, other `X-Forwarded-…` fields and `X-Real-IP` in a \
             request are removed unless the client is `trusted`. `false`: nothing is added or removed.",
            "forwarded = \"rfc7239\"",
        ),
        Key::new(
            "x_forwarded",
            Kind::Table(&X_FORWARDED),
            Absent("as `forwarded` specifies"),
            "Rules for individual `X-Forwarded-…` fields and `X-Real-IP`. `forwarded` and `trusted` do not apply to \
             these fields.",
            "x_forwarded = { for = \"append\", real_ip = \"set\" }",
        )
        .known_as(&["forwardfor"]),
        route::SET_HEADER,
        route::ADD_HEADER,
        route::REMOVE_HEADER,
        route::SET_RESPONSE_HEADER,
        route::ADD_RESPONSE_HEADER,
        route::REMOVE_RESPONSE_HEADER,
        route::REPLACE_RESPONSE_HEADER,
        Key::new(
            "normalize_path",
            Kind::Either(&Kind::Flag, &Kind::Table(&NORMALIZE_PATH)),
            Default("true"),
            "Whether routes of an `http` service, `hash` and `limits` compare normalized paths, so that `//admin`, \
             `/%61dmin` and `/x/../admin` equal `/admin`. A table sets the details. `false`: paths are compared as \
             received, as in HAProxy. In both cases, the path is sent to servers as received, unless the table's \
             `forward` or the route's `rewrite` specifies otherwise.",
            "normalize_path = { forward = \"normalized\" }",
        )
        .known_as(&["normalize-uri", "merge_slashes"]),
        Key::new(
            "underscores",
            Kind::OneOf(underscores),
            Default("drop"),
            "Treatment of header and trailer fields with `_` in their names, in requests to an `http` service. Many \
             servers cannot distinguish `X_Forwarded_For` from `X-Forwarded-For`, which Weir writes itself. `drop` \
             removes them before routing, `keep` passes them on, `reject` rejects the request with 400. Responses are \
             not affected.",
            "underscores = \"keep\"",
        )
        .known_as(&["underscores_in_headers"]),
        Key::new(
            "connect",
            Kind::Flag,
            Default("false"),
            "Whether clients of an `http` service may use CONNECT. The servers are then forward proxies that create \
             the tunnel. HTTP/1.1 clients only. If `false`, CONNECT is rejected with 405.",
            "connect = true",
        ),
        Key::new(
            "abort_on_close",
            Kind::Flag,
            Default("true"),
            "Whether a client of an `http` service that closes its sending side while its request is queued or being \
             processed aborts the request: the server connection is closed, or its stream reset. With `false`, only a \
             connection reset by the client aborts it, and a client that half-closes (`printf … | nc`) gets its \
             response.",
            "abort_on_close = false",
        )
        .known_as(&["abortonclose", "proxy_ignore_client_abort", "ignore_client_abort"]),
        Key::new(
            "request_buffering",
            Kind::Flag,
            Default("true"),
            "Whether an `http` service buffers the request body before it selects a server, so that slow clients do \
             not occupy server connections: the whole body, or the first 16 KiB of a longer one. Each part must \
             arrive within `timeouts.client`. Bodies without a length (chunked, HTTP/2 without `content-length` such \
             as gRPC streams) and those with `Expect: 100-continue` are not buffered.",
            "request_buffering = false",
        )
        .known_as(&["http-buffer-request", "proxy_request_buffering"]),
        Key::new(
            "error_pages",
            Kind::List(&Kind::Table(&ERROR_PAGE)),
            Absent("the status as text"),
            "Responses for errors that an `http` service itself reports; the first matching entry applies.",
            "error_pages = [{ status = \"500-599\", file = \"/etc/weir/sorry.html\" }]",
        )
        .known_as(&["errorfile", "error_page", "errorfiles"]),
        Key::new(
            "compression",
            Kind::Either(&Kind::Flag, &Kind::Table(&COMPRESSION)),
            Default("false"),
            "Whether responses of an `http` service are compressed if the client supports it, unless the server has \
             compressed them, forbids compression (`no-transform`), or sends a partial response (206).",
            "compression = true",
        )
        .known_as(&["gzip", "compress", "filter compression"]),
        basic_auth::SERVICE_KEY,
        Key::new(
            "trusted",
            Kind::List(&Kind::Network),
            Default("[]"),
            "Networks of trusted proxies in front of Weir. Their forwarding information about clients is passed on and \
             extended. Keys and route conditions use this information only from these clients, unless it is forwarded \
             from every client (`forwarded = false`, or `append` and `keep` of `x_forwarded`).",
            "trusted = [\"10.0.0.0/8\", \"2001:db8::1\"]",
        )
        .known_as(&["set_real_ip_from"]),
        Key::new(
            "client_ip_header",
            Kind::DescribedText("a header field name"),
            Absent("the source address of the connection"),
            "Field in which the proxies in `trusted` send the client's address to an `http` service, for example \
             `X-Forwarded-For` or `CF-Connecting-IP`. The client's address is the last one in the field that is not in \
             `trusted` (see `client_ip_recursive`). It is used in `source` conditions, `limits`, schedulers, logs, \
             `{client}`, `X-Real-IP`, and for servers with `proxy_protocol`. `X-Forwarded-For` is still extended with \
             the source address of the connection.",
            "client_ip_header = \"X-Forwarded-For\"",
        )
        .known_as(&["real_ip_header", "client_ip_headers", "forwardedHeaders"]),
        Key::new(
            "client_ip_recursive",
            Kind::Flag,
            Default("true"),
            "Whether addresses of `trusted` proxies at the end of `client_ip_header` are skipped. With `false`, the \
             last address in the field is the client's, as with nginx's `real_ip_recursive off`.",
            "client_ip_recursive = false",
        )
        .known_as(&["real_ip_recursive"]),
        Key::new(
            "proxy_protocol",
            Kind::Flag,
            Default("false"),
            "Whether clients of a `proxy` service send a PROXY protocol header, version 1 or 2. With `trusted`, only \
             those networks send it; without `trusted`, it is required from every client.",
            "proxy_protocol = true",
        )
        .known_as(&["accept-proxy", "accept_proxy"]),
        Key::new(
            "request_id",
            Kind::DescribedText("a header field name"),
            Absent("the identifier is not forwarded"),
            "Field in which servers of an `http` service receive the request's identifier, 32 hexadecimal digits. An \
             identifier that a `trusted` network sends in this field is kept, if it consists of at most 64 letters, \
             digits and `-._~+/=:`. Logs and header values can include it as `{request_id}`.",
            "request_id = \"X-Request-Id\"",
        )
        .known_as(&["unique-id-header", "requestid"]),
        Key::new(
            "access_log",
            Kind::Either(&Kind::DescribedText("a file"), &Kind::Table(&ACCESS_LOG)),
            Absent("no access log"),
            "Log file with one line per request to a `proxy` service (per connection to a `tcp` service). Lines are \
             written by a separate thread; if it cannot keep up, lines are dropped and counted. A reload reopens the \
             file.",
            "access_log = \"/var/log/weir/access.log\"",
        )
        .known_as(&["log", "log-format", "accesslog"]),
        Key::new(
            "persistence",
            Kind::Either(&Kind::Flag, &Kind::Table(&PERSISTENCE)),
            Default("false"),
            "Sends new flows from a client to the same server as its previous flow, like ipvsadm's `-p` and `-M`. The \
             server is shared by all listeners of the service, and by all ports of a range or `*`.",
            "persistence = true",
        )
        .known_as(&["persistent", "persistence_timeout", "persistent_timeout", "sticky"]),
        Key::new(
            "one_packet",
            Kind::Flag,
            Default("false"),
            "Schedules each UDP packet separately, without flow entries, like ipvsadm's `-o`. With `nat`, replies keep \
             the server's address.",
            "one_packet = true",
        )
        .known_as(&["ops"]),
        Key::new(
            "tls",
            Kind::Table(&SERVICE_TLS),
            Absent("no TLS"),
            "TLS for clients of a `proxy` service.",
            "tls = { certificates = \"/etc/weir/certs\" }",
        )
        .known_as(&["ssl", "crt", "ssl_certificate"]),
        Key::new(
            "http2",
            Kind::Flag,
            Default("true"),
            "Whether clients of an `http` service may use HTTP/2: negotiated with ALPN, or without TLS by prior \
             knowledge.",
            "http2 = false",
        )
        .known_as(&["alpn"]),
    ],
};

/// Keys of `persistence` in table form.
pub(crate) static PERSISTENCE: Section = Section {
    path: "service.NAME.persistence",
    page: "persistence",
    purpose: "Persistence settings.",
    example: "[pool.shop]\nservers = [\"10.1.0.5\", \"10.1.0.6\"]\n\n[service.shop]\nlisten = [\"192.0.2.10:80\", \
              \"192.0.2.10:443\"]\nforward = \"direct\"\npool = \"shop\"\npersistence = { timeout = \"10m\", \
              netmask = 24 }\n",
    keys: &[
        Key::new(
            "timeout",
            Kind::Duration {
                min: Duration::from_secs(1),
                max: Persistence::MAX_TIMEOUT,
            },
            Default("5m"),
            "How long a client's server is stored after the client's last new flow, in whole seconds. It is stored \
             longer while the client has flows.",
            "timeout = \"10m\"",
        ),
        Key::new(
            "netmask",
            integer((1, 32)),
            Default("32"),
            "Prefix length of the IPv4 networks whose clients are treated as one.",
            "netmask = 24",
        )
        .known_as(&["granularity", "persistence_granularity", "mask"]),
        Key::new(
            "client",
            Kind::OneOf(local_clients),
            Default("cgroup"),
            "With `socket`, how a client is identified: by its cgroup or by its user ID. `netmask` and `netmask6` do \
             not apply.",
            "client = \"uid\"",
        ),
        Key::new(
            "netmask6",
            integer((1, 128)),
            Default("128"),
            "Prefix length of the IPv6 networks whose clients are treated as one.",
            "netmask6 = 64",
        ),
    ],
};

/// Keys of `tunnel` in table form.
pub(crate) static TUNNEL: Section = Section {
    path: "service.NAME.tunnel",
    page: "tunnel",
    purpose: "Encapsulation settings of a service or a server.",
    example: "[pool.far]\nservers = [\"10.1.0.5\"]\n\n[service.far]\nlisten = [\"192.0.2.10:80\"]\nforward = \
              \"tunnel\"\npool = \"far\"\ntunnel = { type = \"gue\", checksum = \"full\" }\n",
    keys: &[
        Key::new("type", Kind::OneOf(tunnels), Required, "IP in IP, generic UDP encapsulation, or GRE.", "type = \
            \"gue\"")
            .known_as(&["kind", "name"]),
        Key::new("port", integer((1, 65_535)), Default("6080"), "UDP destination port; `gue` only.", "port = 6081"),
        Key::new(
            "checksum",
            Kind::OneOf(checksums),
            Default("none"),
            "Checksum over the encapsulated packet: `full` for `gue` and `gre`, `remote` (remote checksum offload) \
             for `gue` only.",
            "checksum = \"remote\"",
        )
        .known_as(&["csum"]),
    ],
};

/// Keys of `snat` in table form.
pub(crate) static SNAT: Section = Section {
    path: "service.NAME.snat",
    page: "snat",
    purpose: "Source address translation settings.",
    example: "[pool.far]\nservers = [\"10.1.0.5\"]\n\n[service.far]\nlisten = [\"192.0.2.10:80\"]\nforward = \
              \"nat\"\npool = \"far\"\nsnat = { addresses = [\"10.0.0.1\"], ports = \"20000-32767\" }\n",
    keys: &[
        Key::new(
            "addresses",
            Kind::List(&Kind::Address),
            Absent("the director's own address, selected by the route to the server"),
            "Source addresses. Each must be routed to the director.",
            "addresses = [\"10.0.0.1\", \"10.0.0.2\"]",
        )
        .known_as(&["address"]),
        Key::new(
            "ports",
            Kind::PortRange,
            Default("20000-32767"),
            "Source ports. They must not overlap the ports of the director's own connections, \
             `net.ipv4.ip_local_port_range`; `weir check` warns if they do. With `[sync]`, each director uses its own \
             part of the range; `weir check` shows which.",
            "ports = \"10000-29999\"",
        )
        .known_as(&["port", "port_range"]),
    ],
};

fn underscores() -> Choices {
    Choices {
        values: Underscores::ALL.iter().map(|it| it.as_str()).collect(),
        known_as: &[("on", "keep"), ("off", "drop")],
        ..Choices::default()
    }
}

fn forwarded_formats() -> Choices {
    Choices {
        values: Forwarded::ALL.iter().map(|it| it.as_str()).collect(),
        ..Choices::default()
    }
}
