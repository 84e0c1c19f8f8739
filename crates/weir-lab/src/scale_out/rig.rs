//! Builds a router, directors, three etcd members and servers on one switch, and a client behind the router.
//!
//! ```text
//!  client ── router (BIRD, ECMP) ── switch ── directors (BIRD, Weir), etcd, servers
//! ```
//!
//! Servers reply to the client through the router, not through a director.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt::Write as _;
use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::process::{Pid, Signal, kill_process};

use super::cost::{self, Meter};
use super::director::{self, Build, Director, PATH_REMOVAL_TIMEOUT, Programs};
use super::event::Event;
use super::probe::{Client, Measurement, Server};
use super::{Balancer, Method, VIP};
use crate::error::Result;
use crate::frame_drop::{ALL_FRAMES, drop_frames};
use crate::interrupt::wait_for;
use crate::namespace::Namespace;
use crate::process::{self, Daemon, Launcher};
use crate::session::Session;

/// Time limit for a start. On a busy machine, starting the directors takes most of the time.
pub(super) const START_TIMEOUT: Duration = Duration::from_secs(120);
/// Name of the group in etcd.
pub(super) const GROUP: &str = "lab";
pub(super) const ROUTER: Ipv4Addr = Ipv4Addr::new(10, 78, 0, 1);
const CLIENT: Ipv4Addr = Ipv4Addr::new(198, 51, 100, 2);
/// Initial number of servers in the pool. One more can be added.
pub(super) const SERVERS: u8 = 4;
/// How long etcd has no majority.
const MAJORITY_LOSS_TIME: Duration = Duration::from_secs(5);
/// Options of a publication that all directors apply immediately.
const IMMEDIATE_ROLLOUT: &[&str] = &["--guard", "0s"];
/// Options of a publication that only one director applies during the run.
const SLOW_ROLLOUT: &[&str] = &["--guard", "2m", "--no-wait"];

/// BGP options with short timers, so that new directors establish their sessions immediately.
pub(super) const SESSION: &str = "  bfd on;\n  hold time 9;\n  connect delay time 1;\n  connect retry time 2;\n  error \
                                  wait time 1, 5;\n";
pub(super) const BFD: &str = "protocol bfd {\n  interface \"eth0\" { min rx interval 300 ms; min tx interval 300 ms; \
                              multiplier 3; };\n}\n";

/// The switch that all hosts are connected to, and the settings of the run.
pub(super) struct Fabric<'a> {
    pub(super) session: &'a Session,
    pub(super) programs: Programs<'a>,
    wire: Namespace,
}

/// The hosts of a trial with a group of directors.
pub(super) struct Rig<'a> {
    event: Event,
    method: Method,
    /// Number of directors that initially announce the VIP.
    count: u8,
    // The fields are dropped in this order.
    directors: Vec<Director>,
    servers: Vec<RealServer>,
    etcd: Vec<Etcd>,
    _bird: Daemon,
    /// Control socket of the router's BIRD.
    bird_socket: PathBuf,
    router: Namespace,
    client: Namespace,
    fabric: Fabric<'a>,
}

struct RealServer {
    address: Ipv4Addr,
    _server: Server,
    _namespace: Namespace,
}

struct Etcd {
    number: u8,
    namespace: Namespace,
    directory: PathBuf,
    daemon: Option<Daemon>,
}

pub(super) fn etcd_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, 31 + number)
}

const fn server_address(number: u8) -> Ipv4Addr {
    Ipv4Addr::new(10, 78, 0, 41 + number)
}

fn run_ip(namespace: &Namespace, args: &str) -> Result<String> {
    let mut arguments = vec!["-n", namespace.name()];
    arguments.extend(args.split(' '));
    process::run("ip", &arguments)
}

