//! Measures how long each speaker takes to withdraw a route.
//!
//! The time begins with the request that makes a VIP's only server unusable, and ends when the router's kernel has
//! removed the route.

use std::io::{BufRead, BufReader, Read, Write};
use std::os::unix::net::UnixStream;
use std::process::Stdio;
use std::sync::mpsc::{self, Receiver};
use std::time::Instant;

use super::speaker::{Site, Speaker};
use super::world::{World, privileged, wait_for};
use super::{Fabric, TIMEOUT};

/// Number of VIPs. Each VIP is withdrawn once, because Weir delays the announcement of a VIP that was withdrawn
/// repeatedly.
const VIPS: usize = 40;
const SERVER: &str = "10.71.0.20";

fn vip(n: usize) -> String {
    format!("192.0.2.{}", 100 + n)
}

/// Returns a configuration in which each VIP has its own pool with the same server.
fn config(announce: &str) -> String {
    let mut text = String::new();
    for n in 0..VIPS {
        text += &format!(
            "[pool.p{n}]\nservers = [\"{SERVER}\"]\ncheck = {{ kind = \"http\", path = \"/name\", interval = \"1s\", \
             timeout = \"900ms\" }}\n[service.s{n}]\nlisten = [\"{}:80\"]\nforward = \"direct\"\npool = \"p{n}\"\n",
            vip(n)
        );
    }
    text + "[announce]\n" + announce
}

/// The changes to the router's routing table, with the time at which each was received.
struct RouteChanges(Receiver<(Instant, String)>);

impl RouteChanges {
    fn start(world: &mut World) -> Self {
        let mut command = world.command("client", "ip");
        command.args(["-oneline", "monitor", "route"]);
        let child = command.stdin(Stdio::null()).stdout(Stdio::piped()).spawn();
        let mut child = child.expect("start ip");
        let output = BufReader::new(child.stdout.take().expect("stdout is piped"));
        world.kill_on_drop(child);
        let (sender, receiver) = mpsc::channel();
        std::thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let _ = sender.send((Instant::now(), line));
            }
        });
        // The program reports only changes that are made after it has opened its socket.
        wait_for("ip monitor", TIMEOUT, || {
            for change in ["add", "del"] {
                world.ip(
                    "client",
                    &format!("route {change} blackhole 198.51.100.1/32"),
                );
            }
            receiver.try_recv().is_ok()
        });
        Self(receiver)
    }

    /// Waits until the route to a VIP is removed. Returns the time of the removal.
    fn wait_for_removal(&self, vip: &str) -> Instant {
        loop {
            let (time, line) = self.0.recv_timeout(TIMEOUT).expect("route is removed");
            let mut words = line.split_whitespace();
            if words.next() == Some("Deleted") && words.next() == Some(vip) {
                return time;
            }
        }
    }
}

/// Puts a pool's server into maintenance through the API. Returns the time before the request.
fn request_maintenance(fabric: &Fabric, pool: &str) -> Instant {
    let socket = fabric.world.path("run-director").join("weir.sock");
    let mut stream = UnixStream::connect(socket).expect("connect to the API");
    let body = r#"{"state":"maint"}"#;
    let request = format!(
        "POST /v1/servers/{pool}/{SERVER} HTTP/1.1\r\nhost: weir\r\nconnection: close\r\ncontent-type: \
         application/json\r\ncontent-length: {}\r\n\r\n{body}",
        body.len()
    );
    let begin = Instant::now();
    stream
        .write_all(request.as_bytes())
        .expect("send the request");
    let mut response = String::new();
    stream
        .read_to_string(&mut response)
        .expect("read the response");
    assert!(response.starts_with("HTTP/1.1 200"), "{response}");
    begin
}

fn measure_withdrawals(speaker: Speaker) {
    if !privileged() || std::env::var_os("WEIR_SOAK").is_none() {
        return;
    }
    let mut site = Site::new();
    let announce = site.start(speaker);
    let fabric = &mut site.fabric;
    fabric.world.start_daemon(&config(&announce));
    wait_for("all routes", 3 * TIMEOUT, || {
        let output = fabric.world.output("client", "ip route show");
        let routes = String::from_utf8_lossy(&output.stdout).into_owned();
        routes.matches("via 10.71.0.3 ").count() == VIPS
    });
    let changes = RouteChanges::start(&mut fabric.world);
    let mut times: Vec<_> = (0..VIPS)
        .map(|n| {
            let begin = request_maintenance(fabric, &format!("p{n}"));
            changes.wait_for_removal(&vip(n)) - begin
        })
        .collect();
    times.sort_unstable();
    println!(
        "{speaker:?}: {VIPS} withdrawals, from the request to the router's kernel: median {:?}, worst {:?} (goal: \
         50 ms, 150 ms)",
        times[VIPS / 2],
        times[VIPS - 1],
    );
}

#[test]
fn bird_withdraws_routes_soak() {
    measure_withdrawals(Speaker::Bird);
}

#[test]
fn exabgp_withdraws_routes_soak() {
    measure_withdrawals(Speaker::ExaBgp);
}

#[test]
fn gobgp_withdraws_routes_soak() {
    measure_withdrawals(Speaker::GoBgp);
}

#[test]
fn frr_withdraws_routes_soak() {
    measure_withdrawals(Speaker::Frr);
}

#[test]
fn frr_with_prefix_list_withdraws_routes_soak() {
    measure_withdrawals(Speaker::FrrWithPrefixList);
}

#[test]
fn frr_controlled_by_vtysh_withdraws_routes_soak() {
    measure_withdrawals(Speaker::FrrByVtysh);
}
