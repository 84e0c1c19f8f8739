//! Tests upgrades of a running daemon.
//!
//! Connections are handed over or finish in the old process. If the new program fails to start, nothing changes.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use rustix::process::Pid;
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustls::HandshakeKind;

use super::keeper::{ConnectionLoad, wait_until};
use super::tls::{self, Authority};
use super::{Client, GET, Origin, Proxy};

/// Returns the number of upgrades.
fn upgrade_count() -> u32 {
    if std::env::var_os("WEIR_SOAK").is_some() {
        100
    } else {
        5
    }
}

/// Clients that stay connected and repeat an exchange until they are stopped. They report failures as strings.
struct PersistentClients {
    stop: Arc<AtomicBool>,
    exchanges: Arc<AtomicU64>,
    threads: Vec<JoinHandle<Result<(), String>>>,
}

impl PersistentClients {
    fn start(
        address: SocketAddr,
        count: usize,
        exchange: impl Fn(&mut Client, u64) -> Result<(), String> + Send + Sync + 'static,
    ) -> Self {
        let (stop, exchanges) = (Arc::<AtomicBool>::default(), Arc::<AtomicU64>::default());
        let exchange = Arc::new(exchange);
        let client = |_| {
            let (stop, exchanges, exchange) = (
                Arc::clone(&stop),
                Arc::clone(&exchanges),
                Arc::clone(&exchange),
            );
            std::thread::spawn(move || {
                let mut client = Client::connect(address);
                let mut round = 0;
                while !stop.load(Ordering::Relaxed) {
                    exchange(&mut client, round)
                        .map_err(|error| format!("round {round}: {error}"))?;
                    round += 1;
                    exchanges.fetch_add(1, Ordering::Relaxed);
                }
                Ok(())
            })
        };
        let threads = (0..count).map(client).collect();
        Self {
            stop,
            exchanges,
            threads,
        }
    }

    /// Waits until the clients have completed more than 50 additional exchanges, or a client has failed.
    fn wait_for_progress(&self) {
        let before = self.exchanges.load(Ordering::Relaxed);
        let has_ended = |thread: &JoinHandle<_>| thread.is_finished();
        wait_until("the persistent clients have made progress", || {
            let has_failed = self.threads.iter().any(has_ended);
            has_failed || self.exchanges.load(Ordering::Relaxed) > before + 50
        });
    }

    /// Stops the clients. Returns the number of exchanges. Panics if a client has failed.
    fn stop(self) -> u64 {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            if let Err(error) = thread.join().expect("client thread panicked") {
                panic!("{error}");
            }
        }
        self.exchanges.load(Ordering::Relaxed)
    }
}

/// Sends a request and expects a response with status 200.
fn fetch(client: &mut Client, _: u64) -> Result<(), String> {
    client
        .0
        .write_all(GET.as_bytes())
        .map_err(|e| e.to_string())?;
    match client.read_response() {
        Ok(Some((head, _))) if head.starts_with("HTTP/1.1 200") => Ok(()),
        other => Err(format!("{other:?}")),
    }
}

/// Sends bytes that depend on the round, and reads them back.
pub(super) fn echo(client: &mut Client, round: u64) -> Result<(), String> {
    let data: Vec<u8> = (0..2_000u64)
        .flat_map(|index| (round * 7 + index).to_be_bytes())
        .collect();
    let mut received = vec![0; data.len()];
    client.0.write_all(&data).map_err(|e| e.to_string())?;
    client
        .0
        .read_exact(&mut received)
        .map_err(|e| e.to_string())?;
    (data == received)
        .then_some(())
        .ok_or("received different bytes".to_owned())
}

#[test]
fn no_request_fails_during_upgrades_under_load_soak() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let (load, persistent) = (
        ConnectionLoad::start(proxy.listen),
        PersistentClients::start(proxy.listen, 4, fetch),
    );
    let mut pids = std::collections::BTreeSet::new();
    for _ in 0..upgrade_count() {
        persistent.wait_for_progress();
        let (succeeded, output) = proxy.upgrade();
        assert!(succeeded, "{output}");
        pids.insert(output);
    }
    persistent.wait_for_progress();
    let responses = persistent.stop();
    let [served, refused, failed] = load.stop();
    println!(
        "{} upgrades: {responses} requests by persistent clients, {served} by others",
        upgrade_count()
    );
    assert_eq!((refused, failed), (0, 0));
    assert_eq!(pids.len(), upgrade_count() as usize, "{pids:?}");
    // Weir adds the counters of an old daemon when that daemon's last client has disconnected.
    wait_until("the status counts all requests", || {
        let status = proxy.status();
        status["services"][0]["requests"].as_u64() == Some(responses + u64::from(served))
    });
}

