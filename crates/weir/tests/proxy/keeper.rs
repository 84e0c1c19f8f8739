//! Tests crashes of the daemon and of the keeper.
//!
//! No connection is refused while the keeper restarts the daemon, and the active configuration stays active.

use std::fs;
use std::io::{IoSliceMut, Write};
use std::mem::MaybeUninit;
use std::net::{SocketAddr, TcpStream};
use std::os::fd::OwnedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use rustix::net::{RecvAncillaryBuffer, RecvAncillaryMessage, RecvFlags, recvmsg};
use rustix::process::{Pid, Signal, kill_process};

use super::{Client, GET, Origin, Proxy, configuration};

/// Waits up to 60 seconds until `condition` returns true. Panics with `description` otherwise.
pub(super) fn wait_until(description: &str, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + Duration::from_secs(60);
    while !condition() {
        assert!(Instant::now() < deadline, "timed out: {description}");
        std::thread::sleep(Duration::from_millis(10));
    }
}

/// Returns the child processes of `parent`.
fn children(parent: u32) -> Vec<i32> {
    let processes = fs::read_dir("/proc").expect("read /proc").flatten();
    let child = |name: &str| -> Option<i32> {
        let stat = fs::read_to_string(format!("/proc/{name}/stat")).ok()?;
        let (_, rest) = stat.rsplit_once(')')?;
        let mut words = rest.split_whitespace();
        let state = words.next()?;
        let parent_id: u32 = words.next()?.parse().ok()?;
        (parent_id == parent && state != "Z").then(|| name.parse().ok())?
    };
    processes
        .filter_map(|entry| child(entry.file_name().to_str()?))
        .collect()
}

/// Returns the process ID of a keeper's daemon. Waits for the daemon if necessary.
pub(super) fn daemon(keeper: u32) -> i32 {
    let mut found = None;
    wait_until("the keeper has a daemon", || {
        found = children(keeper).first().copied();
        found.is_some()
    });
    found.expect("no daemon found")
}

fn kill(pid: i32) {
    kill_process(
        Pid::from_raw(pid).expect("invalid process ID"),
        Signal::KILL,
    )
    .expect("send signal");
}

#[test]
fn signal_sent_while_no_daemon_runs_reaches_the_next_daemon() {
    let (one, two) = (Origin::start("one"), Origin::start("two"));
    let proxy = Proxy::start("http", &[one.address()], "");
    let two_servers = configuration(proxy.listen, "http", &[one.address(), two.address()], "");
    fs::write(proxy.directory.join("weir.toml"), two_servers).expect("write file");
    let old_daemon = daemon(proxy.child.id());
    kill(old_daemon);
    wait_until("the daemon has exited", || {
        let stat = fs::read_to_string(format!("/proc/{old_daemon}/stat"));
        stat.map_or(true, |stat| stat.contains(") Z "))
    });
    let keeper = Pid::from_child(&proxy.child);
    kill_process(keeper, Signal::HUP).expect("send signal");
    wait_until("a new daemon is ready", || proxy.weir(&["status"]).0);
    wait_until("the reload is complete", || {
        super::servers_file::server_addresses(&proxy).len() == 2
    });
}

/// Kills the daemon and waits for the next one.
pub(super) fn kill_daemon(proxy: &Proxy) {
    let old_daemon = daemon(proxy.child.id());
    kill(old_daemon);
    wait_until("a new daemon is ready", || {
        daemon(proxy.child.id()) != old_daemon && proxy.weir(&["status"]).0
    });
}

/// Clients that open a new connection for each request until they are stopped. They count the requests that were
/// served, refused (no connection) or failed (no response).
pub(super) struct ConnectionLoad {
    stop: Arc<AtomicBool>,
    counts: Arc<[AtomicU32; 3]>,
    threads: Vec<std::thread::JoinHandle<()>>,
}

impl ConnectionLoad {
    pub(super) fn start(address: SocketAddr) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let counts: Arc<[AtomicU32; 3]> = Arc::default();
        let client = |_| {
            let (stop, counts) = (Arc::clone(&stop), Arc::clone(&counts));
            std::thread::spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let outcome = match TcpStream::connect(address) {
                        Err(_) => 1,
                        Ok(stream) => {
                            let mut client = Client(stream);
                            let is_sent = client.0.write_all(GET.as_bytes()).is_ok();
                            let response = is_sent.then(|| client.read_response());
                            if matches!(response, Some(Ok(Some(_)))) {
                                0
                            } else {
                                2
                            }
                        }
                    };
                    counts[outcome].fetch_add(1, Ordering::Relaxed);
                }
            })
        };
        let threads = (0..4).map(client).collect();
        Self {
            stop,
            counts,
            threads,
        }
    }

    /// Waits until more than 50 additional requests have been served.
    pub(super) fn wait_for_progress(&self) {
        let before = self.served();
        wait_until("more requests are served", || self.served() > before + 50);
    }

    fn served(&self) -> u32 {
        self.counts[0].load(Ordering::Relaxed)
    }

    /// Stops the clients. Returns the numbers of served, refused and failed requests.
    pub(super) fn stop(self) -> [u32; 3] {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("client thread panicked");
        }
        [0, 1, 2].map(|index| self.counts[index].load(Ordering::Relaxed))
    }
}

