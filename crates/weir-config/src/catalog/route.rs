//! `[[route]]`: which requests go where, and what is changed of them.

use super::*;

/// `[[route]]`.
pub(crate) static ROUTE: Section = Section {
    path: "route",
    page: "route",
    purpose: "Which requests of an `http` service go where, and by `host` and `pool` which connections of a `tcp` service. Routes are tried in the order of the file, and the first whose \
              conditions all hold decides; without one the request goes to the service's own pool.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\nhost = \
              \"*.example\"\npath = \"/old/*\"\nredirect = \"https://{host}/new/\"\n",
    keys: &[
        Key::new("service", Kind::ServiceName, Required, "The service whose requests it is for.", "service = \"images\"")
            .known_as(&["frontend"]),
        Key::new(
            "host",
            Kind::Words("a host, or `*.` and a host"),
            Absent("any host"),
            "The host that is asked for, without its port; `*.example` is every host below `example`. In a `tcp` service the \
             name that a client of TLS asks for (SNI), whoever ends TLS.",
            "host = \"static.example\"",
        )
        .known_as(&["server_name", "hosts"]),
        Key::new(
            "path",
            Kind::Words("a path, with `*` for any characters"),
            Absent("any path"),
            "The path without the query, in the form that `normalize_path` of the service says: normalized, \
             unless it says otherwise. `*` stands for any characters, none included: `/img/*`.",
            "path = \"/img/*\"",
        )
        .known_as(&["location", "prefix", "url"]),
        Key::new(
            "path_regex",
            Kind::Words("a regular expression"),
            Absent("any path"),
            "An expression of the Rust crate `regex` that is found in the path, in the same form as `path`; `^` and `$` tie it to its \
             ends, `(?i)` ignores case. It takes time by the path's length alone.",
            "path_regex = '^/users/([0-9]+)$'",
        )
        .known_as(&["regex", "path_reg", "path_regexp"]),
        Key::new(
            "method",
            Kind::List(&Kind::Words("a method")),
            Absent("any method"),
            "Methods, one of which it must be.",
            "method = [\"GET\", \"HEAD\"]",
        )
        .known_as(&["methods"]),
        Key::new(
            "header",
            Kind::List(&Kind::Words("`Name` or `Name: value`")),
            Absent("any header"),
            "Header fields that must all be there, with just that value where one is written. `*` in a value, for any characters, is \
             not built yet and rejected.",
            "header = [\"X-Beta\", \"Accept: text/html\"]",
        )
        .known_as(&["headers"]),
        Key::new(
            "query",
            Kind::List(&Kind::Words("`name` or `name=value`")),
            Absent("any query"),
            "Parameters of the query that must all be there, with just that value where one is written; as they are sent. `*` is not \
             built yet and rejected.",
            "query = [\"version=2\"]",
        ),
        Key::new(
            "cookie",
            Kind::List(&Kind::Words("`name` or `name=value`")),
            Absent("any cookies"),
            "Cookies that must all be there, with just that value where one is written. `*` is not built yet and rejected.",
            "cookie = [\"beta=yes\"]",
        ),
        Key::new(
            "source",
            Kind::List(&Kind::Network),
            Absent("any client"),
            "Networks of clients, of one of which it must be; behind trusted proxies, by the PROXY protocol's word.",
            "source = [\"10.0.0.0/8\"]",
        )
        .known_as(&["src", "allow"]),
        Key::new(
            "split",
            Kind::List(&Kind::Words("`POOL:WEIGHT`")),
            Absent("one pool"),
            "Pools, each request to one of them by chance and weight, in place of `pool`.",
            "split = [\"images:9\", \"images:1\"]",
        )
        .known_as(&["split_clients", "weights"]),
        Key::new(
            "rewrite",
            Kind::Words("a path, with `{path}`, `{rest}` or `{1}`"),
            Absent("the server is asked for the same path"),
            "The path that the server is asked for. `{path}` is the request's, `{rest}` what stands behind the fixed beginning of \
             `path`, up to its first `*`, `{1}` to `{9}` what a group of `path_regex` found; all of them in the form that was compared. \
             The query stays.",
            "rewrite = \"/v2/{rest}\"",
        )
        .known_as(&["replace-path", "set-path"]),
        Key::new(
            "set_header",
            Kind::List(&Kind::Words("`Name: value`")),
            Absent("requests keep their fields"),
            "Fields that the server gets, in place of those that the request has by these names. Values are sent as they are written; \
             variables such as `{client}` are not built yet and rejected.",
            "set_header = [\"X-Tenant: a\"]",
        )
        .known_as(&["proxy_set_header", "add_request_header"]),
        Key::new(
            "remove_header",
            Kind::List(&Kind::Words("a name")),
            Absent("requests keep their fields"),
            "Fields that the server does not get.",
            "remove_header = [\"X-Debug\"]",
        ),
        Key::new(
            "set_response_header",
            Kind::List(&Kind::Words("`Name: value`")),
            Absent("responses keep their fields"),
            "Fields that the client gets, in place of those that the response has by these names. Values are sent as they are written; \
             variables such as `{client}` are not built yet and rejected.",
            "set_response_header = [\"Strict-Transport-Security: max-age=31536000\"]",
        )
        .known_as(&["add_header"]),
        Key::new(
            "remove_response_header",
            Kind::List(&Kind::Words("a name")),
            Absent("responses keep their fields"),
            "Fields that the client does not get.",
            "remove_response_header = [\"Server\"]",
        )
        .known_as(&["proxy_hide_header"]),
        Key::new("pool", Kind::PoolName, Absent("the route splits, redirects or answers"), "The pool whose servers are used.", "pool = \"images\"")
            .known_as(&["backend", "use_backend", "proxy_pass"]),
        Key::new(
            "redirect",
            Kind::Words("a URL"),
            Absent("nobody is sent elsewhere"),
            "Where the client is sent, by `status` or 302. `{host}` and `{path}` (with the query) are the request's, as it was received; \
             other variables are not built yet and rejected.",
            "redirect = \"https://{host}{path}\"",
        )
        .known_as(&["return", "location"]),
        Key::new(
            "status",
            integer((200, 599)),
            Absent("302 with `redirect`"),
            "Status of an answer of Weir's own, or of a redirect.",
            "status = 308",
        ),
        Key::new(
            "body",
            Kind::Words("any text"),
            Absent("the status in words"),
            "Body of an answer of Weir's own, as plain text. Variables such as `{client}` are not built yet and rejected.",
            "body = \"Gone fishing\\n\"",
        ),
    ],
};
