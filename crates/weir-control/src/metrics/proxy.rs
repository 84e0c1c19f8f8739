//! Writes the metrics of proxy services.

use weir_proxy::Detail;

use super::server_row::{ServerRow, service_labels};
use super::text::Text;
use crate::status::{ProxyServiceDetails, Report};

type Family = (
    &'static str,
    &'static str,
    &'static str,
    fn(&ProxyServiceDetails) -> u64,
);

const FAMILIES: [Family; 20] = [
    ("requests_total", "counter", "Requests.", |proxy| {
        proxy.requests
    }),
    (
        "errors_total",
        "counter",
        "Responses that Weir generated instead of a server.",
        |proxy| proxy.errors,
    ),
    (
        "retries_total",
        "counter",
        "Attempts on another server after a failure.",
        |proxy| proxy.retries,
    ),
    ("clients", "gauge", "Connected clients.", |proxy| {
        proxy.clients
    }),
    (
        "clients_max",
        "gauge",
        "Peak number of concurrent clients.",
        |proxy| proxy.clients_max,
    ),
    (
        "queued",
        "gauge",
        "Clients that are waiting for a server.",
        |proxy| proxy.queued,
    ),
    (
        "log_dropped_total",
        "counter",
        "Access log lines that were dropped.",
        |proxy| proxy.log_dropped,
    ),
    (
        "streams_reset_total",
        "counter",
        "HTTP/2 streams that clients reset before the response, or that were reset because of a client's error.",
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
        "Failed TLS handshakes with clients.",
        |proxy| proxy.tls_failures,
    ),
    (
        "shed_total",
        "counter",
        "Idle client connections that were closed to free descriptors.",
        |proxy| proxy.shed,
    ),
    (
        "accept_pauses_total",
        "counter",
        "Number of times accepting was paused because few descriptors were available.",
        |proxy| proxy.accept_pauses,
    ),
    (
        "queued_max",
        "gauge",
        "Peak number of clients that waited in the queue of one pool.",
        |proxy| proxy.queued_max,
    ),
    (
        "connections_per_second_max",
        "gauge",
        "Peak number of new client connections in one second.",
        |proxy| proxy.connections_per_second_max,
    ),
    (
        "requests_per_second_max",
        "gauge",
        "Peak number of requests in one second.",
        |proxy| proxy.requests_per_second_max,
    ),
    (
        "clients_limit",
        "gauge",
        "Maximum number of concurrent clients, as configured.",
        |proxy| proxy.clients_limit,
    ),
    (
        "h2_upstream_active",
        "gauge",
        "Requests in progress to servers over HTTP/2.",
        |proxy| proxy.h2_upstream_active,
    ),
    (
        "h2_upstream_requests_total",
        "counter",
        "Requests sent to servers over HTTP/2.",
        |proxy| proxy.h2_upstream_requests,
    ),
];

/// Writes the metrics of proxy services. Writes nothing if there are no proxy services.
pub(super) fn write_proxies(text: &mut Text, report: &Report, servers: &[ServerRow<'_>]) {
    let proxies = || {
        let services = report.services.iter();
        services.filter_map(|service| Some((service, service.proxy.as_ref()?)))
    };
    if proxies().next().is_none() {
        return;
    }
    for (name, kind, help, value) in FAMILIES {
        let name = format!("weir_proxy_{name}");
        text.write_family(&name, kind, help);
        for (service, proxy) in proxies() {
            text.write_sample(&name, &service_labels(service), value(proxy));
        }
    }
    let name = "weir_proxy_responses_total";
    text.write_family(name, "counter", "Final responses by status class.");
    for (service, proxy) in proxies() {
        for (class, count) in ["1xx", "2xx", "3xx", "4xx", "5xx"]
            .iter()
            .zip(proxy.responses)
        {
            let [label, pool] = service_labels(service);
            text.write_sample(name, &[label, pool, ("class", class)], count);
        }
    }
    for detail in Detail::ALL {
        let kind = if detail.is_gauge() {
            "gauge"
        } else {
            "counter"
        };
        let name = match detail.is_gauge() {
            true => format!("weir_proxy_{}", detail.as_str()),
            false => format!("weir_proxy_{}_total", detail.as_str()),
        };
        text.write_family(&name, kind, detail.help());
        for (service, proxy) in proxies() {
            let count = proxy.details.get(detail.as_str()).copied().unwrap_or(0);
            text.write_sample(&name, &service_labels(service), count);
        }
    }
    super::exchanges::write_exchanges(text, report, servers);
}