#[test]
fn no_connection_is_refused_while_killed_daemon_restarts_soak() {
    let origin = Origin::start("o");
    let proxy = Proxy::start("http", &[origin.address()], "");
    // The active configuration stays active, even if the file has changed.
    fs::write(proxy.directory.join("weir.toml"), "not a configuration").expect("write file");
    let load = ConnectionLoad::start(proxy.listen);
    let kills = if std::env::var_os("WEIR_SOAK").is_some() {
        50
    } else {
        3
    };
    for round in 1..=kills {
        let before = load.served();
        wait_until("more requests are served", || load.served() > before + 50);
        // Wait, because the keeper exits if the daemon dies within a quarter of a second several times.
        std::thread::sleep(Duration::from_millis(500));
        let old_daemon = daemon(proxy.child.id());
        kill(old_daemon);
        wait_until("the status shows the restart", || {
            let is_ready = daemon(proxy.child.id()) != old_daemon && proxy.weir(&["status"]).0;
            is_ready && proxy.status()["restarts"] == round
        });
    }
    let before = load.served();
    wait_until("more requests are served", || load.served() > before + 50);
    let [served, refused, failed] = load.stop();
    println!("{served} requests served, {failed} failed, {refused} refused; {kills} kills");
    assert_eq!(refused, 0);
    // Only requests that were in progress in a killed process fail: at most one for each of the four clients per kill.
    assert!(failed <= 4 * kills, "{failed}");
    let (_, output) = proxy.weir(&["status"]);
    assert!(
        output.contains(&format!(
            "the daemon died {kills} times, most recently with signal 9"
        )),
        "{output}"
    );
}

#[test]
fn counters_continue_after_kill_and_restart() {
    let origin = Origin::start("o");
    let mut proxy = Proxy::start("http", &[origin.address()], "");
    let mut client = Client::connect(proxy.listen);
    for _ in 0..20 {
        client.fetch(GET);
    }
    let handover_file = proxy.directory.join("run/proxy-left.json");
    let saved_requests = || -> Option<u64> {
        let text = fs::read(&handover_file).ok()?;
        let saved_state: serde_json::Value = serde_json::from_slice(&text).ok()?;
        saved_state["services"][0]["totals"][1].as_u64()
    };
    wait_until("the counters are saved", || saved_requests() == Some(20));
    let status_counters = |proxy: &Proxy| {
        let status = proxy.status();
        let service = &status["services"][0];
        (
            service["requests"].as_u64(),
            service["connections"].as_u64(),
        )
    };
    kill_daemon(&proxy);
    assert_eq!(status_counters(&proxy), (Some(20), Some(1)));
    // A daemon saves its counters when it stops, without waiting for the next interval.
    Client::connect(proxy.listen).fetch(GET);
    assert!(proxy.terminate().success());
    proxy.start_again();
    assert_eq!(status_counters(&proxy), (Some(21), Some(2)));
    assert!(proxy.terminate().success());
    assert!(proxy.weir(&["clean"]).0);
    assert!(!handover_file.exists());
}

#[test]
fn daemon_exits_if_keeper_is_killed_and_new_keeper_can_start() {
    let origin = Origin::start("o");
    let mut proxy = Proxy::start("http", &[origin.address()], "");
    let daemon = daemon(proxy.child.id());
    proxy.child.kill().expect("send signal");
    proxy.child.wait().expect("wait for the process");
    wait_until("the daemon has exited", || {
        let stat = fs::read_to_string(format!("/proc/{daemon}/stat"));
        stat.is_err() || stat.is_ok_and(|stat| stat.contains(") Z"))
    });
    proxy.start_again();
    let mut client = Client::connect(proxy.listen);
    assert!(client.fetch(GET).0.starts_with("HTTP/1.1 200"));
}

#[test]
fn keeper_exits_when_daemon_dies_too_often() {
    let origin = Origin::start("o");
    let mut proxy = Proxy::start("http", &[origin.address()], "");
    let keeper = proxy.child.id();
    let mut last = 0;
    let status = loop {
        if let Some(status) = proxy.child.try_wait().expect("get process status") {
            break status;
        }
        if let Some(daemon) = children(keeper).first().filter(|daemon| **daemon != last) {
            last = *daemon;
            kill(last);
        }
        std::thread::sleep(Duration::from_millis(5));
    };
    assert_eq!(status.code(), Some(1));
    assert!(
        proxy.log().contains("the daemon died too often"),
        "{}",
        proxy.log()
    );
    assert!(
        TcpStream::connect(proxy.listen).is_err(),
        "a process is still listening"
    );
}

/// The part of a service manager that this test needs: it receives notifications and stores file descriptors.
struct Manager {
    socket: UnixDatagram,
    name: String,
    stored: Vec<(String, OwnedFd)>,
}

