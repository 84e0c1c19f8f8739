//! Metrics of proxy services.

use super::{ServerRow, Text, of_service};
use crate::status::{Proxied, Report};

type Family = (
    &'static str,
    &'static str,
    &'static str,
    fn(&Proxied) -> u64,
);

const FAMILIES: [Family; 14] = [
    ("requests_total", "counter", "Requests.", |proxy| {
        proxy.requests
    }),
    (
        "errors_total",
        "counter",
        "Answers of Weir's own in place of a server's.",
        |proxy| proxy.errors,
    ),
    (
        "retries_total",
        "counter",
        "Attempts at another server.",
        |proxy| proxy.retries,
    ),
    ("clients", "gauge", "Clients connected.", |proxy| {
        proxy.clients
    }),
    (
        "clients_max",
        "gauge",
        "Most clients connected at the same time.",
        |proxy| proxy.clients_max,
    ),
    (
        "queued",
        "gauge",
        "Clients that wait for a server.",
        |proxy| proxy.queued,
    ),
    (
        "log_dropped_total",
        "counter",
        "Lines of the access log that were left out.",
        |proxy| proxy.log_dropped,
    ),
    (
        "streams_reset_total",
        "counter",
        "HTTP/2 streams that clients reset before their response, or had reset by an error.",
        |proxy| proxy.streams_reset,
    ),
    (
        "streams_refused_total",
        "counter",
        "HTTP/2 streams refused because too many were reset.",
        |proxy| proxy.streams_refused,
    ),
    (
        "tls_handshakes_total",
        "counter",
        "TLS handshakes with clients.",
        |proxy| proxy.tls_handshakes,
    ),
    (
        "tls_resumed_total",
        "counter",
        "TLS handshakes with clients that resumed a session.",
        |proxy| proxy.tls_resumed,
    ),
    (
        "tls_failures_total",
        "counter",
        "TLS handshakes with clients that failed.",
        |proxy| proxy.tls_failures,
    ),
    (
        "shed_total",
        "counter",
        "Idle clients that were closed because descriptors were short.",
        |proxy| proxy.shed,
    ),
    (
        "accept_pauses_total",
        "counter",
        "How often clients were left in the backlog because descriptors were short.",
        |proxy| proxy.accept_pauses,
    ),
];

/// Writes nothing without proxy services.
pub(super) fn proxies(text: &mut Text, report: &Report, servers: &[ServerRow<'_>]) {
    let all = || {
        let services = report.services.iter();
        services.filter_map(|service| Some((service, service.proxy.as_ref()?)))
    };
    if all().next().is_none() {
        return;
    }
    for (name, kind, help, value) in FAMILIES {
        let name = format!("weir_proxy_{name}");
        text.family(&name, kind, help);
        for (service, proxy) in all() {
            text.sample(&name, &of_service(service), value(proxy));
        }
    }
    let name = "weir_proxy_responses_total";
    text.family(
        name,
        "counter",
        "Final responses by the class of their status.",
    );
    for (service, proxy) in all() {
        for (class, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"]
            .iter()
            .zip(proxy.responses)
        {
            let [label, pool] = of_service(service);
            text.sample(name, &[label, pool, ("class", class)], count);
        }
    }
    super::exchanges::exchanges(text, report, servers);
}
