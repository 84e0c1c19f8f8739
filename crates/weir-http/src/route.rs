//! Matches requests against routes.

mod restart;
mod table;
mod template;

use std::net::{IpAddr, SocketAddr};

use weir_model::{
    ConditionKey, Conditions, HostPattern, NamedCondition, Network, Route, Scheme, TlsVersion,
    ValuePattern,
};

pub use restart::{MAX_RESTARTS, RestartedPath};
pub use table::RouteTable;
pub use template::{
    RequestId, SERVER_MARK, TemplateContext, ValueEncoding, expand, hidden, key_text, location,
    map_key, rewrite_path,
};

use crate::cookie;
use crate::field::Field;
use crate::head::Request;
use crate::path::RequestPath;

/// Properties of a client's TLS connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct TlsProperties<'a> {
    /// The TLS version, or `None` without TLS.
    pub version: Option<TlsVersion>,
    /// The cipher suite.
    pub cipher: Option<&'a str>,
    /// The server name that the client sent (SNI).
    pub server_name: Option<&'a str>,
    /// Subject of the client's verified certificate.
    pub client_subject: Option<&'a str>,
}

/// The properties of a request that routes are matched against.
#[derive(Debug, Clone, Copy)]
pub struct RouteInput<'a> {
    /// The client's address.
    pub client: IpAddr,
    /// The path, in the form used for comparisons.
    pub target: &'a RequestPath<'a>,
    /// The head, which the ranges in `request` and `fields` refer to.
    pub head: &'a [u8],
    /// The request line and framing.
    pub request: &'a Request,
    /// The header fields.
    pub fields: &'a [Field],
    /// Properties of the client's TLS connection.
    pub tls: TlsProperties<'a>,
    /// Whether the client used TLS, to Weir or to a trusted proxy.
    pub secure: bool,
}

/// Returns the scheme of the request that a trusted proxy received: the first value of its `X-Forwarded-Proto`. Returns
/// `None` if the field is absent or has a different value.
pub fn forwarded_scheme(head: &[u8], fields: &[Field]) -> Option<Scheme> {
    let is_proto_field = |field: &&Field| {
        let name = field.name_in(head);
        name.eq_ignore_ascii_case(b"x-forwarded-proto")
    };
    let value = fields.iter().find(is_proto_field)?.value_in(head);
    let first = value.split(|byte| *byte == b',').next()?.trim_ascii();
    let mut schemes = Scheme::ALL.into_iter();
    schemes.find(|scheme| first.eq_ignore_ascii_case(scheme.as_str().as_bytes()))
}

/// Returns the client's address in a field that trusted proxies send, such as `X-Forwarded-For`: the last address that
/// is not in `skipped_networks`, or the first address if all are. Ports, and values before one that is not an address,
/// are ignored. Returns `None` if the field is absent or does not end with an address.
pub fn client_address(
    head: &[u8],
    fields: &[Field],
    name: &str,
    skipped_networks: &[Network],
) -> Option<IpAddr> {
    let values = fields
        .iter()
        .rev()
        .filter(|field| field.name_in(head).eq_ignore_ascii_case(name.as_bytes()))
        .flat_map(|field| field.value_in(head).rsplit(|byte| *byte == b','));
    let mut client = None;
    for value in values {
        let Some(address) = parse_address(value.trim_ascii()) else {
            break;
        };
        client = Some(address);
        if !skipped_networks
            .iter()
            .any(|network| network.contains(address))
        {
            break;
        }
    }
    client
}

/// Parses an address, with or without a port.
fn parse_address(text: &[u8]) -> Option<IpAddr> {
    let text = std::str::from_utf8(text).ok()?;
    let unbracketed = text
        .strip_prefix('[')
        .and_then(|text| text.strip_suffix(']'));
    let address = unbracketed.unwrap_or(text).parse();
    let address = address.or_else(|_| text.parse().map(|address: SocketAddr| address.ip()));
    address.ok().map(|address: IpAddr| address.to_canonical())
}

impl<'a> RouteInput<'a> {
    /// Returns the requested host without port.
    pub fn host(&self) -> &'a [u8] {
        strip_port(
            self.request
                .host_in(self.head, self.fields)
                .unwrap_or_default(),
        )
    }
}

/// Returns the index of the first route that matches. This is the reference implementation; [`RouteTable::choose`]
/// returns the same result without comparing every route.
pub fn choose(routes: &[Route], route_input: &RouteInput<'_>) -> Option<usize> {
    let host = route_input.host();
    let first_route = route_input.target.first_route();
    let candidates = routes.iter().enumerate().skip(first_route);
    let mut matching =
        candidates.filter(|(_, route)| first_unmet_condition(route, route_input, host).is_none());
    matching.next().map(|(index, _)| index)
}

