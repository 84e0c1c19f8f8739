//! Imports haproxy.cfg: `frontend`, `backend` and `listen` sections with their defaults, servers and conditions.
//!
//! Servers are imported with their options. Only common conditions are imported.
//!
//! A frontend becomes one service for its binds without TLS and one for its TLS binds, so the value of `ssl_fc` is
//! constant in each service.

mod acl;
mod alias;
mod backend;
mod bind;
mod block;
mod check;
mod cookie;
mod counter;
mod criterion;
mod forward;
mod frontend;
mod generated;
mod header;
mod inherit;
mod inspect;
mod legacy;
mod limit;
mod line;
mod log;
mod mail;
mod monitor;
mod path;
mod preferred;
mod rule;
mod scope;
mod section;
mod server;
mod service;
mod source;
mod track;
mod user;

use std::collections::{HashMap, HashSet};

use crate::document::{Entry, Table};
use crate::layer4::Writer;
use crate::note::{Notes, Position};
use crate::time::Units;
use crate::validate::validate;
use crate::{Environment, Imported};

use line::Line;
use section::Proxy;

/// State of one import.
struct Context<'w> {
    environment: &'w dyn Environment,
    writer: Writer,
    /// Pool names by backend name.
    pools: HashMap<String, String>,
    /// Pool names by backend and server of `use-server`.
    preferred_pools: HashMap<(String, String), String>,
    /// Servers that requests with a cookie prefer, by pool.
    cookie_servers: HashMap<String, Vec<cookie::CookieServer>>,
    /// Lines that were imported. All other lines are reported at the end, lines of defaults only once.
    used: HashSet<Position>,
    /// Users of the `userlist` sections.
    users: HashMap<String, Vec<section::User>>,
    /// Name servers of the `resolvers` sections.
    resolvers: HashMap<String, Vec<(String, Position)>>,
    /// Pages of the `http-errors` sections.
    pages: HashMap<String, Vec<Line>>,
    /// Lookups, each with the name of its map.
    maps: Vec<(rule::Lookup, String)>,
    /// `maxconn` of `global`: the limit for services without their own `maxconn`.
    max_connections: Option<(u64, Position)>,
    /// `ssl-default-bind-…` of `global`.
    suites: bind::Suites,
    /// `log` lines of `global`.
    logs: Vec<Line>,
    /// `chroot` of `global`: the base directory for paths of server sockets.
    chroot: Option<String>,
    /// Base directory for relative certificate paths.
    certificate_directory: String,
    /// Number of ports assigned so far to sections without an address that Weir can listen on.
    assigned_ports: u16,
    /// Features that the rules of the file use.
    used_features: UsedFeatures,
    /// `user` of `global`.
    user: Option<(String, Position)>,
    /// Whether the file has frontends: without them, rules may apply to clients of frontends in other files.
    has_frontends: bool,
    /// Addresses of the frontends imported so far.
    listen_addresses: HashSet<String>,
}