#[test]
fn tcp_connections_are_handed_over_with_buffered_bytes() {
    let origin = Origin::start_tcp();
    let proxy = Proxy::start("tcp", &[origin.address()], "");
    let persistent = PersistentClients::start(proxy.listen, 4, echo);
    // The message of this client is incomplete during the upgrades.
    let mut incomplete = TcpStream::connect(proxy.listen).expect("connect");
    incomplete.write_all(b"hello, ").expect("write");
    for _ in 0..upgrade_count() {
        persistent.wait_for_progress();
        let (succeeded, output) = proxy.upgrade();
        assert!(succeeded, "{output}");
    }
    persistent.wait_for_progress();
    incomplete.write_all(b"world").expect("write");
    incomplete
        .shutdown(std::net::Shutdown::Write)
        .expect("shut down the write side");
    incomplete
        .set_read_timeout(Some(Duration::from_secs(10)))
        .expect("set read timeout");
    let mut text = String::new();
    incomplete.read_to_string(&mut text).expect("read");
    assert_eq!(text, "hello, world");
    println!(
        "{} upgrades: {} messages verified",
        upgrade_count(),
        persistent.stop()
    );
    assert_eq!(origin.connections(), 5, "expected no new connection");
}

#[test]
fn http2_stream_finishes_in_its_original_process() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let body = proxy.directory.join("body");
    std::fs::write(&body, vec![b'x'; 2_000_000]).expect("write file");
    let upload = Command::new("curl")
        .args(["-sS", "--max-time", "20", "--http2-prior-knowledge"])
        .args(["--limit-rate", "1M", "--data-binary"])
        .arg(format!("@{}", body.display()))
        .arg(format!("http://{}/sum", proxy.listen))
        .stdout(Stdio::piped())
        .spawn()
        .expect("start curl");
    wait_until("the server has received the upload request", || {
        origin.connections() == 1
    });
    let (succeeded, output) = proxy.upgrade();
    assert!(succeeded, "{output}");
    fetch(&mut Client::connect(proxy.listen), 0).expect("fetch");
    let output = upload.wait_with_output().expect("wait for curl");
    assert_eq!(String::from_utf8_lossy(&output.stdout), "2000000");
}

#[test]
fn status_lists_old_processes_until_their_clients_finish() {
    let origin = Origin::start("o");
    // An incomplete request keeps the old process running.
    let proxy = Proxy::start("http", &[origin.address()], "request_buffering = false");
    let mut unfinished = Vec::new();
    for _ in 0..2 {
        let mut client = Client::connect(proxy.listen);
        let head = b"POST /sum HTTP/1.1\r\nHost: a\r\nContent-Length: 10\r\n\r\nhello";
        client.0.write_all(head).expect("write");
        unfinished.push(client);
        wait_until("the request has reached the server", || {
            origin.connections() == unfinished.len() as u64
        });
        let (succeeded, output) = proxy.upgrade();
        assert!(succeeded, "{output}");
    }
    let draining = || -> Vec<(u64, u64)> {
        let status = proxy.status();
        let draining_processes = status["draining"].as_array().cloned().unwrap_or_default();
        let number =
            |process: &serde_json::Value, key: &str| process[key].as_u64().expect("not a number");
        draining_processes
            .iter()
            .map(|process| (number(process, "pid"), number(process, "clients")))
            .collect()
    };
    wait_until("the status lists both old processes", || {
        draining().len() == 2
    });
    let both = draining();
    assert_ne!(both[0].0, both[1].0);
    assert_eq!((both[0].1, both[1].1), (1, 1));
    for mut client in unfinished {
        client.0.write_all(b"world").expect("write");
        let (_, body) = client
            .read_response()
            .expect("read response")
            .expect("no response");
        assert_eq!(body, b"10");
    }
    wait_until("both old processes have exited", || draining().is_empty());
}

/// Restricts all threads of a process to these CPUs; children that it starts later inherit the restriction.
fn restrict_to_cpus(pid: u32, cpus: &CpuSet) {
    let tasks = std::fs::read_dir(format!("/proc/{pid}/task")).expect("read /proc");
    for task in tasks.flatten() {
        let thread = task
            .file_name()
            .to_string_lossy()
            .parse()
            .expect("parse number");
        sched_setaffinity(Pid::from_raw(thread), cpus).expect("set CPU affinity");
    }
}

