//! Starts Weir as an operator does: with a configuration file, `weir run`, and `weir real-server up` on the servers.
//!
//! Each director has separate runtime and pin directories, so that several can run on one machine, each in its own
//! network namespace. At the end, `clean` and `down` remove Weir's objects from the kernel. The run removes any
//! remaining objects by its tag.

use std::ffi::OsString;
use std::io::{Read as _, Write as _};
use std::net::Ipv4Addr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::time::Duration;

use rustix::process::Signal;

use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::namespace::Namespace;
use crate::peer::{START_LIMIT, nginx};
use crate::process::{self, Daemon, Launcher};
use crate::topology::{Topology, VIP};

/// The forwarding methods under test.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Forward {
    Nat,
    Direct,
    Tunnel,
    L3dsr,
    Proxy,
    /// Clients on the director, without a proxy.
    Socket,
}

impl Forward {
    /// Returns the value of `forward`.
    pub(crate) fn as_str(self) -> &'static str {
        match self {
            Forward::Nat => "nat",
            Forward::Direct => "direct",
            Forward::Tunnel => "tunnel",
            Forward::L3dsr => "l3dsr",
            Forward::Proxy => "proxy",
            Forward::Socket => "socket",
        }
    }
}

/// Time limit of `real-server` and `clean`.
const COMMAND_LIMIT: Duration = Duration::from_secs(20);

/// An instance of Weir: a namespace, and its runtime and pin directories.
struct Instance<'a> {
    program: &'a Path,
    namespace: &'a Namespace,
    directory: PathBuf,
    runtime: PathBuf,
    pins: PathBuf,
}

impl Instance<'_> {
    fn launcher(&self) -> Launcher<'_> {
        Launcher {
            namespace: self.namespace,
            cgroup: None,
            directory: &self.directory,
        }
    }

    fn arguments(&self, args: &[&str]) -> Vec<OsString> {
        let mut arguments: Vec<OsString> = args.iter().map(OsString::from).collect();
        arguments.extend([
            "--runtime-dir".into(),
            self.runtime.clone().into_os_string(),
        ]);
        arguments.extend(["--pin-dir".into(), self.pins.clone().into_os_string()]);
        arguments
    }

    fn run(&self, name: &str, args: &[&str]) -> Result<String> {
        self.launcher()
            .run(name, self.program, &self.arguments(args), COMMAND_LIMIT)
    }
}

/// A running director with prepared servers.
pub(crate) struct Director<'a> {
    instance: Instance<'a>,
    servers: Vec<Instance<'a>>,
    daemon: Option<Daemon>,
    forward: Forward,
    scheduler: Option<String>,
    cgroup: Option<PathBuf>,
}

/// The state of a server as Weir reports it.
pub(crate) struct ServerStatus {
    /// `up`, `down` and so on; empty = Weir does not list the server.
    pub(crate) state: String,
    /// Total number of connections.
    pub(crate) connections: u64,
}

/// Directories of a director.
pub(crate) struct Directories<'a> {
    /// Directory of the trial.
    pub(crate) base: &'a Path,
    /// Returns the pin directory of a host.
    pub(crate) pins: &'a dyn Fn(&str) -> PathBuf,
    /// The cgroup of the clients, for [`Forward::Socket`].
    pub(crate) cgroup: Option<&'a Path>,
}

impl<'a> Director<'a> {
    /// Prepares the servers for `forward`, starts the daemon and waits until it responds to `weir status`. Without a
    /// scheduler, the configuration has no service, because another program adds the service.
    pub(crate) fn start(
        program: &'a Path,
        topology: &'a Topology,
        directories: &Directories<'_>,
        forward: Forward,
        scheduler: Option<&str>,
    ) -> Result<Self> {
        let text = match scheduler {
            Some(scheduler) => configuration(topology, forward, scheduler, directories.cgroup),
            None => NODE.to_owned(),
        };
        Self::start_with(program, topology, directories, forward, scheduler, &text)
    }

    /// Like [`Self::start`], but with health checks; `check` contains their keys.
    pub(crate) fn start_with_check(
        program: &'a Path,
        topology: &'a Topology,
        directories: &Directories<'_>,
        forward: Forward,
        scheduler: &str,
        check: &str,
    ) -> Result<Self> {
        let text = configuration(topology, forward, scheduler, None);
        let text = format!("{text}\n[pool.images.check]\n{check}");
        Self::start_with(
            program,
            topology,
            directories,
            forward,
            Some(scheduler),
            &text,
        )
    }

