//! Defines `[[route]]`, the routing rules of proxy services.

mod condition;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use crate::{
    BasicAuth, HashKey, Part, RetryOn, RouteClientFields, StaticFiles, Template, TextRegex,
    ValueMap, Variable,
};

pub use condition::{ConditionKey, Conditions, NamedCondition, RequestPart, Scheme, ValuePattern};

/// A route's action.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum RouteAction {
    /// Send requests to this pool.
    Pool(String),
    /// Send requests to one of several pools.
    Split(Split),
    /// Send requests to the pool that a map selects. If no key matches and the map has no default, send them to the
    /// service's pool.
    Mapped(Arc<ValueMap>),
    /// Redirect the client.
    Redirect {
        /// `Location`.
        to: Template,
        /// 300 to 399, except 304.
        status: u16,
    },
    /// Respond to the client directly.
    Respond {
        /// 200 to 599.
        status: u16,
        /// The body; empty = the reason phrase.
        body: Template,
    },
    /// Serve files from a directory.
    Files(Arc<StaticFiles>),
    /// Close the client's connection without a response.
    Close,
    /// Rewrite the path, and select a route for the new path, starting at this position. If the rewrite does not change
    /// the path, selection continues with the next route.
    Restart(RestartAt),
}

/// The position at which route selection restarts after a rewrite.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum RestartAt {
    /// At the first route.
    First,
    /// At the route after the one that rewrote the path.
    Next,
}

impl RestartAt {
    /// All values.
    pub const ALL: [Self; 2] = [Self::First, Self::Next];

    /// Returns the name in the configuration.
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::First => "first",
            Self::Next => "next",
        }
    }
}

/// A route's `split` setting: pools that share its requests.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Split {
    /// Pools and their weights. At least one weight is not 0.
    pub parts: Vec<(String, u32)>,
    /// Text whose hash selects the pool; `None` = the pool is selected at random.
    pub by: Option<Template>,
}

/// Creates a split that selects pools at random.
impl From<Vec<(String, u32)>> for Split {
    fn from(parts: Vec<(String, u32)>) -> Self {
        Self { parts, by: None }
    }
}

impl fmt::Display for Split {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("split")?;
        for (pool, weight) in &self.parts {
            write!(f, " {pool}:{weight}")?;
        }
        match &self.by {
            Some(by) => write!(f, " by {by}"),
            None => Ok(()),
        }
    }
}

impl fmt::Display for RouteAction {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Pool(pool) => write!(f, "pool {pool}"),
            Self::Split(split) => write!(f, "{split}"),
            Self::Redirect { to, status } => write!(f, "{status} to {to}"),
            Self::Respond { status, .. } => write!(f, "respond {status}"),
            Self::Mapped(map) => write!(f, "pool by map {}", map.name),
            Self::Files(files) => write!(f, "{files}"),
            Self::Close => f.write_str("close"),
            Self::Restart(at) => write!(f, "restart at the {} route", at.as_str()),
        }
    }
}

/// A header field to write.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HeaderEdit {
    /// Name as written.
    pub name: String,
    /// Value.
    pub value: Template,
    /// Statuses of the responses to which the field is added, as inclusive ranges; empty = all.
    pub statuses: Vec<(u16, u16)>,
    /// Path below the root of the route's `files`. The field is added only to the response with this file; `None` = to
    /// every response.
    pub file: Option<String>,
}

/// Changes to a request header or a response header.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct HeaderEdits {
    /// Fields to write. They replace fields with the same name.
    pub set: Vec<HeaderEdit>,
    /// Fields to write in addition to fields with the same name.
    pub add: Vec<HeaderEdit>,
    /// Fields to remove, in lower case.
    pub remove: Vec<String>,
    /// Replacements of values, in order. Each one applies to the result of the previous ones. Only for responses.
    pub replace: Vec<HeaderReplacement>,
}

impl HeaderEdits {
    /// Returns whether there are no changes.
    pub const fn is_empty(&self) -> bool {
        self.set.is_empty()
            && self.add.is_empty()
            && self.remove.is_empty()
            && self.replace.is_empty()
    }

