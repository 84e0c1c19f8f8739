//! Imports nginx.conf: upstreams, servers, locations with `proxy_pass` and `return`, and streams.
//!
//! In nginx, server blocks with different names can share an address; in Weir, a service has the addresses, and its
//! routes have the names. Server blocks that share their addresses therefore become one service.

mod action;
mod auth;
#[cfg(test)]
mod directive_tests;
mod expand;
mod fallback;
mod file_test;
mod group;
mod header;
mod limit;
mod listen;
mod location;
mod log;
mod log_format;
mod mirror;
mod nested;
mod page;
mod path;
mod rewrite;
mod route;
mod server;
mod split;
mod static_files;
mod stream;
mod target;
mod tls;
mod tree;
mod upstream;
mod user_id;
mod value_map;
mod variable;
mod when;

use std::collections::{HashMap, HashSet};

use crate::guard;
use crate::inert::{self, Unsupported};
use crate::layer4::Writer;
use crate::name::UniqueNames;
use crate::note::{Notes, Position};
use crate::time::Units;
use crate::validate::validate;
use crate::{Environment, Imported};

use limit::ZoneUses;
use log::ServiceLog;
use split::Splits;
use tree::Node;
use upstream::Upstreams;
use value_map::Maps;

/// State of one import.
struct Context<'w> {
    environment: &'w dyn Environment,
    writer: Writer,
    upstreams: Upstreams,
    splits: Splits,
    /// Names of services.
    services: UniqueNames,
    zones: ZoneUses,
    /// Locations of the current server block that its `mirror` lines refer to.
    mirror_locations: Vec<Node>,
    /// Locations of the current server block that its `auth_request` lines refer to.
    auth_locations: Vec<Node>,
    /// Names of the pools written so far, by target and `Host`.
    pools: HashMap<String, String>,
    /// Lines that were imported.
    used: HashSet<Position>,
    /// Lines of the current server block that set keys of the service.
    service_lines: HashSet<Position>,
    /// The access log of the current service.
    access_log: Option<ServiceLog>,
    /// Whether the current service appends to X-Forwarded-For.
    appends_forwarded_for: bool,
    /// Whether the current service has a port that clients send in `Host`: neither 80 nor 443.
    has_nonstandard_port: bool,
    /// The first name of the current server block.
    server_name: String,
    /// Number of routes for a location of the current server block: one for each of its names.
    routes_per_location: usize,
    /// Lines that a service did not use, with the reason; another service of the same server block may use them.
    unneeded: Vec<(Node, &'static str)>,
    /// `if` blocks with an unsupported condition, imported as routes that reject every request: lines after such a
    /// block are unneeded in weir.toml, but not in nginx.
    rejecting_ifs: Vec<Position>,
}

/// Imports nginx.conf; `name` is its path, the base of relative includes. A file of conf.d, with servers outside of
/// `http`, is accepted too.
pub fn nginx(name: &str, text: &str, environment: &dyn Environment) -> Imported {
    let mut notes = Notes::default();
    let nodes = tree::read_file(environment, &mut notes, name, text);
    classify(&nodes, &mut notes);
    let mut context = Context {
        environment,
        writer: Writer::default(),
        upstreams: Upstreams::default(),
        splits: Splits::default(),
        services: UniqueNames::default(),
        zones: ZoneUses::new(),
        mirror_locations: Vec::new(),
        auth_locations: Vec::new(),
        pools: HashMap::new(),
        used: HashSet::new(),
        service_lines: HashSet::new(),
        access_log: None,
        appends_forwarded_for: false,
        has_nonstandard_port: false,
        server_name: String::new(),
        routes_per_location: 1,
        unneeded: Vec::new(),
        rejecting_ifs: Vec::new(),
    };
    let belongs_in_http = |node: &Node| matches!(node.keyword(), "server" | "upstream");
    if nodes.iter().any(belongs_in_http) && !nodes.iter().any(|node| node.keyword() == "http") {
        read_http(&mut context, &nodes, &mut notes);
        return validate(context.writer.document, notes);
    }
    for node in &nodes {
        // Upstreams of `http` and `stream` can have the same name.
        context.upstreams = Upstreams::default();
        context.pools.clear();
        match node.keyword() {
            "http" => read_http(&mut context, node.inner(), &mut notes),
            "stream" => stream::write(&mut context, node, &mut notes),
            "events" => node.reject(&mut notes, "Weir chooses its own event mechanism"),
            "mail" => node.reject(&mut notes, "Weir does not proxy mail"),
            keyword => node.reject(&mut notes, unsupported_main_reason(keyword)),
        }
    }
    validate(context.writer.document, notes)
}

