//! Tests the decisions in virtual time.

use std::net::Ipv4Addr;
use std::path::PathBuf;

use weir_model::{Announce, RequiredServices, Speaker};

use super::*;
use crate::message::VipState;

const A: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 10));
const B: IpAddr = IpAddr::V4(Ipv4Addr::new(192, 0, 2, 11));

fn daemon_report(vips: &[(IpAddr, bool)], is_draining: bool) -> DaemonReport {
    DaemonReport {
        settings: Announce {
            speaker: Speaker::Exabgp {
                pipe: PathBuf::new(),
            },
            withdraw_after: Duration::from_secs(10),
            drain_delay: Duration::from_secs(5),
            services: None,
            require: RequiredServices::Any,
            communities: Vec::new(),
            drain_communities: Vec::new(),
        },
        vips: vips
            .iter()
            .map(|(vip, serves)| VipState {
                vip: *vip,
                serves: *serves,
                reason: if *serves { "" } else { "web: down" }.to_owned(),
                settling: false,
            })
            .collect(),
        is_draining,
    }
}

/// [`Decisions`] with a virtual clock in milliseconds.
struct Run {
    decisions: Decisions,
    now: Duration,
}

impl Run {
    fn new(inherited: &[IpAddr]) -> Self {
        let decisions = Decisions::new(
            inherited.iter().copied(),
            Duration::from_secs(10),
            (Duration::ZERO, Duration::ZERO),
        );
        Self {
            decisions,
            now: Duration::ZERO,
        }
    }

    fn send(&mut self, vips: &[(IpAddr, bool)], is_draining: bool) {
        let now = (self.now, self.now);
        self.decisions
            .handle_daemon_report(&daemon_report(vips, is_draining), now);
    }

    /// Advances the clock. Handles each deadline exactly when it is due, and sends the report every second unless
    /// `vips` is empty.
    fn advance(&mut self, milliseconds: u64, vips: &[(IpAddr, bool)], is_draining: bool) {
        for _ in 0..milliseconds {
            self.now += Duration::from_millis(1);
            if self
                .decisions
                .next_deadline()
                .is_some_and(|deadline| deadline <= self.now)
            {
                self.decisions.handle_timeout((self.now, self.now));
            }
            if self.now.subsec_millis() == 0 && !vips.is_empty() {
                self.send(vips, is_draining);
            }
        }
    }

    fn routes(&self) -> Vec<(IpAddr, Quality)> {
        self.decisions.routes().into_iter().collect()
    }

    /// Returns the state of a VIP and the reason.
    fn state(&self, vip: IpAddr) -> (String, String) {
        let report = self.decisions.report();
        let route = report.into_iter().find(|route| route.vip == vip).unwrap();
        (route.state, route.reason)
    }
}

#[test]
fn vip_is_announced_or_withdrawn_immediately_when_its_services_change() {
    let mut run = Run::new(&[]);
    run.send(&[(A, true), (B, false)], false);
    assert_eq!(run.routes(), [(A, Quality::Normal)]);
    assert_eq!(run.state(B), ("withdrawn".into(), "web: down".into()));
    run.advance(1_000, &[], false);
    run.send(&[(A, false), (B, true)], false);
    assert_eq!(run.routes(), [(B, Quality::Normal)]);
    assert_eq!(run.state(A), ("withdrawn".into(), "web: down".into()));
    // The first withdrawal does not delay the next announcement.
    run.send(&[(A, true), (B, true)], false);
    assert_eq!(run.routes(), [(A, Quality::Normal), (B, Quality::Normal)]);
    // A VIP that is no longer configured is withdrawn.
    run.send(&[(B, true)], false);
    assert_eq!(run.routes(), [(B, Quality::Normal)]);
}

