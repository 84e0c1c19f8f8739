//! Heads as they are passed on: what stays is copied in whole ranges, what belongs to this hop is left out or written anew.

use std::fmt::Write;
use std::net::IpAddr;

use weir_model::{Coding, Compression, Forwarded, RouteEdits};

use crate::encoding;
use crate::field::{Field, Name};
use crate::head::{Framing, Method, Request, Response};

/// What a server is told of the client that asked.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Client {
    /// Its address.
    pub address: IpAddr,
    /// It came by TLS.
    pub secure: bool,
    /// It is a proxy whose own words about clients are believed and added to; else they are left out.
    pub trusted: bool,
    /// By which fields; `Off` says nothing, and leaves out what an untrusted client says.
    pub by: Forwarded,
}

/// How a request is passed on.
#[derive(Debug, Clone, Copy)]
pub struct RequestEdit<'a> {
    /// `None`: nothing is said of the client, and what it says of itself stays.
    pub client: Option<Client>,
    /// `Host` where the client named none, which HTTP/1.0 allows.
    pub host: &'a [u8],
    /// The version that the client speaks, as `Via` has it: `1.0`, `1.1`, `2`.
    pub version: &'a str,
    /// In place of path and query.
    pub path: Option<&'a [u8]>,
    /// Whole lines that are added.
    pub add: &'a [u8],
    /// What the request's route decided of fields: what it sets or removes, Weir does not tell.
    pub route: Option<&'a RouteEdits>,
    /// The server shall close after its response.
    pub close: bool,
}

impl RequestEdit<'_> {
    /// Whether the route has the last word on the field, whose name is in lower case.
    fn is_settled(&self, name: &str) -> bool {
        self.route.is_some_and(|route| {
            route.remove.iter().any(|gone| gone == name)
                || route
                    .set
                    .iter()
                    .any(|(set, _)| set.eq_ignore_ascii_case(name))
        })
    }
}

/// Appends the request's head for the server; the body follows as it is.
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
    let named = fields.iter().any(|field| field.name == Name::Host);
    if request.is_absolute() || !named {
        out.extend_from_slice(b"Host: ");
        out.extend_from_slice(request.host_in(head, fields).unwrap_or(edit.host));
        out.extend_from_slice(b"\r\n");
    }
    copy(head, fields, out, |field| {
        !field.is_odd_framing()
            && edit.client.is_none_or(|client| match field.name {
                Name::ForwardedFor => client.trusted && client.by == Forwarded::Standard,
                Name::Forwarded => client.trusted && !retold(head, field, client.by),
                _ => true,
            })
    });
    restate(head, fields, out);
    if let Some(client) = edit.client {
        if client.by != Forwarded::Standard {
            tell(head, fields, &client, edit, out);
        }
        let standard = matches!(client.by, Forwarded::Standard | Forwarded::Both);
        if standard && !edit.is_settled("forwarded") {
            let host = request.host_in(head, fields).unwrap_or(edit.host);
            tell_by_standard(head, fields, &client, host, out);
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

/// `X-Forwarded-For`, and `-Proto` unless a trusted proxy said it already.
fn tell(head: &[u8], fields: &[Field], client: &Client, edit: &RequestEdit<'_>, out: &mut Vec<u8>) {
    if !edit.is_settled("x-forwarded-for") {
        out.extend_from_slice(b"X-Forwarded-For: ");
        if client.trusted {
            let said = |field: &&Field| field.name == Name::ForwardedFor;
            for field in fields.iter().filter(said) {
                out.extend_from_slice(field.value_in(head));
                out.extend_from_slice(b", ");
            }
        }
        write_address(client.address, out);
        out.extend_from_slice(b"\r\n");
    }
    let said = |field: &Field| {
        field
            .name_in(head)
            .eq_ignore_ascii_case(b"x-forwarded-proto")
    };
    let told = client.trusted && fields.iter().any(said);
    if !told && !edit.is_settled("x-forwarded-proto") {
        let scheme: &[u8] = if client.secure { b"https" } else { b"http" };
        out.extend_from_slice(b"X-Forwarded-Proto: ");
        out.extend_from_slice(scheme);
        out.extend_from_slice(b"\r\n");
    }
}

/// Whether a field is `Forwarded` itself, and its words go on in a line of Weir's.
fn retold(head: &[u8], field: &Field, by: Forwarded) -> bool {
    by != Forwarded::Customary && field.name_in(head).eq_ignore_ascii_case(b"forwarded")
}

/// `Forwarded` (RFC 7239), behind what a trusted proxy said.
fn tell_by_standard(
    head: &[u8],
    fields: &[Field],
    client: &Client,
    host: &[u8],
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"Forwarded: ");
    if client.trusted {
        let said = |field: &&Field| {
            field.name == Name::Forwarded && field.name_in(head).eq_ignore_ascii_case(b"forwarded")
        };
        for field in fields.iter().filter(said) {
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

fn write_address(address: IpAddr, out: &mut Vec<u8>) {
    match address {
        IpAddr::V4(v4) => {
            for (at, octet) in v4.octets().into_iter().enumerate() {
                if at > 0 {
                    out.push(b'.');
                }
                if octet >= 100 {
                    out.push(b'0' + octet / 100);
                }
                if octet >= 10 {
                    out.push(b'0' + octet / 10 % 10);
                }
                out.push(b'0' + octet % 10);
            }
        }
        IpAddr::V6(v6) => {
            let mut text = String::new();
            // A String takes everything.
            let _ = write!(text, "{v6}");
            out.extend_from_slice(text.as_bytes());
        }
    }
}

/// A cookie that a server sets, and that is to lead the client back to it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CookieTouch<'a> {
    /// Its name.
    pub name: &'a [u8],
    /// The server's sign.
    pub sign: &'a [u8],
    /// The sign goes in front of the value and a `~`, else in its place.
    pub prefix: bool,
}

/// What is done to the head of a final response beyond what HTTP asks for.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct ResponseTouch<'a> {
    /// Whole lines that are added.
    pub add: &'a [u8],
    /// Fields that are left out, by names in lower case.
    pub remove: &'a [String],
    /// A cookie that is changed where the server sets it.
    pub cookie: Option<CookieTouch<'a>>,
    /// Whether and how content is compressed.
    pub encoding: Option<Encoding<'a>>,
}

/// Compression of responses, and what the client that asked can read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Encoding<'a> {
    /// The service's.
    pub rules: &'a Compression,
    /// What [`negotiate`](crate::encoding::negotiate) found.
    pub agreed: Option<Coding>,
}

/// How a response is passed on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(crate) struct ResponseEdit {
    /// The client shall know that this is the last response.
    pub(crate) close: bool,
    /// The client speaks HTTP/1.0 and must be told that the connection stays.
    pub(crate) keep_alive_10: bool,
    /// The chunked coding is taken off.
    pub(crate) decode: bool,
    /// It opens a tunnel: what it says of a body means nothing (RFC 9110 section 9.3.6).
    pub(crate) tunnel: bool,
    /// Content is made anew.
    pub(crate) coding: Option<Coding>,
    /// The answer depends on what the client accepts.
    pub(crate) varies: bool,
}

