//! Sections that only `forward = "proxy"` reads: timeouts, limits, logs, cookies.

use weir_model::{RetryCondition, StickyMode};

use super::*;

/// `timeouts` of a proxy service.
pub(crate) static PROXY_TIMEOUTS: Section = Section {
    path: "service.NAME.timeouts",
    page: "proxy-timeouts",
    purpose: "How long a `proxy` service waits for what. Timers are coarse: a tenth of a second.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\ntimeouts = { connect = \"2s\", server = \"30s\" }\n",
    keys: &[
        Key::new(
            "request",
            WAIT,
            Default("10s"),
            "For a whole request head, from its first octet; of a new connection, from its start. A head that began is \
             answered 408.",
            "request = \"5s\"",
        )
        .known_as(&["http_request", "client_header_timeout"]),
        Key::new(
            "idle",
            WAIT,
            Default("1m"),
            "For the next request of a client, and for the next use of a connection to a server.",
            "idle = \"15s\"",
        )
        .known_as(&["http_keep_alive", "keepalive_timeout"]),
        Key::new(
            "client",
            WAIT,
            Default("1m"),
            "For a client that is to send a body, or to take a response, and does not.",
            "client = \"30s\"",
        )
        .known_as(&["client_body_timeout", "send_timeout"]),
        Key::new(
            "connect",
            WAIT,
            Default("5s"),
            "For a server to accept a connection. Then another is tried, and the last is answered 504.",
            "connect = \"1s\"",
        )
        .known_as(&["proxy_connect_timeout"]),
        Key::new(
            "server",
            WAIT,
            Default("1m"),
            "For a server that is to take a body or to begin its response, and does not, which is answered 504; and for a response to go on.",
            "server = \"5m\"",
        )
        .known_as(&["proxy_read_timeout"]),
        Key::new(
            "response",
            WAIT,
            Absent("what `server` says"),
            "For a response to begin, from the moment that the server was asked: its first octet. What does not is answered 504.",
            "response = \"10s\"",
        )
        .known_as(&["first_byte", "time_to_first_byte"]),
        Key::new(
            "tunnel",
            WAIT,
            Default("1h"),
            "For either side of a `tcp` service, or of WebSocket and whatever else a client upgraded to.",
            "tunnel = \"10m\"",
        ),
        Key::new(
            "total",
            WAIT,
            Absent("as long as it takes"),
            "For a whole request, from the end of its head to the end of its response, all attempts, queues and bodies \
             included. What has no answer then is answered 504; a response that has begun is cut off.",
            "total = \"2m\"",
        )
        .known_as(&["timeout", "request_total"]),
    ],
};

/// `limits` of a proxy service.
pub(crate) static PROXY_LIMITS: Section = Section {
    path: "service.NAME.limits",
    page: "proxy-limits",
    purpose: "How much a `proxy` service takes.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\nlimits = { connections = 20000 }\n",
    keys: &[
        Key::new(
            "head",
            size(ProxyLimits::HEAD),
            Default("16384"),
            "Octets of a request's head, which is else answered 431, and of a response's, else 502. A target may take \
             half of it.",
            "head = 32768",
        )
        .known_as(&["bufsize", "large_client_header_buffers"]),
        Key::new(
            "fields",
            integer(ProxyLimits::FIELDS),
            Default("100"),
            "Header fields of a head.",
            "fields = 50",
        )
        .known_as(&["maxhdr"]),
        Key::new(
            "connections",
            integer(ProxyLimits::CONNECTIONS),
            Default("100000"),
            "Clients connected at once. Further ones wait in the kernel until one leaves. What the limit of open files allows is never \
             exceeded: each client needs a descriptor, and another for its server.",
            "connections = 20000",
        )
        .known_as(&["maxconn", "worker_connections"]),
        Key::new(
            "retries",
            integer(ProxyLimits::RETRIES),
            Default("3"),
            "Other servers that are tried when one cannot be reached, or ends without a word and the request may be \
             repeated.",
            "retries = 1",
        ),
        Key::new(
            "retry_budget",
            integer(ProxyLimits::RETRY_BUDGET),
            Default("100"),
            "Requests that may be sent to a second server, in percent of all of a worker's; ten in a second always may. So failing \
             servers never get a multiple of the load. Attempts at a server that could not be reached cost nothing of it.",
            "retry_budget = 20",
        ),
        Key::new(
            "idle_servers",
            integer(ProxyLimits::IDLE_SERVERS),
            Default("128"),
            "Connections to a server that each worker keeps for later requests; those beyond it are kept for a second. What a worker \
             did not need for a second its neighbours may take. 0 = a new one for each request.",
            "idle_servers = 16",
        )
        .known_as(&["keepalive", "pool_max_conn"]),
        Key::new(
            "server_requests",
            integer(ProxyLimits::SERVER_REQUESTS),
            Default("0"),
            "Requests that one connection to a server serves; then it is closed. 0 = any number.",
            "server_requests = 1000",
        )
        .known_as(&["keepalive_requests", "max_reuse"]),
        Key::new(
            "streams",
            integer(ProxyLimits::STREAMS),
            Default("128"),
            "Requests that one connection of an HTTP/2 client may have under way; it may reset twice as many, and 20 more in \
             each second.",
            "streams = 64",
        )
        .known_as(&["http2_max_concurrent_streams", "max_concurrent_streams"]),
        Key::new(
            "resets",
            integer(ProxyLimits::RESETS),
            Default("100"),
            "HTTP/2 streams a second that one client network (an IPv4 address, an IPv6 /64) may reset before they \
             are answered, or make Weir reset by an error, over all its connections; ten times as many at once. A \
             network above that gets ENHANCE_YOUR_CALM, and no new streams for ten seconds. All clients of the \
             service together may reset a hundred times as many; above that, networks that reset some recently \
             have new streams refused (REFUSED_STREAM). Networks in `trusted` count for the service only. 0 = no \
             limit.",
            "resets = 1000",
        )
        .known_as(&["max_resets", "rapid_reset"]),
        Key::new(
            "body",
            size((0, u32::MAX)),
            Default("0"),
            "Octets of a request's body, which is else answered 413. 0 = any number.",
            "body = \"10MiB\"",
        )
        .known_as(&["client_max_body_size"]),
        Key::new(
            "rate",
            integer(ProxyLimits::RATE),
            Default("0"),
            "Requests a second of one client of an `http` service, counted for all workers together; further ones are answered \
             429. 0 = any number.",
            "rate = 100",
        )
        .known_as(&["limit_req", "requests_per_second"]),
        Key::new(
            "burst",
            integer(ProxyLimits::RATE),
            Absent("as many as `rate`"),
            "Requests that a client may make at once after a silence.",
            "burst = 200",
        ),
        Key::new(
            "concurrent",
            integer((0, u32::MAX)),
            Default("0"),
            "Requests of one client under way at once; further ones are answered 429. 0 = any number.",
            "concurrent = 20",
        )
        .known_as(&["limit_conn"]),
        Key::new(
            "key",
            Kind::Words("`source`, `header:NAME`, `cookie:NAME` or another part of the request"),
            Default("source"),
            "By what `rate` and `concurrent` tell clients apart: what the scheduler `hash` may hash. A request that has none goes by \
             its client's address.",
            "key = \"header:X-Api-Key\"",
        ),
    ],
};

