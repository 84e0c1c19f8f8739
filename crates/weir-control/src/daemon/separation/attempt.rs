//! Simulates a compromised daemon: attempts operations that must be rejected, and logs the results.
//!
//! Tests with a debug build use this; release builds do not contain it.

use std::fs;
use std::io::{self, BufRead, BufReader, Write};
use std::net::{Ipv4Addr, SocketAddr};
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::sync::mpsc;
use std::time::Duration;

use weir_engine_host::{EngineClient, ProbeForwarding, ProbeId, Request, permit_edits};
use weir_ipvsadm::Edit;
use weir_sys::privileged::{self, PrivilegedHelper, Program};

use crate::daemon::Options;
use crate::keeper::Link;
use crate::runtime_dir::SOCKET;

/// The environment variable that enables the attempts.
const VARIABLE: &str = "WEIR_TEST_ATTEMPTS";

/// Maximum number of polls while the daemon starts, and the interval between them.
const MAX_POLLS: u32 = 600;
const POLL_INTERVAL: Duration = Duration::from_millis(50);

/// Attempts operations that must be rejected, and logs the results.
pub(super) fn run(options: &Options, keeper: &Link, engine: Option<&EngineClient>) {
    if std::env::var_os(VARIABLE).is_none() {
        return;
    }
    let Some(helper) = privileged::helper() else {
        return;
    };
    let shadow = Path::new("/etc/shadow");
    let results = [
        ("request /etc/shadow", helper.open(shadow).map(drop)),
        (
            "attempt to append to /etc/shadow",
            helper.append(shadow).map(drop),
        ),
        (
            "request a port",
            helper
                .bind_stream(SocketAddr::from((Ipv4Addr::LOCALHOST, 81)))
                .map(drop),
        ),
        (
            "request an address",
            helper
                .bind_stream(SocketAddr::from(([127, 0, 0, 9], 443)))
                .map(drop),
        ),
        (
            "request a script as root",
            request_program(helper, &script()),
        ),
        (
            "request a notifier program",
            request_program(helper, &notifier()),
        ),
    ];
    let system_attempts = weir_sys::try_forbidden_actions(helper_process().unwrap_or(1));
    for (attempt, result) in results.into_iter().chain(system_attempts) {
        report(attempt, result);
    }
    if let Some(engine) = engine {
        attempt_layer_4(options, engine);
    }
    attempt_failover(options, keeper);
}

fn report(attempt: &str, result: io::Result<()>) {
    match result {
        Ok(()) => tracing::error!(attempt, "succeeded"),
        Err(error) => tracing::info!(attempt, %error, "failed"),
    }
}

/// Tries to apply configurations that root did not write, to add a probe, and to execute and permit an edit that no
/// client has requested.
fn attempt_layer_4(options: &Options, engine: &EngineClient) {
    let text = privileged::read(&options.config).unwrap_or_default();
    let text = String::from_utf8_lossy(&text).into_owned();
    let with_node = |key: &str| match text.contains("[node]") {
        true => text.replace("[node]", &format!("[node]\n{key}")),
        false => format!("{text}\n[node]\n{key}\n"),
    };
    const SYNC: &str = "[sync]\nlisten = \"192.0.2.1:4440\"\npeers = [\"192.0.2.2:4440\"]\n\
        key = \"0123456789abcdef\"\n";
    let service = "[pool.attempt]\nscheduler = \"maglev\"\nservers = [\"192.0.2.9:80\"]\n[service.attempt]\n\
        listen = [\"192.0.2.1:80\"]\nforward = \"nat\"\npool = \"attempt\"\n";
    for (attempt, text) in [
        ("request a VIP", format!("{text}\n{service}")),
        ("request an interface", with_node("interfaces = [\"lo\"]")),
        (
            "request an interface address",
            with_node("vip_interface = \"lo\"").replacen("vip_interface = \"to_client\"", "", 1),
        ),
        ("request another map size", with_node("max_flows = 4096")),
        ("request a flow sync peer", format!("{text}\n{SYNC}")),
    ] {
        report(attempt, request_configuration(engine, &text));
    }
    attempt_publication(engine, &text, service);
    let (engine, socket) = (engine.clone(), options.runtime_dir.join(SOCKET));
    let runtime_dir = options.runtime_dir.clone();
    // If the socket exists, an earlier daemon created it, so its existence does not show that the engine is ready.
    if socket.exists() {
        return;
    }
    std::thread::spawn(move || {
        for _ in 0..MAX_POLLS {
            if socket.exists() {
                report("request a probe", request_probe(&engine));
                report("request an ipvsadm edit", request_edit(&engine));
                report(
                    "attempt to permit an ipvsadm edit",
                    request_permit(&runtime_dir),
                );
                return;
            }
            std::thread::sleep(POLL_INTERVAL);
        }
    });
}

/// Tries to apply configurations that this director's group did not publish.
fn attempt_publication(engine: &EngineClient, text: &str, service: &str) {
    let Some((group, _)) = weir_config::group_of(text) else {
        return;
    };
    let wider = text.replace("vips = [", "vips = [\"192.0.2.0/24\", ");
    let wider = wider.replace("servers = [", "servers = [\"192.0.2.0/24\", ");
    let interface = "[node]\nmax_flows = 4096\n";
    for (attempt, own, group, published) in [
        ("attempt to publish a VIP", text, group.as_str(), service),
        (
            "attempt to publish with wider permissions",
            &wider,
            &group,
            service,
        ),
        ("attempt to publish an interface", text, &group, interface),
        (
            "request services of another group",
            &wider,
            "other",
            service,
        ),
    ] {
        let text = weir_config::with_published(own, group, published);
        report(attempt, request_configuration(engine, &text));
    }
}

