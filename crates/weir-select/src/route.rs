//! Maps a parsed request to a pool, or to a response that Weir generates.
//!
//! The host and the limits are checked first, then the routes.

use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use weir_http::route::{self, RestartedPath, RouteInput, RouteTable, TlsProperties};
use weir_http::{Field, Framing, ParseError, Request, RequestPath};
use weir_model::{ConditionKey, HashKey, NormalizePath, Route, RouteAction, SplitMix64};

use crate::key::{hash_of_client, hash_of_request, murmur_hash};
use crate::limit::{Admission, ConcurrencyLimit, RateLimit, Slot};

/// The limits of a service or route for one client.
#[derive(Debug)]
pub struct Limits {
    /// Maximum size of a request body, in bytes; 0 = no limit.
    pub max_body_bytes: u64,
    /// Request rate limit.
    pub rate: Option<Arc<RateLimit>>,
    /// Limit on concurrent requests.
    pub concurrent: Option<Arc<ConcurrencyLimit>>,
    /// The part of a request that identifies the client, for the rate and concurrency limits.
    pub key: HashKey,
}

impl Limits {
    /// Returns whether a request body may have this length.
    pub const fn allows_body(&self, bytes: u64) -> bool {
        self.max_body_bytes == 0 || bytes <= self.max_body_bytes
    }

    /// Returns whether [`decide`] needs the current time.
    pub const fn needs_time(&self) -> bool {
        self.rate.is_some()
    }

    /// Checks the length of a request body, or of the part received so far if the length is unknown.
    ///
    /// # Errors
    /// Returns the rejection, with status 413.
    fn check_body(&self, properties: &RequestProperties<'_>) -> Result<(), Rejection> {
        let body_bytes = match properties.request.framing {
            Framing::Length(bytes) => bytes,
            // A part of the body may have been received with the head.
            Framing::None | Framing::Chunked | Framing::UntilClose => {
                properties.received_body_bytes
            }
        };
        match self.allows_body(body_bytes) {
            true => Ok(()),
            false => Err(Rejection::new(413)),
        }
    }

    /// Checks a request against the limits. Returns its concurrency slot, if the number of concurrent requests is
    /// limited and the request was counted.
    ///
    /// # Errors
    /// Returns the rejection, with status 413 or 429.
    pub fn admit(
        &self,
        properties: &RequestProperties<'_>,
        now_ns: u64,
    ) -> Result<Option<Slot>, Rejection> {
        self.check_body(properties)?;
        if self.rate.is_none() && self.concurrent.is_none() {
            return Ok(None);
        }
        let key = match &self.key {
            HashKey::Source => hash_of_client(properties.client),
            key => hash_of_request(
                key,
                properties.client,
                properties.target,
                properties.head,
                properties.fields,
            ),
        };
        if let Some(rate) = &self.rate
            && !rate.admit(key, now_ns)
        {
            return Err(Rejection::too_many_requests(rate.wait_s(key, now_ns)));
        }
        match self.concurrent.as_ref().map(|limit| limit.admit(key)) {
            Some(Admission::Rejected) => {
                let rate = self.rate.as_ref();
                // It is not known when the client's other requests will end.
                Err(Rejection::too_many_requests(
                    rate.map_or(1, |rate| rate.wait_s(key, now_ns)),
                ))
            }
            Some(Admission::Counted(slot)) => Ok(Some(slot)),
            Some(Admission::Uncounted) | None => Ok(None),
        }
    }
}

/// A service's routes, with the indices of their pools.
#[derive(Debug, Default)]
pub struct Routes {
    table: RouteTable,
    /// For each route, its pools and their weights; empty for a route that has a map or does not forward requests. For
    /// a `files` route, its fallback pool.
    pools: Vec<Vec<(usize, u32)>>,
    /// For each route, the pools in its map; `None` if the route has no map.
    mapped_pools: Vec<Option<MappedPools>>,
}

/// The pools that a route's map can select.
#[derive(Debug)]
struct MappedPools {
    /// Pool indices, in the order of the map's values.
    by_value: Vec<usize>,
    /// Index of the pool to use if no entry matches.
    default: usize,
}

impl Routes {
    /// Creates a service's routes. `pools` contains the names of the service's pools, in order.
    pub fn new(list: Vec<Route>, pools: &[&str]) -> Self {
        let index = |name: &str| pools.iter().position(|pool| *pool == name);
        let pools = list.iter().map(|route| match &route.action {
            RouteAction::Pool(name) => index(name).map(|pool| (pool, 1)).into_iter().collect(),
            RouteAction::Split(split) => split
                .parts
                .iter()
                .filter_map(|(name, weight)| Some((index(name)?, *weight)))
                .collect(),
            RouteAction::Files(files) => {
                let pool = files.pool.as_deref().and_then(index);
                pool.map(|pool| (pool, 1)).into_iter().collect()
            }
            RouteAction::Mapped(_)
            | RouteAction::Redirect { .. }
            | RouteAction::Respond { .. }
            | RouteAction::Close
            | RouteAction::Restart(_) => Vec::new(),
        });
        let mapped_pools = list.iter().map(|route| {
            let map = route.action.map()?;
            let values = map.entries.values().iter();
            Some(MappedPools {
                by_value: values.map(|name| index(name).unwrap_or(0)).collect(),
                default: map.default.as_deref().and_then(index).unwrap_or(0),
            })
        });
        let mapped_pools = mapped_pools.collect();
        let pools = pools.collect();
        Self {
            table: RouteTable::new(list),
            pools,
            mapped_pools,
        }
    }