    fn start_with(
        program: &'a Path,
        topology: &'a Topology,
        directories: &Directories<'_>,
        forward: Forward,
        scheduler: Option<&str>,
        configuration: &str,
    ) -> Result<Self> {
        let instance = |host: &'a crate::topology::Host| -> Result<Instance<'a>> {
            let directory = directories.base.join(&host.name);
            let runtime = directory.join("weir");
            std::fs::create_dir_all(&runtime).map_err(LabError::file(&runtime))?;
            Ok(Instance {
                program,
                namespace: &host.namespace,
                directory,
                runtime,
                pins: (directories.pins)(&host.name),
            })
        };
        let mut director = Director {
            cgroup: directories.cgroup.map(Path::to_owned),
            instance: instance(&topology.director)?,
            servers: Vec::new(),
            daemon: None,
            forward,
            scheduler: scheduler.map(str::to_owned),
        };
        if !matches!(forward, Forward::Nat | Forward::Proxy | Forward::Socket) {
            for host in &topology.servers {
                // Record the server before the command runs, so that `drop` also reverts a failed command.
                director.servers.push(instance(host)?);
                if let Some(server) = director.servers.last() {
                    prepare_server(server, forward)?;
                }
            }
        }
        director.start_daemon(configuration)?;
        Ok(director)
    }

    /// Returns the program and directories for programs that call Weir as ipvsadm.
    pub(crate) fn instance(&self) -> super::ldirectord::Instance<'_> {
        super::ldirectord::Instance {
            weir: self.instance.program,
            runtime: &self.instance.runtime,
            pins: &self.instance.pins,
        }
    }

    /// Returns the number of servers in the ipvsadm table.
    pub(crate) fn ipvsadm_server_count(&self) -> Result<usize> {
        let instance = &self.instance;
        let mut arguments = instance.arguments(&[]);
        arguments.extend(["ipvsadm", "-S", "-n"].map(OsString::from));
        let launcher = instance.launcher();
        let output = launcher.run("weir-ipvsadm", instance.program, &arguments, COMMAND_LIMIT)?;
        Ok(output
            .lines()
            .filter(|line| line.starts_with("-a "))
            .count())
    }

    /// Returns the state of a server.
    pub(crate) fn server(&self, address: Ipv4Addr) -> Result<ServerStatus> {
        let text = self.instance.run("weir-status", &["status", "--json"])?;
        let status: serde_json::Value = serde_json::from_str(&text).unwrap_or_default();
        let servers = status["services"][0]["servers"].as_array();
        let mut servers = servers.into_iter().flatten();
        let server = servers.find(|server| server["address"] == address.to_string());
        let server = server.cloned().unwrap_or_default();
        Ok(ServerStatus {
            state: server["state"].as_str().unwrap_or_default().to_owned(),
            connections: server["connections"].as_u64().unwrap_or(0),
        })
    }

    fn start_daemon(&mut self, configuration: &str) -> Result<()> {
        let instance = &self.instance;
        let file = instance.directory.join("weir.toml");
        std::fs::write(&file, configuration).map_err(LabError::file(&file))?;
        let mut arguments = instance.arguments(&["run"]);
        arguments.extend(["-c".into(), file.into_os_string()]);
        let mut daemon = instance
            .launcher()
            .start("weir-run", instance.program, &arguments)?;
        let socket = instance.runtime.join("weir.sock");
        daemon.wait_ready("weir to start", START_LIMIT, || {
            // Checking the socket first is cheap. A response shows that the configuration is active.
            Ok(socket.exists() && instance.run("weir-status", &["status", "--json"]).is_ok())
        })?;
        self.daemon = Some(daemon);
        Ok(())
    }

    /// Runs `weir reload` with these servers.
    pub(crate) fn reload(&self, servers: &[Ipv4Addr]) -> Result<()> {
        let file = self.instance.directory.join("weir.toml");
        let scheduler = self.scheduler.as_deref().unwrap_or("rr");
        let text = service_configuration(
            &server_list(servers),
            self.forward,
            scheduler,
            self.cgroup.as_deref(),
        );
        std::fs::write(&file, text).map_err(LabError::file(&file))?;
        self.instance.run("weir-reload", &["reload"]).map(drop)
    }

    /// Adds a server to the pool or removes it through the API.
    pub(crate) fn set_member(&self, address: Ipv4Addr, present: bool) -> Result<()> {
        let socket = self.instance.runtime.join("weir.sock");
        let (method, body) = if present {
            ("PUT", "{}")
        } else {
            ("DELETE", "")
        };
        let length = body.len();
        let request = format!(
            "{method} /v1/servers/images/{address} HTTP/1.1\r\nHost: weir\r\nConnection: close\r\n\
             Content-Type: application/json\r\nContent-Length: {length}\r\n\r\n{body}"
        );
        let send_request = || -> std::io::Result<String> {
            let mut stream = UnixStream::connect(&socket)?;
            stream.set_read_timeout(Some(COMMAND_LIMIT))?;
            stream.write_all(request.as_bytes())?;
            let mut reply = String::new();
            stream.read_to_string(&mut reply)?;
            Ok(reply)
        };
        let reply = send_request().map_err(LabError::file(&socket))?;
        if reply.starts_with("HTTP/1.1 2") {
            return Ok(());
        }
        Err(LabError::Failed {
            program: format!("{method} /v1/servers/images/{address}"),
            status: reply.lines().next().unwrap_or("no reply").to_owned(),
            message: reply,
        })
    }

    /// Runs `weir upgrade`: a new process of the same program takes over.
    pub(crate) fn upgrade(&self) -> Result<()> {
        self.instance.run("weir-upgrade", &["upgrade"]).map(drop)
    }

    /// Kills the child processes of `weir run`, including the daemon, with SIGKILL.
    pub(crate) fn kill_daemon(&self) -> Result<()> {
        let keeper = self.daemon.as_ref().map_or(0, Daemon::pid);
        for pid in process::children(keeper) {
            // If the daemon has just exited, the next round kills its successor.
            let _ = rustix::process::kill_process(pid, Signal::KILL);
        }
        Ok(())
    }

    /// Waits until the daemon responds.
    pub(crate) fn wait_until_responding(&self, limit: Duration) -> Result<()> {
        let responds = || {
            Ok(self
                .instance
                .run("weir-status", &["status", "--json"])
                .is_ok()
                .then_some(()))
        };
        wait_for("a response from weir", limit, responds, String::new)
    }
}

