//! Tests an etcd whose replies arrive late, including while it compacts its history.

use std::io::{Read, Write};
use std::net::{Ipv4Addr, Shutdown, TcpListener, TcpStream};
use std::sync::mpsc;
use std::time::Instant;

use super::*;

const ADDRESS: Ipv4Addr = Ipv4Addr::new(10, 71, 0, 40);
const PROXY_PORT: u16 = 2479;

/// A proxy in front of the first member of etcd. It delays each byte that etcd sends.
struct SlowProxy {
    delay_ms: Arc<AtomicU64>,
    stop: Arc<AtomicBool>,
}

impl SlowProxy {
    fn start(group: &Group) -> Self {
        let (delay_ms, stop) = (Arc::default(), Arc::new(AtomicBool::new(false)));
        let proxy = Self {
            delay_ms: Arc::clone(&delay_ms),
            stop: Arc::clone(&stop),
        };
        let (ready, listening) = mpsc::channel();
        group.world.spawn_on("etcd0", move || {
            let listener = TcpListener::bind((ADDRESS, PROXY_PORT)).expect("bind a socket");
            ready.send(()).expect("send the ready signal");
            for client in listener.incoming().map_while(Result::ok) {
                if stop.load(Ordering::Relaxed) {
                    return;
                }
                // etcd may be down.
                if let Ok(server) = TcpStream::connect((ADDRESS, ETCD_PORT)) {
                    connect(client, server, &delay_ms);
                }
            }
        });
        listening.recv_timeout(TIMEOUT).expect("wait for the proxy");
        proxy
    }

    fn set_delay(&self, delay: Duration) {
        let delay_ms = u64::try_from(delay.as_millis()).expect("number exceeds 64 bits");
        self.delay_ms.store(delay_ms, Ordering::Relaxed);
    }
}

impl Drop for SlowProxy {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
    }
}

/// Starts the threads of a connection.
fn connect(client: TcpStream, server: TcpStream, delay_ms: &Arc<AtomicU64>) {
    let clone = |stream: &TcpStream| stream.try_clone().expect("duplicate the socket");
    start_pump(clone(&client), clone(&server), Arc::default());
    start_pump(server, client, Arc::clone(delay_ms));
}

/// Starts threads that copy from one socket to another and delay each byte by the current number of milliseconds.
fn start_pump(mut from: TcpStream, mut to: TcpStream, delay_ms: Arc<AtomicU64>) {
    let (sender, chunks) = mpsc::channel::<(Instant, Vec<u8>)>();
    std::thread::spawn(move || {
        let mut buffer = vec![0; 1 << 16];
        while let Ok(length @ 1..) = from.read(&mut buffer) {
            let delay = Duration::from_millis(delay_ms.load(Ordering::Relaxed));
            let chunk = (Instant::now() + delay, buffer[..length].to_vec());
            if sender.send(chunk).is_err() {
                break;
            }
        }
        // The writer still sends the delayed data.
    });
    std::thread::spawn(move || {
        for (due, bytes) in chunks {
            std::thread::sleep(due.saturating_duration_since(Instant::now()));
            if to.write_all(&bytes).is_err() {
                break;
            }
        }
        let _ = to.shutdown(Shutdown::Both);
    });
}

impl Group {
    /// Asserts that each director lists both directors, serves requests, and has all servers.
    fn assert_complete(&self) {
        for n in 0..2 {
            let members = self.group(n)["members"].as_array().map(Vec::len);
            assert_eq!(
                (members, self.servers(n).len()),
                (Some(2), 2),
                "director {n}"
            );
        }
    }

    /// Asserts that a director executes a command immediately.
    fn assert_fast(&self, n: usize, arguments: &[&str]) {
        let started = Instant::now();
        self.run_weir(n, arguments);
        let elapsed = started.elapsed();
        assert!(
            elapsed < Duration::from_secs(3),
            "{arguments:?}: {elapsed:?}"
        );
    }

    /// Writes the weight of the first server to etcd, as other programs may do, and compacts the history up to this
    /// change.
    fn write_weight_and_compact(&self, weight: u64) {
        let key = format!("/weir/edge/override/web/{}", SERVERS[0]);
        let value = format!("{{\"weight\":{weight}}}");
        let output = self.etcdctl(&["--write-out", "json", "put", &key, &value]);
        let response: Value = serde_json::from_slice(&output.stdout).expect("parse the output");
        let revision = response["header"]["revision"].to_string();
        // The directors also write, so there may be a newer revision, but no later compaction.
        let output = self.etcdctl(&["compact", &revision]);
        assert!(output.status.success(), "{output:?}");
    }

    fn wait_for_etcd_state(&self, state: &str) {
        for n in 0..2 {
            wait_for(state, TIMEOUT, || self.group(n)["etcd"] == state);
        }
    }
}

