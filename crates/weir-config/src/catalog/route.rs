//! Defines the keys of `[[route]]`: routing rules, and changes to requests and responses.

use weir_model::RestartAt;

use super::condition::with_conditions;
use super::*;

const FIELD: Kind = Kind::List(&Kind::DescribedText("`Name: value`"));
const NAME: Kind = Kind::List(&Kind::DescribedText("a name"));
const RESPONSE_FIELD: Kind = Kind::List(&Kind::Either(
    &Kind::DescribedText("`Name: value`"),
    &Kind::Table(&RESPONSE_HEADER),
));

const REPLACEMENTS: Kind = Kind::List(&Kind::Table(&HEADER_REPLACEMENT));

fn restart_positions() -> Choices {
    Choices {
        values: RestartAt::ALL.map(RestartAt::as_str).to_vec(),
        ..Choices::default()
    }
}

const MIRROR: Kind = Kind::Either(&Kind::PoolName, &Kind::Table(&ROUTE_MIRROR));

const REWRITTEN_PATH: Kind =
    Kind::DescribedText("a path, with variables such as `{path}`, `{rest}` or `{1}`");

const RETRY_ON: Kind = Kind::Either(
    &Kind::OneOf(super::proxy::retry_conditions),
    &Kind::Either(&Kind::StatusCodes, &Kind::Integer { min: 400, max: 599 }),
);

// Keys of services and of routes.

pub(super) const SET_HEADER: Key = Key::new(
    "set_header",
    FIELD,
    Absent("request header fields are not changed"),
    "Request header fields to set, replacing fields with the same name. Values may contain variables \
     (docs/manual/proxy.md) except `{server}`, because no server is selected yet. The fields of a route are applied \
     after those of its service.",
    "set_header = [\"X-Tenant: a\", \"X-Real-IP: {client}\"]",
)
.known_as(&["proxy_set_header", "set_request_header"]);

pub(super) const ADD_HEADER: Key = Key::new(
    "add_header",
    FIELD,
    Absent("no request header fields are added"),
    "Request header fields to add, written as in `set_header`. Fields with the same name are kept.",
    "add_header = [\"X-Via: {host}\"]",
)
.known_as(&["add_request_header"]);

pub(super) const REMOVE_HEADER: Key = Key::new(
    "remove_header",
    NAME,
    Absent("request header fields are not changed"),
    "Request header fields to remove.",
    "remove_header = [\"X-Debug\"]",
)
.known_as(&["remove_request_header"]);

pub(super) const SET_RESPONSE_HEADER: Key = Key::new(
    "set_response_header",
    RESPONSE_FIELD,
    Absent("response header fields are not changed"),
    "Response header fields to set, replacing fields with the same name, in responses from servers. A table limits a \
     field to some statuses, or to one file in `files`. Values may contain request variables (docs/manual/proxy.md). A \
     route that generates the response itself adds its own fields, but not the service's. Errors that Weir generates \
     (401, 403, 429, 502 and others) contain none of these fields.",
    "set_response_header = [\"Strict-Transport-Security: max-age=31536000\", { header = \"X-Server: {server}\", status \
     = \"500-599\" }]",
);

pub(super) const ADD_RESPONSE_HEADER: Key = Key::new(
    "add_response_header",
    RESPONSE_FIELD,
    Absent("no response header fields are added"),
    "Response header fields to add, written as in `set_response_header`. Fields with the same name are kept.",
    "add_response_header = [\"Link: </style.css>; rel=preload\"]",
);

pub(super) const REMOVE_RESPONSE_HEADER: Key = Key::new(
    "remove_response_header",
    NAME,
    Absent("response header fields are not changed"),
    "Response header fields to remove.",
    "remove_response_header = [\"Server\"]",
)
.known_as(&["proxy_hide_header"]);

pub(super) const REPLACE_RESPONSE_HEADER: Key = Key::new(
    "replace_response_header",
    REPLACEMENTS,
    Absent("response header fields are not changed"),
    "Response header fields whose values are replaced, in responses from servers. Entries are applied in order, the \
     service's first, and before `set_response_header`. Fields with the same name are handled separately.",
    "replace_response_header = [{ name = \"Location\", regex = \"^http://(.*)\", to = \"https://{1}\" }]",
)
.known_as(&["replace-header", "proxy_redirect"]);

