//! Records exchanges: updates the counters, and writes to the access log and to taps.

use std::rc::Rc;
use std::time::SystemTime;

use weir_http::route::{RouteInput, map_key};
use weir_http::{Field, Name, Request};
use weir_model::{LogFormat, ProxyProtocol, SplitMix64, Variable};
use weir_select::Reason;
use weir_sys::{Clock, now_ns};

use super::Session;
use super::state::Phase;
use crate::context::Context;
use crate::log::ExchangeSummary;
use crate::plan::Detail;
use crate::plan::FinishedExchange;
use crate::times::{ErrorKind, Stage};

/// Termination flags of an exchange that ended normally.
pub(super) const NORMAL_END: [u8; 2] = *b"--";

/// The timers of an exchange in the access log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Timer {
    Request = 0,
    Queue = 1,
    Connect = 2,
    Response = 3,
}

/// Returns the value of the first field with this name in a complete head, without surrounding spaces. Empty if there
/// is none.
fn field_of<'a>(head: &'a [u8], name: &[u8]) -> &'a [u8] {
    let lines = head.split(|byte| *byte == b'\n').skip(1);
    let fields = lines.take_while(|line| !line.is_empty() && *line != b"\r");
    let mut values = fields.filter_map(|line| {
        let (field_name, value) = line.split_at_checked(name.len())?;
        let value = value.strip_prefix(b":")?;
        field_name
            .eq_ignore_ascii_case(name)
            .then(|| value.trim_ascii())
    });
    values.next().unwrap_or_default()
}

impl Session {
    /// Starts a log record, if a log or a tap needs one.
    pub(super) fn begin_log_record(&mut self, cx: &mut Context) {
        let service = &self.local.service;
        let is_recorded = service.log.is_some() || service.taps.is_active();
        if self.log_record.is_none() && is_recorded {
            self.log_record = Some(cx.new_log_record());
        }
    }

    /// Adds the request to the log record.
    pub(super) fn log_request(
        &mut self,
        cx: &mut Context,
        head: &[u8],
        request: &Request,
        body: usize,
    ) {
        self.begin_log_record(cx);
        let version = match self.version(request) {
            "1.0" => "HTTP/1.0",
            "2" => "HTTP/2.0",
            _ => "HTTP/1.1",
        };
        let Some(record) = &mut self.log_record else {
            return;
        };
        let value = |name: &[u8]| {
            let has_name = |field: &&Field| {
                field.name == Name::Other && field.name_in(head).eq_ignore_ascii_case(name)
            };
            cx.fields
                .iter()
                .find(has_name)
                .map_or(&b""[..], |field| field.value_in(head))
        };
        record.set_request(
            [
                request.method_in(head),
                request.target_in(head),
                request.host_in(head, &cx.fields).unwrap_or_default(),
                value(b"referer"),
                value(b"user-agent"),
            ],
            version,
        );
        record.bytes_in = (head.len() + body) as u64;
        self.stop_timer(Timer::Request);
    }

    /// Returns whether the log record needs values of variables.
    pub(super) fn records_variables(&self) -> bool {
        let service = &self.local.service;
        let log = service.log.as_ref();
        self.log_record.is_some()
            && (log.is_some_and(|log| !log.variables.is_empty()) || service.taps.is_active())
    }

    /// Adds the request's values for log format and tap variables to the log record.
    pub(super) fn log_variables(
        &mut self,
        route_input: RouteInput<'_>,
        host: &[u8],
        random: &mut SplitMix64,
    ) {
        let service = Rc::clone(&self.local);
        let service = &service.service;
        let template_context = self.template_context(route_input, host, "", None, random);
        let maps = &service.log_maps;
        let map_value = |name: &str| {
            let name = name.strip_prefix("map.")?;
            let map = maps.iter().find(|map| map.name == name)?;
            Some(
                map.value(&map_key(map, &template_context))
                    .as_bytes()
                    .to_vec(),
            )
        };
        let value = |name: &str| {
            let variable =
                Variable::from_name(name).map(|variable| template_context.text(&variable));
            variable.or_else(|| map_value(name)).unwrap_or_default()
        };
        let Some(record) = &mut self.log_record else {
            return;
        };
        let variables = service.log.iter().flat_map(|log| &log.variables);
        record.values = variables.map(|name| value(name)).collect();
        if service.taps.is_active() {
            let variables = LogFormat::Json.variables().into_iter();
            record.tap_values = variables.map(value).collect();
        }
    }

    /// Adds the values of the log format's response fields to the log record. `head` starts with the response's head.
    pub(super) fn log_response_fields(&mut self, head: &[u8]) {
        let (Some(record), Some(log)) = (&mut self.log_record, &self.local.service.log) else {
            return;
        };
        for (index, name) in log.variables.iter().enumerate() {
            let Some(field) = name.strip_prefix("response.") else {
                continue;
            };
            if record.values.len() <= index {
                record.values.resize(log.variables.len(), Vec::new());
            }
            record.values[index] = field_of(head, field.as_bytes()).to_vec();
        }
    }

