//! Tests the output and exit codes of commands that need neither privileges nor a daemon.

use std::fs;
use std::path::PathBuf;
use std::process::{Command, Output, Stdio};
use std::sync::atomic::{AtomicU32, Ordering};

static DIRECTORIES: AtomicU32 = AtomicU32::new(0);

/// A temporary directory with a configuration.
struct Scratch {
    path: PathBuf,
}

impl Scratch {
    fn new(configuration: &str) -> Self {
        let number = DIRECTORIES.fetch_add(1, Ordering::Relaxed);
        let process = std::process::id();
        let path = std::env::temp_dir().join(format!("weir-cli-{process}-{number}"));
        fs::create_dir(&path).unwrap();
        fs::write(path.join("weir.toml"), configuration).unwrap();
        Self { path }
    }

    fn command(&self, line: &str) -> Command {
        let mut command = Command::new(env!("CARGO_BIN_EXE_weir"));
        command
            .args(line.split_whitespace())
            .current_dir(&self.path)
            .env_remove("WEIR_CONFIG")
            .env("WEIR_RUNTIME_DIR", "run")
            .env("WEIR_PIN_DIR", "pins")
            .stdin(Stdio::null());
        command
    }

    fn output(&self, line: &str) -> Output {
        self.command(line).output().unwrap()
    }

    /// Runs a command. Returns the command line, stdout, stderr and the exit code as one string.
    fn run(&self, line: &str) -> String {
        let output = self.output(line);
        let text = format!(
            "$ weir {line}\n{}{}exit {}\n",
            String::from_utf8(output.stdout).unwrap(),
            String::from_utf8(output.stderr).unwrap(),
            output.status.code().unwrap()
        );
        text.replace(self.path.to_str().unwrap(), "DIRECTORY")
    }
}

impl Drop for Scratch {
    fn drop(&mut self) {
        let _ = fs::remove_dir_all(&self.path);
    }
}

const VALID: &str = r#"[pool.images]
scheduler = "leastconn"
servers = ["10.0.0.5", "10.0.0.6:8080"]

[service.images]
listen = ["192.0.2.10:80"]
forward = "nat"
pool = "images"
"#;

const INVALID: &str = r#"[pool.images]
servers = ["10.0.0.5"]
weigth = 3

[service.images]
listen = ["192.0.2.10:80"]
forward = "dirct"
pool = "imges"
"#;

#[test]
fn check_prints_findings_as_json() {
    let scratch = Scratch::new(INVALID);
    let output = scratch.output("check -c weir.toml --json");
    assert_eq!(output.status.code(), Some(1));
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let findings = findings.as_array().unwrap();
    let typo = findings
        .iter()
        .find(|it| it["message"].as_str().unwrap().contains("weigth"))
        .unwrap();
    assert_eq!(
        (
            &typo["severity"],
            &typo["file"],
            &typo["line"],
            &typo["column"]
        ),
        (&"error".into(), &"weir.toml".into(), &3.into(), &1.into())
    );
    assert!(typo["code"].as_str().unwrap().starts_with('E'), "{typo}");
    assert!(findings.len() >= 3, "{findings:?}");

    let valid_scratch = Scratch::new(VALID);
    let output = valid_scratch.output("check -c weir.toml --json");
    assert_eq!(output.status.code(), Some(0));
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(findings.is_array(), "{findings}");

    let output = valid_scratch.output("check -c missing.toml --json");
    assert_eq!(output.status.code(), Some(1));
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(findings[0]["file"], "missing.toml");
    assert!(findings[0]["fix"].is_string(), "{findings}");
}

#[test]
fn check_accepts_valid_file() {
    let scratch = Scratch::new(VALID);
    insta::assert_snapshot!(scratch.run("check -c weir.toml"));
    insta::assert_snapshot!("strict", scratch.run("check -c weir.toml --strict"));
}

#[test]
fn check_reports_every_mistake() {
    insta::assert_snapshot!(Scratch::new(INVALID).run("-c weir.toml check"));
}

#[test]
fn check_reports_missing_file() {
    insta::assert_snapshot!(Scratch::new("").run("check -c nothing.toml"));
}

