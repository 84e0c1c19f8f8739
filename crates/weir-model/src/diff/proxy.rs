//! Computes the differences between proxy services.

use std::time::Duration;

use super::edit::{Edits, comma_list, duration_or_none, or_none, statuses};
use super::{Change, Edit, diff_services, duration, tls};
use crate::{
    ClientField, Compression, FieldRule, HeaderEdits, LogFormat, Proxy, ProxyLimits, ProxyProtocol,
    ProxyTimeouts, Route, RouteAction, RouteClientFields, RouteEdits, RouteLimits, RouteOptions,
    RouteTimeouts, Source,
};

pub(super) fn diff(old: &[Proxy], new: &[Proxy], changes: &mut Vec<Change>) {
    diff_services(old, new, |proxy| &proxy.name, summary, edits, changes);
}

fn listen(proxy: &Proxy) -> String {
    let listeners: Vec<String> = proxy
        .listen
        .iter()
        .map(|address| format!("tcp/{address}"))
        .collect();
    listeners.join(" ")
}

fn summary(proxy: &Proxy) -> String {
    format!(
        "{} proxy {} pool {}",
        listen(proxy),
        proxy.protocol.as_str(),
        proxy.pool
    )
}

fn edits(old: &Proxy, new: &Proxy) -> Vec<Edit> {
    let (old, new) = (&without_source(old), &without_source(new));
    let edits = Edits::default()
        .compare("listen", listen(old), listen(new), String::clone)
        .compare(
            "protocol",
            old.protocol,
            new.protocol,
            |protocol: &ProxyProtocol| protocol.as_str().to_owned(),
        )
        .compare("pool", &old.pool, &new.pool, |pool| (*pool).clone());
    let edits = routes(edits, &old.routes, &new.routes);
    let edits = tls::of_service(edits, old.tls.as_ref(), new.tls.as_ref()).compare(
        "http2",
        old.http2,
        new.http2,
        bool::to_string,
    );
    let edits = timeouts(edits, &old.timeouts, &new.timeouts);
    let edits = limits(edits, &old.limits, &new.limits).compare(
        "limits.key",
        &old.limit_key,
        &new.limit_key,
        |key| key.to_string(),
    );
    let edits = ClientField::ALL.into_iter().fold(edits, |edits, field| {
        let key = format!("x_forwarded.{}", field.as_str());
        let rule = |proxy: &Proxy| proxy.x_forwarded.rule(field);
        edits.compare(&key, rule(old), rule(new), |rule| {
            rule.map_or("as `forwarded`", FieldRule::as_str).to_owned()
        })
    });
    let edits = headers(
        edits,
        REQUEST_KEYS,
        &old.request_header,
        &new.request_header,
    );
    let edits = headers(
        edits,
        RESPONSE_KEYS,
        &old.response_header,
        &new.response_header,
    );
    message_options(edits, old, new).finish()
}

/// Returns a copy without source positions.
fn without_source(proxy: &Proxy) -> Proxy {
    let mut proxy = proxy.clone();
    let routes = proxy.routes.iter_mut().map(|route| &mut route.source);
    let pages = proxy.error_pages.iter_mut().map(|page| &mut page.source);
    routes.chain(pages).for_each(|it| *it = Source::default());
    proxy
}

/// Compares routes one by one; if the number of routes differs, reports the part between the common prefix and suffix.
/// Removed routes are reported with their old number, added ones with their new number.
fn routes(edits: Edits, old: &[Route], new: &[Route]) -> Edits {
    if old.len() == new.len() {
        let pairs = old.iter().zip(new).enumerate();
        return pairs.fold(edits, |edits, (index, (old, new))| {
            route(edits, &format!("route {}", index + 1), old, new)
        });
    }
    let is_unchanged = |(old, new): &(&Route, &Route)| old == new;
    let prefix_count = old.iter().zip(new).take_while(is_unchanged).count();
    let (old, new) = (&old[prefix_count..], &new[prefix_count..]);
    let suffix_count = old
        .iter()
        .rev()
        .zip(new.iter().rev())
        .take_while(is_unchanged);
    let suffix_count = suffix_count.count();
    let (old, new) = (
        &old[..old.len() - suffix_count],
        &new[..new.len() - suffix_count],
    );
    let list = |routes: &[Route]| {
        let lines: Vec<String> = routes.iter().map(ToString::to_string).collect();
        format!("[{}]", lines.join(", "))
    };
    let one_or_list = |routes: &[Route]| match routes {
        [route] => route.to_string(),
        _ => list(routes),
    };
    let numbers = |count: usize| match (prefix_count + 1, prefix_count + count) {
        (first, last) if first == last => format!("route {first}"),
        (first, last) => format!("routes {first}-{last}"),
    };
    match (old, new) {
        ([], added) => {
            let description = format!("added: {}", one_or_list(added));
            edits.describe(&numbers(added.len()), description)
        }
        (removed, []) => {
            let description = format!("removed: {}", one_or_list(removed));
            edits.describe(&numbers(removed.len()), description)
        }
        (old, new) => edits.compare("routes", old, new, |routes| list(routes)),
    }
}

