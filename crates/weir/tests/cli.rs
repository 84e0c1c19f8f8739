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

    /// Runs a command. Returns the exit code, stdout and stderr as one text.
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

    let good = Scratch::new(VALID);
    let output = good.output("check -c weir.toml --json");
    assert_eq!(output.status.code(), Some(0));
    let findings: serde_json::Value = serde_json::from_slice(&output.stdout).unwrap();
    assert!(findings.is_array(), "{findings}");

    let output = good.output("check -c missing.toml --json");
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
fn doctor_on_a_real_server_refers_to_the_command_for_servers() {
    let scratch = Scratch::new("");
    let hint = "use `weir real-server doctor`";
    let printed = scratch.run("doctor -c nothing.toml");
    assert!(!printed.contains(hint), "{printed}");
    fs::create_dir(scratch.path.join("run")).unwrap();
    fs::write(scratch.path.join("run/real-server.json"), "{}").unwrap();
    let printed = scratch.run("doctor -c nothing.toml");
    assert!(
        printed.contains("E021") && printed.contains(hint),
        "{printed}"
    );
}

/// The machine has no daemon: the doctor finds only the error and the missing daemon.
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
    let printed = scratch.run("doctor -c weir.toml");
    assert!(
        printed.contains("  fix:  weir check -c weir.toml\n"),
        "{printed}"
    );
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
fn ca_file_of_a_check_is_rejected_if_it_cannot_be_used() {
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
        let full = fs::OpenOptions::new().write(true).open("/dev/full");
        let output = scratch.command(line).stdout(full.unwrap()).output();
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
    let started = std::time::Instant::now();
    (command.output().unwrap(), started.elapsed())
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
    let saved: String = (1..=5)
        .map(|n| format!("-a -t 192.0.2.1:80 -r host{n}.example.net:80 -m\n"))
        .collect();
    fs::write(
        scratch.path.join("ipvsadm.save"),
        format!("-A -t 192.0.2.1:80 -s rr\n-a -t 192.0.2.1:80 -r localhost:80 -m\n{saved}"),
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
        let printed = String::from_utf8_lossy(&output.stderr).into_owned();
        // Names in the hosts file need no name server. Resolution takes at most two seconds; the other two seconds
        // allow for a slow machine.
        assert!(
            elapsed < std::time::Duration::from_secs(4),
            "{line} took {elapsed:?}: {printed}"
        );
        let toml = String::from_utf8_lossy(&output.stdout).into_owned();
        assert!(toml.contains("127.0.0.1"), "{line}: {toml} {printed}");
        // The import keeps the names of proxy servers, because Weir resolves them at run time.
        if line.starts_with("haproxy") || line.starts_with("nginx") {
            assert_eq!(output.status.code(), Some(0), "{printed}");
            for n in 1..=5 {
                let name = format!("name = \"host{n}.example.net\"");
                assert!(toml.contains(&name), "{line}: {toml}");
            }
            continue;
        }
        // The import drops layer 4 servers without an address.
        assert_eq!(output.status.code(), Some(1), "{printed}");
        for n in 1..=5 {
            let name = format!("host{n}.example.net");
            let lines = printed.lines().filter(|line| line.contains(&name));
            let has_line_number = lines.clone().any(|line| {
                line.contains(|c: char| c.is_ascii_digit()) && !line.starts_with("the name servers")
            });
            assert!(has_line_number, "{line} does not name {name}: {printed}");
            assert!(
                lines
                    .clone()
                    .any(|line| line.starts_with("the name servers did not respond within 2 s")),
                "{printed}"
            );
        }
    }
}

#[test]
fn explain_without_arguments_prints_usage() {
    let scratch = Scratch::new(VALID);
    let printed = scratch.run("explain");
    assert!(printed.ends_with("exit 2\n"), "{printed}");
    assert!(printed.contains("weir explain --packet 'tcp "), "{printed}");
    assert!(
        printed.contains("weir explain --request 'GET "),
        "{printed}"
    );
    assert!(!printed.contains("--pin-dir"), "{printed}");
}

#[test]
fn doctor_help_states_that_directors_are_not_repaired() {
    let scratch = Scratch::new(VALID);
    let printed = scratch.run("doctor --help");
    assert!(
        printed.contains("has no effect on a director's findings"),
        "{printed}"
    );
}

#[test]
fn durations_use_configuration_syntax() {
    let scratch = Scratch::new(VALID);
    for time in ["500ms", "30s", "5m", "1h", "1d"] {
        let printed = scratch.run(&format!("reload --guard {time}"));
        // The error about the missing daemon shows that the duration was accepted.
        assert!(printed.ends_with("exit 3\n"), "{printed}");
    }
    let printed = scratch.run("reload --guard 1y");
    assert!(
        printed.ends_with("exit 2\n") && printed.contains("500ms, 30s, 5m, 1h or 1d"),
        "{printed}"
    );
    let printed = scratch.run("server images/10.0.0.5 drain --timeout 5s");
    assert!(
        printed.ends_with("exit 2\n") && printed.contains("--wait"),
        "{printed}"
    );
}

