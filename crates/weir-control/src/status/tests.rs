//! Tests the status report, and defines the director that tests of other listings also use.

use std::net::IpAddr;
use std::time::{Duration, UNIX_EPOCH};

use weir_model::{Forward, Listener, Ports, Protocol};

use super::*;
use crate::snapshot::{
    CheckStatus, FlowTableStatus, InterfaceStatus, ServerState, ServerStatus, ServiceStatus,
    Snapshot, Totals, VipStatus,
};
use weir_probing::ProbeStats;
use weir_state::PoolState;

fn server(address: &str, forward: Forward, active: u64) -> ServerStatus {
    ServerStatus {
        name: address.to_owned(),
        address: address.parse().unwrap(),
        port: None,
        forward,
        weight: 2,
        effective_weight: 2,
        state: ServerState::Unchecked,
        reason: "no check is configured".to_owned(),
        since: UNIX_EPOCH + Duration::from_secs(1_795_201_200),
        overridden: None,
        active_connections: active,
        inactive_connections: 1,
        persistent_connections: active / 2,
        overloaded: active == 7,
        totals: Totals {
            connections: active + 1,
            packets_in: 100,
            bytes_in: 9000,
            ..Totals::default()
        },
        removed: false,
        check_weight: None,
        slow_start: None,
        ejected: None,
        warning: None,
        handshakes: (0, 0),
        last_syn_seconds: None,
        latency: None,
        checks: Vec::new(),
    }
}

fn service(name: &str, vip: IpAddr, servers: Vec<ServerStatus>) -> ServiceStatus {
    let listener = Listener {
        protocol: Protocol::Tcp,
        address: vip,
        ports: Ports::One(80),
    };
    ServiceStatus {
        name: name.to_owned(),
        origin: "file",
        listen: vec![listener.to_string()],
        vip: VipStatus::Local,
        forward: Forward::Direct,
        scheduler: "wlc".to_owned(),
        pool: "images".to_owned(),
        pool_state: (name == "six").then_some(PoolState::BelowQuorum),
        persistence: (name == "images").then(|| "5m /32 /128".to_owned()),
        one_packet: false,
        totals: Totals {
            connections: 12,
            stateless: 1,
            packets_in: 200,
            bytes_in: 18_000,
            ..Totals::default()
        },
        servers,
    }
}

/// Returns a director with two services of two servers each; one server is drained by an operator, and one is removed.
pub(crate) fn director() -> Snapshot {
    let mut drained = server("10.0.0.6", Forward::Tunnel, 4);
    drained.effective_weight = 0;
    drained.state = ServerState::Drain;
    drained.reason = "drained by an operator".to_owned();
    drained.overridden = Some("drain".to_owned());
    let mut first = server("10.0.0.5", Forward::Direct, 7);
    first.latency = Some(weir_latency::Summary {
        mean_ms: 2.25,
        p50_ms: 2.0,
        p90_ms: 3.5,
        p99_ms: 5.123,
        samples: 40,
        method: weir_latency::Method::Timestamps,
    });
    first.checks.push(CheckStatus {
        what: "tcp 10.0.0.5:80".to_owned(),
        state: "up",
        reason: "connected in 1ms".to_owned(),
        results: "+++-++".to_owned(),
        counts: weir_health::ProbeCounts {
            probes: 40,
            failures: 2,
            total_duration: Duration::from_millis(60),
            last_duration: Duration::from_millis(2),
            downs: 1,
            downtime: Duration::from_secs(90),
            down_since: None,
            thresholds: (2, 3),
        },
    });
    let mut removed = server("10.0.0.7", Forward::Direct, 1);
    removed.removed = true;
    Snapshot {
        revision: 3,
        proxies: Vec::new(),
        open_files: None,
        traces: None,
        interfaces: vec![InterfaceStatus {
            name: "eth0".to_owned(),
            mode: "native",
            reason: "the driver supports native XDP".to_owned(),
        }],
        services: vec![
            service(
                "images",
                "192.0.2.10".parse().unwrap(),
                vec![first.clone(), drained],
            ),
            service("six", "2001:db8::1".parse().unwrap(), vec![first, removed]),
        ],
        drift: crate::snapshot::Drift::default(),
        latency: vec![("samples", "samples", 40), ("early", "too early", 0)],
        reasons: vec![
            ("tx_echo", "ICMP echo to a VIP answered", 12),
            ("no-server", "no usable server", 0),
        ],
        probing: ProbeStats::default(),
        flows: FlowTableStatus {
            slots: 1_048_576,
            entries: 13,
            expired: 2,
        },
    }
}

#[test]
fn document_has_the_documented_fields() {
    let report = Report::from(&director());
    insta::assert_snapshot!(serde_json::to_string_pretty(&report).unwrap());
}

#[test]
fn document_round_trips_through_json() {
    let report = Report::from(&director());
    let text = serde_json::to_string(&report).unwrap();
    assert_eq!(serde_json::from_str::<Report>(&text).unwrap(), report);
}

#[test]
fn removed_server_does_not_make_a_service_mixed() {
    let mut director = director();
    director.services[1].servers[1].forward = Forward::Tunnel;
    let report = Report::from(&director);
    assert_eq!(report.services[0].forward, "mixed");
    assert_eq!(report.services[1].forward, "direct");
}
