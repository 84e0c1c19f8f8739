//! Tests how many idle connections to a server Weir keeps, and for how long. Also tests the use of descriptors and
//! pipes.

use super::*;

/// After a burst of more concurrent clients than `idle_servers`, the next burst needs no new connections. Shortly
/// afterwards, each worker keeps at most the configured number of connections.
#[test]
fn idle_pool_absorbs_second_burst_then_shrinks() {
    const CLIENTS: usize = 8;
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "limits = { idle_servers = 2 }");
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|_| Client::connect(proxy.listen))
        .collect();
    let mut unused_start = Instant::now();
    // Returns the number of new connections in the burst, and an upper bound on the idle time before it. The same
    // worker always serves a given client.
    let mut burst = || {
        let before = origin.connections();
        for client in &mut clients {
            client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        let previous_start = unused_start;
        for (index, client) in clients.iter_mut().enumerate() {
            let response = client
                .read_response()
                .expect("read response")
                .expect("no response");
            assert!(response.0.starts_with("HTTP/1.1 200"), "{}", response.0);
            if index == 0 {
                unused_start = Instant::now();
            }
        }
        // The server takes half a second for each request, so the connections have been in use for at least that long.
        let unused_time = previous_start
            .elapsed()
            .saturating_sub(Duration::from_millis(500));
        (origin.connections() - before, unused_time)
    };
    assert_eq!(burst().0, CLIENTS as u64);
    // On a slow machine, a burst may start more than a second later, when Weir has already closed unused connections.
    let bursts: Vec<(u64, Duration)> = (0..10).map(|_| burst()).collect();
    let is_in_time =
        |(_, unused_time): &&(u64, Duration)| *unused_time < Duration::from_millis(900);
    assert!(bursts.iter().any(|burst| is_in_time(&burst)), "{bursts:?}");
    let opened = bursts
        .iter()
        .filter(is_in_time)
        .any(|(opened, _)| *opened > 0);
    assert!(!opened, "bursts open new connections: {bursts:?}");
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let idle = || proxy.status()["services"][0]["servers"][0]["inactive_connections"].as_u64();
    let deadline = Instant::now() + Duration::from_secs(30);
    while idle() > Some(2 * workers as u64) {
        assert!(Instant::now() < deadline, "{:?} idle connections", idle());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(idle() >= Some(2), "{:?} idle connections", idle());
}

/// Any worker may accept each of the consecutive clients: an idle connection of one worker serves the next client of
/// another worker.
#[test]
fn idle_connections_move_between_workers() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    // The pause is longer than the time for which a connection is reserved for its worker.
    let pause = || std::thread::sleep(Duration::from_millis(2_500));
    let fetch = || {
        pause();
        let mut client = Client::connect(proxy.listen);
        let (head, _) = client.fetch("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    };
    fetch();
    let before = origin.connections();
    (0..5).for_each(|_| fetch());
    assert_eq!(origin.connections(), before);
    let status = proxy.status();
    let server = &status["services"][0]["servers"][0];
    assert_eq!(
        server["inactive_connections"].as_u64(),
        Some(before),
        "{server}"
    );
}

/// A daemon without free descriptors leaves clients in the backlog. It neither spins nor fills its log.
#[test]
fn clients_wait_without_log_noise_when_descriptors_run_out() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let daemon = keeper::daemon(proxy.child.id());
    let set_nofile_limit = |soft_limit: String| {
        let daemon = daemon.to_string();
        let status = Command::new("prlimit")
            .args(["--pid", &daemon, &format!("--nofile={soft_limit}:")])
            .status();
        assert!(status.expect("run prlimit").success());
    };
    let descriptors = fs::read_dir(format!("/proc/{daemon}/fd")).expect("read /proc");
    set_nofile_limit((descriptors.count() + 4).to_string());
    let mut clients: Vec<Client> = (0..16).map(|_| Client::connect(proxy.listen)).collect();
    let logged_lines = || proxy.log().matches("failed to accept a client").count();
    let wait_start = Instant::now();
    while logged_lines() == 0 {
        assert!(wait_start.elapsed().as_secs() < 10, "{}", proxy.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    // Each worker may log one line per second. A loop without pauses would log thousands.
    std::thread::sleep(Duration::from_secs(1));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let seconds = usize::try_from(wait_start.elapsed().as_secs()).expect("too large for usize");
    let max_count = workers * (seconds + 2);
    assert!(
        logged_lines() <= max_count,
        "{} lines logged, the maximum is {max_count}",
        logged_lines()
    );
    set_nofile_limit("1024".to_owned());
    // Weir may have closed the accepted clients that were idle longest to make room for others.
    let mut closed_count = 0;
    for client in &mut clients {
        match client
            .0
            .write_all(GET.as_bytes())
            .and_then(|()| client.read_response())
        {
            Ok(Some((head, _))) => assert!(head.starts_with("HTTP/1.1 200 "), "{head}"),
            Ok(None) => closed_count += 1,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => closed_count += 1,
            Err(error) => panic!("neither served nor closed: {error}"),
        }
    }
    let shed = proxy.status()["services"][0]["shed"].as_u64();
    assert!(
        Some(closed_count) <= shed,
        "{closed_count} closed, {shed:?} shed"
    );
    assert!(closed_count < 16, "no client was served");
    let (head, _) = Client::connect(proxy.listen).fetch(GET);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

/// A client that announces a large body and sends it slowly needs two sockets and no pipe.
#[test]
fn slow_bodies_use_no_pipes() {
    const CLIENTS: usize = 50;
    // Spare pipes of a worker, two descriptors each.
    const SPARE_DESCRIPTORS: usize = 2 * 16;
    // Number of body bytes after which Weir selects a server.
    const FIRST_BYTES: usize = 16 << 10;
    const PIECE_BYTES: usize = 1_000;
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let daemon = keeper::daemon(proxy.child.id());
    let count_descriptors =
        || fs::read_dir(format!("/proc/{daemon}/fd")).map_or(0, Iterator::count);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let before = count_descriptors();
    let mut clients: Vec<Client> = (0..CLIENTS)
        .map(|_| Client::connect(proxy.listen))
        .collect();
    for client in &mut clients {
        client.send("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
        client.send(&"x".repeat(FIRST_BYTES));
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while origin.connections() < CLIENTS as u64 {
        assert!(Instant::now() < deadline, "{}", origin.connections());
        std::thread::sleep(Duration::from_millis(20));
    }
    for client in &mut clients {
        client.send(&"x".repeat(PIECE_BYTES));
    }
    // A body that makes no progress has no pipe. The count includes the heads, but they arrive in a few pieces.
    keeper::wait_until("the pieces are forwarded", || {
        let bytes_in = proxy.status()["services"][0]["bytes_in"].as_u64();
        bytes_in >= Some(((FIRST_BYTES + PIECE_BYTES) * CLIENTS) as u64)
    });
    let deadline = Instant::now() + Duration::from_secs(20);
    let max_count = before + 2 * CLIENTS + workers.min(2) * SPARE_DESCRIPTORS;
    while count_descriptors() > max_count {
        let count = count_descriptors();
        assert!(
            Instant::now() < deadline,
            "{count} descriptors, {before} before, {max_count} allowed"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // The bodies continue, and Weir still forwards large pieces completely.
    for client in &mut clients {
        client.send(&"y".repeat(1_000_000 - FIRST_BYTES - PIECE_BYTES));
        let (head, body) = client
            .read_response()
            .expect("read response")
            .expect("no response");
        assert!(
            head.starts_with("HTTP/1.1 200 ") && body == b"1000000",
            "{head}"
        );
    }
}