/// Records which lines affect clients or servers, marks lines that restrict access, and adds remarks about unneeded
/// lines.
fn classify(nodes: &[Node], notes: &mut Notes) {
    for node in nodes {
        notes.record_effect(
            node.position,
            inert::is_inert_nginx_directive(&node.words, UNSUPPORTED),
        );
        if guard::nginx_directive_restricts_access(&node.words) {
            notes.mark_restriction(node.position);
        }
        if let Some(reason) = unneeded_reason(node) {
            notes.remark(node.position, reason);
        }
        classify(node.inner(), notes);
    }
}

/// Returns why a line needs no key: Weir behaves the same without it.
fn unneeded_reason(node: &Node) -> Option<&'static str> {
    const DEFAULTS: &[(&str, &str)] = &[
        ("absolute_redirect", "on"),
        ("auth_request", "off"),
        ("brotli", "off"),
        ("charset", "off"),
        ("etag", "on"),
        ("gunzip", "off"),
        ("if_modified_since", "exact"),
        ("ignore_invalid_headers", "on"),
        ("limit_conn_dry_run", "off"),
        ("limit_req_dry_run", "off"),
        ("port_in_redirect", "on"),
        ("proxy_pass_request_body", "on"),
        ("proxy_pass_request_headers", "on"),
        ("satisfy", "all"),
        ("server_name_in_redirect", "off"),
        ("ssi", "off"),
        ("userid", "off"),
    ];
    let [keyword, value] = node.words.as_slice() else {
        return None;
    };
    match (keyword.as_str(), value.as_str()) {
        ("limit_req_status" | "limit_conn_status", "429") => {
            Some("not imported: this is the status that Weir sends")
        }
        pair => DEFAULTS
            .contains(&pair)
            .then_some("not imported: this is nginx's default"),
    }
}

fn unsupported_main_reason(keyword: &str) -> &'static str {
    match keyword {
        "user" | "pid" | "daemon" | "master_process" | "working_directory" | "lock_file" => {
            "the systemd unit controls how the process runs"
        }
        "worker_processes"
        | "worker_cpu_affinity"
        | "worker_priority"
        | "worker_rlimit_nofile"
        | "worker_rlimit_core"
        | "thread_pool"
        | "pcre_jit"
        | "timer_resolution"
        | "worker_shutdown_timeout" => "Weir runs one worker per CPU",
        "error_log" => "Weir logs to standard error; under systemd, the journal stores the log",
        "load_module" => "Weir has no modules",
        "include" => "no such file",
        _ => "weir.toml has no equivalent",
    }
}

fn read_http(context: &mut Context<'_>, nodes: &[Node], notes: &mut Notes) {
    let maps = Maps::read(nodes);
    let mut nodes = nodes.to_vec();
    context.splits = Splits::read(&nodes);
    context.splits.merge_conditions(&mut nodes);
    context.used.extend(expand::expand(&mut nodes, &maps));
    for node in nodes.iter_mut().filter(|node| node.keyword() == "server") {
        *node = file_test::with_try_files(&nested::with_hoisted_locations(node));
    }
    let nodes = nodes.as_slice();
    for node in nodes.iter().filter(|node| node.keyword() == "upstream") {
        context.upstreams.read(node, notes);
    }
    context.upstreams.record_mentions(nodes);
    limit::count_zones(nodes, &mut context.zones);
    server::write(context, nodes, notes);
    let used = maps.write(&mut context.writer.document);
    context.used.extend(used);
    for node in nodes {
        let is_handled = context.used.contains(&node.position) || notes.has_note(node.position);
        let is_off = node.keyword().starts_with("gzip_")
            && !nodes.iter().any(|node| node.keyword() == "gzip");
        if is_off && !is_handled {
            notes.remark(node.position, "not imported: compression is off");
        } else if node.keyword().starts_with("ssl_") && !is_handled && !uses_tls(nodes) {
            notes.remark(node.position, "not imported: no server block uses TLS");
        } else if !is_handled && !matches!(node.keyword(), "server" | "upstream") {
            node.reject(notes, unsupported_reason(node.keyword()));
        }
    }
    context.upstreams.note_unused(notes);
}

/// Returns whether a server block uses TLS; `nodes` are the lines of `http`.
fn uses_tls(nodes: &[Node]) -> bool {
    let is_tls_listen =
        |line: &Node| line.keyword() == "listen" && line.words.iter().any(|word| word == "ssl");
    let mut servers = nodes.iter().filter(|node| node.keyword() == "server");
    servers.any(|server| {
        server.inner().iter().any(is_tls_listen)
            || tls::ssl_on_line(server.inner(), nodes).is_some()
    })
}

