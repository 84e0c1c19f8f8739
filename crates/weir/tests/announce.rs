//! Tests VIPs announced over BGP, with BIRD on a router and on the director, where Weir controls it.

#[path = "announce/router.rs"]
mod router;
#[path = "announce/speaker.rs"]
mod speaker;
#[path = "announce/withdrawal.rs"]
mod withdrawal;
mod world;

use std::fs;
use std::path::PathBuf;
use std::process::Command;
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};
use world::{World, privileged, wait_for};

const VIP: &str = "192.0.2.10";
const TIMEOUT: Duration = Duration::from_secs(20);

const SESSION: &str =
    "  hold time 9;\n  connect delay time 1;\n  connect retry time 2;\n  error wait time 1, 5;\n";

/// A segment on which the client is a router. BIRD runs on the router and on the director.
struct Fabric {
    world: World,
}

impl Fabric {
    fn new() -> Self {
        let mut fabric = Self {
            world: World::new(2),
        };
        fabric.world.start_nginx(64);
        let vips = ["--forward", "direct", "--vip", VIP];
        fabric.world.prepare_servers(&vips);
        let router = format!(
            "router id 10.71.0.2;\nprotocol device {{ scan time 1; }}\nprotocol kernel {{ ipv4 {{ export all; import \
             none; }}; }}\nprotocol bgp director {{\n  local 10.71.0.2 as 65000;\n  neighbor 10.71.0.3 as \
             65001;\n{SESSION}  ipv4 {{ import all; export none; }};\n}}\n"
        );
        fabric.start_bird("client", &router);
        let weir_files = fabric.path("director", "weir*.conf");
        let director = format!(
            "router id 10.71.0.3;\ninclude \"{}\";\nprotocol device {{ }}\nprotocol bgp upstream {{\n  local \
             10.71.0.3 as 65001;\n  neighbor 10.71.0.2 as 65000;\n{SESSION}  ipv4 {{ import none; \
             export where proto = \"weir4\"; }};\n}}\n",
            weir_files.display()
        );
        fabric.start_bird("director", &director);
        wait_for("a BGP session", TIMEOUT, || {
            fabric
                .birdc("client", "show protocols director")
                .contains("Established")
        });
        fabric
    }

    /// Returns the path of a file for a host's BIRD.
    fn path(&self, host: &str, name: &str) -> PathBuf {
        let directory = self.world.path(&format!("bird-{host}"));
        fs::create_dir_all(&directory).expect("create a directory");
        directory.join(name)
    }

    fn start_bird(&mut self, host: &str, text: &str) {
        let file = self.path(host, "bird.conf");
        fs::write(&file, text).expect("write the file");
        let mut command = self.world.command(host, "bird");
        command.arg("-f").arg("-c").arg(&file);
        command.arg("-s").arg(self.path(host, "bird.ctl"));
        let child = command.spawn().expect("start bird");
        self.world.kill_on_drop(child);
        let socket = self.path(host, "bird.ctl");
        wait_for("BIRD's socket", TIMEOUT, || socket.exists());
    }

    fn birdc(&self, host: &str, line: &str) -> String {
        let mut birdc = Command::new("birdc");
        birdc.arg("-s").arg(self.path(host, "bird.ctl"));
        let output = birdc.args(line.split_whitespace()).output();
        let output = output.expect("run birdc");
        String::from_utf8_lossy(&output.stdout).into_owned()
    }

    fn config(&self, extra: &str) -> String {
        format!(
            "[pool.web]\nservers = [\"10.71.0.20\", \"10.71.0.21\"]\ncheck = {{ kind = \"http\", path = \"/name\", \
             interval = \"200ms\", timeout = \"150ms\", fall = 2, rise = 1 }}\n[service.web]\nlisten = \
             [\"{VIP}:80\"]\nforward = \"direct\"\npool = \"web\"\n[announce]\nspeaker = \"bird\"\nsocket = \
             \"{}\"\ninclude = \"{}\"\n{extra}\n",
            self.path("director", "bird.ctl").display(),
            self.path("director", "weir.conf").display(),
        )
    }

