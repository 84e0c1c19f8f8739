//! Connects a request to a server: executes the decisions of the [`Selection`], and reports the results to it.

use std::rc::Rc;
use std::sync::Arc;

use rustix::io::Errno;
use weir_model::{ProxyProtocol, SchedulerKind};
use weir_select::{
    AttemptKind, ConnectError, Connections, Failure, Fault, Next, Output, Replay, Selection,
    SelectionContext, Verdict,
};
use weir_sys::{Clock, now_ns};

use super::record::Timer;
use super::state::{Phase, Tunnel};
use super::{Session, Step};
use crate::context::Context;
use crate::plan::Target;
use crate::slab::Key;
use crate::socket;
use crate::times::Stage;
use crate::tls::Handshake;

impl Session {
    /// Selects a server and connects to it.
    pub(super) fn connect(&mut self, key: Key, cx: &mut Context) -> Step {
        let output = self.decide(cx, Selection::select);
        self.execute(output, key, cx)
    }

    /// Calls the selection with all inputs that its decision needs.
    pub(super) fn decide<T>(
        &mut self,
        cx: &mut Context,
        input: impl FnOnce(&mut Selection, &mut SelectionContext<'_, Arc<Target>>) -> T,
    ) -> T {
        let service = &self.local.service;
        let options = self
            .request
            .route
            .and_then(|index| service.options.get(index)?.as_deref());
        let policy = match &self.mirror {
            Some(mirror) => &mirror.retry,
            None => options.map_or(&service.retry, |options| &options.retry),
        };
        let pool = service.pools[self.request.pool].view();
        let mut context = SelectionContext {
            pool: &pool,
            policy,
            balancer: &mut self.local.balancers.borrow_mut()[self.request.pool],
            budget: &self.local.budget,
            random: &mut cx.random,
            client: self.client,
            now_ms: cx.now,
        };
        input(&mut self.request.selection, &mut context)
    }

    /// Executes a decision of the selection.
    pub(super) fn execute(&mut self, output: Output, key: Key, cx: &mut Context) -> Step {
        let mut output = output;
        loop {
            let (server, connections) = match output {
                Output::Connect {
                    server,
                    connections,
                } => (server, connections),
                // Copies do not wait in the queue.
                Output::Queue if self.is_copy() => return self.fail(key, cx, 503),
                Output::Queue => return self.enter_queue(key, cx),
                Output::Respond { status, reason } => {
                    return self.fail_with_reason(key, cx, status, reason);
                }
                Output::Close { reason } => {
                    self.count_error(cx);
                    self.set_termination_for_reason(reason);
                    return Step::Close;
                }
            };
            let error = match self.open_connection(server, connections, key, cx) {
                Ok(step) => return step,
                Err(error) => error,
            };
            let verdict = self.decide(cx, |selection, context| {
                selection.handle_connect_error(error, context)
            });
            let target = Arc::clone(&self.local.service.pools[self.request.pool].list[server]);
            if let Some(fault) = verdict.fault {
                target.record_result(cx.worker, Some(fault));
            }
            target.release_slot();
            match verdict.next {
                Next::Select { attempt } => {
                    self.trace_failure();
                    self.count_retry(cx, Some(&target), attempt);
                    output = self.decide(cx, Selection::select);
                }
                Next::Respond { status, reason } => {
                    return self.fail_with_reason(key, cx, status, reason);
                }
            }
        }
    }

    /// Takes an idle connection to the server, or starts a new one.
    fn open_connection(
        &mut self,
        server: usize,
        connections: Connections,
        key: Key,
        cx: &mut Context,
    ) -> Result<Step, ConnectError> {
        let local = Rc::clone(&self.local);
        let service = &local.service;
        let pool = &service.pools[self.request.pool];
        let target = &pool.list[server];
        if matches!(self.phase, Phase::Queue(_)) {
            self.stop_timer(Timer::Queue);
            self.request.times.end(Stage::Queue, cx.now_us);
        }
        self.request.times.start_stage(cx.now_us);
        let port = target.port.unwrap_or(self.port);
        self.trace_attempt(&pool.pool, target, port);
        let is_http = service.protocol == ProxyProtocol::Http;
        if is_http {
            target.counters.of(cx.worker).requests.add(1);
            let may_reuse = connections == Connections::Any && pool.preamble.is_none();
            let verify = self.request.selection.replay() == Replay::Forbidden;
            if may_reuse && let Some(server) = cx.reuse(target, port, key, verify) {
                self.server = server;
                self.send_request(key, cx);
                return Ok(Step::Continue);
            }
        }
        let is_stream = is_http && pool.http2;
        let connection = if is_stream {
            cx.open_stream(target, port, key, pool.tls.as_ref(), service)
        } else {
            cx.open(target, port, key, pool.tls.as_ref())
        };
        match connection {
            Ok(server) => {
                self.server = server;
                self.phase = Phase::Connect;
                self.set_deadline(key, cx, self.timeouts().connect);
                // The HTTP/2 connection may already be established.
                Ok(if is_stream {
                    Step::Continue
                } else {
                    Step::Pending
                })
            }
            Err(Errno::MFILE | Errno::NFILE) => Err(ConnectError::NoDescriptors),
            Err(error) => {
                self.phase = Phase::Connect;
                Err(if socket::is_peer_error(error) {
                    ConnectError::Rejected
                } else {
                    ConnectError::Local
                })
            }
        }
    }

    /// Starts the exchange once there is a connection to the server.
    fn send_request(&mut self, key: Key, cx: &mut Context) {
        self.stop_timer(Timer::Connect);
        if matches!(self.phase, Phase::Connect) {
            self.request.times.end(Stage::Connect, cx.now_us);
        }
        self.request.times.start_stage(cx.now_us);
        self.trace_connected(!matches!(self.phase, Phase::Connect));
        self.phase = Phase::Exchange;
        let service = &self.local.service;
        let needs_latency =
            service.pools[self.request.pool].scheduler.kind == SchedulerKind::LeastTime;
        self.request.sent_ns = if needs_latency {
            now_ns(Clock::Monotonic)
        } else {
            0
        };
        let ms = self.timeouts().response;
        self.set_deadline(key, cx, ms);
    }

    /// Records a result for the current request's server: a fault, or a success if `fault` is `None`.
    pub(super) fn record_result(&self, cx: &Context, fault: Option<Fault>) {
        if let Some(upstream) = cx.upstreams.get(self.server) {
            upstream.target.record_result(cx.worker, fault);
        }
    }

    /// Counts another attempt, after an attempt on `target` has failed.
    fn count_retry(&self, cx: &Context, target: Option<&Target>, attempt: AttemptKind) {
        let service = &self.local.service;
        if attempt == AttemptKind::Retry {
            service.counters.of(cx.worker).retries.add(1);
        }
        let pool = service.pools.get(self.request.pool);
        let parts = [
            Some(&service.exchanges),
            pool.map(|pool| &pool.exchanges),
            target.map(|target| &target.exchanges),
        ];
        for exchanges in parts.into_iter().flatten() {
            match attempt {
                AttemptKind::Retry => exchanges.of(cx.worker).redispatches.add(1),
                AttemptKind::Repetition => exchanges.of(cx.worker).repetitions.add(1),
            }
        }
    }

    /// Reports a server failure to the selection. The request is then sent to another server, or Weir responds.
    pub(super) fn fail_server(&mut self, key: Key, cx: &mut Context, failure: Failure) -> Step {
        let verdict = self.decide(cx, |selection, context| {
            selection.handle_failure(failure, context)
        });
        self.apply_verdict(key, cx, verdict)
    }

    /// Records the fault, and executes the verdict: releases the server and selects again, or responds.
    pub(super) fn apply_verdict(&mut self, key: Key, cx: &mut Context, verdict: Verdict) -> Step {
        if let Some(fault) = verdict.fault {
            self.record_result(cx, Some(fault));
        }
        match verdict.next {
            Next::Select { attempt } => {
                self.to_server.sent = 0;
                self.trace_failure();
                let upstream = cx.upstreams.get(self.server);
                let target = upstream.map(|upstream| &*upstream.target);
                self.count_retry(cx, target, attempt);
                self.leave_server(cx, false);
                self.connect(key, cx)
            }
            Next::Respond { status, reason } => self.fail_with_reason(key, cx, status, reason),
        }
    }

    /// Continues a connection attempt after an event.
    pub(super) fn handle_connect_event(&mut self, key: Key, cx: &mut Context) -> Step {
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Step::Close;
        };
        if !upstream.ready.writable && !upstream.ready.read_closed {
            return Step::Pending;
        }
        if upstream.transport.is_refused() {
            return self.fail_server(key, cx, Failure::Declined);
        }
        if upstream.ready.broken || !upstream.transport.is_connected() {
            return self.fail_server(key, cx, Failure::Connect);
        }
        let service = Rc::clone(&self.local);
        let targets = service.service.pools.get(self.request.pool);
        if let Some(version) = targets.and_then(|targets| targets.preamble)
            && !self.write_proxy_header(version, cx)
        {
            return self.fail_server(key, cx, Failure::Connect);
        }
        let Some(upstream) = cx.upstreams.get_mut(self.server) else {
            return Step::Close;
        };
        match upstream.transport.handshake(&mut upstream.ready) {
            Handshake::Done => {}
            Handshake::Pending => return Step::Pending,
            Handshake::Failed => return self.fail_tls(key, cx),
        }
        if self.local.service.protocol == ProxyProtocol::Tcp {
            self.stop_timer(Timer::Connect);
            self.request.times.end(Stage::Connect, cx.now_us);
            self.record_result(cx, None);
            self.phase = Phase::Tunnel(Tunnel::default());
            let ms = self.timeouts().tunnel;
            self.set_deadline(key, cx, ms);
        } else {
            self.send_request(key, cx);
        }
        Step::Continue
    }
}
