//! Converts ACL criteria, which consist of a sample fetch method, a match method and values.

use std::net::{IpAddr, Ipv4Addr};

use super::acl::{Conversion, any_of};
use super::counter;
use super::line::Line;
use super::source;
use crate::layer7::{Condition, FILE_PREFIX};

/// The known properties of a frontend's connections that do not depend on a request.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct FrontendContext<'a> {
    /// Whether the connections use TLS.
    pub(super) tls: bool,
    /// Ports of the listeners; empty if unknown.
    pub(super) ports: &'a [u16],
    /// Whether the clients have a valid name and password, or `None` if unknown.
    pub(super) authenticated: Option<bool>,
    /// Whether the mode is `tcp`.
    pub(super) is_tcp_mode: bool,
    /// Whether an earlier rule changes the client's address.
    pub(super) is_source_changed: bool,
    /// Whether all counters of clients are assumed to be zero, to find the part of a condition that does not depend on
    /// limits.
    pub(super) counters_are_zero: bool,
}

impl FrontendContext<'_> {
    /// Returns the context of a line.
    pub(super) fn for_line(self, line: &Line) -> Self {
        Self {
            is_source_changed: self.is_source_changed || line.follows_source_change,
            ..self
        }
    }

    /// Returns the same context for clients that have not sent any requests before.
    pub(super) fn with_zero_counters(self) -> Self {
        Self {
            counters_are_zero: true,
            ..self
        }
    }
}

fn method_condition(words: &[impl AsRef<str>]) -> Conversion {
    if words.is_empty() {
        return Conversion::Never;
    }
    Conversion::AnyOf(vec![Condition {
        methods: words.iter().map(|word| word.as_ref().to_owned()).collect(),
        ..Condition::default()
    }])
}

/// Converts an ACL that haproxy predefines.
pub(super) fn predefined(name: &str, frontend: FrontendContext<'_>) -> Option<Conversion> {
    Some(match name {
        "LOCALHOST" if frontend.is_source_changed => {
            Conversion::Unsupported(source::CHANGED.to_owned())
        }
        "TRUE" | "HTTP" | "WAIT_END" => Conversion::Always,
        "LOCALHOST" => Conversion::AnyOf(vec![Condition {
            sources: vec!["127.0.0.0/8".to_owned()],
            ..Condition::default()
        }]),
        "FALSE" => Conversion::Never,
        "METH_GET" => method_condition(&["GET", "HEAD"]),
        "METH_POST" => method_condition(&["POST"]),
        "METH_PUT" => method_condition(&["PUT"]),
        "METH_DELETE" => method_condition(&["DELETE"]),
        "METH_HEAD" => method_condition(&["HEAD"]),
        "METH_OPTIONS" => method_condition(&["OPTIONS"]),
        "METH_CONNECT" => method_condition(&["CONNECT"]),
        "METH_TRACE" => method_condition(&["TRACE"]),
        _ => return None,
    })
}

/// The parts of a criterion.
struct Criterion<'a> {
    /// Fetch method with its argument, without converters.
    fetch: &'a str,
    /// Name of the fetch method, without a suffix such as `_beg`.
    name: &'a str,
    /// First argument of the fetch method.
    argument: &'a str,
    /// Match method.
    matcher: &'a str,
    ignore_case: bool,
    values: Vec<&'a str>,
    /// A file with further values, if the file could not be read.
    file: Option<&'a str>,
}

