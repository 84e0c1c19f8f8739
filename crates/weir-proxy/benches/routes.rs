//! Compares the CPU time per request with that of HAProxy and nginx, for many routes and map entries.
//!
//! The cases are 1,000 routes, 1,000 regex routes, and a map with 100,000 entries. Each proxy has one worker on CPU 0;
//! the load generator and the origin server run on CPU 1.
//!
//! Every request matches the last route or the last map entry.

mod rig;

use std::fs;
use std::net::SocketAddr;
use std::path::Path;
use std::sync::Arc;

use rig::{
    Candidate, ORIGIN, compare, haproxy_command, nginx_command, nginx_log, spawn, start_origin,
    weir_command, wrk,
};
use weir_model::{
    MapEntries, MapKind, Proxy, ProxyProtocol, Route, RouteAction, Template, TextRegex, ValueMap,
};

const SERVE: &str = "WEIR_BENCH_SERVE";
const KIND: &str = "WEIR_BENCH_KIND";
const ROUTES: usize = 1_000;
const ENTRIES: usize = 100_000;
const POOL: &str = "origin";

/// How the proxy selects a request's pool.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Plain,
    Regex,
    Map,
}

impl Kind {
    const ALL: [(Self, &'static str, &'static str); 3] = [
        (Self::Plain, "plain", "1 000 routes"),
        (Self::Regex, "regex", "1 000 regex routes"),
        (Self::Map, "map", "a map of 100 000 entries"),
    ];

    /// Returns the request path.
    fn path(self) -> String {
        match self {
            Self::Plain => format!("/r{}/small", ROUTES - 1),
            Self::Regex => format!("/x/r{}/small", ROUTES - 1),
            Self::Map => "/small".to_owned(),
        }
    }

    /// Returns the paths in the map. Clients request the last one.
    fn keys() -> impl Iterator<Item = String> {
        let other_keys = (1..ENTRIES).map(|index| format!("/entry/{index}"));
        other_keys.chain(["/small".to_owned()])
    }
}

fn main() {
    if let Ok(listen) = std::env::var(SERVE) {
        return serve(listen.parse().expect("parse address"));
    }
    if let Some(reason) = rig::missing_requirements(&["nginx", "haproxy", "wrk", "taskset"]) {
        println!("routes compared with peers: skipped, {reason}");
        return;
    }
    let directory = rig::directory();
    let _origin = start_origin(&directory);
    for subdirectory in [format!("r{}", ROUTES - 1), format!("x/r{}", ROUTES - 1)] {
        let subdirectory = directory.join("root").join(subdirectory);
        fs::create_dir_all(&subdirectory).expect("create directory");
        fs::write(subdirectory.join("small"), "xxxx").expect("write file");
    }
    for (kind, kind_name, row_label) in Kind::ALL {
        let candidates = [
            start_haproxy(&directory, kind),
            start_nginx(&directory, kind),
            start_weir(&directory, kind_name),
        ];
        compare(row_label, &candidates, |candidate| {
            wrk(
                &format!("http://{}{}", candidate.listen, kind.path()),
                64,
                true,
            )
        });
    }
    let _ = fs::remove_dir_all(&directory);
}

