//! Tests health checks against real servers: MariaDB, PostgreSQL, Exim, nginx and a gRPC server.
//!
//! Each test starts its own server.

#[path = "peers/grpc.rs"]
mod grpc;
#[path = "peers/probe_source.rs"]
mod probe_source;
mod world;

use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use world::checks::{self, server};
use world::{Family, World, privileged, sh, wait_for};

const TIMEOUT: Duration = Duration::from_secs(20);

fn config(checks: &[(&str, impl AsRef<str>)]) -> String {
    checks::config(checks, "2s")
}

/// Waits until a pool's server is in this state with a reason that contains this text.
fn wait_for_state(world: &World, name: &str, state: &str, reason: &str) {
    let deadline = Instant::now() + TIMEOUT;
    loop {
        let status = server(world, name);
        let actual_reason = status["reason"].as_str().unwrap_or_default();
        if status["state"] == state && actual_reason.contains(reason) {
            return;
        }
        assert!(
            Instant::now() < deadline,
            "expected {name} to be {state} with {reason}, not {status:#}"
        );
        std::thread::sleep(Duration::from_millis(50));
    }
}

/// Starts a program on server 0. The program is killed when the network is removed.
fn start(world: &mut World, program: &str, arguments: &[&str]) {
    let log = std::fs::File::create(world.path("peer.log")).expect("create the log file");
    let child = world
        .command("server0", program)
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(log.try_clone().expect("duplicate the file descriptor"))
        .stderr(log)
        .spawn()
        .expect("start the process");
    world.kill_on_drop(child);
}

/// Waits until server 0 listens on a port.
fn wait_for_port(world: &World, port: u16) {
    wait_for(&format!("port {port}"), TIMEOUT, || {
        let filter = format!("ss -Hltn sport = :{port}");
        !world.output("server0", &filter).stdout.is_empty()
    });
}

/// Creates a directory that another account owns, below one that every account may enter. Returns its path.
fn create_owned_directory(world: &World, name: &str, account: &str) -> String {
    let path = world.path(name);
    std::fs::create_dir_all(&path).expect("create a directory");
    sh(&format!("chown {account} {}", path.display()));
    path.display().to_string()
}

/// Runs a command as this account.
fn run_as(account: &str, program: &Path, arguments: &[&str]) {
    let output = Command::new("setpriv")
        .args(["--reuid", account, "--regid", account, "--clear-groups"])
        .arg(program)
        .args(arguments)
        .current_dir("/")
        .output()
        .expect("run setpriv");
    assert!(output.status.success(), "{program:?}: {output:?}");
}

#[test]
fn mariadb_does_not_block_the_director_because_of_checks() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let data = create_owned_directory(&world, "mariadb", "mysql");
    let output = Command::new("mariadb-install-db")
        .args(["--no-defaults", "--user=mysql", "--skip-test-db"])
        .args(["--auth-root-authentication-method=normal"])
        .arg(format!("--datadir={data}"))
        .output()
        .expect("run mariadb-install-db");
    assert!(output.status.success(), "{output:?}");
    let directory = format!("--datadir={data}");
    let socket = format!("--socket={data}/socket");
    let pid = format!("--pid-file={data}/pid");
    // MariaDB blocks only hosts whose names it can resolve, so the director gets a name that only this server can
    // resolve.
    let accounts = world.path("accounts");
    std::fs::write(&accounts, "CREATE USER probe@'%';\n").expect("write the SQL file");
    let hosts = world.path("hosts");
    std::fs::write(
        &hosts,
        format!("{} director.example\n", Family::V4.director()),
    )
    .expect("write the hosts file");
    let line = format!(
        "mount --bind {} /etc/hosts && exec mariadbd --no-defaults --user=mysql {directory} {socket} {pid} --port=3306 \
         --bind-address=0.0.0.0 --max-connect-errors=3 --innodb-buffer-pool-size=8M --init-file={}",
        hosts.display(),
        accounts.display()
    );
    start(&mut world, "unshare", &["-m", "sh", "-c", &line]);
    wait_for_port(&world, 3306);
    world.start_daemon(&config(&[
        ("mysql", "kind = \"mysql\"\nport = 3306"),
        (
            "with-user",
            "kind = \"mysql\"\nport = 3306\nuser = \"probe\"",
        ),
    ]));
    wait_for_state(&world, "mysql", "up", "login refused");
    wait_for_state(&world, "with-user", "up", "MariaDB");
    wait_for("at least 12 results", TIMEOUT, || {
        let results = server(&world, "mysql")["checks"][0]["results"].clone();
        let results = results.as_str().expect("results is a string").to_owned();
        assert!(
            !results.contains('-'),
            "{results}: {:#}",
            server(&world, "mysql")
        );
        results.len() >= 12
    });
}

