//! Edits header fields and paths according to the service and the route, and provides the values of variables.

use std::borrow::Cow;

use weir_http::route::{self, RequestId, RouteInput, SERVER_MARK, TemplateContext, ValueEncoding};
use weir_http::{
    ConditionalLine, Field, Framing, Request, RequestEdit, ResponseEdit, TrailerFilter,
};
use weir_model::{ForwardAuth, HeaderEdit, HeaderEdits, Part, Pool, Route, SplitMix64};

use super::Session;
use crate::plan::{Service, Targets};

/// Returns a random number. It must be hidden with [`route::hidden`] before clients or servers see it, because later
/// numbers could be computed from it.
pub(super) fn random_key(random: &mut SplitMix64) -> u128 {
    u128::from(random.next_u64()) << 64 | u128::from(random.next_u64())
}

/// The texts that response edits refer to.
#[derive(Debug, Default)]
pub(super) struct ResponseTexts<'a> {
    add: Vec<u8>,
    remove: Vec<String>,
    conditional: Vec<ConditionalLine<'a>>,
}

impl Session {
    /// Returns the variable values for a request.
    #[inline]
    pub(super) fn template_context<'a>(
        &mut self,
        route_input: RouteInput<'a>,
        default_host: &'a [u8],
        pool: &'a str,
        route: Option<&'a Route>,
        random: &mut SplitMix64,
    ) -> TemplateContext<'a> {
        let id = self.request_id(&route_input, random);
        TemplateContext {
            route_input,
            client: self.client,
            port: self.listen_port(),
            default_host,
            request_id: id,
            server: None,
            pool,
            route,
            regex: None,
        }
    }

    /// Returns the value of `Host` for a request to a pool's servers. Returns `None` if the requested host is used: no
    /// other host is configured, or the configured template does not yield a valid host.
    pub(super) fn server_host<'t>(
        &mut self,
        targets: &'t Targets,
        route_input: RouteInput<'_>,
        default_host: &[u8],
        route: Option<&Route>,
        random: &mut SplitMix64,
    ) -> Option<Cow<'t, [u8]>> {
        let text = targets.host.as_ref()?;
        if let Some(literal) = text.as_literal() {
            return Some(Cow::Borrowed(literal.as_bytes()));
        }
        let template_context =
            self.template_context(route_input, default_host, &targets.pool, route, random);
        let mut host = Vec::new();
        route::expand(text, ValueEncoding::Field, &template_context, &mut host);
        let is_valid = (1..=Pool::MAX_HOST_BYTES).contains(&host.len())
            && host.iter().all(|byte| {
                let mut parts = text.parts().iter();
                let is_literal = |part: &Part| match part {
                    Part::Text(literal) => literal.as_bytes().contains(byte),
                    Part::Variable(_) => false,
                };
                Pool::may_be_in_host(*byte) || parts.any(is_literal)
            });
        is_valid.then_some(Cow::Owned(host))
    }

    /// Returns the request's identifier: the identifier that a trusted client sent, or a random one.
    #[inline]
    fn request_id<'a>(
        &mut self,
        route_input: &RouteInput<'a>,
        random: &mut SplitMix64,
    ) -> RequestId<'a> {
        let service = &self.local.service;
        let client_id = service.request_id.as_ref().and_then(|name| {
            let address = self.peer.ip();
            let mut trusted = service.trusted.iter();
            trusted
                .any(|network| network.contains(address))
                .then_some(())?;
            let has_name = |field: &&Field| {
                let field_name = field.name_in(route_input.head);
                field_name.eq_ignore_ascii_case(name.as_bytes())
            };
            let field = route_input.fields.iter().find(has_name)?;
            RequestId::from_client(field.value_in(route_input.head))
        });
        let request = &mut self.request;
        client_id.unwrap_or_else(|| {
            let key = request.id_key.get_or_insert_with(|| random_key(random));
            RequestId::Generated(*key)
        })
    }

    /// Applies the changes that the service and the route make to a request. Appends new fields to `add`, and stores
    /// the values of response fields that depend on the request. Returns the rewritten path, if any.
    pub(super) fn edit_request(
        &mut self,
        service: &Service,
        template_context: &TemplateContext<'_>,
        add: &mut Vec<u8>,
    ) -> Option<Vec<u8>> {
        let edits = template_context.route.map(|route| &route.edits);
        for field in service.request_header.fields() {
            // A field that the route sets replaces the service's field.
            let is_replaced =
                edits.is_some_and(|edits| edits.request.replaces(field.name.as_bytes()));
            if !is_replaced {
                write_field(field, template_context, add);
            }
        }
        if let Some(edits) = edits {
            edits
                .request
                .fields()
                .for_each(|field| write_field(field, template_context, add));
        }
        for field in response_fields(service, template_context.route)
            .filter(|field| field.value.as_literal().is_none())
        {
            let mut value = Vec::new();
            route::expand(
                &field.value,
                ValueEncoding::Field,
                template_context,
                &mut value,
            );
            self.request.response_values.push(value);
        }
        route::rewrite_path(edits?.path.as_ref()?, template_context)
    }

    /// Generates the texts for a response.
    pub(super) fn response_texts<'a>(&self, service: &'a Service) -> ResponseTexts<'a> {
        let mut texts = ResponseTexts::default();
        let route = self
            .request
            .route
            .and_then(|index| service.routes.get(index));
        let route_edits = route.map(|route| &route.edits.response);
        let service_edits = &service.response_header;
        if service_edits.is_empty() && route_edits.is_none_or(HeaderEdits::is_empty) {
            return texts;
        }
        let mut values = self.request.response_values.iter();
        let (_, server) = self.pool_and_server();
        let server = server.map_or("", |target| target.name.as_str());
        for edits in [Some(service_edits), route_edits].into_iter().flatten() {
            texts.remove.extend(edits.remove.iter().cloned());
            for (index, field) in edits.fields().enumerate() {
                let mut line = [field.name.as_bytes(), b": "].concat();
                match field.value.as_literal() {
                    Some(text) => line.extend_from_slice(text.as_bytes()),
                    None => write_with_server(
                        values.next().map_or(&[][..], Vec::as_slice),
                        server,
                        &mut line,
                    ),
                }
                line.extend_from_slice(b"\r\n");
                let is_replaced = std::ptr::eq(edits, service_edits)
                    && field.statuses.is_empty()
                    && route_edits.is_some_and(|other| {
                        let is_unlimited =
                            |set: &&HeaderEdit| set.statuses.is_empty() && set.file.is_none();
                        let mut sets = other.set.iter().filter(is_unlimited);
                        sets.any(|set| set.name.eq_ignore_ascii_case(&field.name))
                            || other
                                .remove
                                .iter()
                                .any(|name| name.eq_ignore_ascii_case(&field.name))
                    });
                // A response from a server is never one of the route's files.
                if is_replaced || field.file.is_some() {
                    continue;
                }
                let replaces = index < edits.set.len();
                if !field.statuses.is_empty() {
                    texts.conditional.push(ConditionalLine {
                        statuses: &field.statuses,
                        name: &field.name,
                        line,
                        replaces,
                    });
                    continue;
                }
                if replaces {
                    texts.remove.push(field.name.clone());
                }
                texts.add.extend_from_slice(&line);
            }
        }
        texts
    }

    /// Returns the changes to a response's head: the service's and the route's edits, and the sticky cookie. `head`
    /// starts with the head as received.
    pub(super) fn response_edit<'a>(
        &self,
        service: &'a Service,
        targets: &'a Targets,
        head: &[u8],
        texts: &'a mut ResponseTexts<'a>,
    ) -> ResponseEdit<'a> {
        let cookie = self.set_sticky_cookie(targets, head, &mut texts.add);
        let route = self
            .request
            .route
            .and_then(|index| service.routes.get(index));
        ResponseEdit {
            add: &texts.add,
            remove: &texts.remove,
            conditional: &texts.conditional,
            replace: [
                &service.response_header.replace,
                route.map_or(&[], |route| &route.edits.response.replace),
            ],
            cookie,
            encoding: self.encoding(service),
            status: service.response_status(self.request.route),
        }
    }
}

