//! nginx.conf: upstreams, servers, locations with `proxy_pass` and `return`, streams.
//!
//! nginx asks each address that it listens on for its servers, and these for their names; a service of Weir is what listens,
//! and its routes have the names. So server blocks that share their addresses become one service.

mod action;
mod header;
mod limit;
mod listen;
mod location;
mod page;
mod server;
mod stream;
mod target;
mod tls;
mod tree;
mod upstream;
mod when;

use std::collections::{HashMap, HashSet};

use crate::guard;
use crate::inert;
use crate::layer4::Writer;
use crate::note::{Notes, Place};
use crate::settle::settle;
use crate::{Imported, World};

use tree::Node;
use upstream::Upstreams;

/// What the whole file is read into.
struct Context<'w> {
    world: &'w dyn World,
    writer: Writer,
    upstreams: Upstreams,
    /// Pools that were written, by what leads to them.
    pools: HashMap<String, String>,
    used: HashSet<Place>,
    /// What one service had no use for, and why; another one of the same block's may have.
    unneeded: Vec<(Node, &'static str)>,
}

/// Reads nginx.conf; `name` is its path, which included files are relative to. A file of conf.d, which holds servers without
/// `http` around them, is read as if it were there.
pub fn nginx(name: &str, text: &str, world: &dyn World) -> Imported {
    let mut notes = Notes::default();
    let nodes = tree::read(world, &mut notes, name, text);
    guards(&nodes, &mut notes);
    let mut context = Context {
        world,
        writer: Writer::default(),
        upstreams: Upstreams::default(),
        pools: HashMap::new(),
        used: HashSet::new(),
        unneeded: Vec::new(),
    };
    let of_http = |node: &Node| matches!(node.keyword(), "server" | "upstream");
    if nodes.iter().any(of_http) && !nodes.iter().any(|node| node.keyword() == "http") {
        http(&mut context, &nodes, &mut notes);
        return settle(context.writer.document, notes);
    }
    for node in &nodes {
        match node.keyword() {
            "http" => http(&mut context, node.inner(), &mut notes),
            "stream" => stream::write(&mut context, node, &mut notes),
            "events" => node.refuse(&mut notes, "Weir has its own way of waiting"),
            "mail" => node.refuse(&mut notes, "Weir speaks no mail"),
            keyword => node.refuse(&mut notes, main_reason(keyword)),
        }
    }
    settle(context.writer.document, notes)
}

/// Marks what keeps clients out.
fn guards(nodes: &[Node], notes: &mut Notes) {
    for node in nodes {
        notes.weigh(node.place, inert::nginx(&node.words));
        if guard::nginx(&node.words) {
            notes.guard(node.place);
        }
        guards(node.inner(), notes);
    }
}

fn main_reason(keyword: &str) -> &'static str {
    match keyword {
        "user" | "pid" | "daemon" | "master_process" | "working_directory" | "lock_file" => {
            "how the process runs is its unit's matter"
        }
        "worker_processes"
        | "worker_cpu_affinity"
        | "worker_priority"
        | "worker_rlimit_nofile"
        | "worker_rlimit_core"
        | "thread_pool"
        | "pcre_jit"
        | "timer_resolution"
        | "worker_shutdown_timeout" => "Weir has a worker for each processor",
        "error_log" => "Weir logs to standard error; the unit keeps it",
        "load_module" => "Weir loads no modules",
        "include" => "there is no such file",
        _ => "weir.toml has no place for it",
    }
}

fn http(context: &mut Context<'_>, nodes: &[Node], notes: &mut Notes) {
    for node in nodes.iter().filter(|node| node.keyword() == "upstream") {
        context.upstreams.read(node, notes);
    }
    server::write(context, nodes, notes);
    for node in nodes {
        let told = context.used.contains(&node.place) || notes.speaks_of(node.place);
        if !told && !matches!(node.keyword(), "server" | "upstream") {
            node.refuse(notes, reason(node.keyword()));
        }
    }
    context.upstreams.unused(notes);
}