/// Converts a criterion such as `hdr(host) -i www.example`.
pub(super) fn convert_criterion(words: &[String], frontend: FrontendContext<'_>) -> Conversion {
    if let (true, Some(applies)) = (frontend.counters_are_zero, counter::matches_zero(words)) {
        return always_if(applies);
    }
    let mut criterion = match Criterion::parse(words) {
        Ok(criterion) => criterion,
        Err(reason) => return Conversion::Unsupported(reason),
    };
    if criterion.loses_case_insensitivity() {
        let fetch = criterion.fetch;
        return Conversion::Unsupported(format!("routes compare {fetch} case-sensitively"));
    }
    let is_presence = criterion.matcher == "found";
    match criterion.name {
        "ssl_fc" => return always_if(criterion.matches_bool(frontend.tls)),
        "wait" if criterion.matcher == "end" => return Conversion::Always,
        "always_true" => return Conversion::Always,
        "req.proto_http" | "req_proto_http" if !frontend.is_tcp_mode => return Conversion::Always,
        "always_false" => return Conversion::Never,
        "dst_port" => return criterion.match_ports(frontend.ports),
        "http_auth" | "http_auth_group" => match frontend.authenticated {
            Some(valid) => return always_if(valid),
            None => {
                let reason = "routes cannot match user names and passwords; see `basic_auth`";
                return Conversion::Unsupported(reason.to_owned());
            }
        },
        "method" if criterion.is_list_of_methods() => return criterion.match_methods(),
        "src" if frontend.is_source_changed => {
            return Conversion::Unsupported(source::CHANGED.to_owned());
        }
        "src" => return source_condition(&criterion),
        "hdr" | "req.hdr" | "req.fhdr" if criterion.matcher == "cnt" => {
            return criterion.match_field_count();
        }
        "hdr_ip" | "req.hdr_ip" if !criterion.argument.eq_ignore_ascii_case("host") => {
            return criterion.match_field_addresses();
        }
        "path" | "pathq" | "url" | "base" | "method" if is_presence => return Conversion::Always,
        _ => {}
    }
    if is_presence && criterion.values.is_empty() {
        criterion.values.push("");
    }
    if let Some(file) = criterion.file {
        return criterion.match_file(file);
    }
    if let Some(found) = criterion.match_field_values() {
        return found;
    }
    let Some(alternatives) = criterion.alternatives() else {
        return Conversion::Unsupported(format!("routes cannot match {}", criterion.fetch));
    };
    match alternatives.into_iter().collect::<Option<Vec<_>>>() {
        Some(found) => any_of(found.concat()),
        None => Conversion::Unsupported(format!(
            "routes cannot compare {} this way",
            criterion.fetch
        )),
    }
}

/// Splits off the converters after the first comma outside of parentheses.
fn split_converters(text: &str) -> (&str, &str) {
    let mut depth = 0_usize;
    for (offset, c) in text.char_indices() {
        match c {
            '(' => depth += 1,
            ')' => depth = depth.saturating_sub(1),
            ',' if depth == 0 => return (&text[..offset], &text[offset + 1..]),
            _ => {}
        }
    }
    (text, "")
}

/// Returns a regular expression that matches the addresses of an IPv4 network, or `None` if the prefix length is not 8,
/// 16, 24 or 32, or if the network is invalid.
fn network_expression(network: &str) -> Option<String> {
    let (address, length) = network.split_once('/').unwrap_or((network, "32"));
    let address: Ipv4Addr = address.parse().ok()?;
    let length: usize = length.parse().ok()?;
    if !length.is_multiple_of(8) || !(8..=32).contains(&length) {
        return None;
    }
    let prefix_bytes = &address.octets()[..length / 8];
    let prefix_bytes: Vec<String> = prefix_bytes.iter().map(u8::to_string).collect();
    let other_bytes = "\\.[0-9]+".repeat(4 - length / 8);
    Some(format!("{}{other_bytes}", prefix_bytes.join("\\.")))
}

fn always_if(applies: bool) -> Conversion {
    match applies {
        true => Conversion::Always,
        false => Conversion::Never,
    }
}

impl<'a> Criterion<'a> {
    /// Returns whether the criterion matches a boolean; a criterion without a value matches `true`.
    fn matches_bool(&self, flag: bool) -> bool {
        match self.values.first() {
            Some(&("0" | "false")) => !flag,
            _ => flag,
        }
    }

    /// Returns whether the criterion compares the whole method with known values.
    fn is_list_of_methods(&self) -> bool {
        matches!(self.matcher, "str" | "meth") && self.file.is_none()
    }

    /// Converts a list of methods. If case is ignored, they become upper case, as clients send them.
    fn match_methods(&self) -> Conversion {
        let methods = self.values.iter();
        let methods = methods.map(|word| match self.ignore_case {
            true => word.to_ascii_uppercase(),
            false => (*word).to_owned(),
        });
        method_condition(&methods.collect::<Vec<String>>())
    }

