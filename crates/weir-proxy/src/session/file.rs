//! Sends static files. Other threads open a file and read it in parts, as fast as the client receives them.

use std::rc::Rc;
use std::sync::Arc;

use weir_http::route::{self, TemplateContext, ValueEncoding};
use weir_http::{Field, reason_phrase};
use weir_model::{HeaderEdits, StaticFiles};

use super::edit::LocalResponseFields;
use super::file_transfer::{FileProgress, Line, Transfer, is_replaced};
use super::state::Phase;
use super::{Session, Step};
use crate::context::Context;
use crate::job::FILES;
use crate::job_result::JobResult;
use crate::plan::Service;
use crate::slab::Key;
use crate::static_file::{self, MAX_PART, Query, QueryResult, Response};

/// Returns the file query for a request, and the transfer state.
pub(super) fn file_request(
    service: &Service,
    files: &Arc<StaticFiles>,
    template_context: &TemplateContext<'_>,
) -> (Query, Transfer) {
    let route_input = &template_context.route_input;
    let head = route_input.head;
    let method = route_input.request.method_in(head);
    let is_allowed = method == b"GET" || method == b"HEAD";
    let to_head = method == b"HEAD";
    let field = |name: &str| {
        let has_name = |field: &&Field| field.name_in(head).eq_ignore_ascii_case(name.as_bytes());
        let value = route_input.fields.iter().find(has_name)?.value_in(head);
        std::str::from_utf8(value).ok().map(str::to_owned)
    };
    let path = route_input.target.path();
    let query = Query {
        files: Arc::clone(files),
        path: path.to_vec(),
        to_head,
        if_match: field("if-match"),
        if_none_match: field("if-none-match"),
        if_modified_since: field("if-modified-since"),
        if_unmodified_since: field("if-unmodified-since"),
        // Ranges are defined only for GET (RFC 9110 section 14.2).
        range: field("range").filter(|_| !to_head),
        if_range: field("if-range"),
    };
    let route_edits = template_context.route.map(|route| &route.edits.response);
    let (mut edits, mut removed_fields) = (Vec::new(), Vec::new());
    for header_edits in [Some(&service.response_header), route_edits]
        .into_iter()
        .flatten()
    {
        add_edits(header_edits, template_context, &mut edits);
        removed_fields.extend(header_edits.remove.iter().cloned());
    }
    let transfer = Transfer {
        awaited_job: None,
        target: [path, b"/", route_input.target.query_part()].concat(),
        missing_status: files.missing_status,
        fallback: None,
        is_allowed,
        edits,
        removed_fields,
        progress: None,
    };
    (query, transfer)
}

impl Session {
    /// Starts a job that looks for the requested file.
    pub(super) fn begin_file(
        &mut self,
        key: Key,
        cx: &mut Context,
        (query, mut transfer): (Query, Transfer),
    ) -> Step {
        if !transfer.is_allowed && transfer.fallback.is_none() {
            let fields = transfer.local_response_fields(405);
            return self.reject_method(key, cx, fields);
        }
        let ticket = cx.next_ticket();
        let work = move || JobResult::Lookup(static_file::find(&query));
        if !FILES.submit(key, ticket, &cx.inbox, work) {
            return self.fail(key, cx, 503);
        }
        transfer.awaited_job = Some(ticket);
        self.phase = Phase::File(Box::new(transfer));
        let ms = self.local.service.timeouts.server;
        self.set_deadline(key, cx, ms);
        Step::Pending
    }

    fn reject_method(
        &mut self,
        key: Key,
        cx: &mut Context,
        mut fields: LocalResponseFields,
    ) -> Step {
        fields.lines.extend_from_slice(b"Allow: GET, HEAD\r\n");
        self.send_route_response(key, cx, 405, None, &[], &fields)
    }

    /// Handles the result of the awaited job.
    pub(super) fn handle_file(&mut self, result: JobResult, key: Key, cx: &mut Context) -> Step {
        let Phase::File(transfer) = &mut self.phase else {
            return Step::Close;
        };
        transfer.awaited_job = None;
        match result {
            JobResult::Lookup(query_result) if transfer.progress.is_none() => {
                self.handle_query_result(query_result, key, cx)
            }
            JobResult::Read(Ok(bytes)) => self.handle_part(&bytes, cx),
            JobResult::Read(Err(_))
            | JobResult::Lookup(_)
            | JobResult::Verified(_)
            | JobResult::Failed => self.abort_file(key, cx),
        }
    }

    fn abort_file(&mut self, key: Key, cx: &mut Context) -> Step {
        match &self.phase {
            Phase::File(transfer) if transfer.is_answered() => {
                self.set_termination(*b"IL");
                Step::Close
            }
            _ => self.fail(key, cx, 500),
        }
    }

    fn handle_query_result(
        &mut self,
        query_result: QueryResult,
        key: Key,
        cx: &mut Context,
    ) -> Step {
        let Phase::File(transfer) = &mut self.phase else {
            return Step::Close;
        };
        if matches!(query_result, QueryResult::Missing | QueryResult::Unlisted)
            && let Some(request) = transfer.fallback.take()
        {
            return self.collect_or_connect(key, cx, &request);
        }
        if !transfer.is_allowed {
            let fields = transfer.local_response_fields(405);
            return self.reject_method(key, cx, fields);
        }
        match query_result {
            QueryResult::Response(response) => self.send_file_head(response, key, cx),
            QueryResult::Directory => {
                let target = std::mem::take(&mut transfer.target);
                // A location that starts with two slashes would specify a host.
                let slashes = target
                    .iter()
                    .take_while(|byte| matches!(byte, b'/' | b'\\'))
                    .count();
                let location = [b"/", &target[slashes..]].concat();
                let fields = transfer.local_response_fields(301);
                self.send_route_response(key, cx, 301, Some(&location), &[], &fields)
            }
            QueryResult::Missing | QueryResult::Unlisted => {
                // Other web servers also respond with 403 for a directory that they do not list.
                let status = match (&query_result, transfer.missing_status) {
                    (QueryResult::Unlisted, 404) => 403,
                    (_, status) => status,
                };
                let fields = transfer.local_response_fields(status);
                self.send_route_response(key, cx, status, None, &[], &fields)
            }
            QueryResult::Forbidden => {
                let fields = transfer.local_response_fields(403);
                self.send_route_response(key, cx, 403, None, &[], &fields)
            }
            QueryResult::Error(error) => {
                if cx.may_warn() {
                    let service = &self.local.service.name;
                    tracing::warn!(service, %error, "failed to read a file");
                }
                self.fail(key, cx, 500)
            }
        }
    }

