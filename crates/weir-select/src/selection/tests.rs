//! Tests the action after each failure, the queueing of requests, and the responses if no server is usable.

use std::cell::Cell;
use std::net::IpAddr;
use std::sync::atomic::Ordering::Relaxed;

use weir_model::{RetryOn, Scheduler, SchedulerKind};

use super::*;
use crate::Load;
use crate::test_server::TestServer;

/// A pool and the other inputs of decisions.
struct Fixture {
    scheduler: SchedulerKind,
    servers: Vec<TestServer>,
    policy: RetryPolicy,
    balancer: Balancer,
    budget: Budget,
    random: SplitMix64,
    queued: u32,
    queue_timeout_ms: u64,
    no_server: NoServer,
    version: u32,
}

impl Fixture {
    /// Creates servers of weight 1 with these limits. All conditions and status 503 cause retries, at most two.
    fn new(limits: &[u32]) -> Self {
        let on = RetryOn {
            conditions: RetryCondition::ALL.to_vec(),
            statuses: vec![(503, 503)],
        };
        Self {
            scheduler: SchedulerKind::Rr,
            servers: limits
                .iter()
                .map(|limit| TestServer {
                    number: 1,
                    load: Load::new(1, *limit),
                })
                .collect(),
            policy: RetryPolicy::new(2, on),
            balancer: Balancer::default(),
            budget: Budget::default(),
            random: SplitMix64::new(42),
            queued: 0,
            queue_timeout_ms: 0,
            no_server: NoServer::Reject,
            version: 0,
        }
    }