    /// Compares the listeners' ports with the criterion's values.
    fn match_ports(&self, ports: &[u16]) -> Conversion {
        // Each bound of a range is optional.
        let bound = |text: &str, default: u32| match text {
            "" => Ok(default),
            number => number.parse(),
        };
        let is_match = |port: &u16| {
            let mut values = self.values.iter();
            values.any(|value| match value.split_once(['-', ':']) {
                Some((low, high)) => {
                    let bounds = (bound(low, 0), bound(high, u32::MAX));
                    matches!(bounds, (Ok(low), Ok(high)) if (low..=high).contains(&u32::from(*port)))
                }
                None => value.parse() == Ok(*port),
            })
        };
        let operators = ["eq", "ge", "gt", "le", "lt"];
        let is_equality = match self.values.first() {
            Some(&"eq") => self.values.len() > 1,
            Some(word) => !operators.contains(word),
            None => false,
        };
        let match_count = ports.iter().filter(|port| is_match(port)).count();
        match match_count {
            _ if !is_equality || ports.is_empty() => {
                Conversion::Unsupported("routes cannot compare ports this way".to_owned())
            }
            0 => Conversion::Never,
            all if all == ports.len() => Conversion::Always,
            _ => Conversion::Unsupported(
                "the service has listeners on several ports; define a separate service for each port"
                    .to_owned(),
            ),
        }
    }

    /// Converts values in a file: a route reads only networks and hosts from files.
    fn match_file(&self, file: &str) -> Conversion {
        let is_host = self.argument.eq_ignore_ascii_case("host")
            && matches!(self.name, "hdr" | "req.hdr" | "req.fhdr")
            && self.matcher == "str";
        if !is_host || !self.values.is_empty() {
            let reason = "the file with the ACL's values cannot be read, and a route reads only networks and hosts \
                          from files";
            return Conversion::Unsupported(reason.to_owned());
        }
        Conversion::AnyOf(vec![Condition {
            host: Some(format!("{FILE_PREFIX}{file}")),
            ..Condition::default()
        }])
    }

    /// Converts `hdr_cnt(NAME) eq 0` and similar criteria to a condition on the presence of a field.
    fn match_field_count(&self) -> Conversion {
        let present = Condition {
            headers: vec![self.argument.to_owned()],
            ..Condition::default()
        };
        match self.values.as_slice() {
            ["gt", "0"] | ["ge", "1"] => Conversion::AnyOf(vec![present]),
            ["eq", "0"] | ["0"] | ["lt", "1"] | ["le", "0"] => any_of(present.negated()),
            _ => Conversion::Unsupported("routes cannot compare the number of fields".to_owned()),
        }
    }

    /// Converts `hdr_ip(X-Forwarded-For,-1) 10.0.0.0/8` to a regular expression, for IPv4 addresses and networks /8,
    /// /16 and /24.
    fn match_field_addresses(&self) -> Conversion {
        let occurrence = self
            .fetch
            .strip_suffix(')')
            .and_then(|it| it.split_once(','));
        let (prefix, suffix) = match occurrence.map(|(_, number)| number) {
            None => ("(^|,)\\s*", "\\s*(,|$)"),
            Some("-1") => ("(^|,)\\s*", "\\s*$"),
            Some("1") => ("^\\s*", "\\s*(,|$)"),
            Some(_) => {
                return Conversion::Unsupported(
                    "routes cannot select an address by its position".to_owned(),
                );
            }
        };
        let values = self.values.iter().map(|value| {
            let network = network_expression(value)?;
            Some(format!("{}: ~{prefix}{network}{suffix}", self.argument))
        });
        match values.collect::<Option<Vec<String>>>() {
            Some(headers) if !headers.is_empty() && self.file.is_none() => {
                Conversion::AnyOf(vec![Condition {
                    headers,
                    ..Condition::default()
                }])
            }
            _ => Conversion::Unsupported(format!(
                "routes compare {} only with IPv4 addresses and networks /8, /16 and /24",
                self.fetch
            )),
        }
    }

