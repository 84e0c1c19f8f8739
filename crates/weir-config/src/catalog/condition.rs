//! Defines the condition keys of routes.

use super::*;
use weir_model::{Scheme, TlsVersion};

const HOSTS: Kind = Kind::Either(&HOST_TEXT, &Kind::Table(&HOST_FILE));
const HOST_TEXT: Kind =
    Kind::DescribedText("a host name, with `*` for any characters, or `~EXPRESSION`");
const PATH_TEXT: Kind = Kind::DescribedText("a path, with `*` for any characters");
const REGEX_TEXT: Kind = Kind::DescribedText("a regular expression");
const METHOD_TEXT: Kind = Kind::DescribedText("a method");
const HEADER_TEXT: Kind = Kind::DescribedText("`Name` or `Name: value`");
const PAIR_TEXT: Kind = Kind::DescribedText("`name` or `name=value`");
const VALUE_TEXT: Kind =
    Kind::DescribedText("a value, with `*` for any characters, or `~EXPRESSION`");
const ADDRESSES: Kind = Kind::Either(&Kind::Network, &Kind::Table(&ADDRESS_FILE));
const TLS_VERSIONS: Kind = Kind::OneOf(tls_versions);

fn tls_versions() -> Choices {
    Choices {
        values: TlsVersion::ALL
            .iter()
            .map(|version| version.as_str())
            .collect(),
        known_as: &[("TLSv1.2", "1.2"), ("TLSv1.3", "1.3")],
        ..Choices::default()
    }
}

const SCHEMES: Kind = Kind::OneOf(schemes);

fn schemes() -> Choices {
    Choices {
        values: Scheme::ALL.iter().map(|scheme| scheme.as_str()).collect(),
        ..Choices::default()
    }
}

pub(super) const SCHEME: Key = Key::new(
    "scheme",
    Kind::Either(&SCHEMES, &Kind::List(&SCHEMES)),
    Absent("any scheme"),
    "Scheme of the client's request: `https` with TLS, `http` without. If the client is one of the service's `trusted` \
     proxies, the first value of its `X-Forwarded-Proto` is used instead, if it is `http` or `https`.",
    "scheme = \"http\"",
)
.known_as(&["ssl_fc", "https"]);

pub(super) const HOST: Key = Key::new(
    "host",
    Kind::Either(&HOSTS, &Kind::List(&HOSTS)),
    Absent("any host"),
    "Requested hosts, without the port; one of them must match. `*.example` matches every host under `example`, \
     `www.*` every host that begins with `www.`, and `~^www[0-9]+\\.` every host that matches the regular expression. \
     In a `tcp` service, the client's SNI is compared, whether or not Weir terminates TLS. `{ file = PATH }` reads \
     hosts from a file.",
    "host = [\"static.example\", \"*.img.example\"]",
)
.known_as(&["server_name", "hosts"]);

pub(super) const PATH: Key = Key::new(
    "path",
    Kind::Either(&PATH_TEXT, &Kind::List(&PATH_TEXT)),
    Absent("any path"),
    "Paths without the query, as normalized by the service's `normalize_path`; one of them must match. `*` matches any \
     number of characters, including none; `/img/*` does not match `/img`.",
    "path = [\"/img/*\", \"*.png\"]",
)
.known_as(&["location", "prefix", "url"]);

pub(super) const PATH_REGEX: Key = Key::new(
    "path_regex",
    Kind::Either(&REGEX_TEXT, &Kind::List(&REGEX_TEXT)),
    Absent("any path"),
    "Regular expressions (syntax of the Rust crate `regex`) to search for in the path, which has the same form as for \
     `path`; one of them must match. `^` and `$` anchor an expression, `(?i)` ignores case. Matching time is linear in \
     the length of the path. All expressions are searched for in a single pass.",
    "path_regex = '^/users/([0-9]+)$'",
)
.known_as(&["regex", "path_reg", "path_regexp"]);

pub(super) const METHOD: Key = Key::new(
    "method",
    Kind::Either(&METHOD_TEXT, &Kind::List(&METHOD_TEXT)),
    Absent("any method"),
    "Methods; the request must use one of them.",
    "method = [\"GET\", \"HEAD\"]",
)
.known_as(&["methods"]);

pub(super) const HEADER: Key = Key::new(
    "header",
    Kind::Either(&HEADER_TEXT, &Kind::List(&HEADER_TEXT)),
    Absent("any header"),
    "Header fields, each with the given value if there is one. Values of the same field are alternatives; different \
     fields must all be present. `*` in a value matches any characters, and `~EXPRESSION` is a regular expression to \
     search for. In `not`, none of the fields may be present with its value.",
    "header = [\"X-Beta\", \"Accept: text/html\", \"Accept: *json*\"]",
)
.known_as(&["headers"]);

pub(super) const QUERY: Key = Key::new(
    "query",
    Kind::Either(&PAIR_TEXT, &Kind::List(&PAIR_TEXT)),
    Absent("any query"),
    "Query parameters, as in `header`: each with the given value if there is one, compared without decoding. If a \
     parameter occurs several times, one of its values must match.",
    "query = [\"version=2\", \"version=3.*\"]",
);

pub(super) const COOKIE: Key = Key::new(
    "cookie",
    Kind::Either(&PAIR_TEXT, &Kind::List(&PAIR_TEXT)),
    Absent("any cookies"),
    "Cookies, as in `header`: each with the given value if there is one.",
    "cookie = [\"beta=yes\"]",
);