#[test]
fn check_warns_about_occupied_address() {
    let other = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let address = other.local_addr().unwrap();
    let file = format!(
        "[pool.p]\nservers = [\"10.0.0.5\"]\n\n[service.s]\nlisten = [\"{address}\"]\nforward = \"proxy\"\nprotocol = \
         \"http\"\npool = \"p\"\n"
    );
    let scratch = Scratch::new(&file);
    let printed = scratch.run("check -c weir.toml");
    assert!(
        printed.contains(&format!("warning: service s: {address}: ")),
        "{printed}"
    );
    assert!(
        printed.contains("weir.toml:4:") && printed.ends_with("exit 0\n"),
        "{printed}"
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
    let printed = scratch.run("check -c weir.toml");
    assert!(
        printed.lines().count() < 25,
        "{} lines",
        printed.lines().count()
    );
    assert!(printed.contains("1999 more on lines 9-2007"), "{printed}");
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
    let printed = scratch.run("check -c weir.toml");
    let key = "`servers_dns = { name = \"web1.internal\", port = 80 }`";
    assert!(printed.contains(key), "{printed}");
}

#[test]
fn malformed_request_is_usage_error() {
    let scratch = Scratch::new(VALID);
    for line in ["explain --request nonsense", "explain --request x -H y"] {
        let output = scratch.output(line);
        let printed = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{line}: {printed}");
        assert!(
            printed.contains("expected 'GET http://host/path'"),
            "{printed}"
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
    let wrong = scratch.run("explain -c none.toml --request nonsense");
    assert!(wrong.contains("exit 2"), "{wrong}");
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
        let printed = scratch.run(line);
        assert!(printed.contains("exit 2"), "{printed}");
        assert!(
            printed.contains("tip: ") && printed.contains(command),
            "{printed}"
        );
    }
    for line in ["check weir.toml", "run weir.toml", "weir.toml"] {
        let printed = scratch.run(line);
        assert!(
            printed.contains("tip: `-c FILE`") && printed.contains("exit 2"),
            "{printed}"
        );
    }
    // Weir compares only the first argument with other programs' commands.
    let printed = scratch.run("status -t");
    assert!(!printed.contains("weir check"), "{printed}");
}

#[test]
fn one_option_takes_several_vips() {
    let scratch = Scratch::new(VALID);
    let line = "real-server up --forward direct --vip 192.0.2.1 192.0.2.2:x";
    let printed = scratch.run(line);
    assert!(printed.contains("'192.0.2.2:x' for '--vip"), "{printed}");
}

#[test]
fn explain_describes_a_code() {
    let scratch = Scratch::new(VALID);
    insta::assert_snapshot!(scratch.run("explain e016"));
    insta::assert_snapshot!(scratch.run("explain E016 --json"));
    insta::assert_snapshot!(scratch.run("explain E999"));
    for code in weir_config::Code::ALL {
        let output = scratch.output(&format!("explain {code}"));
        let printed = String::from_utf8(output.stdout).unwrap();
        assert!(
            output.status.success() && output.stderr.is_empty(),
            "{code}"
        );
        assert!(
            printed.contains(&format!("[{code}]: ")) && printed.contains("\nFix: "),
            "{printed}"
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
    let printed = String::from_utf8(output.stderr).unwrap();
    let (first, last) = printed
        .split_once("BEHAVIOR CHANGES")
        .expect("text contains the heading");
    assert!(
        first.contains("line 4: ") && first.contains("line 5: "),
        "{printed}"
    );
    assert!(last.contains("  line 6: http-request deny if"), "{printed}");
    assert!(!first.contains("line 6: "), "{printed}");
    let accepted = scratch.output("import haproxy haproxy.cfg --accept-losses");
    assert_eq!(accepted.status.code(), Some(0));
    assert_eq!(accepted.stdout, output.stdout);
    fs::write(
        scratch.path.join("haproxy.cfg"),
        file.replace(" !{ src_conn_cur gt 10 }", ""),
    )
    .unwrap();
    let output = scratch.output("import haproxy haproxy.cfg");
    assert_eq!(output.status.code(), Some(0));
}

/// For each program, one line that affects clients and one that does not.
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
        let printed = String::from_utf8(with_loss.stderr).unwrap();
        assert!(printed.contains("BEHAVIOR CHANGES"), "{program}: {printed}");
        let accepted = scratch.output(&format!("{import} --accept-losses"));
        assert_eq!(accepted.status.code(), Some(0), "{program}");
        assert_eq!(accepted.stdout, with_loss.stdout, "{program}");
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
    let printed = scratch.run("status");
    assert!(
        printed.contains("no daemon is listening on run/weir.sock yet, but one is starting"),
        "{printed}"
    );
    assert!(printed.ends_with("exit 3\n"), "{printed}");
    let edit = "ipvsadm -A -t 192.0.2.10:80";
    let printed = scratch.run(edit);
    assert!(
        printed.contains("no daemon is listening on run/weir.sock yet, but one is starting"),
        "{printed}"
    );
    assert!(!printed.contains("Are you sure"), "{printed}");
    assert!(printed.ends_with("exit 2\n"), "{printed}");
    let printed = scratch.run("doctor");
    assert!(printed.contains("a daemon is starting"), "{printed}");
    assert!(!printed.contains("no daemon is running"), "{printed}");
    assert!(printed.ends_with("exit 1\n"), "{printed}");
    drop(lock);
    for command in ["status", "doctor", edit] {
        let printed = scratch.run(command);
        assert!(!printed.contains("starting"), "{printed}");
    }
}
