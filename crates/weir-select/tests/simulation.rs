//! Simulates a proxy service in virtual time, with seeded random requests, failures, drains, limits and reloads.
//!
//! These rules must hold for any order of events: a request is sent only to a server that is not drained, full or
//! already tried; a request that must not be repeated is sent only once; retries stay within their limits; every
//! request ends exactly once; every slot is released. The default is 1,000 runs; `WEIR_SOAK=1` selects 300,000 runs,
//! and `WEIR_RUNS=N` selects N. `WEIR_SEED=N` repeats one run.

#![allow(
    clippy::disallowed_methods,
    reason = "the environment selects seed and length"
)]

use std::collections::{BTreeMap, BTreeSet, HashMap, HashSet};
use std::net::IpAddr;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;

use weir_model::{
    NoServer, RetryCondition, RetryOn, Scheduler, SchedulerKind, SplitMix64, finalize_64,
};
use weir_select::limit::{Admission, ConcurrencyLimit, Slot};
use weir_select::{
    AttemptKind, Balancer, Budget, ConnectError, Connections, Failure, Load, Next, Output, Pool,
    QueueExit, Replay, RetryPolicy, Selection, SelectionContext, Server, UnwantedResponse, Verdict,
};

const KINDS: [SchedulerKind; 14] = [
    SchedulerKind::Rr,
    SchedulerKind::Wrr,
    SchedulerKind::Lc,
    SchedulerKind::Wlc,
    SchedulerKind::Sed,
    SchedulerKind::Nq,
    SchedulerKind::Fo,
    SchedulerKind::Ovf,
    SchedulerKind::Twos,
    SchedulerKind::Sh,
    SchedulerKind::Mh,
    SchedulerKind::P2c,
    SchedulerKind::LeastTime,
    SchedulerKind::Hash,
];
const CLIENTS: u32 = 3;
const CLIENT_LIMIT: u32 = 6;
const RETRY_PERCENT: u32 = 20;
/// Initial budget, in retries.
const INITIAL_BUDGET: u64 = 500;

#[derive(Debug)]
struct TestServer {
    number: u8,
    load: Load,
}

impl Server for TestServer {
    fn load(&self) -> &Load {
        &self.load
    }

    fn hash_seed(&self) -> u64 {
        finalize_64(self.number.into())
    }

    fn address(&self) -> IpAddr {
        [10, 0, 0, self.number].into()
    }

    fn port(&self) -> Option<u16> {
        Some(80)
    }
}

/// A request and its state in the simulation.
struct Request {
    selection: Selection,
    client: u32,
    replay: Replay,
    /// Servers whose failed attempts count toward the retry limit.
    tried: HashSet<u8>,
    retries: u32,
    /// Whether a server may have received the request.
    sent: bool,
    /// The server whose slot the request holds, and whether the connection has served other requests.
    server: Option<(usize, bool)>,
    ticket: Option<u64>,
    slot: Option<Slot>,
}

#[derive(Debug, Clone, Copy)]
enum Event {
    Arrive,
    /// The server responds or fails.
    Server(u64),
    QueueTimeout(u64, u64),
    ChangeServer,
}

struct Simulation {
    random: SplitMix64,
    now: u64,
    servers: Vec<Arc<TestServer>>,
    tiers: [usize; 2],
    kind: SchedulerKind,
    policy: RetryPolicy,
    balancer: Balancer,
    budget: Budget,
    concurrent: Arc<ConcurrencyLimit>,
    queue_timeout_ms: u64,
    no_server: NoServer,
    version: u32,
    requests: HashMap<u64, Request>,
    in_progress: HashMap<u32, u32>,
    queue: BTreeMap<u64, u64>,
    next_ticket: u64,
    events: BTreeSet<(u64, u64)>,
    pending: HashMap<u64, Event>,
    next_event: u64,
    arrived: u64,
    ended: u64,
    /// Number of retries that were taken from the budget.
    budget_retries: u64,
}