#[test]
fn doctor_on_a_real_server_suggests_real_server_doctor() {
    let scratch = Scratch::new("");
    let hint = "use `weir real-server doctor`";
    let output = scratch.run("doctor -c nothing.toml");
    assert!(!output.contains(hint), "{output}");
    fs::create_dir(scratch.path.join("run")).unwrap();
    fs::write(scratch.path.join("run/real-server.json"), "{}").unwrap();
    let output = scratch.run("doctor -c nothing.toml");
    assert!(output.contains("E021") && output.contains(hint), "{output}");
}

/// No daemon is running, so the doctor finds only the invalid file and the missing daemon.
#[test]
fn doctor_reports_an_invalid_file_and_other_findings() {
    let scratch = Scratch::new(INVALID);
    let output = scratch.output("doctor -c weir.toml --json");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    assert!(errors.contains("error[E"), "{errors}");
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    let seen = |n: usize| findings[n]["seen"].as_str().unwrap();
    assert!(seen(0).contains("weir.toml"), "{findings}");
    let why = findings[0]["why"].as_str().unwrap();
    assert!(why.contains("services were not examined"), "{why}");
    assert_eq!(seen(1), "no daemon is running");
    let text = scratch.run("doctor -c weir.toml");
    assert!(text.contains("  fix:  weir check -c weir.toml\n"), "{text}");
}

#[test]
fn empty_file_is_valid() {
    insta::assert_snapshot!(Scratch::new("").run("check -c weir.toml"));
}

#[test]
fn json_configuration_is_equivalent() {
    let scratch = Scratch::new("");
    let text = r#"{"pool": {"a": {"servers": ["10.0.0.5"]}}}"#;
    fs::write(scratch.path.join("weir.json"), text).unwrap();
    insta::assert_snapshot!(scratch.run("check -c weir.json"));
}

#[test]
fn plan_without_daemon_compares_with_empty_configuration() {
    insta::assert_snapshot!(Scratch::new(VALID).run("plan -c weir.toml"));
}

#[test]
fn plan_without_daemon_rejects_occupied_listener() {
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    let text = format!(
        "[pool.a]\nservers = [\"127.0.0.1:1\"]\n[service.a]\nlisten = [\"{address}\"]\nforward = \"proxy\"\n\
         protocol = \"tcp\"\npool = \"a\"\n"
    );
    let scratch = Scratch::new(&text);
    let output = scratch.run("plan -c weir.toml");
    assert!(output.ends_with("exit 1\n"), "{output}");
    let message = format!("error: service a: {address}: Address already in use");
    assert!(output.contains(&message), "{output}");
    assert!(output.contains("weir.toml:3:"), "{output}");
    drop(listener);
    let output = scratch.run("plan -c weir.toml");
    assert!(output.ends_with("exit 0\n"), "{output}");
}

#[test]
fn unusable_ca_file_of_a_check_is_rejected() {
    let pools = "[pool.a]\nservers = [\"10.0.0.5:443\"]\ncheck = \"https\"\n\n[pool.b]\nservers = [\"10.0.0.6:443\"]\n\
        check = \"https\"\n\n[check.https]\nkind = \"https\"\nca = \"/nonexistent/ca.pem\"\n";
    let scratch = Scratch::new(pools);
    for command in ["check", "plan", "run"] {
        let output = scratch.run(&format!("{command} -c weir.toml"));
        assert!(output.ends_with("exit 1\n"), "{output}");
        assert!(output.contains("weir.toml:11:1"), "{output}");
        let message = "error: health check: /nonexistent/ca.pem: ";
        assert_eq!(output.matches(message).count(), 1, "{output}");
    }
    let unverified = format!("{pools}verify = false\n");
    let output = Scratch::new(&unverified).run("plan -c weir.toml");
    assert!(output.ends_with("exit 0\n"), "{output}");
}

#[test]
fn run_rejects_invalid_file_first() {
    let scratch = Scratch::new("nod = 1\n");
    insta::assert_snapshot!(scratch.run("run -c weir.toml"));
    assert!(!scratch.path.join("run").exists());
}

#[test]
fn exit_code_is_3_without_daemon() {
    let scratch = Scratch::new(VALID);
    let lines = [
        "status",
        "status --watch",
        "reload",
        "server images/10.0.0.5 drain",
    ];
    insta::assert_snapshot!(lines.map(|line| scratch.run(line)).join("\n"));
}

