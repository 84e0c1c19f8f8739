//! Tests open-file limits and full disks: accepted clients are served, and `weir status` always succeeds.

use super::client_abort::{SlowServer, wait_until};
use super::*;

/// Starts a daemon with these soft and hard open-file limits (`SOFT:HARD`).
fn start_with_nofile(limit: &str, servers: &[SocketAddr], extra: &str) -> Proxy {
    start_with_launcher(&["prlimit", &format!("--nofile={limit}")], servers, extra)
}

/// Starts a daemon through a launcher, such as `prlimit`.
fn start_with_launcher(launcher: &[&str], servers: &[SocketAddr], extra: &str) -> Proxy {
    let mut proxy = Proxy::start("http", servers, extra);
    proxy.terminate();
    let log = fs::File::create(proxy.directory.join("log")).expect("create log file");
    let mut command = Command::new(launcher[0]);
    Proxy::set_directories(&mut command, &proxy.directory);
    proxy.child = command
        .args(&launcher[1..])
        .args([PROGRAM, "run", "-c"])
        .arg(proxy.directory.join("weir.toml"))
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(log)
        .spawn()
        .expect("start daemon");
    proxy.wait_until_ready();
    proxy
}

/// Opens more idle connections than the open-file limit allows. Requests must be served, new clients accepted, and
/// `weir status` must succeed.
fn assert_idle_clients_are_closed(limit: u32, idle: usize) {
    weir_sys::raise_nofile().expect("raise the file descriptor limit");
    let origin = Origin::start("o");
    // No timeout closes the idle connections.
    let long_timeouts = "timeouts = { request = \"5m\", idle = \"5m\" }";
    let proxy = start_with_nofile(
        &format!("{limit}:{limit}"),
        &[origin.address()],
        long_timeouts,
    );
    let mut clients: Vec<Client> = Vec::with_capacity(idle);
    for index in 0..idle {
        let mut client = Client::connect(proxy.listen);
        // Some clients are idle after a first request.
        if index < 40 {
            assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200 "));
        }
        clients.push(client);
    }
    let started = Instant::now();
    for _ in 0..50 {
        let mut client = Client::connect(proxy.listen);
        let (head, _) = client.fetch(GET);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        // A client between two requests is idle, so Weir may close its connection to make room, but not in the middle
        // of a response.
        match client
            .0
            .write_all(GET.as_bytes())
            .and_then(|()| client.read_response())
        {
            Ok(Some((head, _))) => assert!(head.starts_with("HTTP/1.1 200 "), "{head}"),
            Ok(None) => {}
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::UnexpectedEof),
        }
        clients.push(client);
    }
    assert!(
        started.elapsed() < Duration::from_secs(30),
        "{:?}",
        started.elapsed()
    );
    let status_start = Instant::now();
    let status = proxy.status();
    assert!(
        status_start.elapsed() < Duration::from_secs(5),
        "{:?}",
        status_start.elapsed()
    );
    let service = &status["services"][0];
    assert_eq!(service["errors"], 0, "{service:#}");
    assert!(service["shed"].as_u64() > Some(0), "{service:#}");
    let files = &status["open_files"];
    assert_eq!(files["limit"].as_u64(), Some(u64::from(limit)), "{files:#}");
    assert!(
        files["clients"].as_u64() <= files["clients_max"].as_u64(),
        "{files:#}"
    );
    assert!(
        !proxy.log().contains("failed to accept a client"),
        "{}",
        proxy.log()
    );
}

#[test]
fn idle_clients_are_closed_when_descriptors_run_out() {
    assert_idle_clients_are_closed(256, 400);
}

#[test]
fn idle_clients_are_closed_at_twenty_thousand_descriptors() {
    // Each client also needs a descriptor in the test process.
    assert_idle_clients_are_closed(20_000, 11_000);
}

/// Weir serves as many busy clients as the descriptors allow, other clients wait to be accepted, and `weir status`
/// succeeds.
#[test]
fn busy_clients_are_served_and_others_wait_when_descriptors_run_out() {
    let origin = SlowServer::start();
    let proxy = start_with_nofile("256:256", &[origin.address], "");
    let mut clients: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = Client::connect(proxy.listen);
            client.send(GET);
            client
        })
        .collect();
    let clients_max = proxy.status()["open_files"]["clients_max"]
        .as_i64()
        .expect("not a number");
    wait_until(
        "the server has received as many requests as descriptors allow",
        || origin.open_connections() >= clients_max - 1,
    );
    wait_until("accepting has paused", || {
        proxy.status()["services"][0]["accept_pauses"].as_u64() > Some(0)
    });
    origin.respond();
    // As clients disconnect, others are accepted.
    for mut client in clients.drain(..) {
        let response = client
            .read_response()
            .expect("read response")
            .expect("no response");
        assert!(response.0.starts_with("HTTP/1.1 200 "), "{}", response.0);
    }
    let service = &proxy.status()["services"][0];
    assert_eq!(service["errors"], 0, "{service:#}");
    // Each worker logs at most one line per minute.
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let warnings = proxy.log().matches("new clients wait").count();
    assert!((1..=workers).contains(&warnings), "{}", proxy.log());
}

