//! Defines the keys of tables in proxy services: timeouts, limits, logs, cookies.

use weir_model::{RetryCondition, StickyMode, SyslogFormat};

use super::*;

/// Keys of a proxy service's `timeouts`.
pub(crate) static PROXY_TIMEOUTS: Section = Section {
    path: "service.NAME.timeouts",
    page: "proxy-timeouts",
    purpose: "Timeouts of a `proxy` service, with a resolution of 100 ms.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\ntimeouts = { connect = \"2s\", server = \"30s\" }\n",
    keys: &[
        Key::new(
            "request",
            PROXY_TIMEOUT,
            Default("10s"),
            "Maximum time to receive a complete request head, counted from its first byte or, on a new connection, \
             from the time it was accepted. An incomplete head is answered with 408.",
            "request = \"5s\"",
        )
        .known_as(&["http_request", "client_header_timeout"]),
        Key::new(
            "idle",
            PROXY_TIMEOUT,
            Default("1m"),
            "Maximum idle time of a client connection between requests, and of an unused server connection.",
            "idle = \"15s\"",
        )
        .known_as(&["http_keep_alive", "keepalive_timeout"]),
        Key::new(
            "client",
            PROXY_TIMEOUT,
            Default("1m"),
            "Maximum inactivity time of a client while it sends a body or receives a response.",
            "client = \"30s\"",
        )
        .known_as(&["client_body_timeout", "send_timeout"]),
        Key::new(
            "connect",
            PROXY_TIMEOUT,
            Default("5s"),
            "Maximum time to connect to a server. If it expires, another server is tried; if no server is left, the \
             response is 504.",
            "connect = \"1s\"",
        )
        .known_as(&["proxy_connect_timeout"]),
        Key::new(
            "server",
            PROXY_TIMEOUT,
            Default("1m"),
            "Maximum inactivity time of a server while it receives a request body or sends a response. If it expires \
             before the response starts, the client gets 504.",
            "server = \"5m\"",
        )
        .known_as(&["proxy_read_timeout"]),
        Key::new(
            "response",
            PROXY_TIMEOUT,
            Absent("the value of `server`"),
            "Maximum time from sending the request to the first byte of the response. If it expires, the response is \
             504.",
            "response = \"10s\"",
        )
        .known_as(&["first_byte", "time_to_first_byte"]),
        Key::new(
            "tunnel",
            PROXY_TIMEOUT,
            Default("1h"),
            "Maximum inactivity time of either side of a connection to a `tcp` service, a WebSocket connection or \
             another upgraded connection.",
            "tunnel = \"10m\"",
        ),
        Key::new(
            "total",
            PROXY_TIMEOUT,
            Absent("no limit"),
            "Maximum total time of a request, from the end of its head to the end of its response, including all \
             attempts, queueing and bodies. If it expires, the response is 504; a response that has started is \
             aborted.",
            "total = \"2m\"",
        )
        .known_as(&["timeout", "request_total"]),
    ],
};