#[test]
fn usage_errors_exit_with_2() {
    let scratch = Scratch::new(VALID);
    let lines = [
        "",
        "frobnicate",
        "status --jsn",
        "explain",
        "server images drain",
        "server images/10.0.0.5 weight 65536",
        "real-server up --forward nat --vip 192.0.2.1",
        "real-server up --forward direct --vip 192.0.2.1:x",
    ];
    insta::assert_snapshot!(lines.map(|line| scratch.run(line)).join("\n"));
    let packet = scratch
        .command("explain --packet")
        .arg("tcp nowhere 192.0.2.10:80")
        .output()
        .unwrap();
    assert_eq!(packet.status.code(), Some(2));
    insta::assert_snapshot!("packet", String::from_utf8(packet.stderr).unwrap());
}

#[test]
fn schema_is_json_and_closed_pipe_does_not_panic() {
    let scratch = Scratch::new("");
    let schema = scratch.output("schema");
    let schema: serde_json::Value = serde_json::from_slice(&schema.stdout).unwrap();
    assert_eq!(schema["title"], "weir.toml");

    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let output = scratch.command("schema").stdout(writer).output().unwrap();
    assert_eq!(output.status.code(), Some(0));
    assert_eq!(String::from_utf8(output.stderr).unwrap(), "");
}

/// Covers `weir import … | head -1`, and output to a full disk.
#[test]
fn closed_pipe_and_full_disk_do_not_panic() {
    let scratch = Scratch::new("");
    let conf = "virtual_server 192.0.2.10 80 {\n    no_such_keyword\n    real_server 10.0.0.5 80 {\n    }\n}\n";
    fs::write(scratch.path.join("keepalived.conf"), conf).unwrap();
    for (line, code) in [
        ("import keepalived keepalived.conf --accept-losses", 0),
        ("lab list", 0),
        ("lab list --json", 0),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = scratch.command(line).stdout(writer).output().unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{line}: {errors}");
        assert!(!errors.contains("panicked"), "{line}: {errors}");
        let full_device = fs::OpenOptions::new().write(true).open("/dev/full");
        let output = scratch.command(line).stdout(full_device.unwrap()).output();
        let output = output.unwrap();
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(1), "{line}: {errors}");
        assert!(errors.contains("No space left"), "{line}: {errors}");
    }
    // The notes about lines that were not imported are always on stderr.
    let (reader, writer) = std::io::pipe().unwrap();
    drop(reader);
    let import = "import keepalived keepalived.conf --accept-losses";
    let output = scratch.command(import).stdout(writer).output().unwrap();
    let notes = String::from_utf8(output.stderr).unwrap();
    assert!(notes.contains("no_such_keyword"), "{notes}");
}

#[test]
fn colors_require_a_terminal() {
    let output = Scratch::new(INVALID).output("check -c weir.toml");
    assert!(!output.stderr.contains(&0x1b));
}

/// Runs a command in a separate network namespace without a reachable name server. Returns its output and duration.
fn run_without_name_servers(scratch: &Scratch, line: &str) -> (Output, std::time::Duration) {
    let script = "ip link set lo up && ip route add 192.0.2.53/32 dev lo && mount --bind resolv.conf /etc/resolv.conf \
     && exec \"$@\"";
    fs::write(scratch.path.join("resolv.conf"), "nameserver 192.0.2.53\n").unwrap();
    let mut command = Command::new("unshare");
    command
        .args(["--mount", "--net", "sh", "-c", script, "sh"])
        .arg(env!("CARGO_BIN_EXE_weir"))
        .args(line.split_whitespace())
        .current_dir(&scratch.path)
        .stdin(Stdio::null());
    let start = std::time::Instant::now();
    (command.output().unwrap(), start.elapsed())
}

/// Writes a file for each program, in which servers are specified by name.
fn write_files_with_names(scratch: &Scratch) {
    let servers: String = (1..=5)
        .map(|n| format!("    server s{n} host{n}.example.net:80\n"))
        .collect();
    let haproxy = format!(
        "frontend f\n    mode http\n    bind *:80\n    default_backend b\nbackend b\n    mode http\n    server here \
         localhost:81\n{servers}"
    );
    fs::write(scratch.path.join("haproxy.cfg"), haproxy).unwrap();
    let nginx: String = (1..=5)
        .map(|n| format!("    server host{n}.example.net;\n"))
        .collect();
    let nginx = format!(
        "upstream u {{\n    server localhost:81;\n{nginx}}}\nserver {{\n    listen 80;\n    location / {{ proxy_pass \
         http://u; }}\n}}\n"
    );
    fs::write(scratch.path.join("nginx.conf"), nginx).unwrap();
    let ldirectord: String = (1..=5)
        .map(|n| format!("\treal=host{n}.example.net:80 gate\n"))
        .collect();
    fs::write(
        scratch.path.join("ldirectord.cf"),
        format!("virtual=192.0.2.1:80\n\treal=localhost:80 gate\n{ldirectord}\tscheduler=rr\n"),
    )
    .unwrap();
    let rules: String = (1..=5)
        .map(|n| format!("-a -t 192.0.2.1:80 -r host{n}.example.net:80 -m\n"))
        .collect();
    fs::write(
        scratch.path.join("ipvsadm.save"),
        format!("-A -t 192.0.2.1:80 -s rr\n-a -t 192.0.2.1:80 -r localhost:80 -m\n{rules}"),
    )
    .unwrap();
}

