//! Expands templates: replaces variables with values from one request.
//!
//! A value cannot add a line to a head or a delimiter to a URL.

use std::borrow::Cow;
use std::io::Write as _;
use std::net::SocketAddr;

use weir_model::{
    MapRef, Part, PathRewrite, Route, Scheme, Template, TextRegex, ValueMap, Variable,
};

use super::{RouteInput, glob, strip_port};
use crate::byte_class::is_value_byte;
use crate::cookie::{self, siphash};
use crate::field::{Field, Name};

/// How values are encoded, which depends on the use of the expanded template.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ValueEncoding {
    /// The value of a header field: bytes that it must not contain become `_`.
    Field,
    /// A URL or its path: values are percent-encoded, except for paths and queries, which are already encoded.
    Url,
    /// A body: control characters become `_`.
    Body,
}

/// Identifies a request in logs and at servers.
///
/// Every request that a route matches has an identifier, but most configurations do not use it. The text is therefore
/// generated only when it is used.
#[derive(Clone, Copy, PartialEq, Eq)]
pub enum RequestId<'a> {
    /// A random key. The text is 32 hexadecimal digits of a keyed hash, so the generator's other numbers, including
    /// later identifiers, cannot be computed from it.
    Generated(u128),
    /// The identifier that a client sent.
    Sent(&'a [u8]),
}

impl<'a> RequestId<'a> {
    /// Maximum length of an accepted identifier, in bytes.
    pub const MAX_BYTES: usize = 64;

    /// Returns the identifier that a client sent, or `None` if it is empty, too long, or contains characters other than
    /// letters, digits and `-._~+/=:`.
    pub fn from_client(text: &'a [u8]) -> Option<Self> {
        let is_plain = |byte: &u8| byte.is_ascii_alphanumeric() || b"-._~+/=:".contains(byte);
        let is_valid = (1..=Self::MAX_BYTES).contains(&text.len()) && text.iter().all(is_plain);
        is_valid.then_some(Self::Sent(text))
    }

    /// Returns the identifier's characters.
    pub fn to_bytes(self) -> Vec<u8> {
        match self {
            Self::Sent(text) => text.to_vec(),
            Self::Generated(key) => format!("{:032x}", hidden(key)).into_bytes(),
        }
    }
}

/// Returns a keyed hash of a constant, from which the key cannot be computed.
pub fn hidden(key: u128) -> u128 {
    let key = (key as u64, (key >> 64) as u64);
    (u128::from(siphash(key, b"1")) << 64) + u128::from(siphash(key, b"2"))
}

impl std::fmt::Debug for RequestId<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(&String::from_utf8_lossy(&self.to_bytes()))
    }
}

/// The source of the variables' values.
#[derive(Debug, Clone, Copy)]
pub struct TemplateContext<'a> {
    /// The request.
    pub route_input: RouteInput<'a>,
    /// The client's address and port.
    pub client: SocketAddr,
    /// The port that the client connected to.
    pub port: u16,
    /// The host to use for a request that has none.
    pub default_host: &'a [u8],
    /// The request's identifier.
    pub request_id: RequestId<'a>,
    /// The server, or `None` if it is not selected yet; [`SERVER_MARK`] is then written instead of its name.
    pub server: Option<&'a str>,
    /// The pool; empty if there is none.
    pub pool: &'a str,
    /// The route that the request matched.
    pub route: Option<&'a Route>,
    /// Regular expression whose groups are used instead of those of the route's conditions.
    pub regex: Option<&'a TextRegex>,
}

/// Placeholder for the server name while no server is selected yet. No other value contains this byte.
pub const SERVER_MARK: u8 = 0;

