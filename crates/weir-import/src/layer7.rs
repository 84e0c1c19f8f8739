//! Writes pools, services and routes of `forward = "proxy"`, for the haproxy and nginx importers.

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::document::{Entry, Item, Table, Value};
use crate::edit::{Edits, Fields};
use crate::layer4::Writer;
use crate::note::{Notes, Position};
use crate::probe::Probe;

/// A server of a pool.
#[derive(Clone, Debug)]
pub(crate) struct PoolServer {
    pub(crate) position: Position,
    pub(crate) entries: Vec<Entry>,
    pub(crate) probes: Vec<Probe>,
}

/// A pool.
#[derive(Clone, Debug)]
pub(crate) struct Pool {
    pub(crate) position: Position,
    /// The name in the document.
    pub(crate) name: String,
    /// Keys other than `servers`.
    pub(crate) entries: Vec<Entry>,
    pub(crate) servers: Vec<PoolServer>,
    /// Checks of the servers from DNS, or `None` if there are no such servers.
    pub(crate) probes: Option<Vec<Probe>>,
    /// All source lines of the pool.
    pub(crate) lines: Vec<Position>,
}

/// Conditions on a request; all of them must match.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) host: Option<String>,
    pub(crate) path: Option<String>,
    /// Methods that match; empty for all methods.
    pub(crate) methods: Vec<String>,
    pub(crate) headers: Vec<String>,
    /// A regular expression to search for in the path.
    pub(crate) regex: Option<String>,
    pub(crate) cookies: Vec<String>,
    /// Query parameters.
    pub(crate) queries: Vec<String>,
    /// Client networks that match; empty for all clients.
    pub(crate) sources: Vec<String>,
    /// Keys of `not` with their values; none of them may match.
    pub(crate) not: BTreeMap<&'static str, Vec<String>>,
}

/// The action of a route.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Pool(String),
    /// A pool, with a different path in the request.
    PoolWithPath {
        pool: String,
        path: String,
    },
    Redirect {
        to: String,
        status: u64,
    },
    Respond {
        status: u64,
        body: String,
    },
    /// A response with additional header fields, as `NAME: VALUE`.
    RespondWithFields {
        status: u64,
        body: String,
        fields: Vec<String>,
    },
    /// The pool that a map selects: the map, and the pool for requests without an entry.
    PoolFromMap(String, String),
    /// Pools with their weights; the hash of `hashed_text` selects a pool.
    Split {
        pools: Vec<(String, u64)>,
        hashed_text: String,
    },
    /// Rewrites a path that the regular expression matches, and selects a route for the new path. `start` is the value
    /// of `restart`, which selects whether the search starts at the first or at the next route.
    Restart {
        regex: String,
        to: String,
        start: &'static str,
    },
    /// Closes the connection without a response.
    Close,
    /// Serves files: the keys of `files`, and the line.
    Files(Vec<Entry>, Position),
}

impl Action {
    /// Returns the target pool; for a map, its default pool, and for a split, the first pool.
    pub(crate) fn pool(&self) -> Option<&str> {
        match self {
            Self::Pool(pool) | Self::PoolWithPath { pool, .. } => Some(pool),
            Self::PoolFromMap(_, pool) => Some(pool),
            Self::Split { pools, .. } => pools.first().map(|(pool, _)| pool.as_str()),
            Self::Redirect { .. }
            | Self::Respond { .. }
            | Self::RespondWithFields { .. }
            | Self::Close
            | Self::Restart { .. }
            | Self::Files(..) => None,
        }
    }
}

impl Condition {
    /// Returns whether the condition depends only on the client's address, not on the request.
    pub(crate) fn depends_only_on_client(&self) -> bool {
        let client_part = Self {
            sources: self.sources.clone(),
            ..Self::default()
        };
        *self == client_part
    }

    /// Returns whether it is certain that no request meets both conditions.
    pub(crate) fn excludes(&self, other: &Self) -> bool {
        let differ = |a: &Option<String>, b: &Option<String>| match (a, b) {
            (Some(a), Some(b)) => a != b && is_exact(a) && is_exact(b),
            _ => false,
        };
        let are_disjoint = |a: &[String], b: &[String]| {
            !a.is_empty() && !b.is_empty() && !a.iter().any(|value| b.contains(value))
        };
        differ(&self.host, &other.host)
            || differ(&self.path, &other.path)
            || are_disjoint(&self.methods, &other.methods)
    }

