//! Tests a proxy's status and metrics, HAProxy's statistics commands, and the contributed dashboard and rules.
//!
//! promtool validates the metrics.

use std::io::Write;
use std::process::{Command, Stdio};

use serde_json::Value;
use weir_testing::{free_address, output_with_input};

use super::origin::Origin;
use super::tls::Authority;
use super::{Client, Proxy, configuration};

/// Returns `/metrics` in the format that `accept` selects.
fn metrics(proxy: &Proxy, accept: &str) -> String {
    let output = Command::new("curl")
        .args(["-sS", "-H", &format!("Accept: {accept}")])
        .args(["http://weir/metrics", "--unix-socket"])
        .arg(proxy.directory.join("run/weir.sock"))
        .output()
        .expect("run curl");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns the sum of all series with this name and all of these labels.
fn sum(metrics: &str, name: &str, labels: &[&str]) -> f64 {
    let lines = metrics.lines().filter(|line| {
        let is_series = line
            .strip_prefix(name)
            .is_some_and(|rest| rest.starts_with('{'));
        is_series && labels.iter().all(|label| line.contains(label))
    });
    lines
        .map(|line| {
            line.rsplit_once(' ')
                .expect("no value")
                .1
                .parse::<f64>()
                .expect("parse number")
        })
        .sum()
}

/// Asserts that promtool accepts the metrics.
fn assert_promtool_accepts(metrics: &str) {
    let mut check = Command::new("promtool");
    check.args(["check", "metrics"]);
    let output = output_with_input(&mut check, metrics.as_bytes());
    let text = [output.stdout, output.stderr].concat();
    assert!(
        output.status.success() && text.is_empty(),
        "{}",
        String::from_utf8_lossy(&text)
    );
}

/// Asserts that Prometheus's Python client parses metrics in OpenMetrics format and finds as many samples as there are
/// lines. The client checks names, types, units and order.
fn assert_valid_open_metrics(text: &str) {
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
fn results_and_durations_are_counted_per_service_pool_route_and_server() {
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
    assert_promtool_accepts(&text);
    let sum_of = |name: &str, labels: &[&str]| sum(&text, name, labels);
    assert_eq!(
        sum_of("weir_proxy_total_seconds_count", &[]),
        23.0,
        "a malformed request must not be counted"
    );
    assert_eq!(sum_of("weir_pool_requests_total", &["pool=\"p\""]), 20.0);
    assert_eq!(sum_of("weir_pool_response_seconds_count", &[]), 20.0);
    assert_eq!(
        sum_of("weir_pool_response_seconds_bucket", &["le=\"+Inf\""]),
        20.0
    );
    assert_eq!(
        sum_of("weir_route_responses_total", &["class=\"3xx\""]),
        3.0
    );
    let rejected = ["kind=\"rejected\"", "fault=\"client\""];
    assert_eq!(sum_of("weir_proxy_failures_total", &rejected), 1.0);
    assert_eq!(sum_of("weir_server_response_seconds_count", &[]), 20.0);
    let server = format!("server=\"{}\"", origin.address());
    assert_eq!(
        sum_of("weir_server_responses_total", &[&server, "class=\"2xx\""]),
        20.0
    );
    assert!(
        sum_of(
            "weir_server_response_seconds",
            &[&server, "quantile=\"0.99\""]
        ) > 0.0
    );
    // Weir first tried to send some requests to the server that is not listening.
    let dead = format!("server=\"{dead}\"");
    let failed = sum_of("weir_server_connect_failures_total", &[&dead]);
    assert!(failed > 0.0, "{text}");
    assert_eq!(sum_of("weir_server_redispatches_total", &[&dead]), failed);
    assert_eq!(sum_of("weir_proxy_retries_total", &[]), failed);

    let open_metrics = metrics(&proxy, "application/openmetrics-text; version=1.0.0");
    assert!(open_metrics.ends_with("# EOF\n"), "{open_metrics}");
    assert!(
        open_metrics.contains("# TYPE weir_pool_requests counter\n"),
        "{open_metrics}"
    );
    assert_valid_open_metrics(&open_metrics);

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

/// The first client is curl with HTTP/2 over cleartext TCP.
#[test]
fn http2_counters_and_maxima_are_reported() {
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
        .expect("run curl");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(text.ends_with("200"), "{text}");
    Client::connect(proxy.listen).fetch("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    let service = || proxy.status()["services"][0].clone();
    super::keeper::wait_until("both connections have ended", || {
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
fn server_histograms_and_reload_results_are_exported() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    Client::connect(proxy.listen).fetch("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    let name = "weir_server_response_duration_seconds_bucket";
    assert!(!metrics(&proxy, "*/*").contains(name));
    let text = configuration(proxy.listen, "http", &[origin.address()], "");
    proxy.reload(&text.replace("[node]\n", "[node]\nmetrics = \"full\"\n"));
    let text = metrics(&proxy, "*/*");
    assert_eq!(
        sum(&text, name, &["le=\"+Inf\""]),
        1.0,
        "the histogram must survive the reload"
    );
    assert_promtool_accepts(&text);
    assert_valid_open_metrics(&metrics(&proxy, "application/openmetrics-text"));
    let reloads = proxy.status()["reloads"].clone();
    assert_eq!(reloads[0]["revision"], 2, "{reloads:#}");
    let gauge = |text: &str, name: &str| -> f64 {
        let line = text
            .lines()
            .find_map(|line| line.strip_prefix(&format!("{name} ")));
        line.expect(name).parse().expect("parse number")
    };
    assert_eq!(gauge(&text, "weir_last_reload_successful"), 1.0);
    let file = proxy.directory.join("weir.toml");
    std::fs::write(&file, "[nod]\n").expect("write file");
    assert!(!proxy.weir(&["reload"]).0);
    let text = metrics(&proxy, "*/*");
    assert_promtool_accepts(&text);
    let count = |result: &str| sum(&text, "weir_reloads_total", &[result]);
    assert_eq!((count("applied"), count("refused")), (1.0, 1.0));
    assert_eq!(gauge(&text, "weir_last_reload_successful"), 0.0);
    assert!(gauge(&text, "weir_last_reload_timestamp_seconds") > 1.7e9);
    assert_eq!(proxy.status()["reload_counts"]["refused"], 1);
    assert!(
        reloads[0]["changes"].to_string().contains("metrics"),
        "{reloads:#}"
    );
}

/// Returns the certificates of the service `s` from the status document, and the values of the series with this name.
fn expiries(proxy: &Proxy, name: &str) -> (Value, Vec<f64>) {
    let status = proxy.status()["services"][0]["certificates"].clone();
    let text = metrics(proxy, "*/*");
    let lines = text.lines().filter(|line| line.starts_with(name));
    let values = lines.map(|line| {
        assert!(line.contains("{service=\"s\",certificate=\"/"), "{line}");
        line.rsplit(' ')
            .next()
            .unwrap_or_default()
            .parse()
            .expect("parse number")
    });
    (status, values.collect())
}

#[test]
fn certificate_expiry_is_shown_and_updated() {
    const FAMILY: &str = "weir_certificate_not_after_timestamp_seconds{";
    let authority = Authority::new("expiry");
    let soon = authority.sign("soon", "DNS:soon.example", 9);
    authority.sign("later", "DNS:later.example", 60);
    let origin = Origin::start("o");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let proxy = Proxy::start("http", &[origin.address()], &tls);
    let end = authority.openssl("x509 -in soon.crt -noout -enddate -dateopt iso_8601");
    let end = end.trim().replace("notAfter=", "").replace(' ', "T");
    // `days_left` counts full days, so it is one less than the number of days for which the new certificate is valid.
    super::keeper::wait_until(
        "the status has the remaining days of both certificates",
        || {
            let (status, _) = expiries(&proxy, FAMILY);
            status[0]["days_left"] == 8 && status[1]["days_left"] == 59
        },
    );
    let (status, values) = expiries(&proxy, FAMILY);
    assert_eq!(status.as_array().map(Vec::len), Some(2), "{status:#}");
    let first = &status[0];
    assert_eq!(
        first["file"],
        soon.to_str().expect("not UTF-8"),
        "{status:#}"
    );
    assert_eq!(
        (&first["name"], &first["not_after"]),
        (&Value::from("soon.example"), &Value::from(end))
    );
    let seconds: Vec<f64> = status
        .as_array()
        .expect("not an array")
        .iter()
        .filter_map(|certificate| certificate["not_after_s"].as_f64())
        .collect();
    assert_eq!(values, seconds);
    assert_promtool_accepts(&metrics(&proxy, "*/*"));
    assert_valid_open_metrics(&metrics(&proxy, "application/openmetrics-text"));
    let (_, text) = proxy.weir(&["status"]);
    let warning = format!(
        "  warning: certificate {}: expires in 8 days\n",
        soon.display()
    );
    assert!(
        text.contains(&warning) && !text.contains("later.pem"),
        "{text}"
    );
    // Weir rereads the files without a reload.
    authority.sign("soon", "DNS:soon.example", 40);
    super::keeper::wait_until("the status has the renewed certificate", || {
        expiries(&proxy, FAMILY).0[0]["days_left"] == 39
    });
    let (_, text) = proxy.weir(&["status", "p"]);
    let line = format!(
        "  certificate {}: expires in 39 days; 1 other expires later\n",
        soon.display()
    );
    assert!(text.contains(&line) && !text.contains("warning"), "{text}");
    // Reload, first with fewer certificates and then without TLS.
    let (_, before) = expiries(&proxy, FAMILY);
    let later_file = format!("{}/later.pem", authority.certs());
    let configuration_with =
        |extra: &str| configuration(proxy.listen, "http", &[origin.address()], extra);
    proxy.reload(&configuration_with(&format!(
        "tls = {{ certificates = \"{later_file}\" }}"
    )));
    let (status, after) = expiries(&proxy, FAMILY);
    assert_eq!(status[0]["file"], later_file, "{status:#}");
    assert_eq!(after, before[1..]);
    proxy.reload(&configuration_with(""));
    assert_eq!(expiries(&proxy, FAMILY), (Value::Null, Vec::new()));
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
    super::keeper::wait_until("the dead server is down", || {
        proxy
            .weir(&["status", "--down"])
            .1
            .contains(&dead.to_string())
    });
    let (_, down) = proxy.weir(&["status", "--down"]);
    assert!(!down.contains(&origin.address().to_string()), "{down}");
    let (_, pool) = proxy.weir(&["status", "q", "--json"]);
    let pool: Value = serde_json::from_str(&pool).expect("parse JSON");
    let servers = pool["services"][0]["servers"]
        .as_array()
        .expect("no servers");
    assert!(
        servers.iter().all(|server| server["pool"] == "q") && servers.len() == 2,
        "{pool:#}"
    );
    let (succeeded, output) = proxy.weir(&["status", "nope"]);
    assert!(
        !succeeded && output.contains("pool nope: not found; pools in use: p, q"),
        "{output}"
    );
}

/// Sends an HAProxy command to the socket. Returns the response.
fn run_command(socket: &std::path::Path, line: &str) -> std::io::Result<String> {
    let mut stream = std::os::unix::net::UnixStream::connect(socket)?;
    stream.set_read_timeout(Some(std::time::Duration::from_secs(30)))?;
    stream.write_all(line.as_bytes())?;
    let mut text = String::new();
    std::io::Read::read_to_string(&mut stream, &mut text)?;
    Ok(text)
}

/// Starts the installed HAProxy and sends it a command. Returns the response.
fn query_installed_haproxy(line: &str) -> String {
    let directory = std::env::temp_dir().join(format!("weir-haproxy-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("create directory");
    let (file, socket) = (directory.join("haproxy.cfg"), directory.join("socket"));
    let text = format!(
        "global\n  stats socket {}\ndefaults\n  mode http\n  timeout client 1s\n  timeout connect 1s\n  timeout server \
         1s\nlisten a\n  bind {}\n  server s {} check\n",
        socket.display(),
        free_address(),
        free_address()
    );
    std::fs::write(&file, text).expect("write file");
    let mut haproxy = Command::new("haproxy")
        .args(["-db", "-f"])
        .arg(&file)
        .stdout(Stdio::null())
        .stderr(Stdio::null())
        .spawn()
        .expect("start haproxy (see `make deps`)");
    let mut response = String::new();
    super::keeper::wait_until("HAProxy returns its statistics", || {
        response = run_command(&socket, line).unwrap_or_default();
        !response.is_empty()
    });
    let _ = haproxy.kill();
    let _ = haproxy.wait();
    let _ = std::fs::remove_dir_all(&directory);
    response
}

/// Returns the field names of the installed HAProxy without duplicates.
fn installed_haproxy_fields() -> Vec<String> {
    let text = query_installed_haproxy("show stat typed\n");
    // `F.2.0.0.pxname.1:KNSV:str:a`
    let names = text.lines().filter_map(|line| line.split('.').nth(4));
    let names: std::collections::BTreeSet<&str> = names.collect();
    names.into_iter().map(str::to_owned).collect()
}

/// Fields have the same positions as in HAProxy, because exporters find them by position.
#[test]
fn haproxy_commands_show_status_values() {
    let origin = Origin::start("o");
    let dead = free_address();
    let proxy = Proxy::start("http", &[origin.address(), dead], ROUTES);
    let mut client = Client::connect(proxy.listen);
    for _ in 0..6 {
        client.fetch("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    }
    client.fetch("GET /moved/x HTTP/1.1\r\nHost: h\r\n\r\n");
    let server = format!("p/{dead}");
    assert!(proxy.weir(&["server", &server, "maint"]).0);
    let socket = proxy.directory.join("run/weir.sock");
    let text = run_command(&socket, "show stat\n").expect("run command");
    let header = text.lines().next().unwrap_or_default();
    let haproxy_output = query_installed_haproxy("show stat\n");
    assert!(header.starts_with("# pxname,svname,qcur,"), "{text}");
    assert!(
        haproxy_output.starts_with(header),
        "{header}\n{haproxy_output}"
    );
    let field_names: Vec<&str> = header.trim_start_matches("# ").split(',').collect();
    let field = |proxy: &str, server: &str, name: &str| -> String {
        let start = format!("{proxy},{server},");
        let line = text.lines().find(|line| line.starts_with(&start));
        let index = field_names
            .iter()
            .position(|other| *other == name)
            .expect(name);
        let line = line.unwrap_or_else(|| panic!("{start}: {text}"));
        line.split(',').nth(index).expect(name).to_owned()
    };
    let server = origin.address().to_string();
    for (proxy, name, field_name, expected) in [
        ("s", "FRONTEND", "req_tot", "7"),
        ("s", "FRONTEND", "hrsp_2xx", "6"),
        ("s", "FRONTEND", "hrsp_3xx", "1"),
        ("s", "FRONTEND", "scur", "1"),
        ("s", "FRONTEND", "mode", "http"),
        ("p", &server, "hrsp_2xx", "6"),
        ("p", &server, "status", "no check"),
        ("p", &server, "weight", "1"),
        ("p", &dead.to_string(), "status", "MAINT"),
        ("p", &dead.to_string(), "weight", "0"),
        ("p", "BACKEND", "hrsp_2xx", "6"),
        ("p", "BACKEND", "act", "1"),
        ("p", "BACKEND", "status", "UP"),
        ("p", "BACKEND", "type", "1"),
    ] {
        assert_eq!(
            field(proxy, name, field_name),
            expected,
            "{proxy} {name} {field_name}: {text}"
        );
    }
    assert_ne!(field("p", &server, "bout"), "0");
    assert!(text.ends_with("\n\n"), "{text}");
    let info = run_command(&socket, "show info\r\n").expect("run command");
    let pid = format!("\nPid: {}\n", proxy.status()["pid"]);
    assert!(
        info.starts_with("Name: Weir\n") && info.contains(&pid) && info.contains("\nCumReq: 7\n"),
        "{info}"
    );
    // Commands cannot change anything. Weir rejects an unterminated line once it is too long.
    let rejected = run_command(&socket, "enable server p/x\n").expect("run command");
    assert!(rejected.contains("Unknown command") && rejected.contains("weir server"));
    let unterminated = run_command(&socket, &"x".repeat(1024)).expect("run command");
    assert!(
        unterminated.starts_with("Unknown command"),
        "{unterminated}"
    );
    assert_eq!(field("p", &dead.to_string(), "status"), "MAINT");
}

/// Reads a file. The path is relative to this crate.
fn read_file(path: &str) -> String {
    let directory = std::path::Path::new(env!("CARGO_MANIFEST_DIR"));
    std::fs::read_to_string(directory.join(path)).expect("read file")
}

const HAPROXY_PAGE: &str = "../../docs/manual/haproxy-statistics.md";

/// Returns the rows of the manual's page: HAProxy's field and its counterpart.
fn haproxy_rows(page: &str) -> Vec<(&str, &str)> {
    let rows = page.lines().filter_map(|line| {
        line.strip_prefix("| `")?
            .strip_suffix(" |")?
            .split_once("` | ")
    });
    rows.collect()
}

/// Every field of HAProxy's statistics has a row in the manual. At most 15 % of a version's fields have no counterpart.
/// This excludes fields of HTTP/3 and QUIC, for which the manual has a separate table and figures.
#[test]
fn most_haproxy_fields_have_a_counterpart() {
    let page = read_file(HAPROXY_PAGE);
    let rows = haproxy_rows(&page);
    let lists = read_file("tests/proxy/haproxy_fields.txt");
    // Each list begins with a comment.
    let mut lists = lists.split("# ").skip(1);
    let mut next_list = || -> Vec<&str> {
        let list = lists.next().expect("list not found");
        list.lines().skip(1).collect()
    };
    let (fields_2_6, added, quic) = (next_list(), next_list(), next_list());
    let fields_3_0 = [fields_2_6.as_slice(), &added].concat();
    let with_quic = [fields_3_0.as_slice(), &quic].concat();
    let installed = installed_haproxy_fields();
    let installed = installed.iter().map(String::as_str);
    let installed: Vec<&str> = installed.filter(|field| !quic.contains(field)).collect();
    // Returns how many of these fields have no counterpart.
    let count_unmapped = |fields: &[&str]| {
        let fields = fields.iter().filter(|field| {
            let row = rows.iter().find(|(name, _)| name == *field);
            let (_, weir) = row.unwrap_or_else(|| panic!("{field} has no row"));
            assert!(weir.contains('`') || weir.starts_with("none: "), "{field}");
            !weir.contains('`')
        });
        fields.count()
    };
    for fields in [&fields_2_6, &fields_3_0, &installed] {
        let count = count_unmapped(fields);
        assert!(
            count * 100 <= fields.len() * 15,
            "{count} of {}",
            fields.len()
        );
    }
    assert_eq!(rows.len(), with_quic.len());
    let page = page.replace('\n', " ");
    for text in [
        format!(
            "{} of the {} fields of 2.6, and {} of the {} of 3.0, have no counterpart",
            count_unmapped(&fields_2_6),
            fields_2_6.len(),
            count_unmapped(&fields_3_0),
            fields_3_0.len()
        ),
        format!("has {} more fields", quic.len()),
        format!(
            "With them, {} of {} fields have none.",
            count_unmapped(&with_quic),
            with_quic.len()
        ),
    ] {
        assert!(page.contains(&text), "{text}");
    }
}

/// Every Weir name in the manual's rows about HAProxy's statistics exists.
#[test]
fn weir_names_in_haproxy_table_exist() {
    let page = read_file(HAPROXY_PAGE);
    let origin = Origin::start("o");
    let check = "[pool.c]\nservers = [\"SERVER\"]\ncheck = { kind = \"tcp\" }\n[[route]]\nservice = \"s\"\n\
                 path = \"/c/*\"\npool = \"c\"\n";
    let check = check.replace("SERVER", &origin.address().to_string());
    let proxy = Proxy::start("http", &[origin.address()], &check);
    let mut client = Client::connect(proxy.listen);
    client.fetch("GET /a HTTP/1.1\r\nHost: h\r\n\r\n");
    let documents = proxy.weir(&["status", "--json"]).1 + &metrics(&proxy, "*/*");
    for (field, weir) in haproxy_rows(&page) {
        // Names are between backticks. Error kinds appear only in metrics.
        for name in weir.split('`').skip(1).step_by(2) {
            let found = [format!("\"{name}\""), format!("# TYPE {name} ")];
            assert!(
                found.iter().any(|text| documents.contains(text)),
                "{field}: {name}"
            );
        }
    }
}

/// The Grafana dashboard and the alert rules use existing series, and the rules fire as their tests require.
#[test]
fn contributed_dashboard_and_rules_use_existing_series() {
    let contrib = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../contrib");
    let read = |path: &str| std::fs::read_to_string(contrib.join(path)).expect("read file");
    let origin = Origin::start("o");
    let check = "[pool.c]\nservers = [\"SERVER\"]\ncheck = { kind = \"tcp\" }\n[[route]]\nservice = \"s\"\n\
                 path = \"/c/*\"\npool = \"c\"\n";
    let check = check.replace("SERVER", &origin.address().to_string());
    let proxy = Proxy::start("http", &[origin.address()], &check);
    let text = metrics(&proxy, "*/*");
    let dashboard = read("grafana/weir.json");
    let _: Value = serde_json::from_str(&dashboard).expect("parse JSON");
    let mut used = 0;
    for file in [dashboard, read("prometheus/weir-rules.yml")] {
        let words = file.split(|c: char| !c.is_ascii_alphanumeric() && c != '_');
        for name in words.filter(|word| word.starts_with("weir_")) {
            let family = ["_bucket", "_sum", "_count"]
                .iter()
                .find_map(|suffix| name.strip_suffix(suffix));
            let exists = |name: &str| text.contains(&format!("# TYPE {name} "));
            assert!(exists(name) || family.is_some_and(exists), "{name}");
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
            .expect("run promtool");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(output.status.success(), "{text}");
    }
}