    fn send_file_head(&mut self, response: Response, key: Key, cx: &mut Context) -> Step {
        self.set_termination(*b"LR");
        let persists = self.request.exchange.client_could_persist() && !self.is_last(cx);
        let is_http10 = self.request.exchange.is_http10();
        let Phase::File(transfer) = &mut self.phase else {
            return Step::Close;
        };
        let mut out = std::mem::take(&mut cx.out);
        out.clear();
        write_head(&response, transfer, &mut out);
        match (persists, is_http10) {
            (false, _) => out.extend_from_slice(b"Connection: close\r\n"),
            (true, true) => out.extend_from_slice(b"Connection: keep-alive\r\n"),
            (true, false) => {}
        }
        out.extend_from_slice(b"\r\n");
        transfer.progress = Some(FileProgress {
            status: response.status,
            file: response.file,
            next_offset: response.next_offset,
            remaining: response.remaining,
            persists,
        });
        let is_connected = self.send(cx, &mut out, &response.first_bytes);
        cx.out = out;
        let ms = self.timeouts().client;
        self.set_deadline(key, cx, ms);
        if is_connected {
            Step::Continue
        } else {
            Step::Close
        }
    }

    fn handle_part(&mut self, bytes: &[u8], cx: &mut Context) -> Step {
        let Phase::File(transfer) = &mut self.phase else {
            return Step::Close;
        };
        let Some(progress) = &mut transfer.progress else {
            return Step::Close;
        };
        // The file is now shorter than the announced length.
        if bytes.is_empty() {
            self.set_termination(*b"IL");
            return Step::Close;
        }
        progress.next_offset += bytes.len() as u64;
        progress.remaining = progress.remaining.saturating_sub(bytes.len() as u64);
        match self.send(cx, &mut Vec::new(), bytes) {
            true => Step::Continue,
            false => Step::Close,
        }
    }

    /// Continues after the client has received some bytes: reads the next part, or ends the response.
    pub(super) fn run_file(&mut self, key: Key, cx: &mut Context) -> Step {
        match self.flush(cx) {
            None => return Step::Close,
            Some(false) => return self.wait_for_client(key, cx),
            Some(true) => {}
        }
        let Phase::File(transfer) = &mut self.phase else {
            return Step::Close;
        };
        if transfer.awaited_job.is_some() {
            return Step::Pending;
        }
        let Some(progress) = &transfer.progress else {
            return Step::Close;
        };
        if progress.remaining == 0 {
            let (status, persists) = (progress.status, progress.persists);
            self.record(cx, status);
            return self.after_response(key, cx, persists);
        }
        let (file, offset) = (Arc::clone(&progress.file), progress.next_offset);
        let size = usize::try_from(progress.remaining)
            .unwrap_or(MAX_PART)
            .min(MAX_PART);
        let ticket = cx.next_ticket();
        let work = move || JobResult::Read(static_file::read_at(&file, offset, size));
        if !FILES.submit(key, ticket, &cx.inbox, work) {
            self.set_termination(*b"IL");
            return Step::Close;
        }
        transfer.awaited_job = Some(ticket);
        let local = Rc::clone(&self.local);
        self.set_deadline(key, cx, local.service.timeouts.server);
        Step::Pending
    }

    fn wait_for_client(&mut self, key: Key, cx: &mut Context) -> Step {
        if std::mem::take(&mut self.made_progress) {
            let ms = self.timeouts().client;
            self.set_deadline(key, cx, ms);
        }
        Step::Pending
    }
}

fn add_edits(edits: &HeaderEdits, template_context: &TemplateContext<'_>, lines: &mut Vec<Line>) {
    for (index, field) in edits.fields().enumerate() {
        let mut value = Vec::new();
        route::expand(
            &field.value,
            ValueEncoding::Field,
            template_context,
            &mut value,
        );
        // There is no server whose name could be inserted.
        value.retain(|byte| *byte != route::SERVER_MARK);
        lines.push(Line {
            name: field.name.clone(),
            value,
            statuses: field.statuses.clone(),
            file: field.file.clone(),
            replaces: index < edits.set.len(),
        });
    }
}

/// Writes the status line and the fields, without `Connection` and the empty line.
fn write_head(response: &Response, transfer: &Transfer, out: &mut Vec<u8>) {
    let status = response.status;
    out.extend_from_slice(format!("HTTP/1.1 {status} {}\r\n", reason_phrase(status)).as_bytes());
    let lines = transfer.lines(status, Some(&response.name));
    for (name, value) in &response.fields {
        let mut removed_fields = transfer.removed_fields.iter();
        if !is_replaced(name, &lines)
            && !removed_fields.any(|field| field.eq_ignore_ascii_case(name))
        {
            out.extend_from_slice(format!("{name}: {value}\r\n").as_bytes());
        }
    }
    for line in lines {
        line.write(out);
    }
}
