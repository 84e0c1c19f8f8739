//! Tests the choices of every scheduler for real packets, with changes in between.
//!
//! The model uses weir-sched's reference implementations, and the tests list some of the kernel's choice sequences.

use weir_abi::{Forward, Reason, State};
use weir_sched::{Kind, Mode};

use crate::bench::{Bench, NewServer, Xdp};
use crate::wire::{ACK, FIN, SYN, Shape, at};

pub(crate) const VIP: &str = "192.0.2.10";
const VIP6: &str = "2001:db8::10";

/// A step of a script.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Step {
    /// This many new flows start.
    Flows(u16),
    /// The latest flow of the server with this number ends.
    End(u16),
    Add(u32),
    SetWeight(usize, u32),
    Remove(usize),
    /// The server reaches its threshold.
    Fill(usize),
    /// The server is below its threshold again.
    Empty(usize),
}
use Step::{Add, Empty, End, Fill, Flows, Remove, SetWeight};

pub(crate) struct Script<'a> {
    pub(crate) bench: &'a mut Bench,
    pub(crate) service: u32,
    port: u16,
    dests: Vec<u32>,
    vip: &'static str,
    pub(crate) flow: u16,
}

impl<'a> Script<'a> {
    pub(crate) fn new(
        bench: &'a mut Bench,
        kind: Kind,
        mode: Mode,
        by_port: bool,
        vip: &'static str,
    ) -> Self {
        let service = bench.add_service_with(kind, mode, by_port);
        let port = bench.next_port();
        bench.listen(service, vip, port);
        Self {
            bench,
            service,
            port,
            dests: Vec::new(),
            vip,
            flow: 0,
        }
    }

    pub(crate) fn set_max_load(&mut self, max_load: Option<u32>) {
        let schedules = &mut self.bench.model.scheduler_mut().schedules;
        schedules.get_mut(&self.service).unwrap().max_load = max_load;
    }

    fn frame(&self, flow: u16, flags: weir_wire::TcpFlags) -> Vec<u8> {
        let client = match self.vip {
            VIP => format!("198.51.{}.{}", flow % 7, flow % 251),
            _ => format!("2001:db8:{}::{}", flow % 7, flow % 251),
        };
        Shape::tcp(flags).arriving(at(&client, 1000 + flow), at(self.vip, self.port))
    }

    /// Disables the tree of the service's list.
    pub(crate) fn disable_tree(&mut self) {
        let schedules = &mut self.bench.model.scheduler_mut().schedules;
        schedules.get_mut(&self.service).unwrap().treeless = true;
    }

    /// Runs the steps. Returns the numbers of the chosen servers; 0 = none.
    pub(crate) fn run(&mut self, steps: &[Step]) -> Vec<usize> {
        let mut chosen = Vec::new();
        for step in steps {
            match *step {
                Flows(count) => {
                    for _ in 0..count {
                        self.flow += 1;
                        let outcome = self.bench.send(&self.frame(self.flow, SYN));
                        let dest = u32::from(outcome.frame[5]);
                        let number = self
                            .dests
                            .iter()
                            .position(|row| *row == dest)
                            .map_or(0, |index| index + 1);
                        let forwarded = outcome.verdict == Xdp::Tx && outcome.counted.is_empty();
                        chosen.push(if forwarded { number } else { 0 });
                    }
                }
                End(flow) => {
                    self.bench.send(&self.frame(flow, FIN));
                }
                Add(weight) => {
                    let address = match self.vip {
                        VIP => format!("10.0.0.{}", self.dests.len() + 1),
                        _ => format!("fd00::{}", self.dests.len() + 1),
                    };
                    let server = NewServer::new(Forward::Direct, &address).weight(weight);
                    self.dests.push(self.bench.add(self.service, server));
                }
                SetWeight(number, weight) => {
                    self.bench
                        .set_weight(self.service, self.dests[number - 1], weight)
                }
                Remove(number) => {
                    self.bench
                        .remove(self.service, self.dests[number - 1], weir_abi::DEST_LIVE)
                }
                Fill(number) => self.bench.set_overloaded(self.dests[number - 1], true),
                Empty(number) => self.bench.set_overloaded(self.dests[number - 1], false),
            }
        }
        chosen
    }
}

