//! `[[route]]`: routing rules of proxy services.

use std::fmt;

use crate::{Network, PathRegex};

/// Hosts that a route matches, compared without ASCII case and without the port.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum HostPattern {
    /// This host, in lower case.
    Exact(String),
    /// Written `*.example`: every host that ends with `.example`; stored as `.example`, in lower case.
    Suffix(String),
}

impl fmt::Display for HostPattern {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Exact(host) => f.write_str(host),
            Self::Suffix(rest) => write!(f, "*{rest}"),
        }
    }
}

/// Action of a route.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RouteAction {
    /// Use this pool.
    Pool(String),
    /// Use one of these pools, randomly by weight.
    Split(Vec<(String, u32)>),
    /// Redirect the client.
    Redirect {
        /// `Location`; `{host}` and `{path}` (including the query) are replaced by those of the request.
        to: String,
        /// 301, 302, 303, 307 or 308.
        status: u16,
    },
    /// Respond to the client directly.
    Answer {
        /// 200 to 599.
        status: u16,
        /// The body; empty = the reason phrase.
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

/// Changes of a route to requests that it sends to a pool, and to their responses. Names are in lower case.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RouteEdits {
    /// Path sent to the server; `{path}` is the path of the request, `{rest}` the part that matched the pattern's first
    /// `*` and what follows, `{1}` to `{9}` the groups of the expression. The query is kept.
    pub path: Option<String>,
    /// Request fields to set, replacing fields with the same name.
    pub set: Vec<(String, String)>,
    /// Fields that it loses.
    pub remove: Vec<String>,
    /// Response fields to set, replacing fields with the same name.
    pub set_response: Vec<(String, String)>,
    /// Fields that it loses.
    pub remove_response: Vec<String>,
}

impl RouteAction {
    /// The pools that the action may use.
    pub fn pools(&self) -> Vec<&str> {
        match self {
            Self::Pool(pool) => vec![pool],
            Self::Split(parts) => parts.iter().map(|(pool, _)| pool.as_str()).collect(),
            Self::Redirect { .. } | Self::Answer { .. } => Vec::new(),
        }
    }
}

/// One `[[route]]`; the first route of a service that matches a request applies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// `None` = any.
    pub host: Option<HostPattern>,
    /// Path without query, as normalized by the service; `*` matches any bytes. `None` = any.
    pub path: Option<String>,
    /// Expression that must match the path without query; `None` = any.
    pub path_regex: Option<PathRegex>,
    /// Methods in upper case; empty = any.
    pub methods: Vec<String>,
    /// Required fields, names in lower case, each with this value if there is one.
    pub headers: Vec<(String, Option<String>)>,
    /// Required query parameters, each with this value if there is one.
    pub queries: Vec<(String, Option<String>)>,
    /// Required cookies, each with this value if there is one.
    pub cookies: Vec<(String, Option<String>)>,
    /// Client networks, one of which must contain the client; empty = any.
    pub sources: Vec<Network>,
    /// Changes to requests and responses.
    pub edits: RouteEdits,
    /// Action.
    pub action: RouteAction,
    /// Position in the configuration.
    pub source: crate::Source,
}

impl Route {
    /// A route without conditions and edits.
    pub fn new(action: RouteAction) -> Self {
        Self {
            host: None,
            path: None,
            path_regex: None,
            methods: Vec::new(),
            headers: Vec::new(),
            queries: Vec::new(),
            cookies: Vec::new(),
            sources: Vec::new(),
            edits: RouteEdits::default(),
            action,
            source: crate::Source::default(),
        }
    }

    // The patterns below name every field, so that a new condition cannot be forgotten.

    /// Whether the route matches every request.
    pub fn is_for_all(&self) -> bool {
        let Self {
            host,
            path,
            path_regex,
            methods,
            headers,
            queries,
            cookies,
            sources,
            edits: _,
            action: _,
            source: _,
        } = self;
        host.is_none()
            && path.is_none()
            && path_regex.is_none()
            && methods.is_empty()
            && headers.is_empty()
            && queries.is_empty()
            && cookies.is_empty()
            && sources.is_empty()
    }

    /// Whether the only condition is a host and the action is a pool: the routes that a `tcp` service supports.
    pub fn is_by_name(&self) -> bool {
        let sees_more = Self {
            host: None,
            ..self.clone()
        };
        sees_more.is_for_all()
            && self.edits == RouteEdits::default()
            && matches!(self.action, RouteAction::Pool(_) | RouteAction::Split(_))
    }

    /// Whether this route matches every request that `other` matches; false if the patterns do not prove it.
    pub fn covers(&self, other: &Self) -> bool {
        let Self {
            host,
            path,
            path_regex,
            methods,
            headers,
            queries,
            cookies,
            sources,
            edits: _,
            action: _,
            source: _,
        } = self;
        let host_covers = match (host, &other.host) {
            (None, _) => true,
            (Some(HostPattern::Suffix(rest)), Some(HostPattern::Exact(host))) => {
                host.ends_with(rest.as_str())
            }
            (Some(HostPattern::Suffix(rest)), Some(HostPattern::Suffix(below))) => {
                below.ends_with(rest.as_str())
            }
            (own, theirs) => own == theirs,
        };
        let path_covers = match (path, &other.path) {
            (None, _) => true,
            (Some(own), Some(theirs)) => {
                let fixed = own.strip_suffix('*').filter(|fixed| !fixed.contains('*'));
                own == theirs || fixed.is_some_and(|fixed| theirs.starts_with(fixed))
            }
            (Some(_), None) => false,
        };
        let methods_cover = methods.is_empty()
            || (!other.methods.is_empty() && other.methods.iter().all(|one| methods.contains(one)));
        let within = |own: &[(String, Option<String>)], theirs: &[(String, Option<String>)]| {
            own.iter().all(|(name, value)| {
                theirs
                    .iter()
                    .any(|(other, set)| other == name && (value.is_none() || value == set))
            })
        };
        let path_covers = path_covers && (path_regex.is_none() || *path_regex == other.path_regex);
        host_covers
            && path_covers
            && methods_cover
            && within(headers, &other.headers)
            && within(queries, &other.queries)
            && within(cookies, &other.cookies)
            && (sources.is_empty() || *sources == other.sources)
    }
}

/// As in `weir plan`: conditions, then the action.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            host,
            path,
            path_regex,
            methods,
            headers,
            queries,
            cookies,
            sources,
            edits: _,
            action,
            source: _,
        } = self;
        for method in methods {
            write!(f, "{method} ")?;
        }
        if let Some(host) = host {
            write!(f, "{host}")?;
        }
        match (path, path_regex) {
            (None, Some(regex)) => write!(f, "~{}", regex.as_str())?,
            (path, regex) => {
                f.write_str(path.as_deref().unwrap_or("/*"))?;
                if let Some(regex) = regex {
                    write!(f, " ~{}", regex.as_str())?;
                }
            }
        }
        for (name, value) in headers {
            write!(f, " {name}")?;
            if let Some(value) = value {
                write!(f, "={value}")?;
            }
        }
        for (mark, pairs) in [("?", queries), ("cookie ", cookies)] {
            for (name, value) in pairs {
                write!(f, " {mark}{name}")?;
                if let Some(value) = value {
                    write!(f, "={value}")?;
                }
            }
        }
        for network in sources {
            write!(f, " from {network}")?;
        }
        write!(f, " -> {}", action)
    }
}