    /// Returns whether the router's kernel has a route to the VIP.
    fn has_route(&self) -> bool {
        let output = self
            .world
            .output("client", &format!("ip route show {VIP}/32"));
        String::from_utf8_lossy(&output.stdout).contains("via 10.71.0.3")
    }

    fn wait_for_route(&self, expected: bool) {
        let description = if expected { "a route" } else { "no route" };
        wait_for(description, TIMEOUT, || self.has_route() == expected);
    }

    /// Waits for a state and reason in the status document, which may lag by half a second.
    fn wait_for_state(&self, state: &str, reason: &str) {
        wait_for(reason, TIMEOUT, || {
            let status = self.world.status();
            let route = &status["announce"][0];
            (&route["vip"], &route["state"], &route["reason"])
                == (&VIP.into(), &state.into(), &reason.into())
        });
    }
}

/// Returns the child processes of `pid`, with their command lines.
fn children(pid: u32) -> Vec<(u32, String)> {
    let list = fs::read_to_string(format!("/proc/{pid}/task/{pid}/children")).unwrap_or_default();
    let pids = list.split_whitespace().filter_map(|pid| pid.parse().ok());
    pids.map(|pid: u32| {
        let line = fs::read(format!("/proc/{pid}/cmdline")).unwrap_or_default();
        (pid, String::from_utf8_lossy(&line).replace('\0', " "))
    })
    .collect()
}

fn child(pid: u32, part: &str) -> u32 {
    let child_processes = children(pid);
    let mut found = child_processes
        .iter()
        .filter(|(_, line)| line.contains(part));
    found
        .next()
        .unwrap_or_else(|| panic!("no child process with {part} in {child_processes:?}"))
        .0
}

fn kill(pid: u32) {
    let pid = Pid::from_raw(i32::try_from(pid).expect("process id fits in i32"))
        .expect("process id is not zero");
    kill_process(pid, Signal::KILL).expect("send a signal to the process");
}

#[test]
fn route_follows_health_drain_and_stop() {
    if !privileged() {
        return;
    }
    let mut fabric = Fabric::new();
    assert!(!fabric.has_route());
    let config = fabric.config("drain_delay = \"3s\"");
    fabric.world.start_daemon(&config);
    fabric.wait_for_route(true);
    fabric.wait_for_state("announced", "its services are available");
    let url = format!("http://{VIP}/name");
    let reply = fabric.world.get(&url);
    assert!(
        reply.is_ok(),
        "VIP must be reachable through the route: {reply:?}"
    );
    // The VIP is routed to the director, so it need not be on an interface.
    for command in ["check", "doctor"] {
        let mut weir = fabric.world.weir("director");
        let file = fabric.world.write_config(&config);
        let output = weir
            .arg(command)
            .arg("-c")
            .arg(file)
            .output()
            .expect("run the command");
        let text = String::from_utf8_lossy(&[output.stdout, output.stderr].concat()).into_owned();
        assert!(!text.contains("no interface of this machine"), "{text}");
    }

    // Make both servers fail, and one of them recover.
    fabric.world.kill_nginx(0);
    fabric.world.kill_nginx(1);
    fabric.wait_for_route(false);
    fabric.wait_for_state("withdrawn", "web: no server of web is usable");
    fabric.world.start_nginx_on("server0", 0, "");
    fabric.wait_for_route(true);

    // A drained node first makes its route the least preferred, and then withdraws it.
    fabric.world.run_weir(&["node", "drain"]);
    wait_for("the community", TIMEOUT, || {
        let route = fabric.birdc("client", &format!("show route {VIP}/32 all"));
        route.contains("(65535,0)")
    });
    fabric.wait_for_route(false);
    fabric.wait_for_state("withdrawn", "the node is drained");
    assert!(
        fabric
            .world
            .run_weir(&["status"])
            .contains("weir node ready")
    );
    fabric.world.run_weir(&["node", "ready"]);
    fabric.wait_for_route(true);
    let route = fabric.birdc("client", &format!("show route {VIP}/32 all"));
    assert!(!route.contains("(65535,0)"), "{route}");
    assert!(
        fabric
            .world
            .metrics()
            .contains("weir_announced{vip=\"192.0.2.10\"} 1")
    );

    // Without `[announce]`, Weir announces nothing. It also withdraws the route if the daemon hangs.
    let (without_announce, _) = config
        .split_once("[announce]")
        .expect("text contains the table");
    fabric.world.reload(without_announce);
    fabric.wait_for_route(false);
    fabric.world.reload(&config);
    fabric.wait_for_route(true);
    fabric.world.suspend_daemon();
    fabric.wait_for_route(false);
}

