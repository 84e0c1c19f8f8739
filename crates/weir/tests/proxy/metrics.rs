//! Results and durations of exchanges in status and metrics, and the validation of the metrics by promtool.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;
use weir_testing::{free_address, output_with_input};

use super::origin::Origin;
use super::{Client, Proxy, configuration};

fn metrics(proxy: &Proxy, accept: &str) -> String {
    let output = Command::new("curl")
        .args(["-sS", "-H", &format!("Accept: {accept}")])
        .args(["http://weir/metrics", "--unix-socket"])
        .arg(proxy.directory.join("run/weir.sock"))
        .output()
        .expect("curl runs");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// The sum of all series whose line contains these texts.
fn value(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let lines = metrics.lines().filter(|line| {
        let is_it = line
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('{'));
        is_it && labels.iter().all(|label| line.contains(label))
    });
    lines
        .map(|line| {
            line.rsplit_once(' ')
                .expect("a value")
                .1
                .parse::<f64>()
                .expect("a number")
        })
        .sum()
}

fn promtool(metrics: &str) {
    let mut promtool = Command::new("promtool");
    promtool.args(["check", "metrics"]);
    let output = output_with_input(&mut promtool, metrics.as_bytes());
    let printed = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && printed.is_empty(),
        "{}",
        String::from_utf8_lossy(&printed)
    );
}

/// Parses OpenMetrics with the parser of Prometheus' Python client, which checks names, types, units and order. It must
/// find as many samples as there are lines.
fn parse_open_metrics(text: &str) {
    let script = "import sys, prometheus_client.openmetrics.parser as parser\n\
                  families = parser.text_string_to_metric_families(sys.stdin.read())\n\
                  print(sum(len(it.samples) for it in families))";
    let mut python = Command::new("/usr/bin/python3");
    python.args(["-c", script]);
    let output = output_with_input(&mut python, text.as_bytes());
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{errors}");
    let samples = text.lines().filter(|line| !line.starts_with('#')).count();
    let parsed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert_eq!(parsed.trim(), samples.to_string());
}

const ROUTES: &str =
    "[[route]]\nservice = \"s\"\npath = \"/moved/*\"\nredirect = \"http://e.example/\"\n";