/// Creates a namespace with a default route to the router. Its `eth0` is connected to the switch. The switch port has
/// the host's name.
pub(super) fn create_host(fabric: &Fabric<'_>, name: &str, address: Ipv4Addr) -> Result<Namespace> {
    let session = fabric.session;
    let unique = format!("{}-{}{name}", session.tag(), session.next_number());
    let namespace = Namespace::create(&unique)?;
    // The port of an earlier host with this name may still exist.
    let _ = run_ip(&fabric.wire, &format!("link del {name}"));
    run_ip(
        &fabric.wire,
        &format!("link add {name} type veth peer name eth0 netns {unique}"),
    )?;
    run_ip(&fabric.wire, &format!("link set {name} master br0 up"))?;
    run_ip(&namespace, &format!("addr add {address}/24 dev eth0"))?;
    run_ip(&namespace, "link set eth0 up")?;
    if address != ROUTER {
        run_ip(&namespace, &format!("route add default via {ROUTER}"))?;
    }
    Ok(namespace)
}

impl<'a> Rig<'a> {
    pub(super) fn build(
        session: &'a Session,
        programs: Programs<'a>,
        (event, method): (Event, Method),
        count: u8,
    ) -> Result<Self> {
        let wire = Namespace::create(&format!("{}-{}wire", session.tag(), session.next_number()))?;
        run_ip(&wire, "link add br0 type bridge forward_delay 0")?;
        run_ip(&wire, "link set br0 up")?;
        let fabric = Fabric {
            session,
            programs,
            wire,
        };
        let (router, client) = create_router(&fabric)?;
        let (bird, bird_socket) = start_router(&fabric, &router, count + 1)?;
        let servers = (0..=SERVERS).map(|number| create_real_server(&fabric, method, number));
        let servers = servers.collect::<Result<Vec<_>>>()?;
        let etcd = match method.balancer {
            Balancer::Rules => Vec::new(),
            Balancer::Weir { .. } => start_etcd(&fabric)?,
        };
        let mut rig = Self {
            event,
            method,
            count,
            directors: Vec::new(),
            servers,
            etcd,
            _bird: bird,
            bird_socket,
            router,
            client,
            fabric,
        };
        for _ in 0..count {
            rig.add_director(SERVERS)?;
        }
        if let Balancer::Weir { .. } = method.balancer {
            rig.wait_for_members()?;
            rig.directors[0].publish(&rig.published_config(SERVERS), IMMEDIATE_ROLLOUT)?;
        }
        rig.wait_for_paths(usize::from(count), START_TIMEOUT)?;
        rig.wait_for_servers()?;
        wait_for(
            "a response from the VIP",
            START_TIMEOUT,
            || Ok(Client::vip_responds(&rig.client)?.then_some(())),
            String::new,
        )?;
        Ok(rig)
    }

    /// Opens connections and triggers the event under load.
    pub(super) fn measure(&mut self, connections: usize) -> Result<Measurement> {
        self.prepare()?;
        let client = Client::open(&self.client, connections)?;
        if matches!(self.method.balancer, Balancer::Weir { has_sync: true, .. }) {
            // Connections younger than this are not synchronized yet.
            std::thread::sleep(Duration::from_secs(1));
        }
        let statistics = cost::enable_statistics()?;
        let meters: Vec<Meter> = self.directors.iter().map(Director::start_meter).collect();
        let mut measurement = client.measure(|| self.trigger())?;
        // A director that joined during the event is measured from its start.
        let meters = meters
            .into_iter()
            .chain(std::iter::repeat_with(Meter::default));
        let metered_directors = self.directors.iter().zip(meters);
        measurement.costs = metered_directors
            .filter_map(|(it, meter)| it.finish_meter(meter))
            .collect();
        drop(statistics);
        Ok(measurement)
    }

