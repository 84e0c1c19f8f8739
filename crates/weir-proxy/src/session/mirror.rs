//! Sends request copies to the pool that a route's `mirror` specifies.
//!
//! A copy is collected while its request is received. When the request is complete, or at once if bodies are not
//! copied, a separate session without a client sends the copy, and discards the response. A copy therefore uses the
//! same selection, connections, TLS and HTTP/2 as all requests, and can neither delay nor change the response to the
//! client.

use std::rc::Rc;
use std::sync::Arc;

use weir_http::{Exchange, Framing, Method, Name, RequestEdit, write_request};
use weir_model::SchedulerKind;
use weir_select::key::hash_of_request;
use weir_select::limit::Admission;
use weir_select::{Replay, Selection};

use super::record::NORMAL_END;
use super::request::IncomingRequest;
use super::state::{self, Linger, Phase, Times};
use super::{Outcome, Session, Step};
use crate::context::{Context, MirrorCopy};
use crate::plan::{Detail, Mirror, Service};
use crate::slab::Key;
use crate::transport::Transport;

/// Additional space for the framing of a copied body, in bytes: a body with its framing may take twice the body limit
/// plus this space.
const FRAMING_ROOM: usize = 4 << 10;

impl Session {
    /// Starts a request's copies for its route's mirrors. `edit` is the edit of the original request.
    #[inline]
    pub(super) fn begin_copies(
        &mut self,
        cx: &mut Context,
        service: &Service,
        incoming: IncomingRequest<'_>,
        edit: &RequestEdit<'_>,
    ) {
        let mirrors = self.options().map_or(0, |options| options.mirrors.len());
        for index in 0..mirrors {
            let options = self.options();
            let mirror = options.and_then(|options| options.mirrors.get(index));
            if let Some(mirror) = mirror.map(Arc::clone) {
                self.begin_copy(cx, service, mirror, incoming, edit);
            }
        }
    }

    /// Starts a copy for one mirror, if the request is selected for copying, is not a tunnel, and exceeds no limit.
    fn begin_copy(
        &mut self,
        cx: &mut Context,
        service: &Service,
        mirror: Arc<Mirror>,
        incoming: IncomingRequest<'_>,
        edit: &RequestEdit<'_>,
    ) {
        let IncomingRequest {
            head,
            request,
            target,
            ..
        } = incoming;
        let is_tunnel = request.upgrade || request.method == Method::Connect;
        let is_selected =
            cx.random.below(u64::from(weir_model::Mirror::ALL)) < u64::from(mirror.share);
        if is_tunnel || !is_selected {
            return;
        }
        let limit = mirror.max_body_bytes as u64;
        let is_too_long =
            matches!(request.framing, Framing::Length(bytes) if limit > 0 && bytes > limit);
        let slot = match mirror.concurrent.admit(0) {
            Admission::Counted(slot) if !is_too_long && !cx.draining => slot,
            _ => return service.detail(cx.worker, Detail::MirrorSkipped).add(1),
        };
        let Some(targets) = service.pools.get(mirror.pool_index) else {
            return;
        };
        let route_input = incoming.properties(self.client.ip(), &cx.fields);
        let routes = &service.routes;
        let route = self.request.route.and_then(|index| routes.get(index));
        let set_host = self.server_host(targets, route_input, edit.host, route, &mut cx.random);
        let path = mirror.path.as_ref();
        let path = path.map(|path| [path.as_bytes(), target.query_part()].concat());
        let edit = RequestEdit {
            set_host: set_host.as_deref(),
            path: path.as_deref().or(edit.path),
            ..*edit
        };
        let hash = match targets.scheduler.kind {
            SchedulerKind::Hash => {
                hash_of_request(&targets.hash_key, self.client, target, head, &cx.fields)
            }
            _ => 0,
        };
        let mut request = request.clone();
        let mut bodiless_fields = Vec::new();
        let fields = match mirror.max_body_bytes {
            0 => {
                request.framing = Framing::None;
                bodiless_fields.clone_from(&cx.fields);
                for field in &mut bodiless_fields {
                    field.dropped |= matches!(
                        field.name,
                        Name::ContentLength | Name::TransferEncoding | Name::Expect
                    );
                }
                &bodiless_fields
            }
            _ => &cx.fields,
        };
        let mut bytes = Vec::new();
        write_request(head, &request, fields, &edit, &mut bytes);
        self.request.copies.push(MirrorCopy {
            local: Rc::clone(&self.local),
            peer: self.client,
            port: self.port,
            pool: targets.pool.clone(),
            slot,
            exchange: Exchange::new(&request, service.head.underscores),
            head_len: bytes.len(),
            bytes,
            hash,
            mirror,
            auth_request: None,
        });
    }

