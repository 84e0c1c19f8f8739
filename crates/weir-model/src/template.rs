//! Parses texts with variables that Weir expands for each request: header values, redirects, paths, bodies.

use std::fmt;
use std::sync::Arc;

use crate::MapEntries;

/// A variable in a text. [`Variable::TABLE`] lists the names that have no suffix.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Variable {
    /// The client's address.
    Client,
    /// The client's port.
    ClientPort,
    /// The port that the client connected to.
    ListenPort,
    /// The values of X-Forwarded-For in the request, followed by the client's address.
    ForwardedFor,
    /// `http` or `https`.
    Scheme,
    /// The requested host without port.
    Host,
    /// The path without the query, normalized as for the routes' `path` condition.
    Path,
    /// Path and query as received. In a redirect without `{query}`, `{path}` has this meaning.
    PathAndQuery,
    /// The query without `?`.
    Query,
    /// The method.
    Method,
    /// A random identifier of the request: 32 hexadecimal digits.
    RequestId,
    /// The server that was selected.
    Server,
    /// The pool that the request is sent to.
    Pool,
    /// The route, as its line number in the configuration.
    Route,
    /// `1.2` or `1.3`; empty without TLS.
    TlsVersion,
    /// The cipher suite, as IANA names it.
    TlsCipher,
    /// The server name in the TLS handshake.
    TlsSni,
    /// The subject of the verified client certificate (RFC 4514).
    ClientCertSubject,
    /// The first request field with this name, in lower case.
    Header(String),
    /// The request's cookie with this name.
    Cookie(String),
    /// A capture group of the route's expression, numbered from 1.
    Group(u8),
    /// The part of the path after the fixed prefix of the route's pattern.
    Rest,
    /// The value of a map.
    Map(MapRef),
}

impl Variable {
    /// Names of the variables without a suffix.
    pub const TABLE: [(&'static str, Self); 18] = [
        ("client", Self::Client),
        ("client_port", Self::ClientPort),
        ("listen_port", Self::ListenPort),
        ("forwarded_for", Self::ForwardedFor),
        ("scheme", Self::Scheme),
        ("host", Self::Host),
        ("path", Self::Path),
        ("query", Self::Query),
        ("method", Self::Method),
        ("request_id", Self::RequestId),
        ("server", Self::Server),
        ("pool", Self::Pool),
        ("route", Self::Route),
        ("tls_version", Self::TlsVersion),
        ("tls_cipher", Self::TlsCipher),
        ("tls_sni", Self::TlsSni),
        ("client_cert_subject", Self::ClientCertSubject),
        ("rest", Self::Rest),
    ];

    /// Returns the variable with this name, as written between braces.
    pub fn from_name(name: &str) -> Option<Self> {
        if let Some(field) = name
            .strip_prefix("header.")
            .filter(|field| !field.is_empty())
        {
            return Some(Self::Header(field.to_ascii_lowercase()));
        }
        if let Some(cookie) = name
            .strip_prefix("cookie.")
            .filter(|cookie| !cookie.is_empty())
        {
            return Some(Self::Cookie(cookie.to_owned()));
        }
        if let [digit @ b'1'..=b'9'] = name.as_bytes() {
            return Some(Self::Group(digit - b'0'));
        }
        let mut table = Self::TABLE.into_iter();
        table
            .find(|(variable_name, _)| *variable_name == name)
            .map(|(_, variable)| variable)
    }

    /// Returns whether the variable depends on the TLS connection.
    pub fn needs_tls(&self) -> bool {
        if let Self::Map(MapRef { map: Some(map), .. }) = self {
            return map.key.variables().any(Self::needs_tls);
        }
        matches!(
            self,
            Self::TlsVersion | Self::TlsCipher | Self::TlsSni | Self::ClientCertSubject
        )
    }
}

/// A map and the text to look up in it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ValueMap {
    /// Name.
    pub name: String,
    /// Text to look up.
    pub key: Template,
    /// Value if no key matches; `None` = no default is configured.
    pub default: Option<String>,
    /// Entries.
    pub entries: Arc<MapEntries>,
}

impl ValueMap {
    /// Default of [`key`](Self::key).
    pub const KEY: &'static str = "{host}";

    /// Creates a map without entries.
    pub fn empty() -> Self {
        Self {
            name: String::new(),
            key: Template::default(),
            default: None,
            entries: Arc::new(MapEntries::empty()),
        }
    }

    /// Returns the value for a text: the value of the matching entry, the default, or an empty string.
    pub fn value(&self, text: &[u8]) -> &str {
        let found = self.entries.find(text);
        let found = found.and_then(|index| self.entries.values().get(index));
        found.or(self.default.as_ref()).map_or("", String::as_str)
    }
}

/// Formats the map as `hosts by {host}, exact, 3 entries, default web`.
impl fmt::Display for ValueMap {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, key, count) = (&self.name, &self.key, self.entries.len());
        let plural = if count == 1 { "y" } else { "ies" };
        let kind = self.entries.kind().as_str();
        write!(f, "{name} by {key}, {kind}, {count} entr{plural}")?;
        if self.entries.ignores_case() {
            f.write_str(", ignoring case")?;
        }
        match &self.default {
            None => Ok(()),
            Some(default) => write!(f, ", default {default}"),
        }
    }
}

/// A reference to a map in a text.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct MapRef {
    /// Name.
    pub name: String,
    /// The map; `None` until [`Template::with_maps`] sets it.
    pub map: Option<Arc<ValueMap>>,
}

impl fmt::Debug for MapRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MapRef({})", self.name)
    }
}

