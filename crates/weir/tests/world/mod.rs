//! A small network of namespaces for the tests of the program: a client, a director and servers on one bridge, both families.
//!
//! Everything is made by `ip`, lives in namespaces of this process's own names and goes when the world is dropped. Programs
//! run with `nsenter --net`, which keeps the mounts and with them bpffs.

#![allow(dead_code, unreachable_pub, reason = "each test file uses its part")]

use std::fs;
use std::io::{Read, Write};
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr, TcpListener, TcpStream, UdpSocket};
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Output, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_sys::NetNs;

static WORLDS: AtomicU32 = AtomicU32::new(0);

/// Whether the test can run; says so when it cannot, and fails where skipping is forbidden.
pub fn privileged() -> bool {
    let root = rustix::process::geteuid().is_root();
    if !root {
        assert!(
            std::env::var_os("WEIR_TEST_REQUIRE_ROOT").is_none(),
            "this test needs root"
        );
        eprintln!("SKIPPED: needs root for namespaces and bpf(2)");
    }
    root
}

/// Address family of a test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    V4,
    V6,
}

impl Family {
    /// Host number `n` of the world's segment.
    pub fn host(self, n: u16) -> IpAddr {
        match self {
            Family::V4 => Ipv4Addr::new(10, 71, 0, u8::try_from(n).expect("a small number")).into(),
            Family::V6 => Ipv6Addr::new(0xfd71, 0, 0, 0, 0, 0, 0, n).into(),
        }
    }

    pub fn client(self) -> IpAddr {
        self.host(2)
    }

    pub fn director(self) -> IpAddr {
        self.host(3)
    }

    pub fn vip(self) -> IpAddr {
        self.host(10)
    }

    pub fn server(self, n: usize) -> IpAddr {
        self.host(20 + u16::try_from(n).expect("a small number"))
    }
}

/// An address as a URL and weir.toml write it.
pub fn bracketed(address: IpAddr) -> String {
    match address {
        IpAddr::V4(v4) => v4.to_string(),
        IpAddr::V6(v6) => format!("[{v6}]"),
    }
}

pub struct World {
    tag: String,
    directory: PathBuf,
    servers: usize,
    children: Vec<Child>,
    stop: Arc<AtomicBool>,
    threads: Vec<JoinHandle<()>>,
}

impl World {
    /// Builds the segment with `servers` servers. The VIPs are the director's own addresses; the servers do not have them.
    pub fn new(servers: usize) -> Self {
        let number = WORLDS.fetch_add(1, Ordering::Relaxed);
        let tag = format!("wt{}x{number}", std::process::id());
        let directory = std::env::temp_dir().join(format!("weir-{tag}"));
        fs::create_dir_all(&directory).expect("a directory for the test");
        let world = Self {
            tag,
            directory,
            servers,
            children: Vec::new(),
            stop: Arc::new(AtomicBool::new(false)),
            threads: Vec::new(),
        };
        world.build();
        world
    }

    fn build(&self) {
        let wire = self.namespace("wire");
        sh(&format!("ip netns add {wire}"));
        sh(&format!(
            "ip -n {wire} link add br0 type bridge forward_delay 0 mcast_snooping 0 && ip -n {wire} link set br0 up"
        ));
        self.add_host("client", 2);
        self.add_host("director", 3);
        for n in 0..self.servers {
            self.add_host(
                &format!("server{n}"),
                20 + u16::try_from(n).expect("few servers"),
            );
        }
        for family in [Family::V4, Family::V6] {
            self.ip(
                "director",
                &format!(
                    "addr add {}/{} dev eth0 nodad",
                    family.vip(),
                    full_prefix(family)
                ),
            );
        }
    }

    fn add_host(&self, host: &str, number: u16) {
        let (name, wire) = (self.namespace(host), self.namespace("wire"));
        sh(&format!(
            "ip netns add {name} && ip -n {name} link set lo up"
        ));
        sh(&format!(
            "ip -n {wire} link add {host} type veth peer name eth0 netns {name}"
        ));
        sh(&format!(
            "ip netns exec {name} sysctl -qw net.ipv6.conf.all.accept_dad=0 net.ipv6.conf.eth0.accept_dad=0 net.ipv4.conf.all.send_redirects=0 net.ipv4.conf.eth0.accept_redirects=0 net.ipv4.conf.all.accept_redirects=0 net.ipv6.conf.eth0.accept_redirects=0"
        ));
        sh(&format!(
            "ip -n {wire} link set {host} master br0 up && ip -n {name} link set eth0 up"
        ));
        // XDP_TX out of a veth needs a NAPI at its peer. XDP forwards checksums as they are, so both ends finish them: the
        // wire's end too, which cuts up what its GRO has joined.
        sh(&format!(
            "ip netns exec {wire} ethtool -K {host} gro on tx off"
        ));
        sh(&format!("ip netns exec {name} ethtool -K eth0 tx off"));
        self.ip(
            host,
            &format!("addr add {}/24 dev eth0", Family::V4.host(number)),
        );
        self.ip(
            host,
            &format!("addr add {}/64 dev eth0 nodad", Family::V6.host(number)),
        );
    }