fn prepare_server(server: &Instance<'_>, forward: Forward) -> Result<()> {
    let vip = format!("{VIP}:{}", nginx::PORT);
    let mut args = vec![
        "real-server",
        "up",
        "--forward",
        forward.as_str(),
        "--vip",
        &vip,
    ];
    if forward == Forward::Tunnel {
        args.extend(["--tunnel", "ipip"]);
    }
    server.run("weir-real-server-up", &args).map(drop)
}

impl Drop for Director<'_> {
    fn drop(&mut self) {
        self.daemon = None;
        // Ignore failures, because they must not hide the trial's result. The run removes remaining objects by its tag,
        // even if Ctrl-C interrupts these commands.
        let _ = self.instance.run("weir-clean", &["clean"]);
        for server in &self.servers {
            let _ = server.run("weir-real-server-down", &["real-server", "down"]);
        }
    }
}

/// The part of the configuration without services.
const NODE: &str = "[node]\ninterfaces = [\"eth0\"]\n";

fn configuration(
    topology: &Topology,
    forward: Forward,
    scheduler: &str,
    cgroup: Option<&Path>,
) -> String {
    let servers: Vec<Ipv4Addr> = topology
        .servers
        .iter()
        .map(|server| server.address)
        .collect();
    service_configuration(&server_list(&servers), forward, scheduler, cgroup)
}

fn server_list(servers: &[Ipv4Addr]) -> String {
    let quoted = servers.iter().map(|server| format!("\"{server}\""));
    quoted.collect::<Vec<_>>().join(", ")
}

fn service_configuration(
    servers: &str,
    forward: Forward,
    scheduler: &str,
    cgroup: Option<&Path>,
) -> String {
    // There is only one client address, so source hashing by address alone would use a single server.
    let scheduler = match scheduler {
        "sh" => "{ name = \"sh\", flags = [\"sh-port\"] }".to_owned(),
        "mh" => "{ name = \"mh\", flags = [\"mh-port\"] }".to_owned(),
        name => format!("\"{name}\""),
    };
    let cgroup = cgroup.map(|path| format!("cgroup = \"{}\"\n", path.display()));
    let cgroup = cgroup.unwrap_or_default();
    let protocol = if forward == Forward::Proxy {
        "protocol = \"http\"\n"
    } else {
        ""
    };
    format!(
        "{NODE}\n[pool.images]\nscheduler = {scheduler}\nservers = [{servers}]\n\n\
         [service.images]\nlisten = [\"{VIP}:{}\"]\nforward = \"{}\"\n{protocol}{cgroup}pool = \"images\"\n",
        nginx::PORT,
        forward.as_str()
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn configuration_has_the_expected_text() {
        insta::assert_snapshot!(service_configuration(
            "\"10.0.0.5\", \"10.0.0.6\"",
            Forward::Direct,
            "sh",
            None
        ));
    }
}