/// A part of a text.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Part {
    /// Literal text.
    Text(String),
    /// A variable.
    Variable(Variable),
}

/// A text with variables.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Template {
    text: String,
    parts: Vec<Part>,
}

/// A name in braces is not a variable.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct UnknownVariable {
    /// The name.
    pub name: String,
}

impl Template {
    /// Parses a text. A name is in braces and consists of letters, digits, `_`, `-` and `.`; other braces are literal,
    /// as in JSON.
    ///
    /// # Errors
    /// Returns an error if a name is not the name of a variable.
    pub fn parse(text: &str) -> Result<Self, UnknownVariable> {
        let mut parts = Vec::new();
        let mut literal = String::new();
        let mut rest = text;
        while let Some((before, after)) = rest.split_once('{') {
            literal.push_str(before);
            let Some((name, after_name)) = after.split_once('}').filter(|(name, _)| is_name(name))
            else {
                literal.push('{');
                rest = after;
                continue;
            };
            let unknown = || UnknownVariable {
                name: name.to_owned(),
            };
            let variable = match name.strip_prefix("map.") {
                Some(map) if !map.is_empty() => Variable::Map(MapRef {
                    name: map.to_owned(),
                    map: None,
                }),
                _ => Variable::from_name(name).ok_or_else(unknown)?,
            };
            if !literal.is_empty() {
                parts.push(Part::Text(std::mem::take(&mut literal)));
            }
            parts.push(Part::Variable(variable));
            rest = after_name;
        }
        literal.push_str(rest);
        if !literal.is_empty() {
            parts.push(Part::Text(literal));
        }
        Ok(Self {
            text: text.to_owned(),
            parts,
        })
    }

    /// Creates a text without variables.
    pub fn literal(text: &str) -> Self {
        let parts = match text {
            "" => Vec::new(),
            text => vec![Part::Text(text.to_owned())],
        };
        Self {
            text: text.to_owned(),
            parts,
        }
    }

    /// Returns the text as written.
    pub fn as_str(&self) -> &str {
        &self.text
    }

    /// Returns the parts in order; adjacent literal texts are one part.
    pub fn parts(&self) -> &[Part] {
        &self.parts
    }

    /// Returns the variables in order.
    pub fn variables(&self) -> impl Iterator<Item = &Variable> {
        self.parts.iter().filter_map(|part| match part {
            Part::Variable(variable) => Some(variable),
            Part::Text(_) => None,
        })
    }

    /// Returns the text if it has no variables.
    pub fn as_literal(&self) -> Option<&str> {
        self.variables()
            .next()
            .is_none()
            .then_some(self.text.as_str())
    }

    /// Sets the maps that the text refers to.
    ///
    /// # Errors
    /// Returns the name of a map for which `find` returns `None`.
    pub fn with_maps(
        mut self,
        find: impl Fn(&str) -> Option<Arc<ValueMap>>,
    ) -> Result<Self, UnknownVariable> {
        for part in &mut self.parts {
            if let Part::Variable(Variable::Map(reference)) = part {
                reference.map = Some(find(&reference.name).ok_or_else(|| UnknownVariable {
                    name: format!("map.{}", reference.name),
                })?);
            }
        }
        Ok(self)
    }

    /// Replaces a variable with another variable.
    #[must_use]
    pub fn replacing(mut self, from: &Variable, to: &Variable) -> Self {
        for part in &mut self.parts {
            if matches!(part, Part::Variable(variable) if variable == from) {
                *part = Part::Variable(to.clone());
            }
        }
        self
    }
}

fn is_name(name: &str) -> bool {
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte);
    !name.is_empty() && name.bytes().all(is_name)
}

impl fmt::Display for Template {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.text)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    #[test]
    fn only_names_in_braces_are_variables() {
        let parsed = Template::parse("a {client}{header.X-A} {1}{").unwrap();
        let variables: Vec<&Variable> = parsed.variables().collect();
        assert_eq!(
            variables,
            [
                &Variable::Client,
                &Variable::Header("x-a".to_owned()),
                &Variable::Group(1)
            ]
        );
        for text in ["{\"a\": 1}", "{}", "{", "}{", "a{ b }", "{client"] {
            assert_eq!(Template::parse(text).unwrap().as_literal(), Some(text));
        }
        for name in ["clinet", "header.", "cookie", "0", "10"] {
            let error = Template::parse(&format!("a{{{name}}}")).unwrap_err();
            assert_eq!(error.name, name);
        }
    }

    proptest! {
        /// Together, the parts contain the whole text. Literal parts are never adjacent.
        #[test]
        fn parts_concatenate_to_text(text in "([a{} \"]|\\{client\\}|\\{path\\}|\\{1\\}){0,12}") {
            if let Ok(parsed) = Template::parse(&text) {
                let name = |variable: &Variable| match variable {
                    Variable::Client => "{client}",
                    Variable::Path => "{path}",
                    Variable::Group(1) => "{1}",
                    _ => "?",
                };
                let joined: String = parsed.parts().iter().map(|part| match part {
                    Part::Text(text) => text.as_str(),
                    Part::Variable(variable) => name(variable),
                }).collect();
                prop_assert_eq!(joined, text);
                let are_texts = |pair: &[Part]| matches!(pair, [Part::Text(_), Part::Text(_)]);
                prop_assert!(!parsed.parts().windows(2).any(are_texts));
            }
        }

        #[test]
        fn any_text_is_parsed_or_rejected(text in any::<String>()) {
            let _ = Template::parse(&text);
        }
    }
}