fn route(edits: Edits, name: &str, old: &Route, new: &Route) -> Edits {
    if old.to_string() != new.to_string() {
        return edits.compare(name, old, new, |route| route.to_string());
    }
    edits.within(name, |edits| {
        let body = |route: &Route| match &route.action {
            RouteAction::Respond { body, .. } => body.as_str().to_owned(),
            RouteAction::Pool(_)
            | RouteAction::Split(_)
            | RouteAction::Mapped(_)
            | RouteAction::Files(_)
            | RouteAction::Redirect { .. }
            | RouteAction::Close
            | RouteAction::Restart(_) => String::new(),
        };
        // Values are hidden: bodies may be long, and header fields may contain credentials.
        let edits = rewrites(edits, &old.edits, &new.edits);
        let (old_map, new_map) = (old.action.map(), new.action.map());
        let edits = edits
            .compare("pool", or_none(old_map), or_none(new_map), String::clone)
            .compare_hidden(
                "pool.entries",
                old_map.map(|map| &map.entries),
                new_map.map(|map| &map.entries),
            );
        options(edits, old, new).compare_hidden("body", body(old), body(new))
    })
}

fn options(edits: Edits, old: &Route, new: &Route) -> Edits {
    let default = RouteOptions::default();
    let old = old.options.as_deref().unwrap_or(&default);
    let new = new.options.as_deref().unwrap_or(&default);
    let as_service = "inherited from the service";
    let auth_request = |it: &RouteOptions| it.forward_auth.as_ref().map(ToString::to_string);
    // Field values are not shown.
    let both = old.forward_auth.as_ref().zip(new.forward_auth.as_ref());
    let set = both.map(|(old, new)| (&old.set, &new.set));
    let number = |it: &Option<u32>| it.map_or_else(|| as_service.to_owned(), |it| it.to_string());
    let flag = |it: &Option<bool>| it.map_or_else(|| as_service.to_owned(), |it| it.to_string());
    let edits = edits
        .compare("retries", old.retries, new.retries, number)
        .compare("max_body", old.max_body, new.max_body, number)
        .compare("access_log", old.access_log, new.access_log, flag)
        .compare("retry_on", &old.retry_on, &new.retry_on, |it| {
            it.as_ref()
                .map_or_else(|| as_service.to_owned(), ToString::to_string)
        })
        .compare(
            "max_connections",
            old.max_connections,
            new.max_connections,
            |it| it.to_string(),
        )
        .compare("limits", &old.limits, &new.limits, limits_text)
        .compare("mirror", &old.mirrors, &new.mirrors, |it| {
            comma_list(it.iter().map(ToString::to_string).collect())
        })
        .compare("server", &old.server, &new.server, |it| {
            or_none(it.as_ref())
        })
        .compare("forward_auth", auth_request(old), auth_request(new), |it| {
            or_none(it.as_ref())
        })
        .compare_hidden(
            "forward_auth.set_header",
            set.map(|it| it.0),
            set.map(|it| it.1),
        )
        .compare("basic_auth", users(old), users(new), String::clone)
        .compare_hidden("basic_auth.users", &old.basic_auth, &new.basic_auth)
        .compare(
            "compression",
            &old.compression,
            &new.compression,
            |it| match it {
                None => as_service.to_owned(),
                Some(None) => "false".to_owned(),
                Some(Some(rules)) => format!(
                    "{} {} {}",
                    codings(rules),
                    rules.types.join(" "),
                    rules.minimum
                ),
            },
        );
    let edits = client_fields(edits, old.x_forwarded.as_ref(), new.x_forwarded.as_ref());
    type Get = fn(&RouteTimeouts) -> Option<Duration>;
    let timeouts: [(&str, Get); 6] = [
        ("timeouts.client", |it| it.client),
        ("timeouts.connect", |it| it.connect),
        ("timeouts.server", |it| it.server),
        ("timeouts.response", |it| it.response),
        ("timeouts.tunnel", |it| it.tunnel),
        ("timeouts.total", |it| it.total),
    ];
    timeouts.into_iter().fold(edits, |edits, (key, get)| {
        edits.compare(key, get(&old.timeouts), get(&new.timeouts), |it| {
            it.map_or_else(|| as_service.to_owned(), |it| duration(&it))
        })
    })
}