/// Keys of an entry in `replace_response_header`.
pub(crate) static HEADER_REPLACEMENT: Section = Section {
    path: "route.replace_response_header",
    page: "header-replacement",
    purpose: "Uses a regular expression to rewrite the value of a response header field, for example the scheme in \
              `Location`, or the attributes of a cookie.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\npool = \
              \"web\"\nreplace_response_header = [{ name = \"Set-Cookie\", regex = '^(.*)$', to = \"{1}; Secure\" \
              }]\n",
    keys: &[
        Key::new(
            "name",
            Kind::DescribedText("a name"),
            Required,
            "Field name.",
            "name = \"Set-Cookie\"",
        )
        .known_as(&["header"]),
        Key::new(
            "regex",
            Kind::DescribedText("a regular expression"),
            Required,
            "Regular expression to search for in the value, in the syntax of `path_regex`. A value that it does not \
             match is not changed.",
            "regex = \"^(.*)$\"",
        )
        .known_as(&["match", "from"]),
        Key::new(
            "to",
            Kind::DescribedText("text, with the groups `{1}` to `{9}`"),
            Required,
            "The entire new value. `{1}` to `{9}` are the groups of `regex`; other variables are not available.",
            "to = \"{1}; Secure\"",
        )
        .known_as(&["value", "replacement"]),
    ],
};

/// Keys of an entry in `set_response_header` and `add_response_header`.
pub(crate) static RESPONSE_HEADER: Section = Section {
    path: "route.set_response_header",
    page: "response-header",
    purpose: "A response header field that is set only in some responses.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\npool = \
              \"web\"\nset_response_header = [{ header = \"Cache-Control: no-store\", status = \"400-599\" }]\n",
    keys: &[
        Key::new(
            "header",
            Kind::DescribedText("`Name: value`"),
            Required,
            "Field name and value.",
            "header = \"Cache-Control: no-store\"",
        ),
        Key::new(
            "status",
            Kind::Either(&Kind::StatusCodes, &Kind::Integer { min: 100, max: 599 }),
            Absent("all statuses"),
            "Response statuses for which the field is set.",
            "status = \"400-599\"",
        )
        .known_as(&["code", "codes"]),
        Key::new(
            "file",
            Kind::DescribedText("a path below `root` of `files`"),
            Absent("all responses"),
            "File in the route's `files`: the field is set only if this file is sent, regardless of the request path.",
            "file = \"/index.html\"",
        ),
    ],
};

