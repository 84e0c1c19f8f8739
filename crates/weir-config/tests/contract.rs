//! Tests parsing of configurations: the model, equal results for JSON and TOML, the schema, and damaged input.
//!
//! Also compares the manual pages with the catalog.

use std::path::Path;
use std::time::Duration;

use proptest::prelude::*;
use weir_config::{Code, Host, cards, codes, load, parse, parse_json, render, schema};
use weir_model::*;

const HOST: Host = Host {
    local_ports: None,
    forwards: None,
};

const FULL: &str = r#"
[node]
interfaces    = ["eth0"]
vip_interface = "eth0"
admin         = "127.0.0.1:9900"
max_flows     = 65536
max_servers   = 1000
max_services  = 100
syn_budget    = 50000
drain_timeout = "30s"
metrics       = "full"

[timeouts]
tcp = "1h"
tcp_fin = "30s"
udp = "1m"

[ipvs]
expire_nodest_conn = 1
expire_quiescent_template = 1
conn_reuse_mode = 3
sloppy_tcp = 1
lblc_expiration = 3600

[pool.images]
scheduler = { name = "mh", flags = ["mh-port", "mh-fallback"] }
servers   = ["10.0.0.5", "10.0.0.6:8080", { address = "10.0.0.7", weight = 0, max_connections = 500, min_connections = 400, forward = "tunnel", tunnel = "gre" }]
sorry     = { address = "10.0.0.9:8080", weight = 3 }
no_server = "drop"
on_remove = "reschedule"

[pool.far]
servers = ["10.1.0.5", "2001:db8::5"]

[service.images]
listen  = ["192.0.2.10:80", "udp/192.0.2.10:8000-8999", "192.0.2.10:*"]
forward = "nat"
pool    = "images"
snat    = { addresses = ["10.0.0.1"], ports = "10000-19999" }
strict_ipvs = true
persistence = { timeout = "10m", netmask = 24, netmask6 = 64 }

[service.far]
listen  = ["[2001:db8::10]:80"]
forward = "tunnel"
pool    = "far"
tunnel  = { type = "gue", port = 6081, checksum = "remote" }

[service.marked]
listen  = ["192.0.2.11:80"]
forward = "l3dsr"
pool    = "images2"
dscp    = 10
persistence = true

[service.names]
listen  = ["udp/192.0.2.11:53"]
forward = "l3dsr"
pool    = "images2"
one_packet = true