/// Compares a route's `x_forwarded` setting.
fn client_fields(
    edits: Edits,
    old: Option<&RouteClientFields>,
    new: Option<&RouteClientFields>,
) -> Edits {
    edits.compare("x_forwarded", old, new, |it| {
        let Some(it) = it else {
            return "inherited from the service".to_owned();
        };
        let rule = |field: ClientField| {
            let rule = it.rules.rule(field)?;
            Some(format!("{} {}", field.as_str(), rule.as_str()))
        };
        let mut parts: Vec<String> = ClientField::ALL.into_iter().filter_map(rule).collect();
        parts.extend(it.except.iter().map(|network| format!("except {network}")));
        comma_list(parts)
    })
}

/// Formats a route's users.
fn users(options: &RouteOptions) -> String {
    match &options.basic_auth {
        None => "inherited from the service".to_owned(),
        Some(None) => "false".to_owned(),
        Some(Some(auth)) => auth.to_string(),
    }
}

/// Formats a rate in requests per second, or per minute if the rate per second is not a whole number.
fn rate_text(per_minute: u32) -> String {
    match per_minute % 60 {
        0 => (per_minute / 60).to_string(),
        _ => format!("{per_minute}/m"),
    }
}

fn limits_text(limits: &&RouteLimits) -> String {
    let RouteLimits {
        per_minute,
        burst,
        concurrent,
        key,
    } = limits;
    format!("rate {per_minute}/m burst {burst} concurrent {concurrent} key {key}")
}

fn rewrites(edits: Edits, old: &RouteEdits, new: &RouteEdits) -> Edits {
    let edits = edits.compare("rewrite", &old.path, &new.path, |it| or_none(it.as_ref()));
    let edits = headers(edits, REQUEST_KEYS, &old.request, &new.request);
    let edits = headers(edits, RESPONSE_KEYS, &old.response, &new.response);
    edits.compare("response_status", old.status, new.status, |it| {
        or_none(it.as_ref())
    })
}

/// The last key is empty, because only responses have replacements.
const REQUEST_KEYS: [&str; 4] = ["set_header", "add_header", "remove_header", ""];
const RESPONSE_KEYS: [&str; 4] = [
    "set_response_header",
    "add_response_header",
    "remove_response_header",
    "replace_response_header",
];

/// Compares header changes and reports them under the given keys.
fn headers(
    edits: Edits,
    [set, add, remove, replace]: [&str; 4],
    old: &HeaderEdits,
    new: &HeaderEdits,
) -> Edits {
    edits
        .compare_hidden(set, &old.set, &new.set)
        .compare_hidden(add, &old.add, &new.add)
        .compare(remove, &old.remove, &new.remove, |names| {
            comma_list(names.to_vec())
        })
        .compare(replace, &old.replace, &new.replace, |replacements| {
            comma_list(replacements.iter().map(ToString::to_string).collect())
        })
}

fn timeouts(edits: Edits, old: &ProxyTimeouts, new: &ProxyTimeouts) -> Edits {
    edits
        .compare("timeouts.request", old.request, new.request, duration)
        .compare("timeouts.idle", old.idle, new.idle, duration)
        .compare("timeouts.client", old.client, new.client, duration)
        .compare("timeouts.connect", old.connect, new.connect, duration)
        .compare("timeouts.server", old.server, new.server, duration)
        .compare("timeouts.tunnel", old.tunnel, new.tunnel, duration)
        .compare(
            "timeouts.response",
            old.response,
            new.response,
            duration_or_none,
        )
        .compare("timeouts.total", old.total, new.total, duration_or_none)
}