/// Fields that a route changes in a response that Weir generates.
#[derive(Debug, Default)]
pub(super) struct LocalResponseFields {
    /// Content type that replaces Weir's.
    pub(super) content_type: Option<String>,
    /// Other fields, as complete lines.
    pub(super) lines: Vec<u8>,
}

/// Returns the fields that a route adds to a generated response with this status.
pub(super) fn local_response_fields(
    edits: &HeaderEdits,
    status: u16,
    template_context: &TemplateContext<'_>,
) -> LocalResponseFields {
    let mut local_fields = LocalResponseFields::default();
    for (index, field) in edits.fields().enumerate() {
        let mut statuses = field.statuses.iter();
        let applies = |(first, last): &(u16, u16)| (*first..=*last).contains(&status);
        if field.file.is_some() || !field.statuses.is_empty() && !statuses.any(applies) {
            continue;
        }
        let (mut expanded, mut value) = (Vec::new(), Vec::new());
        route::expand(
            &field.value,
            ValueEncoding::Field,
            template_context,
            &mut expanded,
        );
        write_with_server(&expanded, "", &mut value);
        let is_set = index < edits.set.len();
        if is_set && field.name.eq_ignore_ascii_case("Content-Type") {
            local_fields.content_type = Some(String::from_utf8_lossy(&value).into_owned());
            continue;
        }
        local_fields.lines.extend_from_slice(field.name.as_bytes());
        local_fields.lines.extend_from_slice(b": ");
        local_fields.lines.extend_from_slice(&value);
        local_fields.lines.extend_from_slice(b"\r\n");
    }
    local_fields
}