/// Directives of `http`, `server` and `location` without an equivalent in weir.toml.
const UNSUPPORTED: &[Unsupported] = &[
    Unsupported {
        reason: "no imported route with `files` or a fixed response uses it",
        visible: &[
            "root",
            "alias",
            "index",
            "try_files",
            "default_type",
            "expires",
        ],
        inert: &[],
    },
    Unsupported {
        reason: "a route's `files` does not list directories",
        visible: &["autoindex"],
        inert: &[],
    },
    Unsupported {
        reason: "a route's `files` has no such setting",
        visible: &["charset", "etag"],
        inert: &[
            "sendfile",
            "tcp_nopush",
            "open_file_cache",
            "directio",
            "aio",
        ],
    },
    Unsupported {
        reason: "Weir has its own list of media types",
        visible: &["types"],
        inert: &["types_hash_max_size", "types_hash_bucket_size"],
    },
    Unsupported {
        reason: "Weir does not change bodies",
        visible: &["ssi", "sub_filter"],
        inert: &[],
    },
    Unsupported {
        reason: "no imported route depends on this location",
        visible: &["internal"],
        inert: &[],
    },
    Unsupported {
        reason: "Weir supports only HTTP servers",
        visible: &[
            "fastcgi_pass",
            "fastcgi_param",
            "fastcgi_index",
            "fastcgi_split_path_info",
            "uwsgi_pass",
            "scgi_pass",
            "grpc_pass",
            "memcached_pass",
            "uwsgi_param",
            "fastcgi_read_timeout",
        ],
        inert: &[],
    },
    Unsupported {
        reason: "no imported service or route uses it",
        visible: &[],
        inert: &["access_log", "log_format"],
    },
    Unsupported {
        reason: "Weir logs to standard error; under systemd, the journal stores the log",
        visible: &[],
        inert: &["log_not_found", "error_log"],
    },
    Unsupported {
        reason: "`compression` has no such setting",
        visible: &[
            "gzip_proxied",
            "gzip_disable",
            "gzip_http_version",
            "brotli_comp_level",
        ],
        inert: &["gzip_comp_level", "gzip_vary", "gzip_buffers"],
    },
    Unsupported {
        reason: "no imported route to a pool uses it",
        visible: &["gzip", "gunzip", "brotli"],
        inert: &[],
    },
    Unsupported {
        reason: "a route can only compare parts of the request",
        visible: &[
            "map",
            "geo",
            "split_clients",
            "set",
            "if",
            "break",
            "rewrite",
            "perl",
            "js_import",
        ],
        inert: &["rewrite_log"],
    },
    Unsupported {
        reason: "a limit applies to one service or route, and rejected requests get status 429; several services or \
                 routes cannot share a zone",
        visible: &[
            "limit_req",
            "limit_req_zone",
            "limit_conn",
            "limit_conn_zone",
            "limit_req_status",
            "limit_conn_status",
        ],
        inert: &[],
    },
    Unsupported {
        reason: "it does not protect any imported route",
        visible: &[
            "auth_basic",
            "auth_basic_user_file",
            "auth_request",
            "auth_request_set",
            "satisfy",
        ],
        inert: &[],
    },
    Unsupported {
        reason: "it does not protect any imported route to a pool",
        visible: &["allow", "deny"],
        inert: &[],
    },
    Unsupported {
        reason: "it does not apply to any imported route to a pool",
        visible: &["add_header", "proxy_hide_header", "proxy_set_header"],
        inert: &[],
    },
    Unsupported {
        reason: "Weir does not rewrite responses this way",
        visible: &[
            "more_set_headers",
            "proxy_pass_header",
            "proxy_cookie_path",
            "proxy_cookie_domain",
            "proxy_redirect",
        ],
        inert: &[],
    },
    Unsupported {
        reason: "a service's `error_pages` accepts only files and fixed URLs",
        visible: &["error_page", "proxy_intercept_errors"],
        inert: &[],
    },
    Unsupported {
        reason: "Weir has no cache",
        visible: &[
            "proxy_cache",
            "proxy_cache_path",
            "proxy_cache_valid",
            "proxy_cache_key",
            "proxy_cache_use_stale",
            "proxy_cache_lock",
            "proxy_no_cache",
        ],
        inert: &["proxy_temp_path"],
    },
    Unsupported {
        reason: "Weir has no such setting",
        visible: &[],
        inert: &[
            "proxy_send_timeout",
            "ssl_session_cache",
            "ssl_session_timeout",
            "ssl_session_tickets",
            "ssl_prefer_server_ciphers",
            "ssl_ciphers",
            "ssl_dhparam",
            "ssl_ecdh_curve",
            "ssl_stapling",
            "ssl_stapling_verify",
            "ssl_trusted_certificate",
            "ssl_buffer_size",
            "ssl_early_data",
            "proxy_temp_file_write_size",
            "proxy_cache_bypass",
            "lingering_close",
            "proxy_http_version",
            "proxy_buffering",
            "proxy_buffers",
            "proxy_buffer_size",
            "proxy_busy_buffers_size",
            "proxy_max_temp_file_size",
            "proxy_socket_keepalive",
            "proxy_headers_hash_max_size",
            "proxy_headers_hash_bucket_size",
            "open_log_file_cache",
            "log_subrequest",
        ],
    },
    Unsupported {
        reason: "`abort_on_close` is set per service, not per route",
        visible: &["proxy_ignore_client_abort"],
        inert: &[],
    },
    Unsupported {
        reason: "`request_buffering` is set per service, not per route",
        visible: &[],
        inert: &["proxy_request_buffering"],
    },
    Unsupported {
        reason: "no imported route to a pool uses it",
        visible: &["proxy_next_upstream", "proxy_next_upstream_tries"],
        inert: &[],
    },
    Unsupported {
        reason: "`timeouts.total` limits the time for a request with all of its retries",
        visible: &["proxy_next_upstream_timeout"],
        inert: &[],
    },
    Unsupported {
        reason: "a service's `limits` has no such key, or counts differently",
        visible: &["client_max_body_size", "large_client_header_buffers"],
        inert: &[
            "client_body_buffer_size",
            "client_header_buffer_size",
            "client_body_temp_path",
        ],
    },
    Unsupported {
        reason: "Weir resolves names without this setting",
        visible: &[],
        inert: &["resolver", "resolver_timeout"],
    },
    Unsupported {
        reason: "Weir has no setting for this",
        visible: &[
            "merge_slashes",
            "port_in_redirect",
            "absolute_redirect",
            "server_name_in_redirect",
            "http3",
        ],
        inert: &[
            "http2",
            "keepalive_requests",
            "keepalive_disable",
            "reset_timedout_connection",
            "server_tokens",
            "tcp_nodelay",
            "server_names_hash_bucket_size",
            "server_names_hash_max_size",
            "variables_hash_max_size",
            "map_hash_bucket_size",
        ],
    },
    Unsupported {
        reason: "a service's `client_ip_header` is a header field that its `trusted` proxies send",
        visible: &["real_ip_header", "real_ip_recursive"],
        inert: &[],
    },
    Unsupported {
        reason: "`weir status` and /metrics show the state",
        visible: &[],
        inert: &["stub_status", "status_zone"],
    },
    Unsupported {
        reason: "no such file",
        visible: &["include"],
        inert: &[],
    },
];

