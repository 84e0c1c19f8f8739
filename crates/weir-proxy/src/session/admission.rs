//! Whether a request may be answered: the user of `basic_auth`, and the limits of the route.

use weir_http::route::Asked;
use weir_http::{Field, Request, RequestPath, path};
use weir_model::BasicAuth;
use weir_select::limit::Admission;
use weir_select::route::{Facts, Rejection};
use weir_sys::{Clock, now_ns};

use super::state::{Gate, Phase};
use super::{Outcome, Session, Step};
use crate::context::Context;
use crate::done::{Done, Ticket};
use crate::job::PASSWORDS;
use crate::password;
use crate::plan::Service;
use crate::slab::Key;

impl Session {
    /// Verifies the user of a request whose head begins `bytes`. `None`: the password is verified by another thread,
    /// and the head is handled again afterwards.
    pub(super) fn verify_user(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        request: &Request,
        bytes: &[u8],
    ) -> Option<Gate> {
        let verified = self.verified.take();
        let head = &bytes[..request.len];
        let auth = self.auth_of(cx, service, request, head);
        let Some(auth) = auth else {
            return Some(Gate::Open);
        };
        let Some((user, secret)) = authorization(head, &cx.fields) else {
            return Some(Gate::Closed);
        };
        let known = auth.hash_of(&user);
        let is_known = known.is_some();
        let Some(hash) = known.or_else(|| auth.any_hash(password::number_of(&user))) else {
            return Some(Gate::Closed);
        };
        if is_known && password::is_remembered(hash, &secret) {
            return Some(Gate::Open);
        }
        // A valid password is remembered, unless many others were verified since.
        if let Some(is_valid) = verified {
            return Some(if is_valid { Gate::Busy } else { Gate::Closed });
        }
        let hash = hash.to_owned();
        let ticket = cx.ticket();
        let work = move || Done::Verified(password::verify(&hash, &secret) && is_known);
        if !PASSWORDS.submit(key, ticket, &cx.inbox, work) {
            return Some(Gate::Busy);
        }
        self.begin_log_record(cx);
        self.input = cx.buffer();
        self.input.extend_from_slice(bytes);
        self.scanned = 0;
        self.phase = Phase::Verify(ticket);
        self.set_deadline(key, cx, service.timeouts.request);
        None
    }

    /// The users of the route of a request, or of its service.
    fn auth_of<'a>(
        &self,
        cx: &mut Context,
        service: &'a Service,
        request: &Request,
        head: &[u8],
    ) -> Option<&'a BasicAuth> {
        let received = request.path_in(head);
        let mut room = std::mem::take(&mut cx.path);
        let target = match &service.normalize_path {
            None => Ok(RequestPath::received(received)),
            Some(rules) => path::normalize(received, rules, &mut room),
        };
        let tls = self.tls_details(service);
        let route = target.ok().and_then(|target| {
            service.routes.choose(&Asked {
                client: self.peer.ip(),
                target: &target,
                head,
                request,
                fields: &cx.fields,
                tls: tls.as_deref().map(|it| it.facts()).unwrap_or_default(),
            })
        });
        cx.path = room;
        service.auth_of(route)
    }

    /// Handles the result of a job.
    pub(crate) fn handle_done(
        &mut self,
        ticket: Ticket,
        done: Done,
        key: Key,
        cx: &mut Context,
    ) -> Outcome {
        let step = match (&self.phase, done) {
            (Phase::Verify(expected), Done::Verified(is_valid)) if *expected == ticket => {
                self.verified = Some(is_valid);
                self.phase = Phase::Head;
                Step::Continue
            }
            (Phase::Verify(expected), Done::Failed) if *expected == ticket => {
                self.verified = Some(false);
                self.phase = Phase::Head;
                Step::Continue
            }
            (Phase::File(transfer), done) if transfer.expects(ticket) => {
                self.handle_file(done, key, cx)
            }
            // Of a request that has ended.
            _ => Step::Continue,
        };
        self.run(step, key, cx)
    }

    /// Answers a request that its route does not admit. `None`: it is admitted.
    pub(super) fn refuse(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        route: Option<usize>,
    ) -> Option<Step> {
        match self.request.gate {
            Gate::Open => None,
            Gate::Busy => Some(self.fail(key, cx, 503)),
            Gate::Closed => {
                self.request.route = route;
                let realm = service.auth_of(route).map_or("", |auth| &auth.realm);
                let field =
                    format!("WWW-Authenticate: Basic realm=\"{realm}\", charset=\"UTF-8\"\r\n");
                Some(self.answer_with(key, cx, 401, field.as_bytes()))
            }
        }
    }

    /// Applies the limits of a route.
    ///
    /// # Errors
    /// The response to a request that exceeds one.
    pub(super) fn limit(
        &mut self,
        facts: &Facts<'_>,
        service: &Service,
        route: usize,
    ) -> Result<(), Rejection> {
        let Some(Some(options)) = service.options.get(route) else {
            return Ok(());
        };
        if let Some(limits) = &options.limits {
            let slot = limits.admit(facts, now_ns(Clock::Monotonic))?;
            self.request.more_slots.extend(slot);
        }
        if let Some(all) = &options.all_clients {
            match all.admit(0) {
                Admission::Counted(slot) => self.request.more_slots.push(slot),
                Admission::Rejected => return Err(Rejection::new(503)),
                Admission::Uncounted => {}
            }
        }
        Ok(())
    }
}

/// Name and password of a request.
fn authorization(head: &[u8], fields: &[Field]) -> Option<(String, Vec<u8>)> {
    let mut values = fields
        .iter()
        .filter(|field| field.name_in(head).eq_ignore_ascii_case(b"authorization"));
    let value = values.next()?.value_in(head);
    // Servers could read another one of them.
    values
        .next()
        .is_none()
        .then(|| password::credentials(value))?
}