/// Keys of `[[route]]`.
pub(crate) static ROUTE: Section = Section {
    path: "route",
    page: "route",
    purpose: "Routes requests to `http` services. Routes of `tcp` services support only the conditions `host` and \
              `source`, and the actions `pool` and `close`. Routes are evaluated in file order; the first route whose \
              conditions all hold applies. If no route matches, the service's own pool is used.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\nhost = \
              \"*.example\"\npath = \"/old/*\"\nredirect = \"https://{host}/new/\"\n",
    keys: with_conditions!([
        Key::new("service", Kind::ServiceName, Required, "Service whose requests are routed.", "service = \"images\"")
            .known_as(&["frontend"]),
    ], [
        Key::new(
            "not",
            Kind::Table(&ROUTE_NOT),
            Absent("no negated conditions"),
            "Conditions that must not hold, with the same keys: the route matches only if none of their values \
             matches.",
            "not.path = [\"/public/*\", \"/status\"]",
        )
        .known_as(&["unless"]),
        Key::new(
            "split",
            Kind::List(&Kind::DescribedText("`POOL:WEIGHT`")),
            Absent("one pool"),
            "Pools among which requests are distributed at random by weight, instead of `pool`.",
            "split = [\"images:9\", \"images:1\"]",
        )
        .known_as(&["weights"]),
        Key::new(
            "split_by",
            Kind::DescribedText("text with variables"),
            Absent("requests are distributed at random"),
            "Text whose hash selects the pool in `split`: requests with the same text use the same pool. It may \
             contain variables (docs/manual/proxy.md). The range of the hash is divided among the pools in list order, \
             as with nginx's `split_clients`, so that nginx and Weir make the same selection.",
            "split_by = \"{client}\"",
        )
        .known_as(&["split_clients", "hash"]),
        Key::new(
            "server",
            Kind::PoolServer,
            Absent("the scheduler selects a server"),
            "Server that receives the requests while it is usable, written as in the pool. Otherwise, and for retries, \
             the scheduler selects one. It takes precedence over the cookie of `sticky`.",
            "server = \"10.0.0.5\"",
        )
        .known_as(&["use-server"]),
        Key::new(
            "restart",
            Kind::OneOf(restart_positions),
            Absent("the route's action applies"),
            "Instead of an action: rewrites the path with `rewrite`, and evaluates routes with the new path, starting \
             with the `first` or the `next` route. If the `regex` of `rewrite` does not match, evaluation continues \
             with the next route. Users, limits and header changes are those of the route that is finally selected. \
             After 10 rewrites of a request, the response is 500.",
            "restart = \"first\"",
        )
        .known_as(&["last"]),
        Key::new(
            "rewrite",
            Kind::Either(&REWRITTEN_PATH, &Kind::Table(&ROUTE_REWRITE)),
            Absent("the path is not changed"),
            "Path sent to the server. `{path}` is the request path, `{rest}` the part after the fixed prefix of `path` \
             (up to its first `*`), and `{1}` to `{9}` the groups of `path_regex`, all normalized as for the `path` \
             condition. Other variables (docs/manual/proxy.md) are percent-encoded. The query is kept, after any query \
             in the text, unless the text ends with `?`. `{ regex = EXPRESSION, to = PATH }` changes only paths in \
             which the expression matches.",
            "rewrite = \"/v2/{rest}\"",
        )
        .known_as(&["replace-path", "set-path"]),
        SET_HEADER,
        ADD_HEADER,
        REMOVE_HEADER,
        SET_RESPONSE_HEADER,
        ADD_RESPONSE_HEADER,
        REMOVE_RESPONSE_HEADER,
        REPLACE_RESPONSE_HEADER,
        Key::new(
            "response_status",
            integer((200, 599)),
            Absent("the server's status"),
            "Status code that replaces the one in servers' responses, for example for a page that a server sends \
             instead of an error. Responses with 204 or 304 keep their status.",
            "response_status = 404",
        )
        .known_as(&["set-status"]),
        Key::new(
            "timeouts",
            Kind::Table(&ROUTE_TIMEOUTS),
            Absent("the service's timeouts"),
            "Timeouts for the route's requests; they override the service's.",
            "timeouts = { server = \"5m\" }",
        ),
        Key::new(
            "retries",
            integer(ProxyLimits::RETRIES_RANGE),
            Absent("the service's `limits.retries`"),
            "Number of other servers to try; overrides the service's.",
            "retries = 1",
        ),
        Key::new(
            "max_body",
            size((0, u32::MAX)),
            Absent("the service's `limits.body`"),
            "Maximum size of a request body in bytes; overrides the service's limit. Requests with a larger body are \
             rejected with 413. 0 = no limit.",
            "max_body = \"10MiB\"",
        )
        .known_as(&["client_max_body_size"]),
        Key::new(
            "compression",
            Kind::Either(&Kind::Flag, &Kind::Table(&COMPRESSION)),
            Absent("the service's setting"),
            "Response compression; overrides the service's.",
            "compression = false",
        )
        .known_as(&["gzip"]),
        Key::new(
            "x_forwarded",
            Kind::Table(&X_FORWARDED),
            Absent("the service's `x_forwarded`"),
            "Rules for individual `X-Forwarded-…` fields and `X-Real-IP` in requests to servers. They replace all of \
             the service's rules.",
            "x_forwarded = { for = \"keep\" }",
        ),
        Key::new(
            "access_log",
            Kind::Flag,
            Absent("the service's setting"),
            "Whether the route's requests are written to the service's access log.",
            "access_log = false",
        ),
        Key::new(
            "retry_on",
            Kind::List(&RETRY_ON),
            Absent("the service's `retry_on`"),
            "Failures after which a request is sent to another server; they override the service's.",
            "retry_on = [\"connect\", \"503\"]",
        )
        .known_as(&["retry-on", "proxy_next_upstream"]),
        Key::new(
            "mirror",
            Kind::Either(&MIRROR, &Kind::List(&MIRROR)),
            Absent("requests are not copied"),
            "Pool that receives copies of the route's requests; responses to the copies are discarded. A copy is sent \
             after the request has been received; it never delays or changes the response to the client. Requests for \
             a protocol upgrade, such as WebSocket, are not copied. With a list of up to 8 pools, each pool receives a \
             copy.",
            "mirror = \"images\"",
        )
        .known_as(&["shadow", "request_mirror_policies", "mirroring"]),
        basic_auth::ROUTE_KEY,
        forward_auth::ROUTE_KEY,
        Key::new(
            "limits",
            Kind::Table(&ROUTE_LIMITS),
            Absent("only the service's limits"),
            "Limits on each client's requests to the route, in addition to the service's limits.",
            "limits = { rate = \"30/m\", burst = 5 }",
        )
        .known_as(&["limit_req", "limit_conn", "limit"]),
        Key::new(
            "max_connections",
            integer((0, u32::MAX)),
            Default("0"),
            "Maximum number of concurrent requests to the route, from all clients together; further requests are \
             answered with 503. 0 = no limit.",
            "max_connections = 100",
        )
        .known_as(&["maxconn"]),
        Key::new(
            "pool",
            Kind::Either(&Kind::PoolName, &Kind::Table(&ROUTE_POOL)),
            Absent("none; the route then needs another action, such as `redirect` or `status`"),
            "The pool whose servers are used; `{ map = NAME }` selects the pool with a map.",
            "pool = \"images\"",
        )
            .known_as(&["backend", "use_backend", "proxy_pass"]),
        Key::new(
            "redirect",
            Kind::DescribedText("a URL"),
            Absent("no redirect"),
            "Redirect target. The status is `status`, or 302. All variables (docs/manual/proxy.md) except `{server}` \
             may be used; their values are percent-encoded where necessary. `{path}` is the path as received and \
             includes the query; if `{query}` is used too, it is the normalized path without the query.",
            "redirect = \"https://{host}{path}\"",
        )
        .known_as(&["return", "location"]),
        Key::new(
            "status",
            integer((200, 599)),
            Absent("302 with `redirect`"),
            "Status of a redirect (300 to 399, except 304), of a response generated by Weir, or, with `files`, of the \
             response if no file is found.",
            "status = 308",
        ),
        Key::new(
            "body",
            Kind::DescribedText("any text"),
            Absent("the reason phrase of the status"),
            "Body of a response generated by Weir, as plain text. It may contain variables (docs/manual/proxy.md) \
             except `{server}`.",
            "body = \"Down for maintenance\\n\"",
        ),
        files::ROUTE_KEY,
        Key::new(
            "close",
            Kind::Flag,
            Default("false"),
            "Whether Weir closes the client's connection without a response. Over HTTP/2, it resets the stream.",
            "close = true",
        )
        .known_as(&["silent-drop", "444"]),
    ]),
};