    pub fn namespace(&self, host: &str) -> String {
        format!("{}-{host}", self.tag)
    }

    pub fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub fn pin_dir(&self, host: &str) -> PathBuf {
        PathBuf::from(format!("/sys/fs/bpf/{}", self.namespace(host)))
    }

    /// `ip -n HOST …`
    pub fn ip(&self, host: &str, arguments: &str) {
        sh(&format!("ip -n {} {arguments}", self.namespace(host)));
    }

    /// A program inside a host, with the mounts of this process. It does not outlive the test that started it.
    pub fn command(&self, host: &str, program: &str) -> Command {
        let mut command = Command::new("nsenter");
        command
            .arg(format!("--net=/run/netns/{}", self.namespace(host)))
            .args(["setpriv", "--pdeathsig", "KILL", program]);
        command
    }

    pub fn output(&self, host: &str, line: &str) -> Output {
        let mut words = line.split_whitespace();
        self.command(host, words.next().expect("a program"))
            .args(words)
            .output()
            .expect("nsenter runs")
    }

    /// Runs `work` on a thread inside a host.
    pub fn inside<T: Send + 'static>(
        &self,
        host: &str,
        work: impl FnOnce() -> T + Send + 'static,
    ) -> JoinHandle<T> {
        let name = self.namespace(host);
        std::thread::spawn(move || {
            let namespace = NetNs::named(&name).expect("the namespace");
            let _inside = namespace.enter().expect("root may enter it");
            work()
        })
    }

    // ---- the program --------------------------------------------------------------------------------------------------

    /// `weir …` inside a host, with this world's directories.
    pub fn weir(&self, host: &str) -> Command {
        let mut command = self.command(host, env!("CARGO_BIN_EXE_weir"));
        command
            .env("WEIR_RUNTIME_DIR", self.path(&format!("run-{host}")))
            .env("WEIR_PIN_DIR", self.pin_dir(host))
            .env("NO_COLOR", "1");
        command
    }

    pub fn write_config(&self, text: &str) -> PathBuf {
        let path = self.path("weir.toml");
        fs::write(&path, text).expect("the configuration is written");
        path
    }

    /// Starts the daemon in the director and waits until it answers.
    pub fn start_director(&mut self, config: &str) -> u32 {
        let path = self.write_config(config);
        let log = fs::OpenOptions::new()
            .create(true)
            .append(true)
            .open(self.path("director.log"))
            .expect("a log");
        let child = self
            .weir("director")
            .args(["run", "-c"])
            .arg(path)
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("a descriptor"))
            .stderr(log)
            .spawn()
            .expect("the daemon starts");
        let pid = child.id();
        self.children.push(child);
        wait_for(
            &format!("the daemon; its log:\n{}", self.log()),
            Duration::from_secs(30),
            || {
                self.weir("director")
                    .args(["status", "--json"])
                    .output()
                    .is_ok_and(|output| output.status.success())
            },
        );
        pid
    }

    pub fn log(&self) -> String {
        fs::read_to_string(self.path("director.log")).unwrap_or_default()
    }

    /// Ends the daemon with SIGKILL.
    pub fn kill_director(&mut self, pid: u32) {
        for child in &mut self.children {
            if child.id() == pid {
                child.kill().expect("it was running");
                child.wait().expect("it ends");
            }
        }
    }

    pub fn status(&self) -> serde_json::Value {
        let output = self
            .weir("director")
            .args(["status", "--json"])
            .output()
            .expect("weir runs");
        serde_json::from_slice(&output.stdout).unwrap_or_else(|error| {
            panic!(
                "status: {error}: {}{}",
                String::from_utf8_lossy(&output.stdout),
                String::from_utf8_lossy(&output.stderr)
            )
        })
    }

    /// `weir real-server up` on every server.
    pub fn prepare_servers(&self, arguments: &[&str]) {
        for n in 0..self.servers {
            let output = self
                .weir(&format!("server{n}"))
                .args(["real-server", "up"])
                .args(arguments)
                .output()
                .expect("weir runs");
            assert!(
                output.status.success(),
                "real-server up: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
    }

    /// Replies to the client go through the director: what `nat` needs of servers on the client's own segment.
    pub fn route_replies_through_director(&self) {
        for n in 0..self.servers {
            for family in [Family::V4, Family::V6] {
                let flag = if family == Family::V6 { "-6 " } else { "" };
                self.ip(
                    &format!("server{n}"),
                    &format!(
                        "{flag}route add {}/{} via {}",
                        family.client(),
                        full_prefix(family),
                        family.director()
                    ),
                );
            }
        }
    }

    // ---- servers ------------------------------------------------------------------------------------------------------

    /// nginx on port 80 of every server: `/name` tells which one, `/big` is `big_bytes` of data.
    pub fn start_nginx(&mut self, big_bytes: usize) {
        let big: Vec<u8> = (0..big_bytes)
            .map(|i| (i.wrapping_mul(2_654_435_761) >> 13) as u8)
            .collect();
        fs::write(self.path("big"), &big).expect("the file is written");
        for n in 0..self.servers {
            let root = self.path(&format!("www{n}"));
            fs::create_dir_all(root.join("html")).expect("a directory");
            fs::write(root.join("html/name"), format!("server{n}\n")).expect("a page");
            let link = root.join("html/big");
            if !link.exists() {
                fs::hard_link(self.path("big"), link).expect("a link");
            }
            let path = root.display();
            fs::write(
                root.join("nginx.conf"),
                format!(
                    "daemon off; master_process off; user root; pid {path}/pid; error_log {path}/error.log;\n\
                     events {{ worker_connections 2048; }}\n\
                     http {{ access_log off; sendfile on; keepalive_requests 1000000;\n\
                       client_body_temp_path {path}/b; proxy_temp_path {path}/p; fastcgi_temp_path {path}/f; uwsgi_temp_path {path}/u; scgi_temp_path {path}/s;\n\
                       server {{ listen 80 backlog=4096; listen [::]:80 backlog=4096; root {path}/html; }} }}\n"
                ),
            )
            .expect("a configuration");
            let child = self
                .command(&format!("server{n}"), "nginx")
                .arg("-c")
                .arg(root.join("nginx.conf"))
                .stdin(Stdio::null())
                .stdout(Stdio::null())
                .stderr(Stdio::null())
                .spawn()
                .expect("nginx starts");
            self.children.push(child);
            let url = format!("http://{}/name", Family::V4.server(n));
            wait_for("nginx", Duration::from_secs(10), || {
                self.output("client", &format!("curl -s -m 2 {url}"))
                    .status
                    .success()
            });
        }
    }

    /// A UDP echo on every server, bound to `address(n)`, which puts the server's number in front.
    pub fn start_udp_echo(&mut self, port: u16, address: impl Fn(usize) -> IpAddr) {
        for n in 0..self.servers {
            let (at, stop) = (SocketAddr::new(address(n), port), Arc::clone(&self.stop));
            self.threads
                .push(self.inside(&format!("server{n}"), move || {
                    let socket = UdpSocket::bind(at).expect("the address is there");
                    socket
                        .set_read_timeout(Some(Duration::from_millis(100)))
                        .expect("a timeout");
                    let mut buffer = vec![0; 65536];
                    while !stop.load(Ordering::Relaxed) {
                        if let Ok((length, from)) = socket.recv_from(&mut buffer) {
                            let mut answer = vec![b'0' + u8::try_from(n).expect("few servers")];
                            answer.extend_from_slice(&buffer[..length]);
                            let _ = socket.send_to(&answer, from);
                        }
                    }
                }));
        }
    }

    /// A TCP server on every host that reads to the end and answers with how many bytes came and their sum.
    pub fn start_sink(&mut self, port: u16, family: Family) {
        for n in 0..self.servers {
            let any: IpAddr = if family == Family::V4 {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let stop = Arc::clone(&self.stop);
            self.threads
                .push(self.inside(&format!("server{n}"), move || {
                    let listener =
                        TcpListener::bind(SocketAddr::new(any, port)).expect("the port is free");
                    listener.set_nonblocking(true).expect("a listener");
                    while !stop.load(Ordering::Relaxed) {
                        let Ok((stream, _)) = listener.accept() else {
                            std::thread::sleep(Duration::from_millis(5));
                            continue;
                        };
                        let _ = digest(stream);
                    }
                }));
        }
    }

    // ---- the client ---------------------------------------------------------------------------------------------------

    /// GET by curl; the body, or what curl said.
    pub fn get(&self, url: &str) -> Result<Vec<u8>, String> {
        let output = self.output("client", &format!("curl -sS -g --max-time 20 {url}"));
        if output.status.success() {
            Ok(output.stdout)
        } else {
            Err(String::from_utf8_lossy(&output.stderr).into_owned())
        }
    }

    /// One datagram to `to` from a new port, and the answer.
    pub fn udp_exchange(&self, to: SocketAddr, payload: Vec<u8>) -> Option<Vec<u8>> {
        self.inside("client", move || {
            let any: IpAddr = if to.is_ipv4() {
                Ipv4Addr::UNSPECIFIED.into()
            } else {
                Ipv6Addr::UNSPECIFIED.into()
            };
            let socket = UdpSocket::bind((any, 0)).ok()?;
            socket.connect(to).ok()?;
            socket.set_read_timeout(Some(Duration::from_secs(2))).ok()?;
            let mut buffer = vec![0; 65536];
            for _ in 0..3 {
                socket.send(&payload).ok()?;
                if let Ok(length) = socket.recv(&mut buffer) {
                    buffer.truncate(length);
                    return Some(buffer);
                }
            }
            None
        })
        .join()
        .expect("the client's thread")
    }

    /// Sends `bytes` bytes to a sink; what it counted.
    pub fn upload(&self, to: SocketAddr, bytes: usize) -> std::io::Result<(u64, u64)> {
        self.inside("client", move || -> std::io::Result<(u64, u64)> {
            let mut stream = TcpStream::connect_timeout(&to, Duration::from_secs(5))?;
            stream.set_write_timeout(Some(Duration::from_secs(20)))?;
            stream.set_read_timeout(Some(Duration::from_secs(20)))?;
            let data: Vec<u8> = (0..bytes).map(|i| (i % 251) as u8).collect();
            stream.write_all(&data)?;
            stream.shutdown(std::net::Shutdown::Write)?;
            let mut answer = [0; 16];
            stream.read_exact(&mut answer)?;
            let word =
                |at: usize| u64::from_be_bytes(answer[at..at + 8].try_into().expect("eight bytes"));
            Ok((word(0), word(8)))
        })
        .join()
        .expect("the client's thread")
    }
}

fn digest(mut stream: TcpStream) -> std::io::Result<()> {
    stream.set_nonblocking(false)?;
    stream.set_read_timeout(Some(Duration::from_secs(20)))?;
    let (mut count, mut sum, mut buffer) = (0_u64, 0_u64, vec![0; 65536]);
    loop {
        let length = stream.read(&mut buffer)?;
        if length == 0 {
            break;
        }
        count += length as u64;
        sum = buffer[..length].iter().fold(sum, |sum, byte| {
            sum.wrapping_mul(31).wrapping_add(u64::from(*byte))
        });
    }
    stream.write_all(&count.to_be_bytes())?;
    stream.write_all(&sum.to_be_bytes())
}

/// What [`World::upload`] must hear for `bytes` bytes.
pub fn upload_digest(bytes: usize) -> (u64, u64) {
    let sum = (0..bytes).fold(0_u64, |sum, i| {
        sum.wrapping_mul(31).wrapping_add((i % 251) as u64)
    });
    (bytes as u64, sum)
}

fn full_prefix(family: Family) -> u8 {
    if family == Family::V4 { 32 } else { 128 }
}

/// Waits for a condition with a deadline; panics with what was waited for.
pub fn wait_for(what: &str, limit: Duration, mut condition: impl FnMut() -> bool) {
    let deadline = Instant::now() + limit;
    while !condition() {
        assert!(Instant::now() < deadline, "waited {limit:?} for {what}");
        std::thread::sleep(Duration::from_millis(50));
    }
}

pub fn sh(line: &str) {
    let output = Command::new("sh")
        .arg("-ec")
        .arg(line)
        .output()
        .expect("sh runs");
    assert!(
        output.status.success(),
        "{line}: {}",
        String::from_utf8_lossy(&output.stderr)
    );
}

pub fn remove_tree(path: &Path) {
    let _ = fs::remove_dir_all(path);
}

impl Drop for World {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if std::thread::panicking() {
            eprintln!("the director's log:\n{}", self.log());
        }
        for child in &mut self.children {
            let _ = child.kill();
            let _ = child.wait();
        }
        for thread in self.threads.drain(..) {
            let _ = thread.join();
        }
        for host in ["director".to_owned()]
            .into_iter()
            .chain((0..self.servers).map(|n| format!("server{n}")))
        {
            let _ = self.weir(&host).args(["clean", "--force"]).output();
            remove_tree(&self.pin_dir(&host));
        }
        for host in ["client", "director", "wire"]
            .map(str::to_owned)
            .into_iter()
            .chain((0..self.servers).map(|n| format!("server{n}")))
        {
            let _ = Command::new("ip")
                .args(["netns", "del", &self.namespace(&host)])
                .output();
        }
        remove_tree(&self.directory);
    }
}
