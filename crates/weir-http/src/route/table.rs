//! Indexes a service's routes, so that a request is compared with only a few of them.
//!
//! A route is found by a hash of its host and of the fixed segments at the start of its paths. The hashes only select
//! candidates. All conditions of each candidate are then compared, in file order, so a collision only costs time.
//! Regular expressions for paths without a fixed beginning are matched together.

use std::collections::HashMap;

use foldhash::fast::FixedState;
use weir_model::{ConditionKey, Conditions, HostPattern, RegexSet, Route, RouteAction};

use super::{RouteInput, meets};

/// Maximum number of routes that are compared one by one, without an index.
const MAX_LINEAR: usize = 8;
/// Minimum number of regular expressions that are matched together.
const MIN_SET: usize = 8;
/// Maximum number of a path's segments that are indexed.
const MAX_SEGMENTS: usize = 6;
/// Maximum number of candidate lists for a request: one per number of segments, for the host and for any host.
const MAX_LISTS: usize = 2 * (MAX_SEGMENTS + 1);

/// Routes in file order.
#[derive(Debug, Default)]
pub struct RouteTable {
    routes: Vec<Route>,
    /// For each route, the keys of its conditions.
    keys: Vec<RouteKeys>,
    index: Option<Index>,
    needs_tls: bool,
    compares_hosts: bool,
    restarts: bool,
}

#[derive(Debug)]
struct Index {
    /// Indices of routes in ascending order, by [`key`]. Requests add no keys, so a fixed hash is sufficient.
    lists: HashMap<u64, Vec<u32>, FixedState>,
    /// Bit n is set if there are routes with n fixed segments.
    segments: u8,
    /// Whether a list depends on the host.
    has_hosts: bool,
    set: Option<RegexSet>,
    /// For each route, the index of its first regular expression in the set.
    first_regex: Vec<Option<u32>>,
}

/// The keys of a route's conditions and negated conditions: bit n represents key n of [`ConditionKey::ALL`]. Only these
/// conditions are compared.
#[derive(Debug, Clone, Copy)]
struct RouteKeys {
    when: u16,
    not: u16,
}

impl RouteKeys {
    fn new(route: &Route) -> Self {
        Self {
            when: keys_of(&route.when),
            not: route.not.as_deref().map_or(0, keys_of),
        }
    }
}

/// Returns the keys of conditions as bits.
fn keys_of(conditions: &Conditions) -> u16 {
    let keys = ConditionKey::ALL.iter().enumerate();
    let set = keys.filter(|(_, key)| conditions.has(**key));
    set.map(|(index, _)| 1 << index).sum()
}

/// Returns the keys of these bits.
fn keys_in(mut bits: u16) -> impl Iterator<Item = ConditionKey> {
    std::iter::from_fn(move || {
        let key = ConditionKey::ALL.get(bits.trailing_zeros() as usize)?;
        bits &= bits - 1;
        Some(*key)
    })
}

/// Returns whether a route matches. `path_matches` compares the path with the route's regular expressions.
#[inline]
fn matches(
    route: &Route,
    keys: RouteKeys,
    route_input: &RouteInput<'_>,
    host: &[u8],
    mut path_matches: impl FnMut(&Conditions) -> bool,
) -> bool {
    let met = |key| match key {
        ConditionKey::PathRegex => path_matches(&route.when),
        key => meets(&route.when, key, route_input, host, true) != Some(false),
    };
    let forbidden = |key| {
        let not = route.not.as_deref();
        not.is_some_and(|not| meets(not, key, route_input, host, false) == Some(true))
    };
    keys_in(keys.when).all(met) && !keys_in(keys.not).any(forbidden)
}

/// Returns whether one of the regular expressions matches the path.
fn matches_path(conditions: &Conditions, route_input: &RouteInput<'_>) -> bool {
    let mut regexes = conditions.path_regexes.iter();
    regexes.any(|regex| regex.matches(route_input.target.path()))
}

