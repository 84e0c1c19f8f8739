//! Tests reloads that move the VIP between `vip_interface` and a virtual router on the same interface.

use std::net::{IpAddr, SocketAddr, TcpListener, TcpStream};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread::JoinHandle;
use std::time::Duration;

use super::config;
use super::pair::{Pair, VIP};
use super::world::privileged;

const VIP6: &str = "fd00::10";
/// The comment makes `Pair` configure `vip_interface`.
const WITHOUT_ROUTER: &str = "# 10.0.0.10 is an address of vip_interface.\n";
const PROXY6: &str = "[pool.p6]\nservers = [\"127.0.0.1:9\"]\n[service.six]\nlisten = [\"[fd00::10]:8080\"]\n\
    forward = \"proxy\"\nprotocol = \"tcp\"\npool = \"p6\"\n";
const LAYER_4: &str = "[pool.q]\nservers = [\"10.0.0.2:80\"]\n[service.l4]\n\
    listen = [\"10.0.0.10:81\"]\nforward = \"nat\"\npool = \"q\"\n";

/// Threads that continuously check that the director has the VIPs and that a client can connect to them.
struct Probes {
    stop: Arc<AtomicBool>,
    attempts: Arc<AtomicU64>,
    failed: Arc<AtomicU64>,
    threads: Vec<JoinHandle<()>>,
}

impl Probes {
    fn start(pair: &Pair) -> Self {
        let mut probes = Self {
            stop: Arc::default(),
            attempts: Arc::default(),
            failed: Arc::default(),
            threads: Vec::new(),
        };
        for vip in [VIP, VIP6] {
            let vip: IpAddr = vip.parse().expect("address is valid");
            // Binding succeeds only for a local address.
            let is_local = move || TcpListener::bind((vip, 0)).is_ok();
            probes.add(pair, "director", is_local);
            let to = SocketAddr::new(vip, 8080);
            let connects = move || TcpStream::connect_timeout(&to, Duration::from_secs(1)).is_ok();
            probes.add(pair, "client", connects);
        }
        probes
    }

    fn add(&mut self, pair: &Pair, host: &str, probe: impl Fn() -> bool + Send + 'static) {
        let (stop, attempts, failed) = (
            Arc::clone(&self.stop),
            Arc::clone(&self.attempts),
            Arc::clone(&self.failed),
        );
        self.threads.push(pair.world.spawn_on(host, move || {
            while !stop.load(Ordering::Relaxed) {
                if !probe() {
                    failed.fetch_add(1, Ordering::Relaxed);
                }
                attempts.fetch_add(1, Ordering::Relaxed);
                std::thread::sleep(Duration::from_millis(1));
            }
        }));
    }

    /// Waits for more attempts, so that they cover the most recent change.
    fn wait_for_more(&self, pair: &Pair) {
        let before = self.attempts.load(Ordering::Relaxed);
        pair.wait_for("more attempts", || {
            self.attempts.load(Ordering::Relaxed) > before + 1000
        });
    }

    fn assert_none_failed(&self, after: &str) {
        let failed_count = self.failed.load(Ordering::Relaxed);
        let attempts = self.attempts.load(Ordering::Relaxed);
        println!("{after}: {failed_count} of {attempts} attempts failed");
        assert_eq!(failed_count, 0, "{after}: of {attempts} attempts");
    }

    fn stop(self) {
        self.stop.store(true, Ordering::Relaxed);
        for thread in self.threads {
            thread.join().expect("thread panicked");
        }
    }
}

fn routers(prefixes: (u8, u8), extra: &str) -> String {
    let (v4, v6) = prefixes;
    config(150, extra)
        .replace("100ms", "1s")
        .replace("10.0.0.10/24", &format!("10.0.0.10/{v4}"))
        + &format!(
            "[vrrp.six]\ninterface = \"eth0\"\nvirtual_router_id = 52\nversion = 3\npriority = 150\n\
             advert_interval = \"1s\"\naddresses = [\"{VIP6}/{v6}\"]\n"
        )
}

fn ip_addresses(pair: &Pair) -> String {
    let output = pair.world.output("director", "ip -o addr show dev eth0");
    String::from_utf8_lossy(&output.stdout).into_owned()
}

/// Returns whether the address is present exactly once, with an unlimited lifetime.
fn has_permanent_address(pair: &Pair, address: &str) -> bool {
    let text = ip_addresses(pair);
    let mut lines = text.lines().filter(|line| line.contains(address));
    lines
        .next()
        .is_some_and(|line| line.contains("valid_lft forever") && !line.contains("dynamic"))
        && lines.next().is_none()
}