#[test]
fn changed_worker_count_closes_no_listener() {
    let all_cpus = sched_getaffinity(None).expect("sched_getaffinity");
    let first = (0..CpuSet::MAX_CPU)
        .find(|cpu| all_cpus.is_set(*cpu))
        .expect("no CPU");
    let mut single_cpu = CpuSet::new();
    single_cpu.set(first);
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let load = ConnectionLoad::start(proxy.listen);
    // Use one worker, then the original number, and then one again.
    for cpus in [&single_cpu, &all_cpus, &single_cpu] {
        restrict_to_cpus(proxy.child.id(), cpus);
        let (succeeded, output) = proxy.upgrade();
        assert!(succeeded, "{output}");
        load.wait_for_progress();
    }
    let [served, refused, failed] = load.stop();
    println!(
        "{served} requests served while the number of workers changed between {} and 1",
        all_cpus.count()
    );
    assert_eq!((refused, failed), (0, 0));
}

#[test]
fn health_states_survive_an_upgrade_and_a_crash() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    let dead_address = super::free_address();
    let check = "[pool.p.check]\ninterval = \"1h\"\ntimeout = \"100ms\"\nfall = 1\nrise = 1\n";
    let text = super::configuration(proxy.listen, "http", &[origin.address(), dead_address], "");
    proxy.reload(&(text + check));
    let states = || -> Vec<(String, String)> {
        let status = proxy.status();
        let servers = status["services"][0]["servers"]
            .as_array()
            .expect("no servers");
        let text_field = |server: &serde_json::Value, key: &str| {
            server[key].as_str().expect("not a string").to_owned()
        };
        let state = |server| (text_field(server, "state"), text_field(server, "since"));
        servers.iter().map(state).collect()
    };
    let all_probed = || {
        states()
            .iter()
            .all(|(state, _)| state == "up" || state == "down")
    };
    wait_until("all servers are probed", all_probed);
    let before = states();
    assert_eq!(before[0].0, "up");
    assert_eq!(before[1].0, "down");
    // No probe is due for an hour, so this state comes from the previous daemon.
    let (succeeded, output) = proxy.upgrade();
    assert!(succeeded, "{output}");
    assert_eq!(states(), before);
    let handover_file = proxy.directory.join("run/proxy-left.json");
    wait_until("the health states are saved", || {
        std::fs::read_to_string(&handover_file).is_ok_and(|text| text.contains("refused"))
    });
    super::keeper::kill_daemon(&proxy);
    assert_eq!(states(), before);
}

#[test]
fn tls_tickets_survive_an_upgrade_and_idle_connections_get_connection_close() {
    let authority = Authority::new("upgrade");
    authority.sign("one", "DNS:a.example", 30);
    let origin = Origin::start("o");
    let tls = format!("tls = {{ certificates = \"{}\" }}", authority.certs());
    let proxy = Proxy::start("http", &[origin.address()], &tls);
    let config = authority.client(None);
    let mut idle_client = tls::connect(&config, proxy.listen, "a.example");
    tls::fetch(&mut idle_client, GET).expect("fetch");
    for _ in 0..2 {
        let (succeeded, output) = proxy.upgrade();
        assert!(succeeded, "{output}");
        // The ticket is valid in every daemon and in each of the daemon's workers.
        for _ in 0..4 {
            let mut resumed = tls::connect(&config, proxy.listen, "a.example");
            tls::fetch(&mut resumed, GET).expect("fetch");
            let kind = resumed.conn.handshake_kind();
            assert_eq!(kind, Some(HandshakeKind::Resumed));
        }
    }
    let last = tls::fetch(&mut idle_client, GET).unwrap_or_else(|e| panic!("{e} {}", proxy.log()));
    assert!(last.contains("Connection: close\r\n"), "{last}");
}

#[test]
fn failed_upgrade_leaves_the_daemon_unchanged() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let mut proxy = Proxy::start("http", &[one.address(), two.address()], "");
    let mut client = Client::connect(proxy.listen);
    fetch(&mut client, 0).expect("fetch");
    for (program, error) in [
        ("/bin/false", "exited before it was ready"),
        ("/nonexistent", "No such file"),
    ] {
        let (succeeded, output) = proxy.weir(&["upgrade", program]);
        assert!(!succeeded && output.contains(error), "{output}");
        fetch(&mut client, 1).expect("fetch");
    }
    // The next process has the override and the active configuration, even though the file has changed.
    let name = format!("p/{}", two.address());
    assert!(proxy.weir(&["server", &name, "drain"]).0);
    std::fs::write(proxy.directory.join("weir.toml"), "not a configuration").expect("write file");
    let (succeeded, output) = proxy.upgrade();
    assert!(succeeded, "{output}");
    fetch(&mut client, 2).expect("fetch");
    let status = proxy.status();
    assert_eq!(
        status["services"][0]["servers"][1]["state"], "drain",
        "{status:#}"
    );
    // On SIGTERM, the keeper waits until the current daemon has finished its requests.
    assert!(proxy.terminate().success());
    assert!(TcpStream::connect(proxy.listen).is_err());
}