#[test]
fn import_waits_at_most_two_seconds_for_dns_in_total() {
    if !weir_testing::require_root() {
        return;
    }
    let scratch = Scratch::new("");
    write_files_with_names(&scratch);
    for line in [
        "haproxy haproxy.cfg",
        "nginx nginx.conf",
        "ldirectord ldirectord.cf",
        "ipvsadm ipvsadm.save",
    ] {
        let (output, elapsed) = run_without_name_servers(&scratch, &format!("import {line}"));
        let errors = String::from_utf8_lossy(&output.stderr).into_owned();
        // Names in the hosts file need no name server. Resolution takes at most two seconds; the other two seconds
        // allow for a slow machine.
        assert!(
            elapsed < std::time::Duration::from_secs(4),
            "{line} took {elapsed:?}: {errors}"
        );
        let toml = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(toml.contains("127.0.0.1"), "{line}: {toml} {errors}");
        // The import keeps the names of proxy servers, because Weir resolves them at run time.
        if line.starts_with("haproxy") || line.starts_with("nginx") {
            assert_eq!(output.status.code(), Some(0), "{errors}");
            for n in 1..=5 {
                let name = format!("name = \"host{n}.example.net\"");
                assert!(toml.contains(&name), "{line}: {toml}");
            }
            continue;
        }
        // The import drops layer 4 servers without an address.
        assert_eq!(output.status.code(), Some(1), "{errors}");
        for n in 1..=5 {
            let name = format!("host{n}.example.net");
            let lines = errors.lines().filter(|line| line.contains(&name));
            let has_line_number = lines.clone().any(|line| {
                line.contains(|c: char| c.is_ascii_digit()) && !line.starts_with("the name servers")
            });
            assert!(has_line_number, "{line} does not name {name}: {errors}");
            assert!(
                lines
                    .clone()
                    .any(|line| line.starts_with("the name servers did not respond within 2 s")),
                "{errors}"
            );
        }
    }
}

#[test]
fn explain_without_arguments_prints_usage() {
    let scratch = Scratch::new(VALID);
    let output = scratch.run("explain");
    assert!(output.ends_with("exit 2\n"), "{output}");
    assert!(output.contains("weir explain --packet 'tcp "), "{output}");
    assert!(output.contains("weir explain --request 'GET "), "{output}");
    assert!(!output.contains("--pin-dir"), "{output}");
}

#[test]
fn doctor_help_states_that_directors_are_not_repaired() {
    let scratch = Scratch::new(VALID);
    let output = scratch.run("doctor --help");
    assert!(
        output.contains("has no effect on a director's findings"),
        "{output}"
    );
}

#[test]
fn durations_use_configuration_syntax() {
    let scratch = Scratch::new(VALID);
    for time in ["500ms", "30s", "5m", "1h", "1d"] {
        let output = scratch.run(&format!("reload --guard {time}"));
        // The error about the missing daemon shows that the duration was accepted.
        assert!(output.ends_with("exit 3\n"), "{output}");
    }
    let output = scratch.run("reload --guard 1y");
    assert!(
        output.ends_with("exit 2\n") && output.contains("500ms, 30s, 5m, 1h or 1d"),
        "{output}"
    );
    let output = scratch.run("server images/10.0.0.5 drain --timeout 5s");
    assert!(
        output.ends_with("exit 2\n") && output.contains("--wait"),
        "{output}"
    );
}