    /// Prepares the event, before connections are opened.
    fn prepare(&mut self) -> Result<()> {
        if self.event.needs_spare_director() {
            self.add_director(SERVERS)?;
            let new_index = usize::from(self.count);
            if let Balancer::Weir { .. } = self.method.balancer {
                self.wait_for_paths(new_index + 1, START_TIMEOUT)?;
                self.wait_for_servers()?;
            }
            self.directors[new_index].drain(self.method)?;
            self.wait_for_paths(new_index, PATH_REMOVAL_TIMEOUT)?;
        }
        match self.event {
            Event::DirectorCut => self.wait_for_bfd(),
            Event::RolloutFirstDirectorKilled => self.begin_rollout().map(drop),
            _ => Ok(()),
        }
    }

    /// Triggers the event. Returns the time until the router had the new paths; `None` = the paths do not change.
    fn trigger(&mut self) -> Result<Option<Duration>> {
        let (event, mut begin) = (self.event, Instant::now());
        let paths = usize::from(self.count.saturating_add_signed(event.path_change()));
        let last = self.directors.len() - 1;
        match event {
            Event::DirectorAdded => self.add_director(SERVERS)?,
            Event::DirectorDrained => self.directors[last].drain(self.method)?,
            Event::DirectorKilled | Event::MixedBuildsDirectorKilled => self.directors[last].kill(),
            Event::DirectorUpgraded => {
                let programs = self.fabric.programs;
                self.directors[last].upgrade(Build::Second, programs)?;
            }
            Event::RolloutDirectorKilled => {
                let first = self.begin_rollout()?;
                let outdated = if first == last { 0 } else { last };
                begin = Instant::now();
                self.directors[outdated].kill();
            }
            Event::RolloutFirstDirectorKilled => {
                let first = self.wait_for_first_director()?;
                begin = Instant::now();
                self.directors[first].kill();
            }
            Event::DirectorCut => {
                let port = director::name(self.count);
                drop_frames(&self.fabric.wire, &port, &["ingress", "egress"], ALL_FRAMES)?;
            }
            Event::MajorityLost => {
                for member in &mut self.etcd[..2] {
                    member.kill();
                }
                std::thread::sleep(MAJORITY_LOSS_TIME);
                for number in 0..2 {
                    self.etcd[number].start()?;
                }
                self.wait_for_members()?;
            }
            Event::ServerAddedDirectorKilled => {
                self.change_servers(SERVERS + 1)?;
                self.directors[last].kill();
            }
            Event::ServerDrainedDirectorAdded => {
                self.drain_server()?;
                self.directors[last].undrain(self.method)?;
            }
            Event::ServerRemovedDirectorAdded => {
                self.change_servers(SERVERS - 1)?;
                self.directors[last].undrain(self.method)?;
            }
            Event::ServerRemovedDirectorStarted => {
                self.change_servers(SERVERS - 1)?;
                self.add_director(SERVERS - 1)?;
            }
            Event::ServerRemovedDirectorKilled => {
                self.change_servers(SERVERS - 1)?;
                self.directors[last].kill();
            }
        }
        let limit = if event.path_change() > 0 {
            START_TIMEOUT
        } else {
            PATH_REMOVAL_TIMEOUT
        };
        self.wait_for_paths(paths, limit)?;
        Ok((event.path_change() != 0).then(|| begin.elapsed()))
    }

    fn add_director(&mut self, servers: u8) -> Result<()> {
        let number = u8::try_from(self.directors.len()).unwrap_or(u8::MAX) + 1;
        let method_and_max = (self.method, self.count + 1);
        let servers = self.addresses(servers);
        let is_mixed = self.event == Event::MixedBuildsDirectorKilled;
        let build = if is_mixed && number.is_multiple_of(2) {
            Build::Second
        } else {
            Build::Tested
        };
        let director = Director::start(&self.fabric, (number, build), method_and_max, &servers)?;
        self.directors.push(director);
        Ok(())
    }

    /// Drains the last server of the pool, whose connections continue.
    fn drain_server(&self) -> Result<()> {
        match self.method.balancer {
            // The rules cannot drain a server.
            Balancer::Rules => self.change_servers(SERVERS - 1),
            Balancer::Weir { .. } => {
                let server = format!("web/{}", server_address(SERVERS - 1));
                let args = ["server", &server, "drain"];
                self.directors[0].run("server", &args).map(drop)
            }
        }
    }