[pool.images2]
servers = ["10.0.0.5"]
"#;

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn settings_are_converted_to_the_model() {
    let parsed = parse(FULL, &HOST).unwrap();
    let mut other_findings = parsed
        .findings
        .iter()
        .filter(|it| it.code != Code::Unchecked);
    assert_eq!(other_findings.next(), None);
    let desired = parsed.desired;
    assert_eq!(desired.node.interfaces, Some(vec!["eth0".to_owned()]));
    assert_eq!(
        desired.node.admin.as_ref().map(|admin| admin.listen),
        Some("127.0.0.1:9900".parse().unwrap())
    );
    let limits = (
        desired.node.max_flows,
        desired.node.max_servers,
        desired.node.max_services,
    );
    assert_eq!(limits, (65_536, 1000, 100));
    assert_eq!(desired.node.syn_budget, 50_000);
    assert_eq!(desired.node.drain_timeout, Duration::from_secs(30));
    assert_eq!(desired.node.metrics, weir_model::Metrics::Full);
    assert_eq!(desired.timeouts.tcp, Duration::from_secs(3600));
    let ipvs = Ipvs {
        expire_nodest_conn: true,
        expire_quiescent_template: true,
        conn_reuse_mode: 3,
        sloppy_tcp: true,
        lblc_expiration: Duration::from_secs(3600),
        ..Ipvs::default()
    };
    assert_eq!(desired.ipvs, ipvs);
    // The entries are in file order, which differs from the order of their names.
    let pools: Vec<&str> = desired
        .pools
        .iter()
        .map(|pool| pool.name.as_str())
        .collect();
    assert_eq!(pools, ["images", "far", "images2"]);

    let images = &desired.pools[0];
    let scheduler = images.l4_scheduler();
    assert_eq!(scheduler.to_string(), "mh mh-port mh-fallback");
    assert_eq!(
        (images.no_server, images.on_remove),
        (NoServer::Drop, OnRemove::Reschedule)
    );
    let server = &images.servers[1];
    assert_eq!(
        (server.name.as_str(), server.port, server.weight),
        ("10.0.0.6:8080", Some(8080), 1)
    );
    assert_eq!(
        (images.servers[2].weight, images.servers[2].forward),
        (0, Some(Forward::Tunnel))
    );
    assert_eq!(
        (
            images.servers[2].max_connections,
            images.servers[2].min_connections
        ),
        (500, 400)
    );
    assert_eq!(
        images.servers[2].tunnel.map(|tunnel| tunnel.kind),
        Some(TunnelKind::Gre)
    );
    assert_eq!(
        images.source,
        Source {
            line: 25,
            column: 7,
            file: 0
        }
    );

    let service = &desired.services[0];
    let listen: Vec<String> = service.listen.iter().map(ToString::to_string).collect();
    assert_eq!(
        listen,
        [
            "tcp/192.0.2.10:80",
            "udp/192.0.2.10:8000-8999",
            "tcp/192.0.2.10:*"
        ]
    );
    assert_eq!(
        service.snat.as_ref().map(|snat| snat.ports),
        Some((10_000, 19_999))
    );
    assert!(service.strict_ipvs);
    assert_eq!(
        service.persistence,
        Some(Persistence {
            timeout: Duration::from_secs(600),
            netmask: 24,
            netmask6: 64,
        })
    );
    let sorry = images.sorry.as_ref().unwrap();
    assert_eq!((sorry.port, sorry.weight), (Some(8080), 3));
    assert_eq!(
        desired.services[2].persistence,
        Some(Persistence::default())
    );
    assert!(desired.services[3].one_packet && !desired.services[2].one_packet);
    let gue = Tunnel {
        kind: TunnelKind::Gue,
        port: 6081,
        checksum: TunnelChecksum::Remote,
    };
    assert_eq!(desired.services[1].tunnel, gue);
    assert_eq!(desired.services[2].dscp, 10);
    assert_eq!(desired.services[2].forward, Forward::L3dsr);
}

#[test]
fn empty_and_node_only_files_are_valid() {
    assert_eq!(parse("", &HOST).unwrap().desired, Desired::default());
    assert_eq!(
        parse("# nothing\n", &HOST).unwrap().desired,
        Desired::default()
    );
    let node = parse("[node]\nmax_flows = 1024\n", &HOST).unwrap();
    assert_eq!(
        (node.desired.node.max_flows, node.findings.len()),
        (1024, 0)
    );
    assert_eq!(parse_json("{}", &HOST).unwrap().desired, Desired::default());
    assert_eq!(
        parse("\u{feff}[node]\n", &HOST).unwrap().desired,
        Desired::default()
    );
}

#[test]
fn json_and_toml_parse_to_same_model() {
    let table: toml::Table = FULL.parse().unwrap();
    let json = serde_json::to_string_pretty(&table).unwrap();
    let mut pair = [
        parse(FULL, &HOST).unwrap().desired,
        parse_json(&json, &HOST).unwrap().desired,
    ];
    for desired in &mut pair {
        // The conversion sorts by name and changes positions.
        desired.pools.sort_by(|a, b| a.name.cmp(&b.name));
        desired.services.sort_by(|a, b| a.name.cmp(&b.name));
        if let Some(admin) = &mut desired.node.admin {
            admin.source = Source::default();
        }
        for pool in &mut desired.pools {
            pool.source = Source::default();
            pool.servers
                .iter_mut()
                .chain(&mut pool.sorry)
                .for_each(|server| server.source = Source::default());
        }
        desired
            .services
            .iter_mut()
            .for_each(|service| service.source = Source::default());
    }
    assert_eq!(pair[0], pair[1]);
}

#[test]
fn specific_listener_may_overlap_wider_one() {
    let text = "[pool.a]\nservers = [\"10.0.0.5\"]\ncheck = { kind = \"ping\" }\n[service.a]\nforward = \
        \"nat\"\npool = \"a\"\nlisten = [\"192.0.2.1:80\", \"192.0.2.1:1-100\", \"192.0.2.1:*\", \
        \"udp/192.0.2.1:80\", \"192.0.2.2:80\", \"192.0.2.1:101-200\"]\n";
    assert_eq!(parse(text, &HOST).unwrap().findings, vec![]);
}

