//! Tests that the manual's generated pages are up to date, and that the commands on its pages work as printed.

mod world;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use weir_testing::{output_with_input, successful_output};
use world::{Family, World, bracketed, privileged, wait_for};

fn page_path(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR"))
        .join("../../docs/manual")
        .join(name)
}

fn generate(arguments: &[&str]) -> String {
    successful_output(
        Command::new(env!("CARGO_BIN_EXE_weir"))
            .arg("generate")
            .args(arguments)
            .env_clear(),
    )
}

/// With `WEIR_UPDATE_DOCS=1`, the test first writes the page.
#[test]
fn commands_page_matches_command_line_help() {
    let (path, current) = (page_path("commands.md"), generate(&["commands"]));
    if std::env::var_os("WEIR_UPDATE_DOCS").is_some() {
        fs::write(&path, &current).expect("write the file");
    }
    let content = fs::read_to_string(&path).unwrap_or_default();
    assert_eq!(
        content, current,
        "commands.md is stale; run with WEIR_UPDATE_DOCS=1"
    );
    for command in ["weir run", "weir real-server up", "weir server drain"] {
        assert!(current.contains(&format!("# `{command}`\n")), "{command}");
    }
    assert!(
        !current.contains("vrrp-agent"),
        "an internal command must not be listed"
    );
}

#[test]
fn completions_contain_commands_and_options() {
    for shell in ["bash", "zsh", "fish"] {
        let script = generate(&["completion", shell]);
        for word in ["real-server", "runtime-dir", "strict"] {
            assert!(script.contains(word), "{shell}: {word}");
        }
    }
    let bash = generate(&["completion", "bash"]);
    let check = "eval \"$1\"; COMP_WORDS=(weir rel); COMP_CWORD=1; _weir weir rel weir; echo \"${COMPREPLY[*]}\"";
    let completion = successful_output(Command::new("bash").args(["-c", check, "bash", &bash]));
    assert_eq!(completion.trim(), "reload");
}

#[test]
fn every_command_has_a_man_page() {
    let directory = std::env::temp_dir().join(format!("weir-man-{}", std::process::id()));
    fs::create_dir(&directory).expect("create a directory");
    generate(&["man", directory.to_str().expect("path is valid UTF-8")]);
    let man_page = |name: &str| fs::read_to_string(directory.join(name)).unwrap_or_default();
    for name in ["weir.1", "weir-reload.1", "weir-real-server-up.1"] {
        assert!(man_page(name).contains(".SH NAME"), "{name}");
    }
    assert!(man_page("weir-reload.1").contains("guard"));
    let keys = man_page("weir.toml.5");
    let cards = fs::read_dir(page_path("configuration")).expect("read the card directory");
    for card in cards {
        let text = fs::read_to_string(card.expect("read a directory entry").path())
            .expect("read the file");
        for key in text.lines().filter_map(|line| line.strip_prefix("## `")) {
            let heading = format!("\n.SS {}\n", key.trim_end_matches('`').replace('-', "\\-"));
            assert!(keys.contains(&heading), "{heading}");
        }
    }
    fs::remove_dir_all(&directory).expect("remove the directory");
}

/// Returns the blocks of a page that a reader would paste into a shell.
fn shell_blocks(name: &str) -> String {
    let text = fs::read_to_string(page_path(name)).expect("read the page");
    let blocks = text.split("\n```sh\n").skip(1);
    let blocks = blocks.map(|rest| rest.split("\n```").next().expect("block has an end"));
    blocks.collect::<Vec<_>>().join("\n")
}