/// Imports haproxy.cfg.
pub fn haproxy(name: &str, text: &str, environment: &dyn Environment) -> Imported {
    let mut notes = Notes::default();
    let lines = line::read_lines(environment, &mut notes, name, text);
    let mut file = section::read(lines, &mut notes);
    let variables = alias::resolve(&mut file, &mut notes);
    source::mark_lines(&mut file.proxies);
    let mut context = Context {
        environment,
        writer: Writer::default(),
        pools: HashMap::new(),
        preferred_pools: HashMap::new(),
        cookie_servers: HashMap::new(),
        used: HashSet::new(),
        users: std::mem::take(&mut file.users),
        resolvers: std::mem::take(&mut file.resolvers),
        pages: std::mem::take(&mut file.pages),
        maps: Vec::new(),
        max_connections: None,
        suites: bind::Suites::default(),
        logs: Vec::new(),
        chroot: None,
        certificate_directory: alias::certificate_directory(&file),
        assigned_ports: 0,
        used_features: UsedFeatures::find(&file.proxies),
        user: None,
        has_frontends: file.proxies.iter().any(|proxy| proxy.is_frontend),
        listen_addresses: HashSet::new(),
    };
    read_global(&mut context, &file.global, &mut notes);
    for proxy in file.proxies.iter().filter(|proxy| proxy.is_backend) {
        backend::write(&mut context, proxy, &file.proxies, &mut notes);
    }
    for proxy in file.proxies.iter().filter(|proxy| proxy.is_frontend) {
        frontend::write(&mut context, proxy, &file.proxies, &mut notes);
    }
    for proxy in file.proxies.iter().filter(|proxy| proxy.is_backend) {
        mail::write(&mut context, proxy, &file.mailers, &mut notes);
    }
    crate::mail::write(
        std::mem::take(&mut context.writer.mails),
        &mut context.writer.document,
    );
    for (_, (_, position)) in &file.mailers {
        if !context.used.contains(position) && !notes.has_note(*position) {
            notes.remark(*position, "not imported: no backend uses this mailer");
        }
    }
    let limit = context.max_connections;
    let defaults = file.defaults.take();
    let defaults = defaults.or(limit.map(|(_, position)| (position, Vec::new())));
    if let Some((position, lines)) = defaults.filter(|_| file.proxies.is_empty()) {
        let defaults_only = Proxy {
            position,
            name: String::new(),
            is_frontend: true,
            is_backend: true,
            lines,
            defaults: Vec::new(),
        };
        service::write_defaults(&mut context, &defaults_only, &mut notes);
        file.proxies.push(defaults_only);
    }
    log::note_unused_global(&context, &mut notes);
    source::note_values(&file.proxies, &context.used, &mut notes);
    for proxy in &file.proxies {
        note_unused_lines(&context, proxy, &variables, &mut notes);
    }
    alias::note_variables(&variables, &mut notes);
    validate(context.writer.document, notes)
}

/// Reads the lines of `global`.
fn read_global(context: &mut Context<'_>, lines: &[Line], notes: &mut Notes) {
    for line in lines {
        if line.keyword() == "maxconn"
            && let Some(max) = line.word(1).and_then(|word| word.parse().ok())
        {
            context.max_connections = Some((max, line.position));
            notes.remark(line.position, limit::PER_SERVICE);
            continue;
        }
        if let Some(option) = line.keyword().strip_prefix("ssl-default-bind-")
            && context
                .suites
                .set(option, line.words[1..].join(" "), line.position)
        {
            notes.remark(line.position, "imported as keys of each service's `tls`");
            continue;
        }
        if line.keyword() == "log" {
            context.logs.push(line.clone());
            continue;
        }
        if line.keyword() == "user" {
            let name = line.word(1).map(str::to_owned);
            context.user = name.map(|name| (name, line.position));
        }
        if line.keyword() == "chroot" {
            context.chroot = line.word(1).map(str::to_owned);
        }
        if line.keyword() == "hard-stop-after"
            && let Some(millis) = line.word(1).and_then(parse_time)
        {
            let time = crate::time::format_millis(millis);
            context.add_to_node(Entry::new("drain_timeout", time, line.position));
            continue;
        }
        reject_global(line, notes);
    }
}