impl Manager {
    fn new() -> Self {
        let name = format!("weir-manager-{}", std::process::id());
        let address = std::os::unix::net::SocketAddr::from_abstract_name(&name)
            .expect("abstract socket address");
        let socket = UnixDatagram::bind_addr(&address).expect("bind a socket");
        let timeout = Some(Duration::from_millis(200));
        socket.set_read_timeout(timeout).expect("set read timeout");
        Self {
            socket,
            name,
            stored: Vec::new(),
        }
    }

    /// Processes one notification if one has arrived.
    fn receive(&mut self) -> Option<String> {
        let mut bytes = [0; 4096];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(4))];
        let mut control = RecvAncillaryBuffer::new(&mut space);
        let mut buffers = [IoSliceMut::new(&mut bytes)];
        let message = recvmsg(
            &self.socket,
            &mut buffers,
            &mut control,
            RecvFlags::CMSG_CLOEXEC,
        )
        .ok()?;
        let text = String::from_utf8_lossy(&bytes[..message.bytes]).into_owned();
        let name = text.lines().find_map(|line| line.strip_prefix("FDNAME="));
        let name = name.unwrap_or_default().to_owned();
        if text.starts_with("FDSTOREREMOVE=1") {
            self.stored.retain(|(stored, _)| *stored != name);
        }
        for part in control.drain() {
            if let RecvAncillaryMessage::ScmRights(files) = part {
                self.stored.extend(files.map(|file| (name.clone(), file)));
            }
        }
        Some(text)
    }

    /// Waits for a notification that contains this text. Processes all notifications that arrive in the meantime.
    fn receive_until(&mut self, expected: &str) {
        let mut received = false;
        wait_until(expected, || {
            received |= self.receive().is_some_and(|text| text.contains(expected));
            received
        });
        while self.receive().is_some() {}
    }

    /// Starts `weir run` as a service manager would. Passes at most two stored descriptors, as descriptors 3 and 4.
    fn start(&self, directory: &Path) -> Child {
        let log = fs::OpenOptions::new()
            .append(true)
            .create(true)
            .open(directory.join("log"));
        let names: Vec<&str> = self.stored.iter().map(|(name, _)| name.as_str()).collect();
        let mut command = Command::new("sh");
        Proxy::set_directories(&mut command, directory);
        // The shell gets the descriptors as standard input and standard output and moves them to 3 and 4.
        let line = match names.len() {
            0 => "exec \"$0\" run -c \"$1\"".to_owned(),
            count => format!(
                "LISTEN_PID=$$ LISTEN_FDS={count} LISTEN_FDNAMES='{}' exec \"$0\" run -c \"$1\" 3<&0 4<&1 0</dev/null \
                 1>/dev/null",
                names.join(":")
            ),
        };
        let file = |index: usize| match self.stored.get(index) {
            Some((_, file)) => Stdio::from(file.try_clone().expect("duplicate descriptor")),
            None => Stdio::null(),
        };
        command
            .args(["-c", &line, env!("CARGO_BIN_EXE_weir")])
            .arg(directory.join("weir.toml"))
            .env("NOTIFY_SOCKET", format!("@{}", self.name))
            .stdin(file(0))
            .stdout(file(1))
            .stderr(log.expect("create log file"))
            .spawn()
            .expect("start weir")
    }
}

#[test]
fn service_manager_holds_sockets_after_keeper_exit() {
    let origin = Origin::start("o");
    let mut proxy = Proxy::start("http", &[origin.address()], "");
    assert!(proxy.terminate().success());
    assert!(
        TcpStream::connect(proxy.listen).is_err(),
        "a process still holds the sockets"
    );

    let mut manager = Manager::new();
    proxy.child = manager.start(&proxy.directory);
    manager.receive_until("READY=1");
    let sockets = manager.stored.len();
    assert!(sockets >= 1);
    // The kernel queues connections while no process runs.
    assert!(proxy.terminate().success());
    manager.receive_until("STOPPING=1");
    assert_eq!(manager.stored.len(), sockets);
    manager.stored.truncate(2);
    let mut waiting_clients: Vec<Client> = (0..4).map(|_| Client::connect(proxy.listen)).collect();
    waiting_clients
        .iter_mut()
        .for_each(|client| client.send(GET));
    if sockets > 2 {
        // The shell passes on only two listeners. Clients of other listeners would wait forever.
        return;
    }
    proxy.child = manager.start(&proxy.directory);
    for client in &mut waiting_clients {
        let (head, _) = client
            .read_response()
            .expect("read response")
            .expect("no response");
        assert!(head.starts_with("HTTP/1.1 200"), "{head}");
    }
    proxy.reload(&configuration(
        super::free_address(),
        "http",
        &[origin.address()],
        "",
    ));
    manager.receive_until("FDSTOREREMOVE=1");
    assert!(
        !manager.stored.is_empty(),
        "the socket of the new address is not stored"
    );
}