#[test]
fn check_warns_about_occupied_address() {
    let other_listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other_listener.local_addr().unwrap();
    let file = format!(
        "[pool.p]\nservers = [\"10.0.0.5\"]\n\n[service.s]\nlisten = [\"{address}\"]\nforward = \"proxy\"\nprotocol = \
         \"http\"\npool = \"p\"\n"
    );
    let scratch = Scratch::new(&file);
    let output = scratch.run("check -c weir.toml");
    assert!(
        output.contains(&format!("warning: service s: {address}: ")),
        "{output}"
    );
    assert!(
        output.contains("weir.toml:4:") && output.ends_with("exit 0\n"),
        "{output}"
    );
}

#[test]
fn repeated_mistake_is_reported_once() {
    let mut text = "[service.web]\nlisten = [\"[2001:db8::10]:80\"]\nforward = \"nat\"\npool = \"web\"\n[pool.web]\n\
     check = { kind = \"tcp\" }\nservers = [\n".to_owned();
    for n in 0..2000 {
        text += &format!("\"10.0.{}.{}\",\n", n / 250, n % 250 + 1);
    }
    let scratch = Scratch::new(&(text + "]\n"));
    let output = scratch.run("check -c weir.toml");
    assert!(
        output.lines().count() < 25,
        "{} lines",
        output.lines().count()
    );
    assert!(output.contains("1999 more on lines 9-2007"), "{output}");
    let json = scratch.output("check -c weir.toml --json").stdout;
    let findings: serde_json::Value = serde_json::from_slice(&json).unwrap();
    assert_eq!(findings.as_array().unwrap().len(), 1);
    let finding = &findings[0];
    assert_eq!(
        (&finding["code"], &finding["count"]),
        (&"E016".into(), &2000.into())
    );
    assert_eq!(
        (&finding["line"], &finding["further"][0]["line"]),
        (&8.into(), &9.into())
    );
    assert_eq!(finding["further"].as_array().unwrap().len(), 1999);
}

#[test]
fn server_name_error_mentions_servers_dns() {
    let scratch = Scratch::new("[pool.web]\nservers = [\"web1.internal:80\"]\n");
    let output = scratch.run("check -c weir.toml");
    let key = "`servers_dns = { name = \"web1.internal\", port = 80 }`";
    assert!(output.contains(key), "{output}");
}

#[test]
fn malformed_request_is_usage_error() {
    let scratch = Scratch::new(VALID);
    for line in ["explain --request nonsense", "explain --request x -H y"] {
        let output = scratch.output(line);
        let errors = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {errors}");
        assert!(
            errors.contains("expected 'GET http://host/path'"),
            "{errors}"
        );
    }
}

#[test]
fn request_is_explained_from_file_without_daemon() {
    let scratch = Scratch::new(
        "[pool.web]\nscheduler = \"wrr\"\nservers = [\"127.0.0.2:80\", { address = \"127.0.0.3:80\", weight = 3 }]\n\
         [service.web]\nlisten = [\"127.0.0.1:8080\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n\
         [[route]]\nservice = \"web\"\npath = \"/old/*\"\nredirect = \"https://{host}:{listen_port}/new/\"\n",
    );
    let explain = |path: &str| {
        let mut command = scratch.command("explain -c weir.toml --request");
        let request = format!("GET http://a.example:8080{path}");
        let output = command.arg(request).output().unwrap();
        assert!(output.status.success(), "{output:?}");
        String::from_utf8(output.stdout).unwrap()
    };
    let pool = explain("/x");
    for line in [
        "127.0.0.3:80: weight 3\n",
        "scheduler wrr chooses one of the usable servers of pool web; only the daemon knows their state\n",
    ] {
        assert!(pool.contains(line), "{pool}");
    }
    let redirected = explain("/old/x");
    assert!(
        redirected.ends_with("redirect 302 to https://a.example:8080/new/\n"),
        "{redirected}"
    );
    let text = scratch.run("explain -c none.toml --request nonsense");
    assert!(text.contains("exit 2"), "{text}");
    // Without `-c`, the daemon's configuration is used, and there is no daemon.
    let mut command = scratch.command("explain --request");
    let output = command.arg("GET http://a/").output().unwrap();
    assert!(!output.status.success(), "{output:?}");
}

#[test]
fn hidden_commands_are_not_suggested() {
    let scratch = Scratch::new(VALID);
    let unknown = scratch.run("nosuch");
    assert!(
        unknown.contains("exit 2") && !unknown.contains("similar"),
        "{unknown}"
    );
    let typo = scratch.run("statu");
    assert!(
        typo.contains("a similar subcommand exists: 'status'"),
        "{typo}"
    );
}

