//! Defines the conditions of routes.

use std::fmt;
use std::sync::Arc;

use crate::{HostPattern, HostSet, NetworkSet, TextRegex, TlsVersion};

/// A pattern for the values that a condition matches.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum ValuePattern {
    /// This value.
    Exact(String),
    /// `*` matches any bytes: prefixes (`a*`), suffixes (`*a`), substrings (`*a*`).
    Wildcard(String),
    /// Written `~EXPRESSION`: values that match the regular expression.
    Regex(TextRegex),
}

impl fmt::Display for ValuePattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(text) | Self::Wildcard(text) => f.write_str(text),
            Self::Regex(regex) => write!(f, "~{}", regex.as_str()),
        }
    }
}

/// A condition on a header field, a query parameter or a cookie. The item must be present, and its value must match the
/// pattern, if there is one.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct NamedCondition {
    /// Name; in lower case for a header field.
    pub name: String,
    /// Pattern for the value; `None` = any value.
    pub value: Option<ValuePattern>,
}

/// Exact values of at least this many bytes may be secrets, such as an API key, or a field value that only a CDN and
/// its origin share.
const MIN_SECRET_BYTES: usize = 8;

impl NamedCondition {
    /// Formats the condition as [`fmt::Display`] does. If `redact`, a short hash replaces a value that may be a secret.
    /// The hash usually still distinguishes two routes.
    fn format(&self, redact: bool) -> String {
        match &self.value {
            Some(ValuePattern::Exact(value)) if redact && value.len() >= MIN_SECRET_BYTES => {
                format!("{}=#{:04x}", self.name, short_hash(value))
            }
            _ => self.to_string(),
        }
    }

    fn covers(&self, other: &Self) -> bool {
        self.name == other.name && (self.value.is_none() || self.value == other.value)
    }
}

impl fmt::Display for NamedCondition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name)?;
        match &self.value {
            None => Ok(()),
            Some(value) => write!(f, "={value}"),
        }
    }
}

named_enum! {
    /// How a client sent a request.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum Scheme {
        /// Without TLS.
        Http = "http",
        /// With TLS.
        Https = "https",
    }
}

impl Scheme {
    /// Returns `Https` if the client used TLS.
    pub const fn of(is_secure: bool) -> Self {
        match is_secure {
            true => Self::Https,
            false => Self::Http,
        }
    }
}

named_enum! {
    /// Condition keys, in the order in which they are compared: cheap ones first.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum ConditionKey {
        /// Method.
        Method = "method",
        /// Scheme.
        Scheme = "scheme",
        /// Host.
        Host = "host",
        /// Path without query, with wildcards.
        Path = "path",
        /// Client address.
        Source = "source",
        /// TLS version.
        TlsVersion = "tls_version",
        /// SNI.
        TlsSni = "tls_sni",
        /// Client certificate subject.
        ClientCertSubject = "client_cert_subject",
        /// Header fields.
        Header = "header",
        /// Query parameters.
        Query = "query",
        /// Cookies.
        Cookie = "cookie",
        /// Path without query, with regular expressions.
        PathRegex = "path_regex",
    }
}

/// The part of a request to which a condition applies.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestPart {
    /// The head.
    Head,
    /// The client's address.
    Client,
    /// The TLS connection.
    TlsConnection,
}

impl ConditionKey {
    /// Returns the part of a request to which a condition on the key applies.
    pub const fn part(self) -> RequestPart {
        match self {
            Self::Method
            | Self::Scheme
            | Self::Host
            | Self::Path
            | Self::PathRegex
            | Self::Header
            | Self::Query
            | Self::Cookie => RequestPart::Head,
            Self::Source => RequestPart::Client,
            Self::TlsVersion | Self::TlsSni | Self::ClientCertSubject => RequestPart::TlsConnection,
        }
    }
}

/// Conditions by key. Each key has alternatives, one of which must match. A key without alternatives is not a
/// condition.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct Conditions {
    /// Methods in upper case.
    pub methods: Vec<String>,
    /// Schemes.
    pub schemes: Vec<Scheme>,
    /// Hosts.
    pub hosts: Vec<HostPattern>,
    /// Hosts from files, in addition to `hosts`.
    pub host_set: Option<Arc<HostSet>>,
    /// Paths without query, as normalized by the service; `*` matches any bytes.
    pub paths: Vec<String>,
    /// Expressions for the path without query.
    pub path_regexes: Vec<TextRegex>,
    /// Header fields. Values with the same name are alternatives; in `when`, every name must be present.
    pub headers: Vec<NamedCondition>,
    /// Query parameters. The rules of `headers` apply.
    pub queries: Vec<NamedCondition>,
    /// Cookies. The rules of `headers` apply.
    pub cookies: Vec<NamedCondition>,
    /// Client networks; `None` = any client. An empty set matches no client.
    pub sources: Option<NetworkSet>,
    /// TLS versions of the client's connection.
    pub tls_versions: Vec<TlsVersion>,
    /// Server names in the TLS handshake.
    pub tls_snis: Vec<HostPattern>,
    /// Subjects of verified client certificates.
    pub client_cert_subjects: Vec<ValuePattern>,
}