fn request_configuration(engine: &EngineClient, text: &str) -> io::Result<()> {
    let file = weir_sys::sealed_file("attempt", text.as_bytes())?;
    let begin = Request::Begin {
        added: Vec::new(),
        address_digest: None,
    };
    let answer = engine.request(&begin, &[file.as_fd()]);
    answer.map(drop).map_err(io::Error::other)
}

fn request_probe(engine: &EngineClient) -> io::Result<()> {
    let id = ProbeId {
        local: Ipv4Addr::LOCALHOST.into(),
        port: 1,
        protocol: 6,
    };
    let forwarding = ProbeForwarding {
        server: Ipv4Addr::new(192, 0, 2, 9).into(),
        vip: Ipv4Addr::new(192, 0, 2, 1).into(),
        forward: 1,
        tunnel: 0,
        tunnel_flags: 0,
        dscp: 0,
        tunnel_port: 0,
    };
    let answer = engine.request(&Request::AddProbe { id, forwarding }, &[]);
    answer.map(drop).map_err(io::Error::other)
}

fn request_edit(engine: &EngineClient) -> io::Result<()> {
    let edits = vec![Edit::Clear];
    let answer = engine.request(&Request::Edit { edits }, &[]);
    answer.map(drop).map_err(io::Error::other)
}

fn request_permit(runtime_dir: &Path) -> io::Result<()> {
    match permit_edits(runtime_dir, &[Edit::Clear]).map_err(io::Error::other)? {
        true => Ok(()),
        false => Err(io::Error::other("cannot reach the socket")),
    }
}

fn script() -> Program {
    Program::Check {
        command: vec!["/bin/true".to_owned()],
        user: "root".to_owned(),
        address: Ipv4Addr::LOCALHOST.into(),
        port: None,
    }
}

fn notifier() -> Program {
    Program::Notifier {
        notifier: "attempt".to_owned(),
        lines: Vec::new(),
        lost: 0,
    }
}

fn request_program(helper: &dyn PrivilegedHelper, program: &Program) -> io::Result<()> {
    let (sender, results) = mpsc::channel();
    helper.run(program, Box::new(move |result| drop(sender.send(result))))?;
    results.recv().map_err(io::Error::other)?.map(drop)
}

/// Requests changes that are not in root's configuration file, once the VRRP agent and the announcer are running.
fn attempt_failover(options: &Options, keeper: &Link) {
    let (directory, keeper) = (options.runtime_dir.clone(), keeper.clone());
    std::thread::spawn(move || {
        let socket = directory.join("announce.sock");
        let are_serving = || {
            let routers = weir_vrrp_agent::status(&directory);
            routers.is_ok_and(|routers| !routers.is_empty()) && UnixStream::connect(&socket).is_ok()
        };
        if !(0..MAX_POLLS).any(|_| {
            std::thread::sleep(POLL_INTERVAL);
            are_serving()
        }) {
            return;
        }
        report("request an announcement", request_announcement(&socket));
        let text = directory.join("in-force.toml");
        let changed_text = fs::read_to_string(&text).unwrap_or_default()
            + "\n[vrrp.attempt]\ninterface = \"lo\"\nvirtual_router_id = 9\naddresses = [\"192.0.2.77/32\"]\n";
        if fs::write(&text, changed_text).is_ok() {
            // The result is in the helper's log.
            keeper.configure_vrrp(true);
        }
    });
}

fn request_announcement(socket: &Path) -> io::Result<()> {
    let mut stream = UnixStream::connect(socket)?;
    let settings = serde_json::json!({
        "speaker": { "Bird": { "socket": "/run/attempt", "include": "/etc/attempt" } },
        "withdraw_after": { "secs": 9, "nanos": 0 }, "drain_delay": { "secs": 0, "nanos": 0 },
        "services": null, "require": "Any", "communities": [], "drain_communities": [],
    });
    let vips = serde_json::json!([{ "vip": "192.0.2.77", "serves": true, "reason": "" }]);
    let daemon_report =
        serde_json::json!({ "settings": settings, "vips": vips, "is_draining": false });
    let request = serde_json::json!({ "facts": daemon_report });
    stream.write_all(format!("{request}\n").as_bytes())?;
    let mut answer = String::new();
    BufReader::new(stream).read_line(&mut answer)?;
    let answer: serde_json::Value = serde_json::from_str(&answer)?;
    match answer["error"].as_str() {
        Some(error) => Err(io::Error::other(error.to_owned())),
        None => Ok(()),
    }
}

/// Returns the process ID of the daemon's helper, which is another child of the keeper.
fn helper_process() -> Option<u32> {
    let processes = fs::read_dir("/proc").ok()?.flatten();
    let mut numbers = processes.filter_map(|entry| entry.file_name().to_str()?.parse().ok());
    numbers.find(|number: &u32| {
        let words = fs::read(format!("/proc/{number}/cmdline")).unwrap_or_default();
        words
            .split(|byte| *byte == 0)
            .any(|word| word == b"--daemon")
    })
}
