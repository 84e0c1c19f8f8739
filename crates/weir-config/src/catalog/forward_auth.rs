//! Defines the keys of a route's `forward_auth`.

use super::*;
use weir_model::ForwardAuth;

pub(super) const ROUTE_KEY: Key = Key::new(
    "forward_auth",
    Kind::Table(&FORWARD_AUTH),
    Absent("requests need no authorization"),
    "Server that authorizes the route's requests: it receives each request without its body. A response with a status \
     from 200 to 299 admits the request. 401, 403 and redirects (301, 302, 303, 307, 308) are returned to the client. \
     With any other status, or without a response within `timeout`, the client gets 503. `basic_auth` and `limits` are \
     applied first.",
    "forward_auth = { pool = \"images\", path = \"/verify\", copy_header = [\"X-User\"] }",
)
.known_as(&["auth_request", "forwardAuth", "ext_authz", "external_auth"]);

/// Keys of `forward_auth`.
pub(crate) static FORWARD_AUTH: Section = Section {
    path: "route.forward_auth",
    page: "forward-auth",
    purpose: "The server that authorizes a route's requests. It receives a GET request with `X-Forwarded-Method`, \
              `X-Forwarded-Uri`, `X-Forwarded-Host` and the header fields of the client's request, except those that \
              describe the body, conditions and ranges. The authorization request is not retried on another server and \
              is not queued. `weir status --json` and the metrics count the requests that were admitted, refused, and \
              answered with 503.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[pool.login]\nservers = [\"10.0.0.9:4180\"]\n\n\
              [service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n\
              [[route]]\nservice = \"web\"\npath = \"/private/*\"\npool = \"web\"\nforward_auth = { pool = \
              \"login\", path = \"/verify\", copy_header = [\"X-User\"] }\n",
    keys: &[
        Key::new(
            "pool",
            Kind::PoolName,
            Required,
            "Pool with the authorizing servers. None of them may be a listener of a service that has `forward_auth` \
             itself.",
            "pool = \"images\"",
        )
        .known_as(&["backend", "cluster", "address"]),
        Key::new(
            "path",
            Kind::DescribedText("a path"),
            Default("/"),
            "Path and query of the authorization request, without variables: properties of the client's request are \
             sent as header fields.",
            "path = \"/verify\"",
        )
        .known_as(&["uri", "url"]),
        Key::new(
            "timeout",
            Kind::Duration {
                min: ForwardAuth::TIMEOUT[1],
                max: ForwardAuth::TIMEOUT[2],
            },
            Default("5s"),
            "Maximum time from the start of the connection attempt until the response head is received.",
            "timeout = \"1s\"",
        ),
        Key::new(
            "copy_header",
            Kind::List(&Kind::DescribedText("`Name` or `Name: Name`")),
            Absent("none"),
            "Header fields to copy from a response that admits the request to the request that is sent to the route's \
             server. Fields with these names in the client's request are removed, even if the response does not \
             contain them. `X-User: X-Auth-Name` copies `X-Auth-Name` from the response as `X-User`.",
            "copy_header = [\"X-User\", \"X-Groups\"]",
        )
        .known_as(&["authResponseHeaders", "copy_headers", "response_headers"]),
        Key::new(
            "set_header",
            Kind::List(&Kind::DescribedText("`Name: value`")),
            Absent("none"),
            "Header fields to set in the authorization request, replacing the client's fields with the same name. \
             Values may contain variables (docs/manual/proxy.md); `{path}` is the path as received and includes the \
             query, unless `{query}` is used too.",
            "set_header = [\"X-Original-URI: {path}\"]",
        )
        .known_as(&["proxy_set_header"]),
    ],
};
