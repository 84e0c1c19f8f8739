//! Pools, services and routes of `forward = "proxy"`, as haproxy and nginx both have them.

use std::net::IpAddr;

use crate::document::{Entry, Item, Table};
use crate::edit::Edits;
use crate::layer4::Writer;
use crate::note::{Notes, Place};
use crate::probe::Probe;

/// A server of a pool.
#[derive(Clone, Debug)]
pub(crate) struct Upstream {
    pub(crate) from: Place,
    pub(crate) entries: Vec<Entry>,
    pub(crate) probes: Vec<Probe>,
}

/// A pool.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) from: Place,
    /// As it stands in the document.
    pub(crate) name: String,
    /// Keys beside `servers`.
    pub(crate) entries: Vec<Entry>,
    pub(crate) servers: Vec<Upstream>,
    /// Checks of servers that are not listed.
    pub(crate) probes: Vec<Probe>,
    /// Every line of it.
    pub(crate) lines: Vec<Place>,
}

/// What a request must be like; everything that is written must hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Condition {
    pub(crate) host: Option<String>,
    pub(crate) path: Option<String>,
    /// One of these.
    pub(crate) methods: Vec<String>,
    pub(crate) headers: Vec<String>,
    /// An expression that is found in the path.
    pub(crate) regex: Option<String>,
    pub(crate) cookies: Vec<String>,
    /// Parameters of the query.
    pub(crate) queries: Vec<String>,
    /// Networks of clients, one of these.
    pub(crate) sources: Vec<String>,
}

/// Where a route leads.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Action {
    Pool(String),
    /// To a pool, whose servers are asked for another path.
    Rewritten {
        pool: String,
        path: String,
    },
    Redirect {
        to: String,
        status: u64,
    },
    Answer {
        status: u64,
        body: String,
    },
}

impl Action {
    /// The pool that it leads to.
    pub(crate) fn pool(&self) -> Option<&str> {
        match self {
            Self::Pool(pool) | Self::Rewritten { pool, .. } => Some(pool),
            Self::Redirect { .. } | Self::Answer { .. } => None,
        }
    }
}

impl Condition {
    /// Both; `None` = they exclude each other, or a route cannot say them together.
    pub(crate) fn and(&self, other: &Self) -> Option<Self> {
        let one = |a: &Option<String>, b: &Option<String>| match (a, b) {
            (Some(a), Some(b)) if a != b => None,
            (a, b) => Some(a.clone().or_else(|| b.clone())),
        };
        let methods = match (self.methods.as_slice(), other.methods.as_slice()) {
            ([], methods) | (methods, []) => methods.to_vec(),
            (a, b) => {
                let both: Vec<String> = a.iter().filter(|word| b.contains(word)).cloned().collect();
                if both.is_empty() {
                    return None;
                }
                both
            }
        };
        let mut headers = self.headers.clone();
        headers.extend(other.headers.iter().cloned());
        headers.dedup();
        let mut cookies = self.cookies.clone();
        cookies.extend(other.cookies.iter().cloned());
        cookies.dedup();
        let mut queries = self.queries.clone();
        queries.extend(other.queries.iter().cloned());
        queries.dedup();
        // Who is of two networks at once is nothing that a route asks.
        let sources = match (self.sources.as_slice(), other.sources.as_slice()) {
            ([], sources) | (sources, []) => sources.to_vec(),
            (a, b) if a == b => a.to_vec(),
            _ => return None,
        };
        Some(Self {
            host: one(&self.host, &other.host)?,
            path: one(&self.path, &other.path)?,
            methods,
            headers,
            regex: one(&self.regex, &other.regex)?,
            cookies,
            queries,
            sources,
        })
    }
}

/// `ADDRESS:PORT`, with brackets where they belong.
pub(crate) fn endpoint(address: IpAddr, port: u16) -> String {
    match address {
        IpAddr::V4(v4) => format!("{v4}:{port}"),
        IpAddr::V6(v6) => format!("[{v6}]:{port}"),
    }
}