/// Appends a template, expanded with the values of its variables. `?{query}` and `&{query}` are omitted if there is no
/// query.
pub fn expand(
    text: &Template,
    encoding: ValueEncoding,
    template_context: &TemplateContext<'_>,
    out: &mut Vec<u8>,
) {
    let start = out.len();
    for part in text.parts() {
        match part {
            Part::Text(text) => out.extend_from_slice(text.as_bytes()),
            Part::Variable(variable) => {
                let value = template_context.value(variable);
                if *variable == Variable::Query
                    && value.as_bytes().is_empty()
                    && matches!(out[start..].last(), Some(b'?' | b'&'))
                {
                    out.pop();
                }
                append(variable, value.as_bytes(), encoding, start, out);
            }
        }
    }
}

/// Returns the key for a request in a map; hosts are in lower case.
pub fn map_key<'v>(map: &'v ValueMap, template_context: &TemplateContext<'v>) -> Cow<'v, [u8]> {
    let [Part::Variable(variable)] = map.key.parts() else {
        return Cow::Owned(key_text(&map.key, template_context));
    };
    let value = match template_context.key_value(variable) {
        Value::Borrowed(value) => value,
        Value::Computed(value) => return Cow::Owned(value),
    };
    match matches!(variable, Variable::Host) && value.iter().any(u8::is_ascii_uppercase) {
        true => Cow::Owned(value.to_ascii_lowercase()),
        false => Cow::Borrowed(value),
    }
}

/// Returns a template with the values of its variables as received, for use as a lookup key; hosts are in lower case,
/// and fields that the client is not allowed to set are empty.
pub fn key_text(text: &Template, template_context: &TemplateContext<'_>) -> Vec<u8> {
    let mut out = Vec::new();
    for part in text.parts() {
        match part {
            Part::Text(text) => out.extend_from_slice(text.as_bytes()),
            Part::Variable(Variable::Host) => {
                let start = out.len();
                let host = template_context.value(&Variable::Host);
                out.extend_from_slice(host.as_bytes());
                out[start..].make_ascii_lowercase();
            }
            Part::Variable(variable) => {
                out.extend_from_slice(template_context.key_value(variable).as_bytes())
            }
        }
    }
    out
}

/// The value of a variable: a range of the request, the value of a map, or computed.
enum Value<'a> {
    Borrowed(&'a [u8]),
    Computed(Vec<u8>),
}

impl Value<'_> {
    fn as_bytes(&self) -> &[u8] {
        match self {
            Self::Borrowed(bytes) => bytes,
            Self::Computed(bytes) => bytes,
        }
    }
}

impl<'a> TemplateContext<'a> {
    /// Returns the value of a variable as received, for a log.
    pub fn text(&self, variable: &Variable) -> Vec<u8> {
        self.value(variable).as_bytes().to_vec()
    }