    /// Converts several values of a field to one condition that accepts any of them. Returns `None` if the criterion is
    /// not about a field, has fewer than two values, or cannot be expressed as one condition.
    fn match_field_values(&self) -> Option<Conversion> {
        let is_field = matches!(self.name, "hdr" | "req.hdr" | "req.fhdr");
        if !is_field || self.argument.eq_ignore_ascii_case("host") || self.values.len() < 2 {
            return None;
        }
        let values = self.values.iter();
        let values: Option<Vec<String>> = values
            .map(|value| {
                let text = value_text(self.matcher, value, self.ignore_case)?;
                Some(format!("{}: {text}", self.argument))
            })
            .collect();
        let headers = values.filter(|_| self.matcher != "found")?;
        Some(Conversion::AnyOf(vec![Condition {
            headers,
            ..Condition::default()
        }]))
    }

    /// Parses the words of a criterion.
    ///
    /// # Errors
    /// Returns why routes cannot express the criterion.
    fn parse(words: &'a [String]) -> Result<Self, String> {
        let Some((fetch, arguments)) = words.split_first() else {
            return Err("the criterion is empty".to_owned());
        };
        let (fetch, converters) = split_converters(fetch);
        let (name, argument) = match fetch.split_once('(') {
            Some((name, arguments)) => (
                name,
                arguments
                    .trim_end_matches(')')
                    .split(',')
                    .next()
                    .unwrap_or(""),
            ),
            None => (fetch, ""),
        };
        let removes_port = matches!(
            converters,
            "field(1,:)" | "field(1,:),lower" | "lower,field(1,:)"
        );
        let is_host = argument.eq_ignore_ascii_case("host");
        if !converters.is_empty() && converters != "lower" && !(removes_port && is_host) {
            return Err(format!("routes do not support converters ({converters})"));
        }
        let (name, mut matcher) = match name.rsplit_once('_') {
            Some((
                name,
                matcher @ ("beg" | "end" | "sub" | "dir" | "dom" | "reg" | "len" | "cnt" | "str"),
            )) => (name, matcher),
            _ => (name, "str"),
        };
        let mut values = Vec::new();
        // The values after `lower` are assumed to be in lower case; ignoring case is then equivalent.
        let mut ignore_case = converters == "lower";
        let mut file = None;
        let mut words = arguments.iter();
        while let Some(word) = words.next() {
            match word.as_str() {
                "-i" => ignore_case = true,
                "-n" => {}
                "--" => values.extend(words.by_ref().map(String::as_str)),
                "-m" => matcher = words.next().map_or("str", String::as_str),
                "-f" => match words.next() {
                    Some(path) if path.starts_with('/') && file.is_none() => file = Some(path),
                    _ => return Err("the file with the ACL's values cannot be read".to_owned()),
                },
                "-M" => return Err("routes do not support map files".to_owned()),
                "-u" => {
                    words.next();
                }
                word => values.push(word),
            }
        }
        Ok(Self {
            fetch,
            name,
            argument,
            matcher,
            ignore_case,
            values,
            file: file.map(String::as_str),
        })
    }

    /// Returns whether routes would compare case-sensitively although haproxy does not: a client could then bypass a
    /// deny rule by changing the case of a request.
    fn loses_case_insensitivity(&self) -> bool {
        let is_letter = |byte: u8| byte.is_ascii_alphabetic();
        let has_letters = self.values.iter().any(|value| value.bytes().any(is_letter));
        let is_cookie_or_query = matches!(self.name, "urlp" | "url_param" | "cook" | "req.cook");
        self.ignore_case && has_letters && is_cookie_or_query
    }