/// Returns the first condition of a route that a request does not meet, and whether the condition is negated. Returns
/// `None` if the route matches. `host` is the request's host, without port.
pub fn first_unmet_condition(
    route: &Route,
    route_input: &RouteInput<'_>,
    host: &[u8],
) -> Option<(ConditionKey, bool)> {
    let fails =
        |key: &&ConditionKey| meets(&route.when, **key, route_input, host, true) == Some(false);
    if let Some(key) = ConditionKey::ALL.iter().find(fails) {
        return Some((*key, false));
    }
    let not = route.not.as_deref()?;
    let forbids = |key: &&ConditionKey| meets(not, **key, route_input, host, false) == Some(true);
    ConditionKey::ALL
        .iter()
        .find(forbids)
        .map(|key| (*key, true))
}

/// Returns whether at least one of a condition's alternatives matches, or `None` if there is no condition with this
/// key. With `every_name`, at least one alternative must match for each name.
fn meets(
    conditions: &Conditions,
    key: ConditionKey,
    route_input: &RouteInput<'_>,
    host: &[u8],
    every_name: bool,
) -> Option<bool> {
    if !conditions.has(key) {
        return None;
    }
    let path = route_input.target.path();
    let names_match =
        |list: &[NamedCondition], matches: &dyn Fn(&NamedCondition) -> bool| match every_name {
            true => list.iter().all(|condition| {
                list.iter()
                    .any(|other| other.name == condition.name && matches(other))
            }),
            false => list.iter().any(matches),
        };
    Some(match key {
        ConditionKey::Method => {
            let method = route_input.request.method_in(route_input.head);
            conditions
                .methods
                .iter()
                .any(|allowed| allowed.as_bytes() == method)
        }
        ConditionKey::Scheme => conditions.schemes.contains(&Scheme::of(route_input.secure)),
        ConditionKey::Host => matches_hosts(conditions, host),
        ConditionKey::Path => conditions
            .paths
            .iter()
            .any(|pattern| glob(pattern.as_bytes(), path)),
        ConditionKey::PathRegex => conditions
            .path_regexes
            .iter()
            .any(|regex| regex.matches(path)),
        ConditionKey::Source => conditions
            .sources
            .as_ref()
            .is_some_and(|set| set.contains(route_input.client)),
        ConditionKey::TlsVersion => route_input
            .tls
            .version
            .is_some_and(|version| conditions.tls_versions.contains(&version)),
        ConditionKey::TlsSni => route_input.tls.server_name.is_some_and(|name| {
            conditions
                .tls_snis
                .iter()
                .any(|pattern| host_matches(pattern, name.as_bytes()))
        }),
        ConditionKey::ClientCertSubject => route_input.tls.client_subject.is_some_and(|subject| {
            let mut patterns = conditions.client_cert_subjects.iter();
            patterns.any(|pattern| value_matches(pattern, subject.as_bytes()))
        }),
        ConditionKey::Header => names_match(&conditions.headers, &|condition| {
            has_field(route_input, condition)
        }),
        ConditionKey::Query => names_match(&conditions.queries, &|condition| {
            cookie::parameters(route_input.target.query(), condition.name.as_bytes())
                .any(|value| condition_matches(condition, value))
        }),
        ConditionKey::Cookie => names_match(&conditions.cookies, &|condition| {
            has_cookie(route_input, condition)
        }),
    })
}

/// Returns the value that a condition on the key is compared with, as text. Values of the TLS connection are not
/// available here.
pub fn compared_value(
    key: ConditionKey,
    conditions: Option<&Conditions>,
    route_input: &RouteInput<'_>,
) -> String {
    let text = |bytes: &[u8]| match bytes {
        [] => "none".to_owned(),
        bytes => String::from_utf8_lossy(bytes).escape_debug().to_string(),
    };
    let fields = |names: &dyn Fn(&[u8]) -> bool| {
        let fields = route_input.fields.iter();
        let matching = fields.filter(|field| names(field.name_in(route_input.head)));
        let values: Vec<String> = matching
            .map(|field| {
                let (name, value) = (
                    field.name_in(route_input.head),
                    field.value_in(route_input.head),
                );
                let note = match field.untrusted {
                    true => " (ignored, because untrusted clients are not allowed to set it)",
                    false => "",
                };
                format!("{}: {}{note}", text(name), text(value))
            })
            .collect();
        match values.as_slice() {
            [] => "none".to_owned(),
            values => values.join(", "),
        }
    };
    match key {
        ConditionKey::Method => text(route_input.request.method_in(route_input.head)),
        ConditionKey::Scheme => Scheme::of(route_input.secure).as_str().to_owned(),
        ConditionKey::Host => text(route_input.host()),
        ConditionKey::Path | ConditionKey::PathRegex => text(route_input.target.path()),
        ConditionKey::Query => text(route_input.target.query()),
        ConditionKey::Cookie => fields(&|name| name.eq_ignore_ascii_case(b"cookie")),
        ConditionKey::Header => fields(&|name| {
            let mut header_conditions = conditions.iter().flat_map(|it| &it.headers);
            header_conditions.any(|condition| condition.name.as_bytes().eq_ignore_ascii_case(name))
        }),
        ConditionKey::Source => route_input.client.to_string(),
        ConditionKey::TlsVersion | ConditionKey::TlsSni | ConditionKey::ClientCertSubject => {
            "an unknown value".to_owned()
        }
    }
}