impl RouteTable {
    /// Creates a table of routes, with an index if there are many.
    pub fn new(routes: Vec<Route>) -> Self {
        let needs_tls = routes
            .iter()
            .flat_map(Route::conditions)
            .any(|conditions| conditions.needs_tls());
        let restarts = routes
            .iter()
            .any(|route| matches!(route.action, RouteAction::Restart(_)));
        let index = (routes.len() > MAX_LINEAR).then(|| Index::new(&routes));
        let keys = routes.iter().map(RouteKeys::new).collect();
        let compares_hosts = routes
            .iter()
            .flat_map(Route::conditions)
            .any(|conditions| conditions.has(ConditionKey::Host));
        Self {
            routes,
            keys,
            index,
            needs_tls,
            compares_hosts,
            restarts,
        }
    }

    /// Returns the routes in file order.
    pub fn routes(&self) -> &[Route] {
        &self.routes
    }

    /// Returns whether a condition depends on the TLS connection.
    pub const fn needs_tls(&self) -> bool {
        self.needs_tls
    }

    /// Returns whether any route restarts route selection with a new path.
    pub const fn has_restarts(&self) -> bool {
        self.restarts
    }

    /// Returns the index of the first route that matches.
    pub fn choose(&self, route_input: &RouteInput<'_>) -> Option<usize> {
        if self.routes.is_empty() {
            return None;
        }
        let host = match self.compares_hosts {
            true => route_input.host(),
            false => b"",
        };
        match &self.index {
            None => self.choose_linear(route_input, host),
            Some(index) => index.choose(&self.routes, &self.keys, route_input, host),
        }
    }

    fn choose_linear(&self, route_input: &RouteInput<'_>, host: &[u8]) -> Option<usize> {
        let routes = self.routes.iter().zip(&self.keys).enumerate();
        let mut matching =
            routes
                .skip(route_input.target.first_route())
                .filter(|(_, (route, keys))| {
                    matches(route, **keys, route_input, host, |when| {
                        matches_path(when, route_input)
                    })
                });
        matching.next().map(|(index, _)| index)
    }
}

impl Index {
    fn new(routes: &[Route]) -> Self {
        let mut lists: HashMap<u64, Vec<u32>, FixedState> = HashMap::default();
        let (mut segments, mut has_hosts) = (0, false);
        for (route_index, route) in (0u32..).zip(routes) {
            for host in host_hashes(route) {
                has_hosts |= host.is_some();
                for (path, count) in path_hashes(route) {
                    segments |= 1 << count;
                    let list = lists.entry(key(host, path)).or_default();
                    if list.last() != Some(&route_index) {
                        list.push(route_index);
                    }
                }
            }
        }
        let mut first_regex = vec![None; routes.len()];
        let mut expressions = Vec::new();
        for (first, route) in first_regex.iter_mut().zip(routes) {
            let regexes = &route.when.path_regexes;
            if !regexes.is_empty() && path_hashes(route).iter().any(|(_, count)| *count == 0) {
                *first = u32::try_from(expressions.len()).ok();
                expressions.extend(regexes);
            }
        }
        let set = (expressions.len() >= MIN_SET)
            .then(|| RegexSet::new(expressions))
            .flatten();
        Self {
            lists,
            segments,
            has_hosts,
            set,
            first_regex,
        }
    }

    fn choose(
        &self,
        routes: &[Route],
        keys: &[RouteKeys],
        route_input: &RouteInput<'_>,
        host: &[u8],
    ) -> Option<usize> {
        let first_route = route_input.target.first_route();
        let path = route_input.target.path();
        let mut lists: [&[u32]; MAX_LISTS] = [&[]; MAX_LISTS];
        let mut list_count = 0;
        let host_hash = self.has_hosts.then(|| hash_of_host(host));
        let mut add = |path_hash: u64| {
            for host in host_hash.map(Some).into_iter().chain([None]) {
                if let Some(list) = self.lists.get(&key(host, path_hash)) {
                    lists[list_count] = list;
                    list_count += 1;
                }
            }
        };
        let prefix_count = u8::BITS - self.segments.leading_zeros();
        for (count, hash) in prefixes(path).enumerate().take(prefix_count as usize) {
            if self.segments >> count & 1 == 1 {
                add(hash);
            }
        }
        let lists = &mut lists[..list_count];
        let mut hits = None;
        loop {
            // The next candidate is the first one in file order; a route can be in several lists.
            let route_index = lists
                .iter()
                .filter_map(|list| list.first())
                .min()
                .copied()?;
            for list in lists.iter_mut() {
                if list.first() == Some(&route_index) {
                    *list = &list[1..];
                }
            }
            if (route_index as usize) < first_route {
                continue;
            }
            let route = routes.get(route_index as usize)?;
            let keys = *keys.get(route_index as usize)?;
            let first_in_set = self
                .first_regex
                .get(route_index as usize)
                .copied()
                .flatten();
            let path_matches = |when: &Conditions| match (&self.set, first_in_set) {
                (Some(set), Some(first)) => {
                    let hits = hits.get_or_insert_with(|| set.matches(path));
                    (first as usize..)
                        .take(when.path_regexes.len())
                        .any(|index| hits.matched(index))
                }
                _ => matches_path(when, route_input),
            };
            if matches(route, keys, route_input, host, path_matches) {
                return Some(route_index as usize);
            }
        }
    }
}

