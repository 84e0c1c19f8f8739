//! Builds two directors, a client and a server on one switch.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::fault::Fault;
use super::probe::{Client, Measurement, Server};
use super::{Pair, Vrrp, phase};
use crate::error::{LabError, Result};
use crate::frame_drop::{self, ALL_FRAMES, drop_frames};
use crate::interrupt::wait_for;
use crate::namespace::Namespace;
use crate::process::{self, Daemon, Launcher};
use crate::session::Session;

pub(super) const VIP: &str = "10.77.0.100";
/// Last bytes of host addresses; see [`address`].
const CLIENT: u8 = 2;
const FIRST: u8 = 3;
/// Maximum time for a start. On a busy machine, loading the BPF programs takes most of the time.
const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Number of advertisement intervals for which only the first director must be active: more than twice the period after
/// which a standby without advertisements takes over.
const SETTLED_INTERVALS: u32 = 8;
/// Minimum time for which only the first director must be active, because timers are late on a busy machine.
const MIN_SETTLED_TIME: Duration = Duration::from_millis(300);

/// A director with Weir's data plane, and VRRP by Weir or keepalived.
struct Director {
    namespace: Namespace,
    directory: PathBuf,
    pins: PathBuf,
    weir: PathBuf,
    vrrp: Vrrp,
    keeper: Option<Daemon>,
    keepalived: Option<Daemon>,
}

/// The hosts of a failover trial.
pub(super) struct Rig {
    wire: Namespace,
    client: Namespace,
    /// The active director first.
    directors: [Director; 2],
    interval: Duration,
    _server: Server,
    _server_namespace: Namespace,
}

fn run_ip(namespace: &Namespace, args: &str) -> Result<()> {
    let mut arguments = vec!["-n", namespace.name()];
    arguments.extend(args.split(' '));
    process::run("ip", &arguments).map(drop)
}

/// Returns the address of the host with this number.
fn address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 77, 0, number)
}

/// Creates a namespace whose `eth0` is connected to the switch. The switch port has the host's name.
fn create_host(session: &Session, wire: &Namespace, name: &str, number: u8) -> Result<Namespace> {
    let unique = format!("{}-{}{name}", session.tag(), session.next_number());
    let namespace = Namespace::create(&unique)?;
    run_ip(
        wire,
        &format!("link add {name} type veth peer name eth0 netns {unique}"),
    )?;
    run_ip(wire, &format!("link set {name} master br0 up"))?;
    run_ip(
        &namespace,
        &format!("addr add {}/24 dev eth0", address(number)),
    )?;
    run_ip(&namespace, "link set eth0 up")?;
    Ok(namespace)
}

impl Rig {
    pub(super) fn build(session: &Session, weir: &Path, pair: Pair) -> Result<Self> {
        let wire = Namespace::create(&format!("{}-{}wire", session.tag(), session.next_number()))?;
        run_ip(&wire, "link add br0 type bridge forward_delay 0")?;
        run_ip(&wire, "link set br0 up")?;
        let client = create_host(session, &wire, "client", CLIENT)?;
        let server_namespace = create_host(session, &wire, "server", 5)?;
        let directory = session.directory(&format!("server{}", session.next_number()))?;
        let launcher = Launcher {
            namespace: &server_namespace,
            directory: &directory,
            cgroup: None,
        };
        let runtime = directory.join("run");
        let arguments = [
            "real-server",
            "up",
            "--forward",
            "direct",
            "--vip",
            VIP,
            "--runtime-dir",
        ];
        let mut arguments: Vec<_> = arguments.map(std::ffi::OsString::from).into();
        arguments.push(runtime.into_os_string());
        launcher.run("real-server", weir, &arguments, START_TIMEOUT)?;
        let server = Server::start(&server_namespace)?;
        let director = |name: &str, number, vrrp| -> Result<Director> {
            let unique = format!("{name}{}", session.next_number());
            Ok(Director {
                namespace: create_host(session, &wire, name, number)?,
                directory: session.directory(&unique)?,
                pins: session.pin_directory(&unique),
                weir: weir.to_owned(),
                vrrp,
                keeper: None,
                keepalived: None,
            })
        };
        let directors = [
            director("first", FIRST, pair.active)?,
            director("second", 4, pair.standby)?,
        ];
        let mut rig = Self {
            wire,
            client,
            directors,
            interval: Duration::from_millis(u64::from(pair.interval_cs) * 10),
            _server: server,
            _server_namespace: server_namespace,
        };
        for (director, priority) in rig.directors.iter_mut().zip([200, 100]) {
            director.start(priority, pair.interval_cs)?;
            let client = &rig.client;
            let vip_responds = || Ok(Client::vip_responds(client)?.then_some(()));
            wait_for(
                "an active director",
                START_TIMEOUT,
                vip_responds,
                String::new,
            )?;
        }
        rig.wait_until_settled()?;
        Ok(rig)
    }