    /// Combines both conditions. Returns `None` if they exclude each other, or if one route cannot express them
    /// together.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        let with_regex;
        // A second path becomes a regular expression.
        let other = match (&self.path, &other.path) {
            (Some(a), Some(b)) if a != b && self.regex.is_none() && other.regex.is_none() => {
                with_regex = Self {
                    path: None,
                    regex: Some(glob_to_regex(b)),
                    ..other.clone()
                };
                &with_regex
            }
            _ => other,
        };
        let combine = |a: &Option<String>, b: &Option<String>| match (a, b) {
            (Some(a), Some(b)) if a != b => None,
            (a, b) => Some(a.clone().or_else(|| b.clone())),
        };
        let methods = match (self.methods.as_slice(), other.methods.as_slice()) {
            ([], methods) | (methods, []) => methods.to_vec(),
            (a, b) => {
                let common: Vec<String> =
                    a.iter().filter(|word| b.contains(word)).cloned().collect();
                if common.is_empty() {
                    return None;
                }
                common
            }
        };
        // A route cannot require a client to be in two networks.
        let sources = match (self.sources.as_slice(), other.sources.as_slice()) {
            ([], sources) | (sources, []) => sources.to_vec(),
            (a, b) if a == b => a.to_vec(),
            _ => return None,
        };
        let mut not = self.not.clone();
        for (key, values) in &other.not {
            let combined = not.entry(key).or_default();
            let new = values.iter().filter(|value| !combined.contains(value));
            let new: Vec<String> = new.cloned().collect();
            combined.extend(new);
        }
        Some(Self {
            not,
            host: combine(&self.host, &other.host)?,
            path: combine(&self.path, &other.path)?,
            methods,
            headers: combine_fields(&self.headers, &other.headers)?,
            regex: combine(&self.regex, &other.regex)?,
            cookies: combine_named(&self.cookies, &other.cookies, '=')?,
            queries: combine_named(&self.queries, &other.queries, '=')?,
            sources,
        })
    }
}

impl Condition {
    /// Returns the negation as alternatives: at least one of them applies if and only if this condition does not.
    pub(crate) fn negated(&self) -> Vec<Self> {
        let to_list = |value: &Option<String>| value.iter().cloned().collect::<Vec<String>>();
        let fields = [
            ("host", to_list(&self.host)),
            ("path", to_list(&self.path)),
            ("path_regex", to_list(&self.regex)),
            ("method", self.methods.clone()),
            ("source", self.sources.clone()),
        ];
        let one_per_value =
            |key: &'static str, values: &[String]| -> Vec<(&'static str, Vec<String>)> {
                values
                    .iter()
                    .map(|value| (key, vec![value.clone()]))
                    .collect()
            };
        let mut keys: Vec<(&'static str, Vec<String>)> = fields.into();
        // Values for the same field are alternatives, so the negation excludes all of them.
        keys.extend(
            group_by_name(&self.headers)
                .into_iter()
                .map(|values| ("header", values)),
        );
        keys.extend(one_per_value("cookie", &self.cookies));
        keys.extend(one_per_value("query", &self.queries));
        let mut alternatives: Vec<Self> = keys
            .into_iter()
            .filter(|(_, values)| !values.is_empty())
            .map(|(key, values)| Self {
                not: BTreeMap::from([(key, values)]),
                ..Self::default()
            })
            .collect();
        for (key, values) in &self.not {
            let values = || values.clone();
            let mut positive = Self::default();
            match *key {
                "method" => positive.methods = values(),
                "source" => positive.sources = values(),
                _ => {
                    alternatives.extend(
                        values()
                            .into_iter()
                            .map(|value| Self::with_value(key, value)),
                    );
                    continue;
                }
            }
            alternatives.push(positive);
        }
        alternatives
    }

    /// Returns a condition with one value for a key.
    fn with_value(key: &str, value: String) -> Self {
        let mut condition = Self::default();
        match key {
            "host" => condition.host = Some(value),
            "path" => condition.path = Some(value),
            "path_regex" => condition.regex = Some(value),
            "header" => condition.headers = vec![value],
            "cookie" => condition.cookies = vec![value],
            _ => condition.queries = vec![value],
        }
        condition
    }
}