    fn value<'v>(&self, variable: &'v Variable) -> Value<'v>
    where
        'a: 'v,
    {
        let route_input = &self.route_input;
        let (head, tls) = (route_input.head, &route_input.tls);
        let computed = |text: String| Value::Computed(text.into_bytes());
        Value::Borrowed(match variable {
            Variable::Client => return computed(self.client.ip().to_string()),
            Variable::ClientPort => return computed(self.client.port().to_string()),
            Variable::ListenPort => return computed(self.port.to_string()),
            Variable::ForwardedFor => return Value::Computed(self.forwarded_for(|_| true)),
            Variable::RequestId => return Value::Computed(self.request_id.to_bytes()),
            Variable::Route => {
                return computed(
                    self.route
                        .map(|route| route.source.line.to_string())
                        .unwrap_or_default(),
                );
            }
            Variable::Cookie(name) => self.cookie(name.as_bytes()),
            Variable::Scheme => Scheme::of(route_input.secure).as_str().as_bytes(),
            Variable::Host => strip_port(
                route_input
                    .request
                    .host_in(head, route_input.fields)
                    .unwrap_or(self.default_host),
            ),
            Variable::Path => route_input.target.path(),
            Variable::PathAndQuery => route_input.request.path_in(head),
            Variable::Query => route_input.target.query(),
            Variable::Method => route_input.request.method_in(head),
            Variable::Server => self.server.map_or(&[SERVER_MARK], str::as_bytes),
            Variable::Pool => self.pool.as_bytes(),
            Variable::TlsVersion => tls
                .version
                .map_or(&b""[..], |version| version.as_str().as_bytes()),
            Variable::TlsCipher => tls.cipher.unwrap_or_default().as_bytes(),
            Variable::TlsSni => tls.server_name.unwrap_or_default().as_bytes(),
            Variable::ClientCertSubject => tls.client_subject.unwrap_or_default().as_bytes(),
            Variable::Header(name) => {
                let is_named =
                    |name: &str, found: &[u8]| found.eq_ignore_ascii_case(name.as_bytes());
                let found = route_input
                    .fields
                    .iter()
                    .find(|field| is_named(name, field.name_in(head)));
                found.map_or(&b""[..], |field| field.value_in(head))
            }
            Variable::Group(number) => self.group(usize::from(*number)),
            Variable::Rest => self.rest(),
            Variable::Map(MapRef { map, .. }) => {
                let value = map.as_deref().map(|map| map.value(&map_key(map, self)));
                value.unwrap_or_default().as_bytes()
            }
        })
    }

    /// Returns the value of a variable for a key, excluding anything that the client is not allowed to set.
    fn key_value<'v>(&self, variable: &'v Variable) -> Value<'v>
    where
        'a: 'v,
    {
        match variable {
            Variable::Header(name) => {
                let mut fields = self.route_input.fields.iter();
                let value = fields
                    .find_map(|field| field.trusted_value(name.as_bytes(), self.route_input.head));
                Value::Borrowed(value.unwrap_or_default())
            }
            Variable::ForwardedFor => Value::Computed(self.forwarded_for(|field| !field.untrusted)),
            other => self.value(other),
        }
    }

    fn cookie(&self, name: &[u8]) -> &'a [u8] {
        let head = self.route_input.head;
        let cookies = self
            .route_input
            .fields
            .iter()
            .filter(|field| field.name_in(head).eq_ignore_ascii_case(b"cookie"));
        let mut values = cookies.filter_map(|field| {
            let text = field.value_in(head);
            cookie::find(text, name).map(|range| &text[range])
        });
        values.next().unwrap_or_default()
    }

    /// Returns the values of the X-Forwarded-For fields that `accepts` selects, followed by the client's address,
    /// separated by commas.
    fn forwarded_for(&self, accepts: fn(&Field) -> bool) -> Vec<u8> {
        let mut value = Vec::new();
        for field in self.route_input.fields {
            if field.name == Name::ForwardedFor && !field.dropped && accepts(field) {
                value.extend_from_slice(field.value_in(self.route_input.head));
                value.extend_from_slice(b", ");
            }
        }
        value.extend_from_slice(self.client.ip().to_string().as_bytes());
        value
    }

    /// Returns a group of the first regular expression that matches; empty if there is none.
    fn group(&self, number: usize) -> &'a [u8] {
        let path = self.route_input.target.path();
        let regexes = match self.regex {
            Some(regex) => std::slice::from_ref(regex),
            None => self.route.map_or(&[][..], |route| &route.when.path_regexes),
        };
        let found = regexes.iter().find_map(|regex| regex.groups(path));
        found
            .and_then(|groups| groups.get(number))
            .map_or(&b""[..], |group| group.as_bytes())
    }

    /// Returns the part of the path after the fixed prefix of the route's first pattern that matches, or the whole path
    /// if none matches.
    fn rest(&self) -> &'a [u8] {
        let path = self.route_input.target.path();
        let mut patterns = self.route.map_or(&[][..], |route| &route.when.paths).iter();
        let pattern = patterns.find(|pattern| glob(pattern.as_bytes(), path));
        let prefix_len = pattern.map_or(0, |pattern| pattern.find('*').unwrap_or(pattern.len()));
        path.get(prefix_len..).unwrap_or_default()
    }
}

