//! Writes forwarded heads: fields that are kept are copied as ranges, and hop-by-hop fields are removed or rewritten.

use std::net::IpAddr;

use weir_model::{
    ClientField, ClientFields, Coding, Compression, FieldRule, Forwarded, HeaderEdits,
    HeaderReplacement,
};

use crate::decimal::write_address;
use crate::encoding;
use crate::field::{Field, Name};
use crate::head::{Framing, Method, Request, Response};
use crate::local_response::reason_phrase;
use crate::trailer::TrailerFilter;

/// The client's properties that the forwarding fields contain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// The client's address.
    pub address: IpAddr,
    /// Whether the client uses TLS.
    pub secure: bool,
    /// Whether the client is a trusted proxy, whose forwarding fields are kept and extended. The forwarding fields of
    /// other clients are removed.
    pub trusted: bool,
    /// The fields to write; must not be `Off` (see [`RequestEdit::client`]).
    pub forwarded: Forwarded,
}

/// Rules for individual fields about the client, and their values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientEdit<'a> {
    /// The rules for individual fields.
    pub rules: &'a ClientFields,
    /// Connection source address, which is appended to `X-Forwarded-For`.
    pub address: IpAddr,
    /// The client's address. It differs from `address` if a trusted proxy sent it.
    pub client: IpAddr,
    /// Whether the client uses TLS.
    pub secure: bool,
    /// The port that the client connected to.
    pub port: u16,
}

/// The edits to a request head.
#[derive(Debug, Clone, Copy)]
pub struct RequestEdit<'a> {
    /// The client; `None` means that no forwarding fields are written, and the client's fields are kept.
    pub client: Option<Client>,
    /// Fields about the client with a rule; `client` does not apply to them.
    pub fields: Option<ClientEdit<'a>>,
    /// Replaces `Host`; the fields about the client still contain the requested host.
    pub set_host: Option<&'a [u8]>,
    /// `Host` to send if the client sent none, which HTTP/1.0 allows.
    pub host: &'a [u8],
    /// The client's HTTP version, as written in `Via`: `1.0`, `1.1`, `2`.
    pub version: &'a str,
    /// Replaces the path and the query.
    pub path: Option<&'a [u8]>,
    /// Complete lines to add.
    pub add: &'a [u8],
    /// Field edits from the service and from the request's route. Weir does not write the fields that these edits set
    /// or remove.
    pub edits: [Option<&'a HeaderEdits>; 2],
    /// Whether to request that the server close the connection after its response.
    pub close: bool,
}

impl RequestEdit<'_> {
    /// Returns the rule for a field about the client, if there is one.
    fn rule_of(&self, name: &[u8]) -> Option<FieldRule> {
        self.fields.and_then(|fields| fields.rules.rule_of(name))
    }

    /// Returns whether the service or the route sets or removes the field.
    fn is_edited(&self, name: &[u8]) -> bool {
        self.edits
            .iter()
            .flatten()
            .any(|edits| edits.replaces(name))
    }

    /// Returns the filter for trailers: fields that the edit removes or replaces are not forwarded as trailers.
    pub fn trailer_filter(&self) -> TrailerFilter {
        let edits = self.edits.iter().flatten();
        let replaced = edits.flat_map(|edits| {
            let set = edits.set.iter().map(|edit| &edit.name);
            edits.remove.iter().chain(set)
        });
        TrailerFilter {
            names: replaced.cloned().collect(),
            removes_client_fields: self.client.is_some(),
            rules: self.fields.map_or(ClientFields::default(), |it| *it.rules),
        }
    }
}

