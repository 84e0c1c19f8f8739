//! Tests directors that share state in a real etcd.

#[path = "cluster/clock.rs"]
mod clock;
#[path = "cluster/connections.rs"]
mod connections;
#[path = "cluster/disk.rs"]
mod disk;
#[path = "cluster/etcd_security.rs"]
mod etcd_security;
#[path = "cluster/layer4.rs"]
mod layer4;
#[path = "cluster/published_files.rs"]
mod published_files;
#[path = "cluster/scale.rs"]
mod scale;
#[path = "cluster/slow_etcd.rs"]
mod slow_etcd;
mod world;

use std::fs;
use std::path::PathBuf;
use std::process::{Child, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use serde_json::Value;
use world::{World, privileged, wait_for};

const TIMEOUT: Duration = Duration::from_secs(30);
const ETCD_PORT: u16 = 2379;
const DIRECTORS: [&str; 8] = [
    "director", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth",
];

/// Returns the last byte of a director's address.
fn host_number(n: usize) -> u16 {
    let number = if n == 0 { 3 } else { 50 + n };
    u16::try_from(number).expect("number exceeds 16 bits")
}

/// A group: etcd members, directors and servers on one segment.
struct Group {
    world: World,
    etcd: Vec<Option<Child>>,
    directors: Vec<Option<Child>>,
    /// Whether etcd requires client certificates and passwords: see [`etcd_security`].
    is_secured: bool,
    /// Whether the directors have local services in addition to the published ones.
    has_local_services: bool,
    /// The directors' `lease`, in seconds.
    lease_s: u64,
    /// The port that the directors use for etcd.
    etcd_port: u16,
    /// Environment variables of the directors' daemons.
    environment: Vec<(&'static str, PathBuf)>,
    /// Further lines of `[cluster]`, for directors with local services.
    cluster_keys: String,
    /// Further sections of directors without local services.
    sections: String,
}

impl Group {
    fn new(etcd: usize, directors: usize) -> Self {
        Self::with_options(etcd, directors, 2, false)
    }

    fn with_options(etcd: usize, directors: usize, servers: usize, is_secured: bool) -> Self {
        let mut world = World::new(servers);
        world.start_nginx(64);
        for n in 0..etcd {
            world.add_router(
                &format!("etcd{n}"),
                40 + u16::try_from(n).expect("number exceeds 16 bits"),
            );
        }
        for (n, name) in DIRECTORS.iter().enumerate().take(directors).skip(1) {
            world.add_router(name, host_number(n));
        }
        let mut group = Self {
            world,
            etcd: (0..etcd).map(|_| None).collect(),
            directors: (0..directors).map(|_| None).collect(),
            is_secured,
            has_local_services: true,
            lease_s: 2,
            etcd_port: ETCD_PORT,
            environment: Vec::new(),
            cluster_keys: String::new(),
            sections: String::new(),
        };
        if is_secured {
            group.create_certificates();
        }
        for n in 0..etcd {
            group.start_etcd(n);
        }
        group.wait_for_etcd();
        group
    }

    /// Returns the data directory of an etcd member. It is on tmpfs, because etcd waits for the disk on each write.
    fn data_dir(&self, n: usize) -> PathBuf {
        PathBuf::from(format!(
            "/dev/shm/{}",
            self.world.namespace(&format!("etcd{n}"))
        ))
    }

    fn start_etcd(&mut self, n: usize) {
        let address = |n: usize| format!("10.71.0.{}", 40 + n);
        let members = (0..self.etcd.len()).map(|n| format!("e{n}=http://{}:2380", address(n)));
        let members = members.collect::<Vec<_>>().join(",");
        let (client, peer) = (
            format!("{}{}:2379", self.scheme(), address(n)),
            format!("http://{}:2380", address(n)),
        );
        let log = fs::File::create(self.world.path(&format!("etcd{n}.log")))
            .expect("create the log file");
        let mut command = self.world.command(&format!("etcd{n}"), "etcd");
        command
            .args(["--name", &format!("e{n}"), "--initial-cluster", &members])
            .arg("--data-dir")
            .arg(self.data_dir(n))
            .args([
                "--listen-client-urls",
                &client,
                "--advertise-client-urls",
                &client,
            ])
            .args([
                "--listen-peer-urls",
                &peer,
                "--initial-advertise-peer-urls",
                &peer,
            ])
            .args(["--heartbeat-interval", "50", "--election-timeout", "500"])
            .args(self.etcd_security())
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log);
        self.etcd[n] = Some(command.spawn().expect("start etcd"));
    }

    fn kill_etcd(&mut self, n: usize) {
        if let Some(mut child) = self.etcd[n].take() {
            child.kill().expect("send a signal to the process");
            child.wait().expect("wait for the process");
        }
    }

    fn etcdctl(&self, arguments: &[&str]) -> Output {
        let mut command = self.world.command("director", "etcdctl");
        let endpoints = self.endpoints(ETCD_PORT).join(",");
        command
            .env("ETCDCTL_API", "3")
            .args(["--endpoints", &endpoints]);
        command.args(self.etcdctl_security());
        command.args(arguments).output().expect("run etcdctl")
    }

    fn endpoints(&self, port: u16) -> Vec<String> {
        let scheme = self.scheme();
        let urls = (0..self.etcd.len()).map(|n| format!("{scheme}10.71.0.{}:{port}", 40 + n));
        urls.collect()
    }

    fn wait_for_etcd(&self) {
        wait_for("etcd", TIMEOUT, || {
            self.etcdctl(&["get", "x"]).status.success()
        });
    }

    /// Returns a director's local configuration. It contains only a proxy service, so the director loads nothing into
    /// the kernel.
    fn local_config(&self, n: usize) -> String {
        let endpoints = self.endpoints(self.etcd_port);
        let lease_s = self.lease_s;
        if !self.has_local_services {
            return format!(
                "[node]\nmax_services = 16384\nmax_servers = 65536\n[cluster]\netcd = {endpoints:?}\nname = \"edge\"\n\
                 member = \"lb{n}\"\nlease = \"{lease_s}s\"\n[cluster.publish]\nvips = \
                 [\"192.0.2.0/24\", \"198.18.0.0/15\"]\nservers = [\"10.0.0.0/8\"]\n{}",
                self.sections
            );
        }
        format!(
            "[cluster]\netcd = {endpoints:?}\nname = \"edge\"\nmember = \"lb{n}\"\nlease = \"{lease_s}s\"\n{}\
             [pool.own]\nservers = [\"10.71.0.20:80\"]\n[service.own]\nlisten = [\"0.0.0.0:8090\"]\n\
             forward = \"proxy\"\nprotocol = \"http\"\npool = \"own\"\n",
            self.cluster_security() + &self.cluster_keys
        )
    }

    fn start(&mut self, n: usize) {
        let host = DIRECTORS[n];
        let path = self.world.path(&format!("{host}.toml"));
        fs::write(&path, self.local_config(n)).expect("write the file");
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.world.path(&format!("{host}.log")))
            .expect("open the log file");
        let child = self
            .world
            .weir(host)
            .env("STATE_DIRECTORY", self.state_dir(n))
            .envs(self.environment.iter().map(|(name, value)| (name, value)))
            .args(["run", "-c"])
            .arg(&path)
            .stdin(Stdio::null())
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start the process");
        self.directors[n] = Some(child);
        wait_for("the daemon", Duration::from_secs(120), || {
            self.weir(n, &["status"]).status.success()
        });
    }

    /// Returns the director's state directory, which survives a reboot.
    fn state_dir(&self, n: usize) -> PathBuf {
        self.world.path(&format!("state-{}", DIRECTORS[n]))
    }

    /// Starts all directors and waits until each reports that all of them are present.
    fn start_all(&mut self) {
        for n in 0..self.directors.len() {
            self.start(n);
        }
        let count = self.directors.len();
        for n in 0..count {
            wait_for("all members", TIMEOUT, || self.present_members(n) == count);
        }
    }

    /// Stops a director with SIGTERM.
    fn stop(&mut self, n: usize) {
        if let Some(mut child) = self.directors[n].take() {
            let pid = rustix::process::Pid::from_child(&child);
            rustix::process::kill_process(pid, rustix::process::Signal::TERM)
                .expect("send a signal to the process");
            child.wait().expect("wait for the process");
        }
    }

    fn weir(&self, n: usize, arguments: &[&str]) -> Output {
        let mut command = self.world.weir(DIRECTORS[n]);
        command.args(arguments).output().expect("run weir")
    }

    /// Runs `weir ARGUMENTS` on a director and asserts that it succeeds. Returns its output.
    fn run_weir(&self, n: usize, arguments: &[&str]) -> String {
        let output = self.weir(n, arguments);
        let text = String::from_utf8_lossy(&output.stdout).into_owned();
        let errors = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{arguments:?}: {text}{errors}");
        text
    }

    fn status(&self, n: usize) -> Value {
        serde_json::from_slice(&self.weir(n, &["status", "--json"]).stdout).unwrap_or_default()
    }

    /// Returns the part of a director's status that describes the group.
    fn group(&self, n: usize) -> Value {
        self.status(n)["cluster"].clone()
    }

    /// Returns the number of members that a director reports as present.
    fn present_members(&self, n: usize) -> usize {
        let group = self.group(n);
        let members = group["members"].as_array().cloned().unwrap_or_default();
        members.iter().filter(|it| it["state"] == "present").count()
    }

    /// Publishes a configuration from a director.
    fn publish(&self, n: usize, text: &str, guard: &str) -> Output {
        let path = self.world.path("published.toml");
        fs::write(&path, text).expect("write the file");
        let path = path.to_str().expect("path is not UTF-8").to_owned();
        self.weir(n, &["cluster", "publish", &path, "--guard", guard])
    }

    /// Sends a request to a port of a director. Returns whether it succeeds.
    fn serves(&self, n: usize, port: u16) -> bool {
        let address = format!("http://10.71.0.{}:{port}/name", host_number(n));
        self.world.get(&address).is_ok()
    }

    /// Returns the servers of the published service.
    fn servers(&self, n: usize) -> Vec<Value> {
        let status = self.status(n);
        let services = status["services"].as_array().cloned().unwrap_or_default();
        let mut services = services.into_iter();
        let web = services.find(|it| it["name"] == "web").unwrap_or_default();
        web["servers"].as_array().cloned().unwrap_or_default()
    }

    /// Returns the state of a server of the published service.
    fn state(&self, n: usize, address: &str) -> String {
        let servers = self.servers(n);
        let found = servers.iter().find(|it| it["address"] == address);
        found.map_or(String::new(), |it| {
            it["state"].as_str().unwrap_or_default().to_owned()
        })
    }
}