/// Directives of `http`, `server` and `location` that have no place, and why.
const ELSEWHERE: &[(&[&str], &str)] = &[
    (
        &[
            "root",
            "alias",
            "index",
            "autoindex",
            "try_files",
            "types",
            "default_type",
            "sendfile",
            "tcp_nopush",
            "open_file_cache",
            "expires",
            "charset",
            "ssi",
            "sub_filter",
            "directio",
            "aio",
            "types_hash_max_size",
            "etag",
            "internal",
        ],
        "Weir serves no files",
    ),
    (
        &[
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
        "servers of Weir speak HTTP",
    ),
    (
        &["access_log", "log_format", "log_not_found", "error_log"],
        "`access_log` of a service writes to a file, by its own formats",
    ),
    (
        &[
            "gzip_comp_level",
            "gzip_vary",
            "gzip_proxied",
            "gzip_disable",
            "gzip_http_version",
            "gzip_buffers",
            "brotli_comp_level",
        ],
        "`compression` does as is right by itself",
    ),
    (
        &["gzip", "gunzip", "brotli"],
        "`compression` of a service is for all of its requests alike",
    ),
    (
        &[
            "map",
            "geo",
            "split_clients",
            "set",
            "if",
            "break",
            "rewrite",
            "rewrite_log",
            "perl",
            "js_import",
        ],
        "a route compares what a request says, and computes nothing",
    ),
    (
        &[
            "limit_req",
            "limit_req_zone",
            "limit_conn",
            "limit_conn_zone",
            "limit_req_status",
            "limit_conn_status",
        ],
        "`limits` are a service's: of all its requests alike, and answered 429",
    ),
    (
        &[
            "auth_basic",
            "auth_basic_user_file",
            "auth_request",
            "satisfy",
        ],
        "Weir asks nobody who it is; `source` of a route tells networks apart",
    ),
    (&["allow", "deny"], "nothing that it guards leads to a pool"),
    (
        &["add_header", "proxy_hide_header", "proxy_set_header"],
        "nothing that it is for leads to a pool",
    ),
    (
        &[
            "more_set_headers",
            "proxy_pass_header",
            "proxy_cookie_path",
            "proxy_cookie_domain",
            "proxy_redirect",
        ],
        "Weir passes responses as they are",
    ),
    (
        &["error_page", "proxy_intercept_errors"],
        "`error_pages` of a service names files",
    ),
    (
        &[
            "proxy_cache",
            "proxy_cache_path",
            "proxy_cache_valid",
            "proxy_cache_key",
            "proxy_cache_use_stale",
            "proxy_cache_lock",
            "proxy_no_cache",
            "proxy_cache_bypass",
            "proxy_temp_path",
        ],
        "Weir keeps no answers",
    ),
    (
        &[
            "proxy_http_version",
            "proxy_buffering",
            "proxy_buffers",
            "proxy_buffer_size",
            "proxy_busy_buffers_size",
            "proxy_max_temp_file_size",
            "proxy_socket_keepalive",
            "proxy_headers_hash_max_size",
            "proxy_headers_hash_bucket_size",
            "proxy_send_timeout",
        ],
        "Weir does as is best by itself; see `timeouts`",
    ),
    (
        &["proxy_ignore_client_abort"],
        "`abort_on_close` is a service's, not a route's",
    ),
    (
        &["proxy_request_buffering"],
        "`request_buffering` is a service's, not a route's",
    ),
    (
        &[
            "proxy_next_upstream",
            "proxy_next_upstream_tries",
            "proxy_next_upstream_timeout",
        ],
        "`retry_on`, `limits.retries` and `timeouts.total` are a service's",
    ),
    (
        &[
            "client_max_body_size",
            "client_body_buffer_size",
            "client_header_buffer_size",
            "client_body_temp_path",
            "large_client_header_buffers",
        ],
        "`limits` of a service has no such key, or counts otherwise",
    ),
    (
        &["resolver", "resolver_timeout"],
        "Weir asks no name service for servers",
    ),
    (
        &[
            "keepalive_requests",
            "keepalive_disable",
            "tcp_nodelay",
            "reset_timedout_connection",
            "lingering_close",
            "server_names_hash_bucket_size",
            "server_names_hash_max_size",
            "variables_hash_max_size",
            "map_hash_bucket_size",
            "server_tokens",
            "merge_slashes",
            "port_in_redirect",
            "absolute_redirect",
            "server_name_in_redirect",
            "http2",
            "http3",
        ],
        "Weir does as is best by itself",
    ),
    (
        &["real_ip_header", "real_ip_recursive"],
        "`trusted` of a service says whose word about clients is taken",
    ),
    (
        &["stub_status", "status_zone"],
        "`weir status` and /metrics show what is going on",
    ),
    (&["include"], "there is no such file"),
];

/// Why a directive has no place.
fn reason(keyword: &str) -> &'static str {
    let known = ELSEWHERE.iter().find(|(names, _)| names.contains(&keyword));
    match (known, keyword) {
        (Some((_, why)), _) => why,
        (None, keyword) if keyword.starts_with("gzip_") => "Weir passes bodies as they are",
        (None, keyword) if keyword.starts_with("ssl_") => "`tls` of a service has no such key",
        (None, keyword) if keyword.starts_with("proxy_ssl_") => {
            "`tls` of a pool has no such key, or nothing is sent by TLS"
        }
        _ => "weir.toml has no place for it",
    }
}

/// A time of nginx: numbers with `ms`, `s`, `m`, `h`, `d`, `w`, by themselves seconds.
fn time(text: &str) -> Option<u64> {
    let mut total: u64 = 0;
    let mut rest = text;
    if rest.is_empty() {
        return None;
    }
    while !rest.is_empty() {
        let end = rest
            .find(|c: char| !c.is_ascii_digit())
            .unwrap_or(rest.len());
        let number: u64 = rest[..end].parse().ok()?;
        let units = &rest[end..];
        let next = units
            .find(|c: char| c.is_ascii_digit())
            .unwrap_or(units.len());
        let unit = match units[..next].trim() {
            "ms" => 1,
            "s" | "" => 1000,
            "m" => 60_000,
            "h" => 3_600_000,
            "d" => 86_400_000,
            "w" => 604_800_000,
            _ => return None,
        };
        total = total.checked_add(number.checked_mul(unit)?)?;
        rest = &units[next..];
    }
    Some(total)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units_and_may_be_sums() {
        assert_eq!(time("75"), Some(75_000));
        assert_eq!(time("1m30s"), Some(90_000));
        assert_eq!(time("500ms"), Some(500));
        assert_eq!(time("soon"), None);
        assert_eq!(time(""), None);
        assert_eq!(time(&"4294967295w".repeat(9)), None);
        assert_eq!(time("9999999999999999999w"), None);
    }
}
