//! One ACL criterion: a fetch method, a match method and values.

use super::acl::{Meaning, any_of};
use crate::layer7::Condition;

fn methods(words: &[&str]) -> Meaning {
    if words.is_empty() {
        return Meaning::Never;
    }
    Meaning::AnyOf(vec![Condition {
        methods: words.iter().map(|word| (*word).to_owned()).collect(),
        ..Condition::default()
    }])
}

/// haproxy's predefined ACLs.
pub(super) fn predefined(name: &str) -> Option<Meaning> {
    Some(match name {
        "TRUE" | "HTTP" => Meaning::Always,
        "FALSE" => Meaning::Never,
        "METH_GET" => methods(&["GET", "HEAD"]),
        "METH_POST" => methods(&["POST"]),
        "METH_PUT" => methods(&["PUT"]),
        "METH_DELETE" => methods(&["DELETE"]),
        "METH_HEAD" => methods(&["HEAD"]),
        "METH_OPTIONS" => methods(&["OPTIONS"]),
        "METH_CONNECT" => methods(&["CONNECT"]),
        "METH_TRACE" => methods(&["TRACE"]),
        _ => return None,
    })
}

/// Parses `hdr(host) -i www.example`: fetch method, match method and values.
pub(super) fn criterion(words: &[String], tls: bool) -> Meaning {
    let Some((fetch, rest)) = words.split_first() else {
        return Meaning::Unsupported("an empty criterion".to_owned());
    };
    let (fetch, converters) = fetch.split_once(',').unwrap_or((fetch, ""));
    let (name, argument) = match fetch.split_once('(') {
        Some((name, rest)) => (
            name,
            rest.trim_end_matches(')').split(',').next().unwrap_or(""),
        ),
        None => (fetch, ""),
    };
    let port_off = matches!(
        converters,
        "field(1,:)" | "field(1,:),lower" | "lower,field(1,:)"
    );
    if !converters.is_empty() && converters != "lower" && !(port_off && argument == "host") {
        return Meaning::Unsupported(format!("routes do not apply converters ({converters})"));
    }
    let (name, mut matcher) = match name.rsplit_once('_') {
        Some((
            name,
            matcher @ ("beg" | "end" | "sub" | "dir" | "dom" | "reg" | "len" | "cnt" | "str"),
        )) => (name, matcher),
        _ => (name, "str"),
    };
    let mut values = Vec::new();
    let mut ignore_case = false;
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-i" => ignore_case = true,
            "-n" | "--" => {}
            "-m" => matcher = words.next().map_or("str", String::as_str),
            "-f" | "-M" | "-u" => {
                return Meaning::Unsupported("the file with its values cannot be read".to_owned());
            }
            word => values.push(word),
        }
    }
    // Routes compare these case-sensitively: another case would get past a rule that denies.
    let case_matters = matcher == "str"
        && values
            .iter()
            .any(|value| value.bytes().any(|byte| byte.is_ascii_alphabetic()));
    let field =
        matches!(name, "hdr" | "req.hdr" | "req.fhdr") && !argument.eq_ignore_ascii_case("host");
    let in_pairs = matches!(name, "urlp" | "url_param" | "cook" | "req.cook");
    if ignore_case && case_matters && (field || in_pairs) {
        return Meaning::Unsupported(format!("routes compare {fetch} case-sensitively"));
    }
    match name {
        "ssl_fc" => return if tls { Meaning::Always } else { Meaning::Never },
        "always_true" => return Meaning::Always,
        "always_false" => return Meaning::Never,
        "method" => return methods(&values),
        "src" => return sources(&values),
        "urlp" | "url_param" | "cook" | "req.cook" if !argument.is_empty() => {
            if matcher == "found" && values.is_empty() {
                values.push("");
            }
            let found: Option<Vec<Condition>> = values
                .iter()
                .map(|value| {
                    let pairs = vec![pair(argument, matcher, value)?];
                    Some(match name {
                        "cook" | "req.cook" => Condition {
                            cookies: pairs,
                            ..Condition::default()
                        },
                        _ => Condition {
                            queries: pairs,
                            ..Condition::default()
                        },
                    })
                })
                .collect();
            return found.map_or_else(
                || Meaning::Unsupported(format!("routes cannot compare {fetch} this way")),
                any_of,
            );
        }
        "path" | "pathq" | "url" | "base" if matcher == "found" => return Meaning::Always,
        _ => {}
    }
    let host = match name {
        "hdr" | "req.hdr" | "req.fhdr" | "hdr_ip" => argument.eq_ignore_ascii_case("host"),
        "req.ssl_sni" | "req_ssl_sni" | "ssl_fc_sni" => true,
        "base" | "url" | "path" | "pathq" => false,
        _ => return Meaning::Unsupported(format!("routes cannot match {fetch}")),
    };
    let found: Option<Vec<Vec<Condition>>> = match name {
        _ if host && matcher != "found" => values
            .iter()
            .map(|value| match_host(matcher, value))
            .collect(),
        "path" | "url" => {
            let compared = |value: &&str| match matcher {
                "reg" => Some(vec![match_regex((*value).to_owned(), ignore_case)]),
                _ if ignore_case => match_path_ignoring_case(matcher, value),
                _ => match_path(matcher, value),
            };
            values.iter().map(compared).collect()
        }
        "base" => values
            .iter()
            .map(|value| match_base(matcher, value))
            .collect(),
        "hdr" | "req.hdr" | "req.fhdr" => {
            if matcher == "found" && values.is_empty() {
                values.push("");
            }
            values
                .iter()
                .map(|value| match_header(argument, matcher, value))
                .collect()
        }
        _ => None,
    };
    match found {
        Some(found) => any_of(found.concat()),
        None => Meaning::Unsupported(format!("routes cannot compare {fetch} this way")),
    }
}