/// Keys of a proxy service's `limits`.
pub(crate) static PROXY_LIMITS: Section = Section {
    path: "service.NAME.limits",
    page: "proxy-limits",
    purpose: "Limits of a `proxy` service.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\nlimits = { connections = 20000 }\n",
    keys: &[
        Key::new(
            "head",
            size(ProxyLimits::HEAD_RANGE),
            Default("16384"),
            "Maximum size of request and response heads, in bytes. A larger request head is answered with 431; a \
             larger response head results in 502. The request target may be at most half of this size.",
            "head = 32768",
        )
        .known_as(&["bufsize", "large_client_header_buffers"]),
        Key::new(
            "fields",
            integer(ProxyLimits::FIELDS_RANGE),
            Default("100"),
            "Maximum number of header fields in a request or response. A request with more is answered with 431; a \
             response with more results in 502.",
            "fields = 50",
        )
        .known_as(&["maxhdr"]),
        Key::new(
            "connections",
            integer(ProxyLimits::CONNECTIONS_RANGE),
            Default("100000"),
            "Maximum number of client connections. Further clients wait in the kernel's accept queue. The open file \
             limit also applies: each client needs one descriptor, and another one for its server connection.",
            "connections = 20000",
        )
        .known_as(&["maxconn", "worker_connections"]),
        Key::new(
            "retries",
            integer(ProxyLimits::RETRIES_RANGE),
            Default("3"),
            "Number of other servers to try when a connection fails, or when a server closes the connection without a \
             response and the request can be repeated.",
            "retries = 1",
        ),
        Key::new(
            "retry_budget",
            integer(ProxyLimits::RETRY_BUDGET_RANGE),
            Default("100"),
            "Retries allowed, as a percentage of a worker's requests; ten retries per second are always allowed. This \
             prevents retries from multiplying the load when servers fail. Retries after a failed connection attempt \
             do not use the budget.",
            "retry_budget = 20",
        ),
        Key::new(
            "idle_servers",
            integer(ProxyLimits::IDLE_SERVERS_RANGE),
            Default("128"),
            "Idle server connections that each worker keeps for later requests; additional ones are kept for one \
             second. Other workers may take connections that a worker has not needed for a second. 0 = a new \
             connection for each request.",
            "idle_servers = 16",
        )
        .known_as(&["keepalive", "pool_max_conn"]),
        Key::new(
            "server_requests",
            integer(ProxyLimits::SERVER_REQUESTS_RANGE),
            Default("0"),
            "Number of requests after which a server connection is closed. 0 = no limit.",
            "server_requests = 1000",
        )
        .known_as(&["keepalive_requests", "max_reuse"]),
        Key::new(
            "streams",
            integer(ProxyLimits::STREAMS_RANGE),
            Default("128"),
            "Maximum number of concurrent streams of an HTTP/2 client connection. A connection may reset twice this \
             number of streams in a burst, and 20 per second after that.",
            "streams = 64",
        )
        .known_as(&["http2_max_concurrent_streams", "max_concurrent_streams"]),
        Key::new(
            "resets",
            integer(ProxyLimits::RESETS_RANGE),
            Default("100"),
            "Maximum number of HTTP/2 streams per second that one client network (an IPv4 address, an IPv6 /64) may \
             reset before the response, or that Weir resets because of a protocol error, across all connections from \
             the network; bursts may be ten times larger. A network above the limit gets ENHANCE_YOUR_CALM, and cannot \
             open new streams for ten seconds. All clients of the service together may reset a hundred times as many; \
             above that, new streams from networks with recent resets are refused (REFUSED_STREAM). Networks in \
             `trusted` count only toward the service's limit. 0 = no limit.",
            "resets = 1000",
        )
        .known_as(&["max_resets", "rapid_reset"]),
        Key::new(
            "body",
            size((0, u32::MAX)),
            Default("0"),
            "Maximum size of a request body in bytes. Requests with a larger body are rejected with 413. 0 = no limit.",
            "body = \"10MiB\"",
        )
        .known_as(&["client_max_body_size", "max_body"]),
        Key::new(
            "rate",
            RATE,
            Default("0"),
            "Maximum request rate per client of an `http` service, per second or, as in `30/m`, per minute, counted \
             across all workers. Requests above it are answered with 429. 0 = no limit.",
            "rate = 100",
        )
        .known_as(&["limit_req", "requests_per_second"]),
        Key::new(
            "burst",
            integer(ProxyLimits::BURST_RANGE),
            Absent("the number of requests allowed in one second, at least one"),
            "Number of requests that a client may send at once after an idle period.",
            "burst = 200",
        ),
        Key::new(
            "concurrent",
            integer((0, u32::MAX)),
            Default("0"),
            "Maximum number of concurrent requests per client; further requests are answered with 429. 0 = no limit.",
            "concurrent = 20",
        )
        .known_as(&["limit_conn"]),
        Key::new(
            "key",
            Kind::DescribedText("`source`, `header:NAME`, `cookie:NAME` or another part of the request"),
            Default("source"),
            "How `rate` and `concurrent` identify clients; same syntax as the `hash` scheduler's `key`. If a \
             request does not contain the value, the client's address is used.",
            "key = \"header:X-Api-Key\"",
        ),
    ],
};

pub(super) fn retry_conditions() -> Choices {
    Choices {
        values: RetryCondition::ALL.iter().map(|it| it.as_str()).collect(),
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
        values: StickyMode::ALL.iter().map(|mode| mode.as_str()).collect(),
        ..Choices::default()
    }
}

fn syslog_formats() -> Choices {
    Choices {
        values: SyslogFormat::ALL.iter().map(|it| it.as_str()).collect(),
        ..Choices::default()
    }
}