    /// Returns the fields that are written, in order.
    pub fn fields(&self) -> impl Iterator<Item = &HeaderEdit> {
        self.set.iter().chain(&self.add)
    }

    /// Returns whether fields with this name are removed or replaced.
    pub fn replaces(&self, name: &[u8]) -> bool {
        let has_name = |other: &str| other.as_bytes().eq_ignore_ascii_case(name);
        self.remove.iter().any(|other| has_name(other))
            || self.set.iter().any(|edit| has_name(&edit.name))
    }
}

/// A replacement for the values of a header field that the server sent.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct HeaderReplacement {
    /// Name of the field, in lower case.
    pub name: String,
    /// Expression to search for in the value. If it does not match, the value is not changed.
    pub regex: TextRegex,
    /// The complete new value. It can contain the groups of the expression.
    pub to: Template,
}

impl HeaderReplacement {
    /// Returns the new value of a field. Returns `None` if the field has a different name or the expression does not
    /// match.
    pub fn apply(&self, name: &[u8], value: &[u8]) -> Option<Vec<u8>> {
        if !name.eq_ignore_ascii_case(self.name.as_bytes()) {
            return None;
        }
        let groups = self.regex.groups(value)?;
        let mut out = Vec::with_capacity(self.to.as_str().len() + value.len());
        for part in self.to.parts() {
            match part {
                Part::Text(text) => out.extend_from_slice(text.as_bytes()),
                Part::Variable(Variable::Group(number)) => {
                    let group = groups.get(usize::from(*number));
                    out.extend_from_slice(group.map_or(&[], |group| group.as_bytes()));
                }
                Part::Variable(_) => {}
            }
        }
        Some(out)
    }
}

impl fmt::Display for HeaderReplacement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (name, regex, to) = (&self.name, self.regex.as_str(), &self.to);
        write!(f, "{name}: {to} if {regex} matches")
    }
}

/// Changes that a route makes to requests that it sends to a pool, and to their responses.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RouteEdits {
    /// The path that the server receives. The query is kept.
    pub path: Option<PathRewrite>,
    /// Changes to requests.
    pub request: HeaderEdits,
    /// Changes to responses.
    pub response: HeaderEdits,
    /// Status that replaces the status of responses from servers, 200 to 599.
    pub status: Option<u16>,
}

impl RouteEdits {
    /// Returns whether the route changes neither requests nor response headers.
    pub const fn is_empty(&self) -> bool {
        self.path.is_none() && self.request.is_empty() && self.response.is_empty()
    }

    /// Returns whether `status` may be replaced or be the replacement. Responses with 204, 205 and 304 have no content,
    /// so these are excluded.
    pub const fn may_replace(status: u16) -> bool {
        matches!(status, 200..=599) && !matches!(status, 204 | 205 | 304)
    }
}

/// A rewrite of the path that a server receives.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct PathRewrite {
    /// Expression whose groups `to` can contain. If it does not match, the path is not changed. `None` = every path is
    /// changed, and `to` can contain the groups of the route's conditions.
    pub regex: Option<TextRegex>,
    /// The new path.
    pub to: Template,
}

impl fmt::Display for PathRewrite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.regex {
            None => write!(f, "{}", self.to),
            Some(regex) => write!(f, "{} if {} matches", self.to, regex.as_str()),
        }
    }
}