/// Scripts for all schedulers; the model determines the correct result.
const SCRIPTS: [&[Step]; 7] = [
    &[
        Add(1),
        Add(1),
        Add(1),
        Flows(10),
        Add(1),
        Flows(10),
        Remove(2),
        Flows(10),
        Add(1),
        Flows(10),
    ],
    &[
        Add(5),
        Add(1),
        Add(3),
        Flows(20),
        SetWeight(1, 2),
        Flows(12),
        SetWeight(3, 0),
        Flows(12),
        SetWeight(3, 9),
        Flows(24),
    ],
    &[
        Add(1),
        Flows(3),
        Remove(1),
        Flows(2),
        Add(2),
        Flows(3),
        Add(7),
        Flows(10),
        Remove(2),
        Flows(5),
    ],
    &[
        Add(4),
        Add(2),
        Add(6),
        Flows(13),
        End(2),
        End(3),
        End(5),
        Flows(6),
        SetWeight(2, 100),
        Flows(30),
        Remove(1),
        Flows(9),
    ],
    &[
        Add(0),
        Add(0),
        Flows(2),
        SetWeight(2, 3),
        Flows(4),
        SetWeight(1, 1),
        Flows(8),
        SetWeight(2, 0),
        SetWeight(1, 0),
        Flows(2),
        SetWeight(1, 1),
        Flows(3),
    ],
    &[
        Add(3),
        Add(1),
        Add(2),
        Flows(5),
        Fill(1),
        Flows(7),
        Fill(3),
        Flows(4),
        Fill(2),
        Flows(3),
        Empty(1),
        Flows(6),
        Empty(3),
        Flows(6),
    ],
    &[
        Add(5),
        Add(0),
        Add(2),
        Add(7),
        Fill(4),
        Flows(6),
        Remove(3),
        Fill(1),
        Flows(2),
        SetWeight(2, 4),
        Flows(5),
        Empty(4),
        Flows(20),
    ],
];

fn run_scripts(kind: Kind, mode: Mode, port: bool) {
    run_all_scripts(kind, mode, port, None);
}

fn run_bounded_scripts(kind: Kind, mode: Mode, max_load: Option<u32>) {
    run_all_scripts(kind, mode, false, max_load);
}

fn run_all_scripts(kind: Kind, mode: Mode, port: bool, max_load: Option<u32>) {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    bench.seed_random_numbers(4711);
    for vip in [VIP, VIP6] {
        for steps in SCRIPTS {
            let mut script = Script::new(&mut bench, kind, mode, port, vip);
            script.set_max_load(max_load);
            let chosen = script.run(steps);
            // dh assigns one server to a VIP, which may be the unavailable one.
            assert!(
                kind == Kind::Dh || chosen.iter().any(|number| *number > 0),
                "{kind} {vip}: {chosen:?}"
            );
        }
    }
    bench.assert_same_state();
}

#[test]
fn rr_matches_the_model() {
    run_scripts(Kind::Rr, Mode::Repair, false);
}

#[test]
fn wrr_matches_the_model() {
    run_scripts(Kind::Wrr, Mode::Repair, false);
}

#[test]
fn lc_matches_the_model() {
    run_scripts(Kind::Lc, Mode::Repair, false);
}

#[test]
fn wlc_matches_the_model() {
    run_scripts(Kind::Wlc, Mode::Repair, false);
}

#[test]
fn sed_matches_the_model() {
    run_scripts(Kind::Sed, Mode::Repair, false);
}

#[test]
fn nq_matches_the_model() {
    run_scripts(Kind::Nq, Mode::Repair, false);
}

#[test]
fn fo_matches_the_model() {
    run_scripts(Kind::Fo, Mode::Repair, false);
}

#[test]
fn ovf_matches_the_model() {
    run_scripts(Kind::Ovf, Mode::Repair, false);
}

#[test]
fn twos_matches_the_model() {
    run_scripts(Kind::Twos, Mode::Repair, false);
}

#[test]
fn p2c_matches_the_model() {
    run_scripts(Kind::P2c, Mode::Repair, false);
}

#[test]
fn maglev_matches_the_model() {
    run_scripts(Kind::Maglev, Mode::Repair, false);
}

#[test]
fn lblc_matches_the_model() {
    run_scripts(Kind::Lblc, Mode::Repair, false);
}