    /// Returns the alternative conditions for each value; an element is `None` if routes do not support the comparison.
    /// Returns `None` if routes do not support the fetch method.
    fn alternatives(&self) -> Option<Vec<Option<Vec<Condition>>>> {
        let (matcher, argument) = (self.matcher, self.argument);
        let for_each_value = |convert: &dyn Fn(&str) -> Option<Vec<Condition>>| {
            Some(self.values.iter().map(|value| convert(value)).collect())
        };
        let unsupported = Some(vec![None]);
        match self.name {
            "urlp" | "url_param" | "cook" | "req.cook" if !argument.is_empty() => {
                for_each_value(&|value| {
                    Some(vec![
                        self.pair_condition(pair_text(argument, matcher, value)?),
                    ])
                })
            }
            "hdr" | "req.hdr" | "req.fhdr" | "hdr_ip" if argument.eq_ignore_ascii_case("host") => {
                match (matcher, self.name) {
                    ("found", "hdr_ip") => unsupported,
                    ("found", _) => {
                        for_each_value(&|value| match_header(argument, matcher, value, false))
                    }
                    _ => for_each_value(&|value| match_host(matcher, value)),
                }
            }
            "req.ssl_sni" | "req_ssl_sni" | "ssl_fc_sni" => {
                for_each_value(&|value| match_host(matcher, value))
            }
            // haproxy's `url` includes the query, but a route's path does not.
            "url" if !self.is_decided_by_path() => unsupported,
            "path" | "url" => for_each_value(&|value| match matcher {
                "reg" => Some(vec![match_regex(value.to_owned(), self.ignore_case)]),
                _ if self.ignore_case => match_path_ignoring_case(matcher, value),
                _ => match_path(matcher, value),
            }),
            "base" => for_each_value(&|value| match_base(matcher, value)),
            "hdr" | "req.hdr" | "req.fhdr" => {
                for_each_value(&|value| match_header(argument, matcher, value, self.ignore_case))
            }
            "hdr_ip" | "pathq" => unsupported,
            _ => None,
        }
    }

    /// Returns whether a comparison of path and query always has the same result for the path alone.
    fn is_decided_by_path(&self) -> bool {
        self.matcher == "beg" && !self.values.iter().any(|it| it.contains('?'))
    }

    /// Returns a condition on a cookie or query parameter.
    fn pair_condition(&self, pair: String) -> Condition {
        match self.name {
            "cook" | "req.cook" => Condition {
                cookies: vec![pair],
                ..Condition::default()
            },
            _ => Condition {
                queries: vec![pair],
                ..Condition::default()
            },
        }
    }
}

fn match_host(matcher: &str, value: &str) -> Option<Vec<Condition>> {
    let condition = |host: String| Condition {
        host: Some(host.to_ascii_lowercase()),
        ..Condition::default()
    };
    if matcher == "reg" {
        return Some(vec![Condition {
            host: Some(format!("~(?i){value}")),
            ..Condition::default()
        }]);
    }
    let value = value.split(':').next().unwrap_or("");
    if value.contains('*') || value.is_empty() {
        return None;
    }
    match matcher {
        "str" => Some(vec![condition(value.to_owned())]),
        "beg" => Some(vec![condition(format!("{value}*"))]),
        "sub" => Some(vec![condition(format!("*{value}*"))]),
        "end" => Some(vec![condition(format!("*{value}"))]),
        "dom" => {
            let value = value.trim_matches('.');
            let hosts = match value.contains('.') {
                _ if value.is_empty() => return None,
                true => vec![value.to_owned(), format!("*.{value}")],
                // A single label can be at any position in the host name.
                false => vec![format!("~(^|\\.){}(\\.|$)", escape_regex(value))],
            };
            Some(hosts.into_iter().map(condition).collect())
        }
        _ => None,
    }
}

/// Converts a value of `base`: host and path.
fn match_base(matcher: &str, value: &str) -> Option<Vec<Condition>> {
    let (host, path) = value.split_at(value.find('/')?);
    let hosts = match_host("str", host)?;
    let paths = match matcher {
        "str" | "beg" => match_path(matcher, path)?,
        _ => return None,
    };
    let pairs = hosts.iter().flat_map(|a| paths.iter().map(|b| a.and(b)));
    pairs.collect()
}

fn match_path(matcher: &str, value: &str) -> Option<Vec<Condition>> {
    let condition = |path: String| Condition {
        path: Some(path),
        ..Condition::default()
    };
    // `*` would become a wildcard.
    if value.contains('*') || value.is_empty() {
        return None;
    }
    Some(match matcher {
        "str" => vec![condition(value.to_owned())],
        "beg" => vec![condition(format!("{value}*"))],
        "end" => vec![condition(format!("*{value}"))],
        "sub" => vec![condition(format!("*{value}*"))],
        "dir" => {
            let word = value.trim_matches('/');
            vec![
                condition(format!("*/{word}/*")),
                condition(format!("*/{word}")),
            ]
        }
        _ => return None,
    })
}

fn match_regex(regex: String, ignore_case: bool) -> Condition {
    Condition {
        regex: Some(if ignore_case {
            format!("(?i){regex}")
        } else {
            regex
        }),
        ..Condition::default()
    }
}