/// Route settings that override or supplement the service's settings.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RouteOptions {
    /// Timeouts.
    pub timeouts: RouteTimeouts,
    /// Number of other servers to try.
    pub retries: Option<u32>,
    /// Maximum size of a request body, in bytes; 0 = no limit.
    pub max_body: Option<u32>,
    /// Compression of responses; the inner `None` = no compression.
    pub compression: Option<Option<crate::Compression>>,
    /// Whether requests are logged, if the service has a log.
    pub access_log: Option<bool>,
    /// Users who may send requests; the inner `None` = all clients.
    pub basic_auth: Option<Option<BasicAuth>>,
    /// When requests are retried on another server.
    pub retry_on: Option<RetryOn>,
    /// Limits for each client.
    pub limits: RouteLimits,
    /// Maximum number of requests in progress from all clients together; 0 = no limit.
    pub max_connections: u32,
    /// Rules for individual fields about the client.
    pub x_forwarded: Option<RouteClientFields>,
    /// Copies of requests, at most [`Mirror::MAX`].
    pub mirrors: Vec<Mirror>,
    /// Name of the pool's preferred server, which gets the requests while it is usable.
    pub server: Option<String>,
    /// Authorization of requests by another server.
    pub forward_auth: Option<ForwardAuth>,
}

/// A route's `forward_auth` setting. For each request, Weir sends an authorization request to a pool. The response
/// determines whether the request is allowed.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct ForwardAuth {
    /// The pool whose servers authorize requests.
    pub pool: String,
    /// Path and query of the authorization requests.
    pub path: String,
    /// Time limit for receiving a response head.
    pub timeout: Duration,
    /// Fields to copy from the response to the request for the route's server: the name in the request and the name in
    /// the response.
    pub copy: Vec<(String, String)>,
    /// Additional fields in the authorization requests.
    pub set: Vec<HeaderEdit>,
}

impl ForwardAuth {
    /// Default of [`path`](Self::path).
    pub const PATH: &'static str = "/";
    /// Default, minimum and maximum of [`timeout`](Self::timeout).
    pub const TIMEOUT: [Duration; 3] = [
        Duration::from_secs(5),
        Duration::from_millis(1),
        Duration::from_secs(60),
    ];
    /// Maximum number of authorization requests in progress for one route. Further requests are rejected with 503.
    pub const CONCURRENT: u32 = 65_535;

    /// Returns whether a field of the client's request is replaced or removed.
    pub fn replaces(&self, name: &[u8]) -> bool {
        let has_name = |other: &str| other.as_bytes().eq_ignore_ascii_case(name);
        self.copy.iter().any(|(to, _)| has_name(to))
    }
}

/// Formats the settings without header field values, which may be secrets.
impl fmt::Display for ForwardAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pool,
            path,
            timeout,
            copy,
            set,
        } = self;
        let timeout = crate::diff::duration(timeout);
        write!(f, "GET {path} from pool {pool}, timeout {timeout}")?;
        for (index, (request_field, response_field)) in copy.iter().enumerate() {
            let separator = if index == 0 { ", copies " } else { " " };
            match request_field.eq_ignore_ascii_case(response_field) {
                true => write!(f, "{separator}{request_field}")?,
                false => write!(f, "{separator}{response_field} as {request_field}")?,
            }
        }
        for (index, field) in set.iter().enumerate() {
            let separator = if index == 0 { ", sets " } else { " " };
            write!(f, "{separator}{}", field.name)?;
        }
        Ok(())
    }
}

/// A route's `mirror` setting: copies of its requests. Weir discards the responses to the copies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mirror {
    /// The pool whose servers receive the copies.
    pub pool: String,
    /// The share of requests to copy, in hundredths of a percent, 0 to 10 000.
    pub share: u32,
    /// Maximum body size in bytes; requests with a longer body are not copied; 0 = the copies have no body.
    pub body: u32,
    /// Maximum number of copies in progress.
    pub concurrent: u32,
    /// Path for the copies; `None` = the path that the request's own server receives. The query is kept.
    pub path: Option<String>,
}

impl Mirror {
    /// Value of [`share`](Self::share) for all requests.
    pub const ALL: u32 = 10_000;
    /// Maximum number of mirrors per route.
    pub const MAX: usize = 8;
    /// Default and maximum of [`body`](Self::body).
    pub const BODY: (u32, u32) = (64 << 10, 16 << 20);
    /// Default and maximum of [`concurrent`](Self::concurrent).
    pub const CONCURRENT: (u32, u32) = (100, 10_000);