/// Runs the proxy. The benchmark re-executes itself for this.
fn serve(listen: SocketAddr) {
    let kind_name = std::env::var(KIND).expect("kind is set");
    let row = Kind::ALL.iter().find(|(_, name, _)| *name == kind_name);
    let (kind, ..) = row.expect("kind is known");
    let mut service = Proxy::new("bench", ProxyProtocol::Http, POOL);
    service.listen.push(listen);
    let route_to_pool = || Route::new(RouteAction::Pool(POOL.to_owned()));
    match kind {
        Kind::Plain => service.routes.extend((0..ROUTES).map(|index| {
            let mut route = route_to_pool();
            route.when.paths.push(format!("/r{index}/*"));
            route
        })),
        Kind::Regex => service.routes.extend((0..ROUTES).map(|index| {
            let mut route = route_to_pool();
            let regex = TextRegex::new(&format!("/r{index}/[a-z]+$")).expect("parse regex");
            route.when.path_regexes.push(regex);
            route
        })),
        Kind::Map => {
            let entries = Kind::keys().map(|key| (key, POOL.to_owned()));
            let entries = MapEntries::new(MapKind::Exact, false, entries, |_| None);
            let map = ValueMap {
                name: "paths".to_owned(),
                key: Template::parse("{path}").expect("parse template"),
                default: None,
                entries: Arc::new(entries.expect("entry is valid")),
            };
            service
                .routes
                .push(Route::new(RouteAction::Mapped(Arc::new(map))));
        }
    }
    rig::serve(service);
}

fn start_weir(directory: &Path, kind_name: &str) -> Candidate {
    const LISTEN: &str = "127.0.0.1:17087";
    let mut command = weir_command(directory, "0");
    command.env(SERVE, LISTEN).env(KIND, kind_name);
    spawn("weir", LISTEN, command)
}

fn start_haproxy(directory: &Path, kind: Kind) -> Candidate {
    let rules: String = match kind {
        Kind::Plain => (0..ROUTES)
            .map(|index| format!(" use_backend b if {{ path_beg /r{index}/ }}\n"))
            .collect(),
        Kind::Regex => (0..ROUTES)
            .map(|index| format!(" use_backend b if {{ path_reg /r{index}/[a-z]+$ }}\n"))
            .collect(),
        Kind::Map => {
            let file = directory.join("haproxy.map");
            let entries: String = Kind::keys().map(|key| format!("{key} b\n")).collect();
            fs::write(&file, entries).expect("write file");
            format!(" use_backend %[path,map({})]\n", file.display())
        }
    };
    let config = format!(
        "global\n nbthread 1\n maxconn 7000\ndefaults\n mode http\n timeout client 60s\n timeout server 60s\n \
         timeout connect 5s\n http-reuse always\n option forwardfor\nfrontend f\n bind 127.0.0.1:17085\n{rules}\
         backend b\n server s {ORIGIN}\n"
    );
    let command = haproxy_command(directory, &config);
    spawn("haproxy", "127.0.0.1:17085", command)
}

fn start_nginx(directory: &Path, kind: Kind) -> Candidate {
    let proxy_settings = "proxy_http_version 1.1; proxy_set_header Connection \"\"; \
                          proxy_set_header X-Forwarded-For $remote_addr;";
    let (map_block, locations) = match kind {
        Kind::Plain => {
            let blocks = (0..ROUTES)
                .map(|index| format!("location /r{index}/ {{ proxy_pass http://u; }}\n"));
            (String::new(), blocks.collect::<String>())
        }
        Kind::Regex => {
            let blocks = (0..ROUTES).map(|index| {
                format!("location ~ \"/r{index}/[a-z]+$\" {{ proxy_pass http://u; }}\n")
            });
            (String::new(), blocks.collect::<String>())
        }
        Kind::Map => {
            let file = directory.join("nginx.map");
            let entries: String = Kind::keys().map(|key| format!("{key} u;\n")).collect();
            fs::write(&file, entries).expect("write file");
            let map = format!(
                "map_hash_max_size 262144; map_hash_bucket_size 128; map $uri $up {{ include {}; }}",
                file.display()
            );
            (map, "location / { proxy_pass http://$up; }".to_owned())
        }
    };
    let server = format!(
        "{map_block} upstream u {{ server {ORIGIN}; keepalive 256; }} \
         server {{ listen 127.0.0.1:17086; {} {proxy_settings}\n{locations} }}",
        nginx_log(directory)
    );
    let command = nginx_command(directory, "peer", "0", &server);
    spawn("nginx", "127.0.0.1:17086", command)
}