fn is_active(pair: &Pair) -> bool {
    let routers = pair.routers("director");
    let mut routers = routers.as_array().into_iter().flatten();
    routers.next().is_some_and(|it| it["state"] == "active")
        && routers.all(|it| it["state"] == "active")
}

fn assert_vip_stays(services: &str, prefixes: (u8, u8)) {
    let mut pair = Pair::new();
    pair.ip("client", "addr add fd00::2/64 dev eth0 nodad");
    pair.ip("director", "addr add fd00::3/64 dev eth0 nodad");
    let without_router = format!("{WITHOUT_ROUTER}{services}");
    let with_routers = |extra: &str| routers(prefixes, extra) + services;
    // The director first starts without virtual routers, so there is no agent to wait for.
    pair.start_without_agent("director", &without_router);
    pair.wait_for("the VIPs to be added", || {
        pair.holds("director", VIP) && pair.holds("director", VIP6)
    });
    let probes = Probes::start(&pair);
    probes.wait_for_more(&pair);
    probes.assert_none_failed("at the start");

    pair.reload("director", &with_routers(""));
    pair.wait_for("the election to end", || is_active(&pair));
    probes.wait_for_more(&pair);
    pair.wait_for("the configured prefix", || {
        has_permanent_address(&pair, &format!("{VIP}/{}", prefixes.0))
            && has_permanent_address(&pair, VIP6)
    });
    probes.assert_none_failed("vip_interface -> [vrrp]");

    // A different list of addresses makes it a different virtual router.
    let other_config =
        with_routers("").replace(&format!("\"{VIP}/"), &format!("\"10.0.0.77/32\", \"{VIP}/"));
    pair.reload("director", &other_config);
    pair.wait_for("the added address", || pair.holds("director", "10.0.0.77"));
    probes.wait_for_more(&pair);
    probes.assert_none_failed("changed list of addresses");

    pair.reload("director", &without_router);
    pair.wait_for("the agent to exit", || {
        !pair.try_weir("director", &["vrrp"]).status.success()
    });
    pair.wait_for("the new owner to add the VIP", || {
        has_permanent_address(&pair, &format!("{VIP}/32")) && has_permanent_address(&pair, VIP6)
    });
    probes.wait_for_more(&pair);
    probes.assert_none_failed("[vrrp] -> vip_interface");
    assert!(!pair.holds("director", "10.0.0.77"));
    probes.stop();
    pair.stop_and_wait("director");
    pair.weir("director", &["clean"]);
    assert!(!pair.holds("director", VIP) && !pair.holds("director", VIP6));
    assert!(pair.holds("director", "10.0.0.3") && pair.holds("director", "fd00::3"));
}

#[test]
fn vip_of_proxy_stays_while_its_owner_changes() {
    if privileged() {
        assert_vip_stays(PROXY6, (24, 64));
    }
}

#[test]
fn vip_of_layer_4_stays_while_its_owner_changes() {
    if privileged() {
        assert_vip_stays(&format!("{PROXY6}{LAYER_4}"), (32, 128));
    }
}

/// If the standby kept the address, both directors would reply to ARP requests for it.
#[test]
fn vip_is_removed_in_first_election_if_another_director_is_active() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    let with_interval = |priority: u8| config(priority, "").replace("100ms", "1s");
    pair.start("second", &with_interval(150));
    pair.wait_for_state("second", "active");
    pair.start_without_agent("director", WITHOUT_ROUTER);
    pair.wait_for("the VIP to be added", || pair.holds("director", VIP));
    pair.reload("director", &with_interval(100));
    pair.wait_for_holder("second");
    pair.wait_for("the active peer to be reported", || {
        pair.router("director")["active_peer"] == "10.0.0.4"
    });
    let router = pair.router("director");
    assert_eq!(
        (&router["state"], router["takeovers"].as_u64()),
        (&"backup".into(), Some(0))
    );
    let log = pair.log("director");
    assert!(
        log.contains("removing addresses that were handed over"),
        "{log}"
    );
    assert_eq!(pair.router("second")["takeovers"], 1);

    // When a standby becomes the owner, it adds the address immediately.
    pair.stop_and_wait("second");
    pair.wait_for_holder("director");
    pair.reload("director", WITHOUT_ROUTER);
    pair.wait_for("the new owner to add the VIP", || {
        has_permanent_address(&pair, &format!("{VIP}/32"))
    });
}