impl Simulation {
    fn new(seed: u64) -> Self {
        let mut random = SplitMix64::new(finalize_64(seed));
        let count = 1 + random_below(&mut random, 5) as usize;
        let servers: Vec<_> = (0..count)
            .map(|number| {
                let weight = random_below(&mut random, 4);
                let limit = [0, 0, 1, 2][random_below(&mut random, 4) as usize];
                Arc::new(TestServer {
                    number: number as u8,
                    load: Load::new(weight, limit),
                })
            })
            .collect();
        let backups = random_below(&mut random, 2) as usize;
        let conditions = RetryCondition::ALL.into_iter();
        let conditions = conditions
            .filter(|_| random_below(&mut random, 3) > 0)
            .collect();
        let on = RetryOn {
            conditions,
            statuses: vec![(503, 503)],
        };
        let limit = random_below(&mut random, 4);
        let kind = KINDS[random_below(&mut random, KINDS.len() as u32) as usize];
        let queue_timeout_ms = [0, 50, 500][random_below(&mut random, 3) as usize];
        let no_server = [NoServer::Reject, NoServer::Drop][random_below(&mut random, 2) as usize];
        Self {
            now: 10_000,
            tiers: [count.saturating_sub(backups).max(1), count],
            servers,
            kind,
            policy: RetryPolicy::new(limit, on),
            balancer: Balancer::default(),
            budget: Budget::default(),
            concurrent: Arc::new(ConcurrencyLimit::new(CLIENT_LIMIT)),
            queue_timeout_ms,
            no_server,
            version: 0,
            requests: HashMap::new(),
            in_progress: HashMap::new(),
            queue: BTreeMap::new(),
            next_ticket: 0,
            events: BTreeSet::new(),
            pending: HashMap::new(),
            next_event: 0,
            arrived: 0,
            ended: 0,
            budget_retries: 0,
            random,
        }
    }

    fn random_below(&mut self, limit: u32) -> u32 {
        random_below(&mut self.random, limit)
    }

    fn schedule(&mut self, delay_ms: u64, event: Event) {
        self.next_event += 1;
        self.events.insert((self.now + delay_ms, self.next_event));
        self.pending.insert(self.next_event, event);
    }