/// Keys of a route's `rewrite` in table form.
pub(crate) static ROUTE_REWRITE: Section = Section {
    path: "route.rewrite",
    page: "route-rewrite",
    purpose: "Uses a regular expression to rewrite the path sent to the server. The expression does not limit which \
              requests the route matches.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\npool = \"web\"\n\
              rewrite = { regex = '^/a/(.*)$', to = \"/b/{1}\" }\n",
    keys: &[
        Key::new(
            "regex",
            Kind::DescribedText("a regular expression"),
            Required,
            "Regular expression to search for in the path, with the same syntax and normalization as `path_regex`. A \
             path that it does not match is sent unchanged.",
            "regex = \"^/a/(.*)$\"",
        )
        .known_as(&["from", "match"]),
        Key::new(
            "to",
            REWRITTEN_PATH,
            Required,
            "The entire path that is sent instead. `{1}` to `{9}` are the groups of `regex`; other variables are the \
             same as in `rewrite` without a table. The query is kept.",
            "to = \"/b/{1}\"",
        )
        .known_as(&["path", "replacement"]),
    ],
};

/// Keys of a route's `mirror` in table form.
pub(crate) static ROUTE_MIRROR: Section = Section {
    path: "route.mirror",
    page: "route-mirror",
    purpose: "Copies a route's requests to another pool. A copy is not sent if the limits of this table do not allow \
              it, or if the pool has no usable server with a free slot; it is never retried or queued. `weir status \
              --json` and the metrics count the copies that were sent, that failed and that were skipped.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[pool.canary]\nservers = [\"10.0.0.9\"]\n\n\
              [service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n\
              [[route]]\nservice = \"web\"\npool = \"web\"\nmirror = { pool = \"canary\", percent = 5 }\n",
    keys: &[
        Key::new(
            "pool",
            Kind::PoolName,
            Required,
            "Pool that receives the copies.",
            "pool = \"images\"",
        )
        .known_as(&["backend", "cluster"]),
        Key::new(
            "percent",
            Kind::Factor {
                min: 0,
                max: Mirror::ALL,
            },
            Default("100"),
            "Percentage of the requests to copy, chosen at random.",
            "percent = 2.5",
        )
        .known_as(&["fraction", "runtime_fraction", "share"]),
        Key::new(
            "body",
            size((0, Mirror::BODY.1)),
            Default("65536"),
            "Maximum body size in bytes. Requests with a larger body are not copied. 0 = the copies have no body.",
            "body = \"1MiB\"",
        )
        .known_as(&["mirror_request_body", "maxBodySize"]),
        Key::new(
            "concurrent",
            integer((1, Mirror::CONCURRENT.1)),
            Default("100"),
            "Maximum number of concurrent copies. While this number is in progress, further requests are not copied.",
            "concurrent = 20",
        ),
        Key::new(
            "path",
            Kind::DescribedText("a path"),
            Absent("the path sent to the server that handles the request"),
            "Path of the copies. The request's query is kept.",
            "path = \"/copies\"",
        ),
    ],
};

