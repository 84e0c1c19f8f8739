//! Limits of open files, and full disks: accepted clients are served, and `weir status` always succeeds.

use super::client_abort::{Slow, until};
use super::*;

/// Starts a daemon with these soft and hard limits of open files (`SOFT:HARD`).
fn start_with(limit: &str, servers: &[SocketAddr], more: &str) -> Proxy {
    start_by(&["prlimit", &format!("--nofile={limit}")], servers, more)
}

/// Starts a daemon through another program, such as `prlimit`.
fn start_by(by: &[&str], servers: &[SocketAddr], more: &str) -> Proxy {
    let mut proxy = Proxy::start("http", servers, more);
    proxy.terminate();
    let log = fs::File::create(proxy.directory.join("log")).expect("create log file");
    let mut command = Command::new(by[0]);
    Proxy::set_directories(&mut command, &proxy.directory);
    proxy.child = command
        .args(&by[1..])
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

/// Opens many more idle connections than the limit allows. Requests must be served, new clients accepted, and `weir
/// status` must succeed.
fn idle_clients_make_room(limit: u32, idle: usize) {
    weir_sys::raise_nofile().expect("raise the file descriptor limit");
    let origin = Origin::start("o");
    // No timeout closes the idle connections.
    let long_timeouts = "timeouts = { request = \"5m\", idle = \"5m\" }";
    let proxy = start_with(
        &format!("{limit}:{limit}"),
        &[origin.address()],
        long_timeouts,
    );
    let mut held: Vec<Client> = Vec::with_capacity(idle);
    for number in 0..idle {
        let mut client = Client::connect(proxy.listen);
        // Some clients are idle after a first request.
        if number < 40 {
            assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200 "));
        }
        held.push(client);
    }
    let began = Instant::now();
    for _ in 0..50 {
        let mut client = Client::connect(proxy.listen);
        let (head, _) = client.fetch(GET);
        assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
        // A client between two requests is idle, and may be closed to make room. It never gets part of a response.
        match client
            .0
            .write_all(GET.as_bytes())
            .and_then(|()| client.response())
        {
            Ok(Some((head, _))) => assert!(head.starts_with("HTTP/1.1 200 "), "{head}"),
            Ok(None) => {}
            Err(error) => assert_ne!(error.kind(), std::io::ErrorKind::UnexpectedEof),
        }
        held.push(client);
    }
    assert!(
        began.elapsed() < Duration::from_secs(30),
        "{:?}",
        began.elapsed()
    );
    let asked = Instant::now();
    let status = proxy.status();
    assert!(
        asked.elapsed() < Duration::from_secs(5),
        "{:?}",
        asked.elapsed()
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
    assert!(!proxy.log().contains("accept failed"), "{}", proxy.log());
}

#[test]
fn idle_clients_are_closed_when_descriptors_run_out() {
    idle_clients_make_room(256, 400);
}

#[test]
fn idle_clients_are_closed_at_twenty_thousand_descriptors() {
    // Each client also needs a descriptor in this process.
    idle_clients_make_room(20_000, 11_000);
}

/// As many busy clients as descriptors allow: all are served, others wait to be accepted, and `weir status` succeeds.
#[test]
fn busy_clients_are_served_and_others_wait_when_descriptors_run_out() {
    let origin = Slow::start();
    let proxy = start_with("256:256", &[origin.address], "");
    let mut clients: Vec<Client> = (0..200)
        .map(|_| {
            let mut client = Client::connect(proxy.listen);
            client.send(GET);
            client
        })
        .collect();
    let room = proxy.status()["open_files"]["clients_max"]
        .as_i64()
        .expect("not a number");
    until("as many as fit are at the server", || {
        origin.open() >= room - 1
    });
    until("and accepting has paused", || {
        proxy.status()["services"][0]["accept_pauses"].as_u64() > Some(0)
    });
    origin.answer();
    // As clients disconnect, others are accepted.
    for mut client in clients.drain(..) {
        let answer = client
            .response()
            .expect("read response")
            .expect("no response");
        assert!(answer.0.starts_with("HTTP/1.1 200 "), "{}", answer.0);
    }
    let service = &proxy.status()["services"][0];
    assert_eq!(service["errors"], 0, "{service:#}");
    // At most one line per minute and worker is logged.
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let lines = proxy.log().matches("clients must wait").count();
    assert!((1..=workers).contains(&lines), "{}", proxy.log());
}

/// The daemon raises its soft limit to the hard limit. A script check runs with Weir's original limit.
#[test]
fn nofile_limit_is_raised_and_restored_for_children() {
    let origin = Origin::start("o");
    let proxy = start_with("300:5000", &[origin.address()], "");
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
    let printed = proxy.directory.join("said");
    let text = configuration(proxy.listen, "http", &[origin.address()], "");
    let check = format!(
        "\n[pool.p.check]\nkind = \"script\"\ncommand = [\"/bin/sh\", \"-c\", \"ulimit -Sn > {0}.new && mv {0}.new \
         {0}\"]\nuser = \
         \"root\"\ninterval = \"1s\"\n\n[service.s]",
        printed.display()
    );
    proxy.reload(&text.replace("\n\n[service.s]", &check));
    until("the check has run", || printed.exists());
    let printed = fs::read_to_string(printed).expect("read file");
    assert_eq!(printed.trim(), "300");
}

/// A connection limit that the descriptors do not allow is reported by `check`, by `status` and at start. The default
/// limit is not reported.
#[test]
fn limits_beyond_the_descriptors_are_reported() {
    let origin = Origin::start("o");
    let proxy = start_with("256:256", &[origin.address()], "");
    assert!(!proxy.weir(&["status"]).1.contains("limits.connections"));
    let more = "limits = { connections = 60000 }";
    proxy.reload(&configuration(
        proxy.listen,
        "http",
        &[origin.address()],
        more,
    ));
    const WARNING: &str = "service s: limits.connections = 60000 is more than the open files allow";
    let status = proxy.weir(&["status"]).1;
    assert!(status.contains(WARNING), "{status}");
    until("the warning in the log", || proxy.log().contains(WARNING));
    let file = proxy.directory.join("weir.toml");
    let check = Command::new("prlimit")
        .args(["--nofile=1024:1024", PROGRAM, "check", "-c"])
        .arg(&file)
        .env("NO_COLOR", "1")
        .output()
        .expect("run weir");
    let printed = [check.stdout, check.stderr].concat();
    let printed = String::from_utf8_lossy(&printed);
    assert!(
        check.status.success() && printed.contains(WARNING),
        "{printed}"
    );
}

/// If the disk is full, requests are served. One line is logged immediately and none in the following seconds. Another
/// one is logged when there is space again.
#[test]
fn full_disk_is_reported_once() {
    let origin = Origin::start("o");
    let disk = std::env::temp_dir().join(format!("weir-disk-{}", std::process::id()));
    fs::create_dir_all(&disk).expect("create directory");
    let path = disk.join("access.log");
    let more = format!("access_log = \"{}\"", path.display());
    // The disk is mounted in a separate mount namespace.
    let script = format!(
        "mount -t tmpfs -o size=64k tmpfs '{}' && exec \"$@\"",
        disk.display()
    );
    let by = ["unshare", "--mount", "sh", "-c", &script, "sh"];
    let proxy = start_by(&by, &[origin.address()], &more);
    let inside = |name: &str| {
        let disk = disk.display();
        PathBuf::from(format!("/proc/{}/root{disk}/{name}", proxy.child.id()))
    };
    assert!(
        fs::write(inside("filler"), vec![b'x'; 1 << 20]).is_err(),
        "64 KiB"
    );
    let mut client = Client::connect(proxy.listen);
    let mut request_lasting = |time: Duration| {
        let began = Instant::now();
        while began.elapsed() < time {
            assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200 "));
            std::thread::sleep(Duration::from_millis(1));
        }
    };
    let lines = |what: &str| proxy.log().matches(what).count();
    request_lasting(Duration::from_secs(3));
    assert_eq!(
        lines("the access log cannot be written"),
        1,
        "{}",
        proxy.log()
    );
    assert!(proxy.status()["services"][0]["log_dropped"].as_u64() > Some(100));
    fs::remove_file(inside("filler")).expect("remove file");
    request_lasting(Duration::from_millis(500));
    until("it is written again", || {
        lines("writing the access log works again") == 1
    });
    assert_eq!(
        lines("the access log cannot be written"),
        1,
        "{}",
        proxy.log()
    );
    assert!(
        fs::metadata(inside("access.log"))
            .expect("read metadata")
            .len()
            > 0
    );
    drop(proxy);
    let _ = fs::remove_dir_all(&disk);
}
