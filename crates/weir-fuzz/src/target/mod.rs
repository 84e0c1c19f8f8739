//! Lists the fuzz targets.

mod config;
mod control;
mod health;
mod http;
mod import;
mod packet;
mod proxy;
mod sync;
mod vrrp;

/// A parser under test.
#[derive(Debug)]
pub struct Target {
    /// The name of the target and of its corpus.
    pub name: &'static str,
    /// Passes an input to the parser. The function must return for every input.
    pub run: fn(&[u8]),
    /// Returns the initial inputs.
    pub seeds: fn() -> Vec<Vec<u8>>,
    /// Maximum size of an input, in bytes.
    pub max_bytes: usize,
}

/// All targets; tools/fuzz.sh runs them by default.
pub const TARGETS: &[Target] = &[
    target("http-request", http::request, http::requests, 4096),
    target("http-response", http::response, http::responses, 4096),
    target("http-chunked", http::chunked, http::chunked_bodies, 1024),
    target("http-cookie", http::cookie, http::cookies, 512),
    target("proxy-preamble", http::preamble, http::preambles, 600),
    target("client-hello", http::client_hello, http::hellos, 2048),
    target("http2-input", proxy::http2, proxy::http2_seeds, 4096),
    target("certificate", proxy::certificate, proxy::certificates, 4096),
    target("check-stream", health::stream, health::streams, 2048),
    target("check-datagram", health::datagram, health::datagrams, 600),
    target("dns-answer", control::dns, control::dns_responses, 1024),
    target("vrrp-packet", vrrp::packet, vrrp::packets, 1100),
    target("sync-datagram", sync::datagram, sync::datagrams, 1400),
    target("packet", packet::wire, packet::packets, 512),
    target("packet-verdict", packet::verdict, packet::packets, 512),
    target("config-toml", config::toml, config::toml_seeds, 8192),
    target("config-json", config::json, config::json_seeds, 8192),
    target("server-list", config::list, config::list_seeds, 4096),
    target("api-body", control::api, control::api_bodies, 2048),
    target(
        "import-haproxy",
        import::haproxy,
        import::haproxy_seeds,
        8192,
    ),
    target("import-nginx", import::nginx, import::nginx_seeds, 8192),
    target(
        "import-keepalived",
        import::keepalived,
        import::keepalived_seeds,
        8192,
    ),
    target(
        "import-ldirectord",
        import::ldirectord,
        import::ldirectord_seeds,
        8192,
    ),
    target(
        "import-ipvsadm",
        import::ipvsadm,
        import::ipvsadm_seeds,
        4096,
    ),
];

const fn target(
    name: &'static str,
    run: fn(&[u8]),
    seeds: fn() -> Vec<Vec<u8>>,
    max_bytes: usize,
) -> Target {
    Target {
        name,
        run,
        seeds,
        max_bytes,
    }
}

/// Returns the target with this name.
pub fn find(name: &str) -> Option<&'static Target> {
    TARGETS.iter().find(|target| target.name == name)
}

/// Returns texts as seeds.
fn texts(seeds: &[&str]) -> Vec<Vec<u8>> {
    seeds.iter().map(|text| text.as_bytes().to_vec()).collect()
}