impl Context<'_> {
    fn has_node_key(&self, key: &str) -> bool {
        let mut tables = self.writer.document.tables.iter();
        let node = tables.find(|table| table.path == ["node"]);
        node.is_some_and(|node| node.entries.iter().any(|entry| entry.key == key))
    }

    /// Adds a key to `[node]`.
    fn add_to_node(&mut self, entry: Entry) {
        let tables = &mut self.writer.document.tables;
        if let Some(node) = tables.iter_mut().find(|table| table.path == ["node"]) {
            return node.replace(entry);
        }
        if let Some(position) = entry.item.position {
            let mut node = Table::new(&["node"], position);
            node.push(entry);
            tables.insert(0, node);
        }
    }

    /// Returns the name of the map for a lookup. Writes the map unless an identical lookup already has one.
    fn map_name(&mut self, lookup: &rule::Lookup, position: Position) -> String {
        if let Some((_, name)) = self.maps.iter().find(|(existing, _)| existing == lookup) {
            return name.clone();
        }
        let file = lookup.file.rsplit('/').next().unwrap_or_default();
        let file = if file.is_empty() { "backends" } else { file };
        let stem = file.split('.').next().unwrap_or_default();
        let base_name = super::name::sanitize(stem).replace('.', "-");
        let mut name = base_name.clone();
        while self.maps.iter().any(|(_, existing)| *existing == name) {
            name.push_str("-2");
        }
        let mut table = Table::new(&["map", &name], position);
        if lookup.entries.is_empty() {
            table.push(Entry::new("file", lookup.file.as_str(), position).essential());
        } else {
            table.push(Entry::new("entries", lookup.entries.clone(), position).essential());
        }
        if lookup.key != "{host}" {
            table.push(Entry::new("key", lookup.key.as_str(), position).essential());
        }
        if lookup.kind != "exact" {
            table.push(Entry::new("kind", lookup.kind, position).essential());
        }
        if lookup.ignore_case {
            table.push(Entry::new("ignore_case", true, position));
        }
        self.writer.document.push(table);
        self.maps.push((lookup.clone(), name.clone()));
        name
    }

    /// Records that a line was imported.
    fn mark_used(&mut self, line: &Line) {
        self.used.insert(line.position);
    }
}

/// Parses a haproxy time: a number with `us`, `ms`, `s`, `m`, `h` or `d`; milliseconds without a unit. Rounds up to
/// milliseconds.
fn parse_time(text: &str) -> Option<u64> {
    const UNITS: &Units = &[
        ("us", 1),
        ("ms", 1000),
        ("", 1000),
        ("s", 1_000_000),
        ("m", 60_000_000),
        ("h", 3_600_000_000),
        ("d", 86_400_000_000),
    ];
    let after_number = text.trim_start_matches(|c: char| c.is_ascii_digit());
    if after_number.contains(|c: char| c.is_ascii_digit() || c.is_whitespace()) {
        return None;
    }
    crate::time::parse_sum(text, UNITS).map(|micros| micros.div_ceil(1000))
}

/// Adds a note about a line of `global` that is not imported.
fn reject_global(line: &Line, notes: &mut Notes) {
    const VARIABLES: [&str; 4] = ["setenv", "presetenv", "unsetenv", "resetenv"];
    if VARIABLES.contains(&line.keyword()) {
        let reason = "not imported: each use of a variable is replaced with its value";
        return notes.remark(line.position, reason);
    }
    let reason = match line.keyword() {
        "log-tag" | "log-send-hostname" => "`access_log` of a service has no such setting",
        "maxconn" => "`limits.connections` is set per service",
        "nbthread" | "nbproc" | "cpu-map" | "thread-groups" | "cpu-policy" => {
            "Weir runs one worker per CPU"
        }
        "user" | "group" | "uid" | "gid" | "chroot" | "daemon" | "pidfile" | "node"
        | "description" => "the systemd unit controls how the process runs",
        "stats" => "`weir status`, the Unix socket and /metrics show the state",
        keyword if keyword.starts_with("ssl-") || keyword == "ca-base" || keyword == "crt-base" => {
            "Weir uses its own TLS defaults; see a service's `tls`"
        }
        keyword if keyword.starts_with("tune.") => "Weir has no such tuning parameter",
        _ => "weir.toml has no equivalent",
    };
    line.reject(notes, reason);
}

