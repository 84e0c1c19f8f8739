//! Runs a director under load, and checks the state that must survive every replacement of its program.
//!
//! The state consists of flows, a persistent client's server, an override, ipvsadm services and totals.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};

use serde_json::Value;

use super::world::load::{Load, assert_nothing_lost};
use super::world::program::program_under_test;
use super::world::{Family, World};

const SERVERS: usize = 3;

/// Returns the path of the older build's program.
pub(crate) fn older_program() -> PathBuf {
    std::env::var_os("WEIR_OLD_BINARY")
        .map_or_else(|| program_under_test().to_owned(), PathBuf::from)
}

/// The forwarding methods, each on a separate port, and the port of a service with persistence.
pub(crate) struct Setup {
    methods: &'static [(u16, &'static str)],
    sticky: u16,
}

/// Servers reply directly, except to persistent clients.
pub(crate) const DIRECT: Setup = Setup {
    methods: &[(80, "direct"), (82, "tunnel")],
    sticky: 83,
};

/// Replies go through the director.
pub(crate) const NAT: Setup = Setup {
    methods: &[(80, "nat")],
    sticky: 83,
};

impl Setup {
    fn config(&self) -> String {
        let family = Family::V4;
        let vip = family.vip();
        let servers: Vec<String> = (0..SERVERS)
            .map(|n| format!("\"{}\"", family.server(n)))
            .collect();
        let servers = servers.join(", ");
        let mut text = format!(
            "[node]\ninterfaces = [\"eth0\"]\nmax_flows = 300000\n\
             [pool.sticky]\nscheduler = \"rr\"\nservers = [{servers}]\n\
             [service.sticky]\nlisten = [\"{vip}:{}\"]\nforward = \"nat\"\nsnat = true\npool = \"sticky\"\n\
             persistence = {{ timeout = \"10m\" }}\n",
            self.sticky
        );
        for (port, forward) in self.methods {
            text += &format!(
                "[pool.{forward}]\nservers = [{servers}]\n\
                 [service.{forward}]\nlisten = [\"{vip}:{port}\"]\nforward = \"{forward}\"\npool = \"{forward}\"\n"
            );
        }
        text
    }

    fn world(&self) -> World {
        let mut world = World::new(SERVERS);
        world.start_nginx(1024);
        for n in 0..SERVERS {
            for port in [":82", ":83"] {
                world.start_nginx_on(&format!("server{n}"), n, port);
            }
        }
        let vip = Family::V4.vip().to_string();
        if self.methods.iter().any(|(_, forward)| *forward == "nat") {
            world.route_replies_through_director();
        } else {
            // A server that is prepared for tunnels has the VIP on its loopback device, so it also accepts the packets
            // of `direct`.
            world.prepare_servers(&["--forward", "tunnel", "--vip", &vip]);
        }
        world
    }
}

/// A director under load, and the state that must not change.
pub(crate) struct DirectorUnderLoad {
    pub(crate) world: World,
    pub(crate) config: String,
    loads: Vec<Load>,
    sticky_url: String,
    /// The server of the persistent client.
    sticky_server: String,
    /// The test's ipvsadm service as `-S` prints it.
    ipvsadm_lines: String,
    /// Total number of connections of every server of every service.
    totals: Vec<u64>,
}

impl DirectorUnderLoad {
    pub(crate) fn start(setup: &Setup, program: &Path) -> (Self, u32) {
        let (mut world, config) = (setup.world(), setup.config());
        let pid = world.start_daemon_with(program, &config);
        let vip = Family::V4.vip();
        // Create an ipvsadm service and an override.
        let (service, server) = (format!("{vip}:90"), format!("{}:80", Family::V4.server(0)));
        for line in [
            vec!["ipvsadm", "-A", "-t", &service, "-s", "wrr"],
            vec![
                "ipvsadm", "-a", "-t", &service, "-r", &server, "-m", "-w", "3",
            ],
            vec![
                "server",
                &format!("sticky/{}", Family::V4.server(2)),
                "drain",
            ],
        ] {
            let output = world.weir_with(program, "director").args(&line).output();
            let output = output.expect("run weir");
            assert!(
                output.status.success(),
                "{line:?}: {}",
                String::from_utf8_lossy(&output.stderr)
            );
        }
        let load = |(port, _): &(u16, _)| Load::start(&world, SocketAddr::new(vip, *port));
        let loads: Vec<Load> = setup.methods.iter().map(load).collect();
        let sticky_url = format!("http://{vip}:{}/name", setup.sticky);
        let mut director = Self {
            sticky_server: text(&world.get(&sticky_url).expect("receive a response")),
            ipvsadm_lines: String::new(),
            totals: Vec::new(),
            world,
            config,
            loads,
            sticky_url,
        };
        director.ipvsadm_lines = director.list_ipvsadm();
        director.totals = director.counts("connections");
        director.assert_unchanged();
        (director, pid)
    }