#[test]
fn postgres_startup_check_passes() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let data = create_owned_directory(&world, "postgres", "postgres");
    let entries = std::fs::read_dir("/usr/lib/postgresql")
        .expect("find PostgreSQL (run tools/install-deps.sh to install it)");
    let mut versions: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    versions.sort();
    let bin_dir = versions
        .last()
        .expect("at least one version of PostgreSQL should be installed")
        .join("bin");
    run_as(
        "postgres",
        &bin_dir.join("initdb"),
        &[
            "-D",
            &data,
            "-A",
            "scram-sha-256",
            "--no-sync",
            "--locale=C",
            "--pwfile=/etc/hostname",
        ],
    );
    sh(&format!(
        "echo 'host all all 10.71.0.0/24 scram-sha-256' >> {data}/pg_hba.conf"
    ));
    let program = bin_dir.join("postgres").display().to_string();
    start(
        &mut world,
        "setpriv",
        &[
            "--reuid",
            "postgres",
            "--regid",
            "postgres",
            "--clear-groups",
            &program,
            "-D",
            &data,
            "-h",
            "0.0.0.0",
            "-k",
            &data,
            "-c",
            "fsync=off",
        ],
    );
    wait_for_port(&world, 5432);
    world.start_daemon(&config(&[
        ("postgres", "kind = \"postgres\"\nport = 5432"),
        (
            "no-account",
            "kind = \"postgres\"\nport = 5432\nuser = \"no-such-user\"",
        ),
        ("mysql", "kind = \"mysql\"\nport = 5432"),
    ]));
    wait_for_state(&world, "postgres", "up", "postgres");
    wait_for_state(&world, "no-account", "up", "postgres");
    wait_for_state(&world, "mysql", "down", "no response within 2s");
}

#[test]
fn smtp_check_passes_with_exim() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let spool = create_owned_directory(&world, "exim", "Debian-exim");
    let file = world.path("exim.conf");
    std::fs::write(
        &file,
        format!(
            "primary_hostname = mail.example\nspool_directory = {spool}\nlog_file_path = {spool}/%slog\n\
             pid_file_path = {spool}/pid\ndaemon_smtp_ports = 25\nlocal_interfaces = 0.0.0.0\ntls_advertise_hosts =\n\
             host_lookup =\nrfc1413_hosts =\nacl_smtp_helo = refuse\nbegin acl\nrefuse:\n\
             deny condition = ${{if eq{{$sender_helo_name}}{{refused.example}}}}\naccept\n"
        ),
    )
    .expect("write the configuration");
    let config_file = file.display().to_string();
    start(&mut world, "exim4", &["-bdf", "-C", &config_file]);
    wait_for_port(&world, 25);
    world.start_daemon(&config(&[
        (
            "smtp",
            "kind = \"smtp\"\nport = 25\nhelo = \"director.example\"",
        ),
        (
            "refused",
            "kind = \"smtp\"\nport = 25\nhelo = \"refused.example\"",
        ),
    ]));
    wait_for_state(&world, "smtp", "up", "smtp 250");
    wait_for_state(&world, "refused", "down", "smtp \"5");
}

#[test]
fn http_body_check_compares_text_and_digest() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    world.start_nginx(64);
    let http = |expect: &str| {
        format!("kind = \"http\"\nport = 80\npath = \"/name\"\nexpect = {{ {expect} }}")
    };
    let wrong_digest = http("digest = \"9eb5c9f0a0d7fd1f9e2d2b4e1c7a6c11\"");
    // These are the digests of "server0" and a newline.
    let output = Command::new("sh")
        .args(["-c", "printf 'server0\\n' | md5sum | cut -c -32; printf 'server0\\n' | sha256sum | cut -c -64"])
        .output()
        .expect("run md5sum");
    let digests = String::from_utf8_lossy(&output.stdout).into_owned();
    let mut digests = digests.lines();
    let md5 = http(&format!("digest = \"{}\"", digests.next().unwrap_or("")));
    let sha256 = http(&format!("digest = \"{}\"", digests.next().unwrap_or("")));
    world.start_daemon(&config(&[
        ("matches", &http("regex = '^server\\d\\s*$'")),
        ("differs", &http("regex = '^server[1-9]'")),
        ("without", &http("without = '(?i)SERVER0'")),
        ("digest", &md5),
        ("sha256", &sha256),
        ("other", &wrong_digest),
    ]));
    wait_for_state(&world, "matches", "up", "http 200");
    wait_for_state(&world, "digest", "up", "http 200");
    wait_for_state(&world, "sha256", "up", "http 200");
    wait_for_state(
        &world,
        "differs",
        "down",
        "body does not match /^server[1-9]/",
    );
    wait_for_state(&world, "without", "down", "body matches /(?i)SERVER0/");
    wait_for_state(&world, "other", "down", "body digest is");
}

