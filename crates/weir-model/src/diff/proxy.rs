//! Differences of proxy services.

use super::{Change, Edit, Edits, diff_services, duration, or_none};
use crate::{
    Proxy, ProxyLimits, ProxyProtocol, ProxyTimeouts, Route, RouteEdits, Secret, SniHost, Source,
    TlsVersion,
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
    let (old, new) = (&anywhere(old), &anywhere(new));
    let edits = Edits(Vec::new())
        .compare("listen", listen(old), listen(new), String::clone)
        .compare(
            "protocol",
            old.protocol,
            new.protocol,
            |protocol: &ProxyProtocol| protocol.as_str().to_owned(),
        )
        .compare("routes", &old.routes, &new.routes, |routes| list_of(routes))
        .compare("pool", &old.pool, &new.pool, |pool| (*pool).clone())
        .compare("tls", secure(old), secure(new), |tls| or_none(tls.as_ref()))
        .compare_secrets("tls.ticket_keys", &ticket_keys(old), &ticket_keys(new))
        .compare("http2", old.http2, new.http2, bool::to_string);
    let edits = timeouts(edits, &old.timeouts, &new.timeouts);
    let edits = limits(edits, &old.limits, &new.limits).compare(
        "limits.key",
        &old.limit_key,
        &new.limit_key,
        |key| key.to_string(),
    );
    manners(edits, old, new).0
}

fn ticket_keys(proxy: &Proxy) -> Vec<&Secret> {
    let tls = proxy.tls.iter();
    tls.flat_map(|tls| &tls.ticket_keys).collect()
}

/// All of it as text: where it is written takes no part.
fn secure(proxy: &Proxy) -> Option<String> {
    let tls = proxy.tls.as_ref()?;
    let mut text = tls.certificates.clone();
    if tls.minimum != TlsVersion::default() {
        text += &format!(", from version {}", tls.minimum.as_str());
    }
    if tls.strict_sni {
        text += ", strict_sni";
    }
    if let Some(authorities) = &tls.client_ca {
        let auth = tls.client_auth.as_str();
        text += &format!(", clients of {authorities} {auth}");
    }
    if tls.sni_host != SniHost::default() {
        text += &format!(", sni_host {}", tls.sni_host.as_str());
    }
    Some(text)
}

/// Wherever its parts are written.
fn anywhere(proxy: &Proxy) -> Proxy {
    let mut proxy = proxy.clone();
    let routes = proxy.routes.iter_mut().map(|route| &mut route.source);
    let pages = proxy.error_pages.iter_mut().map(|page| &mut page.source);
    routes.chain(pages).for_each(|it| *it = Source::default());
    proxy
}

fn list_of(routes: &[Route]) -> String {
    let line = |route: &Route| {
        let edits = if route.edits == RouteEdits::default() {
            ""
        } else {
            " with edits"
        };
        format!("{route}{edits}")
    };
    let lines: Vec<String> = routes.iter().map(line).collect();
    format!("[{}]", lines.join(", "))
}

fn timeouts(edits: Edits, old: &ProxyTimeouts, new: &ProxyTimeouts) -> Edits {
    edits
        .compare("timeouts.request", old.request, new.request, duration)
        .compare("timeouts.idle", old.idle, new.idle, duration)
        .compare("timeouts.client", old.client, new.client, duration)
        .compare("timeouts.connect", old.connect, new.connect, duration)
        .compare("timeouts.server", old.server, new.server, duration)
        .compare("timeouts.tunnel", old.tunnel, new.tunnel, duration)
        .compare("timeouts.response", old.response, new.response, |first| {
            or_none(first.as_ref().map(duration).as_ref())
        })
        .compare("timeouts.total", old.total, new.total, |total| {
            or_none(total.as_ref().map(duration).as_ref())
        })
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
        .compare("limits.rate", old.rate, new.rate, number)
        .compare("limits.burst", old.burst, new.burst, number)
        .compare("limits.concurrent", old.concurrent, new.concurrent, number)
        .compare(
            "limits.retry_budget",
            old.retry_budget,
            new.retry_budget,
            number,
        )
}

/// How messages are changed, whom the proxy believes, and what it writes down.
fn manners(edits: Edits, old: &Proxy, new: &Proxy) -> Edits {
    let networks = |proxy: &Proxy| {
        let trusted: Vec<String> = proxy.trusted.iter().map(ToString::to_string).collect();
        trusted.join(", ")
    };
    edits
        .compare("retry_on", &old.retry_on, &new.retry_on, |one| {
            one.to_string()
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
            let files: Vec<&str> = pages.iter().map(|page| page.file.as_str()).collect();
            if files.is_empty() {
                "none".to_owned()
            } else {
                files.join(" ")
            }
        })
        .compare(
            "compression",
            &old.compression,
            &new.compression,
            |compression| {
                compression.as_ref().map_or("none".to_owned(), |one| {
                    let codings: Vec<&str> = one.codings.iter().map(|it| it.as_str()).collect();
                    codings.join(" ")
                })
            },
        )
        .compare("trusted", networks(old), networks(new), String::clone)
        .compare(
            "proxy_protocol",
            old.proxy_protocol,
            new.proxy_protocol,
            bool::to_string,
        )
        .compare("access_log", &old.access_log, &new.access_log, |log| {
            or_none(log.as_ref().map(|log| &log.path))
        })
}
