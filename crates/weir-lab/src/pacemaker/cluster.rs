//! Builds three nodes with Corosync and Pacemaker, and a client, on one switch.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use rustix::process::{Pid, Signal, kill_process};

use super::cib::{self, Paths};
use super::load;
use crate::error::{LabError, Result};
use crate::interrupt::wait_for;
use crate::namespace::Namespace;
use crate::process::{self, Daemon, Launcher};
use crate::session::Session;

/// The application's port, as in the user's setup that this trial reproduces.
pub(super) const PORT: u16 = 3000;
pub(super) const VIP: &str = "10.78.0.100";
/// Time limit for the cluster to form and for all resources to start.
const START_TIMEOUT: Duration = Duration::from_secs(90);
const NODES: u8 = 3;
const NODE_SCRIPT: &str = include_str!("node.sh");
const LOOPBACK_AGENT: &str = include_str!("loopback.sh");
const APPLICATION: &str = include_str!("app.js");
const WEIR_AGENT: &str = include_str!("../../../../contrib/ocf/weir");

/// A node and its processes.
struct Node {
    name: String,
    switch_port: String,
    namespace: Namespace,
    directory: PathBuf,
    /// `unshare`, whose child is the first process of the node.
    unshare: Option<Daemon>,
}

/// The hosts of a Pacemaker trial.
pub(super) struct Cluster {
    nodes: Vec<Node>,
    pub(super) client: Arc<Namespace>,
    switch: Namespace,
}

fn run_ip(namespace: &Namespace, args: &str) -> Result<()> {
    let mut arguments = vec!["-n", namespace.name()];
    arguments.extend(args.split(' '));
    process::run("ip", &arguments).map(drop)
}

fn create_host(session: &Session, switch: &Namespace, port: &str, number: u8) -> Result<Namespace> {
    let unique = format!("{}-{}{port}", session.tag(), session.next_number());
    let namespace = Namespace::create(&unique)?;
    run_ip(
        switch,
        &format!("link add {port} type veth peer name eth0 netns {unique}"),
    )?;
    run_ip(switch, &format!("link set {port} master br0 up"))?;
    run_ip(
        &namespace,
        &format!("addr add 10.78.0.{number}/24 dev eth0"),
    )?;
    run_ip(&namespace, "link set eth0 up")?;
    Ok(namespace)
}

fn write(path: &Path, text: &str, mode: u32) -> Result<()> {
    use std::os::unix::fs::PermissionsExt;
    std::fs::write(path, text).map_err(LabError::file(path))?;
    std::fs::set_permissions(path, std::fs::Permissions::from_mode(mode))
        .map_err(LabError::file(path))
}

fn corosync_configuration() -> String {
    let node = |number: u8| {
        format!(
            "  node {{\n    name: node{number}\n    nodeid: {number}\n    ring0_addr: 10.78.0.{number}\n  }}\n"
        )
    };
    let nodes: String = (1..=NODES).map(node).collect();
    format!(
        "totem {{\n  version: 2\n  cluster_name: weir\n  transport: knet\n  token: 1000\n  crypto_cipher: none\n  \
         crypto_hash: none\n}}\nsystem {{\n  sched_rr: no\n  move_to_root_cgroup: no\n}}\nquorum {{\n  provider: \
         corosync_votequorum\n}}\nlogging {{\n  to_stderr: yes\n  to_syslog: no\n}}\nnodelist {{\n{nodes}}}\n"
    )
}