fn limits(edits: Edits, old: &ProxyLimits, new: &ProxyLimits) -> Edits {
    let number = u32::to_string;
    edits
        .compare("limits.head", old.head, new.head, number)
        .compare("limits.fields", old.fields, new.fields, number)
        .compare(
            "limits.connections",
            old.connections,
            new.connections,
            number,
        )
        .compare("limits.retries", old.retries, new.retries, number)
        .compare(
            "limits.idle_servers",
            old.idle_servers,
            new.idle_servers,
            number,
        )
        .compare(
            "limits.server_requests",
            old.server_requests,
            new.server_requests,
            number,
        )
        .compare("limits.streams", old.streams, new.streams, number)
        .compare("limits.resets", old.resets, new.resets, number)
        .compare("limits.body", old.body, new.body, number)
        .compare("limits.rate", old.per_minute, new.per_minute, |it| {
            rate_text(*it)
        })
        .compare("limits.burst", old.burst, new.burst, number)
        .compare("limits.concurrent", old.concurrent, new.concurrent, number)
        .compare(
            "limits.retry_budget",
            old.retry_budget,
            new.retry_budget,
            number,
        )
}

/// Compares settings for retries, message modification, trusted proxies and logging.
#[expect(clippy::too_many_lines, reason = "a list of keys")]
fn message_options(edits: Edits, old: &Proxy, new: &Proxy) -> Edits {
    edits
        .compare("retry_on", &old.retry_on, &new.retry_on, |conditions| {
            conditions.to_string()
        })
        .compare(
            "normalize_path",
            old.normalize_path,
            new.normalize_path,
            |rules| rules.map_or("false".to_owned(), |rules| rules.to_string()),
        )
        .compare("forwarded", old.forwarded, new.forwarded, |forwarded| {
            forwarded.as_str().to_owned()
        })
        .compare("underscores", old.underscores, new.underscores, |rule| {
            rule.as_str().to_owned()
        })
        .compare("connect", old.connect, new.connect, bool::to_string)
        .compare(
            "abort_on_close",
            old.abort_on_close,
            new.abort_on_close,
            bool::to_string,
        )
        .compare(
            "request_buffering",
            old.request_buffering,
            new.request_buffering,
            bool::to_string,
        )
        .compare("error_pages", &old.error_pages, &new.error_pages, |pages| {
            let pages = pages.iter();
            comma_list(
                pages
                    .map(|page| format!("{} {}", statuses(&page.status), page.response))
                    .collect(),
            )
        })
        .table(
            "compression",
            old.compression.as_ref(),
            new.compression.as_ref(),
            codings,
            |edits, old, new| {
                edits
                    .compare("codings", codings(old), codings(new), String::clone)
                    .compare("types", &old.types, &new.types, |it| {
                        comma_list(it.to_vec())
                    })
                    .compare("minimum", old.minimum, new.minimum, u32::to_string)
            },
        )
        .compare(
            "basic_auth",
            or_none(old.basic_auth.as_ref()),
            or_none(new.basic_auth.as_ref()),
            String::clone,
        )
        .compare_hidden("basic_auth.users", &old.basic_auth, &new.basic_auth)
        .compare(
            "x_forwarded.except",
            &old.x_forwarded_except,
            &new.x_forwarded_except,
            |networks| comma_list(networks.iter().map(ToString::to_string).collect()),
        )
        .compare("trusted", &old.trusted, &new.trusted, |networks| {
            comma_list(networks.iter().map(ToString::to_string).collect())
        })
        .compare(
            "proxy_protocol",
            old.proxy_protocol,
            new.proxy_protocol,
            bool::to_string,
        )
        .compare(
            "client_ip_header",
            &old.client_ip_header,
            &new.client_ip_header,
            |name| or_none(name.as_ref()),
        )
        .compare(
            "client_ip_recursive",
            old.client_ip_recursive,
            new.client_ip_recursive,
            bool::to_string,
        )
        .compare("request_id", &old.request_id, &new.request_id, |name| {
            name.as_deref().unwrap_or("absent").to_owned()
        })
        .compare_hidden("access_log.maps", &old.log_maps, &new.log_maps)
        .table(
            "access_log",
            old.access_log.as_ref(),
            new.access_log.as_ref(),
            |log| log.path.clone(),
            |edits, old, new| {
                edits
                    .compare("path", &old.path, &new.path, |path| (*path).clone())
                    .compare("format", &old.format, &new.format, |format| match format {
                        LogFormat::Combined => "combined".to_owned(),
                        LogFormat::Json => "json".to_owned(),
                        LogFormat::Template(text) => format!("{text:?}"),
                    })
                    .compare("sample", old.sample, new.sample, u32::to_string)
                    .compare("syslog_format", old.syslog, new.syslog, |it| {
                        it.as_str().to_owned()
                    })
            },
        )
}

fn codings(compression: &Compression) -> String {
    let codings = compression.codings.iter();
    comma_list(codings.map(|it| it.as_str().to_owned()).collect())
}
