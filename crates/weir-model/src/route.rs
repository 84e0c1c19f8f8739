//! `[[route]]`: which requests of an `http` service go where.

use std::fmt;

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
            Self::Redirect { to, status } => write!(f, "{status} to {to}"),
            Self::Answer { status, .. } => write!(f, "answer {status}"),
        }
    }
}

/// One `[[route]]`; the first of a service that a request fits decides.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// `None` = any.
    pub host: Option<HostPattern>,
    /// A path as it is sent, without the query; `*` stands for any octets. `None` = any.
    pub path: Option<String>,
    /// Methods in upper case; empty = any.
    pub methods: Vec<String>,
    /// Fields that must be there, names in lower case; with a value, one of them must have it.
    pub headers: Vec<(String, Option<String>)>,
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
            && self.methods.is_empty()
            && self.headers.is_empty()
    }

    /// Whether it asks for nothing but a host, and leads to a pool: all that a `tcp` service can follow.
    pub fn is_by_name(&self) -> bool {
        let rest = Self {
            host: None,
            ..self.clone()
        };
        rest.is_for_all() && matches!(self.action, RouteAction::Pool(_))
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
        write!(f, "{}", self.path.as_deref().unwrap_or("/*"))?;
        for (name, value) in &self.headers {
            write!(f, " {name}")?;
            if let Some(value) = value {
                write!(f, "={value}")?;
            }
        }
        write!(f, " -> {}", self.action)
    }
}