    /// Changes the pool to the first `count` servers. Connections to removed servers continue, which is the default of
    /// `on_remove`.
    fn change_servers(&self, count: u8) -> Result<()> {
        match self.method.balancer {
            Balancer::Rules => {
                let servers = self.addresses(count);
                let mut directors = self.directors.iter();
                directors.try_for_each(|it| it.load_rules(&servers))
            }
            Balancer::Weir { .. } => {
                self.directors[0].publish(&self.published_config(count), IMMEDIATE_ROLLOUT)
            }
        }
    }

    /// Publishes another server, and waits until one director uses it. The others keep the old version during the
    /// guard. Returns the index of the first director.
    fn begin_rollout(&self) -> Result<usize> {
        self.directors[0].publish(&self.published_config(SERVERS + 1), SLOW_ROLLOUT)?;
        self.wait_for_first_director()
    }

    fn wait_for_first_director(&self) -> Result<usize> {
        let uses_new_server = |it: &Director| it.server_count() == usize::from(SERVERS + 1);
        wait_for(
            "the first director of the rollout",
            START_TIMEOUT,
            || Ok(self.directors.iter().position(uses_new_server)),
            || self.directors.iter().map(Director::log_tail).collect(),
        )
    }

    fn addresses(&self, count: u8) -> Vec<Ipv4Addr> {
        let servers = self.servers.iter().take(usize::from(count));
        servers.map(|it| it.address).collect()
    }

    fn published_config(&self, count: u8) -> String {
        let servers: Vec<String> = self
            .addresses(count)
            .iter()
            .map(|it| format!("\"{it}\""))
            .collect();
        let tunnel = match self.method.balancer {
            Balancer::Weir { tunnel: true, .. } => "forward = \"tunnel\"\ntunnel = \"gue\"",
            Balancer::Weir { .. } | Balancer::Rules => "forward = \"direct\"",
        };
        format!(
            "[pool.web]\nscheduler = \"maglev\"\nservers = [{}]\n[pool.web.check]\nkind = \"tcp\"\nport = \
             80\ninterval = \"500ms\"\ntimeout = \"400ms\"\n[service.web]\nlisten = [\"{VIP}:80\", \
             \"udp/{VIP}:80\"]\n{tunnel}\npool = \"web\"\n",
            servers.join(", ")
        )
    }

    /// Waits until each director reports all members of the group as present.
    fn wait_for_members(&self) -> Result<()> {
        let count = self.directors.len();
        let has_all = |director: &Director| -> bool {
            let status = director.group_status();
            let members = status["members"].as_array().into_iter().flatten();
            status["etcd"] == "connected"
                && members.filter(|it| it["state"] == "present").count() == count
        };
        wait_for(
            "the members of the group to be present",
            START_TIMEOUT,
            || Ok(self.directors.iter().all(has_all).then_some(())),
            || self.directors.iter().map(Director::log_tail).collect(),
        )
    }

    /// Waits until all directors report all servers as up. Before that, directors may select different servers.
    fn wait_for_servers(&self) -> Result<()> {
        if self.method.balancer == Balancer::Rules {
            return Ok(());
        }
        let has_all = |it: &Director| it.server_count() == usize::from(SERVERS);
        wait_for(
            "the servers to be up",
            START_TIMEOUT,
            || Ok(self.directors.iter().all(has_all).then_some(())),
            || self.directors.iter().map(Director::log_tail).collect(),
        )
    }

    /// Waits until the router monitors all directors with BFD, which can begin long after the paths are installed.
    fn wait_for_bfd(&self) -> Result<()> {
        let socket = self.bird_socket.to_string_lossy();
        let sessions = || process::run("birdc", &["-s", &socket, "show", "bfd", "sessions"]);
        let is_up = |line: &&str| line.split_whitespace().any(|word| word == "Up");
        wait_for(
            "the BFD sessions",
            START_TIMEOUT,
            || {
                let count = sessions()?.lines().filter(is_up).count();
                Ok((count >= self.directors.len()).then_some(()))
            },
            || format!(": {}", sessions().unwrap_or_default().trim()),
        )
    }