#[test]
fn file_check_follows_changes() {
    if !privileged() {
        return;
    }
    let mut world = World::new(1);
    let file = world.path("weight");
    std::fs::write(&file, "42\n").expect("write the file");
    let check = format!("kind = \"file\"\nfile = \"{}\"", file.display());
    // The interval is longer than the test, so only a change to the file can cause a probe.
    let config = config(&[("file", &check)]).replace("\"300ms\"", "\"10m\"");
    world.start_daemon(&config);
    let wait_for_weight = |weight: u64| {
        wait_for(&format!("weight {weight}"), TIMEOUT, || {
            server(&world, "file")["effective_weight"] == weight
        });
        let status = server(&world, "file");
        assert_eq!(status["check_weight"], weight, "{status:#}");
        assert_eq!(status["weight"], 100, "{status:#}");
    };
    wait_for_weight(42);
    std::fs::write(&file, "7\n").expect("write the file");
    wait_for_weight(7);
    let next = world.path("next");
    std::fs::write(&next, "70\n").expect("write the file");
    std::fs::rename(&next, &file).expect("replace the file");
    wait_for_weight(70);
    let text = world.run_weir(&["status"]);
    assert!(text.contains("70 of 100"), "{text}");
    assert!(text.contains("(weight: check 70)"), "{text}");
    std::fs::remove_file(&file).expect("remove the file");
    wait_for_state(&world, "file", "down", "No such file");
}

#[test]
fn sorry_server_has_its_own_check() {
    if !privileged() {
        return;
    }
    let mut world = World::new(2);
    world.start_nginx(64);
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&vip);
    let times = "interval = \"200ms\", timeout = \"200ms\", rise = 1, fall = 1";
    world.start_daemon(&format!(
        "[node]\ninterfaces = [\"eth0\"]\n[pool.web]\nservers = [\"{}\"]\n\
         sorry = {{ address = \"{}\", check = {{ kind = \"http\", path = \"/name\", {times} }} }}\n\
         check = {{ kind = \"http\", path = \"/name\", {times} }}\n\
         [service.web]\nlisten = [\"{vip}:80\"]\nforward = \"direct\"\npool = \"web\"\n",
        Family::V4.server(0),
        Family::V4.server(1)
    ));
    let wait_for_response = |world: &World, expected: &str| {
        wait_for(&format!("a response from {expected:?}"), TIMEOUT, || {
            let line = format!("curl -s -m 1 http://{vip}/name");
            let output = world.output("client", &line);
            String::from_utf8_lossy(&output.stdout).trim() == expected
        });
    };
    let wait_for_sorry_server = |world: &World, state: &str, weight: u64| {
        wait_for(
            &format!("the sorry server to be {state} with weight {weight}"),
            TIMEOUT,
            || {
                let status = world.server_status(Family::V4.server(1));
                status["state"] == state && status["effective_weight"] == weight
            },
        );
    };
    wait_for_response(&world, "server0");
    wait_for_sorry_server(&world, "up", 0);
    world.kill_nginx(0);
    wait_for_response(&world, "server1");
    wait_for_sorry_server(&world, "up", 1);
    world.kill_nginx(1);
    wait_for_sorry_server(&world, "down", 0);
    // No server is available, so Weir rejects clients immediately.
    let output = world.output("client", &format!("curl -sS -m 2 http://{vip}/name"));
    let errors = String::from_utf8_lossy(&output.stderr).into_owned();
    assert!(
        errors.contains("refused") || errors.contains("connect"),
        "{errors}"
    );
    world.start_nginx_on("server1", 1, "");
    wait_for_response(&world, "server1");
    world.start_nginx_on("server0", 0, "");
    wait_for_response(&world, "server0");
}