/// Adds a note for every line that was not imported and has no note yet, except for `mode` and lines that set
/// variables.
fn note_unused_lines(
    context: &Context<'_>,
    proxy: &Proxy,
    variables: &alias::Variables,
    notes: &mut Notes,
) {
    let proxy_lines = proxy.lines.iter().map(|line| (line, false));
    let defaults = proxy.defaults.iter().map(|line| (line, true));
    for (line, from_defaults) in proxy_lines.chain(defaults) {
        let is_handled = context.used.contains(&line.position) || notes.has_note(line.position);
        if is_handled || alias::sets_variable(variables, line.position) {
            continue;
        }
        // A service has the protocol of its frontend; haproxy rejects a backend with a different mode.
        if line.keyword() == "mode" && matches!(line.word(1), Some("http" | "tcp")) {
            continue;
        }
        if proxy.is_http() && limits_half_closed(line) {
            let reason = "an http service's `timeouts.client` and `timeouts.server` apply until the response ends";
            notes.remark(line.position, format!("not imported: {reason}"));
            continue;
        }
        if !proxy.is_http() && is_http_only(line) {
            notes.remark(line.position, "not imported: it has no effect in mode tcp");
            continue;
        }
        if header::is_edit(line) && context.has_frontends {
            notes.remark(
                line.position,
                "not imported: haproxy never applies it to a client either",
            );
            continue;
        }
        if line.keyword() == "no" && line.word(1) == Some("option") {
            notes.remark(line.position, "not imported: the option is off in Weir too");
            continue;
        }
        if let Some(reason) = no_effect_reason(line, &context.used_features) {
            notes.remark(line.position, format!("not imported: {reason}"));
            continue;
        }
        if from_defaults && is_imported_default(line) {
            notes.remark(line.position, "not imported: no section uses it");
            continue;
        }
        if line.keyword() == "acl" {
            note_unused_acl(context, proxy, line, notes);
            continue;
        }
        line.reject(notes, unsupported_reason(line));
    }
}

/// Adds a note for an ACL, unless an imported line uses it.
fn note_unused_acl(context: &Context<'_>, proxy: &Proxy, acl: &Line, notes: &mut Notes) {
    let uses_acl = |line: &&Line| {
        let (_, words) = rule::condition(line.arguments());
        let mut names = words.iter().map(|word| word.trim_start_matches('!'));
        names.any(|name| Some(name) == acl.word(1))
    };
    let mut lines = proxy.lines.iter().filter(uses_acl).peekable();
    let has_lines = lines.peek().is_some();
    if lines.any(|line| context.used.contains(&line.position)) {
        return;
    }
    let reason = match has_lines {
        true => "no rule that uses it is imported",
        false => "no rule in the section uses it",
    };
    acl.reject(notes, reason);
}

/// Features that the lines of a file use. A line that configures an unused feature has no effect.
#[derive(Clone, Copy, Debug)]
struct UsedFeatures {
    /// Whether a rule delays its response.
    tarpits: bool,
    /// Whether a rule or text uses the counters of a table.
    counters: bool,
    /// Whether a line uses a table to keep clients on their servers.
    stick: bool,
    /// Whether a line enables compression.
    compression: bool,
}

impl UsedFeatures {
    fn find(proxies: &[Proxy]) -> Self {
        let lines = || {
            proxies
                .iter()
                .flat_map(|proxy| proxy.lines.iter().chain(&proxy.defaults))
        };
        const COUNTERS: [&str; 10] = [
            "sc_",
            "sc0_",
            "sc1_",
            "sc2_",
            "src_conn",
            "src_http",
            "src_bytes",
            "src_get",
            "src_inc",
            "table_",
        ];
        let is_counter = |word: &String| {
            COUNTERS.iter().any(|fetch| word.contains(fetch)) || word.starts_with("sc-")
        };
        Self {
            tarpits: lines().any(|line| {
                line.words.iter().any(|word| word == "tarpit") && line.keyword() != "timeout"
            }),
            counters: lines().any(|line| line.words.iter().any(is_counter)),
            stick: lines().any(|line| line.keyword() == "stick"),
            compression: lines().any(|line| {
                line.keyword() == "compression"
                    && line.word(1).is_some_and(|word| word.starts_with("algo"))
            }),
        }
    }
}