    /// Waits until both directors run VRRP, and then until only the first one has been active, and the client has used
    /// it, for the required time.
    fn wait_until_settled(&self) -> Result<()> {
        for director in &self.directors {
            let running = || Ok(director.runs_vrrp().then_some(()));
            wait_for("VRRP to start", START_TIMEOUT, running, String::new)?;
        }
        let min_duration = (self.interval * SETTLED_INTERVALS).max(MIN_SETTLED_TIME);
        let mut since = Instant::now();
        let settled = || {
            let [first, second] = &self.directors;
            let is_only_active = first.has_vip()? && !second.has_vip()?;
            if is_only_active && !self.is_used_by_client(first)? {
                self.resolve_again();
            } else if is_only_active {
                return Ok((since.elapsed() >= min_duration).then_some(()));
            }
            since = Instant::now();
            Ok(None)
        };
        wait_for(
            "the client to use the first director, and only this director to be active",
            START_TIMEOUT,
            settled,
            String::new,
        )
    }

    /// Makes the client resolve the VIP again, because not every director announces the VIP after a partition.
    fn resolve_again(&self) {
        let _ = run_ip(&self.client, &format!("neigh flush to {VIP}"));
        let _ = Client::vip_responds(&self.client);
    }

    /// Returns whether the client sends packets for the VIP to this director.
    fn is_used_by_client(&self, director: &Director) -> Result<bool> {
        let show = |namespace: &Namespace, args: &[&str]| {
            process::run("ip", &[&["-n", namespace.name(), "-o"], args].concat())
        };
        let link = show(&director.namespace, &["link", "show", "eth0"])?;
        let mut words = link.split_whitespace();
        words.find(|word| *word == "link/ether");
        let neighbors = show(&self.client, &["neigh", "show", VIP])?;
        Ok(words.next().is_some_and(|mac| neighbors.contains(mac)))
    }

    /// Reverts a fault and waits until the first director is active again.
    pub(super) fn restore(&self, fault: Fault) -> Result<()> {
        match fault {
            Fault::Cut | Fault::OneWay | Fault::Partition => {
                frame_drop::pass_frames(&self.wire)?;
            }
            Fault::Pause => signal(self.directors[0].processes(), Signal::CONT)?,
            Fault::Stop
            | Fault::KillVrrp
            | Fault::KillKeeper
            | Fault::KillDaemon
            | Fault::KillHelper
            | Fault::KillAll
            | Fault::Reload
            | Fault::Upgrade => {}
        }
        self.wait_until_settled()
    }

    /// Injects a fault into the active director and measures the outage.
    pub(super) fn measure(&mut self, fault: Fault, round: u32) -> Result<Measurement> {
        let client = Client::open(&self.client)?;
        let (wire, active) = (&self.wire, &self.directors[0]);
        client.measure(|| {
            let receiver = (&self.client, address(CLIENT));
            phase::wait(receiver, address(FIRST), self.interval, round)?;
            active.inject(fault, wire)
        })
    }
}

