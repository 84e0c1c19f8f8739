//! Tests which open connections survive when a VIP moves between two directors with the same configuration.
//!
//! There is a test for each of two schedulers, and one for the manual's keepalived setup.

mod world;

use std::fs;
use std::io::{Read, Write};
use std::net::TcpStream;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use world::{World, privileged, wait_for};

/// Number of connections that are open while the VIP moves.
const HELD_CONNECTIONS: usize = 40;
const VIP: &str = "10.0.0.10";

/// Two directors, four servers and a client on one switch, with the manual's addresses.
struct Pair {
    world: World,
    directors: [&'static str; 2],
}

impl Pair {
    fn new() -> Self {
        let world = World::with_two_directors(4, 1024);
        world.prepare_direct_servers(&VIP);
        Self {
            world,
            directors: ["director", "second"],
        }
    }

    /// Starts both daemons and waits until both report all servers as up.
    fn start(&mut self, config: &str) {
        let path = self.world.write_config(config);
        for host in self.directors {
            self.world.start_daemon_on(host, &path);
        }
        for host in self.directors {
            wait_for("four servers to be up", Duration::from_secs(60), || {
                let status = self.world.weir(host).arg("status").output();
                let status = status.expect("run weir").stdout;
                String::from_utf8_lossy(&status).matches(" up ").count() == 4
            });
        }
    }

    /// Opens connections and sends the first request on each.
    fn open_connections(&self) -> Vec<TcpStream> {
        let thread = self.world.spawn_on("client", || {
            let open = |_| {
                let mut stream = TcpStream::connect((VIP, 80)).expect("connect");
                let limit = Some(Duration::from_secs(10));
                stream
                    .set_read_timeout(limit)
                    .expect("set the read timeout");
                assert!(is_served(&mut stream), "the first request must be served");
                stream
            };
            (0..HELD_CONNECTIONS).map(open).collect()
        });
        thread.join().expect("thread panicked")
    }

    fn vip_holder(&self) -> Option<&'static str> {
        let mut directors = self.directors.into_iter();
        directors.find(|host| {
            let addresses = self.world.output(host, "ip -o addr show dev eth0");
            String::from_utf8_lossy(&addresses.stdout).contains(&format!("{VIP}/32"))
        })
    }

    /// Removes the pins of the second director. [`World`] removes the pins of the first.
    fn clean(&self) {
        let _ = self
            .world
            .weir("second")
            .args(["clean", "--force"])
            .output();
        world::remove_tree(&self.world.pin_dir("second"));
    }
}

impl Drop for Pair {
    fn drop(&mut self) {
        for host in self.directors {
            if std::thread::panicking() {
                let log = fs::read_to_string(self.world.path(&format!("{host}.log")));
                eprintln!("{host}: {}", log.unwrap_or_default());
            }
        }
        self.clean();
    }
}

/// Sends another request on an open connection. Returns whether it gets the whole response.
fn is_served(stream: &mut TcpStream) -> bool {
    let request = b"GET /name HTTP/1.1\r\nHost: a\r\n\r\n";
    let (mut response, mut buffer) = (Vec::new(), [0; 1024]);
    if stream.write_all(request).is_err() {
        return false;
    }
    loop {
        match stream.read(&mut buffer) {
            Ok(length) if length > 0 => response.extend_from_slice(&buffer[..length]),
            _ => return false,
        }
        let text = String::from_utf8_lossy(&response);
        if text
            .split_once("\r\n\r\n")
            .is_some_and(|(_, body)| body.ends_with('\n'))
        {
            return text.starts_with("HTTP/1.1 200");
        }
    }
}

fn config(scheduler: &str) -> String {
    format!(
        "[pool.web]\nscheduler = \"{scheduler}\"\nservers = [\"10.0.0.5\", \"10.0.0.6\", \"10.0.0.7\", \"10.0.0.8\"]\n\
         check = {{ kind = \"http\", path = \"/name\" }}\n\
         [service.web]\nlisten = [\"{VIP}:80\"]\nforward = \"direct\"\npool = \"web\"\n"
    )
}

/// Moves the VIP with `ip addr`. Returns the number of open connections that are still served.
fn count_survivors_of_move(scheduler: &str) -> usize {
    let mut pair = Pair::new();
    pair.world
        .ip("director", &format!("addr add {VIP}/32 dev eth0"));
    pair.start(&config(scheduler));
    let mut connections = pair.open_connections();
    let packet = format!(
        "tcp {} {VIP}:80",
        connections[0].local_addr().expect("read the local address")
    );
    let explanation = pair.world.run_weir(&["explain", "--packet", &packet]);
    let survives = explanation.contains("the connection continues with the same server");
    assert_eq!(survives, scheduler == "maglev", "{explanation}");
    pair.world
        .ip("director", &format!("addr del {VIP}/32 dev eth0"));
    pair.world
        .ip("second", &format!("addr add {VIP}/32 dev eth0"));
    // Update the neighbor entry, as a gratuitous ARP packet would.
    let mac = pair.world.mac("second");
    pair.world.ip(
        "client",
        &format!("neigh replace {VIP} lladdr {mac} dev eth0"),
    );
    // New connections must be served, to show that the network does not cause failures of the old ones.
    let new = pair.open_connections();
    assert_eq!(new.len(), HELD_CONNECTIONS);
    count_served(&mut connections)
}