#[test]
fn lblcr_matches_the_model() {
    run_scripts(Kind::Lblcr, Mode::Repair, false);
}

#[test]
fn bounded_load_matches_the_model() {
    for (kind, mode) in [
        (Kind::Sh, Mode::Repair),
        (Kind::Dh, Mode::Repair),
        (Kind::Mh, Mode::Fallback),
        (Kind::Maglev, Mode::Fallback),
    ] {
        run_bounded_scripts(kind, mode, Some(125));
    }
}

#[test]
fn dh_matches_the_model() {
    for mode in [Mode::Repair, Mode::Strict] {
        run_scripts(Kind::Dh, mode, false);
    }
}

#[test]
fn sh_matches_the_model() {
    for (mode, port) in [
        (Mode::Repair, false),
        (Mode::Strict, true),
        (Mode::Fallback, true),
    ] {
        run_scripts(Kind::Sh, mode, port);
    }
}

#[test]
fn mh_matches_the_model() {
    for (mode, port) in [
        (Mode::Repair, false),
        (Mode::Strict, true),
        (Mode::Fallback, true),
    ] {
        run_scripts(Kind::Mh, mode, port);
    }
}

#[test]
fn rr_walks_from_the_newest_to_the_oldest() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let mut script = Script::new(&mut bench, Kind::Rr, Mode::Repair, false, VIP);
    assert_eq!(
        script.run(&[Add(1), Add(1), Add(1), Flows(5)]),
        [3, 2, 1, 3, 2]
    );
    // The cursor is at server 2; the new server is at the head of the list.
    assert_eq!(script.run(&[Add(1), Flows(4)]), [1, 4, 3, 2]);
    assert_eq!(script.run(&[Remove(2), Flows(4)]), [1, 4, 3, 1]);
}

#[test]
fn wrr_walks_by_descending_weight() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let mut script = Script::new(&mut bench, Kind::Wrr, Mode::Repair, false, VIP);
    // While there was only the first server, there was one pass, with weight 1: the walk begins with this pass and
    // continues with 3, 2 and 1.
    assert_eq!(
        script.run(&[Add(3), Add(1), Flows(8)]),
        [2, 1, 1, 1, 2, 1, 1, 1]
    );
}

#[test]
fn wlc_distributes_flows_by_weight() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let mut script = Script::new(&mut bench, Kind::Wlc, Mode::Repair, false, VIP);
    let chosen = script.run(&[Add(1), Add(3), Flows(40)]);
    assert_eq!(chosen.iter().filter(|number| **number == 2).count(), 30);
}

#[test]
fn lc_returns_to_an_idle_server() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let mut script = Script::new(&mut bench, Kind::Lc, Mode::Repair, false, VIP);
    assert_eq!(script.run(&[Add(1), Add(9), Flows(4)]), [2, 1, 2, 1]);
    // Flows 2 and 4 belong to the first server; flows that have ended hardly contribute to the load.
    assert_eq!(script.run(&[End(2), End(4), Flows(2)]), [1, 1]);
}

#[test]
fn hashing_schedulers_use_the_source() {
    for kind in [Kind::Sh, Kind::Mh] {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        let servers =
            [1, 2, 3, 4].map(|last| NewServer::new(Forward::Direct, &format!("10.0.0.{last}")));
        bench.serve(kind, (VIP, 80), &servers);
        let mut used_servers = std::collections::BTreeSet::new();
        for last in 1..=40u8 {
            let mut chosen = std::collections::BTreeSet::new();
            for port in 1000..1004 {
                let frame =
                    Shape::tcp(SYN).arriving(at(&format!("198.51.100.{last}"), port), at(VIP, 80));
                chosen.insert(bench.send(&frame).frame[5]);
            }
            assert_eq!(
                chosen.len(),
                1,
                "{kind}: all ports of a client must use one server"
            );
            used_servers.extend(chosen);
        }
        assert_eq!(used_servers.len(), 4, "{kind}: all servers must be used");
        bench.assert_same_state();
    }
}

/// Schedulers that use a tree or a table for long lists, each with the bound on a server's load.
pub(crate) const TREE_SCHEDULERS: [(Kind, Option<u32>); 14] = [
    (Kind::Rr, None),
    (Kind::Wrr, None),
    (Kind::Lc, None),
    (Kind::Wlc, None),
    (Kind::Sed, None),
    (Kind::Nq, None),
    (Kind::Fo, None),
    (Kind::Ovf, None),
    (Kind::Lblcr, None),
    (Kind::Twos, None),
    (Kind::P2c, None),
    (Kind::Sh, Some(125)),
    (Kind::Mh, Some(110)),
    (Kind::Maglev, Some(125)),
];