impl Director {
    fn launcher(&self) -> Launcher<'_> {
        Launcher {
            namespace: &self.namespace,
            directory: &self.directory,
            cgroup: None,
        }
    }

    fn arguments(&self, args: &[&str]) -> Vec<std::ffi::OsString> {
        let mut arguments: Vec<std::ffi::OsString> = args.iter().map(Into::into).collect();
        arguments.extend(["--runtime-dir".into(), self.directory.join("run").into()]);
        arguments.extend(["--pin-dir".into(), self.pins.clone().into()]);
        arguments
    }

    fn start(&mut self, priority: u8, interval_cs: u8) -> Result<()> {
        let service = format!(
            "[pool.p]\nscheduler = \"maglev\"\nservers = [\"10.77.0.5\"]\n[service.s]\nlisten = [\"{VIP}:80\", \
             \"udp/{VIP}:80\"]\nforward = \"direct\"\npool = \"p\"\n"
        );
        let router = format!(
            "[vrrp.v]\ninterface = \"eth0\"\nvirtual_router_id = 51\nversion = 3\npriority = {priority}\n\
             advert_interval = \"{interval_cs}0ms\"\nchecksum = \"pseudo-header\"\naddresses = [\"{VIP}/32\"]\n"
        );
        let text = match self.vrrp {
            Vrrp::Weir => format!("{service}{router}"),
            Vrrp::Keepalived => service,
        };
        let file = self.write("weir.toml", &text)?;
        let arguments = self.arguments(&["run", "-c", &file]);
        self.keeper = Some(self.launcher().start("weir", &self.weir, &arguments)?);
        wait_for(
            "weir",
            START_TIMEOUT,
            || Ok(self.run("status", &["status"]).ok()),
            || process::tail(&self.directory.join("weir.log")),
        )?;
        if self.vrrp == Vrrp::Keepalived {
            self.start_keepalived(priority, interval_cs)?;
        }
        Ok(())
    }

    fn start_keepalived(&mut self, priority: u8, interval_cs: u8) -> Result<()> {
        let seconds = f64::from(interval_cs) / 100.0;
        let text = format!(
            "global_defs {{\n vrrp_version 3\n}}\nvrrp_instance v {{\n state BACKUP\n interface eth0\n \
             virtual_router_id 51\n priority {priority}\n advert_int {seconds}\n virtual_ipaddress {{\n \
             {VIP}/32 dev eth0\n }}\n}}\n"
        );
        let file = self.write("keepalived.conf", &text)?;
        let pid = self.directory.join("keepalived.pid");
        let vrrp_pid = self.directory.join("vrrp.pid");
        let arguments = [
            "--dont-fork".into(),
            "--log-console".into(),
            "--vrrp".into(),
            "--use-file".into(),
            std::ffi::OsString::from(file),
            "--pid".into(),
            pid.into(),
            "--vrrp_pid".into(),
            vrrp_pid.into(),
        ];
        let program = Path::new("keepalived");
        self.keepalived = Some(self.launcher().start("keepalived", program, &arguments)?);
        Ok(())
    }

    fn write(&self, name: &str, text: &str) -> Result<String> {
        let path = self.directory.join(name);
        std::fs::write(&path, text).map_err(LabError::file(&path))?;
        Ok(path.to_string_lossy().into_owned())
    }

    fn run(&self, name: &str, args: &[&str]) -> Result<String> {
        let arguments = self.arguments(args);
        self.launcher()
            .run(name, &self.weir, &arguments, START_TIMEOUT)
    }

    fn keeper(&self) -> Option<Pid> {
        pid(self.keeper.as_ref()?)
    }

    /// Returns the parent of the process that runs VRRP.
    fn parent(&self) -> Option<Pid> {
        match self.vrrp {
            Vrrp::Weir => self.keeper(),
            Vrrp::Keepalived => pid(self.keepalived.as_ref()?),
        }
    }

    /// Returns the child of Weir's keeper that has this argument in its command line and is not a standby. The helpers
    /// of the daemon and of its engine have further arguments.
    fn child_with_argument(&self, argument: &str) -> Option<Pid> {
        children(self.keeper()?).into_iter().find(|child| {
            let directory = PathBuf::from(format!("/proc/{}", child.as_raw_nonzero()));
            let name = std::fs::read_to_string(directory.join("comm")).unwrap_or_default();
            let line = std::fs::read(directory.join("cmdline")).unwrap_or_default();
            let has = |word: &str| {
                line.split(|byte| *byte == 0)
                    .any(|it| it == word.as_bytes())
            };
            let is_other_helper = ["--daemon", "--engine", "--service"].into_iter().any(has);
            name.trim_end() != "weir-standby" && has(argument) && !is_other_helper
        })
    }

    fn vrrp_process(&self) -> Option<Pid> {
        match self.vrrp {
            Vrrp::Weir => self.child_with_argument("vrrp-agent"),
            Vrrp::Keepalived => children(self.parent()?).into_iter().next(),
        }
    }

    /// Returns all processes of the director. Parents are first, so a parent cannot replace a killed child.
    fn processes(&self) -> Vec<Option<Pid>> {
        let parents = [self.keeper(), self.parent()].into_iter().flatten();
        let mut processes: Vec<Pid> = parents.collect();
        let mut index = 0;
        while let Some(&parent) = processes.get(index) {
            let new = children(parent).into_iter();
            let new: Vec<Pid> = new.filter(|child| !processes.contains(child)).collect();
            processes.extend(new);
            index += 1;
        }
        processes.into_iter().map(Some).collect()
    }

    /// Returns whether the process that runs VRRP has read its configuration.
    fn runs_vrrp(&self) -> bool {
        match self.vrrp {
            Vrrp::Weir => self
                .run("vrrp", &["vrrp"])
                .is_ok_and(|text| text.contains("active") || text.contains("backup")),
            Vrrp::Keepalived => std::fs::read_to_string(self.directory.join("keepalived.log"))
                .is_ok_and(|text| text.contains("Entering BACKUP STATE")),
        }
    }

    fn has_vip(&self) -> Result<bool> {
        let namespace = self.namespace.name();
        let addresses = process::run("ip", &["-n", namespace, "-o", "addr", "show", "to", VIP])?;
        Ok(!addresses.trim().is_empty())
    }

    /// Injects a fault.
    fn inject(&self, fault: Fault, wire: &Namespace) -> Result<()> {
        match fault {
            Fault::Stop => signal([self.parent()], Signal::TERM),
            Fault::Cut => drop_frames(wire, ACTIVE_PORT, &["ingress", "egress"], ALL_FRAMES),
            Fault::OneWay => drop_frames(wire, ACTIVE_PORT, &["ingress"], ALL_FRAMES),
            Fault::Partition => {
                drop_frames(wire, ACTIVE_PORT, &["ingress", "egress"], ADVERTISEMENTS)
            }
            Fault::Pause => signal(self.processes(), Signal::STOP),
            Fault::KillVrrp => signal([self.vrrp_process()], Signal::KILL),
            Fault::KillKeeper => signal([self.parent()], Signal::KILL),
            Fault::KillDaemon => signal([self.child_with_argument("run")], Signal::KILL),
            Fault::KillHelper => signal([self.child_with_argument("helper")], Signal::KILL),
            Fault::Reload if self.vrrp == Vrrp::Keepalived => signal([self.parent()], Signal::HUP),
            Fault::KillAll => signal(self.processes(), Signal::KILL),
            Fault::Reload => self.run("reload", &["reload"]).map(drop),
            Fault::Upgrade => {
                // An upgrade to the same file does not replace the VRRP processes.
                let program = self.directory.join("weir");
                std::fs::copy(&self.weir, &program).map_err(LabError::file(&program))?;
                let program = program.to_string_lossy();
                self.run("upgrade", &["upgrade", &program]).map(drop)
            }
        }
    }
}

/// The port of the active director.
const ACTIVE_PORT: &str = "first";
/// The rule that drops VRRP advertisements.
const ADVERTISEMENTS: &str = "ip protocol 112 drop";

fn pid(daemon: &Daemon) -> Option<Pid> {
    Pid::from_raw(i32::try_from(daemon.pid()).ok()?)
}

fn children(parent: Pid) -> Vec<Pid> {
    u32::try_from(parent.as_raw_nonzero().get()).map_or_else(|_| Vec::new(), process::children)
}

/// Sends a signal to all of the processes that exist. Fails if none exists.
fn signal(processes: impl IntoIterator<Item = Option<Pid>>, signal: Signal) -> Result<()> {
    let mut sent = false;
    for process in processes.into_iter().flatten() {
        sent |= kill_process(process, signal).is_ok();
    }
    if sent {
        return Ok(());
    }
    Err(LabError::file("process")(
        std::io::ErrorKind::NotFound.into(),
    ))
}

impl Drop for Director {
    fn drop(&mut self) {
        // A paused process cannot exit, so resume all processes first.
        let _ = signal(self.processes(), Signal::CONT);
        self.keepalived = None;
        self.keeper = None;
        let _ = self.run("clean", &["clean", "--force"]);
    }
}