/// Converts a path to a case-insensitive regular expression: routes otherwise compare paths case-sensitively.
fn match_path_ignoring_case(matcher: &str, value: &str) -> Option<Vec<Condition>> {
    let text = escape_regex(value);
    let regex = match matcher {
        "str" => format!("^{text}$"),
        "beg" => format!("^{text}"),
        "end" => format!("{text}$"),
        "sub" => text,
        _ => return None,
    };
    value.is_ascii().then(|| vec![match_regex(regex, true)])
}

/// Converts addresses and networks; host names are not supported.
fn source_condition(criterion: &Criterion<'_>) -> Conversion {
    let networks = criterion.values.iter().map(|value| network_text(value));
    let sources = networks.collect::<Option<Vec<String>>>();
    let sources = sources.filter(|it| !it.is_empty() || criterion.file.is_some());
    let Some(mut sources) = sources else {
        return Conversion::Unsupported(
            "a route's `source` accepts only addresses and networks".to_owned(),
        );
    };
    sources.extend(criterion.file.map(|file| format!("{FILE_PREFIX}{file}")));
    Conversion::AnyOf(vec![Condition {
        sources,
        ..Condition::default()
    }])
}

/// Returns an address or a network; a mask such as 255.0.0.0 becomes a prefix length. Returns `None` if the network is
/// invalid, or if its mask has no prefix length.
fn network_text(value: &str) -> Option<String> {
    let (address, mask) = match value.split_once('/') {
        Some((address, mask)) => (address, Some(mask)),
        None => (value, None),
    };
    let ip: IpAddr = address.parse().ok()?;
    let Some(mask) = mask else {
        return Some(value.to_owned());
    };
    let length = match mask.parse::<Ipv4Addr>() {
        Ok(mask) => {
            let mask = u32::from(mask);
            (mask.leading_ones() == mask.count_ones()).then_some(mask.count_ones())?
        }
        Err(_) => mask.parse().ok()?,
    };
    let max = if ip.is_ipv4() { 32 } else { 128 };
    (length <= max).then(|| format!("{address}/{length}"))
}

/// Returns whether a route compares the value literally: `*` is a wildcard, and `~` begins a regular expression.
fn is_literal(value: &str) -> bool {
    !value.contains('*') && !value.starts_with('~')
}

/// Returns the value for a route's condition on a field, a cookie or a parameter, or `None` if the condition is not
/// supported.
fn value_text(matcher: &str, value: &str, ignore_case: bool) -> Option<String> {
    let case = if ignore_case { "(?i)" } else { "" };
    if matcher == "reg" {
        return Some(format!("~{case}{value}"));
    }
    if ignore_case {
        let text = escape_regex(value);
        return Some(match matcher {
            "str" => format!("~(?i)^{text}$"),
            "beg" => format!("~(?i)^{text}"),
            "end" => format!("~(?i){text}$"),
            "sub" => format!("~(?i){text}"),
            _ => return None,
        });
    }
    if !is_literal(value) {
        return None;
    }
    Some(match matcher {
        "str" => value.to_owned(),
        "beg" => format!("{value}*"),
        "end" => format!("*{value}"),
        "sub" => format!("*{value}*"),
        _ => return None,
    })
}

fn escape_regex(value: &str) -> String {
    let mut text = String::new();
    for c in value.chars() {
        if !c.is_ascii_alphanumeric() && c != '/' && c != '-' && c != '_' {
            text.push('\\');
        }
        text.push(c);
    }
    text
}

/// Returns a value of a route's `cookie` or `query`.
fn pair_text(name: &str, matcher: &str, value: &str) -> Option<String> {
    match matcher {
        "found" => Some(name.to_owned()),
        _ => value_text(matcher, value, false).map(|value| format!("{name}={value}")),
    }
}

fn match_header(
    name: &str,
    matcher: &str,
    value: &str,
    ignore_case: bool,
) -> Option<Vec<Condition>> {
    let text = match matcher {
        "found" => name.to_owned(),
        _ => format!("{name}: {}", value_text(matcher, value, ignore_case)?),
    };
    Some(vec![Condition {
        headers: vec![text],
        ..Condition::default()
    }])
}

#[cfg(test)]
mod tests;