/// Tests lists that are too long to be searched, while counts and weights change, servers are removed, and thresholds
/// are reached. The model searches the list.
#[test]
fn long_lists_match_the_model() {
    for (kind, max_load) in TREE_SCHEDULERS {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        bench.seed_random_numbers(4711);
        let mut script = Script::new(&mut bench, kind, Mode::Repair, false, VIP);
        script.set_max_load(max_load);
        script.run(&[Add(1); 20]);
        let weights = [3, 1, 4, 1, 5, 9, 2, 6, 5, 3];
        let edits: Vec<Step> = (1..=10)
            .map(|number| SetWeight(number, weights[number - 1]))
            .collect();
        script.run(&edits);
        for round in 0..4 {
            script.run(&[Flows(30)]);
            let ends: Vec<Step> = (1..30)
                .step_by(3)
                .map(|flow| End(script.flow - flow))
                .collect();
            script.run(&ends);
            script.run(&[Fill(round * 4 + 1), Fill(20 - round), Flows(8)]);
            script.run(&[Empty(20 - round), Flows(4)]);
            let service = script.service;
            assert!(
                script.bench.has_matching_tree(service),
                "{kind} must have a tree"
            );
        }
        // Sixteen servers remain: a short list, then a long list again.
        script.run(&[Remove(2), Remove(3), Remove(4), Remove(6), Flows(6)]);
        assert!(!script.bench.has_matching_tree(script.service), "{kind}");
        script.run(&[Add(2), Add(3), Flows(20)]);
        assert!(script.bench.has_matching_tree(script.service), "{kind}");
        bench.assert_same_state();
    }
}

#[test]
fn full_servers_are_removed_from_the_tree_and_readded() {
    let Some(mut bench) = Bench::open() else {
        return;
    };
    for kind in [Kind::Wrr, Kind::Wlc, Kind::Fo] {
        bench.change_settings(|settings| settings.timeouts[State::TimeWait as usize] = 60);
        let mut script = Script::new(&mut bench, kind, Mode::Repair, false, VIP);
        script.run(&[Add(1); 20]);
        for dest in script.dests.clone() {
            script.bench.set_thresholds(dest, 2, 0);
        }
        for _ in 0..40 {
            assert_ne!(script.run(&[Flows(1)]), [0], "{kind}");
            assert!(script.bench.has_matching_tree(script.service), "{kind}");
        }
        assert_eq!(
            script.run(&[Flows(1)]),
            [0],
            "{kind}: all servers must be full"
        );
        // A flow that a FIN has closed ends with the next packet.
        script
            .bench
            .change_settings(|settings| settings.timeouts[State::TimeWait as usize] = u32::MAX);
        for flow in [40, 7, 21] {
            script.run(&[End(flow)]);
            let after = script.frame(flow, ACK);
            assert_eq!(script.bench.send(&after).counted, [Reason::PassNoFlow]);
            assert!(script.bench.has_matching_tree(script.service), "{kind}");
        }
        let chosen = script.run(&[Flows(3)]);
        assert!(!chosen.contains(&0), "{kind}: {chosen:?}");
        assert_eq!(
            script.run(&[Flows(1)]),
            [0],
            "{kind}: all servers must be full again"
        );
    }
    bench.assert_same_state();
}

/// A service whose servers share their counts with another service's servers, which are in a different order.
struct Sharing {
    service: u32,
    port: u16,
    /// Rows by server number.
    dests: Vec<u32>,
}

impl Sharing {
    /// Creates the services. The rows of counts follow the rows of servers.
    fn new(
        bench: &mut Bench,
        kind: Kind,
        first_row: u32,
        numbers: impl Iterator<Item = u32>,
    ) -> Self {
        let service = bench.add_service(kind);
        let port = bench.next_port();
        bench.listen(service, VIP, port);
        let mut dests = std::collections::BTreeMap::new();
        for number in numbers {
            let server = NewServer::new(Forward::Direct, &format!("10.0.0.{}", number + 1))
                .weight(1 + number % 3)
                .row(|row| row.live = first_row + number);
            dests.insert(number, bench.add(service, server));
        }
        Self {
            service,
            port,
            dests: dests.into_values().collect(),
        }
    }