    fn decide<T>(
        &mut self,
        id: u64,
        input: impl FnOnce(&mut Selection, &mut SelectionContext<'_, Arc<TestServer>>) -> T,
    ) -> T {
        let request = self.requests.get_mut(&id).expect("request is in progress");
        let pool = Pool {
            scheduler: Scheduler::new(self.kind),
            servers: &self.servers,
            tier_starts: self.tiers,
            version: self.version,
            queued: self.queue.len() as u32,
            queue_timeout_ms: self.queue_timeout_ms,
            no_server: self.no_server,
        };
        let mut context = SelectionContext {
            pool: &pool,
            policy: &self.policy,
            balancer: &mut self.balancer,
            budget: &self.budget,
            random: &mut self.random,
            client: ([192, 0, 2, request.client as u8], 1000).into(),
            now_ms: self.now,
        };
        input(&mut request.selection, &mut context)
    }

    fn arrive(&mut self) {
        let client = self.random_below(CLIENTS);
        let slot = match self.concurrent.admit(client.into()) {
            Admission::Counted(slot) => slot,
            Admission::Uncounted => panic!("the table has a free entry"),
            Admission::Rejected => {
                assert_eq!(
                    self.in_progress[&client], CLIENT_LIMIT,
                    "rejected too early"
                );
                return;
            }
        };
        let in_progress = self.in_progress.entry(client).or_default();
        *in_progress += 1;
        assert!(*in_progress <= CLIENT_LIMIT);
        self.arrived += 1;
        self.budget.earn(RETRY_PERCENT);
        let id = self.arrived;
        let replay = [Replay::Allowed, Replay::Forbidden][self.random_below(2) as usize];
        let mut selection = Selection::new(self.random.next_u64());
        selection.set_replay(replay);
        if self.random_below(3) == 0 {
            selection.set_sticky_server(Some(self.random_below(6) as usize));
        }
        let request = Request {
            selection,
            client,
            replay,
            tried: HashSet::new(),
            retries: 0,
            sent: false,
            server: None,
            ticket: None,
            slot: Some(slot),
        };
        self.requests.insert(id, request);
        let output = self.decide(id, Selection::select);
        self.execute(id, output);
    }

    fn execute(&mut self, id: u64, output: Output) {
        match output {
            Output::Connect {
                server,
                connections,
            } => self.connect(id, server, connections),
            Output::Queue => self.enter_queue(id),
            Output::Respond { status, .. } => {
                assert!(matches!(status, 502..=504), "{status}");
                self.end(id);
            }
            Output::Close { .. } => {
                assert_eq!(self.no_server, NoServer::Drop);
                self.end(id);
            }
        }
    }

    fn connect(&mut self, id: u64, server: usize, connections: Connections) {
        let reused = connections == Connections::Any && self.random_below(2) == 0;
        let target = Arc::clone(&self.servers[server]);
        let load = &target.load;
        let request = self.requests.get_mut(&id).expect("request is in progress");
        let is_sticky = request.selection.sticky_server() == Some(server);
        let is_accepted =
            load.weight() > 0 || is_sticky && load.sticky_while_quiesced.load(Relaxed);
        assert!(is_accepted, "request {id} was sent to a drained server");
        let limit = load.limit.load(Relaxed);
        assert!(limit == 0 || load.active() <= limit, "limit exceeded");
        assert!(!request.tried.contains(&target.number), "tried twice");
        assert!(request.server.is_none(), "two servers at once");
        assert_eq!(request.selection.server(), Some(server));
        request.server = Some((server, reused));
        request.ticket = None;
        let error = match self.random_below(12) {
            0 => ConnectError::Rejected,
            1 => ConnectError::Local,
            2 => ConnectError::NoDescriptors,
            _ => {
                let delay = u64::from(self.random_below(40));
                return self.schedule(delay, Event::Server(id));
            }
        };
        self.release(id);
        let verdict = self.decide(id, |selection, context| {
            selection.handle_connect_error(error, context)
        });
        self.apply(id, verdict);
    }

    fn enter_queue(&mut self, id: u64) {
        let ticket = match self.requests[&id].ticket {
            Some(ticket) => ticket,
            None => {
                self.next_ticket += 1;
                let event = Event::QueueTimeout(id, self.next_ticket);
                self.schedule(self.queue_timeout_ms, event);
                self.next_ticket
            }
        };
        assert!(self.requests[&id].retries == 0, "a retry was queued");
        let previous = self.queue.insert(ticket, id);
        assert!(previous.is_none(), "queued twice");
        self.requests
            .get_mut(&id)
            .expect("request is in progress")
            .ticket = Some(ticket);
    }

    /// Wakes the first request in the queue.
    fn wake_queue(&mut self) {
        if let Some((_, id)) = self.queue.pop_first() {
            let output = self.decide(id, Selection::handle_queue_turn);
            self.execute(id, output.expect("request is queued"));
        }
    }

    fn release(&mut self, id: u64) {
        let request = self.requests.get_mut(&id).expect("request is in progress");
        if let Some((server, _)) = request.server.take() {
            self.servers[server].load.release();
        }
    }

    /// Simulates the server of a request.
    fn serve(&mut self, id: u64) {
        let request = self.requests.get_mut(&id).expect("request is in progress");
        let Some((_, reused)) = request.server else {
            panic!("an event of a released server");
        };
        let must_not_send = request.sent && request.replay == Replay::Forbidden;
        let lost = |head_started| Failure::Lost {
            reused,
            head_started,
        };
        let (is_sent, result) = match random_below(&mut self.random, 14) {
            0 if !reused => (false, Err(Failure::Connect)),
            1 if !reused => (false, Err(Failure::ConnectTimeout)),
            2 if !reused => (false, Err(Failure::TotalTimeoutConnecting)),
            3 => (false, Err(Failure::Declined)),
            4 => (true, Err(lost(false))),
            5 => (true, Err(lost(true))),
            6 => (true, Err(Failure::ResponseTimeout)),
            7 => (true, Err(Failure::TotalTimeout)),
            8 => (true, Ok(Some(UnwantedResponse::Malformed))),
            9 => (true, Ok(Some(UnwantedResponse::Status(503)))),
            10 => (true, Ok(Some(UnwantedResponse::Status(404)))),
            _ => (true, Ok(None)),
        };
        assert!(!must_not_send || !is_sent, "request {id} was sent twice");
        request.sent |= is_sent;
        let verdict = match result {
            Err(failure) => Some(self.decide(id, |selection, context| {
                selection.handle_failure(failure, context)
            })),
            Ok(Some(response)) => self.decide(id, |selection, context| {
                selection.handle_unwanted(response, context)
            }),
            Ok(None) => None,
        };
        if verdict.is_some_and(is_retry) && is_sent {
            self.budget_retries += 1;
        }
        match verdict {
            Some(verdict) => self.apply(id, verdict),
            None => self.end(id),
        }
    }

    fn apply(&mut self, id: u64, verdict: Verdict) {
        let request = self.requests.get_mut(&id).expect("request is in progress");
        match verdict.next {
            Next::Respond { .. } => self.end(id),
            Next::Select { attempt } => {
                if attempt == AttemptKind::Retry {
                    request.retries += 1;
                    let server = request.selection.server().expect("a server was selected");
                    request.tried.insert(self.servers[server].number);
                }
                assert_eq!(request.selection.retries(), request.retries);
                assert!(request.retries <= self.policy.limit, "too many retries");
                self.release(id);
                let output = self.decide(id, Selection::select);
                self.execute(id, output);
                self.wake_queue();
            }
        }
    }

    fn end(&mut self, id: u64) {
        self.release(id);
        let mut request = self.requests.remove(&id).expect("request has not ended");
        if let Some(ticket) = request.ticket {
            assert!(
                !self.queue.contains_key(&ticket),
                "the request ended in the queue"
            );
        }
        assert!(request.slot.take().is_some());
        *self
            .in_progress
            .get_mut(&request.client)
            .expect("client's request is counted") -= 1;
        self.ended += 1;
        self.wake_queue();
    }

    fn handle_queue_timeout(&mut self, id: u64, ticket: u64) {
        if self.queue.remove(&ticket).is_none() {
            return;
        }
        let exit =
            [QueueExit::QueueTimeout, QueueExit::TotalTimeout][self.random_below(2) as usize];
        let output = self.decide(id, |selection, _| selection.handle_queue_exit(exit));
        assert!(matches!(
            output,
            Output::Respond {
                status: 503 | 504,
                ..
            }
        ));
        self.execute(id, output);
    }

    /// Changes a weight, a limit, or whether sticky clients are served.
    fn change_server(&mut self) {
        let server = self.random_below(self.servers.len() as u32) as usize;
        let value = self.random_below(4);
        let load = &self.servers[server].load;
        match random_below(&mut self.random, 4) {
            0 => load.limit.store(load.active() + value, Relaxed),
            1 => load.limit.store(0, Relaxed),
            2 => load.sticky_while_quiesced.store(value > 1, Relaxed),
            _ => load.weight.store(value, Relaxed),
        }
        self.version += 1;
        for _ in 0..self.queue.len() {
            self.wake_queue();
        }
    }

    fn run(&mut self) {
        for _ in 0..150 {
            let delay_ms = u64::from(self.random_below(1500));
            self.schedule(delay_ms, Event::Arrive);
        }
        for _ in 0..20 {
            let delay_ms = u64::from(self.random_below(1500));
            self.schedule(delay_ms, Event::ChangeServer);
        }
        let begin = self.now;
        while let Some((time_ms, number)) = self.events.pop_first() {
            self.now = time_ms;
            match self.pending.remove(&number).expect("event is scheduled") {
                Event::Arrive => self.arrive(),
                Event::Server(id) => self.serve(id),
                Event::QueueTimeout(id, ticket) => self.handle_queue_timeout(id, ticket),
                Event::ChangeServer => self.change_server(),
            }
        }
        assert_eq!(self.arrived, self.ended, "a request did not end");
        assert!(self.requests.is_empty() && self.queue.is_empty());
        for server in &self.servers {
            assert_eq!(server.load.active(), 0, "a slot was not released");
        }
        let elapsed_s = (self.now - begin).div_ceil(1000);
        let earned = self.arrived * u64::from(RETRY_PERCENT) / 100;
        assert!(self.budget_retries <= INITIAL_BUDGET + earned + 10 * (elapsed_s + 1));
        for client in 0..CLIENTS {
            let slots: Vec<Admission> = (0..=CLIENT_LIMIT)
                .map(|_| self.concurrent.admit(client.into()))
                .collect();
            let is_rejected = |slot: &&Admission| matches!(slot, Admission::Rejected);
            assert_eq!(slots.iter().filter(is_rejected).count(), 1);
        }
    }
}

const fn is_retry(verdict: Verdict) -> bool {
    matches!(
        verdict.next,
        Next::Select {
            attempt: AttemptKind::Retry
        }
    )
}

fn random_below(random: &mut SplitMix64, limit: u32) -> u32 {
    random.below(limit.into()) as u32
}

#[test]
fn each_request_ends_once_on_server_that_accepts_it() {
    let seed = std::env::var("WEIR_SEED").ok();
    if let Some(seed) = seed.and_then(|seed| seed.parse().ok()) {
        return Simulation::new(seed).run();
    }
    let runs_variable = std::env::var("WEIR_RUNS")
        .ok()
        .and_then(|runs| runs.parse().ok());
    let soak = std::env::var_os("WEIR_SOAK").is_some();
    let runs = runs_variable.unwrap_or(if soak { 300_000 } else { 1_000 });
    let mut arrived = 0;
    let mut budget_retries = 0;
    for seed in 0..runs {
        let run = std::panic::catch_unwind(|| {
            let mut simulation = Simulation::new(seed);
            simulation.run();
            (simulation.arrived, simulation.budget_retries)
        });
        let Ok((requests, retries)) = run else {
            panic!("WEIR_SEED={seed} repeats this run");
        };
        arrived += requests;
        budget_retries += retries;
    }
    // The simulation is meaningful only if there were enough requests and retries.
    assert!(
        arrived > runs * 20 && budget_retries > runs,
        "{arrived} {budget_retries}"
    );
}

/// Tests that the budget limits retries when every server fails.
#[test]
fn failing_servers_receive_a_bounded_number_of_retries() {
    let mut simulation = Simulation::new(1);
    simulation.servers = (0..3)
        .map(|number| {
            let load = Load::new(1, 0);
            Arc::new(TestServer { number, load })
        })
        .collect();
    simulation.tiers = [3, 3];
    simulation.kind = SchedulerKind::P2c;
    simulation.policy = RetryPolicy::new(3, RetryOn::default());
    let requests = 10_000;
    let mut retries = 0;
    for id in 1..=requests {
        simulation.budget.earn(RETRY_PERCENT);
        let mut selection = Selection::default();
        selection.set_replay(Replay::Allowed);
        let request = Request {
            selection,
            client: 0,
            replay: Replay::Allowed,
            tried: HashSet::new(),
            retries: 0,
            sent: false,
            server: None,
            ticket: None,
            slot: None,
        };
        simulation.requests.insert(id, request);
        while let Output::Connect { server, .. } = simulation.decide(id, Selection::select) {
            simulation.servers[server].load.release();
            let lost = Failure::Lost {
                reused: false,
                head_started: false,
            };
            let verdict = simulation.decide(id, |selection, context| {
                selection.handle_failure(lost, context)
            });
            if !is_retry(verdict) {
                break;
            }
            retries += 1;
        }
    }
    let expected = INITIAL_BUDGET + 10 + requests * u64::from(RETRY_PERCENT) / 100;
    assert!(retries <= expected, "{retries} of {expected}");
    assert!(retries >= expected - 10, "{retries} of {expected}");
}
