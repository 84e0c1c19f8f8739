//! Tests the format of the handover with data of version 0.1.0.

#[allow(clippy::duplicate_mod, reason = "each test module reads a part of it")]
#[path = "../../../../weir-state/tests/previous/mod.rs"]
mod previous;

use super::*;

const FIXTURE: &[u8] =
    include_bytes!("../../../../weir-state/tests/fixtures/v0.1.0/proxy-left.json");

#[test]
fn handover_of_0_1_0_is_read_and_written_in_its_format() {
    let mut handover: Handover = serde_json::from_slice(FIXTURE).unwrap();
    let services = handover.service_statuses();
    assert_eq!(services[0].servers.len(), 2);
    let states = handover.states(Overrides::default(), |_| true);
    let server_health = states.server_health("app", "127.0.0.1:7002").unwrap();
    assert_eq!(server_health.state, weir_health::State::Down);
    let written = Handover::new(&states, &services);
    let written: previous::OldHandover =
        serde_json::from_slice(&serde_json::to_vec(&written).unwrap()).unwrap();
    let expected: previous::OldHandover = serde_json::from_slice(FIXTURE).unwrap();
    assert_eq!(written, expected);
}

#[test]
fn health_of_pools_without_a_proxy_service_is_ignored() {
    let mut handover: Handover = serde_json::from_slice(FIXTURE).unwrap();
    let states = handover.states(Overrides::default(), |pool| pool == "app");
    assert!(states.server_health("app", "127.0.0.1:7001").is_some());
    assert!(states.server_health("web", "10.9.0.5").is_none());
    assert_eq!(states.exceptional_state("web"), None);
}