/// Returns the hashes of a route's hosts, or only `None` if the route is not limited to exact hosts.
fn host_hashes(route: &Route) -> Vec<Option<u64>> {
    let exact = |pattern: &HostPattern| match pattern {
        HostPattern::Exact(host) => Some(hash_of_host(host.as_bytes())),
        HostPattern::Suffix(_) | HostPattern::Wildcard(_) | HostPattern::Regex(_) => None,
    };
    let mut hashes: Vec<Option<u64>> = route.when.hosts.iter().map(exact).collect();
    if hashes.is_empty() || hashes.contains(&None) || route.when.host_set.is_some() {
        hashes = vec![None];
    }
    hashes
}

/// Returns the hashes of the fixed segments at the start of a route's paths, each with the number of segments.
fn path_hashes(route: &Route) -> Vec<(u64, usize)> {
    let when = &route.when;
    let by_pattern = when
        .paths
        .iter()
        .map(|pattern| match pattern.split_once('*') {
            None => hash_segments(pattern),
            Some((fixed, _)) => hash_complete_segments(fixed),
        });
    let by_regex = when
        .path_regexes
        .iter()
        .map(|regex| hash_complete_segments(&regex.fixed_prefix().unwrap_or_default()));
    let hashes: Vec<(u64, usize)> = match when.paths.is_empty() {
        false => by_pattern.collect(),
        true => by_regex.collect(),
    };
    match hashes.is_empty() {
        true => vec![hash_complete_segments("")],
        false => hashes,
    }
}

/// Returns the hash of the first [`MAX_SEGMENTS`] segments of a path, or of all if there are fewer, and their number.
fn hash_segments(path: &str) -> (u64, usize) {
    let last = prefixes(path.as_bytes()).enumerate().last();
    last.map_or((BASIS, 0), |(count, hash)| (hash, count))
}

/// Returns the hash of the complete segments at the beginning of a path, and their number.
fn hash_complete_segments(fixed: &str) -> (u64, usize) {
    match fixed.rfind('/') {
        Some(slash) => hash_segments(&fixed[..slash]),
        None => (BASIS, 0),
    }
}

/// The offset basis of FNV-1a.
const BASIS: u64 = 0xcbf2_9ce4_8422_2325;

const fn hash_byte(hash: u64, byte: u8) -> u64 {
    (hash ^ byte as u64).wrapping_mul(0x0100_0000_01b3)
}

/// Returns the hashes of the first 0, 1, 2 … segments of a path, each of which begins with a slash.
fn prefixes(path: &[u8]) -> impl Iterator<Item = u64> {
    let has_slash = path.first() == Some(&b'/');
    let segments = path
        .strip_prefix(b"/")
        .unwrap_or_default()
        .split(|byte| *byte == b'/');
    let segments = segments.take(if has_slash { MAX_SEGMENTS } else { 0 });
    let following = segments.scan(BASIS, |hash, segment| {
        *hash = segment
            .iter()
            .fold(hash_byte(*hash, b'/'), |hash, byte| hash_byte(hash, *byte));
        Some(*hash)
    });
    std::iter::once(BASIS).chain(following)
}

fn hash_of_host(host: &[u8]) -> u64 {
    host.iter().fold(BASIS, |hash, byte| {
        hash_byte(hash, byte.to_ascii_lowercase())
    })
}

/// Returns the key of a list of routes: those for this host, or for any host, with these segments.
fn key(host: Option<u64>, path: u64) -> u64 {
    weir_model::mix_64(host.map_or(0, weir_model::mix_64) ^ path)
}

#[cfg(test)]
mod tests;