    fn send(&self, bench: &mut Bench, flow: u16, flags: weir_wire::TcpFlags) -> u32 {
        let client = at(&format!("198.51.{}.{}", flow % 7, flow % 251), 1000 + flow);
        let outcome = bench.send(&Shape::tcp(flags).arriving(client, at(VIP, self.port)));
        let forwarded = outcome.verdict == Xdp::Tx && outcome.counted.is_empty();
        if forwarded {
            u32::from(outcome.frame[5])
        } else {
            0
        }
    }
}

/// Tests that the counts of a shared pool are updated in the trees of all its services.
#[test]
fn counts_of_shared_pool_update_all_services() {
    const SERVERS: u32 = 24;
    for kind in [Kind::Wlc, Kind::Sed, Kind::Nq, Kind::Ovf, Kind::Twos] {
        let Some(mut bench) = Bench::open() else {
            return;
        };
        bench.seed_random_numbers(4711);
        let first_row = bench.plane.sizes().dests;
        let first = Sharing::new(&mut bench, kind, first_row, 0..SERVERS);
        let reversed = Sharing::new(&mut bench, kind, first_row, (0..SERVERS).rev());
        let short_list = Sharing::new(&mut bench, kind, first_row, 0..5);
        for number in 0..SERVERS as usize {
            let ring = [&first, &reversed, &short_list];
            let rows: Vec<u32> = ring
                .iter()
                .filter_map(|service| service.dests.get(number).copied())
                .collect();
            bench.link_shared_counts(&rows);
        }
        for service in [&first, &reversed, &short_list] {
            let last = 1 + (service.dests.len() as u32 - 1) % 3;
            bench.set_weight(
                service.service,
                service.dests[service.dests.len() - 1],
                last,
            );
        }
        for flow in 1..100 {
            let service = [&first, &reversed, &short_list][flow as usize % 3];
            service.send(&mut bench, flow, SYN);
            if flow % 4 == 0 {
                let ended = flow - 3;
                let service = [&first, &reversed, &short_list][ended as usize % 3];
                service.send(&mut bench, ended, FIN);
            }
            assert!(bench.has_matching_tree(first.service), "{kind}");
            assert!(bench.has_matching_tree(reversed.service), "{kind}");
        }
        // A server was removed from one service: the other services still count its last flows.
        bench.remove(first.service, first.dests[3], weir_abi::DEST_LIVE);
        for flow in (2..99).step_by(5) {
            let service = [&first, &reversed, &short_list][flow as usize % 3];
            service.send(&mut bench, flow, FIN);
            assert!(bench.has_matching_tree(reversed.service), "{kind}");
        }
        bench.assert_same_state();
    }
}

/// Tests that a server that reaches its threshold in one service is removed from the trees of all services.
#[test]
fn shared_threshold_applies_to_all_services() {
    const SERVERS: u32 = 20;
    let Some(mut bench) = Bench::open() else {
        return;
    };
    let first_row = bench.plane.sizes().dests;
    let wlc = Sharing::new(&mut bench, Kind::Wlc, first_row, 0..SERVERS);
    let rr = Sharing::new(&mut bench, Kind::Rr, first_row, 0..SERVERS);
    for number in 0..SERVERS as usize {
        bench.link_shared_counts(&[wlc.dests[number], rr.dests[number]]);
        bench.set_thresholds(wlc.dests[number], 2, 0);
    }
    bench.set_weight(wlc.service, wlc.dests[0], 1);
    bench.set_weight(rr.service, rr.dests[0], 1);
    for flow in 0..2 * SERVERS as u16 {
        let service = if flow % 3 == 0 { &rr } else { &wlc };
        let chosen = service.send(&mut bench, flow, SYN);
        assert!(service.dests.contains(&chosen), "{flow}");
        assert!(bench.has_matching_tree(wlc.service) && bench.has_matching_tree(rr.service));
    }
    for service in [&wlc, &rr] {
        let chosen = service.send(&mut bench, 900 + service.port, SYN);
        assert_eq!(chosen, 0, "all servers must be full");
    }
    bench.assert_same_state();
}