#[test]
fn commands_of_other_programs_suggest_weirs_command() {
    let scratch = Scratch::new(VALID);
    for (line, command) in [
        ("-t", "weir check"),
        ("-s reload", "weir reload"),
        ("-f weir.toml", "weir check -c FILE"),
        ("-Ln", "weir ipvsadm"),
        ("-L -n", "weir ipvsadm"),
        ("start", "weir run"),
        ("restart", "systemctl stop weir"),
        ("show", "weir status"),
        ("disable", "weir server POOL/ADDRESS"),
        ("validate", "weir check"),
    ] {
        let output = scratch.run(line);
        assert!(output.contains("exit 2"), "{output}");
        assert!(
            output.contains("tip: ") && output.contains(command),
            "{output}"
        );
    }
    for line in ["check weir.toml", "run weir.toml", "weir.toml"] {
        let output = scratch.run(line);
        assert!(
            output.contains("tip: `-c FILE`") && output.contains("exit 2"),
            "{output}"
        );
    }
    // Weir compares only the first argument with other programs' commands.
    let output = scratch.run("status -t");
    assert!(!output.contains("weir check"), "{output}");
}

#[test]
fn vip_option_takes_several_addresses() {
    let scratch = Scratch::new(VALID);
    let line = "real-server up --forward direct --vip 192.0.2.1 192.0.2.2:x";
    let output = scratch.run(line);
    assert!(output.contains("'192.0.2.2:x' for '--vip"), "{output}");
}

#[test]
fn explain_describes_a_code() {
    let scratch = Scratch::new(VALID);
    insta::assert_snapshot!(scratch.run("explain e016"));
    insta::assert_snapshot!(scratch.run("explain E016 --json"));
    insta::assert_snapshot!(scratch.run("explain E999"));
    for code in weir_config::Code::ALL {
        let output = scratch.output(&format!("explain {code}"));
        let text = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{code}"
        );
        assert!(
            text.contains(&format!("[{code}]: ")) && text.contains("\nFix: "),
            "{text}"
        );
    }
}

#[test]
fn import_that_drops_access_rule_fails() {
    let scratch = Scratch::new(VALID);
    let file = "frontend web\n mode http\n bind :80\n option httplog\n acl internal src 10.0.0.0/8\n http-request deny \
     if { path_beg /admin } !{ src_conn_cur gt 10 }\n log global\n default_backend app\nbackend app\n mode http\n \
     server a 10.0.0.5:80\n";
    fs::write(scratch.path.join("haproxy.cfg"), file).unwrap();
    let output = scratch.output("import haproxy haproxy.cfg");
    assert_eq!(output.status.code(), Some(1));
    let errors = String::from_utf8(output.stderr).unwrap();
    let (first, last) = errors
        .split_once("BEHAVIOR CHANGES")
        .expect("text contains the heading");
    assert!(
        first.contains("line 4: ") && first.contains("line 5: "),
        "{errors}"
    );
    assert!(last.contains("  line 6: http-request deny if"), "{errors}");
    assert!(!first.contains("line 6: "), "{errors}");
    let import_output = scratch.output("import haproxy haproxy.cfg --accept-losses");
    assert_eq!(import_output.status.code(), Some(0));
    assert_eq!(import_output.stdout, output.stdout);
    fs::write(
        scratch.path.join("haproxy.cfg"),
        file.replace(" !{ src_conn_cur gt 10 }", ""),
    )
    .unwrap();
    let output = scratch.output("import haproxy haproxy.cfg");
    assert_eq!(output.status.code(), Some(0));
}