    /// Creates a mirror of all requests to `pool`, with default limits.
    pub fn new(pool: impl Into<String>) -> Self {
        Self {
            pool: pool.into(),
            share: Self::ALL,
            body: Self::BODY.0,
            concurrent: Self::CONCURRENT.0,
            path: None,
        }
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            pool,
            share,
            body,
            concurrent,
            path,
        } = self;
        let (whole, part) = (share / 100, share % 100);
        write!(
            f,
            "{whole}.{part:02} % to pool {pool}, bodies up to {body} bytes, {concurrent} at once"
        )?;
        match path {
            Some(path) => write!(f, ", path {path}"),
            None => Ok(()),
        }
    }
}

/// A route's `limits` setting, which applies in addition to the limits of its service.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Default)]
pub struct RouteLimits {
    /// Maximum number of requests per minute from one client; 0 = no limit.
    pub per_minute: u32,
    /// Maximum number of requests at once after an idle period; 0 = the number allowed in one second, at least one.
    pub burst: u32,
    /// Maximum number of concurrent requests from one client; 0 = no limit.
    pub concurrent: u32,
    /// How a client is identified.
    pub key: HashKey,
}

impl RouteLimits {
    /// Maximum number of requests per minute.
    pub const MAX_RATE: u32 = 60 * 60_000;

    /// Returns the number of requests that one client may send at once.
    pub fn burst(&self) -> u32 {
        match self.burst {
            0 => (self.per_minute / 60).max(1),
            burst => burst,
        }
    }
}

/// A route's timeouts; `None` = the service's timeout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Default)]
pub struct RouteTimeouts {
    /// As in [`crate::ProxyTimeouts`].
    pub client: Option<Duration>,
    /// As in [`crate::ProxyTimeouts`].
    pub connect: Option<Duration>,
    /// As in [`crate::ProxyTimeouts`].
    pub server: Option<Duration>,
    /// As in [`crate::ProxyTimeouts`].
    pub response: Option<Duration>,
    /// As in [`crate::ProxyTimeouts`].
    pub tunnel: Option<Duration>,
    /// As in [`crate::ProxyTimeouts`].
    pub total: Option<Duration>,
}

impl RouteTimeouts {
    /// Returns the service's timeouts, overridden by those of the route.
    pub fn applied_to(&self, service: &crate::ProxyTimeouts) -> crate::ProxyTimeouts {
        crate::ProxyTimeouts {
            client: self.client.unwrap_or(service.client),
            connect: self.connect.unwrap_or(service.connect),
            server: self.server.unwrap_or(service.server),
            // A route with its own `server` does not inherit the service's `response`.
            response: self.response.or(match self.server {
                Some(_) => None,
                None => service.response,
            }),
            tunnel: self.tunnel.unwrap_or(service.tunnel),
            total: self.total.or(service.total),
            ..*service
        }
    }
}

impl RouteAction {
    /// Returns the map that selects the pool; `None` for other actions.
    pub fn map(&self) -> Option<&ValueMap> {
        match self {
            Self::Mapped(map) => Some(map),
            Self::Pool(_)
            | Self::Split(_)
            | Self::Redirect { .. }
            | Self::Respond { .. }
            | Self::Files(_)
            | Self::Close
            | Self::Restart(_) => None,
        }
    }

    /// Returns the pools that the action may use.
    pub fn pools(&self) -> Vec<&str> {
        match self {
            Self::Pool(pool) => vec![pool],
            Self::Split(split) => split.parts.iter().map(|(pool, _)| pool.as_str()).collect(),
            Self::Mapped(map) => {
                let values = map.entries.values().iter().chain(&map.default);
                values.map(String::as_str).collect()
            }
            Self::Files(files) => files.pool.iter().map(String::as_str).collect(),
            Self::Redirect { .. } | Self::Respond { .. } | Self::Close | Self::Restart(_) => {
                Vec::new()
            }
        }
    }
}