    fn run<T>(&mut self, input: impl FnOnce(&mut SelectionContext<'_, TestServer>) -> T) -> T {
        let pool = Pool {
            scheduler: Scheduler::new(self.scheduler),
            servers: &self.servers,
            tier_starts: [self.servers.len(); 2],
            version: self.version,
            queued: self.queued,
            queue_timeout_ms: self.queue_timeout_ms,
            no_server: self.no_server,
        };
        input(&mut SelectionContext {
            pool: &pool,
            policy: &self.policy,
            balancer: &mut self.balancer,
            budget: &self.budget,
            random: &mut self.random,
            client: ([192, 0, 2, 1], 1000).into(),
            now_ms: 0,
        })
    }

    fn load(&self, server: usize) -> &Load {
        &self.servers[server].load
    }

    fn set_weight(&mut self, server: usize, weight: u32) {
        self.load(server).weight.store(weight, Relaxed);
        self.version += 1;
    }

    /// Returns a request that is connecting, and its server.
    fn connecting(&mut self, replay: Replay) -> (Selection, usize) {
        let mut selection = Selection::default();
        selection.set_replay(replay);
        let server = connected_server(self.run(|context| selection.select(context)));
        (selection, server)
    }

    fn fail(&mut self, selection: &mut Selection, failure: Failure) -> Verdict {
        self.run(|context| selection.handle_failure(failure, context))
    }
}

fn connected_server(output: Output) -> usize {
    match output {
        Output::Connect { server, .. } => server,
        other => panic!("{other:?}"),
    }
}

const RETRY: Next = Next::Select {
    attempt: AttemptKind::Retry,
};
const REPETITION: Next = Next::Select {
    attempt: AttemptKind::Repetition,
};

const fn respond(status: u16, reason: Reason) -> Next {
    Next::Respond { status, reason }
}

const fn lost(reused: bool, head_started: bool) -> Failure {
    Failure::Lost {
        reused,
        head_started,
    }
}

/// Every failure, with its fault and the response if there is no retry.
const FAILURES: [(Failure, Option<Fault>, Next); 8] = {
    use Fault::{BadResponse, Unreachable};
    [
        (
            Failure::Connect,
            Some(Unreachable),
            respond(502, Reason::NoConnection),
        ),
        (
            Failure::ConnectTimeout,
            Some(Unreachable),
            respond(504, Reason::ConnectTimeout),
        ),
        (
            Failure::TotalTimeoutConnecting,
            None,
            respond(504, Reason::ConnectTimeout),
        ),
        (
            lost(false, false),
            Some(BadResponse),
            respond(502, Reason::BadResponse),
        ),
        (
            lost(false, true),
            Some(BadResponse),
            respond(502, Reason::BadResponse),
        ),
        (
            lost(true, true),
            Some(BadResponse),
            respond(502, Reason::BadResponse),
        ),
        (
            Failure::ResponseTimeout,
            Some(BadResponse),
            respond(504, Reason::ResponseTimeout),
        ),
        (
            Failure::TotalTimeout,
            Some(BadResponse),
            respond(504, Reason::ResponseTimeout),
        ),
    ]
};

fn is_total(failure: Failure) -> bool {
    matches!(
        failure,
        Failure::TotalTimeout | Failure::TotalTimeoutConnecting
    )
}

#[test]
fn failures_are_retried_on_a_different_server() {
    for (failure, fault, response_without_retry) in FAILURES {
        let mut fixture = Fixture::new(&[0, 0]);
        let (mut selection, server) = fixture.connecting(Replay::Allowed);
        let next = if is_total(failure) {
            response_without_retry
        } else {
            RETRY
        };
        let verdict = fixture.fail(&mut selection, failure);
        assert_eq!(verdict, Verdict { fault, next }, "{failure:?}");
        if next == RETRY {
            fixture.load(server).release();
            let other = connected_server(fixture.run(|context| selection.select(context)));
            assert_ne!(other, server, "{failure:?}");
            assert_eq!(selection.retries(), 1);
        }
    }
}

#[test]
fn failures_are_not_retried_without_rule_server_retries_or_budget() {
    for (failure, fault, next) in FAILURES {
        let is_sent = !matches!(failure, Failure::Connect | Failure::ConnectTimeout);
        let expected = Verdict { fault, next };
        let check = |name: &str, fixture: &mut Fixture, replay: Replay| {
            let (mut selection, _) = fixture.connecting(replay);
            assert_eq!(fixture.fail(&mut selection, failure), expected, "{name}");
            assert_eq!(selection.retries(), 0);
        };
        let mut fixture = Fixture::new(&[0, 0]);
        fixture.policy = RetryPolicy::new(
            2,
            RetryOn {
                conditions: Vec::new(),
                statuses: Vec::new(),
            },
        );
        check("no condition", &mut fixture, Replay::Allowed);
        let mut fixture = Fixture::new(&[0, 0]);
        fixture.policy.limit = 0;
        check("no retries", &mut fixture, Replay::Allowed);
        check("no other server", &mut Fixture::new(&[0]), Replay::Allowed);
        if is_sent {
            check("no replay", &mut Fixture::new(&[0, 0]), Replay::Forbidden);
            let mut fixture = Fixture::new(&[0, 0]);
            while fixture.budget.spend(0) {}
            check("no budget", &mut fixture, Replay::Allowed);
        }
    }
}

/// Tests that a request that was not sent can always be sent to another server, even if it is not idempotent and the
/// budget is exhausted.
#[test]
fn retries_after_connect_failures_need_neither_replay_nor_budget() {
    for failure in [Failure::Connect, Failure::ConnectTimeout] {
        let mut fixture = Fixture::new(&[0, 0]);
        while fixture.budget.spend(0) {}
        let (mut selection, _) = fixture.connecting(Replay::Forbidden);
        assert_eq!(fixture.fail(&mut selection, failure).next, RETRY);
    }
}

#[test]
fn stale_idle_connection_is_replaced_without_fault_once() {
    let mut fixture = Fixture::new(&[0]);
    while fixture.budget.spend(0) {}
    let (mut selection, _) = fixture.connecting(Replay::Allowed);
    let verdict = fixture.fail(&mut selection, lost(true, false));
    let next = REPETITION;
    assert_eq!(verdict, Verdict { fault: None, next });
    assert_eq!(selection.retries(), 0);
    let output = fixture.run(|context| selection.select(context));
    let connections = Connections::New;
    assert_eq!(
        output,
        Output::Connect {
            server: 0,
            connections
        }
    );
    // The loss of the new connection is the server's fault, even if the connection had served other requests.
    let verdict = fixture.fail(&mut selection, lost(true, false));
    assert_eq!(verdict.fault, Some(Fault::BadResponse));
    assert_eq!(verdict.next, respond(502, Reason::BadResponse));
}

#[test]
fn unrepeatable_request_on_stale_idle_connection_fails_without_server_fault() {
    let mut fixture = Fixture::new(&[0, 0]);
    let (mut selection, _) = fixture.connecting(Replay::Forbidden);
    let verdict = fixture.fail(&mut selection, lost(true, false));
    let next = respond(502, Reason::BadResponse);
    assert_eq!(verdict, Verdict { fault: None, next });
}

#[test]
fn declined_request_is_repeated_twice_then_server_counts_as_unreachable() {
    let mut fixture = Fixture::new(&[0, 0]);
    fixture.policy.limit = 1;
    let (mut selection, mut server) = fixture.connecting(Replay::Forbidden);
    for _ in 0..2 {
        let verdict = fixture.fail(&mut selection, Failure::Declined);
        let next = REPETITION;
        assert_eq!(verdict, Verdict { fault: None, next });
        server = connected_server(fixture.run(|context| selection.select(context)));
    }
    let verdict = fixture.fail(&mut selection, Failure::Declined);
    let fault = Some(Fault::Unreachable);
    assert_eq!(verdict, Verdict { fault, next: RETRY });
    assert_ne!(
        connected_server(fixture.run(|context| selection.select(context))),
        server
    );
    let verdict = fixture.fail(&mut selection, Failure::Declined);
    assert_eq!(verdict.next, respond(503, Reason::NoConnection));
}

#[test]
fn unwanted_responses_are_retried_only_if_configured() {
    let cases = [
        (UnwantedResponse::Malformed, Some(Fault::BadResponse)),
        (UnwantedResponse::Status(503), Some(Fault::ErrorStatus)),
        (UnwantedResponse::Status(502), None),
        (UnwantedResponse::Status(200), None),
    ];
    for (response, fault) in cases {
        let mut fixture = Fixture::new(&[0, 0]);
        let (mut selection, _) = fixture.connecting(Replay::Allowed);
        let verdict = fixture.run(|context| selection.handle_unwanted(response, context));
        let expected = fault.map(|fault| Verdict {
            fault: Some(fault),
            next: RETRY,
        });
        assert_eq!(verdict, expected, "{response:?}");
        let (mut selection, _) = fixture.connecting(Replay::Forbidden);
        let verdict = fixture.run(|context| selection.handle_unwanted(response, context));
        assert_eq!(verdict, None, "{response:?} of a request that was sent");
    }
    let mut fixture = Fixture::new(&[0, 0]);
    fixture.policy = RetryPolicy::new(2, RetryOn::default());
    let (mut selection, _) = fixture.connecting(Replay::Allowed);
    let verdict =
        fixture.run(|context| selection.handle_unwanted(UnwantedResponse::Malformed, context));
    assert_eq!(verdict, None);
    assert!(!fixture.policy.needs_response);
}

#[test]
fn connect_errors_are_retried_until_retries_are_used_up() {
    let mut fixture = Fixture::new(&[0, 0, 0]);
    let (mut selection, first) = fixture.connecting(Replay::Forbidden);
    let mut servers = vec![first];
    for attempt in 1..=2 {
        let verdict =
            fixture.run(|context| selection.handle_connect_error(ConnectError::Rejected, context));
        let fault = Some(Fault::Unreachable);
        assert_eq!(verdict, Verdict { fault, next: RETRY });
        assert_eq!(selection.retries(), attempt);
        servers.push(connected_server(
            fixture.run(|context| selection.select(context)),
        ));
    }
    servers.sort_unstable();
    assert_eq!(servers, [0, 1, 2]);
    let verdict =
        fixture.run(|context| selection.handle_connect_error(ConnectError::Local, context));
    assert_eq!(verdict.fault, None);
    assert_eq!(verdict.next, respond(502, Reason::NoConnection));
}

#[test]
fn connect_error_without_untried_server_returns_502() {
    let mut fixture = Fixture::new(&[0]);
    let (mut selection, _) = fixture.connecting(Replay::Forbidden);
    let verdict =
        fixture.run(|context| selection.handle_connect_error(ConnectError::Rejected, context));
    assert_eq!(verdict.next, RETRY);
    let output = fixture.run(|context| selection.select(context));
    let reason = Reason::NoConnection;
    let status = 502;
    assert_eq!(output, Output::Respond { status, reason });
}

#[test]
fn missing_descriptors_end_the_request_without_fault() {
    let mut fixture = Fixture::new(&[0, 0]);
    let (mut selection, _) = fixture.connecting(Replay::Allowed);
    let error = ConnectError::NoDescriptors;
    let verdict = fixture.run(|context| selection.handle_connect_error(error, context));
    let next = respond(503, Reason::NoConnection);
    assert_eq!(verdict, Verdict { fault: None, next });
}

#[test]
fn request_is_rejected_or_closed_if_no_server_is_usable() {
    for (no_server, expected) in [
        (
            NoServer::Reject,
            Output::Respond {
                status: 503,
                reason: Reason::NoConnection,
            },
        ),
        (
            NoServer::Drop,
            Output::Close {
                reason: Reason::NoConnection,
            },
        ),
    ] {
        let mut fixture = Fixture::new(&[0]);
        fixture.set_weight(0, 0);
        fixture.no_server = no_server;
        // Queueing is useful only if a server is full.
        fixture.queue_timeout_ms = 100;
        let output = fixture.run(|context| Selection::default().select(context));
        assert_eq!(output, expected);
    }
}

#[test]
fn full_servers_queue_requests_if_there_is_a_queue() {
    let full = |queue_timeout_ms: u64| {
        let mut fixture = Fixture::new(&[1]);
        assert!(fixture.load(0).try_acquire());
        fixture.queue_timeout_ms = queue_timeout_ms;
        let mut selection = Selection::default();
        let output = fixture.run(|context| selection.select(context));
        (fixture, selection, output)
    };
    let (_, _, output) = full(0);
    assert!(matches!(output, Output::Respond { status: 503, .. }));
    let (mut fixture, mut selection, output) = full(100);
    assert_eq!(output, Output::Queue);
    // The first attempt finds no free slot; the second one does.
    let turn = fixture.run(|context| selection.handle_queue_turn(context));
    assert_eq!(turn, Some(Output::Queue));
    fixture.load(0).release();
    let turn = fixture.run(|context| selection.handle_queue_turn(context));
    assert_eq!(turn.map(connected_server), Some(0));
    // A late turn must be passed to another request.
    let turn = fixture.run(|context| selection.handle_queue_turn(context));
    assert_eq!(turn, None);
}

/// A full server with a slot that another worker releases while this worker selects a server.
struct ReleasedServer {
    full: Load,
    free: Load,
    /// Number of remaining reads that see the server as full.
    full_reads: Cell<u32>,
}

impl Server for ReleasedServer {
    fn load(&self) -> &Load {
        match self.full_reads.get() {
            0 => &self.free,
            reads => {
                self.full_reads.set(reads - 1);
                &self.full
            }
        }
    }