    /// Waits until the router's kernel has this number of paths to the VIP.
    fn wait_for_paths(&self, count: usize, limit: Duration) -> Result<()> {
        let routes = || run_ip(&self.router, &format!("route show {VIP}/32"));
        wait_for(
            &format!("a route with {count} paths"),
            limit,
            || Ok((routes()?.matches("via ").count() == count).then_some(())),
            || format!(": {}", routes().unwrap_or_default().trim()),
        )
    }
}

/// Creates the router and the client behind it.
fn create_router(fabric: &Fabric<'_>) -> Result<(Namespace, Namespace)> {
    let session = fabric.session;
    let router = create_host(fabric, "router", ROUTER)?;
    let unique = format!("{}-{}client", session.tag(), session.next_number());
    let client = Namespace::create(&unique)?;
    run_ip(
        &router,
        &format!("link add inside type veth peer name eth0 netns {unique}"),
    )?;
    run_ip(&router, "addr add 198.51.100.1/24 dev inside")?;
    run_ip(&router, "link set inside up")?;
    run_ip(&client, &format!("addr add {CLIENT}/24 dev eth0"))?;
    run_ip(&client, "link set eth0 up")?;
    run_ip(&client, "route add default via 198.51.100.1")?;
    router.set_sysctls(&[
        ("net/ipv4/ip_forward", "1"),
        ("net/ipv4/conf/all/rp_filter", "0"),
        ("net/ipv4/conf/eth0/rp_filter", "0"),
        ("net/ipv4/conf/inside/rp_filter", "0"),
        // Make the ECMP hash include addresses and ports.
        ("net/ipv4/fib_multipath_hash_policy", "1"),
    ])?;
    Ok((router, client))
}

/// Starts BIRD on the router. Also returns its control socket.
fn start_router(
    fabric: &Fabric<'_>,
    router: &Namespace,
    directors: u8,
) -> Result<(Daemon, PathBuf)> {
    let mut text = format!(
        "router id {ROUTER};\nprotocol device {{ scan time 1; }}\nprotocol kernel {{\n  merge paths on;\n  ipv4 {{ \
         export all; import none; }};\n}}\n{BFD}"
    );
    for number in 1..=directors {
        // Writing to a String cannot fail.
        let _ = writeln!(
            text,
            "protocol bgp {} {{\n  local {ROUTER} as 65000;\n  neighbor {} as 65001;\n{SESSION}  ipv4 {{ import all; \
             export none; }};\n}}",
            director::name(number),
            director::address(number),
        );
    }
    let directory = fabric
        .session
        .directory(&format!("router{}", fabric.session.next_number()))?;
    let file = directory.join("bird.conf");
    std::fs::write(&file, text).map_err(crate::error::LabError::file(&file))?;
    let socket = directory.join("bird.ctl");
    let launcher = Launcher {
        namespace: router,
        directory: &directory,
        cgroup: None,
    };
    let arguments: [OsString; 5] = [
        "-f".into(),
        "-c".into(),
        file.into(),
        "-s".into(),
        socket.clone().into(),
    ];
    let mut bird = launcher.start("bird", Path::new("bird"), &arguments)?;
    bird.wait_ready("BIRD", START_TIMEOUT, || Ok(socket.exists()))?;
    Ok((bird, socket))
}