/// Keys of `access_log` in table form.
pub(crate) static ACCESS_LOG: Section = Section {
    path: "service.NAME.access_log",
    page: "access-log",
    purpose: "Access log settings.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\naccess_log = { path = \"/var/log/weir/web.json\", \
              format = \"json\" }\n",
    keys: &[
        Key::new(
            "path",
            Kind::DescribedText("a file, `-`, `syslog`, `syslog:SOCKET`, `journald` or `journald:SOCKET`"),
            Required,
            "Log file; `-` is standard output, `syslog` is the socket `/dev/log`, `journald` is systemd's journal. A \
             file that was renamed or removed, by logrotate for example, is created again; SIGUSR1 makes Weir reopen \
             the file.",
            "path = \"/var/log/weir/access.log\"",
        )
        .known_as(&["file"]),
        Key::new(
            "format",
            Kind::DescribedText("`combined`, `json`, or text with `{names}`"),
            Default("combined"),
            "`combined` (Apache; the size includes the response head), `json` (one object per line), or a template in \
             which `{name}` is replaced by a value: `time` `date` `client` `port` `service` `pool` `server` `method` \
             `target` `version` `host` `referer` `agent` `status` `bytes_in` `bytes_out` `request_ms` `queue_ms` \
             `connect_ms` `response_ms` `total_ms` `retries` `end` `end_reason`. `end` states which side ended the \
             exchange and in which phase, in HAProxy's two-letter codes, `--` if it completed normally; `end_reason` \
             is the same in words. In an `http` service, the variables for header values are also available: \
             `request_id` `route` `scheme` `path` `query` `client_port` `listen_port` `forwarded_for` `tls_version` \
             `tls_cipher` `tls_sni` `client_cert_subject` `header.NAME` `cookie.NAME` `map.NAME`, and `response.NAME` \
             for a response header field. In a `tcp` service, `combined` has its own format: client, port, date, \
             service, pool and server, queue, connect and total time in milliseconds, bytes from and to the client, \
             `end` and `end_reason`.",
            "format = \"{client} {method} {target} {status} {total_ms}\"",
        ),
        Key::new(
            "sample",
            Kind::Integer {
                min: 1,
                max: 1_000_000,
            },
            Default("1"),
            "Logs one in N exchanges. Exchanges with an error, or with a status of 500 or more, are always logged.",
            "sample = 100",
        ),
        Key::new(
            "syslog_format",
            Kind::OneOf(syslog_formats),
            Default("rfc3164"),
            "Format of syslog messages: `rfc3164` without the time and host name, which the syslog daemon adds, or \
             `rfc5424`. The facility is local0 and the severity is info.",
            "syslog_format = \"rfc5424\"",
        ),
    ],
};

/// Keys of a pool's `sticky`.
pub(crate) static STICKY: Section = Section {
    path: "pool.NAME.sticky",
    page: "sticky",
    purpose: "Session affinity for `http` services: a client stays with its first server as long as that server is \
              available.",
    example: "[pool.web]\nservers = [\"10.0.0.5\", \"10.0.0.6\"]\nsticky = { cookie = \"SRV\", secret = \"change \
              me\" }\n",
    keys: &[
        Key::new(
            "cookie",
            Kind::DescribedText("a cookie name"),
            Required,
            "Name of the cookie.",
            "cookie = \"SRV\"",
        )
        .known_as(&["name"]),
        Key::new(
            "mode",
            Kind::OneOf(sticky_modes),
            Default("insert"),
            "`insert`: Weir sets its own cookie and removes it from requests to servers. `rewrite`: Weir replaces the \
             value of a cookie set by the server with the server's identifier. `prefix`: Weir prepends the identifier \
             to the value, and removes it from requests.",
            "mode = \"prefix\"",
        ),
        Key::new(
            "secret",
            Kind::Secret,
            Absent("a key that Weir generates and stores in the runtime directory (`cookie.key`)"),
            "Key for computing server identifiers. Directors with the same secret accept each other's cookies, so \
             directors that share a VIP need the same one; changing it invalidates all cookies. A generated key \
             survives restarts and upgrades; with the default runtime directory it is lost on reboot. The secret is \
             never displayed; see [security.md](../security.md#secrets).",
            "secret = { file = \"/etc/weir/cookie.secret\" }",
        ),
        Key::new(
            "attributes",
            Kind::Text,
            Absent("`Path=/; HttpOnly; SameSite=Lax`, and `Secure` in a service with `tls`"),
            "Attributes of cookies set by Weir, sent verbatim; `\"\"` sends none. Add `Secure` here behind a proxy \
             that terminates TLS. Cross-site clients (forms, frames) need `SameSite=None; Secure`.",
            "attributes = \"Path=/; HttpOnly; Secure; SameSite=None\"",
        ),
        Key::new(
            "private",
            Kind::Flag,
            Default("false"),
            "Adds `Cache-Control: private` to cacheable responses in which Weir inserts the cookie, so that no shared \
             cache sends the cookie to other clients.",
            "private = true",
        )
        .known_as(&["nocache"]),
    ],
};