    fn list_ipvsadm(&self) -> String {
        let saved_rules = self.world.run_weir(&["ipvsadm", "-S", "-n"]);
        let lines = saved_rules.lines().filter(|line| line.contains(":90"));
        lines.collect::<Vec<_>>().join("\n")
    }

    /// Returns the named count for every server in every service.
    pub(crate) fn counts(&self, name: &str) -> Vec<u64> {
        let status = self.world.status();
        let services = status["services"]
            .as_array()
            .expect("services is an array")
            .clone();
        let servers = services.into_iter().flat_map(|service| {
            let servers = service["servers"].as_array().cloned();
            servers.unwrap_or_default()
        });
        servers
            .map(|server: Value| server[name].as_u64().unwrap_or(0))
            .collect()
    }

    /// Returns the total number of connections of server `n` of a service, and the sum over the other servers.
    pub(crate) fn new_connections(&self, service: &str, n: usize) -> (u64, u64) {
        let status = self.world.status();
        let services = status["services"]
            .as_array()
            .expect("services is an array")
            .iter();
        let mut servers = services
            .filter(|it| it["name"] == service)
            .flat_map(|it| it["servers"].as_array().expect("servers is an array"))
            .map(|server| server["connections"].as_u64().expect("value is a number"))
            .collect::<Vec<_>>();
        (servers.remove(n), servers.iter().sum())
    }

    /// Asserts that all clients are served and that the state is unchanged.
    pub(crate) fn assert_unchanged(&mut self) {
        for load in &self.loads {
            load.wait_for_more(150);
        }
        for _ in 0..4 {
            let response = self.world.get(&self.sticky_url);
            assert_eq!(
                response.map(|body| text(&body)),
                Ok(self.sticky_server.clone())
            );
        }
        assert_eq!(
            self.counts("persistent_connections").iter().sum::<u64>(),
            1,
            "{:#}",
            self.world.status()
        );
        assert_eq!(self.list_ipvsadm(), self.ipvsadm_lines);
        let status = self.world.status();
        let services = status["services"]
            .as_array()
            .expect("services is an array")
            .iter();
        let drained = services
            .filter(|service| service["name"] == "sticky")
            .flat_map(|service| service["servers"].as_array().expect("servers is an array"))
            .filter(|server| server["state"] == "drain");
        assert_eq!(drained.count(), 1, "{status:#}");
        let totals = self.counts("connections");
        assert_eq!(totals.len(), self.totals.len(), "{status:#}");
        let have_not_decreased = totals
            .iter()
            .zip(&self.totals)
            .all(|(current, previous)| current >= previous);
        assert!(have_not_decreased, "{totals:?} after {:?}", self.totals);
        self.totals = totals;
    }

    /// Runs `weir upgrade TARGET` with the program `program`. Returns whether it succeeded, and its output.
    pub(crate) fn upgrade(&mut self, program: &Path, target: &Path) -> (bool, String) {
        let mut weir = self.world.weir_with(program, "director");
        let output = weir.arg("upgrade").arg(target).output().expect("run weir");
        let output_bytes = [output.stdout, output.stderr].concat();
        (output.status.success(), text(&output_bytes))
    }

    pub(crate) fn stop(self) {
        let results = self.loads.into_iter().flat_map(Load::stop).collect();
        assert_nothing_lost(&self.world, results);
    }
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).trim().to_owned()
}