/// The daemon raises its soft limit to the hard limit. A script check runs with Weir's original limit.
#[test]
fn nofile_limit_is_raised_and_restored_for_children() {
    let origin = Origin::start("o");
    let proxy = start_with_nofile("300:5000", &[origin.address()], "");
    for pid in [
        proxy.child.id(),
        keeper::daemon(proxy.child.id()).unsigned_abs(),
    ] {
        let limits = fs::read_to_string(format!("/proc/{pid}/limits")).expect("read /proc");
        let line = limits
            .lines()
            .find(|line| line.starts_with("Max open files"));
        let soft = line.and_then(|line| line.split_whitespace().nth(3));
        assert_eq!(soft, Some("5000"), "{limits}");
    }
    let limit_file = proxy.directory.join("limit");
    let text = configuration(proxy.listen, "http", &[origin.address()], "");
    let check = format!(
        "\n[pool.p.check]\nkind = \"script\"\ncommand = [\"/bin/sh\", \"-c\", \"ulimit -Sn > {0}.new && mv {0}.new \
         {0}\"]\nuser = \
         \"root\"\ninterval = \"1s\"\n\n[service.s]",
        limit_file.display()
    );
    proxy.reload(&text.replace("\n\n[service.s]", &check));
    wait_until("the check has run", || limit_file.exists());
    let limit = fs::read_to_string(limit_file).expect("read file");
    assert_eq!(limit.trim(), "300");
}

/// `check`, `status` and the log report a connection limit that the descriptors do not allow. They do not report the
/// default limit.
#[test]
fn limits_above_available_descriptors_are_reported() {
    let origin = Origin::start("o");
    let proxy = start_with_nofile("256:256", &[origin.address()], "");
    assert!(!proxy.weir(&["status"]).1.contains("limits.connections"));
    let extra = "limits = { connections = 60000 }";
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        extra,
    ));
    const WARNING: &str =
        "service s: limits.connections = 60000 is more than the open-file limit allows";
    let status = proxy.weir(&["status"]).1;
    assert!(status.contains(WARNING), "{status}");
    wait_until("the log contains the warning", || {
        proxy.log().contains(WARNING)
    });
    let file = proxy.directory.join("weir.toml");
    let check = Command::new("prlimit")
        .args(["--nofile=1024:1024", PROGRAM, "check", "-c"])
        .arg(&file)
        .env("NO_COLOR", "1")
        .output()
        .expect("run weir");
    let output = [check.stdout, check.stderr].concat();
    let output = String::from_utf8_lossy(&output);
    assert!(
        check.status.success() && output.contains(WARNING),
        "{output}"
    );
}

/// If the disk is full, Weir still serves requests. It logs one line immediately, none in the following seconds, and
/// another when there is space again.
#[test]
fn full_disk_is_reported_once() {
    let origin = Origin::start("o");
    let disk = std::env::temp_dir().join(format!("weir-disk-{}", std::process::id()));
    fs::create_dir_all(&disk).expect("create directory");
    let path = disk.join("access.log");
    let extra = format!("access_log = \"{}\"", path.display());
    // Mount the disk in a separate mount namespace.
    let script = format!(
        "mount -t tmpfs -o size=64k tmpfs '{}' && exec \"$@\"",
        disk.display()
    );
    let launcher = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    let proxy = start_with_launcher(&launcher, &[origin.address()], &extra);
    let path_in_namespace = |name: &str| {
        let disk = disk.display();
        PathBuf::from(format!("/proc/{}/root{disk}/{name}", proxy.child.id()))
    };
    assert!(
        fs::write(path_in_namespace("filler"), vec![b'x'; 1 << 20]).is_err(),
        "the file must not fit on the 64 KiB disk"
    );
    let mut client = Client::connect(proxy.listen);
    let mut send_requests_for = |duration: Duration| {
        let started = Instant::now();
        while started.elapsed() < duration {
            assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200 "));
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let count_lines = |text: &str| proxy.log().matches(text).count();
    send_requests_for(Duration::from_secs(3));
    assert_eq!(
        count_lines("the access log cannot be written"),
        1,
        "{}",
        proxy.log()
    );
    assert!(proxy.status()["services"][0]["log_dropped"].as_u64() > Some(100));
    fs::remove_file(path_in_namespace("filler")).expect("remove file");
    send_requests_for(Duration::from_millis(500));
    wait_until("the access log is written again", || {
        count_lines("the access log can be written again") == 1
    });
    assert_eq!(
        count_lines("the access log cannot be written"),
        1,
        "{}",
        proxy.log()
    );
    assert!(
        fs::metadata(path_in_namespace("access.log"))
            .expect("read metadata")
            .len()
            > 0
    );
    drop(proxy);
    let _ = fs::remove_dir_all(&disk);
}
