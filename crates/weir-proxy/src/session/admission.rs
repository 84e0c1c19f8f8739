//! Decides whether a request is admitted, based on its `basic_auth` user and the limits of its service and its route.

use weir_http::{Field, Request};
use weir_model::BasicAuth;
use weir_select::limit::{Admission, Slot};
use weir_select::route::{HostCheck, Rejection, RequestProperties};
use weir_sys::{Clock, now_ns};

use super::state::{AdmittedSlots, PasswordResult, Phase, UserCheck};
use super::{Outcome, Session, Step};
use crate::context::Context;
use crate::job::PASSWORDS;
use crate::job_result::{JobResult, Ticket};
use crate::password;
use crate::plan::Service;
use crate::slab::Key;

impl Session {
    /// Verifies the user for the request whose head is at the start of `bytes`. Returns `None` if another thread
    /// verifies the password; the head is then handled again. Limits are applied before a password is verified, because
    /// verification is expensive. The second returned value is set if the limits have admitted the request.
    pub(super) fn verify_user(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        request: &Request,
        bytes: &[u8],
    ) -> Option<(UserCheck, Option<Box<AdmittedSlots>>)> {
        let (verified, admitted) = match self.password_result.take() {
            Some(PasswordResult { is_valid, admitted }) => (Some(is_valid), Some(admitted)),
            None => (None, None),
        };
        let head = &bytes[..request.len];
        let mut path_buffer = std::mem::take(&mut cx.path);
        let tls = self.tls_details(service);
        let secure = self.is_client_secure(head, &cx.fields);
        let mut restarted = Vec::new();
        let buffers = (&mut path_buffer, &mut restarted);
        let tls_properties = (
            tls.as_deref()
                .map(|details| details.properties())
                .unwrap_or_default(),
            secure,
        );
        let target = self.target(
            service,
            (head, request),
            &cx.fields,
            tls_properties,
            buffers,
        );
        let properties = target.as_ref().ok().map(|target| RequestProperties {
            client: self.client,
            head,
            request,
            fields: &cx.fields,
            target,
            received_body_bytes: 0,
            host: HostCheck::Allowed,
            tls: tls
                .as_deref()
                .map(|details| details.properties())
                .unwrap_or_default(),
            secure,
            admitted: admitted.is_some(),
        });
        let route = properties
            .as_ref()
            .and_then(|properties| service.routes.choose(&properties.route_input()));
        let auth = service.auth_for(route);
        let job = match password_job(auth, head, &cx.fields, verified) {
            Err(check) => Err((check, admitted)),
            Ok(job) => match properties.map(|properties| admit(&properties, service, route)) {
                None => Ok((job, Box::default())),
                Some(Ok(admitted)) => Ok((job, Box::new(admitted))),
                Some(Err(rejected)) => Err((rejected, None)),
            },
        };
        cx.path = path_buffer;
        let (job, admitted) = match job {
            Ok(job) => job,
            Err(result) => return Some(result),
        };
        let ticket = cx.next_ticket();
        let work =
            move || JobResult::Verified(password::verify(&job.hash, &job.secret) && job.is_known);
        if !PASSWORDS.submit(key, ticket, &cx.inbox, work) {
            return Some((UserCheck::Busy, Some(admitted)));
        }
        self.begin_log_record(cx);
        self.input = cx.buffer();
        self.input.extend_from_slice(bytes);
        self.scanned = 0;
        self.phase = Phase::Verify(ticket, admitted);
        self.set_deadline(key, cx, service.timeouts.request);
        None
    }

    /// Handles the result of a job.
    pub(crate) fn handle_job_result(
        &mut self,
        ticket: Ticket,
        result: JobResult,
        key: Key,
        cx: &mut Context,
    ) -> Outcome {
        let step = match (&mut self.phase, result) {
            (
                Phase::Verify(expected, admitted),
                result @ (JobResult::Verified(_) | JobResult::Failed),
            ) if *expected == ticket => {
                self.password_result = Some(PasswordResult {
                    is_valid: matches!(result, JobResult::Verified(true)),
                    admitted: std::mem::take(admitted),
                });
                self.phase = Phase::Head;
                Step::Continue
            }
            (Phase::File(transfer), result) if transfer.expects(ticket) => {
                self.handle_file(result, key, cx)
            }
            // The request has already ended.
            _ => Step::Continue,
        };
        self.run(step, key, cx)
    }