fn has_field(route_input: &RouteInput<'_>, condition: &NamedCondition) -> bool {
    route_input.fields.iter().any(|field| {
        let value = field.trusted_value(condition.name.as_bytes(), route_input.head);
        value.is_some_and(|value| condition_matches(condition, value))
    })
}

fn has_cookie(route_input: &RouteInput<'_>, condition: &NamedCondition) -> bool {
    route_input.fields.iter().any(|field| {
        let text = field.value_in(route_input.head);
        field
            .name_in(route_input.head)
            .eq_ignore_ascii_case(b"cookie")
            && cookie::find(text, condition.name.as_bytes())
                .is_some_and(|range| condition_matches(condition, &text[range]))
    })
}

/// Returns whether the value matches, or true if the condition requires no value.
fn condition_matches(condition: &NamedCondition, value: &[u8]) -> bool {
    condition
        .value
        .as_ref()
        .is_none_or(|pattern| value_matches(pattern, value))
}

fn value_matches(pattern: &ValuePattern, value: &[u8]) -> bool {
    match pattern {
        ValuePattern::Exact(text) => text.as_bytes() == value,
        ValuePattern::Wildcard(text) => glob(text.as_bytes(), value),
        ValuePattern::Regex(regex) => regex.matches(value),
    }
}

/// Returns the index of the first route that matches a connection with this TLS server name and client address. Without
/// a server name, a condition on the name does not match, and a negated condition does.
pub fn choose_for_connection(
    routes: &[Route],
    name: Option<&str>,
    client: IpAddr,
) -> Option<usize> {
    let by_name = |conditions: &Conditions| {
        name.is_some_and(|name| matches_hosts(conditions, name.as_bytes()))
    };
    let by_source = |conditions: &Conditions| {
        let mut sources = conditions.sources.iter();
        sources.any(|set| set.contains(client))
    };
    routes.iter().position(|route| {
        let when = &route.when;
        (!when.has(ConditionKey::Host) || by_name(when))
            && (!when.has(ConditionKey::Source) || by_source(when))
            && !route
                .not
                .as_ref()
                .is_some_and(|not| by_name(not) || by_source(not))
    })
}

/// Returns the host of an authority, without the port or a trailing dot.
pub fn strip_port(host: &[u8]) -> &[u8] {
    let end = match host.iter().rposition(|byte| *byte == b':') {
        // With an address in brackets, the last colon is either inside the brackets or before the port.
        Some(colon) if !host[colon..].contains(&b']') => colon,
        _ => host.len(),
    };
    let host = &host[..end];
    host.strip_suffix(b".").unwrap_or(host)
}

/// Returns whether a host matches one of the hosts in the conditions.
fn matches_hosts(conditions: &Conditions, host: &[u8]) -> bool {
    let is_in_set = || {
        let set = conditions.host_set.as_deref()?;
        let lower = host.to_ascii_lowercase();
        let text = std::str::from_utf8(&lower).ok()?;
        Some(
            set.contains(text)
                || set
                    .other_patterns()
                    .any(|pattern| host_matches(pattern, host)),
        )
    };
    conditions
        .hosts
        .iter()
        .any(|pattern| host_matches(pattern, host))
        || is_in_set() == Some(true)
}

fn host_matches(pattern: &HostPattern, host: &[u8]) -> bool {
    match pattern {
        HostPattern::Exact(exact) => host.eq_ignore_ascii_case(exact.as_bytes()),
        HostPattern::Suffix(suffix) => {
            host.len() > suffix.len()
                && host[host.len() - suffix.len()..].eq_ignore_ascii_case(suffix.as_bytes())
        }
        HostPattern::Wildcard(pattern) => {
            wildcard(pattern.as_bytes(), host, u8::to_ascii_lowercase)
        }
        // The regular expression ignores case.
        HostPattern::Regex(regex) => regex.matches(host),
    }
}

/// Returns whether `text` matches `pattern`, in which `*` matches any bytes. Backtracks only to the last star.
pub(crate) fn glob(pattern: &[u8], text: &[u8]) -> bool {
    wildcard(pattern, text, |byte| *byte)
}

/// Like [`glob`], but applies `map_byte` to each byte of the text before comparing it.
fn wildcard(pattern: &[u8], text: &[u8], map_byte: impl Fn(&u8) -> u8) -> bool {
    let (mut pattern_offset, mut text_offset) = (0, 0);
    let mut last_star: Option<(usize, usize)> = None;
    while text_offset < text.len() {
        if pattern.get(pattern_offset) == Some(&b'*') {
            pattern_offset += 1;
            last_star = Some((pattern_offset, text_offset));
        } else if pattern.get(pattern_offset) == Some(&map_byte(&text[text_offset])) {
            pattern_offset += 1;
            text_offset += 1;
        } else if let Some((after_star, star_text)) = last_star {
            pattern_offset = after_star;
            text_offset = star_text + 1;
            last_star = Some((after_star, text_offset));
        } else {
            return false;
        }
    }
    pattern[pattern_offset..].iter().all(|byte| *byte == b'*')
}

#[cfg(test)]
mod tests;
