//! Connections to a server between requests: how many stay, and for how long.

use super::*;

/// More clients at once than connections are kept for: the next ones do not wait for new connections, and a moment
/// later only as many are left as the file says.
#[test]
fn idle_pool_absorbs_second_burst_then_shrinks() {
    const CLIENTS: usize = 8;
    let origin = Origin::start("o");
    let seat = Seat::start("http", &[origin.address()], "limits = { idle_servers = 2 }");
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(seat.listen)).collect();
    // Whether it brought new connections about; a client is always served by the same worker.
    let mut burst = || {
        let before = origin.connections();
        for client in &mut clients {
            client.send("GET /slow HTTP/1.1\r\nHost: a\r\n\r\n");
        }
        for client in &mut clients {
            let answer = client.response().expect("whole").expect("an answer");
            assert!(answer.0.starts_with("HTTP/1.1 200"), "{}", answer.0);
        }
        origin.connections() > before
    };
    assert!(burst());
    // A second may pass between two bursts on a busy machine, but not each time.
    assert!(
        (0..10).any(|_| !burst()),
        "each burst opens new connections"
    );
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let idle = || seat.status()["services"][0]["servers"][0]["inactive_connections"].as_u64();
    let deadline = Instant::now() + Duration::from_secs(30);
    while idle() > Some(2 * workers as u64) {
        assert!(Instant::now() < deadline, "{:?} wait", idle());
        std::thread::sleep(Duration::from_millis(50));
    }
    assert!(idle() >= Some(2), "{:?} wait", idle());
}

/// Clients that come one by one, and whom any worker may get: the connection that one worker left unused serves the
/// next client of another.
#[test]
fn idle_connections_move_between_workers() {
    let origin = Origin::start("o");
    let seat = Seat::start("http", &[origin.address()], "");
    // Longer than a connection waits for its own worker alone.
    let pause = || std::thread::sleep(Duration::from_millis(2_500));
    let ask = || {
        pause();
        let mut client = Client::connect(seat.listen);
        let answer = client.ask("GET / HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n");
        assert!(answer.0.starts_with("HTTP/1.1 200"), "{}", answer.0);
    };
    ask();
    let before = origin.connections();
    (0..5).for_each(|_| ask());
    assert_eq!(origin.connections(), before);
    let status = seat.status();
    let server = &status["services"][0]["servers"][0];
    assert_eq!(
        server["inactive_connections"].as_u64(),
        Some(before),
        "{server}"
    );
}

/// A process that may open no further descriptor leaves clients to the kernel, and neither runs in circles nor fills
/// its log.
#[test]
fn clients_wait_without_log_noise_when_descriptors_run_out() {
    let origin = Origin::start("o");
    let seat = Seat::start("http", &[origin.address()], "");
    let daemon = keeper::daemon(seat.child.id());
    let limit = |most: String| {
        let daemon = daemon.to_string();
        let done = Command::new("prlimit")
            .args(["--pid", &daemon, &format!("--nofile={most}:")])
            .status();
        assert!(done.expect("prlimit runs").success());
    };
    let open = fs::read_dir(format!("/proc/{daemon}/fd")).expect("it lives");
    limit((open.count() + 4).to_string());
    let mut clients: Vec<Client> = (0..16).map(|_| Client::connect(seat.listen)).collect();
    let complaints = || seat.log().matches("accept failed").count();
    let began = Instant::now();
    while complaints() == 0 {
        assert!(began.elapsed().as_secs() < 10, "{}", seat.log());
        std::thread::sleep(Duration::from_millis(20));
    }
    // One a second and worker is due; there were thousands.
    std::thread::sleep(Duration::from_secs(1));
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let seconds = usize::try_from(began.elapsed().as_secs()).expect("few");
    let most = workers * (seconds + 2);
    assert!(complaints() <= most, "{} of {most}", complaints());
    limit("1024".to_owned());
    // Of those that were accepted the longest idle may have been closed, to make room for the others.
    let mut closed = 0;
    for client in &mut clients {
        match client
            .0
            .write_all(GET.as_bytes())
            .and_then(|()| client.response())
        {
            Ok(Some((head, _))) => assert!(head.starts_with("HTTP/1.1 200 "), "{head}"),
            Ok(None) => closed += 1,
            Err(error) if error.kind() == std::io::ErrorKind::ConnectionReset => closed += 1,
            Err(error) => panic!("neither served nor closed: {error}"),
        }
    }
    let shed = seat.status()["services"][0]["shed"].as_u64();
    assert!(Some(closed) <= shed, "{closed} closed, {shed:?} shed");
    assert!(closed < 16, "no client was served");
    let (head, _) = Client::connect(seat.listen).ask(GET);
    assert!(head.starts_with("HTTP/1.1 200 "), "{head}");
}

/// Clients that announce a large body and send it in small pieces: each costs its socket and the server's, and no pipe.
#[test]
fn slow_bodies_hold_no_pipes() {
    const CLIENTS: usize = 50;
    // Spare pipes of a worker, two descriptors each.
    const SPARE: usize = 2 * 16;
    // After so much of a body a server is asked.
    const FIRST: usize = 16 << 10;
    const PIECE: usize = 1_000;
    let origin = Origin::start("o");
    let seat = Seat::start("http", &[origin.address()], "");
    let daemon = keeper::daemon(seat.child.id());
    let open = || fs::read_dir(format!("/proc/{daemon}/fd")).map_or(0, Iterator::count);
    let workers = std::thread::available_parallelism().map_or(1, usize::from);
    let before = open();
    let mut clients: Vec<Client> = (0..CLIENTS).map(|_| Client::connect(seat.listen)).collect();
    for client in &mut clients {
        client.send("POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 1000000\r\n\r\n");
        client.send(&"x".repeat(FIRST));
    }
    let deadline = Instant::now() + Duration::from_secs(20);
    while origin.connections() < CLIENTS as u64 {
        assert!(Instant::now() < deadline, "{}", origin.connections());
        std::thread::sleep(Duration::from_millis(20));
    }
    for client in &mut clients {
        client.send(&"x".repeat(PIECE));
    }
    // A body that has not moved holds no pipe yet. Heads count as well, but all of them are only a few pieces.
    keeper::until("the pieces are on their way", || {
        let moved = seat.status()["services"][0]["bytes_in"].as_u64();
        moved >= Some(((FIRST + PIECE) * CLIENTS) as u64)
    });
    let deadline = Instant::now() + Duration::from_secs(20);
    let most = before + 2 * CLIENTS + workers.min(2) * SPARE;
    while open() > most {
        let now = open();
        assert!(
            Instant::now() < deadline,
            "{now} descriptors, {before} before, {most} allowed"
        );
        std::thread::sleep(Duration::from_millis(20));
    }
    // The bodies go on, and large pieces still pass whole.
    for client in &mut clients {
        client.send(&"y".repeat(1_000_000 - FIRST - PIECE));
        let (head, body) = client.response().expect("whole").expect("an answer");
        assert!(
            head.starts_with("HTTP/1.1 200 ") && body == b"1000000",
            "{head}"
        );
    }
}