    /// Returns whether there are no routes; all requests then go to the first pool.
    pub fn is_empty(&self) -> bool {
        self.table.routes().is_empty()
    }

    /// Returns whether any route condition depends on the TLS connection.
    pub const fn needs_tls(&self) -> bool {
        self.table.needs_tls()
    }

    /// Returns the route with this index.
    pub fn get(&self, index: usize) -> Option<&Route> {
        self.table.routes().get(index)
    }

    /// Returns the index of the first route that matches.
    pub fn choose(&self, properties: &RouteInput<'_>) -> Option<usize> {
        self.table.choose(properties)
    }

    /// Returns whether any route restarts route selection with a different path. If so, [`Self::apply_restarts`]
    /// determines the path.
    pub const fn has_restarts(&self) -> bool {
        self.table.has_restarts()
    }

    /// Determines the path for route selection after restarts; see [`RouteTable::apply_restarts`].
    ///
    /// # Errors
    /// See [`RouteTable::apply_restarts`].
    pub fn apply_restarts(
        &self,
        properties: &RouteInput<'_>,
        rules: Option<&NormalizePath>,
        buffer: &mut Vec<u8>,
    ) -> Result<RestartedPath, ParseError> {
        self.table
            .apply_restarts(properties, rules, buffer, |_, _| ())
    }

    /// Returns the index of the pool that a route's split selects for a string.
    ///
    /// The shares are the same as with nginx's `split_clients` (ngx_http_split_clients_module.c): each pool has a part
    /// of the 32-bit hash range, in file order, and the last pool has the remainder.
    pub fn split_pool(&self, route: usize, text: &[u8]) -> usize {
        let Some(pools) = self.pools.get(route) else {
            return 0;
        };
        let hash = u64::from(murmur_hash(text));
        let total_weight: u64 = pools.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut range_end = 0;
        let mut selected = 0;
        for (pool, weight) in pools.iter().filter(|(_, weight)| *weight > 0) {
            selected = *pool;
            range_end += u64::from(u32::MAX) * u64::from(*weight) / total_weight.max(1);
            if hash < range_end {
                break;
            }
        }
        selected
    }

    /// Returns the index of the pool that a route's map selects for a string, or 0 (the service's pool) if the route
    /// has no map.
    pub fn mapped_pool(&self, route: usize, text: &[u8]) -> usize {
        let action = self.get(route).map(|route| &route.action);
        let pools = self.mapped_pools.get(route).and_then(Option::as_ref);
        match (action, pools) {
            (Some(RouteAction::Mapped(map)), Some(pools)) => {
                let value = map.entries.find(text);
                let pool = value.and_then(|index| pools.by_value.get(index));
                pool.copied().unwrap_or(pools.default)
            }
            _ => 0,
        }
    }

    /// For a `files` route, returns the index of the pool that receives the requests for which no file is found.
    pub fn fallback_pool(&self, route: usize) -> Option<usize> {
        let (pool, _) = self.pools.get(route)?.first()?;
        Some(*pool)
    }

    /// Returns whether connection routes may depend on the TLS server name.
    pub fn needs_server_name(&self) -> bool {
        let may_depend_on_name = |route: &Route| {
            let mut not = route.not.iter();
            route.when.has(ConditionKey::Host)
                || not.any(|conditions| conditions.has(ConditionKey::Host))
        };
        self.table.routes().iter().any(may_depend_on_name)
    }

    /// Returns the index of the pool for a connection with this TLS server name; the first pool if no route matches.
    /// Returns `None` if the connection must be closed.
    pub fn pool_for_connection(
        &self,
        name: Option<&str>,
        client: IpAddr,
        random: &mut SplitMix64,
    ) -> Option<usize> {
        let Some(route) = route::choose_for_connection(self.table.routes(), name, client) else {
            return Some(0);
        };
        match self.get(route).map(|route| &route.action) {
            Some(RouteAction::Close) => None,
            _ => Some(self.pool_of(route, random).unwrap_or(0)),
        }
    }

    /// Returns the index of a route's pool. If the route has several pools, selects one at random by weight.
    fn pool_of(&self, route: usize, random: &mut SplitMix64) -> Option<usize> {
        let pools = self.pools.get(route)?;
        if let [(only, _)] = pools.as_slice() {
            return Some(*only);
        }
        let total_weight: u64 = pools.iter().map(|(_, weight)| u64::from(*weight)).sum();
        let mut target = random.below(total_weight);
        for (pool, weight) in pools {
            match target.checked_sub(u64::from(*weight)) {
                None => return Some(*pool),
                Some(remaining) => target = remaining,
            }
        }
        None
    }
}