#[test]
fn results_and_durations_are_counted_for_each_part() {
    let origin = Origin::start("o");
    let dead = free_address();
    let proxy = Proxy::start("http", &[origin.address(), dead], ROUTES);
    let mut client = Client::connect(proxy.listen);
    for _ in 0..20 {
        client.fetch("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    for _ in 0..3 {
        client.fetch("GET /moved/x HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    Client::connect(proxy.listen).fetch("GET /bad HTTP/1.1\r\nHost : h\r\n\r\n");
    let text = metrics(&proxy, "*/*");
    promtool(&text);
    let of = |name: &str, labels: &[&str]| value(&text, name, labels);
    assert_eq!(
        of("weir_proxy_total_seconds_count", &[]),
        23.0,
        "with a head"
    );
    assert_eq!(of("weir_pool_requests_total", &["pool=\"p\""]), 20.0);
    assert_eq!(of("weir_pool_response_seconds_count", &[]), 20.0);
    assert_eq!(
        of("weir_pool_response_seconds_bucket", &["le=\"+Inf\""]),
        20.0
    );
    assert_eq!(of("weir_route_responses_total", &["class=\"3xx\""]), 3.0);
    let rejected = ["kind=\"rejected\"", "fault=\"client\""];
    assert_eq!(of("weir_proxy_failures_total", &rejected), 1.0);
    assert_eq!(of("weir_server_response_seconds_count", &[]), 20.0);
    let server = format!("server=\"{}\"", origin.address());
    assert_eq!(
        of("weir_server_responses_total", &[&server, "class=\"2xx\""]),
        20.0
    );
    assert!(
        of(
            "weir_server_response_seconds",
            &[&server, "quantile=\"0.99\""]
        ) > 0.0
    );
    // Requests that first went to the server that does not listen.
    let dead = format!("server=\"{dead}\"");
    let failed = of("weir_server_connect_failures_total", &[&dead]);
    assert!(failed > 0.0, "{text}");
    assert_eq!(of("weir_server_redispatches_total", &[&dead]), failed);
    assert_eq!(of("weir_proxy_retries_total", &[]), failed);

    let open = metrics(&proxy, "application/openmetrics-text; version=1.0.0");
    assert!(open.ends_with("# EOF\n") && open.contains("# TYPE weir_pool_requests counter\n"));
    parse_open_metrics(&open);

    let status = proxy.status();
    let service = &status["services"][0];
    assert_eq!(service["exchanges"]["ended"], 24, "{service:#}");
    assert_eq!(service["exchanges"]["errors"]["rejected"], 1);
    assert_eq!(service["routes"][0]["exchanges"]["responses"][2], 3);
    let latency = &service["servers"][0]["latency"];
    assert_eq!(
        (&latency["samples"], &latency["method"]),
        (&Value::from(20), &Value::from("measured"))
    );
    assert!(service["clients_max"].as_u64() >= Some(1), "{service:#}");
    assert_eq!(service["servers"][0]["active_max"], 1);
}

/// HTTP/2 over plain TCP, by curl.
#[test]
fn connections_frames_peaks_and_longest_times_are_counted() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let url = format!("http://{}/a", proxy.listen);
    let output = Command::new("curl")
        .args([
            "-sS",
            "--http2-prior-knowledge",
            "-w",
            "%{http_code}",
            "-d",
            "body",
            &url,
        ])
        .output()
        .expect("curl runs");
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(printed.ends_with("200"), "{printed}");
    Client::connect(proxy.listen).fetch("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    let service = || proxy.status()["services"][0].clone();
    super::keeper::until("the end of both connections", || {
        let service = service();
        service["clients"] == 0 && service["requests_per_second_max"].as_u64() >= Some(1)
    });
    let service = service();
    let details = &service["details"];
    for (name, count) in [
        ("h2_connections", 1),
        ("h2_clients", 0),
        ("h2_requests", 1),
        ("h2_headers", 1),
        ("h2_data", 1),
        ("h2_active", 0),
        ("active", 0),
        ("h2_errors", 0),
        ("internal_errors", 0),
    ] {
        assert_eq!(details[name], count, "{name}: {details:#}");
    }
    assert!(details["h2_settings"].as_u64() >= Some(1), "{details:#}");
    assert!(details["h2_bytes_out"].as_u64() < service["bytes_out"].as_u64());
    let server = &service["servers"][0];
    let times = &server["exchanges"]["times"];
    let (longest, sum) = (
        times["response"]["max_us"].as_u64(),
        times["response"]["sum_us"].as_u64(),
    );
    assert!(longest > Some(0) && longest <= sum, "{times:#}");
    assert!(
        server["unused_ms"].is_u64() && server["backup"] == false,
        "{server:#}"
    );
}

#[test]
fn histograms_of_servers_are_exported_on_request() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    Client::connect(proxy.listen).fetch("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    let name = "weir_server_response_duration_seconds_bucket";
    assert!(!metrics(&proxy, "*/*").contains(name));
    let text = configuration(proxy.listen, "http", &[origin.address()], "");
    proxy.reload(&text.replace("[node]\n", "[node]\nmetrics = \"full\"\n"));
    let text = metrics(&proxy, "*/*");
    assert_eq!(
        value(&text, name, &["le=\"+Inf\""]),
        1.0,
        "kept across the reload"
    );
    promtool(&text);
    parse_open_metrics(&metrics(&proxy, "application/openmetrics-text"));
    let reloads = proxy.status()["reloads"].clone();
    assert_eq!(reloads[0]["revision"], 2, "{reloads:#}");
    assert!(
        reloads[0]["changes"].to_string().contains("metrics"),
        "{reloads:#}"
    );
}

#[test]
fn status_shows_one_pool_or_servers_that_are_down() {
    let origin = Origin::start("o");
    let dead = free_address();
    let check = "[pool.q]\nservers = [\"DEAD\", \"LIVE\"]\ncheck = { kind = \"tcp\", interval = \"100ms\" }\n\
                 [[route]]\nservice = \"s\"\npath = \"/q/*\"\npool = \"q\"\n";
    let check = check
        .replace("DEAD", &dead.to_string())
        .replace("LIVE", &origin.address().to_string());
    let proxy = Proxy::start("http", &[origin.address()], &check);
    super::keeper::until("the state", || {
        proxy
            .weir(&["status", "--down"])
            .1
            .contains(&dead.to_string())
    });
    let (_, down) = proxy.weir(&["status", "--down"]);
    assert!(!down.contains(&origin.address().to_string()), "{down}");
    let (_, pool) = proxy.weir(&["status", "q", "--json"]);
    let pool: Value = serde_json::from_str(&pool).expect("JSON");
    let servers = pool["services"][0]["servers"].as_array().expect("servers");
    assert!(
        servers.iter().all(|it| it["pool"] == "q") && servers.len() == 2,
        "{pool:#}"
    );
    let (found, printed) = proxy.weir(&["status", "nope"]);
    assert!(
        !found && printed.contains("pool nope: not found; services use p, q"),
        "{printed}"
    );
}

/// The names of the fields that the installed HAProxy shows.
fn installed_haproxy_fields() -> Vec<String> {
    let directory = std::env::temp_dir().join(format!("weir-haproxy-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a directory");
    let (file, socket) = (directory.join("haproxy.cfg"), directory.join("socket"));
    let text = format!(
        "global\n  stats socket {}\ndefaults\n  mode http\n  timeout client 1s\n  timeout connect 1s\n  timeout server \
         1s\nlisten a\n  bind {}\n  server s {} check\n",
        socket.display(),
        free_address(),
        free_address()
    );
    std::fs::write(&file, text).expect("written");
    let mut haproxy = Command::new("haproxy")
        .args(["-db", "-f"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("haproxy runs; `make deps` installs it");
    let mut fields = Vec::new();
    super::keeper::until("HAProxy's statistics", || {
        let Ok(mut stream) = std::os::unix::net::UnixStream::connect(&socket) else {
            return false;
        };
        let mut text = String::new();
        stream.write_all(b"show stat typed\n").expect("it reads");
        std::io::Read::read_to_string(&mut stream, &mut text).expect("it responds");
        // `F.2.0.0.pxname.1:KNSV:str:a`
        let names = text.lines().filter_map(|line| line.split('.').nth(4));
        fields.extend(names.map(str::to_owned));
        !fields.is_empty()
    });
    let _ = haproxy.kill();
    let _ = haproxy.wait();
    let _ = std::fs::remove_dir_all(&directory);
    fields
}

/// Every field of HAProxy's statistics has a row, and every name of Weir in it exists.
#[test]
fn fields_of_haproxy_are_mapped() {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    let read = |path: &str| std::fs::read_to_string(directory.join(path)).expect("a file");
    let page = read("../../docs/manual/haproxy-statistics.md");
    let rows: Vec<(&str, &str)> = page
        .lines()
        .filter_map(|line| {
            line.strip_prefix("| `")?
                .strip_suffix(" |")?
                .split_once("` | ")
        })
        .collect();
    let fields = read("tests/proxy/haproxy_fields.txt");
    let fields = fields.lines().filter(|line| !line.starts_with('#'));
    let installed = installed_haproxy_fields();
    for field in fields.chain(installed.iter().map(String::as_str)) {
        assert!(
            rows.iter().any(|(name, _)| *name == field),
            "{field} has no row"
        );
    }
    let names = |(_, weir): &&(&str, &str)| !weir.contains('`');
    let without: Vec<_> = rows.iter().filter(names).collect();
    assert!(
        without.len() * 100 <= rows.len() * 15
            && without.iter().all(|row| row.1.starts_with("none: ")),
        "{without:#?}"
    );
    let origin = Origin::start("o");
    let check = "[pool.c]\nservers = [\"SERVER\"]\ncheck = { kind = \"tcp\" }\n[[route]]\nservice = \"s\"\n\
                 path = \"/c/*\"\npool = \"c\"\n";
    let check = check.replace("SERVER", &origin.address().to_string());
    let proxy = Proxy::start("http", &[origin.address()], &check);
    let mut client = Client::connect(proxy.listen);
    client.fetch("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    let known = proxy.weir(&["status", "--json"]).1 + &metrics(&proxy, "*/*");
    for (field, weir) in rows {
        // Names are between backticks; kinds of errors occur in metrics only.
        for name in weir.split('`').skip(1).step_by(2) {
            let found = [format!("\"{name}\""), format!("# TYPE {name} ")];
            assert!(found.iter().any(|it| known.contains(it)), "{field}: {name}");
        }
    }
}

/// Grafana's dashboard and the alert rules use series that exist, and the rules fire as their tests require.
#[test]
fn contributed_dashboard_and_rules_use_existing_series() {
    let contrib = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib");
    let read = |path: &str| std::fs::read_to_string(contrib.join(path)).expect("a file");
    let origin = Origin::start("o");
    let check = "[pool.c]\nservers = [\"SERVER\"]\ncheck = { kind = \"tcp\" }\n[[route]]\nservice = \"s\"\n\
                 path = \"/c/*\"\npool = \"c\"\n";
    let check = check.replace("SERVER", &origin.address().to_string());
    let proxy = Proxy::start("http", &[origin.address()], &check);
    let text = metrics(&proxy, "*/*");
    let dashboard = read("grafana/weir.json");
    let _: Value = serde_json::from_str(&dashboard).expect("JSON");
    let mut used = 0;
    for file in [dashboard, read("prometheus/weir-rules.yml")] {
        let words = file.split(|it: char| !it.is_ascii_alphanumeric() && it != '_');
        for name in words.filter(|word| word.starts_with("weir_")) {
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|it| name.strip_suffix(it));
            let known = |name: &str| text.contains(&format!("# TYPE {name} "));
            assert!(known(name) || family.is_some_and(known), "{name}");
            used += 1;
        }
    }
    assert!(used > 30, "{used}");
    for arguments in [
        ["check", "rules", "weir-rules.yml"],
        ["test", "rules", "weir-rules.test.yml"],
    ] {
        let output = Command::new("promtool")
            .args(arguments)
            .current_dir(contrib.join("prometheus"))
            .output()
            .expect("promtool runs");
        let printed =
            String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{printed}");
    }
}