    /// Responds to the request if it is not admitted. Returns `None` if it is admitted.
    pub(super) fn reject_unadmitted(
        &mut self,
        key: Key,
        cx: &mut Context,
        service: &Service,
        route: Option<usize>,
    ) -> Option<Step> {
        match self.request.user_check {
            UserCheck::Passed if service.has_forward_auth => {
                self.reject_unauthorized(key, cx, service, route)
            }
            UserCheck::Passed => None,
            UserCheck::Busy => Some(self.fail(key, cx, 503)),
            UserCheck::Rejected { rejection, .. } => {
                Some(self.fail_with_rejection(key, cx, rejection))
            }
            UserCheck::InvalidCredentials => {
                self.request.route = route;
                let realm = service.auth_for(route).map_or("", |auth| &auth.realm);
                let field =
                    format!("WWW-Authenticate: Basic realm=\"{realm}\", charset=\"UTF-8\"\r\n");
                Some(self.respond_with_fields(key, cx, 401, field.as_bytes()))
            }
        }
    }
}

/// A password to verify.
struct PasswordJob {
    hash: String,
    secret: Vec<u8>,
    /// Whether the user exists. If not, another user's hash is used, so both cases take equally long.
    is_known: bool,
}

/// Returns the password that must be verified for a request. `verified` is the result of an earlier verification, if
/// any.
///
/// # Errors
/// Returns the result of the check if no password must be verified.
fn password_job(
    auth: Option<&BasicAuth>,
    head: &[u8],
    fields: &[Field],
    verified: Option<bool>,
) -> Result<PasswordJob, UserCheck> {
    let auth = auth.ok_or(UserCheck::Passed)?;
    let (user, secret) = authorization(head, fields).ok_or(UserCheck::InvalidCredentials)?;
    let known_hash = auth.hash_of(&user);
    let is_known = known_hash.is_some();
    let hash = known_hash.or_else(|| auth.any_hash(password::user_hash(&user)));
    let hash = hash.ok_or(UserCheck::InvalidCredentials)?;
    if is_known && password::is_remembered(hash, &secret) {
        return Err(UserCheck::Passed);
    }
    match verified {
        // The password was valid, but is no longer remembered: many others have been verified since.
        Some(true) => Err(UserCheck::Busy),
        Some(false) => Err(UserCheck::InvalidCredentials),
        None => Ok(PasswordJob {
            hash: hash.to_owned(),
            secret,
            is_known,
        }),
    }
}

/// Applies a service's limits and a route's limits to a request before its password is verified or its authorization
/// is requested.
///
/// # Errors
/// Returns the result for a request that exceeds a limit.
pub(super) fn admit(
    properties: &RequestProperties<'_>,
    service: &Service,
    route: Option<usize>,
) -> Result<AdmittedSlots, UserCheck> {
    let rejected = |route| move |rejection| UserCheck::Rejected { rejection, route };
    let now_ns = match service.limits.needs_time() {
        true => now_ns(Clock::Monotonic),
        false => 0,
    };
    let slot = service
        .limits
        .admit(properties, now_ns)
        .map_err(rejected(None))?;
    let route_slots = match route {
        Some(index) => apply_limits(properties, service, index).map_err(rejected(Some(index)))?,
        None => [None, None],
    };
    Ok(AdmittedSlots {
        slot,
        route_slots: route_slots.into_iter().flatten().collect(),
    })
}

/// Applies a route's limits. Returns the slots that the request takes.
///
/// # Errors
/// Returns the response to a request that exceeds a limit.
pub(super) fn apply_limits(
    properties: &RequestProperties<'_>,
    service: &Service,
    route: usize,
) -> Result<[Option<Slot>; 2], Rejection> {
    let Some(Some(options)) = service.options.get(route) else {
        return Ok([None, None]);
    };
    let client_slot = match &options.limits {
        Some(limits) => limits.admit(properties, now_ns(Clock::Monotonic))?,
        None => None,
    };
    let global_slot = match options.all_clients.as_ref().map(|all| all.admit(0)) {
        Some(Admission::Counted(slot)) => Some(slot),
        Some(Admission::Rejected) => return Err(Rejection::new(503)),
        Some(Admission::Uncounted) | None => None,
    };
    Ok([client_slot, global_slot])
}

/// Returns the user and password in a request.
fn authorization(head: &[u8], fields: &[Field]) -> Option<(String, Vec<u8>)> {
    let mut values = fields
        .iter()
        .filter(|field| field.name_in(head).eq_ignore_ascii_case(b"authorization"));
    let value = values.next()?.value_in(head);
    // With several fields, the server and Weir could use different ones.
    values
        .next()
        .is_none()
        .then(|| password::parse_credentials(value))?
}