/// Appends the request's head for the server; the body follows unchanged.
pub fn write_request(
    head: &[u8],
    request: &Request,
    fields: &[Field],
    edit: &RequestEdit<'_>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(request.method_in(head));
    out.push(b' ');
    let path = match request.method {
        Method::Connect => request.target_in(head),
        _ => edit.path.unwrap_or_else(|| request.path_in(head)),
    };
    if request.method != Method::Connect && !path.starts_with(b"/") && path != b"*" {
        out.push(b'/');
    }
    out.extend_from_slice(path);
    out.extend_from_slice(b" HTTP/1.1\r\n");
    let has_host = fields.iter().any(|field| field.name == Name::Host);
    if let Some(host) = edit.set_host {
        out.extend_from_slice(b"Host: ");
        out.extend_from_slice(host);
        out.extend_from_slice(b"\r\n");
    } else if request.has_authority() || !has_host {
        out.extend_from_slice(b"Host: ");
        out.extend_from_slice(request.host_in(head, fields).unwrap_or(edit.host));
        out.extend_from_slice(b"\r\n");
    }
    copy_lines(head, fields, out, |field| {
        if field.name == Name::Host && edit.set_host.is_some() {
            return false;
        }
        let rule = match field.name {
            Name::ForwardedFor | Name::Forwarded => edit.rule_of(field.name_in(head)),
            _ => None,
        };
        if let Some(rule) = rule {
            return rule == FieldRule::Keep;
        }
        !field.is_unusual_framing()
            && edit.client.is_none_or(|client| match field.name {
                Name::ForwardedFor => client.trusted && client.forwarded == Forwarded::Rfc7239,
                Name::Forwarded => client.trusted && !is_merged(head, field, client.forwarded),
                _ => true,
            })
    });
    write_normal_framing(head, fields, out);
    if let Some(client_fields) = &edit.fields {
        let host = request.host_in(head, fields).unwrap_or(edit.host);
        write_client_fields(head, fields, client_fields, host, edit, out);
    }
    if let Some(client) = edit.client {
        if client.forwarded != Forwarded::Rfc7239 {
            write_x_forwarded(head, fields, &client, edit, out);
        }
        let standard = matches!(client.forwarded, Forwarded::Rfc7239 | Forwarded::Both);
        if standard && !edit.is_edited(b"forwarded") {
            let host = request.host_in(head, fields).unwrap_or(edit.host);
            write_forwarded(head, fields, &client, host, out);
        }
    }
    out.extend_from_slice(edit.add);
    out.extend_from_slice(b"Via: ");
    out.extend_from_slice(edit.version.as_bytes());
    out.extend_from_slice(b" weir\r\n");
    if request.upgrade {
        out.extend_from_slice(b"Connection: Upgrade\r\n");
    } else if edit.close {
        out.extend_from_slice(b"Connection: close\r\n");
    }
    out.extend_from_slice(b"\r\n");
}

/// Writes the fields about the client that a rule sets or appends to.
fn write_client_fields(
    head: &[u8],
    fields: &[Field],
    client: &ClientEdit<'_>,
    host: &[u8],
    edit: &RequestEdit<'_>,
    out: &mut Vec<u8>,
) {
    for client_field in ClientField::ALL {
        let rule = client.rules.rule(client_field);
        let appends = rule == Some(FieldRule::Append);
        if !(appends || rule == Some(FieldRule::Set))
            || edit.is_edited(client_field.header().as_bytes())
        {
            continue;
        }
        out.extend_from_slice(client_field.header().as_bytes());
        out.extend_from_slice(b": ");
        let has_same_name = |field: &&Field| {
            field
                .name_in(head)
                .eq_ignore_ascii_case(client_field.header().as_bytes())
        };
        for field in fields
            .iter()
            .filter(|_| appends)
            .filter(|field| !field.dropped)
            .filter(has_same_name)
        {
            out.extend_from_slice(field.value_in(head));
            out.extend_from_slice(b", ");
        }
        match client_field {
            ClientField::For if appends => write_address(client.address, out),
            ClientField::For | ClientField::RealIp => write_address(client.client, out),
            ClientField::Proto if client.secure => out.extend_from_slice(b"https"),
            ClientField::Proto => out.extend_from_slice(b"http"),
            ClientField::Host => out.extend_from_slice(host),
            ClientField::Port => out.extend_from_slice(client.port.to_string().as_bytes()),
        }
        out.extend_from_slice(b"\r\n");
    }
}