/// Runs in separate network, mount and PID namespaces, which look like a machine without any configuration.
#[test]
fn quick_start_in_namespaces_works_as_printed() {
    if !privileged() {
        return;
    }
    let directory = std::env::temp_dir().join(format!("weir-try-bin-{}", std::process::id()));
    fs::create_dir(&directory).expect("create a directory");
    std::os::unix::fs::symlink(env!("CARGO_BIN_EXE_weir"), directory.join("weir"))
        .expect("create a symbolic link");
    let script = format!(
        "mount -t tmpfs tmpfs /run; mount -t bpf bpf /sys/fs/bpf; PATH={}:/usr/sbin:/usr/bin:/sbin:/bin\n{}\n\
         ip netns list | wc -l; ls /sys/fs/bpf | grep -c weir-try || true\n",
        directory.display(),
        shell_blocks("try.md")
    );
    let message = successful_output(
        Command::new("timeout")
            .args([
                "300",
                "unshare",
                "--mount",
                "--net",
                "--pid",
                "--fork",
                "--kill-child",
            ])
            .args([
                "--mount-proc",
                "--propagation",
                "private",
                "bash",
                "-ec",
                &script,
            ]),
    );
    // While the first server is drained, the second sends two more replies.
    for (server, replies) in [("this is server1", 2), ("this is server2", 4)] {
        assert_eq!(message.matches(server).count(), replies, "{message}");
    }
    for text in [
        "524288000 bytes",
        "the daemon died 1 time,",
        "10.0.0.10 removed from eth0",
    ] {
        assert!(message.contains(text), "{text}: {message}");
    }
    assert!(message.ends_with("\n0\n0\n"), "{message}");
    fs::remove_dir_all(&directory).expect("remove the directory");
}

/// A configuration with a service of each plane, a route, a virtual router, a peer, announced VIPs, and per-server
/// histograms.
const EVERY_FAMILY: &str = r#"
[node]
metrics = "full"
[pool.web]
servers = ["SERVER:80"]
check   = { kind = "tcp" }
[service.packets]
listen  = ["VIP:80"]
forward = "nat"
pool    = "web"
[service.requests]
listen   = ["0.0.0.0:8080"]
forward  = "proxy"
protocol = "http"
pool     = "web"
[[route]]
service = "requests"
path    = "/x/*"
pool    = "web"
[vrrp.router]
interface         = "eth0"
virtual_router_id = 51
addresses         = ["ROUTER/32"]
[sync]
listen = "DIRECTOR:8482"
peers  = ["SERVER:8482"]
key    = "only for this test"
[announce]
speaker = "exabgp"
pipe    = "/nonexistent"
[pool.timed]
scheduler = "least-time"
servers   = ["SERVER:80"]
check     = { kind = "tcp" }
[service.timed]
listen  = ["VIP:81"]
forward = "nat"
pool    = "timed"
[tracing]
endpoint = "http://127.0.0.1:4318"
[cluster]
etcd = ["http://127.0.0.1:1"]
name = "manual"
"#;

/// Labels of metric families that have no series until the first event, which this test does not cause.
const LABELS: [(&str, &[&str]); 6] = [
    (
        "weir_certificate_not_after_timestamp_seconds",
        &["certificate", "service"],
    ),
    ("weir_cluster_member_present", &["member"]),
    ("weir_cluster_member_version", &["member"]),
    ("weir_sync_ignored_total", &["peer", "reason"]),
    ("weir_sync_records_total", &["result"]),
    ("weir_vrrp_ignored_total", &["reason", "router"]),
];