/// Groups conditions on header fields by the name of the field.
fn group_by_name(headers: &[String]) -> Vec<Vec<String>> {
    let name = |text: &str| {
        text.split(':')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    let mut fields: Vec<Vec<String>> = Vec::new();
    for header in headers {
        match fields
            .iter_mut()
            .find(|group| name(&group[0]) == name(header))
        {
            Some(field) => field.push(header.clone()),
            None => fields.push(vec![header.clone()]),
        }
    }
    fields
}

/// Combines two lists of conditions on header fields into one that requires both. Returns `None` if they have different
/// values for a field, which a route would treat as alternatives.
fn combine_fields(first: &[String], second: &[String]) -> Option<Vec<String>> {
    let name = |text: &str| {
        text.split(':')
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    let mut fields = group_by_name(first);
    for field in group_by_name(second) {
        match fields
            .iter_mut()
            .find(|group| name(&group[0]) == name(&field[0]))
        {
            None => fields.push(field),
            Some(existing) if *existing == field || !field[0].contains(':') => {}
            Some(existing) if !existing[0].contains(':') => *existing = field,
            Some(_) => return None,
        }
    }
    Some(fields.concat())
}

/// Combines two lists of conditions on cookies or query parameters into one that requires both. Returns `None` if they
/// have different values for a name, which a route would treat as alternatives.
fn combine_named(first: &[String], second: &[String], separator: char) -> Option<Vec<String>> {
    // If only one list has conditions, it may contain alternatives.
    match (first, second) {
        ([], list) | (list, []) => return Some(list.to_vec()),
        _ => {}
    }
    let name = |text: &str| {
        text.split(separator)
            .next()
            .unwrap_or_default()
            .to_ascii_lowercase()
    };
    let mut both = first.to_vec();
    for text in second {
        let same = both
            .iter_mut()
            .find(|existing| name(existing) == name(text));
        match same {
            None => both.push(text.clone()),
            Some(existing) if *existing == *text || !text.contains(separator) => {}
            Some(existing) if !existing.contains(separator) => existing.clone_from(text),
            Some(_) => return None,
        }
    }
    Some(both)
}

/// Returns whether a host or path has no wildcard and is not a regular expression.
fn is_exact(text: &str) -> bool {
    !text.contains('*') && !text.starts_with('~')
}

/// Returns the regular expression for a path with `*`.
fn glob_to_regex(glob: &str) -> String {
    let parts = glob.split('*').map(crate::probe::escape_regex);
    format!("^{}$", parts.collect::<Vec<String>>().join(".*"))
}

/// Returns whether a literal text contains a name in braces, which weir.toml treats as a variable.
pub(crate) fn has_variable(text: &str) -> bool {
    let name = |tail: &str| {
        let name = tail.split_once('}').map_or("", |(name, _)| name);
        !name.is_empty()
            && name
                .bytes()
                .all(|byte| byte.is_ascii_alphanumeric() || b"_.-".contains(&byte))
    };
    text.split('{').skip(1).any(name)
}

/// Marks a condition's value as the path of a file that contains the values.
pub(crate) const FILE_PREFIX: &str = "file:";

/// Returns a value of a condition, or the file with the values.
fn value_or_file(value: &str) -> Value {
    match value.strip_prefix(FILE_PREFIX) {
        Some(path) => Value::Table(vec![Entry::implied("file", path).essential()]),
        None => value.into(),
    }
}

/// Returns `ADDRESS:PORT`, with brackets for IPv6.
pub(crate) fn endpoint(address: IpAddr, port: u16) -> String {
    match address {
        IpAddr::V4(v4) => format!("{v4}:{port}"),
        IpAddr::V6(v6) => format!("[{v6}]:{port}"),
    }
}

/// Returns `servers_dns`: a table for one name, a list for several names, `None` without names.
pub(crate) fn servers_dns(mut names: Vec<Item>) -> Option<Entry> {
    let first = names.pop()?;
    let mut entry = Entry::implied("servers_dns", names.is_empty()).essential();
    entry.item = if names.is_empty() {
        first
    } else {
        names.push(first);
        Item::new(names, None)
    };
    Some(entry)
}

/// Adds the keys for the action of a route.
fn push_action(table: &mut Table, action: &Action) {
    match action {
        Action::Files(keys, position) => {
            table.rejection_status = Some(404);
            table.push(Entry::new("files", keys.clone(), *position).essential());
        }
        Action::PoolFromMap(map, pool) => {
            let keys = vec![
                Entry::implied("map", map.as_str()).essential(),
                Entry::implied("default", pool.as_str()).essential(),
            ];
            table.push(Entry::implied("pool", keys).essential());
        }
        Action::Split { pools, hashed_text } => {
            let parts = pools
                .iter()
                .map(|(pool, weight)| format!("{pool}:{weight}"));
            let parts: Vec<String> = parts.collect();
            table.push(Entry::implied("split", parts).essential());
            table.push(Entry::implied("split_by", hashed_text.as_str()).essential());
        }
        Action::Restart { regex, to, start } => {
            let keys = vec![
                Entry::implied("regex", regex.as_str()).essential(),
                Entry::implied("to", to.as_str()).essential(),
            ];
            table.push(Entry::implied("rewrite", keys).essential());
            table.push(Entry::implied("restart", *start).essential());
        }
        Action::Close => table.push(Entry::implied("close", true).essential()),
        Action::Pool(pool) => table.push(Entry::implied("pool", pool.as_str()).essential()),
        Action::PoolWithPath { pool, path } => {
            table.push(Entry::implied("pool", pool.as_str()).essential());
            table.push(Entry::implied("rewrite", path.as_str()).essential());
        }
        Action::Redirect { to, status } => {
            table.push(Entry::implied("redirect", to.as_str()).essential());
            if *status != 302 {
                table.push(Entry::implied("status", *status));
            }
        }
        Action::RespondWithFields {
            status,
            body,
            fields,
        } => {
            table.push(Entry::implied("status", *status).essential());
            if !body.is_empty() {
                table.push(Entry::implied("body", body.as_str()));
            }
            table.push(Entry::implied("set_response_header", fields.clone()));
        }
        Action::Respond { status, body } => {
            table.push(Entry::implied("status", *status).essential());
            if !body.is_empty() {
                table.push(Entry::implied("body", body.as_str()));
            }
        }
    }
}

/// Moves the response fields of a route's action to the keys for its header changes, if these keys change response
/// fields too. Drops fields that the changes replace.
fn move_action_fields(table: &mut Table, changes: &Fields, entries: &mut Vec<Entry>) {
    const KEY: &str = "set_response_header";
    let has_changes = entries
        .iter()
        .any(|entry| entry.key.contains("response_header"));
    let index = table.entries.iter().position(|entry| entry.key == KEY);
    let Some(index) = index.filter(|_| has_changes) else {
        return;
    };
    let mut action_entry = table.entries.remove(index);
    let Value::List(fields) = &mut action_entry.item.value else {
        return;
    };
    fields.retain(|field| match &field.value {
        Value::Text(text) => !changes.replaces(text.split(':').next().unwrap_or_default()),
        _ => true,
    });
    if let Some(entry) = entries.iter_mut().find(|entry| entry.key == KEY)
        && let Value::List(changed) = &mut entry.item.value
    {
        changed.splice(0..0, std::mem::take(fields));
    } else if !fields.is_empty() {
        entries.insert(0, action_entry);
    }
}

impl Writer {
    /// Writes a pool and the checks of its servers.
    pub(crate) fn write_pool(&mut self, pool: Pool) {
        // Servers from DNS have the pool's checks.
        let probes = pool.servers.iter().map(|server| &server.probes);
        let mut probe_lists = probes.chain(pool.probes.as_ref());
        let shared = match (&pool.probes, probe_lists.next()) {
            (Some(pool_probes), _) => Some(pool_probes.clone()),
            (None, Some(first)) => probe_lists
                .all(|probes| probes == first)
                .then(|| first.clone()),
            (None, None) => Some(Vec::new()),
        };
        let mut table = Table::new(&["pool", &pool.name], pool.position);
        table.entries = pool.entries;
        let mut servers = Vec::new();
        for server in pool.servers {
            let mut entries = server.entries;
            if shared.as_ref() != Some(&server.probes) && !server.probes.is_empty() {
                let names: Vec<Item> = server
                    .probes
                    .iter()
                    .map(|probe| Item::new(self.check(&pool.name, probe), Some(probe.position)))
                    .collect();
                entries.push(Entry::new("check", names, server.position));
            } else if server.probes.is_empty()
                && pool
                    .probes
                    .as_ref()
                    .is_some_and(|probes| !probes.is_empty())
            {
                // The pool's checks are for its servers from DNS.
                entries.push(Entry::new("check", Vec::<Item>::new(), server.position));
            }
            servers.push(Item::new(entries, Some(server.position)));
        }
        table.push(Entry::implied("servers", servers));
        table.dependent_lines = pool.lines;
        self.document.push(table);
        for probe in shared.iter().flatten() {
            let mut table = Table::new(&["pool", &pool.name, "check"], probe.position);
            table.repeated = shared.as_ref().is_some_and(|probes| probes.len() > 1);
            table.entries.clone_from(&probe.entries);
            self.document.push(table);
        }
    }

    /// Writes a route with its header changes. Each rewrite becomes a separate route before this route. If the route
    /// has a regular expression or splits requests, its only rewrite becomes a key of the route instead.
    pub(crate) fn route_with_edits(
        &mut self,
        service: &str,
        from: Position,
        condition: &Condition,
        action: &Action,
        edits: &Edits,
        notes: &mut Notes,
    ) {
        let Some(pool) = action.pool() else {
            self.route(service, from, condition, action);
            match action {
                Action::Close => self.add_log_key(edits),
                _ => self.add_edits(edits),
            }
            return;
        };
        for (regex, path, position) in &edits.rewrites {
            if condition.regex.is_some() || matches!(action, Action::Split { .. }) {
                // The route has its own regular expression, or it cannot be divided.
                if edits.rewrites.len() > 1 {
                    notes.add(
                        *position,
                        "not imported for these requests: a route with its own regular expression or a split \
                         allows only one rewrite",
                    );
                    continue;
                }
                let keys = vec![
                    Entry::new("regex", regex.as_str(), *position).essential(),
                    Entry::new("to", path.as_str(), *position).essential(),
                ];
                self.route(service, from, condition, action);
                if let Some(table) = self.document.tables.last_mut() {
                    table.push(Entry::new("rewrite", keys, *position).essential());
                }
                self.add_edits(edits);
                return;
            }
            let matching = Condition {
                regex: Some(regex.clone()),
                ..condition.clone()
            };
            let rewritten = Action::PoolWithPath {
                pool: pool.to_owned(),
                path: path.clone(),
            };
            self.route(service, *position, &matching, &rewritten);
            self.add_edits(edits);
        }
        self.route(service, from, condition, action);
        self.add_edits(edits);
    }

    /// Adds header changes to the last route.
    fn add_edits(&mut self, edits: &Edits) {
        if let Some(table) = self.document.tables.last_mut() {
            let mut entries = edits.entries();
            move_action_fields(table, &edits.response, &mut entries);
            table.entries.extend(entries);
        }
        self.add_keys(edits);
    }

    /// Adds `access_log`, the only key that affects a connection without a response, to the last route.
    fn add_log_key(&mut self, edits: &Edits) {
        if let Some(table) = self.document.tables.last_mut() {
            let keys = edits.keys.iter().filter(|key| key.key == "access_log");
            table.entries.extend(keys.cloned());
        }
    }

    /// Adds the keys that do not change header fields to the last route.
    fn add_keys(&mut self, edits: &Edits) {
        if let Some(table) = self.document.tables.last_mut() {
            table.entries.extend(edits.keys.iter().cloned());
            if edits.keys.iter().any(|key| key.key == "basic_auth") {
                table.rejection_status = Some(401);
            }
        }
    }

    /// Writes a route.
    pub(crate) fn route(
        &mut self,
        service: &str,
        position: Position,
        condition: &Condition,
        action: &Action,
    ) {
        let mut table = Table::new(&["route"], position).repeated();
        table.push(Entry::implied("service", service).essential());
        // Without its condition, the route would match too many requests.
        if let Some(host) = &condition.host {
            table.push(Entry::implied("host", value_or_file(host)).essential());
        }
        if let Some(path) = &condition.path {
            table.push(Entry::implied("path", path.as_str()).essential());
        }
        if let Some(regex) = &condition.regex {
            table.push(Entry::implied("path_regex", regex.as_str()).essential());
        }
        if !condition.cookies.is_empty() {
            table.push(Entry::implied("cookie", condition.cookies.clone()).essential());
        }
        if !condition.queries.is_empty() {
            table.push(Entry::implied("query", condition.queries.clone()).essential());
        }
        if !condition.sources.is_empty() {
            let sources = condition.sources.iter();
            let sources: Vec<Item> = sources
                .map(|source| Item::new(value_or_file(source), None))
                .collect();
            table.push(Entry::implied("source", sources).essential());
        }
        if !condition.methods.is_empty() {
            table.push(Entry::implied("method", condition.methods.clone()).essential());
        }
        if !condition.headers.is_empty() {
            table.push(Entry::implied("header", condition.headers.clone()).essential());
        }
        if !condition.not.is_empty() {
            let keys = condition.not.iter();
            let keys = keys.map(|(key, values)| {
                let values = values.iter();
                let values: Vec<Item> = values
                    .map(|value| Item::new(value_or_file(value), None))
                    .collect();
                Entry::implied(key, values).essential()
            });
            table.push(Entry::implied("not", keys.collect::<Vec<Entry>>()).essential());
        }
        push_action(&mut table, action);
        self.document.push(table);
    }

    /// Returns the pool without servers, for services that never use their pool.
    pub(crate) fn pool_without_servers(&mut self, position: Position) -> String {
        if let Some(name) = &self.empty_pool {
            return name.clone();
        }
        let name = self.names.claim("no-servers");
        let mut table = Table::new(&["pool", &name], position);
        table.push(Entry::implied("servers", Vec::<Item>::new()));
        self.document.push(table);
        self.empty_pool = Some(name.clone());
        name
    }
}

#[cfg(test)]
mod tests;