/// The properties of a request that are known once its head has been parsed.
#[derive(Debug, Clone, Copy)]
pub struct RequestProperties<'a> {
    /// The client's address.
    pub client: SocketAddr,
    /// The request head; `request` and `fields` contain ranges in it.
    pub head: &'a [u8],
    /// The request line and framing.
    pub request: &'a Request,
    /// The header fields.
    pub fields: &'a [Field],
    /// The request path in the form that route conditions are compared with.
    pub target: &'a RequestPath<'a>,
    /// Number of body bytes received with the head.
    pub received_body_bytes: u64,
    /// Whether the host is allowed on this connection.
    pub host: HostCheck,
    /// The properties of the TLS connection; only set if [`Routes::needs_tls`] returns true.
    pub tls: TlsProperties<'a>,
    /// Whether the client used TLS, to Weir or to a trusted proxy.
    pub secure: bool,
    /// Whether the client's limits have already admitted this request.
    pub admitted: bool,
}

impl<'a> RequestProperties<'a> {
    /// Returns the properties that routes are matched against.
    pub const fn route_input(&self) -> RouteInput<'a> {
        RouteInput {
            client: self.client.ip(),
            target: self.target,
            head: self.head,
            request: self.request,
            fields: self.fields,
            tls: self.tls,
            secure: self.secure,
        }
    }
}

/// Whether a TLS connection may be used for a request's host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum HostCheck {
    /// The connection may be used.
    Allowed,
    /// The host's TLS requirements differ from the connection's (RFC 9110 section 15.5.20).
    Misdirected,
}

/// The response to a rejected request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rejection {
    /// Status code: 413, 421, 429 or 503.
    pub status: u16,
    /// Seconds after which the same request can succeed; `None` = unknown.
    pub retry_after_s: Option<u32>,
}

impl Rejection {
    /// Returns a rejection without `Retry-After`.
    pub const fn new(status: u16) -> Self {
        Self {
            status,
            retry_after_s: None,
        }
    }

    /// Returns a rejection with status 429 and `Retry-After`.
    pub const fn too_many_requests(retry_after_s: u32) -> Self {
        Self {
            status: 429,
            retry_after_s: Some(retry_after_s),
        }
    }
}

/// How to handle a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Decision {
    /// The request is forwarded to a pool.
    Forward {
        /// Index of the pool.
        pool: usize,
        /// Index of the route; `None` if no route matches.
        route: Option<usize>,
    },
    /// The request is rejected.
    Reject(Rejection),
    /// A route redirects the request.
    Redirect {
        /// Index of the route.
        route: usize,
    },
    /// A route generates the response, or the request needs more restarts than are allowed.
    Respond {
        /// Index of the route.
        route: usize,
    },
    /// The request is forwarded to the pool that a route's map or split selects by a key from the request.
    ForwardByKey {
        /// Index of the route.
        route: usize,
    },
    /// A route sends a file.
    Files {
        /// Index of the route.
        route: usize,
    },
    /// A route closes the connection.
    Close {
        /// Index of the route.
        route: usize,
    },
}

/// Decides how to handle a request. The second value is the request's concurrency slot, which is released when it is
/// dropped. `now_ns` is used only if [`Limits::needs_time`] returns true.
pub fn decide(
    routes: &Routes,
    limits: &Limits,
    properties: &RequestProperties<'_>,
    now_ns: u64,
    random: &mut SplitMix64,
) -> (Decision, Option<Slot>) {
    if properties.host == HostCheck::Misdirected {
        return (Decision::Reject(Rejection::new(421)), None);
    }
    let admission = match properties.admitted {
        true => limits.check_body(properties).map(|()| None),
        false => limits.admit(properties, now_ns),
    };
    let slot = match admission {
        Ok(slot) => slot,
        Err(rejection) => return (Decision::Reject(rejection), None),
    };
    let found = routes.table.choose(&properties.route_input());
    let Some(index) = found else {
        let (pool, route) = (0, None);
        return (Decision::Forward { pool, route }, slot);
    };
    let decision = match &routes.table.routes()[index].action {
        RouteAction::Redirect { .. } => Decision::Redirect { route: index },
        RouteAction::Respond { .. } => Decision::Respond { route: index },
        RouteAction::Mapped(_) => Decision::ForwardByKey { route: index },
        RouteAction::Files(_) => Decision::Files { route: index },
        RouteAction::Close => Decision::Close { route: index },
        // The request needs more restarts than are allowed.
        RouteAction::Restart(_) => Decision::Respond { route: index },
        RouteAction::Split(split) if split.by.is_some() => Decision::ForwardByKey { route: index },
        RouteAction::Pool(_) | RouteAction::Split(_) => Decision::Forward {
            pool: routes.pool_of(index, random).unwrap_or(0),
            route: Some(index),
        },
    };
    (decision, slot)
}

#[cfg(test)]
mod tests;