/// Returns the number of connections that are still served.
fn count_served(connections: &mut [TcpStream]) -> usize {
    connections
        .iter_mut()
        .map(|stream| usize::from(is_served(stream)))
        .sum()
}

#[test]
fn wlc_connections_break_when_vip_moves() {
    if privileged() {
        assert_eq!(count_survivors_of_move("wlc"), 0);
    }
}

#[test]
fn maglev_connections_survive_vip_move() {
    if privileged() {
        assert_eq!(count_survivors_of_move("maglev"), HELD_CONNECTIONS);
    }
}

/// Returns a file of the manual's recipe, which is a fenced block whose first line contains the file name.
fn recipe_file(name: &str) -> String {
    let manual = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/manual/failover.md");
    let manual = fs::read_to_string(manual).expect("read the manual");
    let first = format!("# {name}\n");
    let block = manual.split("\n```").find_map(|block| {
        let (_, body) = block.split_once('\n')?;
        body.starts_with(&first).then(|| body.to_owned() + "\n")
    });
    block.unwrap_or_else(|| panic!("the manual does not contain {name}"))
}

#[test]
#[expect(clippy::too_many_lines, reason = "one scenario, step by step")]
fn keepalived_recipe_keeps_every_connection() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    pair.start(&recipe_file("/etc/weir/weir.toml"));
    let keepalived = recipe_file("/etc/keepalived/keepalived.conf");
    let mut processes: Vec<(&str, PathBuf)> = Vec::new();
    for (host, priority) in [("director", "priority 100"), ("second", "priority 90")] {
        // Use this test's directories. A wrapper script sets them, because keepalived runs its scripts without an
        // environment.
        let script = pair.world.path(&format!("status-{host}"));
        let weir = env!("CARGO_BIN_EXE_weir");
        let (run, pins) = (
            pair.world.path(&format!("run-{host}")),
            pair.world.pin_dir(host),
        );
        let text = format!(
            "#!/bin/sh\nexec {weir} --runtime-dir {} --pin-dir {} status\n",
            run.display(),
            pins.display()
        );
        fs::write(&script, text).expect("write the file");
        let executable = std::os::unix::fs::PermissionsExt::from_mode(0o755);
        fs::set_permissions(&script, executable).expect("set the file mode");
        let text = keepalived
            .replace(
                "/usr/bin/weir status",
                script.to_str().expect("path is valid UTF-8"),
            )
            .replace("priority 100", priority);
        let path = pair.world.path(&format!("keepalived-{host}.conf"));
        fs::write(&path, text).expect("write the file");
        let output = std::process::Command::new("keepalived")
            .args(["--config-test", "--use-file"])
            .arg(&path)
            .output()
            .expect("run keepalived");
        assert!(output.status.success(), "{output:?}");
        let pid = pair.world.path(&format!("keepalived-{host}.pid"));
        let log = fs::File::create(pair.world.path(&format!("keepalived-{host}.log")));
        let child = pair
            .world
            .command(host, "keepalived")
            .args(["--dont-fork", "--log-console", "--vrrp"])
            .args([Path::new("--use-file"), &path, Path::new("--pid"), &pid])
            .arg("--vrrp_pid")
            .arg(pid.with_extension("vrrp"))
            .stdout(log.expect("create the log file"))
            .stderr(Stdio::null())
            .spawn()
            .expect("start keepalived");
        pair.world.kill_on_drop(child);
        processes.push((host, pid));
        if host == "director" {
            // Start the second one later, so that it is the standby regardless of the machine's load.
            wait_for("the VIP to be added", Duration::from_secs(30), || {
                pair.vip_holder() == Some("director")
            });
        }
    }
    let mut connections = pair.open_connections();
    let (_, pid) = &processes[0];
    let pid = fs::read_to_string(pid).expect("read keepalived's process ID");
    world::sh(&format!("kill -TERM {}", pid.trim()));
    wait_for("the VIP to move", Duration::from_secs(30), || {
        pair.vip_holder() == Some("second")
    });
    wait_for(
        "the client to use the second director",
        Duration::from_secs(30),
        || {
            let neighbor = pair.world.output("client", &format!("ip neigh show {VIP}"));
            let neighbor = String::from_utf8_lossy(&neighbor.stdout).into_owned();
            neighbor.contains(&pair.world.mac("second"))
        },
    );
    let surviving = count_served(&mut connections);
    assert_eq!(
        surviving, HELD_CONNECTIONS,
        "open connections after keepalived has moved the VIP"
    );
}