#[test]
fn routes_are_kept_for_withdraw_after_when_processes_crash() {
    if !privileged() {
        return;
    }
    let mut fabric = Fabric::new();
    let keeper = fabric
        .world
        .start_daemon(&fabric.config("withdraw_after = \"4s\""));
    fabric.wait_for_route(true);

    // The keeper restarts the daemon and the announcer, and no route is withdrawn in the meantime.
    for process in ["weir run", "announcer"] {
        let pid = child(keeper, process);
        kill(pid);
        wait_for("a new process", TIMEOUT, || {
            assert!(
                fabric.has_route(),
                "the route was withdrawn after `{process}` was killed"
            );
            let child_processes = children(keeper);
            child_processes
                .iter()
                .any(|(new, line)| *new != pid && line.contains(process))
        });
    }
    let deadline = Instant::now() + Duration::from_secs(5);
    while Instant::now() < deadline {
        assert!(
            fabric.has_route(),
            "the route was withdrawn after a restart"
        );
        std::thread::sleep(Duration::from_millis(100));
    }
    fabric.world.wait_for_daemon();

    // Without the keeper and the daemon, the announcer keeps the route for `withdraw_after`, and then withdraws it.
    let announcer = child(keeper, "announcer");
    let daemon = child(keeper, "weir run");
    kill(keeper);
    kill(daemon);
    std::thread::sleep(Duration::from_secs(1));
    assert!(
        fabric.has_route(),
        "the route must not be withdrawn immediately"
    );
    fabric.wait_for_route(false);
    wait_for("the announcer to exit", TIMEOUT, || {
        !PathBuf::from(format!("/proc/{announcer}/exe")).exists()
    });
}

/// The new announcer has no report from the daemon, but an earlier announcer has recorded the routes and the settings.
#[test]
fn restarted_announcer_withdraws_routes_of_daemon_that_hangs() {
    if !privileged() {
        return;
    }
    let mut fabric = Fabric::new();
    let keeper = fabric
        .world
        .start_daemon(&fabric.config("withdraw_after = \"4s\""));
    fabric.wait_for_route(true);
    fabric.world.suspend_daemon();
    kill(child(keeper, "announcer"));
    fabric.wait_for_route(false);
}

/// BIRD's configuration has a syntax error outside Weir's file. Weir reports the error, and recovers once it is fixed.
#[test]
fn bird_errors_are_reported_and_retried() {
    if !privileged() {
        return;
    }
    let mut fabric = Fabric::new();
    let file = fabric.path("director", "bird.conf");
    let valid_text = fs::read_to_string(&file).expect("read the file");
    fs::write(&file, format!("{valid_text}\nnonsense;\n")).expect("write the file");
    let config = fabric.config("");
    fabric.world.start_daemon(&config);
    wait_for("an error", TIMEOUT, || {
        let status = fabric.world.status();
        let error = status["announce_error"].as_str().unwrap_or_default();
        error.contains("syntax error")
    });
    let doctor = fabric
        .world
        .weir("director")
        .arg("doctor")
        .output()
        .expect("run the command");
    let findings = String::from_utf8_lossy(&doctor.stdout).into_owned();
    assert_eq!(doctor.status.code(), Some(1), "{findings}");
    assert!(findings.contains("failed to announce VIPs: "), "{findings}");
    let route = &fabric.world.status()["announce"][0];
    assert_eq!(route["state"], "withdrawn", "{route}");
    let metrics = fabric.world.metrics();
    assert!(
        metrics.contains("weir_announced{vip=\"192.0.2.10\"} 0"),
        "{metrics}"
    );
    fs::write(&file, valid_text).expect("write the file");
    fabric.wait_for_route(true);
    wait_for("no error", TIMEOUT, || {
        fabric.world.status()["announce_error"].is_null()
    });
}