/// Returns whether a line sets the timeout of connections that one side has closed.
fn limits_half_closed(line: &Line) -> bool {
    line.keyword() == "timeout" && matches!(line.word(1), Some("client-fin" | "server-fin"))
}

/// Returns why a line has no effect on clients, usually because the file does not use the feature that the line
/// configures. Returns `None` if the line may have an effect.
fn no_effect_reason(line: &Line, used: &UsedFeatures) -> Option<&'static str> {
    let is_tracking = || line.words.iter().any(|word| word.starts_with("track-sc"));
    match (line.keyword(), line.word(1).unwrap_or("")) {
        ("timeout", "tarpit") if !used.tarpits => Some("no rule delays a response"),
        ("compression", word) if !used.compression && !word.starts_with("algo") => {
            Some("it has no effect without `compression algo`")
        }
        ("filter", "compression" | "trace") => Some("on its own, it has no effect on clients"),
        ("stick-table", _) if !used.counters && !used.stick => Some("no rule uses the table"),
        ("http-request" | "http-response" | "tcp-request" | "tcp-response", _)
            if is_tracking() && !used.counters =>
        {
            Some("no rule uses the counters")
        }
        _ => None,
    }
}

/// Returns whether haproxy ignores a line in a proxy with `mode tcp`.
fn is_http_only(line: &Line) -> bool {
    const OPTIONS: [&str; 8] = [
        "forwardfor",
        "forwarded",
        "originalto",
        "http-server-close",
        "httpclose",
        "forceclose",
        "http-buffer-request",
        "http-keep-alive",
    ];
    match line.keyword() {
        "option" => line.word(1).is_some_and(|name| OPTIONS.contains(&name)),
        "timeout" => matches!(line.word(1), Some("http-request" | "http-keep-alive")),
        "errorfile"
        | "http-response"
        | "http-after-response"
        | "cookie"
        | "compression"
        | "monitor-uri" => true,
        // Rules that restrict access are reported.
        "http-request" => !crate::guard::haproxy_line_restricts_access(&line.words),
        _ => false,
    }
}

/// Returns whether a line of defaults is imported for every section that it applies to. If no section uses such a line,
/// losing it changes nothing.
fn is_imported_default(line: &Line) -> bool {
    const OPTIONS: [&str; 7] = [
        "forwardfor",
        "http-server-close",
        "httpclose",
        "forceclose",
        "abortonclose",
        "http-buffer-request",
        "httpchk",
    ];
    const TIMEOUTS: [&str; 8] = [
        "http-request",
        "http-keep-alive",
        "client",
        "connect",
        "server",
        "tunnel",
        "queue",
        "check",
    ];
    match (line.keyword(), line.word(1).unwrap_or("")) {
        ("option", name) => OPTIONS.contains(&name),
        ("timeout", name) => TIMEOUTS.contains(&name),
        ("maxconn" | "retries" | "balance" | "cookie" | "retry-on" | "default-server", _) => true,
        _ => false,
    }
}