    /// Adds the time since a timer was last stopped, or since the record began, to `timer`.
    pub(super) fn stop_timer(&mut self, timer: Timer) {
        if let Some(record) = &mut self.log_record {
            let now = now_ns(Clock::Monotonic);
            record.durations_us[timer as usize] += (now - record.timer_started_ns) / 1_000;
            record.timer_started_ns = now;
        }
    }

    /// Stops the timer of the current phase, because the phase is interrupted.
    fn stop_interrupted_timer(&mut self) {
        match self.phase {
            Phase::Collect => self.stop_timer(Timer::Request),
            Phase::Queue(_) => self.stop_timer(Timer::Queue),
            Phase::Connect => self.stop_timer(Timer::Connect),
            Phase::Exchange if !self.request.exchange.is_answered() => {
                self.stop_timer(Timer::Response)
            }
            _ => {}
        }
    }

    /// Adds to the log record's count of bytes from the client.
    pub(super) fn count_in(&mut self, bytes: usize) {
        if let Some(record) = &mut self.log_record {
            record.bytes_in += bytes as u64;
        }
    }

    /// Adds to the log record's count of bytes to the client.
    pub(super) fn count_out(&mut self, bytes: usize) {
        if let Some(record) = &mut self.log_record {
            record.bytes_out += bytes as u64;
        }
    }

    /// Sets the termination flags, as defined by HAProxy. Flags that were set before are kept.
    pub(super) fn set_termination(&mut self, end: [u8; 2]) {
        if self.request.termination == NORMAL_END {
            self.request.termination = end;
        }
    }

    /// Sets the termination flags for a request that received no valid response from a server.
    pub(super) fn set_termination_for_reason(&mut self, reason: Reason) {
        self.stop_interrupted_timer();
        self.set_termination(match reason {
            Reason::Queued => *b"sQ",
            Reason::NoConnection => *b"SC",
            Reason::ConnectTimeout => *b"sC",
            Reason::BadResponse => *b"SH",
            Reason::ResponseTimeout => *b"sH",
        });
    }

    /// Sets the termination flags for a response that Weir generated.
    pub(super) fn set_termination_for_status(&mut self, status: u16) {
        self.stop_interrupted_timer();
        self.set_termination(match (&self.phase, status) {
            (Phase::Queue(_), _) => *b"sQ",
            (Phase::Connect, 504) => *b"sC",
            (Phase::Connect, _) | (_, 503) => *b"SC",
            (_, 504) => *b"sH",
            (Phase::Exchange, 408) => *b"cD",
            (_, 408) => *b"cR",
            (_, 502) => *b"SH",
            _ => *b"PR",
        });
    }

    /// Records the end of an exchange. `status` is the status that the client received; 0 = none.
    pub(super) fn record(&mut self, cx: &mut Context, status: u16) {
        self.request.slot = None;
        self.request.route_slots = Vec::new();
        if self.is_copy() {
            return self.record_copy(cx, status);
        }
        let class = usize::from(status / 100);
        if (1..=5).contains(&class) && !cfg!(without_metrics) {
            let counters = self.local.service.counters.of(cx.worker);
            counters.responses[class - 1].add(1);
        }
        let termination = std::mem::replace(&mut self.request.termination, NORMAL_END);
        self.end_trace(cx, status, termination);
        self.count_exchange(cx, status, termination);
        let Some(mut record) = self.log_record.take() else {
            return;
        };
        let service = &self.local.service;
        let is_logged = self.options().is_none_or(|options| options.logged);
        {
            record.status = status;
            record.durations_us[4] = (now_ns(Clock::Monotonic) - record.began_ns) / 1_000;
            let (pool, server) = self.pool_and_server();
            let route = self
                .request
                .route
                .and_then(|index| service.routes.get(index));
            let summary = ExchangeSummary {
                client: self.client,
                pool: pool.unwrap_or_default(),
                server: server.map_or("", |server| &server.name),
                retries: self.request.selection.retries(),
                termination,
                route_line: route.map_or(0, |route| route.source.line),
            };
            let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
            let time_ms = u64::try_from(since.as_millis()).unwrap_or(0);
            if let Some(log) = service.log.as_ref().filter(|_| is_logged) {
                log.put(cx.worker, time_ms, &record, &record.values, &summary);
            }
            if service.taps.is_active() {
                service.taps.put(cx.worker, time_ms, &record, &summary);
            }
        }
        cx.recycle_log_record(record);
    }

    /// Counts an error: a response that Weir generated because the exchange failed, or a truncated response.
    pub(super) fn count_error(&self, cx: &Context) {
        if !self.is_copy() {
            self.local.service.counters.of(cx.worker).errors.add(1);
        }
    }

