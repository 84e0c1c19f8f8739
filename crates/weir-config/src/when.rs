//! When an operator wants a key: one sentence for each key whose purpose does not say it already. The manual's cards
//! show it below the purpose.

/// Page of the section, key, sentence.
const WHEN: &[(&str, &str, &str)] = &[
    (
        "node",
        "interfaces",
        "On hosts with several networks, to keep Weir off interfaces where no client's packets arrive.",
    ),
    (
        "node",
        "attach",
        "Rarely: to use XDP on veth for measurements, or `tc` if another program needs the XDP hook.",
    ),
    (
        "node",
        "vip_interface",
        "If no other program (keepalived, Pacemaker, a router) brings the VIP to this machine.",
    ),
    (
        "node",
        "admin",
        "For Prometheus, a browser, or programs on other machines; the socket is enough for this machine.",
    ),
    (
        "node",
        "balance_own",
        "If programs on the director itself use its VIPs.",
    ),
    (
        "node",
        "socket_group",
        "If monitoring or operators without root call `weir status` and `weir server`.",
    ),
    (
        "node",
        "socket_mode",
        "To close the socket although `socket_group` is set.",
    ),
    (
        "node",
        "max_flows",
        "If `weir status` shows that the table is more than half full, or to save memory on a small machine.",
    ),
    (
        "node",
        "max_servers",
        "If servers come from lists or ipvsadm and will be more than twice those of the file.",
    ),
    (
        "node",
        "max_services",
        "If services come from ipvsadm and will be more than twice those of the file.",
    ),
    (
        "node",
        "syn_budget",
        "If real clients open more connections per second than this, or to limit a flood earlier.",
    ),
    (
        "node",
        "drain_timeout",
        "If proxied downloads take longer than ten seconds and a stop should not cut them.",
    ),
    (
        "node",
        "metrics",
        "To compare the latency distributions of single servers; it multiplies the series.",
    ),
    (
        "node-admin",
        "tls",
        "As soon as the address is not loopback.",
    ),
    (
        "node-admin",
        "tokens",
        "For every program that reads or operates over TCP; give each its own token.",
    ),
    (
        "node-admin",
        "read_requires_token",
        "If other users of this machine must not read the status.",
    ),
    (
        "node-admin",
        "hosts",
        "If clients use a name, a forwarded port or a reverse proxy in front of the API.",
    ),
    (
        "timeouts",
        "tcp",
        "Longer for connections that are idle for hours, such as database pools; shorter if the table fills up.",
    ),
    (
        "timeouts",
        "tcp_fin",
        "Shorter if many short connections fill the table.",
    ),
    (
        "timeouts",
        "udp",
        "Shorter for single queries (DNS), longer for VoIP and VPNs without keep-alive.",
    ),
    (
        "service",
        "listen",
        "One service per VIP and purpose; several listeners if ports belong together (80 and 443).",
    ),
    (
        "service",
        "forward",
        "`proxy` to read requests; `direct` on one segment, `tunnel` or `l3dsr` across routers, `nat` if servers \
         cannot be changed, `socket` for clients on this machine.",
    ),
    (
        "service",
        "tunnel",
        "`gue` if the network distributes by UDP ports or drops IP in IP; `gre` if the servers have it already.",
    ),
    (
        "service",
        "snat",
        "If the servers' gateway is not the director, or clients are on the servers' segment.",
    ),
    (
        "service",
        "dscp",
        "If two VIPs use one port on the same servers, or the network uses DSCP 1 otherwise.",
    ),
    (
        "service",
        "cgroup",
        "To balance only one container, slice or user.",
    ),
    (
        "service",
        "strict_ipvs",
        "To replace IPVS without any difference in choice, for example next to directors that still run it.",
    ),
    (
        "service",
        "protocol",
        "`http` for routes, header fields, retries and sticky cookies; `tcp` for everything else, TLS passed \
         through included.",
    ),
    (
        "service",
        "timeouts",
        "If responses take longer than the defaults allow, or slow clients should be cut earlier.",
    ),
    (
        "service",
        "limits",
        "To protect servers from single clients, large bodies or too many connections.",
    ),
    (
        "service",
        "retry_on",
        "Add status codes such as 503 if servers send them while they restart; leave requests with effects alone.",
    ),
    (
        "service",
        "forwarded",
        "If applications read the client's address from another field than `X-Forwarded-For`.",
    ),
    (
        "service",
        "x_forwarded",
        "If applications need single fields that `forwarded` does not set, such as `X-Real-IP`.",
    ),
    (
        "service",
        "set_header",
        "To give servers facts about the request, such as a tenant or the TLS version.",
    ),
    (
        "service",
        "add_header",
        "If servers accept several fields of that name and the client's must stay.",
    ),
    (
        "service",
        "remove_header",
        "If clients must not influence servers by a field.",
    ),
    (
        "service",
        "set_response_header",
        "For security fields of the whole site, such as HSTS.",
    ),
    (
        "service",
        "add_response_header",
        "For fields that may occur several times, such as `Link` and `Set-Cookie`.",
    ),
    (
        "service",
        "remove_response_header",
        "To hide what servers reveal about themselves.",
    ),
    (
        "service",
        "normalize_path",
        "`{ forward = \"normalized\" }` if routes protect paths; `false` if routes must match paths as received.",
    ),
    (
        "service",
        "underscores",
        "`keep` for applications with such fields and servers that do not mix them up.",
    ),
    ("service", "connect", "Only in front of forward proxies."),
    (
        "service",
        "abort_on_close",
        "`false` for clients that half-close, such as `printf … | nc`.",
    ),
    (
        "service",
        "request_buffering",
        "`false` for uploads that a server should see or reject at once.",
    ),
    (
        "service",
        "error_pages",
        "If users, and not only programs, see the errors.",
    ),
    (
        "service",
        "compression",
        "If servers do not compress and clients are on slow links.",
    ),
    ("service", "trusted", "Behind a CDN or another proxy."),
    (
        "service",
        "proxy_protocol",
        "Behind a layer 4 balancer that sends it; never on a port that clients reach directly.",
    ),
    (
        "service",
        "access_log",
        "To find out afterwards who asked for what; a log per service makes them easier to rotate.",
    ),
    (
        "service",
        "persistence",
        "If an application keeps sessions in a server's memory; for http, `sticky` of the pool is more exact.",
    ),
    (
        "service",
        "one_packet",
        "For DNS, syslog and other queries of one datagram, to save flow entries.",
    ),
    (
        "service",
        "tls",
        "To end TLS at the director; without it a `tcp` service passes TLS through.",
    ),
    (
        "service",
        "http2",
        "`false` for clients with a broken implementation.",
    ),
    (
        "pool",
        "scheduler",
        "`rr` for equal servers and short requests, `wlc` for long connections, `maglev` to survive a failover, \
         `sh` or `mh` to keep clients on a server.",
    ),
    (
        "pool",
        "servers",
        "If the servers are known when the file is written.",
    ),
    (
        "pool",
        "servers_file",
        "If a program (Consul template, a deploy script) knows the servers.",
    ),
    ("pool", "servers_dns", "If DNS or Consul knows the servers."),
    (
        "pool",
        "no_server",
        "`drop` if clients should retry rather than fail at once.",
    ),
    (
        "pool",
        "on_remove",
        "`reset` or `reschedule` if a removed server no longer exists, so its clients do not wait for a timeout.",
    ),
    (
        "pool",
        "sorry",
        "To show a maintenance page instead of refusing clients.",
    ),
    (
        "pool",
        "check",
        "Always, except for servers that another program supervises.",
    ),
    (
        "pool",
        "tls",
        "If the network between director and servers is not trusted, or servers accept only TLS.",
    ),
    (
        "pool",
        "http2",
        "For gRPC, or to carry many requests over few connections.",
    ),
    (
        "pool",
        "notify",
        "To alert, or to change another system when states change.",
    ),
    ("pool", "require", "`any` if one of several ports suffices."),
    (
        "pool",
        "slow_start",
        "If servers need warm caches before they can take their full share.",
    ),
    (
        "pool",
        "queue_timeout",
        "Longer for batch clients that prefer to wait; shorter if users should see an error soon.",
    ),
    (
        "pool",
        "sticky",
        "If an application keeps sessions in a server's memory.",
    ),
    (
        "pool",
        "proxy_protocol",
        "If servers need the client's address in a protocol without header fields, such as SMTP.",
    ),
    (
        "pool",
        "quorum",
        "If a few servers cannot carry the load and an honest error is better than overload.",
    ),
    (
        "pool",
        "quorum_hysteresis",
        "If the number of servers moves around the quorum.",
    ),
    (
        "pool",
        "panic_threshold",
        "If a mistake in the check would otherwise take a whole site down.",
    ),
    (
        "pool",
        "max_ejected",
        "Lower if the remaining servers could not carry the load; 0 to rely on checks alone.",
    ),
    (
        "server",
        "weight",
        "If servers differ in capacity; 0 to quiesce a server.",
    ),
    (
        "server",
        "max_connections",
        "If a server fails above a number of connections or has a fixed number of workers.",
    ),
    (
        "server",
        "min_connections",
        "With `max_connections`, so that a full server gets clients again only after some have left.",
    ),
    (
        "server",
        "backup",
        "For servers that should work only if all others fail.",
    ),
    (
        "server",
        "check",
        "If one server needs another check than its pool.",
    ),
    (
        "server",
        "forward",
        "If some servers are on another network than the rest.",
    ),
    (
        "check",
        "kind",
        "The kind closest to what clients do: it finds more faults than `tcp`.",
    ),
    (
        "check",
        "interval",
        "Shorter to find failures earlier, longer with thousands of servers.",
    ),
    (
        "check",
        "interval_falling",
        "To confirm a first failure faster than the usual interval would.",
    ),
    (
        "check",
        "interval_down",
        "Longer if probes of a failed server cost much.",
    ),
    (
        "check",
        "interval_rising",
        "To bring a recovered server back sooner.",
    ),
    ("check", "timeout", "Shorter than what clients tolerate."),
    ("check", "rise", "Higher if servers flap while they start."),
    (
        "check",
        "fall",
        "Higher on networks that lose packets, lower if clients notice every second.",
    ),
    (
        "check",
        "on_failure",
        "`remove` if clients of a failed server should be moved at once, by `on_remove`.",
    ),
    (
        "check",
        "start",
        "`up` if a restart of the director should not wait for results; `down` to be careful.",
    ),
    ("check", "port", "If health is served on another port."),
    (
        "check",
        "path",
        "A page that fails when the application cannot work, and that costs little.",
    ),
    ("check", "host", "If servers select a site by name."),
    (
        "check",
        "expect",
        "If an error page has status 200, or a redirect must not pass.",
    ),
    (
        "check",
        "verify",
        "`false` for self-signed certificates without a name, if the network is trusted.",
    ),
    (
        "check",
        "via",
        "`both` with `direct`, `tunnel` and `l3dsr`: it finds servers that are not prepared.",
    ),
    (
        "check",
        "proxy_protocol",
        "If the servers require the header on that port.",
    ),
    (
        "check",
        "command",
        "For protocols that no other kind speaks.",
    ),
    (
        "check",
        "user",
        "If the script needs an account with more rights than `nobody`.",
    ),
    ("route", "host", "To serve several sites on one address."),
    ("route", "path", "To send parts of a site to other pools."),
    (
        "route",
        "path_regex",
        "If prefixes and suffixes do not suffice, or a part of the path is needed in a text.",
    ),
    ("route", "method", "To separate readers from writers."),
    ("route", "source", "To admit or refuse networks."),
    ("route", "not", "For rules of the form `all except`."),
    (
        "route",
        "split",
        "For a canary: a share of requests to a new version.",
    ),
    (
        "route",
        "rewrite",
        "If servers have another path than clients use.",
    ),
    (
        "route",
        "redirect",
        "For moved pages, and from http to https.",
    ),
    (
        "route",
        "status",
        "To answer without a server: refuse, or a fixed text.",
    ),
    (
        "route",
        "close",
        "For scanners and floods, which deserve no answer.",
    ),
    (
        "sticky",
        "secret",
        "If several directors share the pool; otherwise Weir makes one.",
    ),
    (
        "sticky",
        "mode",
        "`rewrite` or `prefix` if a second cookie is not wanted and servers set one already.",
    ),
    (
        "sticky",
        "attributes",
        "For sites in frames of others (`SameSite=None`), or a lifetime.",
    ),
    (
        "service-tls",
        "strict_sni",
        "To refuse scanners that do not know a name.",
    ),
    ("service-tls", "minimum", "`1.3` if all clients have it."),
    (
        "service-tls",
        "ticket_keys",
        "If several directors serve one name.",
    ),
    (
        "service-tls",
        "client_ca",
        "If clients identify themselves by certificates.",
    ),
    ("pool-tls", "verify", "`false` only on trusted networks."),
    (
        "pool-tls",
        "ca",
        "For certificates of a company's own authority.",
    ),
    (
        "pool-tls",
        "server_name",
        "If the certificate has a name and the server is configured by address.",
    ),
    (
        "pool-tls",
        "certificate",
        "If servers ask Weir for a certificate.",
    ),
    (
        "proxy-limits",
        "connections",
        "To keep one service from using all descriptors.",
    ),
    (
        "proxy-limits",
        "retries",
        "0 if servers must see each request at most once.",
    ),
    (
        "proxy-limits",
        "retry_budget",
        "Lower to keep retries from multiplying the load when servers fail.",
    ),
    (
        "proxy-limits",
        "body",
        "If the application accepts only small uploads.",
    ),
    ("proxy-limits", "rate", "For login pages and public APIs."),
    (
        "proxy-limits",
        "concurrent",
        "If single clients occupy many workers with slow requests.",
    ),
    (
        "proxy-limits",
        "key",
        "If many clients share an address, behind a NAT or a CDN.",
    ),
    (
        "proxy-timeouts",
        "request",
        "Shorter against slow attackers, longer for clients on very slow links.",
    ),
    (
        "proxy-timeouts",
        "idle",
        "Shorter if idle clients use too many descriptors.",
    ),
    (
        "proxy-timeouts",
        "connect",
        "Shorter if servers are near and a retry elsewhere is better than waiting.",
    ),
    (
        "proxy-timeouts",
        "server",
        "Longer for reports and long polling.",
    ),
    (
        "proxy-timeouts",
        "response",
        "If only the first byte may take long, or only it must be fast.",
    ),
    (
        "proxy-timeouts",
        "tunnel",
        "Longer for WebSockets without pings.",
    ),
    (
        "proxy-timeouts",
        "total",
        "If a request must end after a fixed time, whatever happens.",
    ),
    (
        "vrrp",
        "version",
        "3 for IPv6, and for failover in less than a second.",
    ),
    (
        "vrrp",
        "priority",
        "Different on each director, so that the preferred one is known.",
    ),
    (
        "vrrp",
        "advert_interval",
        "Shorter for a faster failover, on networks that do not lose packets.",
    ),
    (
        "vrrp",
        "preempt",
        "`false` if a failover costs connections and both directors are equal.",
    ),
    (
        "vrrp",
        "preempt_delay",
        "If a director should not take over before its checks have results.",
    ),
    (
        "vrrp",
        "unicast_peers",
        "On networks without multicast, such as clouds.",
    ),
    (
        "vrrp",
        "group",
        "If addresses of two interfaces or families must move together.",
    ),
    (
        "vrrp",
        "track",
        "To release the addresses when an interface or a program fails.",
    ),
    (
        "vrrp",
        "notify",
        "To change routes or other systems with the state.",
    ),
    (
        "compression",
        "codings",
        "To leave out a coding that costs too much CPU.",
    ),
    (
        "compression",
        "types",
        "For text formats that are not in the default.",
    ),
    (
        "compression",
        "minimum",
        "Higher if small responses do not get smaller.",
    ),
    (
        "access-log",
        "format",
        "`json` for programs that collect logs.",
    ),
    (
        "ipvs",
        "expire_nodest_conn",
        "To end flows of removed servers as the kernel does with this setting.",
    ),
    (
        "ipvs",
        "expire_quiescent_template",
        "If persistent clients should leave a server of weight 0.",
    ),
    (
        "ipvs",
        "conn_reuse_mode",
        "Rarely; 0 keeps a client's reused port on its old server.",
    ),
    (
        "ipvs",
        "sloppy_tcp",
        "If this director takes over connections that it did not see begin.",
    ),
    (
        "ipvs",
        "lblc_expiration",
        "With `lblc`, if VIPs should lose their server sooner or later.",
    ),
    (
        "ipvs",
        "lblcr_expiration",
        "With `lblcr`, if VIPs should lose their servers sooner or later.",
    ),
    (
        "servers-dns",
        "record",
        "`SRV` if ports and weights come from DNS.",
    ),
    (
        "servers-dns",
        "port",
        "If servers listen on another port than the service.",
    ),
    (
        "servers-dns",
        "resolvers",
        "If a local agent, such as Consul's, answers for these names.",
    ),
    (
        "scheduler",
        "flags",
        "For clients behind a shared address: `sh-port`, `mh-port`; the fallbacks with `strict_ipvs`.",
    ),
    (
        "scheduler",
        "max_load",
        "If a few clients send so much that a hash overloads their server.",
    ),
    (
        "scheduler",
        "key",
        "For `hash`: the part of a request that caches or sessions depend on.",
    ),
    (
        "check",
        "address",
        "If health is served on another address, such as a management network.",
    ),
    (
        "check",
        "source",
        "If servers admit probes from one address only.",
    ),
    (
        "check",
        "interface",
        "On hosts with several routes to a server.",
    ),
    (
        "check",
        "method",
        "`HEAD` to save the body, if nothing of it is expected.",
    ),
    (
        "check",
        "headers",
        "If the page needs a credential or a media type.",
    ),
    (
        "check",
        "ca",
        "For certificates of a company's own authority.",
    ),
    (
        "check",
        "server_name",
        "If the certificate has another name than `host`.",
    ),
    (
        "check",
        "service",
        "If a gRPC server reports services separately.",
    ),
    ("check", "query", "A name that the server must know."),
    (
        "check",
        "dynamic",
        "If the program measures load and should set the weight.",
    ),
    ("check", "file", "If another program decides the weight."),
    (
        "expect",
        "status",
        "If redirects must not pass, or an error status is what you want to see.",
    ),
    (
        "expect",
        "body",
        "If a page has status 200 while the application fails.",
    ),
    ("expect", "regex", "If a fixed text does not suffice."),
    (
        "expect",
        "without",
        "If a page may name a failure in its text.",
    ),
    ("expect", "answer", "If a wrong answer is worse than none."),
    (
        "persistence",
        "timeout",
        "As long as the application's sessions.",
    ),
    (
        "persistence",
        "netmask",
        "If clients change addresses within a network, behind large NATs.",
    ),
    (
        "persistence",
        "netmask6",
        "64, because hosts change their IPv6 addresses within a network.",
    ),
    (
        "persistence",
        "client",
        "With `socket`, if users share a cgroup.",
    ),
    (
        "tunnel",
        "port",
        "If servers decapsulate GUE on another port than 6080.",
    ),
    (
        "tunnel",
        "checksum",
        "`full` if the network corrupts packets, `remote` to save the servers' work.",
    ),
    (
        "snat",
        "addresses",
        "If one address has too few ports, or a firewall expects certain addresses.",
    ),
    ("snat", "ports", "If the host's own range overlaps."),
    (
        "proxy-timeouts",
        "client",
        "Longer for clients that pause during uploads.",
    ),
    (
        "proxy-limits",
        "head",
        "If cookies or tokens are larger than the default allows.",
    ),
    (
        "proxy-limits",
        "idle_servers",
        "Higher for bursts to many servers, lower if servers have few slots for connections.",
    ),
    (
        "proxy-limits",
        "server_requests",
        "If servers leak memory per connection, or to spread connections after a scale-out.",
    ),
    (
        "proxy-limits",
        "streams",
        "Higher behind a CDN, which multiplexes many users.",
    ),
    (
        "proxy-limits",
        "resets",
        "Higher for clients that cancel often; lower against floods.",
    ),
    (
        "proxy-limits",
        "burst",
        "As many requests as a page loads at once.",
    ),
    (
        "service-tls",
        "client_auth",
        "If certificates are optional, and routes decide.",
    ),
    (
        "service-tls",
        "sni_host",
        "`same` if names on one address must be separated strictly.",
    ),
    ("pool-tls", "minimum", "`1.3` if all servers have it."),
    (
        "normalize-path",
        "merge_slashes",
        "`false` if servers distinguish `//` from `/`.",
    ),
    (
        "normalize-path",
        "encoded_slash",
        "`decode` if servers treat `%2F` as a slash, `reject` to be safe.",
    ),
    (
        "normalize-path",
        "forward",
        "`normalized` if routes deny access to paths.",
    ),
    (
        "x-forwarded",
        "real_ip",
        "For applications that read `X-Real-IP`, as behind nginx.",
    ),
    (
        "route",
        "header",
        "To route API versions, or requests marked by another proxy.",
    ),
    (
        "route",
        "query",
        "To route by a parameter, such as a version.",
    ),
    ("route", "cookie", "To keep testers on a new version."),
    ("route", "tls_version", "To refuse or warn old clients."),
    (
        "route",
        "client_cert_subject",
        "To admit single clients among those with certificates.",
    ),
    (
        "route",
        "set_header",
        "If one route's servers need a fact that others do not.",
    ),
    (
        "route",
        "set_response_header",
        "For caching or security rules of some paths.",
    ),
    ("route", "pool", "To use other servers than the service's."),
    ("route", "body", "With `status`, to tell users why."),
    (
        "vrrp",
        "excluded_addresses",
        "For more addresses than an advertisement holds, and for the other family.",
    ),
    (
        "vrrp",
        "source",
        "If the interface has several addresses and the peer expects one.",
    ),
    ("vrrp", "notify_master", "If only this transition matters."),
    (
        "vrrp-track",
        "interface",
        "If a director without its uplink must not be active.",
    ),
    (
        "vrrp-track",
        "script",
        "For conditions that only a program can decide.",
    ),
    (
        "vrrp-track",
        "process",
        "If the director is useless without another daemon.",
    ),
    (
        "vrrp-track",
        "file",
        "If another program decides, by a number in a file.",
    ),
    (
        "vrrp-track",
        "penalty",
        "If a failure should lower the priority instead of releasing the addresses.",
    ),
    (
        "response-header",
        "status",
        "For fields that only errors or only successes should have.",
    ),
    (
        "server",
        "tunnel",
        "If one server decapsulates another tunnel than the rest.",
    ),
];

/// When a key of a page is wanted.
pub(crate) fn when(page: &str, key: &str) -> Option<&'static str> {
    let found = WHEN.iter().find(|row| (row.0, row.1) == (page, key));
    found.map(|row| row.2)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog;

    /// Keys without a sentence; the number may only fall.
    const WITHOUT_MOST: usize = 100;

    #[test]
    fn sentences_are_for_existing_keys_and_each_key_has_one() {
        let keys = || {
            let keys = |section: &&'static crate::key::Section| {
                let page = section.page;
                section.built().map(move |key| (page, key.name))
            };
            catalog::PAGES.iter().flat_map(keys)
        };
        for (page, key, sentence) in WHEN {
            assert!(keys().any(|it| it == (*page, *key)), "{page}: {key}");
            assert!(sentence.ends_with('.'), "{sentence}");
            let same = WHEN.iter().filter(|row| (row.0, row.1) == (*page, *key));
            assert_eq!(same.count(), 1, "{page}: {key}");
        }
        let without: Vec<_> = keys()
            .filter(|(page, key)| when(page, key).is_none())
            .collect();
        assert!(
            without.len() <= WITHOUT_MOST,
            "{} without: {without:?}",
            without.len()
        );
    }
}