impl Conditions {
    /// Returns whether there is a condition on a key.
    pub fn has(&self, key: ConditionKey) -> bool {
        match key {
            ConditionKey::Method => !self.methods.is_empty(),
            ConditionKey::Scheme => !self.schemes.is_empty(),
            ConditionKey::Host => !self.hosts.is_empty() || self.host_set.is_some(),
            ConditionKey::Path => !self.paths.is_empty(),
            ConditionKey::PathRegex => !self.path_regexes.is_empty(),
            ConditionKey::Header => !self.headers.is_empty(),
            ConditionKey::Query => !self.queries.is_empty(),
            ConditionKey::Cookie => !self.cookies.is_empty(),
            ConditionKey::Source => self.sources.is_some(),
            ConditionKey::TlsVersion => !self.tls_versions.is_empty(),
            ConditionKey::TlsSni => !self.tls_snis.is_empty(),
            ConditionKey::ClientCertSubject => !self.client_cert_subjects.is_empty(),
        }
    }

    /// Returns whether there are no conditions.
    pub fn is_empty(&self) -> bool {
        !ConditionKey::ALL.iter().any(|key| self.has(*key))
    }

    /// Returns whether there are only conditions on the host and the client's address.
    pub fn needs_only_connection(&self) -> bool {
        let is_other =
            |key: &&ConditionKey| !matches!(key, ConditionKey::Host | ConditionKey::Source);
        !ConditionKey::ALL
            .iter()
            .filter(is_other)
            .any(|key| self.has(*key))
    }

    /// Returns whether a condition depends on the TLS connection.
    pub fn needs_tls(&self) -> bool {
        ConditionKey::ALL
            .into_iter()
            .any(|key| key.part() == RequestPart::TlsConnection && self.has(key))
    }

    /// Returns whether these conditions match every request that `other` matches; false if this cannot be determined
    /// from the patterns.
    pub(super) fn covers(&self, other: &Self) -> bool {
        ConditionKey::ALL
            .iter()
            .all(|key| !self.has(*key) || (other.has(*key) && self.covers_key(*key, other)))
    }

    /// Returns whether the alternatives of a key cover the alternatives of `other`. Both must have the key.
    fn covers_key(&self, key: ConditionKey, other: &Self) -> bool {
        match key {
            ConditionKey::Method => all_covered(&other.methods, &self.methods, PartialEq::eq),
            ConditionKey::Scheme => all_covered(&other.schemes, &self.schemes, PartialEq::eq),
            ConditionKey::Host => {
                (other.host_set.is_none() || other.host_set == self.host_set)
                    && all_covered(&other.hosts, &self.hosts, |covered, pattern| {
                        pattern.covers(covered)
                    })
            }
            ConditionKey::Path => all_covered(&other.paths, &self.paths, |covered, pattern| {
                let prefix = pattern
                    .strip_suffix('*')
                    .filter(|prefix| !prefix.contains('*'));
                pattern == covered || prefix.is_some_and(|prefix| covered.starts_with(prefix))
            }),
            ConditionKey::PathRegex => {
                all_covered(&other.path_regexes, &self.path_regexes, PartialEq::eq)
            }
            ConditionKey::Header => names_cover(&self.headers, &other.headers),
            ConditionKey::Query => names_cover(&self.queries, &other.queries),
            ConditionKey::Cookie => names_cover(&self.cookies, &other.cookies),
            ConditionKey::Source => self.sources == other.sources,
            ConditionKey::TlsVersion => {
                all_covered(&other.tls_versions, &self.tls_versions, PartialEq::eq)
            }
            ConditionKey::TlsSni => {
                all_covered(&other.tls_snis, &self.tls_snis, |covered, pattern| {
                    pattern.covers(covered)
                })
            }
            ConditionKey::ClientCertSubject => all_covered(
                &other.client_cert_subjects,
                &self.client_cert_subjects,
                PartialEq::eq,
            ),
        }
    }

    /// Returns the alternatives of a key as `weir plan` shows them. If `redact`, values of header fields and cookies
    /// that may be secrets are replaced with short hashes.
    pub fn format_alternatives(&self, key: ConditionKey, redact: bool) -> String {
        let named = |list: &[NamedCondition], separator: &str| {
            let texts: Vec<String> = list.iter().map(|item| item.format(redact)).collect();
            texts.join(separator)
        };
        fn join<T: fmt::Display>(list: &[T], separator: &str) -> String {
            let texts: Vec<String> = list.iter().map(ToString::to_string).collect();
            texts.join(separator)
        }
        match key {
            ConditionKey::Method => self.methods.join(" "),
            ConditionKey::Scheme => {
                let texts: Vec<&str> = self.schemes.iter().map(|item| item.as_str()).collect();
                texts.join("|")
            }
            ConditionKey::Host => {
                let files = self.host_set.iter().map(ToString::to_string);
                let hosts = self.hosts.iter().map(ToString::to_string);
                hosts.chain(files).collect::<Vec<_>>().join("|")
            }
            ConditionKey::Path => self.paths.join("|"),
            ConditionKey::PathRegex => {
                let texts: Vec<String> = self
                    .path_regexes
                    .iter()
                    .map(|item| format!("~{}", item.as_str()))
                    .collect();
                texts.join("|")
            }
            ConditionKey::Header => named(&self.headers, " "),
            ConditionKey::Query => join(&self.queries, " ?"),
            ConditionKey::Cookie => named(&self.cookies, " cookie "),
            ConditionKey::Source => self
                .sources
                .as_ref()
                .map(ToString::to_string)
                .unwrap_or_default(),
            ConditionKey::TlsVersion => {
                let texts: Vec<&str> = self.tls_versions.iter().map(|it| it.as_str()).collect();
                texts.join("|")
            }
            ConditionKey::TlsSni => join(&self.tls_snis, "|"),
            ConditionKey::ClientCertSubject => join(&self.client_cert_subjects, "|"),
        }
    }