#[test]
fn json_schema_matches_snapshot() {
    let schema = schema();
    let service = &schema["properties"]["service"]["additionalProperties"];
    assert_eq!(
        service["required"],
        serde_json::json!(["listen", "forward", "pool"])
    );
    assert_eq!(service["additionalProperties"], false);
    let ipvs = &schema["properties"]["ipvs"]["properties"];
    assert_eq!(
        ipvs["drop_packet"],
        serde_json::Value::Null,
        "not implemented"
    );
    assert_eq!(
        schema["properties"]["node"]["properties"]["max_flows"]["default"],
        1_048_576
    );
    insta::assert_snapshot!(serde_json::to_string_pretty(&schema).unwrap());
}

/// With `WEIR_UPDATE_DOCS=1`, writes the pages instead of comparing them.
#[test]
#[allow(clippy::disallowed_methods, reason = "the manual's pages are files")]
fn manual_pages_match_catalog() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/configuration");
    let update = std::env::var_os("WEIR_UPDATE_DOCS").is_some();
    let cards = cards();
    for (name, page) in &cards {
        let path = folder.join(name);
        if update {
            std::fs::create_dir_all(&folder).unwrap();
            std::fs::write(&path, page).unwrap();
        }
        let content = std::fs::read_to_string(&path).unwrap_or_default();
        assert_eq!(
            &content, page,
            "{name} is stale; run with WEIR_UPDATE_DOCS=1"
        );
    }
    let pages = std::fs::read_dir(&folder).unwrap().count();
    assert_eq!(
        pages,
        cards.len(),
        "a page has no section, or a section has no page"
    );
    let path = folder.join("../SUMMARY.md");
    let content = std::fs::read_to_string(&path).unwrap();
    let summary = summary_with_cards(&content, &cards);
    if update {
        std::fs::write(&path, &summary).unwrap();
    } else {
        assert_eq!(
            content, summary,
            "SUMMARY.md is stale; run with WEIR_UPDATE_DOCS=1"
        );
    }
}

/// Returns the site's table of contents with the cards between its two comments.
fn summary_with_cards(summary: &str, cards: &[(String, String)]) -> String {
    let (before, rest) = summary.split_once("<!-- cards").expect("the first comment");
    let (first, rest) = rest.split_once("-->\n").expect("its end");
    let (_, after) = rest
        .split_once("<!-- end of cards -->")
        .expect("the second comment");
    let pages = cards.iter().filter(|(name, _)| name != "README.md");
    let lines = pages.map(|(name, page)| {
        let title = page.lines().next().unwrap().trim_matches(['#', ' ', '`']);
        let title = title.replace('[', "\\[").replace(']', "\\]");
        format!("  - [{title}](configuration/{name})\n")
    });
    let lines: String = lines.collect();
    format!("{before}<!-- cards{first}-->\n{lines}<!-- end of cards -->{after}")
}

/// With `WEIR_UPDATE_DOCS=1`, writes the page instead of comparing it.
#[test]
#[allow(clippy::disallowed_methods, reason = "the manual's pages are files")]
fn codes_page_lists_every_code() {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/codes.md");
    if std::env::var_os("WEIR_UPDATE_DOCS").is_some() {
        std::fs::write(&path, codes()).unwrap();
    }
    let content = std::fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        content,
        codes(),
        "codes.md is stale; run with WEIR_UPDATE_DOCS=1"
    );
    for code in Code::ALL {
        assert!(content.contains(&format!("\n### {code}\n")), "{code}");
    }
}