    /// Returns whether the request is copied; its body must then not be spliced.
    pub(super) const fn is_copied(&self) -> bool {
        !self.request.copies.is_empty()
    }

    /// Adds received parts of the request body to its copies, and sends complete copies.
    #[inline]
    pub(super) fn copy_content(&mut self, cx: &mut Context, parts: [&[u8]; 2]) {
        if self.is_copied() {
            self.extend_copies(cx, parts);
        }
    }

    fn extend_copies(&mut self, cx: &mut Context, parts: [&[u8]; 2]) {
        let (content, is_done) = (
            self.request.exchange.request_content(),
            self.request.exchange.request_done(),
        );
        for mut copy in std::mem::take(&mut self.request.copies) {
            let limit = copy.mirror.max_body_bytes;
            if limit > 0 {
                parts
                    .iter()
                    .for_each(|part| copy.bytes.extend_from_slice(part));
                let framed = copy.bytes.len() - copy.head_len;
                if content > limit as u64 || framed > 2 * limit + FRAMING_ROOM {
                    self.count_copy(cx, Detail::MirrorSkipped);
                    continue;
                }
            }
            if is_done || limit == 0 {
                self.send_copy(cx, copy);
            } else {
                self.request.copies.push(copy);
            }
        }
    }

    fn send_copy(&mut self, cx: &mut Context, mut copy: MirrorCopy) {
        let body = &copy.bytes[copy.head_len..];
        let is_complete =
            copy.exchange.process_client_data(body).is_ok() && copy.exchange.request_done();
        // A new configuration may have removed the pool.
        copy.local = Rc::clone(&self.local);
        let mut pools = self.local.service.pools.iter();
        if !is_complete || cx.draining || !pools.any(|pool| pool.pool == copy.pool) {
            self.count_copy(cx, Detail::MirrorSkipped);
            return;
        }
        cx.copies.push(copy);
    }

    /// Creates the session that sends a copy.
    pub(crate) fn from_copy(copy: MirrorCopy) -> Self {
        let mut pools = copy.local.service.pools.iter();
        let pool = pools.position(|pool| pool.pool == copy.pool);
        let mut session = Self::new(Transport::null(), copy.peer, copy.port, copy.local);
        session.request = state::Request::new(copy.exchange);
        session.request.pool = pool.unwrap_or(0);
        session.request.slot = Some(copy.slot);
        session.request.selection = Selection::new(copy.hash);
        session.to_server = copy.bytes.into();
        session.mirror = Some(copy.mirror);
        if let Some(auth_request) = copy.auth_request {
            session.request.selection.set_replay(Replay::Allowed);
            session.auth_request = Some(Box::new(auth_request));
        }
        session
    }

    fn count_copy(&self, cx: &Context, detail: Detail) {
        self.local.service.detail(cx.worker, detail).add(1);
    }

    /// Returns whether the session sends a copy of another session's request, or an authorization request.
    pub(crate) const fn is_copy(&self) -> bool {
        self.mirror.is_some()
    }

    /// Starts a session that sends a copy.
    pub(crate) fn begin_as_copy(&mut self, key: Key, cx: &mut Context) -> Outcome {
        if self
            .mirror
            .as_ref()
            .is_some_and(|mirror| !mirror.is_auth_request)
        {
            self.count_copy(cx, Detail::Mirrored);
        }
        self.request.times = Times::new(cx.now_us);
        self.phase = Phase::Connect;
        let total = self.timeouts().total;
        if total > 0 {
            self.request.deadline_ms = cx.now + total;
        }
        let step = self.connect(key, cx);
        self.run(step, key, cx)
    }

    /// Ends a copy's session. `status` is the response status; 0 = the copy failed.
    pub(super) fn end_copy(&mut self, cx: &mut Context, status: u16) -> Step {
        self.end_auth_request(cx);
        self.leave_server(cx, false);
        self.record(cx, status);
        self.phase = Phase::Linger(Linger::Discard);
        Step::Close
    }

    /// Records the end of a copy only for its pool and server.
    pub(super) fn record_copy(&mut self, cx: &Context, status: u16) {
        let end = std::mem::replace(&mut self.request.termination, NORMAL_END);
        let is_auth_request = self
            .mirror
            .as_ref()
            .is_some_and(|mirror| mirror.is_auth_request);
        if (status == 0 || end != NORMAL_END) && !is_auth_request {
            self.count_copy(cx, Detail::MirrorFailed);
        }
        let finished = self.finished_exchange(cx, status, end);
        self.count_for_server(cx, &finished);
    }
}