/// Starts two directors that reach etcd through a proxy, with a published configuration, and a client. The lease lasts
/// 6 s, so requests may take 3 s.
fn start_group() -> (Group, SlowProxy, Load) {
    let mut group = Group::new(1, 2);
    (group.lease_s, group.etcd_port) = (6, PROXY_PORT);
    let proxy = SlowProxy::start(&group);
    group.start_all();
    let output = group.publish(0, &config(8080, &SERVERS), "0s");
    assert!(output.status.success(), "{output:?}");
    let load = Load::start(&group);
    (group, proxy, load)
}

/// Replies that are 2 s late only delay changes. Replies after the time limit have the same effect as an outage of
/// etcd.
#[test]
fn late_replies_from_etcd_delay_changes_and_remove_nothing() {
    if !privileged() {
        return;
    }
    let (group, proxy, load) = start_group();

    proxy.set_delay(Duration::from_secs(2));
    let end = Instant::now() + Duration::from_secs(14);
    while Instant::now() < end {
        group.assert_complete();
        for n in 0..2 {
            let status = group.group(n);
            assert_eq!(status["etcd"], "connected", "{status}");
            assert_eq!(group.present_members(n), 2, "{status}");
        }
        std::thread::sleep(Duration::from_millis(500));
    }
    group.assert_fast(0, &["server", "web/10.71.0.20:80", "weight", "7"]);
    wait_for("the weight", TIMEOUT, || {
        let servers = group.servers(1);
        servers
            .first()
            .is_some_and(|it| it["effective_weight"] == 7)
    });
    load.assert_nothing_failed();
    let started = Instant::now();
    let output = group.publish(1, &config(8081, &SERVERS), "0s");
    assert!(output.status.success(), "{output:?}");
    println!("published with replies 2 s late: {:?}", started.elapsed());
    assert!(group.serves(0, 8081) && group.serves(1, 8081));
    let output = group.publish(0, &config(8080, &SERVERS), "0s");
    assert!(output.status.success(), "{output:?}");
    let load = Load::start(&group);

    // Now the replies arrive after the time limit.
    proxy.set_delay(Duration::from_secs(8));
    group.wait_for_etcd_state("away");
    let error = group.group(0)["error"].to_string();
    assert!(error.contains("no response within"), "{error}");
    group.assert_fast(0, &["server", "web/10.71.0.21:80", "drain"]);
    let output = group.publish(0, &config(8082, &SERVERS), "0s");
    assert!(!output.status.success(), "{output:?}");
    let end = Instant::now() + Duration::from_secs(10);
    while Instant::now() < end {
        group.assert_complete();
        std::thread::sleep(Duration::from_millis(500));
    }

    proxy.set_delay(Duration::ZERO);
    group.wait_for_etcd_state("connected");
    for n in 0..2 {
        wait_for("the members", TIMEOUT, || group.present_members(n) == 2);
        wait_for("the drain", TIMEOUT, || {
            group.state(n, "10.71.0.21:80") == "drain"
        });
        assert_eq!(group.group(n)["version"], 3, "director {n}");
    }
    wait_for("no pending changes", TIMEOUT, || {
        group.group(0)["pending"] == 0
    });
    load.assert_nothing_failed();
    let output = group.publish(1, &config(8083, &SERVERS), "0s");
    assert!(output.status.success(), "{output:?}");
    assert!(group.serves(0, 8083) && group.serves(1, 8083));
}

/// If a director's connection breaks, it reads the keys and watches the changes after them. With late replies, etcd has
/// compacted these changes when the watch begins, and ends it. The director then reads the keys again.
#[test]
fn compaction_past_the_revision_of_a_watch_loses_no_change() {
    if !privileged() {
        return;
    }
    let (group, proxy, load) = start_group();

    proxy.set_delay(Duration::from_secs(8));
    group.wait_for_etcd_state("away");
    proxy.set_delay(Duration::from_millis(1500));
    let mut weight = 2;
    let mut is_compacted = [false; 2];
    wait_for("the end of both watches", 2 * TIMEOUT, || {
        weight += 1;
        group.write_weight_and_compact(weight);
        for (n, is_compacted) in is_compacted.iter_mut().enumerate() {
            let error = group.group(n)["error"].to_string();
            *is_compacted |= error.contains("compacted the revisions that the watch needs");
        }
        is_compacted == [true; 2]
    });
    group.assert_complete();

    proxy.set_delay(Duration::ZERO);
    group.wait_for_etcd_state("connected");
    for n in 0..2 {
        wait_for("the members", TIMEOUT, || group.present_members(n) == 2);
        wait_for("the last weight", TIMEOUT, || {
            group.servers(n)[0]["effective_weight"] == weight
        });
    }
    // The new watches report changes.
    group.run_weir(0, &["server", "web/10.71.0.20:80", "weight", "99"]);
    wait_for("the next weight", TIMEOUT, || {
        group.servers(1)[0]["effective_weight"] == 99
    });
    load.assert_nothing_failed();
}