/// One `[[route]]`. The first route of a service that matches a request applies.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Route {
    /// Conditions that must hold.
    pub when: Conditions,
    /// Negated conditions: none of their alternatives may match. `None` = no such conditions.
    pub not: Option<Box<Conditions>>,
    /// Changes to requests and responses.
    pub edits: RouteEdits,
    /// Settings that override or supplement those of the service; `None` = no such settings.
    pub options: Option<Box<RouteOptions>>,
    /// Action.
    pub action: RouteAction,
    /// Position in the configuration.
    pub source: crate::Source,
}

impl Route {
    /// Creates a route without conditions, edits or options.
    pub fn new(action: RouteAction) -> Self {
        Self {
            when: Conditions::default(),
            not: None,
            edits: RouteEdits::default(),
            options: None,
            action,
            source: crate::Source::default(),
        }
    }

    /// Returns the mirrors that receive copies of the requests.
    pub fn mirrors(&self) -> &[Mirror] {
        self.options
            .as_ref()
            .map_or(&[], |options| &options.mirrors)
    }

    /// Returns the authorization settings, if requests are authorized by another server.
    pub fn forward_auth(&self) -> Option<&ForwardAuth> {
        self.options.as_ref()?.forward_auth.as_ref()
    }

    /// Returns the pools that the route may use, including those for mirrors and `forward_auth`.
    pub fn pools(&self) -> Vec<&str> {
        let mut pools = self.action.pools();
        pools.extend(self.mirrors().iter().map(|mirror| mirror.pool.as_str()));
        pools.extend(self.forward_auth().map(|auth| auth.pool.as_str()));
        pools
    }

    /// Returns the directory whose files the route sends.
    pub fn files(&self) -> Option<&StaticFiles> {
        match &self.action {
            RouteAction::Files(files) => Some(files),
            RouteAction::Pool(_)
            | RouteAction::Split(_)
            | RouteAction::Mapped(_)
            | RouteAction::Redirect { .. }
            | RouteAction::Respond { .. }
            | RouteAction::Close
            | RouteAction::Restart(_) => None,
        }
    }

    /// Returns whether the route matches every request and does not restart the selection.
    pub fn always_applies(&self) -> bool {
        self.when.is_empty() && self.not.is_none() && !self.restarts()
    }

    const fn restarts(&self) -> bool {
        matches!(self.action, RouteAction::Restart(_))
    }

    /// Returns the conditions and the negated conditions.
    pub fn conditions(&self) -> impl Iterator<Item = &Conditions> {
        std::iter::once(&self.when).chain(self.not.as_deref())
    }

    /// Returns whether a `tcp` service supports the route. Such a route has only conditions on hosts and client
    /// addresses, and no edits or options. Its action is a pool, a random split or `close`.
    pub fn is_valid_for_tcp(&self) -> bool {
        self.conditions().all(Conditions::needs_only_connection)
            && self.edits == RouteEdits::default()
            && self.options.is_none()
            && match &self.action {
                RouteAction::Pool(_) | RouteAction::Close => true,
                RouteAction::Split(split) => split.by.is_none(),
                RouteAction::Mapped(_)
                | RouteAction::Redirect { .. }
                | RouteAction::Respond { .. }
                | RouteAction::Files(_)
                | RouteAction::Restart(_) => false,
            }
    }

    /// Returns whether this route matches every request that `other` matches, so that `other` is never used; false if
    /// this cannot be determined from the patterns. A route that restarts the selection covers no other route, because
    /// the path changes.
    pub fn covers(&self, other: &Self) -> bool {
        !self.restarts()
            && (self.not.is_none() || self.not == other.not)
            && self.when.covers(&other.when)
    }
}

/// Formats the route as in `weir plan`: conditions, then the action. The alternate form (`{:#}`), for the status and
/// metrics, replaces header field and cookie values that may be secrets with short hashes.
impl fmt::Display for Route {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.when, f)?;
        if let Some(not) = &self.not {
            not.write_negated(f)?;
        }
        write!(f, " -> {}", self.action)
    }
}