impl Cluster {
    /// Starts the cluster and waits until two nodes respond through the VIP.
    pub(super) fn start(session: &Session, weir: &Path) -> Result<Self> {
        let switch = Namespace::create(&format!(
            "{}-{}switch",
            session.tag(),
            session.next_number()
        ))?;
        run_ip(
            &switch,
            "link add br0 type bridge forward_delay 0 mcast_snooping 0",
        )?;
        run_ip(&switch, "link set br0 up")?;
        let client = create_host(session, &switch, "client", 50)?;
        let shared = session.directory(&format!("cluster{}", session.next_number()))?;
        let (app, config, script) = (
            shared.join("app.js"),
            shared.join("weir.toml"),
            shared.join("node.sh"),
        );
        write(&app, APPLICATION, 0o644)?;
        write(&config, &configuration(), 0o644)?;
        write(&script, NODE_SCRIPT, 0o755)?;
        let mut cluster = Self {
            nodes: Vec::new(),
            client: Arc::new(client),
            switch,
        };
        for number in 1..=NODES {
            let node = Node::start(session, &cluster.switch, &shared, &script, number)?;
            cluster.nodes.push(node);
        }
        cluster.wait_for_quorum()?;
        let missing = || LabError::MissingPrograms {
            programs: vec!["node (package nodejs)".to_owned()],
        };
        let paths = Paths {
            weir,
            config: &config,
            app: &app,
            node: &process::find("node").ok_or_else(missing)?,
        };
        for (scope, text) in cib::sections(VIP, &paths) {
            let file = shared.join(format!("{scope}.xml"));
            write(&file, &text, 0o644)?;
            let file = file.to_string_lossy();
            let node = &cluster.nodes[0];
            let arguments = ["--replace", "--scope", scope, "--xml-file", &*file];
            node.run("cibadmin", &arguments)?;
        }
        cluster.wait_for_service(2)?;
        Ok(cluster)
    }

    fn wait_for_quorum(&self) -> Result<()> {
        let nodes: Vec<&str> = self.nodes.iter().map(|it| it.name.as_str()).collect();
        let online = format!("Online: [ {} ]", nodes.join(" "));
        let is_online = || {
            let status = self.nodes[0].run("crm_mon", &["-1"]).unwrap_or_default();
            let is_ready = status.contains(&online) && status.contains("with quorum");
            Ok(is_ready.then_some(()))
        };
        wait_for("the cluster to form", START_TIMEOUT, is_online, || {
            self.nodes[0].logs()
        })
    }

    /// Waits until this number of nodes respond through the VIP.
    pub(super) fn wait_for_service(&self, nodes: usize) -> Result<()> {
        let mut responding = std::collections::BTreeSet::new();
        let mut requests = 0;
        let is_served = || {
            // A node that responded long ago may be down, so count only recent responses.
            requests += 1;
            if requests % 40 == 0 {
                responding.clear();
            }
            responding.extend(load::request_from(&self.client)?);
            Ok((responding.len() >= nodes).then_some(()))
        };
        wait_for(
            "the application to respond",
            START_TIMEOUT,
            is_served,
            || self.resource_status(),
        )
    }

    /// Returns the status of the resources for error messages.
    fn resource_status(&self) -> String {
        let running_nodes = self.nodes.iter().filter(|it| it.unshare.is_some());
        let mut statuses =
            running_nodes.map(|node| node.run("crm_mon", &["-1", "-r", "-f"]).unwrap_or_default());
        statuses.next().unwrap_or_default()
    }

    /// Returns the index of the node that has the VIP on eth0.
    pub(super) fn node_with_vip(&self) -> Option<usize> {
        self.nodes.iter().position(|node| {
            let arguments = [
                "-n",
                node.namespace.name(),
                "-o",
                "addr",
                "show",
                "dev",
                "eth0",
            ];
            node.unshare.is_some()
                && process::run("ip", &arguments)
                    .is_ok_and(|addresses| addresses.contains(&format!(" {VIP}/")))
        })
    }

    /// Brings a node's link down and kills all its processes.
    pub(super) fn kill(&mut self, node: usize) -> Result<()> {
        let node = &mut self.nodes[node];
        run_ip(&self.switch, &format!("link set {} down", node.switch_port))?;
        node.kill();
        Ok(())
    }