fn match_host(matcher: &str, value: &str) -> Option<Vec<Condition>> {
    let condition = |host: String| Condition {
        host: Some(host.to_ascii_lowercase()),
        ..Condition::default()
    };
    let value = value.split(':').next().unwrap_or("");
    match matcher {
        "str" if !value.is_empty() => Some(vec![condition(value.to_owned())]),
        "end" => value
            .strip_prefix('.')
            .map(|rest| vec![condition(format!("*.{rest}"))]),
        "dom" if !value.is_empty() => Some(vec![
            condition(value.to_owned()),
            condition(format!("*.{value}")),
        ]),
        _ => None,
    }
}

/// Matches host and path together.
fn match_base(matcher: &str, value: &str) -> Option<Vec<Condition>> {
    let (host, path) = value.split_at(value.find('/').filter(|at| *at > 0)?);
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

/// Case-insensitive matching requires a regular expression.
fn match_path_ignoring_case(matcher: &str, value: &str) -> Option<Vec<Condition>> {
    let mut text = String::new();
    for one in value.chars() {
        if !one.is_ascii_alphanumeric() && one != '/' && one != '-' && one != '_' {
            text.push('\\');
        }
        text.push(one);
    }
    let regex = match matcher {
        "str" => format!("^{text}$"),
        "beg" => format!("^{text}"),
        "end" => format!("{text}$"),
        "sub" => text,
        _ => return None,
    };
    value.is_ascii().then(|| vec![match_regex(regex, true)])
}

/// Matches addresses and networks; names would have to be resolved.
fn sources(values: &[&str]) -> Meaning {
    let network = |value: &&str| {
        let address = value.split('/').next().unwrap_or("");
        address.parse::<std::net::IpAddr>().is_ok()
    };
    if values.is_empty() || !values.iter().all(network) {
        return Meaning::Unsupported("a route's `source` is a network".to_owned());
    }
    Meaning::AnyOf(vec![Condition {
        sources: values.iter().map(|value| (*value).to_owned()).collect(),
        ..Condition::default()
    }])
}

/// Matches a cookie or a query parameter.
fn pair(name: &str, matcher: &str, value: &str) -> Option<String> {
    match matcher {
        "found" => Some(name.to_owned()),
        // `*` would become a wildcard if routes supported wildcards here.
        "str" if !value.contains('*') => Some(format!("{name}={value}")),
        _ => None,
    }
}

fn match_header(name: &str, matcher: &str, value: &str) -> Option<Vec<Condition>> {
    let text = match matcher {
        "found" => name.to_owned(),
        "str" if !value.contains('*') => format!("{name}: {value}"),
        _ => return None,
    };
    Some(vec![Condition {
        headers: vec![text],
        ..Condition::default()
    }])
}