impl Writer {
    /// Writes a pool and the checks of its servers.
    pub(crate) fn group(&mut self, group: Group) {
        let first = group.servers.first().map(|server| &server.probes);
        let same =
            first.filter(|first| group.servers.iter().all(|server| server.probes == **first));
        let shared = match group.servers.is_empty() {
            true => Some(group.probes),
            false => same.cloned(),
        };
        let mut table = Table::new(&["pool", &group.name], group.from);
        table.entries = group.entries;
        let mut servers = Vec::new();
        for server in group.servers {
            let mut entries = server.entries;
            if shared.is_none() && !server.probes.is_empty() {
                let names: Vec<Item> = server
                    .probes
                    .iter()
                    .map(|probe| Item::new(self.check(&group.name, probe), Some(probe.from)))
                    .collect();
                entries.push(Entry::new("check", names, server.from));
            }
            servers.push(Item::new(entries, Some(server.from)));
        }
        table.push(Entry::implied("servers", servers));
        table.covers = group.lines;
        self.document.push(table);
        for probe in shared.iter().flatten() {
            let mut table = Table::new(&["pool", &group.name, "check"], probe.from);
            table.repeated = shared.as_ref().is_some_and(|probes| probes.len() > 1);
            table.entries.clone_from(&probe.entries);
            self.document.push(table);
        }
    }

    /// Writes a route, which changes heads where it leads to a pool; one more in front where that is for some paths alone.
    pub(crate) fn edited_route(
        &mut self,
        service: &str,
        from: Place,
        of: &Condition,
        action: &Action,
        edits: &Edits,
        notes: &mut Notes,
    ) {
        let Some(pool) = action.pool() else {
            self.route(service, from, of, action);
            return;
        };
        match &edits.rewrite {
            None => {}
            Some((.., place)) if of.regex.is_some() => notes.say(
                *place,
                "not carried over for requests that are told by an expression: a route has one for its path",
            ),
            Some((regex, path, place)) => {
                let found = Condition {
                    regex: Some(regex.clone()),
                    ..of.clone()
                };
                let rewritten = Action::Rewritten {
                    pool: pool.to_owned(),
                    path: path.clone(),
                };
                self.route(service, *place, &found, &rewritten);
                self.changes(edits);
            }
        }
        self.route(service, from, of, action);
        self.changes(edits);
    }

    /// What the last route changes of heads.
    fn changes(&mut self, edits: &Edits) {
        if let Some(table) = self.document.tables.last_mut() {
            table.entries.extend(edits.entries());
        }
    }

    /// Writes a route.
    pub(crate) fn route(&mut self, service: &str, from: Place, of: &Condition, action: &Action) {
        let mut table = Table::new(&["route"], from).repeated();
        table.push(Entry::implied("service", service).essential());
        // Without a condition the route would be for more than was meant.
        if let Some(host) = &of.host {
            table.push(Entry::implied("host", host.as_str()).essential());
        }
        if let Some(path) = &of.path {
            table.push(Entry::implied("path", path.as_str()).essential());
        }
        if let Some(regex) = &of.regex {
            table.push(Entry::implied("path_regex", regex.as_str()).essential());
        }
        if !of.cookies.is_empty() {
            table.push(Entry::implied("cookie", of.cookies.clone()).essential());
        }
        if !of.queries.is_empty() {
            table.push(Entry::implied("query", of.queries.clone()).essential());
        }
        if !of.sources.is_empty() {
            table.push(Entry::implied("source", of.sources.clone()).essential());
        }
        if !of.methods.is_empty() {
            table.push(Entry::implied("method", of.methods.clone()).essential());
        }
        if !of.headers.is_empty() {
            table.push(Entry::implied("header", of.headers.clone()).essential());
        }
        match action {
            Action::Pool(pool) => table.push(Entry::implied("pool", pool.as_str()).essential()),
            Action::Rewritten { pool, path } => {
                table.push(Entry::implied("pool", pool.as_str()).essential());
                table.push(Entry::implied("rewrite", path.as_str()).essential());
            }
            Action::Redirect { to, status } => {
                table.push(Entry::implied("redirect", to.as_str()).essential());
                if *status != 302 {
                    table.push(Entry::implied("status", *status));
                }
            }
            Action::Answer { status, body } => {
                table.push(Entry::implied("status", *status).essential());
                if !body.is_empty() {
                    table.push(Entry::implied("body", body.as_str()));
                }
            }
        }
        self.document.push(table);
    }

    /// The pool without servers that a service has which never uses its own.
    pub(crate) fn no_servers(&mut self, from: Place) -> String {
        if let Some(name) = &self.no_servers {
            return name.clone();
        }
        let name = self.names.take("no-servers");
        let mut table = Table::new(&["pool", &name], from);
        table.push(Entry::implied("servers", Vec::<Item>::new()));
        self.document.push(table);
        self.no_servers = Some(name.clone());
        name
    }
}