fn append(
    variable: &Variable,
    value: &[u8],
    encoding: ValueEncoding,
    start: usize,
    out: &mut Vec<u8>,
) {
    match encoding {
        ValueEncoding::Field if *variable == Variable::Server => out.extend_from_slice(value),
        ValueEncoding::Field => out.extend(
            value
                .iter()
                .map(|byte| if is_value_byte(*byte) { *byte } else { b'_' }),
        ),
        ValueEncoding::Body => {
            let is_control = |byte: &u8| byte.is_ascii_control() && *byte != b'\t';
            out.extend(
                value
                    .iter()
                    .map(|byte| if is_control(byte) { b'_' } else { *byte }),
            );
        }
        ValueEncoding::Url => match variable {
            Variable::Host | Variable::Scheme => out.extend_from_slice(value),
            // An absolute target may have no path.
            Variable::PathAndQuery => {
                if !value.starts_with(b"/") {
                    out.push(b'/');
                }
                out.extend_from_slice(value);
            }
            Variable::Path | Variable::Query | Variable::Group(_) | Variable::Rest
                if !is_in_authority(&out[start..], value) =>
            {
                out.extend_from_slice(value);
            }
            _ => encode(value, out),
        },
    }
}

/// Returns whether a value that follows this beginning of a URL would be part of the URL's authority.
fn is_in_authority(url_start: &[u8], value: &[u8]) -> bool {
    let Some(offset) = memchr::memmem::find(url_start, b"://") else {
        return url_start.is_empty() && !value.starts_with(b"/");
    };
    // The authority ends before the next of these bytes (RFC 3986 section 3.2).
    let is_ended = url_start[offset + 3..]
        .iter()
        .any(|byte| b"/?#".contains(byte));
    !is_ended && !value.is_empty() && !value.starts_with(b"/")
}

/// Percent-encodes all characters except unreserved ones (RFC 3986 section 2.3).
fn encode(value: &[u8], out: &mut Vec<u8>) {
    for byte in value {
        if byte.is_ascii_alphanumeric() || b"-._~".contains(byte) {
            out.push(*byte);
        } else {
            // Writing to a vector cannot fail.
            let _ = write!(out, "%{byte:02X}");
        }
    }
}

/// Returns the rewritten path and query for the server, or `None` if the path does not match the rewrite's regular
/// expression. Parts of the path are taken from its normal form, because parts of the path as received could escape the
/// route's prefix.
pub fn rewrite_path(edit: &PathRewrite, template_context: &TemplateContext<'_>) -> Option<Vec<u8>> {
    let target = template_context.route_input.target;
    if let Some(regex) = &edit.regex
        && !regex.matches(target.path())
    {
        return None;
    }
    let template_context = TemplateContext {
        regex: edit.regex.as_ref(),
        ..*template_context
    };
    let to = &edit.to;
    let mut out = Vec::with_capacity(to.as_str().len() + target.as_bytes().len());
    expand(to, ValueEncoding::Url, &template_context, &mut out);
    // Like nginx, append the request's query to the new path's query, unless the new path ends with `?`.
    match (to.as_str().ends_with('?'), to.as_str().contains('?')) {
        (true, _) => {
            out.pop();
        }
        (false, true) if !target.query().is_empty() => {
            out.push(b'&');
            out.extend_from_slice(target.query());
        }
        (false, true) => {}
        (false, false) => out.extend_from_slice(target.query_part()),
    }
    Some(out)
}

/// Returns the value of `Location` for a redirect.
pub fn location(to: &Template, template_context: &TemplateContext<'_>) -> Vec<u8> {
    let mut out = Vec::with_capacity(to.as_str().len() + 64);
    expand(to, ValueEncoding::Url, template_context, &mut out);
    // A reference that begins with two slashes names a host (RFC 3986 section 4.2), and browsers treat `\` as `/`.
    let slashes = out
        .iter()
        .take_while(|byte| matches!(byte, b'/' | b'\\'))
        .count();
    if slashes > 0 && !to.as_str().starts_with("//") {
        out.drain(1..slashes);
        out[0] = b'/';
    }
    out
}

#[cfg(test)]
mod tests;