/// Returns why a line of a proxy is not imported.
#[expect(clippy::too_many_lines, reason = "a table of directives")]
fn unsupported_reason(line: &Line) -> &'static str {
    let option = (line.keyword(), line.word(1).unwrap_or(""));
    match option {
        ("log", _) => "the frontend's `log` applies; see `access_log` of its service",
        ("log-format", _) => {
            "`format` is a key of `access_log`, and no `log` line of a frontend is imported as `access_log`"
        }
        ("log-format-sd" | "error-log-format" | "log-tag" | "log-steps", _) => {
            "`access_log` of a service has no such setting"
        }
        ("unique-id-format" | "unique-id-header", _) => {
            "see `request_id` of a service, and `{request_id}` in `format` of its `access_log`"
        }
        ("option" | "no", "httplog" | "tcplog" | "httpslog") => {
            "the default format is used; `format` of a service's `access_log` accepts a template"
        }
        ("option" | "no", "dontlognull") => {
            "`access_log` of an http service has no lines for connections without a request"
        }
        (
            "option" | "no",
            "dontlog-normal" | "logasap" | "log-health-checks" | "log-separate-errors",
        ) => "`access_log` of a service has no such setting; see its `sample`",
        ("option", "redispatch") => {
            "Weir always retries on another server, up to `limits.retries` times"
        }
        ("option", "http-keep-alive") => "Weir always keeps connections alive",
        (
            "option",
            "splice-auto" | "splice-request" | "splice-response" | "contstats" | "http-no-delay"
            | "http-tunnel" | "prefer-last-server" | "tcp-smart-connect" | "tcp-smart-accept"
            | "clitcpka" | "srvtcpka" | "tcpka",
        ) => "Weir has no setting for this",
        ("option", "http-buffer-request") => {
            "`request_buffering` is for services with protocol http"
        }
        ("http-reuse" | "fullconn" | "backlog" | "max-keep-alive-queue" | "tune", _) => {
            "Weir has no setting for this"
        }
        ("stats", _) => "`weir status`, the Unix socket and /metrics show the state",
        ("monitor-uri", _) => "a route's `path` cannot match a literal `*` or a query",
        ("monitor", _) => {
            "the route of `monitor-uri` always responds with 200; `weir status` and /metrics show the servers"
        }
        ("monitor-net", _) => {
            "it is imported only with a valid network, in mode http and in a section with a bind"
        }
        ("errorfile" | "errorloc" | "errorloc302" | "errorloc303", _) => {
            "a service's `error_pages` accepts only absolute file paths and fixed URLs, one per status"
        }
        ("errorfiles" | "http-error", _) => {
            "a service's `error_pages` accepts only one file per status"
        }
        ("stick-table" | "stick" | "tcp-request" | "tcp-response", _) => {
            "Weir has no client tables; see `limits` and a pool's `sticky`"
        }
        ("compression", _) => "a service's `compression` has no such option",
        ("filter" | "cache", _) => "Weir has neither filters nor a cache",
        (
            "http-request" | "http-response",
            "set-header" | "del-header" | "add-header" | "replace-path",
        ) => "it never applies to a client",
        ("http-response" | "http-after-response" | "rspadd" | "rspidel" | "rspdel", _) => {
            "a route cannot do this; see `set_response_header`, `remove_response_header`"
        }
        ("http-request", "set-src") => {
            "Weir matches the address of the connection, or of the PROXY protocol"
        }
        ("http-request", "normalize-uri") => {
            "a service's `normalize_path` is imported only from the rules of its frontend"
        }
        ("http-request" | "reqadd" | "reqidel" | "reqrep" | "reqirep" | "reqdel", _) => {
            "a route cannot do this; see `rewrite`, `set_header`, `remove_header`"
        }
        ("hash-type" | "hash-balance-factor" | "hash-preserve-affinity", _) => {
            "the `hash` scheduler is always consistent and uses a different hash function"
        }
        ("email-alert", _) => "`[notify]` has no such setting, or the backend has no recipient",
        ("description" | "id" | "guid", _) => "it has no effect on clients and servers",
        ("retry-on", _) => "a service gets `retry_on` only from its default backend",
        ("timeout", _) => {
            "a service's `timeouts` has no such key, or the service gets it from another pool"
        }
        ("tcp-check" | "http-check" | "external-check", _) => "no check of the section uses it",
        ("default_backend" | "use_backend", _) => "the section has no bind to which it applies",
        _ => "weir.toml has no equivalent",
    }
}

#[cfg(test)]
mod tests;
