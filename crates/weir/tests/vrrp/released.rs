//! Tests that releases, start delays and the times of state changes survive the replacement of the agent.

use std::time::Duration;

use serde_json::Value;

use super::pair::{Pair, VIP};
use super::world::privileged;
use super::{MIN_PROCESS_AGE, config, two_directors};

fn wait_for_next_agent(pair: &Pair, host: &str, agent: u32) {
    pair.wait_for("the next agent", || {
        let next = pair.find_process(host, "vrrp-agent");
        next.is_some_and(|next| next != agent) && pair.try_weir(host, &["vrrp"]).status.success()
    });
}

fn kill_agent(pair: &Pair, host: &str) {
    std::thread::sleep(MIN_PROCESS_AGE);
    let agent = pair.process_id(host, "vrrp-agent");
    pair.kill(agent);
    wait_for_next_agent(pair, host, agent);
}

fn upgrade(pair: &Pair, host: &str, program: &str) {
    let agent = pair.process_id(host, "vrrp-agent");
    pair.weir(host, &["upgrade", program]);
    wait_for_next_agent(pair, host, agent);
}

fn wait_until_released(pair: &Pair, host: &str) {
    let is_released = |router: &Value| {
        router["state"] == "fault" && router["reason"] == "released by an operator"
    };
    pair.wait_for("all virtual routers to be released", || {
        let routers = pair.routers(host);
        let routers = routers.as_array().filter(|routers| !routers.is_empty());
        routers.is_some_and(|routers| routers.iter().all(is_released))
    });
}

fn reload(pair: &Pair, host: &str, config: &str) {
    let count = || {
        let log = pair.log(host);
        log.matches("virtual routers are configured").count()
    };
    let before = count();
    pair.reload(host, config);
    pair.wait_for("the agent to reload", || count() > before);
}

#[test]
fn release_and_drain_continue_after_crash_upgrade_and_reload() {
    if !privileged() {
        return;
    }
    let pair = two_directors();
    // Copy the program, because the upgrade would not restart the same file.
    let next = pair.path("weir-next");
    std::fs::copy(env!("CARGO_BIN_EXE_weir"), &next).expect("copy the file");
    let one_address = format!("\"{VIP}/24\"");
    let two_addresses = format!("\"{VIP}/24\", \"10.0.0.11/32\"");
    let with_two_addresses = config(150, "").replace(&one_address, &two_addresses);
    let with_second_router = config(
        150,
        "[vrrp.added]\ninterface = \"eth0\"\nvirtual_router_id = 52\nversion = 3\n\
         advert_interval = \"100ms\"\naddresses = [\"10.0.0.12/32\"]",
    );
    let cases: [(&[&str], &[&str], _, _); 2] = [
        (
            &["vrrp", "outside", "release"],
            &["vrrp", "outside", "resume"],
            next.as_str(),
            &with_two_addresses,
        ),
        (
            &["node", "drain"],
            &["node", "ready"],
            env!("CARGO_BIN_EXE_weir"),
            &with_second_router,
        ),
    ];
    for (release, resume, program, config) in cases {
        pair.wait_for_holder("director");
        pair.weir("director", release);
        pair.wait_for_holder("second");
        let takeovers = pair.router("second")["takeovers"].clone();
        wait_until_released(&pair, "director");
        let since = pair.router("director")["since"].clone();
        kill_agent(&pair, "director");
        wait_until_released(&pair, "director");
        upgrade(&pair, "director", program);
        wait_until_released(&pair, "director");
        assert_eq!(pair.router("director")["since"], since);
        // The list of addresses changes, so the reload re-creates the virtual router.
        reload(&pair, "director", config);
        wait_until_released(&pair, "director");
        assert_eq!(pair.router("second")["takeovers"], takeovers);
        pair.weir("director", resume);
    }
    pair.wait_for_holder("director");
    pair.wait_for("the added virtual router", || {
        pair.holds("director", "10.0.0.12")
    });
    assert!(
        agent_is_replaced_in_time(&pair),
        "no new agent continued the state"
    );
}

/// Kills the agent of the active director. Returns whether the next agent continues its state. This is repeated if the
/// machine is so busy that the next agent starts too late.
fn agent_is_replaced_in_time(pair: &Pair) -> bool {
    (0..5).any(|_| {
        pair.wait_for_state("director", "active");
        let before = pair.router("director");
        kill_agent(pair, "director");
        pair.wait_for_state("director", "active");
        pair.router("director")["since"] == before["since"]
    })
}

/// If two agents die within a second, the keeper starts the agent and the helper again after a pause.
#[test]
fn release_continues_after_two_crashes_in_a_row() {
    if !privileged() {
        return;
    }
    let pair = two_directors();
    pair.weir("director", &["vrrp", "outside", "release"]);
    pair.wait_for_holder("second");
    std::thread::sleep(MIN_PROCESS_AGE);
    let is_restarted = || {
        let log = pair.log("director");
        log.contains("failed to replace the VRRP agent")
    };
    while !is_restarted() {
        if let Some(agent) = pair.find_process("director", "vrrp-agent") {
            pair.kill(agent);
        }
        std::thread::sleep(Duration::from_millis(20));
    }
    wait_until_released(&pair, "director");
    assert!(pair.holds("second", VIP));
}

#[test]
fn start_delay_does_not_begin_again_in_next_agent() {
    if !privileged() {
        return;
    }
    let mut pair = Pair::new();
    pair.start("director", &config(150, ""));
    pair.wait_for_state("director", "active");
    pair.start("second", &config(100, "start_delay = \"5s\""));
    pair.wait_for_state("second", "backup");
    kill_agent(&pair, "second");
    let router = pair.router("second");
    assert_eq!(router["state"], "backup", "{router}");
}
