//! `[[route]]`: which requests of an `http` service go where.

use std::fmt;

use crate::{Network, PathRegex};

/// Hosts that a route is for; ASCII letters compare without case, ports do not count.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// Just this one, in lower case.
    Exact(String),
    /// Written `*.example`: every host that ends with `.example`; held with its dot, in lower case.
    Below(String),
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Below(rest) => write!(f, "*{rest}"),
        }
    }
}

/// Where a route leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RouteAction {
    /// To a server of this pool.
    Pool(String),
    /// To one of these pools, by chance and weight.
    Split(Vec<(String, u32)>),
    /// The client is sent to another place.
    Redirect {
        /// `Location`; `{host}` and `{path}` (with the query) stand for the request's.
        to: String,
        /// 301, 302, 303, 307 or 308.
        status: u16,
    },
    /// The client is answered.
    Answer {
        /// 200 to 599.
        status: u16,
        /// The body; empty = the status in words.
        body: String,
    },
}

impl fmt::Display for RouteAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(pool) => write!(f, "pool {pool}"),
            Self::Split(parts) => {
                f.write_str("split")?;
                parts
                    .iter()
                    .try_for_each(|(pool, weight)| write!(f, " {pool}:{weight}"))
            }
            Self::Redirect { to, status } => write!(f, "{status} to {to}"),
            Self::Answer { status, .. } => write!(f, "answer {status}"),
        }
    }
}

/// What a route changes of the requests that it sends to a pool, and of their responses. Names are in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RouteEdits {
    /// The path that the server is asked for; `{path}` is the request's, `{rest}` what stood in place of the pattern's first
    /// `*` and behind it, `{1}` to `{9}` what the expression's groups found. The query stays.
    pub path: Option<String>,
    /// Fields that a request gets in place of those that it has by these names.
    pub set: Vec<(String, String)>,
    /// Fields that it loses.
    pub remove: Vec<String>,
    /// Fields that a response gets in place of those that it has by these names.
    pub set_response: Vec<(String, String)>,
    /// Fields that it loses.
    pub remove_response: Vec<String>,
}

impl RouteAction {
    /// The pools that it may lead to.
    pub fn pools(&self) -> Vec<&str> {
        match self {
            Self::Pool(pool) => vec![pool],
            Self::Split(parts) => parts.iter().map(|(pool, _)| pool.as_str()).collect(),
            Self::Redirect { .. } | Self::Answer { .. } => Vec::new(),
        }
    }
}

/// One `[[route]]`; the first of a service that a request fits decides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// `None` = any.
    pub host: Option<HostPattern>,
    /// A path without the query, in the form that the service compares; `*` stands for any bytes. `None` = any.
    pub path: Option<String>,
    /// An expression that the path must fit, without the query; `None` = any.
    pub path_regex: Option<PathRegex>,
    /// Methods in upper case; empty = any.
    pub methods: Vec<String>,
    /// Fields that must be there, names in lower case; with a value, one of them must have it.
    pub headers: Vec<(String, Option<String>)>,
    /// Parameters of the query that must be there, with that value where there is one.
    pub queries: Vec<(String, Option<String>)>,
    /// Cookies that must be there, with that value where there is one.
    pub cookies: Vec<(String, Option<String>)>,
    /// Networks that the client must be of one of; empty = any.
    pub sources: Vec<Network>,
    /// What is changed on the way.
    pub edits: RouteEdits,
    /// Where it leads.
    pub action: RouteAction,
    /// Where it is written.
    pub source: crate::Source,
}

impl Route {
    /// Whether every request fits.
    pub fn is_for_all(&self) -> bool {
        self.host.is_none()
            && self.path.is_none()
            && self.path_regex.is_none()
            && self.methods.is_empty()
            && self.headers.is_empty()
            && self.queries.is_empty()
            && self.cookies.is_empty()
            && self.sources.is_empty()
    }

    /// Whether it asks for nothing but a host, and leads to a pool: all that a `tcp` service can follow.
    pub fn is_by_name(&self) -> bool {
        let sees_more = Self {
            host: None,
            ..self.clone()
        };
        sees_more.is_for_all()
            && self.edits == RouteEdits::default()
            && matches!(self.action, RouteAction::Pool(_) | RouteAction::Split(_))
    }

    /// Whether every request that fits `other` fits this one, as far as the patterns tell.
    pub fn covers(&self, other: &Self) -> bool {
        let host = match (&self.host, &other.host) {
            (None, _) => true,
            (Some(HostPattern::Below(rest)), Some(HostPattern::Exact(host))) => {
                host.ends_with(rest.as_str())
            }
            (Some(HostPattern::Below(rest)), Some(HostPattern::Below(below))) => {
                below.ends_with(rest.as_str())
            }
            (own, theirs) => own == theirs,
        };
        let path = match (&self.path, &other.path) {
            (None, _) => true,
            (Some(own), Some(theirs)) => {
                let fixed = own.strip_suffix('*').filter(|fixed| !fixed.contains('*'));
                own == theirs || fixed.is_some_and(|fixed| theirs.starts_with(fixed))
            }
            (Some(_), None) => false,
        };
        let methods = self.methods.is_empty()
            || (!other.methods.is_empty()
                && other.methods.iter().all(|one| self.methods.contains(one)));
        let within = |own: &[(String, Option<String>)], theirs: &[(String, Option<String>)]| {
            own.iter().all(|(name, value)| {
                theirs
                    .iter()
                    .any(|(other, set)| other == name && (value.is_none() || value == set))
            })
        };
        let path = path && (self.path_regex.is_none() || self.path_regex == other.path_regex);
        host && path
            && methods
            && within(&self.headers, &other.headers)
            && within(&self.queries, &other.queries)
            && within(&self.cookies, &other.cookies)
            && (self.sources.is_empty() || self.sources == other.sources)
    }
}

/// As in `weir plan`: conditions, then where it leads.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for method in &self.methods {
            write!(f, "{method} ")?;
        }
        if let Some(host) = &self.host {
            write!(f, "{host}")?;
        }
        match (&self.path, &self.path_regex) {
            (None, Some(regex)) => write!(f, "~{}", regex.as_str())?,
            (path, regex) => {
                f.write_str(path.as_deref().unwrap_or("/*"))?;
                if let Some(regex) = regex {
                    write!(f, " ~{}", regex.as_str())?;
                }
            }
        }
        for (name, value) in &self.headers {
            write!(f, " {name}")?;
            if let Some(value) = value {
                write!(f, "={value}")?;
            }
        }
        for (mark, pairs) in [("?", &self.queries), ("cookie ", &self.cookies)] {
            for (name, value) in pairs {
                write!(f, " {mark}{name}")?;
                if let Some(value) = value {
                    write!(f, "={value}")?;
                }
            }
        }
        for network in &self.sources {
            write!(f, " from {network}")?;
        }
        write!(f, " -> {}", self.action)
    }
}