/// Returns why a directive is not supported.
fn unsupported_reason(keyword: &str) -> &'static str {
    match (inert::find_unsupported(UNSUPPORTED, keyword), keyword) {
        (Some(found), _) => found.reason,
        (None, keyword) if keyword.starts_with("gzip_") => "`compression` has no such setting",
        (None, keyword) if keyword.starts_with("ssl_") => "a service's `tls` has no such key",
        (None, keyword) if keyword.starts_with("proxy_ssl_") => {
            "a pool's `tls` has no such key, or no pool here uses TLS"
        }
        _ => "weir.toml has no equivalent",
    }
}

/// Parses an nginx time and returns milliseconds. Numbers have the units `ms`, `s`, `m`, `h`, `d` or `w`; a number
/// without a unit is in seconds.
fn parse_time(text: &str) -> Option<u64> {
    const UNITS: &Units = &[
        ("ms", 1),
        ("s", 1000),
        ("", 1000),
        ("m", 60_000),
        ("h", 3_600_000),
        ("d", 86_400_000),
        ("w", 604_800_000),
    ];
    crate::time::parse_sum(text, UNITS)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_with_units_and_sums_are_parsed() {
        assert_eq!(parse_time("75"), Some(75_000));
        assert_eq!(parse_time("1m30s"), Some(90_000));
        assert_eq!(parse_time("500ms"), Some(500));
        assert_eq!(parse_time("soon"), None);
        assert_eq!(parse_time(""), None);
        assert_eq!(parse_time(&"4294967295w".repeat(9)), None);
        assert_eq!(parse_time("9999999999999999999w"), None);
    }
}