pub(crate) fn write_response(
    head: &[u8],
    response: &Response,
    fields: &[Field],
    edit: ResponseEdit,
    touch: &ResponseTouch<'_>,
    out: &mut Vec<u8>,
) {
    out.extend_from_slice(b"HTTP/1.1 ");
    let status = &head[response.status_text.0..response.status_text.1];
    out.extend_from_slice(status);
    let decode = edit.decode && response.framing == Framing::Chunked;
    let set = |field: &Field| {
        let cookie = touch.cookie?;
        let rest = field.value_in(head).strip_prefix(cookie.name)?;
        let value = rest.strip_prefix(b"=")?;
        let is = field.name_in(head).eq_ignore_ascii_case(b"set-cookie");
        is.then_some((cookie, value))
    };
    copy(head, fields, out, |field| {
        let name = field.name_in(head);
        let meaningless = match field.name {
            Name::TransferEncoding => decode || edit.tunnel,
            Name::ContentLength => edit.tunnel,
            _ => false,
        };
        let anew = edit.coding.is_some() && encoding::goes_with_content(head, field);
        !(meaningless || anew || field.is_odd_framing())
            && set(field).is_none()
            && !touch
                .remove
                .iter()
                .any(|gone| name.eq_ignore_ascii_case(gone.as_bytes()))
    });
    if !decode && !edit.tunnel && edit.coding.is_none() {
        restate(head, fields, out);
    }
    for (cookie, value) in fields.iter().filter_map(set) {
        set_cookie(&cookie, value, out);
    }
    if let Some(coding) = edit.coding {
        encoding::describe(head, fields, coding, touch.remove, out);
    }
    if edit.varies {
        encoding::vary(head, fields, out);
    }
    out.extend_from_slice(touch.add);
    let connection: &[u8] = match edit {
        _ if response.status == 101 => b"Connection: Upgrade\r\n",
        _ if response.status < 200 || edit.tunnel => b"",
        ResponseEdit { close: true, .. } => b"Connection: close\r\n",
        ResponseEdit {
            keep_alive_10: true,
            ..
        } => b"Connection: keep-alive\r\n",
        _ => b"",
    };
    out.extend_from_slice(connection);
    out.extend_from_slice(b"\r\n");
}

fn set_cookie(cookie: &CookieTouch<'_>, value: &[u8], out: &mut Vec<u8>) {
    let end = value
        .iter()
        .position(|octet| *octet == b';')
        .unwrap_or(value.len());
    out.extend_from_slice(b"Set-Cookie: ");
    out.extend_from_slice(cookie.name);
    out.push(b'=');
    out.extend_from_slice(cookie.sign);
    if cookie.prefix {
        out.push(b'~');
        out.extend_from_slice(&value[..end]);
    }
    out.extend_from_slice(&value[end..]);
    out.extend_from_slice(b"\r\n");
}

/// Writes framing that was written oddly as everybody reads it.
fn restate(head: &[u8], fields: &[Field], out: &mut Vec<u8>) {
    for field in fields {
        if !field.dropped && field.is_odd_framing() {
            out.extend_from_slice(field.name_in(head));
            out.extend_from_slice(b": ");
            out.extend_from_slice(field.value_in(head));
            out.extend_from_slice(b"\r\n");
        }
    }
}

/// Copies the lines that stay, neighbours in one go.
fn copy(head: &[u8], fields: &[Field], out: &mut Vec<u8>, stays: impl Fn(&Field) -> bool) {
    let mut run = 0..0;
    for field in fields.iter().filter(|field| !field.dropped && stays(field)) {
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