/// Writes `X-Forwarded-For`, and `X-Forwarded-Proto` unless a trusted proxy sent it. Omits a field that has a rule, or
/// that the service or the route sets or removes.
fn write_x_forwarded(
    head: &[u8],
    fields: &[Field],
    client: &Client,
    edit: &RequestEdit<'_>,
    out: &mut Vec<u8>,
) {
    if !edit.is_edited(b"x-forwarded-for") && edit.rule_of(b"x-forwarded-for").is_none() {
        out.extend_from_slice(b"X-Forwarded-For: ");
        if client.trusted {
            let matching = |field: &&Field| field.name == Name::ForwardedFor;
            for field in fields.iter().filter(matching) {
                out.extend_from_slice(field.value_in(head));
                out.extend_from_slice(b", ");
            }
        }
        write_address(client.address, out);
        out.extend_from_slice(b"\r\n");
    }
    let matching = |field: &Field| {
        field
            .name_in(head)
            .eq_ignore_ascii_case(b"x-forwarded-proto")
    };
    let is_present = client.trusted && fields.iter().any(matching);
    let has_rule = edit.rule_of(b"x-forwarded-proto").is_some();
    if !is_present && !has_rule && !edit.is_edited(b"x-forwarded-proto") {
        let scheme: &[u8] = if client.secure { b"https" } else { b"http" };
        out.extend_from_slice(b"X-Forwarded-Proto: ");
        out.extend_from_slice(scheme);
        out.extend_from_slice(b"\r\n");
    }
}

/// Returns whether a field is `Forwarded` and Weir merges its value into the line that it writes.
fn is_merged(head: &[u8], field: &Field, forwarded: Forwarded) -> bool {
    forwarded != Forwarded::XForwarded && field.name_in(head).eq_ignore_ascii_case(b"forwarded")
}

/// Writes `Forwarded` (RFC 7239), after the elements of a trusted proxy.
fn write_forwarded(head: &[u8], fields: &[Field], client: &Client, host: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(b"Forwarded: ");
    if client.trusted {
        let matching = |field: &&Field| {
            field.name == Name::Forwarded && field.name_in(head).eq_ignore_ascii_case(b"forwarded")
        };
        for field in fields.iter().filter(matching) {
            out.extend_from_slice(field.value_in(head));
            out.extend_from_slice(b", ");
        }
    }
    out.extend_from_slice(b"for=");
    if client.address.is_ipv6() {
        out.extend_from_slice(b"\"[");
        write_address(client.address, out);
        out.extend_from_slice(b"]\"");
    } else {
        write_address(client.address, out);
    }
    if !host.is_empty() {
        out.extend_from_slice(b";host=\"");
        out.extend_from_slice(host);
        out.push(b'"');
    }
    let scheme: &[u8] = if client.secure { b"https" } else { b"http" };
    out.extend_from_slice(b";proto=");
    out.extend_from_slice(scheme);
    out.extend_from_slice(b"\r\n");
}

/// A cookie that the server sets and whose value Weir changes for stickiness.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CookieEdit<'a> {
    /// The cookie's name.
    pub name: &'a [u8],
    /// The server's signature.
    pub signature: &'a [u8],
    /// Whether the signature and `~` are prepended to the value; otherwise the signature replaces the value.
    pub prefix: bool,
}

/// A field that is added only to responses with certain status codes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConditionalLine<'a> {
    /// Inclusive ranges of status codes.
    pub statuses: &'a [(u16, u16)],
    /// The field's name.
    pub name: &'a str,
    /// The complete line.
    pub line: Vec<u8>,
    /// Whether the line replaces fields with the same name.
    pub replaces: bool,
}

