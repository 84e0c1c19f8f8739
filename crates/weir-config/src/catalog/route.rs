//! `[[route]]`: routing rules and modifications of requests and responses.

use super::*;

/// `[[route]]`.
pub(crate) static ROUTE: Section = Section {
    path: "route",
    page: "route",
    purpose: "Routing of `http` service requests, and, by `host` and `pool`, of `tcp` service connections. Routes are \
              evaluated in file order; the first whose conditions all hold applies. Without a match, the service's \
              own pool is used.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\nhost = \
              \"*.example\"\npath = \"/old/*\"\nredirect = \"https://{host}/new/\"\n",
    keys: &[
        Key::new("service", Kind::ServiceName, Required, "Service that the route belongs to.", "service = \"images\"")
            .known_as(&["frontend"]),
        Key::new(
            "host",
            Kind::DescribedText("a host name, or `*.` followed by one"),
            Absent("any host"),
            "Requested host, without port; `*.example` matches every host below `example`. In a `tcp` service, the \
             SNI of a TLS client, whether or not Weir terminates TLS.",
            "host = \"static.example\"",
        )
        .known_as(&["server_name", "hosts"]),
        Key::new(
            "path",
            Kind::DescribedText("a path, with `*` for any characters"),
            Absent("any path"),
            "Path without query, as normalized by `normalize_path` of the service. `*` matches any number of \
             characters, including none: `/img/*`.",
            "path = \"/img/*\"",
        )
        .known_as(&["location", "prefix", "url"]),
        Key::new(
            "path_regex",
            Kind::DescribedText("a regular expression"),
            Absent("any path"),
            "Regular expression (syntax of the Rust crate `regex`) to search for in the path, in the same form as \
             `path`; `^` and `$` anchor it, `(?i)` ignores case. Matching time is linear in the length of the path.",
            "path_regex = '^/users/([0-9]+)$'",
        )
        .known_as(&["regex", "path_reg", "path_regexp"]),
        Key::new(
            "method",
            Kind::List(&Kind::DescribedText("a method")),
            Absent("any method"),
            "Allowed methods; the request must use one of them.",
            "method = [\"GET\", \"HEAD\"]",
        )
        .known_as(&["methods"]),
        Key::new(
            "header",
            Kind::List(&Kind::DescribedText("`Name` or `Name: value`")),
            Absent("any header"),
            "Required header fields, each with exactly the given value if there is one. Wildcards (`*`) are not \
             implemented yet and are rejected.",
            "header = [\"X-Beta\", \"Accept: text/html\"]",
        )
        .known_as(&["headers"]),
        Key::new(
            "query",
            Kind::List(&Kind::DescribedText("`name` or `name=value`")),
            Absent("any query"),
            "Required query parameters, each with exactly the given value if there is one, compared without decoding. \
             Wildcards (`*`) are not implemented yet and are rejected.",
            "query = [\"version=2\"]",
        ),
        Key::new(
            "cookie",
            Kind::List(&Kind::DescribedText("`name` or `name=value`")),
            Absent("any cookies"),
            "Required cookies, each with exactly the given value if there is one. Wildcards (`*`) are not implemented \
             yet and are rejected.",
            "cookie = [\"beta=yes\"]",
        ),
        Key::new(
            "source",
            Kind::List(&Kind::Network),
            Absent("any client"),
            "Client networks; the client address must be in one of them. Behind trusted proxies, the address from the \
             PROXY protocol is used.",
            "source = [\"10.0.0.0/8\"]",
        )
        .known_as(&["src", "allow"]),
        Key::new(
            "split",
            Kind::List(&Kind::DescribedText("`POOL:WEIGHT`")),
            Absent("one pool"),
            "Pools to distribute requests over, randomly by weight, instead of `pool`.",
            "split = [\"images:9\", \"images:1\"]",
        )
        .known_as(&["split_clients", "weights"]),
        Key::new(
            "rewrite",
            Kind::DescribedText("a path, with `{path}`, `{rest}` or `{1}`"),
            Absent("the path is not changed"),
            "Path sent to the server. `{path}` is the path of the request, `{rest}` the part after the fixed prefix \
             of `path` (up to its first `*`), `{1}` to `{9}` the groups of `path_regex`; all of them in the form that \
             was compared. The query is kept.",
            "rewrite = \"/v2/{rest}\"",
        )
        .known_as(&["replace-path", "set-path"]),
        Key::new(
            "set_header",
            Kind::List(&Kind::DescribedText("`Name: value`")),
            Absent("request header fields are not changed"),
            "Request header fields to set, replacing fields with the same name. Values are sent verbatim; variables \
             such as `{client}` are not implemented yet and are rejected.",
            "set_header = [\"X-Tenant: a\"]",
        )
        .known_as(&["proxy_set_header", "add_request_header"]),
        Key::new(
            "remove_header",
            Kind::List(&Kind::DescribedText("a name")),
            Absent("request header fields are not changed"),
            "Request header fields to remove.",
            "remove_header = [\"X-Debug\"]",
        ),
        Key::new(
            "set_response_header",
            Kind::List(&Kind::DescribedText("`Name: value`")),
            Absent("response header fields are not changed"),
            "Response header fields to set, replacing fields with the same name. Values are sent verbatim; variables \
             such as `{client}` are not implemented yet and are rejected.",
            "set_response_header = [\"Strict-Transport-Security: max-age=31536000\"]",
        )
        .known_as(&["add_header"]),
        Key::new(
            "remove_response_header",
            Kind::List(&Kind::DescribedText("a name")),
            Absent("response header fields are not changed"),
            "Response header fields to remove.",
            "remove_response_header = [\"Server\"]",
        )
        .known_as(&["proxy_hide_header"]),
        Key::new("pool", Kind::PoolName, Absent("the route splits, redirects or answers"), "The pool whose servers \
            are used.", "pool \
            = \"images\"")
            .known_as(&["backend", "use_backend", "proxy_pass"]),
        Key::new(
            "redirect",
            Kind::DescribedText("a URL"),
            Absent("no redirect"),
            "Target of a redirect, with `status` or 302. `{host}` and `{path}` (including the query) are those of the \
             request as received; other variables are not implemented yet and are rejected.",
            "redirect = \"https://{host}{path}\"",
        )
        .known_as(&["return", "location"]),
        Key::new(
            "status",
            integer((200, 599)),
            Absent("302 with `redirect`"),
            "Status of a redirect, or of a response generated by Weir.",
            "status = 308",
        ),
        Key::new(
            "body",
            Kind::DescribedText("any text"),
            Absent("the reason phrase of the status"),
            "Body of a response generated by Weir, as plain text. Variables such as `{client}` are not implemented \
             yet and are rejected.",
            "body = \"Gone fishing\\n\"",
        ),
    ],
};