const ROUTE_TIMEOUT: Kind = Kind::Duration {
    min: ProxyTimeouts::BOUNDS.0,
    max: ProxyTimeouts::BOUNDS.1,
};

/// Keys of a route's `timeouts`.
pub(crate) static ROUTE_TIMEOUTS: Section = Section {
    path: "route.timeouts",
    page: "route-timeouts",
    purpose: "Timeouts for a route's requests; they override the service's. Keys that are not set keep the service's \
              values.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\npath = \
              \"/report/*\"\npool = \"web\"\ntimeouts = { server = \"10m\" }\n",
    keys: &[
        Key::new(
            "client",
            ROUTE_TIMEOUT,
            AS_SERVICE,
            "Maximum inactivity time of the client.",
            "client = \"30s\"",
        ),
        Key::new(
            "connect",
            ROUTE_TIMEOUT,
            AS_SERVICE,
            "Maximum time to connect to a server.",
            "connect = \"1s\"",
        ),
        Key::new(
            "server",
            ROUTE_TIMEOUT,
            AS_SERVICE,
            "Maximum inactivity time of a server.",
            "server = \"5m\"",
        ),
        Key::new(
            "response",
            ROUTE_TIMEOUT,
            Absent("the route's `server` if it is set, otherwise the service's `response`"),
            "Maximum time to the first byte of the response.",
            "response = \"10s\"",
        ),
        Key::new(
            "tunnel",
            ROUTE_TIMEOUT,
            AS_SERVICE,
            "Maximum inactivity time of an upgraded connection.",
            "tunnel = \"10m\"",
        ),
        Key::new(
            "total",
            ROUTE_TIMEOUT,
            AS_SERVICE,
            "Maximum total time of a request.",
            "total = \"2m\"",
        ),
    ],
};

/// Keys of a route's `limits`.
pub(crate) static ROUTE_LIMITS: Section = Section {
    path: "route.limits",
    page: "route-limits",
    purpose: "Limits on each client's requests to a route. They apply in addition to the service's limits. Requests \
              above a limit are answered with 429.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\npath = \
              \"/login\"\npool = \"web\"\nlimits = { rate = \"30/m\", burst = 5 }\n",
    keys: &[
        Key::new(
            "rate",
            RATE,
            Absent("no limit"),
            "Maximum request rate per client, per second or, as in `30/m`, per minute.",
            "rate = \"30/m\"",
        )
        .known_as(&["requests", "limit_req"]),
        Key::new(
            "burst",
            integer(ProxyLimits::BURST_RANGE),
            Absent("the number of requests allowed in one second, at least one"),
            "Number of requests that a client may send at once after an idle period.",
            "burst = 5",
        ),
        Key::new(
            "concurrent",
            integer((0, u32::MAX)),
            Absent("no limit"),
            "Maximum number of concurrent requests per client.",
            "concurrent = 2",
        )
        .known_as(&["limit_conn"]),
        Key::new(
            "key",
            Kind::DescribedText(
                "`source`, `header:NAME`, `cookie:NAME` or another part of the request",
            ),
            Default("source"),
            "How clients are identified, as in the service's `limits`.",
            "key = \"header:X-Api-Key\"",
        ),
    ],
};

const AS_SERVICE: Presence = Absent("the service's setting");
