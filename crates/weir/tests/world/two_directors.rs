//! Builds a network with two directors on one switch and the addresses from the manual's failover page.

use std::fs;
use std::path::Path;
use std::process::Stdio;

use super::World;

impl World {
    /// Returns a world with the directors `director` (10.0.0.3) and `second` (10.0.0.4), the client (10.0.0.2), and
    /// servers from 10.0.0.5 upwards that run nginx. nginx serves a file of `bytes` bytes.
    pub fn with_two_directors(servers: u8, bytes: usize) -> Self {
        let mut world = Self::new(servers.into());
        world.start_nginx(bytes);
        world.add_router("second", 4);
        let mut hosts = vec![
            ("client".to_owned(), 2),
            ("director".to_owned(), 3),
            ("second".to_owned(), 4),
        ];
        hosts.extend((0..servers).map(|n| (format!("server{n}"), 5 + n)));
        for (host, number) in hosts {
            world.ip(&host, "addr flush dev eth0");
            world.ip(&host, &format!("addr add 10.0.0.{number}/24 dev eth0"));
        }
        world
    }

    /// Starts the daemon on a host with a configuration file. The log is `HOST.log`.
    pub fn start_daemon_on(&mut self, host: &str, file: &Path) {
        let log = fs::File::create(self.path(&format!("{host}.log"))).expect("create the log file");
        let child = self
            .weir(host)
            .args(["run", "-c"])
            .arg(file)
            .stdout(Stdio::null())
            .stderr(log)
            .spawn()
            .expect("start weir");
        self.kill_on_drop(child);
    }
}