    /// Puts a node in standby, so that a different node takes over.
    pub(super) fn put_in_standby(&self, node: usize) -> Result<()> {
        let node = &self.nodes[node];
        let arguments = ["--node", &node.name, "--name", "standby", "--update", "on"];
        node.run("crm_attribute", &arguments).map(drop)
    }
}

/// Returns Weir's configuration: that of the user's setup, but with a shorter check interval, so that Weir detects when
/// the application moves.
fn configuration() -> String {
    let servers: Vec<String> = (1..=NODES)
        .map(|number| format!("\"10.78.0.{number}:{PORT}\""))
        .collect();
    format!(
        "[pool.app]\nscheduler = \"lc\"\nservers = [{}]\ncheck = {{ kind = \"http\", path = \"/hello\", interval \
         = \"500ms\" }}\n[service.app]\nlisten = [\"{VIP}:{PORT}\"]\nforward = \"direct\"\npool = \"app\"\n",
        servers.join(", ")
    )
}

impl Node {
    fn start(
        session: &Session,
        switch: &Namespace,
        shared: &Path,
        script: &Path,
        number: u8,
    ) -> Result<Self> {
        let name = format!("node{number}");
        let namespace = create_host(session, switch, &name, number)?;
        // As in the user's setup, nodes neither reply to ARP requests for the VIP on lo nor use it as the source of
        // their own requests.
        namespace.set_sysctls(&[
            ("net/ipv4/conf/all/arp_ignore", "1"),
            ("net/ipv4/conf/all/arp_announce", "2"),
        ])?;
        let directory = shared.join(&name);
        for directory_name in ["corosync", "agents/lab", "agents/weir"] {
            let path = directory.join(directory_name);
            std::fs::create_dir_all(&path).map_err(LabError::file(&path))?;
        }
        write(
            &directory.join("corosync/corosync.conf"),
            &corosync_configuration(),
            0o644,
        )?;
        write(
            &directory.join("agents/lab/loopback"),
            LOOPBACK_AGENT,
            0o755,
        )?;
        write(&directory.join("agents/weir/weir"), WEIR_AGENT, 0o755)?;
        let launcher = Launcher {
            namespace: &namespace,
            directory: &directory,
            cgroup: None,
        };
        let args = "--mount --uts --ipc --pid --fork --mount-proc --kill-child sh";
        let mut arguments: Vec<std::ffi::OsString> = args.split(' ').map(Into::into).collect();
        arguments.extend([
            script.into(),
            shared.into(),
            directory.clone().into(),
            name.clone().into(),
        ]);
        let unshare = launcher.start("node", Path::new("unshare"), &arguments)?;
        Ok(Self {
            switch_port: name.clone(),
            name,
            namespace,
            directory,
            unshare: Some(unshare),
        })
    }

    /// Returns the first process of the node.
    fn pid(&self) -> Option<Pid> {
        let parent = self.unshare.as_ref()?.pid();
        process::children(parent).into_iter().next()
    }

    /// Runs a program on the node.
    fn run(&self, program: &str, arguments: &[&str]) -> Result<String> {
        let Some(pid) = self.pid() else {
            return Err(LabError::Failed {
                program: self.name.clone(),
                status: "the node has exited".to_owned(),
                message: self.logs(),
            });
        };
        let pid = pid.as_raw_nonzero().to_string();
        let mut args = vec!["-t", &pid, "-m", "-u", "-i", "-p", "-n", "--", program];
        args.extend(arguments);
        process::run("nsenter", &args)
    }

    fn logs(&self) -> String {
        let logs = ["node", "corosync", "pacemakerd"];
        let tails = logs.map(|log| process::tail(&self.directory.join(format!("{log}.log"))));
        format!(": {}", tails.join("\n"))
    }

    /// Kills the first process of the node, which ends all other processes too.
    fn kill(&mut self) {
        if let Some(pid) = self.pid() {
            let _ = kill_process(pid, Signal::KILL);
        }
        self.unshare = None;
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.kill();
    }
}