impl Drop for Group {
    fn drop(&mut self) {
        if std::thread::panicking() {
            for name in DIRECTORS.iter().take(self.directors.len()) {
                let log = fs::read_to_string(self.world.path(&format!("{name}.log")));
                eprintln!("the log of {name}:\n{}", log.unwrap_or_default());
            }
        }
        for child in self.etcd.iter_mut().chain(&mut self.directors).flatten() {
            let _ = child.kill();
            let _ = child.wait();
        }
        for n in 0..self.etcd.len() {
            let _ = fs::remove_dir_all(self.data_dir(n));
        }
        for name in DIRECTORS.iter().take(self.directors.len()) {
            let _ = self.world.weir(name).args(["clean", "--force"]).output();
            world::remove_tree(&self.world.pin_dir(name));
        }
    }
}

fn config(port: u16, servers: &[&str]) -> String {
    let servers: Vec<String> = servers.iter().map(|it| format!("\"{it}\"")).collect();
    format!(
        "[pool.web]\nservers = [{}]\n[pool.web.check]\nkind = \"http\"\npath = \"/name\"\ninterval = \"200ms\"\n\
         timeout = \"150ms\"\nfall = 2\nrise = 1\n[service.web]\nlisten = [\"0.0.0.0:{port}\"]\nforward = \"proxy\"\n\
         protocol = \"http\"\npool = \"web\"\n",
        servers.join(", ")
    )
}