/// For each program, a configuration, and two lines that are not imported: one affects clients, the other does not.
const IMPORTED: &[(&str, &str, &str, &str)] = &[
    (
        "ipvsadm",
        "-A -t 192.0.2.10:80 -s wlc\n-a -t 192.0.2.10:80 -r 10.0.0.5:80 -g -w 1\n",
        "-A --sctp-service 192.0.2.10:3868 -s wlc",
        "-Z -t 192.0.2.10:80",
    ),
    (
        "keepalived",
        "virtual_server 192.0.2.10 80 {\nlvs_sched wlc\nlvs_method DR\nprotocol TCP\nreal_server 10.0.0.5 80 {\n\
         TCP_CHECK {\n}\n}\n}\n",
        "static_ipaddress {\n192.0.2.10/32 dev eth0\n}",
        "global_defs {\nnotification_email {\nadmin@example.com\n}\nrouter_id here\n}",
    ),
    (
        "ldirectord",
        "virtual=192.0.2.10:80\n\treal=10.0.0.5:80 gate\n\tchecktype=connect\n\tscheduler=wlc\n",
        "\tchecktype=negotiate\n\tservice=oracle",
        "logfile=\"/var/log/ldirectord.log\"",
    ),
    (
        "haproxy",
        "defaults\n mode http\nfrontend web\n bind :80\n default_backend app\nbackend app\n server a 10.0.0.5:80\n",
        " http-request set-header X-Now %[date]",
        " option log-health-checks",
    ),
    (
        "nginx",
        "upstream app { server 10.0.0.5:80; }\nserver {\nlisten 80;\nlocation / { proxy_pass http://app; }\n}\n",
        "map $host $x { default 1; }",
        "access_log off;",
    ),
];

#[test]
fn import_that_drops_a_line_that_affects_clients_fails() {
    let scratch = Scratch::new(VALID);
    let write = |text: &str| fs::write(scratch.path.join("original"), text).unwrap();
    for (program, text, loss, harmless) in IMPORTED {
        let import = format!("import {program} original");
        write(text);
        let clean = scratch.output(&import);
        assert_eq!(clean.status.code(), Some(0), "{program}: {clean:?}");
        assert!(clean.stderr.is_empty(), "{program}: {clean:?}");
        write(&format!("{text}{harmless}\n"));
        let with_note = scratch.output(&import);
        assert_eq!(with_note.status.code(), Some(0), "{program}: {with_note:?}");
        assert!(
            with_note.stderr.starts_with(b"line "),
            "{program}: {with_note:?}"
        );
        write(&format!("{text}{loss}\n"));
        let with_loss = scratch.output(&import);
        assert_eq!(with_loss.status.code(), Some(1), "{program}: {with_loss:?}");
        let errors = String::from_utf8(with_loss.stderr).unwrap();
        assert!(errors.contains("BEHAVIOR CHANGES"), "{program}: {errors}");
        let output = scratch.output(&format!("{import} --accept-losses"));
        assert_eq!(output.status.code(), Some(0), "{program}");
        assert_eq!(output.stdout, with_loss.stdout, "{program}");
    }
}

#[test]
fn import_reads_files_below_root_option() {
    let scratch = Scratch::new(VALID);
    let copy = scratch.path.join("copy/etc/keepalived");
    fs::create_dir_all(copy.join("conf.d")).unwrap();
    let (_, text, ..) = IMPORTED[1];
    fs::write(copy.join("conf.d/web.conf"), text).unwrap();
    let include = "include /etc/keepalived/conf.d/*.conf\n";
    fs::write(copy.join("keepalived.conf"), include).unwrap();
    let import = "import keepalived copy/etc/keepalived/keepalived.conf";
    let with_root = scratch.run(&format!("{import} --root copy"));
    assert!(with_root.contains("192.0.2.10:80"), "{with_root}");
    let without_root = scratch.output(import);
    assert!(!String::from_utf8_lossy(&without_root.stdout).contains("192.0.2.10:80"));
}

#[test]
fn commands_report_starting_daemon() {
    let scratch = Scratch::new(VALID);
    let directory = scratch.path.join("run");
    fs::create_dir(&directory).unwrap();
    let lock = fs::File::create(directory.join("lock")).unwrap();
    lock.lock().unwrap();
    let output = scratch.run("status");
    assert!(
        output.contains("no daemon is listening on run/weir.sock yet, but one is starting"),
        "{output}"
    );
    assert!(output.ends_with("exit 3\n"), "{output}");
    let edit = "ipvsadm -A -t 192.0.2.10:80";
    let output = scratch.run(edit);
    assert!(
        output.contains("no daemon is listening on run/weir.sock yet, but one is starting"),
        "{output}"
    );
    assert!(!output.contains("Are you sure"), "{output}");
    assert!(output.ends_with("exit 2\n"), "{output}");
    let output = scratch.run("doctor");
    assert!(output.contains("a daemon is starting"), "{output}");
    assert!(!output.contains("no daemon is running"), "{output}");
    assert!(output.ends_with("exit 1\n"), "{output}");
    drop(lock);
    for command in ["status", "doctor", edit] {
        let output = scratch.run(command);
        assert!(!output.contains("starting"), "{output}");
    }
}