    /// Writes ` not KEY=ALTERNATIVES` for every key with alternatives.
    pub(super) fn write_negated(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        ConditionKey::ALL
            .iter()
            .filter(|key| self.has(**key))
            .try_for_each(|key| {
                let alternatives = self.format_alternatives(*key, f.alternate());
                write!(f, " not {}={alternatives}", key.as_str())
            })
    }
}

/// Returns the FNV-1a hash of a text, folded to 16 bits.
fn short_hash(text: &str) -> u32 {
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| {
        (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193)
    });
    (hash >> 16) ^ (hash & 0xffff)
}

/// Returns whether each of `covered` is covered by one of `patterns`.
fn all_covered<T>(covered: &[T], patterns: &[T], covers: impl Fn(&T, &T) -> bool) -> bool {
    covered
        .iter()
        .all(|covered| patterns.iter().any(|pattern| covers(covered, pattern)))
}

/// Returns whether `covered` requires every name in `conditions` and allows only values that `conditions` allows.
fn names_cover(conditions: &[NamedCondition], covered: &[NamedCondition]) -> bool {
    conditions.iter().all(|required| {
        let mut with_same_name = covered
            .iter()
            .filter(|condition| condition.name == required.name)
            .peekable();
        with_same_name.peek().is_some()
            && with_same_name.all(|covered| conditions.iter().any(|it| it.covers(covered)))
    })
}

/// Formats the conditions as in `weir plan`. The alternate form (`{:#}`) is the same as for [`Route`](crate::Route).
impl fmt::Display for Conditions {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let redact = f.alternate();
        for method in &self.methods {
            write!(f, "{method} ")?;
        }
        f.write_str(&self.format_alternatives(ConditionKey::Host, redact))?;
        match (self.paths.is_empty(), self.path_regexes.is_empty()) {
            (true, false) => {
                f.write_str(&self.format_alternatives(ConditionKey::PathRegex, redact))?
            }
            (true, true) => f.write_str("/*")?,
            (false, true) => f.write_str(&self.format_alternatives(ConditionKey::Path, redact))?,
            (false, false) => {
                let (paths, regexes) = (
                    self.format_alternatives(ConditionKey::Path, redact),
                    self.format_alternatives(ConditionKey::PathRegex, redact),
                );
                write!(f, "{paths} {regexes}")?;
            }
        }
        for (key, prefix) in [
            (ConditionKey::Scheme, "scheme="),
            (ConditionKey::Header, ""),
            (ConditionKey::Query, "?"),
            (ConditionKey::Cookie, "cookie "),
            (ConditionKey::TlsVersion, "tls_version="),
            (ConditionKey::TlsSni, "tls_sni="),
            (ConditionKey::ClientCertSubject, "client_cert_subject="),
        ] {
            if self.has(key) {
                write!(f, " {prefix}{}", self.format_alternatives(key, redact))?;
            }
        }
        match &self.sources {
            None => Ok(()),
            Some(sources) => write!(f, " from {sources}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The 32-bit hashes are from the FNV authors' test vectors.
    #[test]
    fn short_hash_folds_fnv_1a_to_16_bits() {
        for (text, hash) in [
            ("", 0x811c_9dc5_u32),
            ("a", 0xe40c_292c),
            ("foobar", 0xbf9c_f968),
        ] {
            assert_eq!(short_hash(text), (hash >> 16) ^ (hash & 0xffff), "{text}");
        }
    }

    #[test]
    fn hosts_from_file_are_covered_only_by_same_file() {
        let with_file = |file: Option<&str>| {
            let set = |file: &str| {
                HostSet::new(vec![(
                    file.to_owned(),
                    vec![HostPattern::Exact("a".into())],
                )])
            };
            Conditions {
                hosts: vec![HostPattern::Exact("b".into())],
                host_set: file.map(|file| Arc::new(set(file))),
                ..Conditions::default()
            }
        };
        for (wide, narrow, expected) in [
            (Some("/f"), Some("/f"), true),
            (Some("/f"), None, true),
            (None, Some("/f"), false),
            (Some("/g"), Some("/f"), false),
        ] {
            assert_eq!(
                with_file(wide).covers(&with_file(narrow)),
                expected,
                "{wide:?} {narrow:?}"
            );
        }
    }
}