impl ConditionalLine<'_> {
    fn applies_to(&self, status: u16) -> bool {
        self.statuses
            .iter()
            .any(|(first, last)| (*first..=*last).contains(&status))
    }
}

/// Configured edits to the head of a final response.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseEdit<'a> {
    /// Complete lines to add.
    pub add: &'a [u8],
    /// Names of fields to remove, in lower case.
    pub remove: &'a [String],
    /// Lines for certain status codes, in order.
    pub conditional: &'a [ConditionalLine<'a>],
    /// Replacements of field values, from the service and from the request's route.
    pub replace: [&'a [HeaderReplacement]; 2],
    /// A cookie to change when the server sets it.
    pub cookie: Option<CookieEdit<'a>>,
    /// Whether and how content is compressed.
    pub encoding: Option<Encoding<'a>>,
    /// Status that replaces the server's, if [`weir_model::RouteEdits::may_replace`] allows it.
    pub status: Option<u16>,
}

impl ResponseEdit<'_> {
    /// Returns whether there are replacements of values.
    fn replaces_values(&self) -> bool {
        let mut all = self.replace.into_iter();
        all.any(|replacements| !replacements.is_empty())
    }

    /// Returns the new value of a field whose value is replaced.
    fn replaced_value(&self, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        let mut replaced = None;
        for replacement in self.replace.into_iter().flatten() {
            let current = replaced.as_deref().unwrap_or(value);
            replaced = replacement.apply(name, current).or(replaced);
        }
        replaced
    }
}

/// Response compression.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding<'a> {
    /// The service's rules.
    pub rules: &'a Compression,
    /// Result of [`negotiate`](crate::encoding::negotiate).
    pub negotiated: Option<Coding>,
}

/// Edits to a response head that this hop's protocol requires.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct HopEdit {
    /// Whether to inform the client that this is the last response.
    pub(crate) close: bool,
    /// Whether the client uses HTTP/1.0 and needs `Connection: keep-alive`.
    pub(crate) keep_alive_10: bool,
    /// Whether the chunked coding is removed.
    pub(crate) decode: bool,
    /// Whether the response opens a tunnel, and its framing fields are therefore meaningless (RFC 9110 section 9.3.6).
    pub(crate) tunnel: bool,
    /// Coding to apply to the content.
    pub(crate) coding: Option<Coding>,
    /// Whether the response depends on `Accept-Encoding`.
    pub(crate) varies: bool,
    /// Status that replaces the server's.
    pub(crate) status: Option<u16>,
}

pub(crate) fn write_response(
    head: &[u8],
    response: &Response,
    fields: &[Field],
    hop: HopEdit,
    edit: &ResponseEdit<'_>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    match hop.status {
        Some(status) => {
            out.extend_from_slice(format!("{status} {}\r\n", reason_phrase(status)).as_bytes());
        }
        None => out.extend_from_slice(&head[response.status_text.0..response.status_text.1]),
    }
    let sent_status = hop.status.unwrap_or(response.status);
    let decode = hop.decode && response.framing == Framing::Chunked;
    let sticky_cookie = |field: &Field| {
        let cookie = edit.cookie?;
        let rest = field.value_in(head).strip_prefix(cookie.name)?;
        let value = rest.strip_prefix(b"=")?;
        let is_set_cookie = field.name_in(head).eq_ignore_ascii_case(b"set-cookie");
        is_set_cookie.then_some((cookie, value))
    };
    let conditional = || {
        edit.conditional
            .iter()
            .filter(|line| line.applies_to(sent_status))
    };
    let is_kept = |field: &Field| {
        let name = field.name_in(head);
        let meaningless = match field.name {
            Name::TransferEncoding => decode || hop.tunnel,
            Name::ContentLength => hop.tunnel,
            _ => false,
        };
        let replaced = hop.coding.is_some() && encoding::is_content_field(head, field);
        let is_named = |other: &str| name.eq_ignore_ascii_case(other.as_bytes());
        let edited = edit.remove.iter().any(|removed| is_named(removed))
            || conditional().any(|line| line.replaces && is_named(line.name));
        !(meaningless || replaced || edited || field.is_unusual_framing())
            && sticky_cookie(field).is_none()
    };
    match edit.replaces_values() {
        false => copy_lines(head, fields, out, is_kept),
        true => copy_with_replacements(head, fields, edit, out, is_kept),
    }
    if !decode && !hop.tunnel && hop.coding.is_none() {
        write_normal_framing(head, fields, out);
    }
    for (cookie, value) in fields.iter().filter_map(sticky_cookie) {
        write_set_cookie(&cookie, value, out);
    }
    if let Some(coding) = hop.coding {
        encoding::write_content_fields(head, fields, coding, edit.remove, out);
    }
    if hop.varies {
        encoding::write_vary(head, fields, out);
    }
    out.extend_from_slice(edit.add);
    conditional().for_each(|line| out.extend_from_slice(&line.line));
    let connection: &[u8] = match hop {
        _ if response.status == 101 => b"Connection: Upgrade\r\n",
        _ if response.status < 200 || hop.tunnel => b"",
        HopEdit { close: true, .. } => b"Connection: close\r\n",
        HopEdit {
            keep_alive_10: true,
            ..
        } => b"Connection: keep-alive\r\n",
        _ => b"",
    };
    out.extend_from_slice(connection);
    out.extend_from_slice(b"\r\n");
}