    /// Counts the start of a request and, over HTTP/2, its first bytes.
    pub(super) fn count_begin(&self, cx: &Context, bytes: usize) {
        if cfg!(without_metrics) {
            return;
        }
        let details = self.local.service.details.of(cx.worker);
        details.of(Detail::Active).add(1);
        if self.is_stream() {
            details.of(Detail::H2Active).add(1);
            details.of(Detail::H2Requests).add(1);
            details.of(Detail::H2BytesIn).add(bytes as u64);
        }
    }

    /// Counts request or response bytes over HTTP/2.
    pub(super) fn count_h2_bytes(&self, cx: &Context, detail: Detail, bytes: usize) {
        if self.is_stream() {
            let service = &self.local.service;
            service.detail(cx.worker, detail).add(bytes as u64);
        }
    }

    /// Counts the end of a request that [`Session::count_begin`] counted.
    fn count_end(&self, cx: &Context) {
        let details = self.local.service.details.of(cx.worker);
        details.of(Detail::Active).sub(1);
        if self.is_stream() {
            details.of(Detail::H2Active).sub(1);
        }
    }

    /// Counts the end of an exchange for its service, route, pool and server.
    fn count_exchange(&mut self, cx: &Context, status: u16, end: [u8; 2]) {
        if cfg!(without_metrics) {
            self.request.times = Default::default();
            return;
        }
        let local = Rc::clone(&self.local);
        let service = &local.service;
        if self.request.times.began_us > 0 && service.protocol == ProxyProtocol::Http {
            self.count_end(cx);
        }
        let finished = self.finished_exchange(cx, status, end);
        service.exchanges.of(cx.worker).record(&finished);
        let route = self.request.route;
        if let Some((_, route)) = route.and_then(|index| service.route_exchanges.get(index)) {
            route.of(cx.worker).record(&finished);
        }
        self.count_for_server(cx, &finished);
    }

    /// Returns the data to count for an exchange that ends.
    pub(super) fn finished_exchange(
        &mut self,
        cx: &Context,
        status: u16,
        end: [u8; 2],
    ) -> FinishedExchange {
        let service = &self.local.service;
        let times = std::mem::take(&mut self.request.times);
        let mut finished = FinishedExchange {
            status,
            error: ErrorKind::from_termination_flags(end),
            stages: times.stages,
            at_us: cx.now_us,
        };
        // The duration of a tunnel through an HTTP service depends only on its endpoints, so it is not counted.
        let is_tunnel = matches!(self.phase, Phase::Tunnel(_));
        if times.began_us > 0 && !(is_tunnel && service.protocol == ProxyProtocol::Http) {
            let us = u32::try_from(cx.now_us - times.began_us).unwrap_or(u32::MAX);
            finished.stages[Stage::Total as usize] = Some(us);
        }
        finished
    }

    /// Counts the end of an exchange for its pool and server.
    pub(super) fn count_for_server(&self, cx: &Context, finished: &FinishedExchange) {
        let service = &self.local.service;
        if !self.request.selection.is_started() {
            return;
        }
        let (pool_name, server) = self.pool_and_server();
        let pool = service.pools.get(self.request.pool);
        // A reload may have removed the pool.
        if let Some(pool) = pool.filter(|pool| pool_name == Some(&pool.pool)) {
            pool.exchanges.of(cx.worker).record(finished);
        }
        if let Some(target) = server {
            target.exchanges.of(cx.worker).record(finished);
            if let Some(us) = finished.stages[Stage::Response as usize] {
                target.recent.of(cx.worker).record(us.into(), cx.now_us);
            }
        }
    }

    /// Records an exchange that is interrupted by the end of the session.
    pub(super) fn record_abandoned(&mut self, cx: &mut Context) {
        let status = self.request.exchange.client_status();
        self.stop_interrupted_timer();
        match self.phase {
            Phase::Tunnel(_) => {
                self.record(cx, status);
                return;
            }
            Phase::File(ref transfer) => {
                let status = transfer.status();
                // Replaces the flags for a response that Weir generated.
                self.request.termination = NORMAL_END;
                self.set_termination(*b"CD");
                self.record(cx, status);
                return;
            }
            Phase::Verify(..) => self.set_termination(*b"CR"),
            Phase::Queue(_) => self.set_termination(*b"CQ"),
            Phase::Connect => self.set_termination(*b"CC"),
            Phase::Exchange if self.request.exchange.is_answered() => self.set_termination(*b"CD"),
            Phase::Exchange => self.set_termination(*b"CH"),
            Phase::Collect => self.set_termination(*b"CR"),
            // A TCP service has a log record before it has a server.
            Phase::Head | Phase::Handshake | Phase::PeekSni if self.log_record.is_some() => {
                self.set_termination(*b"CR");
            }
            // The TLS handshake with the client of a TCP service failed.
            Phase::Linger(_) if self.log_record.is_some() => self.set_termination(*b"PR"),
            _ => return,
        }
        let sent_status = if self.request.exchange.is_answered() {
            status
        } else {
            0
        };
        self.record(cx, sent_status);
    }
}