    fn hash_seed(&self) -> u64 {
        1
    }

    fn address(&self) -> IpAddr {
        [10, 0, 0, 1].into()
    }

    fn port(&self) -> Option<u16> {
        Some(80)
    }
}

#[test]
fn slot_that_becomes_free_during_the_selection_is_used() {
    for full_reads in 0..12 {
        let server = ReleasedServer {
            full: Load::new(1, 1),
            free: Load::new(1, 1),
            full_reads: Cell::new(full_reads),
        };
        assert!(server.full.try_acquire());
        let fixture = Fixture::new(&[]);
        let pool = Pool {
            scheduler: Scheduler::new(SchedulerKind::Rr),
            servers: &[server],
            tier_starts: [1; 2],
            version: 0,
            queued: 0,
            queue_timeout_ms: 100,
            no_server: NoServer::Reject,
        };
        let output = Selection::default().select(&mut SelectionContext {
            pool: &pool,
            policy: &fixture.policy,
            balancer: &mut Balancer::default(),
            budget: &fixture.budget,
            random: &mut SplitMix64::new(42),
            client: ([192, 0, 2, 1], 1000).into(),
            now_ms: 0,
        });
        assert!(
            matches!(output, Output::Connect { .. } | Output::Queue),
            "{full_reads} reads: {output:?}"
        );
    }
}

#[test]
fn new_requests_do_not_overtake_the_queue() {
    let mut fixture = Fixture::new(&[1, 2]);
    fixture.queue_timeout_ms = 100;
    assert!(fixture.load(0).try_acquire());
    fixture.queued = 1;
    let mut selection = Selection::default();
    let output = fixture.run(|context| selection.select(context));
    assert_eq!(output, Output::Queue, "server 1 has a slot for the queue");
    let turn = fixture.run(|context| selection.handle_queue_turn(context));
    assert_eq!(turn.map(connected_server), Some(1));
    // No server is full, so there is no reason to wait.
    fixture.load(0).release();
    let output = fixture.run(|context| Selection::default().select(context));
    assert!(matches!(output, Output::Connect { .. }));
}

#[test]
fn new_request_avoids_full_server_if_the_queue_is_empty() {
    let mut fixture = Fixture::new(&[1, 2]);
    fixture.queue_timeout_ms = 100;
    assert!(fixture.load(0).try_acquire());
    for _ in 0..2 {
        let output = fixture.run(|context| Selection::default().select(context));
        assert_eq!(connected_server(output), 1);
    }
    let output = fixture.run(|context| Selection::default().select(context));
    assert_eq!(output, Output::Queue, "both servers are full");
}

#[test]
fn retries_are_not_queued() {
    let mut fixture = Fixture::new(&[0, 1]);
    fixture.queue_timeout_ms = 100;
    let (mut selection, server) = fixture.connecting(Replay::Allowed);
    let other = 1 - server;
    fixture.load(other).limit.store(1, Relaxed);
    assert_eq!(fixture.fail(&mut selection, Failure::Connect).next, RETRY);
    // Another worker takes the last slot.
    assert!(fixture.load(other).try_acquire());
    let output = fixture.run(|context| selection.select(context));
    assert!(
        matches!(output, Output::Respond { status: 502, .. }),
        "{output:?}"
    );
}

#[test]
fn response_on_leaving_queue_depends_on_expired_timeout() {
    for (exit, status) in [
        (QueueExit::QueueTimeout, 503),
        (QueueExit::TotalTimeout, 504),
    ] {
        let mut fixture = Fixture::new(&[1]);
        fixture.queue_timeout_ms = 100;
        assert!(fixture.load(0).try_acquire());
        let mut selection = Selection::default();
        assert_eq!(
            fixture.run(|context| selection.select(context)),
            Output::Queue
        );
        let output = selection.handle_queue_exit(exit);
        let reason = Reason::Queued;
        assert_eq!(output, Output::Respond { status, reason });
        let turn = fixture.run(|context| selection.handle_queue_turn(context));
        assert_eq!(turn, None, "the request has left the queue");
    }
}

#[test]
fn reason_is_queue_if_servers_are_lost_while_request_is_queued() {
    let mut fixture = Fixture::new(&[1]);
    fixture.queue_timeout_ms = 100;
    assert!(fixture.load(0).try_acquire());
    let mut selection = Selection::default();
    assert_eq!(
        fixture.run(|context| selection.select(context)),
        Output::Queue
    );
    fixture.set_weight(0, 0);
    let turn = fixture.run(|context| selection.handle_queue_turn(context));
    let (status, reason) = (503, Reason::Queued);
    assert_eq!(turn, Some(Output::Respond { status, reason }));
}

#[test]
fn sticky_server_is_selected() {
    let mut fixture = Fixture::new(&[0, 0, 0]);
    for sticky in [2, 0, 1, 1] {
        let mut selection = Selection::default();
        selection.set_sticky_server(Some(sticky));
        assert_eq!(selection.sticky_server(), Some(sticky));
        let output = fixture.run(|context| selection.select(context));
        assert_eq!(connected_server(output), sticky);
    }
}

#[test]
fn hash_determines_the_server() {
    let mut fixture = Fixture::new(&[0, 0]);
    fixture.servers[1].number = 2;
    fixture.scheduler = SchedulerKind::Hash;
    let mut server_of = |mut selection: Selection| {
        connected_server(fixture.run(|context| selection.select(context)))
    };
    let mut servers = std::collections::BTreeSet::new();
    for hash in 0..20 {
        let mut selection = Selection::default();
        selection.set_hash(hash);
        let server = server_of(selection);
        assert_eq!(server_of(Selection::new(hash)), server);
        servers.insert(server);
    }
    assert_eq!(servers.len(), 2);
}

#[test]
fn new_list_resets_tried_and_sticky_servers() {
    let mut fixture = Fixture::new(&[0, 0]);
    let (mut selection, _) = fixture.connecting(Replay::Allowed);
    selection.set_sticky_server(Some(1));
    assert_eq!(fixture.fail(&mut selection, Failure::Connect).next, RETRY);
    selection.handle_new_list(None);
    assert_eq!(
        (selection.server(), selection.sticky_server()),
        (None, None)
    );
    let servers: Vec<usize> = (0..2)
        .map(|_| connected_server(fixture.run(|context| selection.clone().select(context))))
        .collect();
    assert_ne!(servers[0], servers[1], "round robin must use both servers");
    assert_eq!(selection.retries(), 1, "the number of retries must be kept");
}

#[test]
fn ended_request_selects_no_server() {
    let mut fixture = Fixture::new(&[0, 0]);
    let (mut selection, _) = fixture.connecting(Replay::Forbidden);
    assert!(selection.is_started() && !Selection::default().is_started());
    let verdict = fixture.fail(&mut selection, Failure::TotalTimeout);
    assert!(matches!(verdict.next, Next::Respond { status: 504, .. }));
    let closed = Output::Close {
        reason: Reason::NoConnection,
    };
    assert_eq!(fixture.run(|context| selection.select(context)), closed);
}

#[test]
fn selection_counts_as_started_between_two_attempts() {
    let mut fixture = Fixture::new(&[0, 0]);
    let (mut selection, _) = fixture.connecting(Replay::Allowed);
    assert_eq!(selection.replay(), Replay::Allowed);
    assert_eq!(fixture.fail(&mut selection, Failure::Connect).next, RETRY);
    assert!(selection.is_started());
    assert_eq!(selection.retries(), 1);
}