const SERVERS: [&str; 2] = ["10.71.0.20:80", "10.71.0.21:80"];

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn publication_is_applied_by_all_directors_or_rolled_back() {
    if !privileged() {
        return;
    }
    let mut group = Group::new(1, 3);
    group.start_all();
    let published = group.publish(0, &config(8080, &SERVERS), "1s");
    let text = String::from_utf8_lossy(&published.stdout);
    let errors = String::from_utf8_lossy(&published.stderr);
    assert!(
        text.contains("all directors have version 1"),
        "{text}{errors}"
    );
    for n in 0..3 {
        assert!(group.serves(n, 8080), "director {n}");
        let group_status = group.group(n);
        assert_eq!(
            (&group_status["version"], &group_status["name"]),
            (&1.into(), &"edge".into()),
            "{group_status}"
        );
    }
    assert!(
        group
            .run_weir(1, &["cluster", "status"])
            .contains("rollout complete")
    );
    let metrics = group.world.metrics();
    assert!(
        metrics.contains("weir_cluster_member_version{member=\"lb2\"} 1"),
        "{metrics}"
    );

    // The next publication makes servers fail: the first director rolls it back, and no other director applies it.
    let rejected = group.publish(1, &config(8080, &["10.71.0.20:81", "10.71.0.21:81"]), "3s");
    let errors = String::from_utf8_lossy(&rejected.stderr);
    assert!(
        !rejected.status.success() && errors.contains("was stopped by lb"),
        "{errors}"
    );
    for n in 0..3 {
        wait_for("version 1", TIMEOUT, || group.group(n)["version"] == 1);
        assert!(group.serves(n, 8080), "director {n}");
    }

    // `[cluster.publish]` in each director's file limits what can be published, and errors have positions.
    let script = format!(
        "{}[check.x]\nkind = \"script\"\ncommand = [\"/bin/true\"]\nuser = \"daemon\"\n",
        config(8080, &SERVERS)
    );
    for (text, expected) in [
        (script.as_str(), "cluster/edge:"),
        ("[node]\nmax_flows = 1024\n", "`node` cannot be published"),
        ("[pool.a]\nservers = 1\n", "cluster/edge:2:11"),
    ] {
        let rejected = group.publish(2, text, "0s");
        let errors = String::from_utf8_lossy(&rejected.stderr);
        assert!(
            !rejected.status.success() && errors.contains(expected),
            "{errors}"
        );
    }

    // The directors share overrides and added servers.
    group.run_weir(2, &["server", "web/10.71.0.20:80", "drain"]);
    for n in 0..3 {
        wait_for("the override", TIMEOUT, || {
            group.state(n, "10.71.0.20:80") == "drain"
        });
    }
    group.run_weir(0, &["server", "web/10.71.0.20:80", "ready"]);
    for n in 0..3 {
        wait_for("no override", TIMEOUT, || {
            group.state(n, "10.71.0.20:80") == "up"
        });
    }

    // A director that stops leaves the group; a director that starts receives the group's configuration.
    group.stop(2);
    wait_for("the director to leave the group", TIMEOUT, || {
        group.present_members(0) == 2
    });
    fs::remove_file(group.world.path("run-third").join("cluster.json")).expect("remove the record");
    fs::remove_file(group.state_dir(2).join("cluster.json")).expect("remove the record");
    group.start(2);
    wait_for("the configuration", TIMEOUT, || group.serves(2, 8080));
    // The command publishes a large configuration in several chunks.
    let large = format!("{}# {}\n", config(8081, &SERVERS), "x".repeat(300_000));
    let published = group.publish(2, &large, "0s");
    assert!(published.status.success(), "{published:?}");
    assert!(group.serves(0, 8081) && group.serves(1, 8081) && group.serves(2, 8081));
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn loss_of_etcd_or_its_data_does_not_affect_service() {
    if !privileged() {
        return;
    }
    let mut group = Group::new(3, 2);
    group.start_all();
    let published = group.publish(0, &config(8080, &SERVERS), "0s");
    assert!(published.status.success(), "{published:?}");
    let load = Load::start(&group);

    // Each etcd member fails once; the group stays connected through the others.
    for n in 0..3 {
        group.kill_etcd(n);
        group.run_weir(
            0,
            &[
                "server",
                "web/10.71.0.20:80",
                "weight",
                &(n + 2).to_string(),
            ],
        );
        let weight = Value::from(n + 2);
        wait_for("the weight", TIMEOUT, || {
            let servers = group.servers(1);
            servers
                .first()
                .is_some_and(|it| it["effective_weight"] == weight)
        });
        group.start_etcd(n);
        group.wait_for_etcd();
    }

    // Without a majority, commands are delayed, no server is removed, and a director starts from its saved state.
    group.kill_etcd(0);
    group.kill_etcd(1);
    for n in 0..2 {
        wait_for("the loss of etcd", TIMEOUT, || {
            group.group(n)["etcd"] == "away"
        });
    }
    group.run_weir(0, &["server", "web/10.71.0.21:80", "maint"]);
    assert_eq!(group.state(0, "10.71.0.21:80"), "maint");
    assert_eq!(group.group(0)["pending"], 1);
    let rejected = group.publish(0, &config(8081, &SERVERS), "0s");
    assert!(!rejected.status.success(), "{rejected:?}");
    for n in 0..2 {
        let members = group.group(n)["members"]
            .as_array()
            .cloned()
            .unwrap_or_default();
        assert_eq!(members.len(), 2, "{members:?}");
        assert!(group.serves(n, 8080), "director {n}");
    }

    // etcd loses all its data, and the directors restore it.
    group.kill_etcd(2);
    for n in 0..3 {
        fs::remove_dir_all(group.data_dir(n)).expect("remove the data");
        group.start_etcd(n);
    }
    group.wait_for_etcd();
    for n in 0..2 {
        wait_for("the members", TIMEOUT, || group.present_members(n) == 2);
        wait_for("the configuration", TIMEOUT, || {
            let group_status = group.group(n);
            (
                &group_status["rollout"],
                &group_status["version"],
                &group_status["published"],
            ) == (&"complete".into(), &1.into(), &1.into())
        });
        wait_for("the override", TIMEOUT, || {
            group.state(n, "10.71.0.21:80") == "maint"
        });
        assert_eq!(group.servers(n).len(), 2);
    }
    wait_for("no pending changes", TIMEOUT, || {
        group.group(0)["pending"] == 0
    });
    load.assert_nothing_failed();

    // A director can start without etcd, even after a reboot.
    for n in 0..3 {
        group.kill_etcd(n);
    }
    group.stop(1);
    fs::remove_dir_all(group.world.path("run-second")).expect("remove the runtime directory");
    group.start(1);
    wait_for("the restarted director's service", TIMEOUT, || {
        group.serves(1, 8080)
    });
    assert_eq!(group.group(1)["version"], 1);
    assert_eq!(group.state(1, "10.71.0.21:80"), "maint");
}

/// A load of requests to port 8080 of the first two directors.
struct Load {
    stop: Arc<AtomicBool>,
    failed: Arc<AtomicU64>,
    served: Arc<AtomicU64>,
    thread: std::thread::JoinHandle<()>,
}

impl Load {
    fn start(group: &Group) -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let (failed, served) = (Arc::new(AtomicU64::new(0)), Arc::new(AtomicU64::new(0)));
        let shared = (Arc::clone(&stop), Arc::clone(&failed), Arc::clone(&served));
        let thread = group.world.spawn_on("client", move || {
            let (stop, failed, served) = shared;
            while !stop.load(Ordering::Relaxed) {
                for director in ["10.71.0.3:8080", "10.71.0.51:8080"] {
                    match send_request(director) {
                        Ok(()) => served.fetch_add(1, Ordering::Relaxed),
                        Err(error) => {
                            eprintln!("{director}: {error}");
                            failed.fetch_add(1, Ordering::Relaxed)
                        }
                    };
                }
                std::thread::sleep(Duration::from_millis(5));
            }
        });
        Self {
            stop,
            failed,
            served,
            thread,
        }
    }

    /// Stops the load. Asserts that no request failed.
    fn assert_nothing_failed(self) {
        self.stop.store(true, Ordering::Relaxed);
        self.thread.join().expect("load thread panicked");
        let failed = self.failed.load(Ordering::Relaxed);
        let served = self.served.load(Ordering::Relaxed);
        println!("{served} requests, {failed} failed");
        assert_eq!(failed, 0, "of {served} requests failed");
        assert!(served > 100, "{served}");
    }
}

/// Sends a request over a new connection.
fn send_request(address: &str) -> std::io::Result<()> {
    use std::io::{Error, Read, Write};
    let address = address.parse().map_err(Error::other)?;
    let limit = Duration::from_secs(5);
    let mut stream = std::net::TcpStream::connect_timeout(&address, limit)?;
    stream.set_read_timeout(Some(limit))?;
    stream.write_all(b"GET /name HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n")?;
    let mut response = String::new();
    stream.read_to_string(&mut response)?;
    match response.starts_with("HTTP/1.1 200 ") {
        true => Ok(()),
        false => Err(Error::other(response)),
    }
}
