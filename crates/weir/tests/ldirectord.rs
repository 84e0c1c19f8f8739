//! Tests Debian's unmodified ldirectord with Weir as its ipvsadm.
//!
//! In a separate mount namespace, `weir` is bind-mounted over the ipvsadm binary that ldirectord runs. Weir forwards to
//! the servers that pass ldirectord's checks.

mod world;

use std::fs;
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use world::{Family, World, privileged, wait_for};

const NODE: &str = "[node]\ninterfaces = [\"eth0\"]\nmax_flows = 65536\n";

/// The paths that ldirectord tries. With a merged /usr, both refer to the same file.
const IPVSADM_PATHS: [&str; 2] = ["/sbin/ipvsadm", "/usr/sbin/ipvsadm"];

/// Returns an ldirectord configuration from a user's report, with a shorter check interval.
fn configuration(world: &World) -> String {
    format!(
        "checktimeout = 5\nnegotiatetimeout = 30\ncheckinterval = 1\nfailurecount = 1\nautoreload = no\n\
         logfile = \"{}\"\nfork = yes\nquiescent = no\ncleanstop = no\n\
         virtual = 10.71.0.10:80\n\
         \treal = 10.71.0.20:80 gate\n\treal = 10.71.0.21:80 gate\n\
         \tservice = http\n\trequest = \"hello\"\n\treceive = \"Up\"\n\tscheduler = lc\n\
         \tprotocol = tcp\n\tchecktype = negotiate\n",
        world.path("ldirectord.log").display()
    )
}

/// An `unshare` process that runs ldirectord in a PID namespace. When it is killed, the kernel kills ldirectord and all
/// its child processes.
struct Ldirectord(Child);

impl Ldirectord {
    fn start(world: &World) -> Self {
        let file = world.path("ldirectord.cf");
        fs::write(&file, configuration(world)).expect("write the file");
        let mut script = String::from("mount -t tmpfs none /run\n");
        for name in IPVSADM_PATHS.iter().filter(|name| Path::new(name).exists()) {
            script += &format!("mount --bind {} {name}\n", env!("CARGO_BIN_EXE_weir"));
        }
        script += &format!("exec ldirectord -d {} start\n", file.display());
        let log = fs::File::create(world.path("ldirectord.out")).expect("create the log file");
        let child = world
            .command("director", "unshare")
            .args([
                "--mount",
                "--pid",
                "--fork",
                "--kill-child",
                "--mount-proc",
                "sh",
                "-ec",
            ])
            .arg(script)
            .env("WEIR_RUNTIME_DIR", world.path("run-director"))
            .env("WEIR_PIN_DIR", world.pin_dir("director"))
            .stdin(Stdio::null())
            .stdout(log.try_clone().expect("duplicate the file descriptor"))
            .stderr(log)
            .spawn()
            .expect("start unshare");
        Self(child)
    }
}

impl Drop for Ldirectord {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn table(world: &World) -> String {
    world.run_weir(&["ipvsadm", "-S", "-n"])
}

fn wait_for_table(world: &World, description: &str, condition: impl Fn(&str) -> bool) {
    let output = || fs::read_to_string(world.path("ldirectord.out")).unwrap_or_default();
    let mut last = table(world);
    let started = std::time::Instant::now();
    while !condition(&last) {
        assert!(
            started.elapsed() < Duration::from_secs(60),
            "timed out waiting for {description}: {last}; ldirectord's output: {}",
            output()
        );
        std::thread::sleep(Duration::from_millis(100));
        last = table(world);
    }
}

#[test]
fn ldirectord_removes_dead_server_and_restores_it() {
    if !privileged() {
        return;
    }
    let output = Command::new("sh")
        .args(["-c", "PATH=$PATH:/usr/sbin command -v ldirectord"])
        .output();
    let is_installed = output.is_ok_and(|output| output.status.success());
    assert!(
        is_installed,
        "ldirectord is not installed; `make deps` installs it"
    );
    let mut world = World::new(2);
    world.start_nginx(16);
    for n in 0..2 {
        fs::write(world.path(&format!("www{n}/html/hello")), "Up\n").expect("write the page");
    }
    let vip = Family::V4.vip().to_string();
    world.prepare_direct_servers(&vip);
    world.start_daemon(NODE);
    let _ldirectord = Ldirectord::start(&world);

    let both_servers = "-A -t 10.71.0.10:80 -s lc\n-a -t 10.71.0.10:80 -r 10.71.0.20:80 -g -w 1\n\
                -a -t 10.71.0.10:80 -r 10.71.0.21:80 -g -w 1\n";
    wait_for_table(&world, "both servers", |table| table == both_servers);
    assert_eq!(world.responding_servers(), ["server0", "server1"]);

    let pid = fs::read_to_string(world.path("www0/pid")).expect("read nginx's process id");
    world::sh(&format!("kill {}", pid.trim()));
    wait_for_table(&world, "ldirectord to remove the dead server", |table| {
        !table.contains("10.71.0.20")
    });
    assert_eq!(world.responding_servers(), ["server1"]);

    wait_for("nginx to exit", Duration::from_secs(10), || {
        !world.path("www0/pid").exists()
    });
    world.start_nginx_on("server0", 0, "");
    wait_for_table(&world, "both servers again", |table| table == both_servers);
    // The restored server gets the next connections, because it has fewer connections than the other server.
    assert!(world.responding_servers().contains(&"server0".to_owned()));
}