/// Returns the page of metrics, generated from a daemon's response, with the name, type, labels and help text of each
/// family.
fn metrics_page(metrics: &str) -> String {
    let mut families: BTreeMap<&str, (&str, &str, BTreeSet<&str>)> = BTreeMap::new();
    for line in metrics.lines() {
        if let Some(rest) = line.strip_prefix("# HELP ") {
            let (name, help) = rest.split_once(' ').expect("family has a help text");
            families.entry(name).or_default().1 = help;
        } else if let Some(rest) = line.strip_prefix("# TYPE ") {
            let (name, kind) = rest.split_once(' ').expect("line has a type");
            families.entry(name).or_default().0 = kind;
        } else if let Some((name, rest)) = line.split_once('{') {
            let names = rest
                .split("=\"")
                .filter_map(|part| part.rsplit(['"', ',']).next());
            let names: Vec<&str> = names.filter(|it| !it.starts_with('}')).collect();
            let suffixes = ["", "_bucket", "_sum", "_count"];
            let family = suffixes.iter().find_map(|suffix| {
                name.strip_suffix(suffix)
                    .filter(|it| families.contains_key(it))
            });
            families
                .entry(family.unwrap_or(name))
                .or_default()
                .2
                .extend(names);
        }
    }
    for (name, labels) in LABELS {
        let (_, _, family_labels) = families.get_mut(name).expect(name);
        family_labels.extend(labels);
    }
    let mut out = String::from(
        "# Metrics\n\nThis page lists all metric families of `GET /metrics`, read from a running daemon with \
         `metrics = \"full\"`.\n[Observing](observing.md#metrics) explains them. Families of virtual routers, peers, \
         announced VIPs, proxies, routes,\n`[tracing]` and `[cluster]` appear when these are configured, families of \
         latencies after the first measurement.\n\n| name | type | labels | meaning \
         |\n|---|---|---|---|\n",
    );
    for (name, (kind, help, labels)) in families {
        let labels: Vec<String> = labels.iter().map(|label| format!("`{label}`")).collect();
        let row = format!("| `{name}` | {kind} | {} | {help} |\n", labels.join(" "));
        out.push_str(&row.replace("|  |", "| |"));
    }
    out
}

/// Asserts that promtool reports only deprecated names, and that the manual lists each of them with its replacement.
fn assert_names_are_valid(metrics: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    let output = output_with_input(&mut promtool, metrics.as_bytes());
    let message = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
    let manual = fs::read_to_string(page_path("observing.md")).expect("read the page");
    for line in message.lines() {
        let name = line.split(' ').next().unwrap_or_default();
        let is_listed = manual.contains(&format!("| `{name}` | `"));
        let is_deprecated = metrics.contains(&format!("# HELP {name} Deprecated, use "));
        assert!(is_listed && is_deprecated, "{line}");
    }
}

/// With `WEIR_UPDATE_DOCS=1`, the test first writes the page.
#[test]
fn metrics_page_matches_running_daemon() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(16);
    world.route_replies_through_director();
    let family = Family::V4;
    let mut config = EVERY_FAMILY.replace("SERVER", &bracketed(family.server(0)));
    config = config.replace("DIRECTOR", &bracketed(family.director()));
    config = config.replace("VIP", &bracketed(family.vip()));
    config = config.replace("ROUTER", &bracketed(family.host(11)));
    world.start_daemon(&config);
    let socket = world.path("run-director").join("weir.sock");
    let metrics = || {
        successful_output(
            Command::new("curl")
                .args(["-sSf", "http://weir/metrics", "--unix-socket"])
                .arg(&socket),
        )
    };
    wait_for("the announcer's metrics", Duration::from_secs(30), || {
        metrics().contains("weir_announced{")
    });
    let url = format!("http://{}:81/name", bracketed(family.vip()));
    wait_for("a latency metric", Duration::from_secs(60), || {
        // The server might not be up yet.
        let _ = world.get_within(1, &url);
        metrics().contains("weir_server_latency_seconds{")
    });
    let metrics = metrics();
    assert_names_are_valid(&metrics);
    let (path, current) = (page_path("metrics.md"), metrics_page(&metrics));
    if std::env::var_os("WEIR_UPDATE_DOCS").is_some() {
        fs::write(&path, &current).expect("write the file");
    }
    let content = fs::read_to_string(&path).unwrap_or_default();
    let mut difference = String::new();
    for line in content.lines().filter(|line| !current.contains(line)) {
        let _ = writeln!(difference, "- {line}");
    }
    for line in current.lines().filter(|line| !content.contains(line)) {
        let _ = writeln!(difference, "+ {line}");
    }
    assert!(
        difference.is_empty(),
        "run with WEIR_UPDATE_DOCS=1:\n{difference}"
    );
}