pub(super) const SOURCE: Key = Key::new(
    "source",
    Kind::Either(&ADDRESSES, &Kind::List(&ADDRESSES)),
    Absent("any client"),
    "Client networks; the client address must be in one of them. Behind trusted proxies, the address from the PROXY \
     protocol is used. `{ file = PATH }` reads networks from a file.",
    "source = [\"10.0.0.0/8\", \"2001:db8::/32\"]",
)
.known_as(&["src", "allow"]);

pub(super) const TLS_VERSION: Key = Key::new(
    "tls_version",
    Kind::Either(&TLS_VERSIONS, &Kind::List(&TLS_VERSIONS)),
    Absent("any version, or no TLS"),
    "TLS versions of the client's connection. A connection without TLS does not match.",
    "tls_version = \"1.3\"",
)
.known_as(&["ssl_protocol", "ssl_fc_protocol"]);

pub(super) const TLS_SNI: Key = Key::new(
    "tls_sni",
    Kind::Either(&HOST_TEXT, &Kind::List(&HOST_TEXT)),
    Absent("any SNI, or none"),
    "Server names in the client's TLS handshake, written as in `host`. A connection without TLS or SNI does not match.",
    "tls_sni = \"*.example\"",
)
.known_as(&["ssl_fc_sni", "ssl_server_name", "sni"]);

pub(super) const CLIENT_CERT_SUBJECT: Key = Key::new(
    "client_cert_subject",
    Kind::Either(&VALUE_TEXT, &Kind::List(&VALUE_TEXT)),
    Absent("any subject, or no certificate"),
    "Subjects (RFC 4514, as in `CN=admin,O=Example`) of the client's certificate, as verified with the service's \
     `client_ca`. A client without a certificate does not match.",
    "client_cert_subject = \"CN=admin,*\"",
)
.known_as(&["ssl_client_s_dn", "ssl_c_s_dn"]);

/// Lists the keys of a section that contains all conditions: `[keys before the conditions], [keys after them]`.
macro_rules! with_conditions {
    ([$($before:expr),* $(,)?], [$($after:expr),* $(,)?] $(,)?) => {
        &[
            $($before,)*
            $crate::catalog::condition::HOST,
            $crate::catalog::condition::PATH,
            $crate::catalog::condition::PATH_REGEX,
            $crate::catalog::condition::METHOD,
            $crate::catalog::condition::SCHEME,
            $crate::catalog::condition::HEADER,
            $crate::catalog::condition::QUERY,
            $crate::catalog::condition::COOKIE,
            $crate::catalog::condition::SOURCE,
            $crate::catalog::condition::TLS_VERSION,
            $crate::catalog::condition::TLS_SNI,
            $crate::catalog::condition::CLIENT_CERT_SUBJECT,
            $($after,)*
        ]
    };
}
pub(super) use with_conditions;

/// Keys of a route's `not`.
pub(crate) static ROUTE_NOT: Section = Section {
    path: "route.not",
    page: "route-not",
    purpose: "Negated conditions of a route. The route matches only if none of their values matches.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\npath = \
              [\"/admin\", \"/admin/*\"]\nnot.source = [\"10.0.0.0/8\", \"127.0.0.1\"]\nstatus = 403\n",
    keys: with_conditions!([], []),
};

/// Keys of a `source` that is a file with networks.
pub(crate) static ADDRESS_FILE: Section = Section {
    path: "route.source",
    page: "address-file",
    purpose: "A file with networks for `source`. It is read at startup, at each `weir reload`, and within a few \
              seconds after a change. If it cannot be read or a line is invalid, the configuration is rejected; a \
              running daemon keeps the previous networks.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\nsource = \
              { file = \"/etc/weir/blocked.txt\" }\nstatus = 403\n",
    keys: &[Key::new(
        "file",
        Kind::DescribedText("an absolute file path"),
        Required,
        "File with one network or address per line. Empty lines and text after `#` are ignored.",
        "file = \"/etc/weir/blocked.txt\"",
    )
    .known_as(&["path"])],
};

/// Keys of a `host` that is a file with hosts.
pub(crate) static HOST_FILE: Section = Section {
    path: "route.host",
    page: "host-file",
    purpose: "A file with hosts for `host`. It is read at startup, at each `weir reload`, and within a few seconds \
              after a change. If it cannot be read or a line is invalid, the configuration is rejected; a running \
              daemon keeps the previous hosts.",
    example: "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"0.0.0.0:80\"]\nforward = \
              \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\n[[route]]\nservice = \"web\"\nhost = { file = \
              \"/etc/weir/hosts.txt\" }\npool = \"web\"\n",
    keys: &[Key::new(
        "file",
        Kind::DescribedText("an absolute file path"),
        Required,
        "File with one host per line, written as in `host`. Empty lines and lines that begin with `#` are ignored. The \
         cost of a lookup does not depend on the number of hosts, except for hosts with a regular expression or with \
         `*` in the middle.",
        "file = \"/etc/weir/hosts.txt\"",
    )
    .known_as(&["path"])],
};

/// Returns whether a key is a condition of a route.
#[cfg(test)]
pub(crate) fn is_condition(page: &str, name: &str) -> bool {
    let mut conditions = weir_model::ConditionKey::ALL.iter();
    ["route", "route-not"].contains(&page) && conditions.any(|key| key.as_str() == name)
}

#[cfg(test)]
mod tests {
    use weir_model::ConditionKey;

    use super::super::{ROUTE, ROUTE_NOT};

    #[test]
    fn every_condition_is_a_key_of_routes_and_of_not() {
        for key in ConditionKey::ALL {
            for section in [&ROUTE, &ROUTE_NOT] {
                let name = key.as_str();
                assert!(section.key(name).is_some(), "{name} in {}", section.path);
            }
        }
    }
}