fn write_set_cookie(cookie: &CookieEdit<'_>, value: &[u8], out: &mut Vec<u8>) {
    let end = value
        .iter()
        .position(|byte| *byte == b';')
        .unwrap_or(value.len());
    out.extend_from_slice(b"Set-Cookie: ");
    out.extend_from_slice(cookie.name);
    out.push(b'=');
    out.extend_from_slice(cookie.signature);
    if cookie.prefix {
        out.push(b'~');
        out.extend_from_slice(&value[..end]);
    }
    out.extend_from_slice(&value[end..]);
    out.extend_from_slice(b"\r\n");
}

/// Writes framing fields with unusual whitespace in their usual form.
fn write_normal_framing(head: &[u8], fields: &[Field], out: &mut Vec<u8>) {
    for field in fields {
        if !field.dropped && field.is_unusual_framing() {
            write_field(field.name_in(head), field.value_in(head), out);
        }
    }
}

fn write_field(name: &[u8], value: &[u8], out: &mut Vec<u8>) {
    out.extend_from_slice(name);
    out.extend_from_slice(b": ");
    out.extend_from_slice(value);
    out.extend_from_slice(b"\r\n");
}

/// Copies the lines to keep. Adjacent lines are copied together.
fn copy_lines(head: &[u8], fields: &[Field], out: &mut Vec<u8>, keep: impl Fn(&Field) -> bool) {
    let mut run = 0..0;
    for field in fields.iter().filter(|field| !field.dropped && keep(field)) {
        let line = field.line();
        if line.start == run.end {
            run.end = line.end;
            continue;
        }
        out.extend_from_slice(&head[run]);
        run = line;
    }
    out.extend_from_slice(&head[run]);
}

/// Copies the lines to keep, and then writes the fields whose values are replaced.
fn copy_with_replacements(
    head: &[u8],
    fields: &[Field],
    edit: &ResponseEdit<'_>,
    out: &mut Vec<u8>,
    keep: impl Fn(&Field) -> bool,
) {
    let new_value = |field: &Field| edit.replaced_value(field.name_in(head), field.value_in(head));
    let is_unchanged = |field: &Field| keep(field) && new_value(field).is_none();
    copy_lines(head, fields, out, is_unchanged);
    for field in fields.iter().filter(|field| !field.dropped && keep(field)) {
        if let Some(value) = new_value(field) {
            write_field(field.name_in(head), &value, out);
        }
    }
}

#[cfg(test)]
mod tests;