#[test]
fn repeated_withdrawals_delay_announcement_until_vip_is_stable() {
    let mut run = Run::new(&[]);
    for pause in [
        0, 1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000,
    ] {
        run.send(&[(A, true)], false);
        assert_eq!(run.routes(), [(A, Quality::Normal)]);
        run.send(&[(A, false)], false);
        assert_eq!(run.routes(), []);
        run.send(&[(A, true)], false);
        if pause > 0 {
            run.advance(pause - 1, &[(A, true)], false);
            assert_eq!(run.routes(), [], "before {pause} ms");
            run.advance(1, &[(A, true)], false);
        }
        assert_eq!(run.routes(), [(A, Quality::Normal)], "after {pause} ms");
    }
    run.advance(60_000, &[(A, true)], false);
    run.send(&[(A, false)], false);
    run.send(&[(A, true)], false);
    assert_eq!(run.routes(), [(A, Quality::Normal)]);
}

#[test]
fn routes_of_drained_node_are_last_resort_before_withdrawal() {
    let mut run = Run::new(&[]);
    let vips = [(A, true), (B, false)];
    run.send(&vips, false);
    run.send(&vips, true);
    assert_eq!(run.routes(), [(A, Quality::LastResort)]);
    run.advance(4_999, &vips, true);
    assert_eq!(run.routes(), [(A, Quality::LastResort)]);
    run.advance(1, &vips, true);
    assert_eq!(run.routes(), []);
    assert_eq!(
        run.state(A),
        ("withdrawn".into(), "the node is drained".into())
    );
    // A VIP whose services can serve only after the drain is not announced.
    run.send(&[(A, true), (B, true)], true);
    assert_eq!(run.routes(), []);
    // Draining is not a failure, so the VIPs are announced without delay.
    run.send(&[(A, true), (B, true)], false);
    assert_eq!(run.routes(), [(A, Quality::Normal), (B, Quality::Normal)]);
}

#[test]
fn routes_are_withdrawn_if_daemon_is_silent_for_withdraw_after() {
    // A new announcer keeps the routes that the previous announcer announced.
    let mut run = Run::new(&[A]);
    run.advance(9_999, &[], false);
    assert_eq!(run.routes(), [(A, Quality::Normal)]);
    run.advance(1, &[], false);
    assert_eq!(run.routes(), []);
    assert_eq!(run.decisions.next_deadline(), None);
    let (state, reason) = run.state(A);
    assert!(
        state == "withdrawn" && reason.contains("withdraw_after"),
        "{reason}"
    );
    // A report from a daemon that starts later is applied immediately.
    run.send(&[(A, true)], false);
    assert_eq!(run.routes(), [(A, Quality::Normal)]);
}

#[test]
fn silence_is_measured_from_reply_to_report() {
    let mut run = Run::new(&[]);
    run.send(&[(A, true)], false);
    // The speaker takes three seconds.
    run.now = Duration::from_secs(3);
    run.decisions.handle_reply(run.now);
    run.advance(9_999, &[], false);
    assert_eq!(run.routes(), [(A, Quality::Normal)]);
    run.advance(1, &[], false);
    assert_eq!(run.routes(), []);
}

#[test]
fn new_vip_waits_for_first_check_results() {
    let vip: IpAddr = [192, 0, 2, 10].into();
    let mut run = Run::new(&[]);
    let announces_after_report = |run: &mut Run, settling: bool| {
        let mut report = daemon_report(&[(vip, true)], false);
        report.vips[0].settling = settling;
        run.decisions
            .handle_daemon_report(&report, (run.now, run.now));
        !run.decisions.routes().is_empty()
    };
    assert!(!announces_after_report(&mut run, true));
    assert_eq!(
        run.decisions.report()[0].reason,
        "waiting for check results or the group's data"
    );
    assert!(announces_after_report(&mut run, false));
    // A new server without a check result does not cause an announced VIP to be withdrawn.
    assert!(announces_after_report(&mut run, true));

    // The VIP is announced after the time limit, even without check results.
    let mut run = Run::new(&[]);
    assert!(!announces_after_report(&mut run, true));
    for second in 1..=10 {
        run.now = Duration::from_secs(second);
        let is_announced = announces_after_report(&mut run, true);
        assert_eq!(is_announced, second == 10, "after {second} s");
    }
}
