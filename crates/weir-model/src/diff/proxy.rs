//! Differences of proxy services.

use std::collections::{HashMap, HashSet};

use super::{Change, Edit, Edits, duration};
use crate::{Proxy, ProxyProtocol};

pub(super) fn diff(old: &[Proxy], new: &[Proxy], changes: &mut Vec<Change>) {
    let after: HashMap<&str, &Proxy> = new
        .iter()
        .map(|proxy| (proxy.name.as_str(), proxy))
        .collect();
    let before: HashSet<&str> = old.iter().map(|proxy| proxy.name.as_str()).collect();
    for proxy in old {
        let Some(now) = after.get(proxy.name.as_str()) else {
            changes.push(Change::ServiceRemoved {
                service: proxy.name.clone(),
                summary: summary(proxy),
            });
            continue;
        };
        let edits = edits(proxy, now);
        if !edits.is_empty() {
            changes.push(Change::ServiceChanged {
                service: proxy.name.clone(),
                edits,
            });
        }
    }
    for proxy in new
        .iter()
        .filter(|proxy| !before.contains(proxy.name.as_str()))
    {
        changes.push(Change::ServiceAdded {
            service: proxy.name.clone(),
            summary: summary(proxy),
        });
    }
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
    let (t, u) = (&old.timeouts, &new.timeouts);
    let (l, m) = (&old.limits, &new.limits);
    let networks = |proxy: &Proxy| {
        proxy
            .trusted
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
            .join(", ")
    };
    Edits(Vec::new())
        .compare("listen", listen(old), listen(new), String::clone)
        .compare(
            "protocol",
            old.protocol,
            new.protocol,
            |protocol: &ProxyProtocol| protocol.as_str().to_owned(),
        )
        .compare("routes", &old.routes, &new.routes, |routes| {
            let line = |route: &crate::Route| {
                let edits = if route.edits == crate::RouteEdits::default() {
                    ""
                } else {
                    " with edits"
                };
                format!("{route}{edits}")
            };
            let lines: Vec<String> = routes.iter().map(line).collect();
            format!("[{}]", lines.join(", "))
        })
        .compare("pool", &old.pool, &new.pool, |pool| (*pool).clone())
        .compare("timeouts.request", t.request, u.request, duration)
        .compare("timeouts.idle", t.idle, u.idle, duration)
        .compare("timeouts.client", t.client, u.client, duration)
        .compare("timeouts.connect", t.connect, u.connect, duration)
        .compare("timeouts.server", t.server, u.server, duration)
        .compare("timeouts.tunnel", t.tunnel, u.tunnel, duration)
        .compare("timeouts.total", t.total, u.total, |total| {
            total.map_or("none".to_owned(), |total| duration(&total))
        })
        .compare("limits.head", l.head, m.head, u32::to_string)
        .compare("limits.fields", l.fields, m.fields, u32::to_string)
        .compare(
            "limits.connections",
            l.connections,
            m.connections,
            u32::to_string,
        )
        .compare("limits.retries", l.retries, m.retries, u32::to_string)
        .compare(
            "limits.idle_servers",
            l.idle_servers,
            m.idle_servers,
            u32::to_string,
        )
        .compare("limits.body", l.body, m.body, u32::to_string)
        .compare("limits.rate", l.rate, m.rate, u32::to_string)
        .compare("limits.burst", l.burst, m.burst, u32::to_string)
        .compare(
            "limits.concurrent",
            l.concurrent,
            m.concurrent,
            u32::to_string,
        )
        .compare(
            "limits.retry_budget",
            l.retry_budget,
            m.retry_budget,
            u32::to_string,
        )
        .compare("limits.key", &old.limit_key, &new.limit_key, |key| {
            key.to_string()
        })
        .compare("forwarded", old.forwarded, new.forwarded, |forwarded| {
            forwarded.as_str().to_owned()
        })
        .compare("connect", old.connect, new.connect, bool::to_string)
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
            log.as_ref()
                .map_or("none".to_owned(), |log| log.path.clone())
        })
        .0
}