pub(super) fn retry_conditions() -> Choices {
    Choices {
        now: RetryCondition::ALL.iter().map(|one| one.as_str()).collect(),
        known_as: &[
            ("conn-failure", "connect"),
            ("empty-response", "empty"),
            ("response-timeout", "timeout"),
            ("junk-response", "malformed"),
            ("invalid_header", "malformed"),
        ],
        ..Choices::default()
    }
}

fn sticky_modes() -> Choices {
    Choices {
        now: StickyMode::ALL.iter().map(|mode| mode.as_str()).collect(),
        ..Choices::default()
    }
}

/// `access_log` as a table.
pub(crate) static ACCESS_LOG: Section = Section {
    path: "service.NAME.access_log",
    page: "access-log",
    purpose: "An access log in a format of your choice.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\naccess_log = { path = \"/var/log/weir/web.json\", format = \
              \"json\" }\n",
    keys: &[
        Key::new(
            "path",
            Kind::Words("a file, or `-`"),
            Required,
            "The file; `-` is standard output.",
            "path = \"/var/log/weir/access.log\"",
        )
        .known_as(&["file"]),
        Key::new(
            "format",
            Kind::Words("`combined`, `json`, or text with `{names}`"),
            Default("combined"),
            "Apache's combined format, a JSON object a line, or text of your own in which `{name}` stands for a value: `time` \
             `date` `client` `port` `service` `pool` `server` `method` `target` `version` `host` `referer` `agent` `status` \
             `bytes_in` `bytes_out` `request_ms` `queue_ms` `connect_ms` `response_ms` `total_ms` `retries` `end` `end_reason`. \
             `end` is who ended the exchange and in which phase, in HAProxy's two letters, `--` where it was completed; \
             `end_reason` is the same in words. In a `tcp` service `combined` writes a format of its own: client, port, date, \
             service, pool and server, milliseconds in the queue, of connecting and in all, bytes from and to the client, \
             `end` and `end_reason`.",
            "format = \"{client} {method} {target} {status} {total_ms}\"",
        ),
    ],
};

/// `sticky` of a pool.
pub(crate) static STICKY: Section = Section {
    path: "pool.NAME.sticky",
    page: "sticky",
    purpose: "A client of `http` services stays with the server that it got first, as long as that one is usable.",
    example: "[pool.web]\nservers = [\"10.0.0.5\", \"10.0.0.6\"]\nsticky = { cookie = \"SRV\", secret = \"change me\" }\n",
    keys: &[
        Key::new(
            "cookie",
            Kind::Words("a cookie's name"),
            Required,
            "The cookie's name.",
            "cookie = \"SRV\"",
        )
        .known_as(&["name"]),
        Key::new(
            "mode",
            Kind::OneOf(sticky_modes),
            Default("insert"),
            "`insert`: Weir sets a cookie of its own, which servers never see. `rewrite`: the server sets it, and Weir puts the \
             server's sign in place of the value. `prefix`: in front of the value, and takes it off again for the server.",
            "mode = \"prefix\"",
        ),
        Key::new(
            "secret",
            Kind::Secret,
            Absent("a key that Weir generates and keeps in the runtime directory (`cookie.key`)"),
            "What the server's sign is computed with. Directors with the same secret accept each other's cookies, so those that share \
             a VIP need one; another secret makes all cookies invalid. A generated key survives restarts and upgrades, and with \
             the default runtime directory ends with a reboot. It is never shown; see [security.md](../security.md#secrets).",
            "secret = { file = \"/etc/weir/cookie.secret\" }",
        ),
        Key::new(
            "attributes",
            Kind::Text,
            Absent("`Path=/; HttpOnly; SameSite=Lax`, and `Secure` in a service with `tls`"),
            "Attributes of a cookie that Weir sets, sent as they are written; `\"\"` sends none. Behind a proxy that ends TLS, write \
             `Secure` here. Clients that come from other sites, by a form or in a frame, need `SameSite=None; Secure`.",
            "attributes = \"Path=/; HttpOnly; Secure; SameSite=None\"",
        ),
    ],
};