/// Marks the request fields that edits remove or replace as dropped.
pub(super) fn drop_fields(edits: [Option<&HeaderEdits>; 2], head: &[u8], fields: &mut [Field]) {
    for edits in edits
        .into_iter()
        .flatten()
        .filter(|edits| !edits.is_empty())
    {
        for field in fields.iter_mut() {
            field.dropped |= edits.replaces(field.name_in(head));
        }
    }
}

/// The `forward_auth` rules for the client's fields, and the lines that replace those fields.
type CopiedFields<'a> = Option<(&'a ForwardAuth, &'a [u8])>;

/// Returns whether the client's `Cookie` field is removed or replaced.
pub(super) fn replaces_cookie(edits: [Option<&HeaderEdits>; 2], copied: CopiedFields<'_>) -> bool {
    let mut edits = edits.into_iter().flatten();
    edits.any(|edits| edits.replaces(b"cookie"))
        || copied.is_some_and(|(rules, _)| rules.replaces(b"cookie"))
}

/// Marks the request fields that `forward_auth` replaces as dropped, and appends the lines that replace them.
pub(super) fn replace_copied(
    copied: CopiedFields<'_>,
    head: &[u8],
    fields: &mut [Field],
    add: &mut Vec<u8>,
) {
    let Some((rules, lines)) = copied else {
        return;
    };
    for field in fields {
        field.dropped |= rules.replaces(field.name_in(head));
    }
    add.extend_from_slice(lines);
}

/// Returns the filter for the request's trailers; `None` = the request has no trailers. Unlike the route, the filter
/// outlives a reload.
pub(super) fn trailer_filter(
    request: &Request,
    edit: &RequestEdit<'_>,
    copied: CopiedFields<'_>,
) -> Option<Box<TrailerFilter>> {
    if request.framing != Framing::Chunked {
        return None;
    }
    let mut filter = edit.trailer_filter();
    let copied = copied.into_iter().flat_map(|(rules, _)| &rules.copy);
    filter.names.extend(copied.map(|(name, _)| name.clone()));
    Some(Box::new(filter))
}

fn response_fields<'a>(
    service: &'a Service,
    route: Option<&'a Route>,
) -> impl Iterator<Item = &'a HeaderEdit> {
    let route_edits = route.map(|route| &route.edits.response);
    std::iter::once(&service.response_header)
        .chain(route_edits)
        .flat_map(HeaderEdits::fields)
}

fn write_field(field: &HeaderEdit, template_context: &TemplateContext<'_>, out: &mut Vec<u8>) {
    out.extend_from_slice(field.name.as_bytes());
    out.extend_from_slice(b": ");
    route::expand(&field.value, ValueEncoding::Field, template_context, out);
    out.extend_from_slice(b"\r\n");
}

/// Appends a value, with the server's name inserted at its position.
fn write_with_server(value: &[u8], server: &str, out: &mut Vec<u8>) {
    for (index, part) in value.split(|byte| *byte == SERVER_MARK).enumerate() {
        if index > 0 {
            out.extend_from_slice(server.as_bytes());
        }
        out.extend_from_slice(part);
    }
}