#[test]
fn ten_thousand_services_parse() {
    let mut text = "[check.up]\nkind = \"tcp\"\n".to_owned();
    for n in 0..10_000u32 {
        let vip = std::net::Ipv4Addr::from(0xc000_0000 + n);
        text.push_str(&format!("[pool.p{n}]\nservers = ["));
        for server in 0..10u32 {
            text.push_str(&format!(
                "\"{}\", ",
                std::net::Ipv4Addr::from(0x0a00_0000 + n * 10 + server)
            ));
        }
        text.push_str(&format!(
            "]\ncheck = \"up\"\n[service.s{n}]\nlisten = [\"{vip}:80\"]\nforward = \"direct\"\npool = \"p{n}\"\n"
        ));
    }
    let desired = parse(&text, &HOST).unwrap().desired;
    let limits = (desired.node.max_servers, desired.node.max_services);
    assert_eq!(limits, (262_144, 32_768));
    let limited = format!("[node]\nmax_servers = 99999\n{text}");
    let errors = parse(&limited, &HOST).unwrap_err();
    assert_eq!(
        errors.iter().map(|error| error.code).collect::<Vec<_>>(),
        [Code::OverLimit]
    );
    let text = format!("[node]\nmax_servers = 100000\n{text}");
    assert_eq!(parse(&text, &HOST).unwrap().desired.services.len(), 10_000);
}

#[test]
fn sorry_servers_count_toward_max_servers() {
    let codes = |max: u32| {
        let text = format!(
            "[node]\nmax_servers = {max}\n[pool.p]\nservers = [\"10.0.0.1\", \"10.0.0.2\"]\nsorry = \"10.0.0.3\"\n\
             [service.s]\nlisten = [\"192.0.2.1:80\"]\nforward = \"direct\"\npool = \"p\"\n"
        );
        let errors = parse(&text, &HOST).err().unwrap_or_default();
        errors.iter().map(|error| error.code).collect::<Vec<_>>()
    };
    assert!(codes(2).contains(&Code::OverLimit));
    assert!(!codes(3).contains(&Code::OverLimit));
}

/// Returns the valid file with some edits: bytes are replaced, removed, inserted or duplicated.
fn mutate(edits: &[(usize, u8, u8)]) -> Vec<u8> {
    let mut bytes = FULL.as_bytes().to_vec();
    for (offset, operation, byte) in edits {
        let offset = offset % bytes.len();
        match operation % 4 {
            0 => bytes[offset] = *byte,
            1 => drop(bytes.remove(offset)),
            2 => bytes.insert(offset, *byte),
            _ => {
                let end = (offset + usize::from(*byte)).min(bytes.len());
                let piece = bytes[offset..end].to_vec();
                bytes.splice(offset..offset, piece);
            }
        }
    }
    bytes
}

fn parse_and_render(bytes: &[u8]) {
    let Ok(text) = load(bytes) else { return };
    for result in [parse(text, &HOST), parse_json(text, &HOST)] {
        let findings = result.map_or_else(|findings| findings, |parsed| parsed.findings);
        render(&findings, text, "weir.toml", false);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn damaged_files_do_not_panic(
        edits in prop::collection::vec((any::<usize>(), any::<u8>(), any::<u8>()), 1..8),
    ) {
        parse_and_render(&mutate(&edits));
    }

    #[test]
    fn random_bytes_do_not_panic(bytes in prop::collection::vec(any::<u8>(), 0..200)) {
        parse_and_render(&bytes);
    }

    #[test]
    fn random_toml_does_not_panic(text in "([a-z\\[\\]{}=\",.0-9\n# éü_-]|pool|service|node|listen|= \\[\")*") {
        parse_and_render(text.as_bytes());
    }
}

#[test]
fn disabled_virtual_router_is_checked_but_not_in_model() {
    let parse_with = |lines: &str| {
        let text = format!(
            "[vrrp.one]\n{lines}addresses = [\"192.0.2.10/24\"]\n\n\
             [vrrp.two]\ninterface = \"eth0\"\nvirtual_router_id = 51\naddresses = [\"192.0.2.10/24\"]\n"
        );
        parse(&text, &HOST)
    };
    // Another virtual router may have the address and ID of a disabled one.
    let parsed = parse_with("enabled = false\ninterface = \"eth0\"\nvirtual_router_id = 51\n");
    let routers = parsed.expect("a valid file").desired.vrrp;
    let names: Vec<&str> = routers.iter().map(|router| router.name.as_str()).collect();
    assert_eq!(names, ["two"]);
    assert!(parse_with("enabled = false\n").is_ok());
    assert!(parse_with("enabled = false\npriority = 300\n").is_err());
    assert!(parse_with("interface = \"eth1\"\n").is_err());
}