/// Creates a server that has the VIP, or rules that set the VIP as the source of replies.
fn create_real_server(fabric: &Fabric<'_>, method: Method, number: u8) -> Result<RealServer> {
    let address = server_address(number);
    let namespace = create_host(fabric, &format!("s{number}"), address)?;
    let unique = format!("server{number}-{}", fabric.session.next_number());
    let directory = fabric.session.directory(&unique)?;
    let forward: &[&str] = match method.balancer {
        Balancer::Weir { tunnel: true, .. } => &["--forward", "tunnel", "--tunnel", "gue"],
        Balancer::Weir { .. } => &["--forward", "direct"],
        Balancer::Rules => {
            let rule = |protocol: &str| format!("  {protocol} sport 80 ip saddr set {VIP}\n");
            let text = format!(
                "table ip lab {{\n chain output {{\n  type filter hook output priority -300; policy accept;\n{}{} \
                 }}\n}}\n",
                rule("tcp"),
                rule("udp")
            );
            let network = format!("--net={}", namespace.path().display());
            process::run_with_input("nsenter", &[&network, "--", "nft", "-f", "-"], &text)?;
            return Ok(RealServer {
                address,
                _server: Server::start(&namespace, Ipv4Addr::UNSPECIFIED)?,
                _namespace: namespace,
            });
        }
    };
    let vip = VIP.to_string();
    let mut arguments: Vec<OsString> = ["real-server", "up", "--vip", &vip]
        .map(OsString::from)
        .into();
    arguments.extend(forward.iter().map(OsString::from));
    arguments.extend(["--runtime-dir".into(), directory.join("run").into()]);
    arguments.extend([
        "--pin-dir".into(),
        fabric.session.pin_directory(&unique).into(),
    ]);
    let launcher = Launcher {
        namespace: &namespace,
        directory: &directory,
        cgroup: None,
    };
    let program = fabric.programs.tested;
    launcher.run("real-server", program, &arguments, START_TIMEOUT)?;
    Ok(RealServer {
        address,
        _server: Server::start(&namespace, VIP)?,
        _namespace: namespace,
    })
}

fn start_etcd(fabric: &Fabric<'_>) -> Result<Vec<Etcd>> {
    let mut members = Vec::new();
    let unique = fabric.session.next_number();
    for number in 0..3 {
        let namespace = create_host(fabric, &format!("e{number}"), etcd_address(number))?;
        // etcd waits for the disk on each write, so its data is in `/run`, which is in memory.
        let directory = fabric
            .session
            .directory(&format!("etcd{unique}-{number}"))?;
        let mut member = Etcd {
            number,
            namespace,
            directory,
            daemon: None,
        };
        member.start()?;
        members.push(member);
    }
    Ok(members)
}

impl Etcd {
    fn start(&mut self) -> Result<()> {
        let name = |number: u8| format!("e{number}");
        let members = (0..3).map(|it| format!("{}=http://{}:2380", name(it), etcd_address(it)));
        let members = members.collect::<Vec<_>>().join(",");
        let address = etcd_address(self.number);
        let (client, peer) = (
            format!("http://{address}:2379"),
            format!("http://{address}:2380"),
        );
        let settings = BTreeMap::from([
            ("--name", name(self.number)),
            ("--initial-cluster", members),
            (
                "--data-dir",
                self.directory.join("data").to_string_lossy().into_owned(),
            ),
            ("--listen-client-urls", client.clone()),
            ("--advertise-client-urls", client),
            ("--listen-peer-urls", peer.clone()),
            ("--initial-advertise-peer-urls", peer),
            ("--heartbeat-interval", "100".to_owned()),
            ("--election-timeout", "1000".to_owned()),
        ]);
        let arguments: Vec<String> = settings
            .into_iter()
            .flat_map(|(key, value)| [key.to_owned(), value])
            .collect();
        let launcher = Launcher {
            namespace: &self.namespace,
            directory: &self.directory,
            cgroup: None,
        };
        self.daemon = Some(launcher.start("etcd", Path::new("etcd"), &arguments)?);
        Ok(())
    }

    fn kill(&mut self) {
        if let Some(daemon) = self.daemon.take()
            && let Some(pid) = i32::try_from(daemon.pid()).ok().and_then(Pid::from_raw)
        {
            // Ignore the error of a process that has already exited.
            let _ = kill_process(pid, Signal::KILL);
        }
    }
}
