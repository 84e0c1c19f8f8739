//! One criterion of an ACL: what is looked at, how, and for what.

use super::acl::{Meaning, some};
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

/// ACLs that haproxy has by itself.
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

/// `hdr(host) -i www.example`: what is looked at, how, and for what.
pub(super) fn criterion(words: &[String], tls: bool) -> Meaning {
    let Some((fetch, rest)) = words.split_first() else {
        return Meaning::Unsaid("an empty criterion".to_owned());
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
        return Meaning::Unsaid(format!(
            "routes compare what a request says as it is, without {converters}"
        ));
    }
    let (name, mut how) = match name.rsplit_once('_') {
        Some((
            name,
            how @ ("beg" | "end" | "sub" | "dir" | "dom" | "reg" | "len" | "cnt" | "str"),
        )) => (name, how),
        _ => (name, "str"),
    };
    let mut values = Vec::new();
    let mut blind = false;
    let mut words = rest.iter();
    while let Some(word) = words.next() {
        match word.as_str() {
            "-i" => blind = true,
            "-n" | "--" => {}
            "-m" => how = words.next().map_or("str", String::as_str),
            "-f" | "-M" | "-u" => {
                return Meaning::Unsaid(
                    "its values stand in a file that cannot be read".to_owned(),
                );
            }
            word => values.push(word),
        }
    }
    // Routes compare these as they are written: in a rule that denies, another case would get through.
    let of_case = how == "str"
        && values
            .iter()
            .any(|value| value.bytes().any(|byte| byte.is_ascii_alphabetic()));
    let field =
        matches!(name, "hdr" | "req.hdr" | "req.fhdr") && !argument.eq_ignore_ascii_case("host");
    let in_pairs = matches!(name, "urlp" | "url_param" | "cook" | "req.cook");
    if blind && of_case && (field || in_pairs) {
        return Meaning::Unsaid(format!("routes compare {fetch} with its case"));
    }
    match name {
        "ssl_fc" => return if tls { Meaning::Always } else { Meaning::Never },
        "always_true" => return Meaning::Always,
        "always_false" => return Meaning::Never,
        "method" => return methods(&values),
        "src" => return sources(&values),
        "urlp" | "url_param" | "cook" | "req.cook" if !argument.is_empty() => {
            if how == "found" && values.is_empty() {
                values.push("");
            }
            let found: Option<Vec<Condition>> = values
                .iter()
                .map(|value| {
                    let pairs = vec![pair(argument, how, value)?];
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
                || Meaning::Unsaid(format!("routes cannot compare {fetch} so")),
                some,
            );
        }
        "path" | "pathq" | "url" | "base" if how == "found" => return Meaning::Always,
        _ => {}
    }
    let host = match name {
        "hdr" | "req.hdr" | "req.fhdr" | "hdr_ip" => argument.eq_ignore_ascii_case("host"),
        "req.ssl_sni" | "req_ssl_sni" | "ssl_fc_sni" => true,
        "base" | "url" | "path" | "pathq" => false,
        _ => return Meaning::Unsaid(format!("routes do not look at {fetch}")),
    };
    let found: Option<Vec<Vec<Condition>>> = match name {
        _ if host && how != "found" => values.iter().map(|value| host_is(how, value)).collect(),
        "path" | "url" => {
            let compared = |value: &&str| match how {
                "reg" => Some(vec![by_regex((*value).to_owned(), blind)]),
                _ if blind => path_blind(how, value),
                _ => path_is(how, value),
            };
            values.iter().map(compared).collect()
        }
        "base" => values.iter().map(|value| base_is(how, value)).collect(),
        "hdr" | "req.hdr" | "req.fhdr" => {
            if how == "found" && values.is_empty() {
                values.push("");
            }
            values
                .iter()
                .map(|value| header_is(argument, how, value))
                .collect()
        }
        _ => None,
    };
    match found {
        Some(found) => some(found.concat()),
        None => Meaning::Unsaid(format!("routes cannot compare {fetch} so")),
    }
}

fn host_is(how: &str, value: &str) -> Option<Vec<Condition>> {
    let of = |host: String| Condition {
        host: Some(host.to_ascii_lowercase()),
        ..Condition::default()
    };
    let value = value.split(':').next().unwrap_or("");
    match how {
        "str" if !value.is_empty() => Some(vec![of(value.to_owned())]),
        "end" => value
            .strip_prefix('.')
            .map(|rest| vec![of(format!("*.{rest}"))]),
        "dom" if !value.is_empty() => Some(vec![of(value.to_owned()), of(format!("*.{value}"))]),
        _ => None,
    }
}

/// Host and path in one.
fn base_is(how: &str, value: &str) -> Option<Vec<Condition>> {
    let (host, path) = value.split_at(value.find('/').filter(|at| *at > 0)?);
    let hosts = host_is("str", host)?;
    let paths = match how {
        "str" | "beg" => path_is(how, path)?,
        _ => return None,
    };
    let pairs = hosts.iter().flat_map(|a| paths.iter().map(|b| a.and(b)));
    pairs.collect()
}

fn path_is(how: &str, value: &str) -> Option<Vec<Condition>> {
    let of = |path: String| Condition {
        path: Some(path),
        ..Condition::default()
    };
    // A star of its own would stand for anything.
    if value.contains('*') || value.is_empty() {
        return None;
    }
    Some(match how {
        "str" => vec![of(value.to_owned())],
        "beg" => vec![of(format!("{value}*"))],
        "end" => vec![of(format!("*{value}"))],
        "sub" => vec![of(format!("*{value}*"))],
        "dir" => {
            let word = value.trim_matches('/');
            vec![of(format!("*/{word}/*")), of(format!("*/{word}"))]
        }
        _ => return None,
    })
}

fn by_regex(regex: String, blind: bool) -> Condition {
    Condition {
        regex: Some(if blind { format!("(?i){regex}") } else { regex }),
        ..Condition::default()
    }
}

/// Without case only an expression compares.
fn path_blind(how: &str, value: &str) -> Option<Vec<Condition>> {
    let mut text = String::new();
    for one in value.chars() {
        if !one.is_ascii_alphanumeric() && one != '/' && one != '-' && one != '_' {
            text.push('\\');
        }
        text.push(one);
    }
    let regex = match how {
        "str" => format!("^{text}$"),
        "beg" => format!("^{text}"),
        "end" => format!("{text}$"),
        "sub" => text,
        _ => return None,
    };
    value.is_ascii().then(|| vec![by_regex(regex, true)])
}

/// Addresses and networks; names would have to be resolved.
fn sources(values: &[&str]) -> Meaning {
    let network = |value: &&str| {
        let address = value.split('/').next().unwrap_or("");
        address.parse::<std::net::IpAddr>().is_ok()
    };
    if values.is_empty() || !values.iter().all(network) {
        return Meaning::Unsaid("a route's `source` is a network".to_owned());
    }
    Meaning::AnyOf(vec![Condition {
        sources: values.iter().map(|value| (*value).to_owned()).collect(),
        ..Condition::default()
    }])
}

/// A cookie, or a parameter of the query.
fn pair(name: &str, how: &str, value: &str) -> Option<String> {
    match how {
        "found" => Some(name.to_owned()),
        // A star would stand for anything once routes know it.
        "str" if !value.contains('*') => Some(format!("{name}={value}")),
        _ => None,
    }
}

fn header_is(name: &str, how: &str, value: &str) -> Option<Vec<Condition>> {
    let text = match how {
        "found" => name.to_owned(),
        "str" if !value.contains('*') => format!("{name}: {value}"),
        _ => return None,
    };
    Some(vec![Condition {
        headers: vec![text],
        ..Condition::default()
    }])
}
