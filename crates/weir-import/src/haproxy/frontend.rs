//! Converts `frontend` sections and the frontend half of `listen` sections to services with routes.

use std::collections::HashMap;

use super::Context;
use super::acl::{Acls, Conversion};
use super::bind::{self, Binds};
use super::criterion::FrontendContext;
use super::forward;
use super::header::{self, Changes, FrontendRoute, variants};
use super::inspect;
use super::limit;
use super::line::Line;
use super::monitor;
use super::preferred;
use super::rule::{
    self, FrontendRule, ParsedRule, condition, parse_redirect_line, parse_rule, parse_use_backend,
};
use super::section::Proxy;
use super::service::{route_keys, write_service};
use super::source;
use super::user;
use crate::document::Entry;
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Position};

/// Addresses of a service, with their lines.
type Listeners<'a> = &'a [(String, Position)];

/// The context in which a service's rules are converted.
#[derive(Clone, Copy)]
struct RuleScope<'w> {
    frontend: FrontendContext<'w>,
    /// Whether a rule of the frontend changes the client's address.
    changes_source: bool,
    acls: &'w Acls,
    /// All sections of the file.
    sections: &'w [Proxy],
}

impl<'w> RuleScope<'w> {
    /// Returns the context of a backend's rules, which haproxy evaluates after the frontend's rules.
    fn backend(&self) -> FrontendContext<'w> {
        FrontendContext {
            is_source_changed: self.changes_source,
            ..self.frontend
        }
    }
}

#[expect(clippy::too_many_lines, reason = "the parts of one section in order")]
/// Writes the services and routes of a section that clients connect to.
pub(super) fn write(
    context: &mut Context<'_>,
    proxy: &Proxy,
    sections: &[Proxy],
    notes: &mut Notes,
) {
    if only_shows_statistics(proxy) {
        return import_statistics(context, proxy, sections, notes);
    }
    let Some(binds) = read_binds(context, proxy, sections, notes) else {
        return;
    };
    let tls_keys = binds.tls();
    let acls = Acls::read(context.environment, &proxy.lines, notes);
    let limit = limit::find_limit(proxy, sections, &acls, notes).filter(|_| proxy.is_http());
    let (limit_keys, limit_lines) = match limit {
        Some(limit) => (limit.keys, limit.lines),
        None => (Vec::new(), Vec::new()),
    };
    context.used.extend(&limit_lines);
    let mut rules = read_rules(context, proxy, notes);
    rules.retain(|rule| !limit_lines.contains(&rule.line.position));
    let default = default_pool(context, proxy, notes);
    let combinations = [(false, false), (true, false), (false, true), (true, true)];
    let has_listeners = |(tls, has_proxy_protocol): &&(bool, bool)| {
        !binds.addresses_with(*tls, *has_proxy_protocol).is_empty()
    };
    if combinations.iter().filter(has_listeners).count() > 1 {
        limit::note_services(proxy, &limit_keys, notes);
    }
    let mut is_first = true;
    for (tls, has_proxy_protocol) in combinations {
        let listen = &binds.addresses_with(tls, has_proxy_protocol);
        if listen.is_empty() {
            continue;
        }
        let preferred_name = match (is_first, tls, has_proxy_protocol) {
            (true, ..) => proxy.name.clone(),
            (_, true, false) => format!("{}-tls", proxy.name),
            (_, false, _) => format!("{}-proxied", proxy.name),
            (_, true, true) => format!("{}-tls-proxied", proxy.name),
        };
        is_first = false;
        // Services and pools have separate namespaces.
        let name = super::super::name::sanitize(&preferred_name);
        let name = context.writer.document.free_name("service", &name);
        let keys = if tls { tls_keys.as_slice() } else { &[] };
        let ports: Vec<u16> = listen
            .iter()
            .filter_map(|(address, _)| port_of(address))
            .collect();
        let scope = RuleScope {
            frontend: FrontendContext {
                tls,
                ports: &ports,
                authenticated: None,
                is_tcp_mode: !proxy.is_http(),
                is_source_changed: false,
                counters_are_zero: false,
            },
            changes_source: source::changes_source(proxy),
            acls: &acls,
            sections,
        };
        let routes = convert_rules(&rules, &acls, scope.frontend, proxy, notes);
        let has_no_default = default.is_none();
        let pool = match &default {
            Some((_, pool)) => pool.clone(),
            None => context.writer.pool_without_servers(proxy.position),
        };
        write_service(
            context,
            proxy,
            &name,
            listen,
            keys,
            (&pool, &default),
            (sections, &limit_keys),
            notes,
        );
        if has_proxy_protocol && let Some(table) = context.writer.document.tables.last_mut() {
            table.push(Entry::new("proxy_protocol", true, listen[0].1).essential());
        }
        let changes = service_changes(
            context,
            proxy,
            scope,
            default.as_ref(),
            listen,
            &routes,
            notes,
        );
        for (position, condition, action) in routes {
            if let Some(pool) = action.pool() {
                let routes_of_backend = backend_routes(context, pool, scope, notes);
                let backend = Some(pool);
                write_routes(
                    context,
                    (&name, backend),
                    (&condition, routes_of_backend),
                    &changes,
                    notes,
                );
            }
            let route = (position, Condition::default(), action);
            write_routes(
                context,
                (&name, None),
                (&condition, vec![route]),
                &changes,
                notes,
            );
        }
        let any_request = Condition::default();
        if default
            .as_ref()
            .is_some_and(|(name, _)| !is_own_backend(proxy, name))
        {
            let routes_of_backend = backend_routes(context, &pool, scope, notes);
            write_routes(
                context,
                (&name, Some(&pool)),
                (&any_request, routes_of_backend),
                &changes,
                notes,
            );
        }
        let (frontend, backend) = changes.for_pool(&pool);
        let has_cookies = context
            .cookie_servers
            .get(&pool)
            .is_some_and(|servers| !servers.is_empty());
        let is_plain = frontend.is_empty() && backend.is_empty() && !has_cookies;
        if proxy.is_http() && !has_no_default && !is_plain {
            let route = (
                proxy.position,
                any_request.clone(),
                Action::Pool(pool.clone()),
            );
            write_routes(
                context,
                (&name, None),
                (&any_request, vec![route]),
                &changes,
                notes,
            );
        }
        monitor::add_routes(
            context,
            proxy,
            &name,
            (&changes.frontend, &limit_keys),
            notes,
        );
        if has_no_default && proxy.is_http() {
            // haproxy responds with 503 to requests that no rule matches.
            let response = Action::Respond {
                status: 503,
                body: String::new(),
            };
            let changes = changes.frontend.for_response(|_| false);
            let route = (proxy.position, &any_request, &response);
            monitor::write_response(context, &name, route, &changes, notes);
        }
    }
    for position in acls.all_positions() {
        let uses_acl = |rule: &FrontendRule<'_>| {
            let except = rule.except.iter();
            let except = except.map(|line| condition(line.arguments()).1);
            let conditions = std::iter::once(rule.condition).chain(except);
            let mut lines = conditions.flat_map(|words| acls.positions_of(words));
            lines.any(|line| line == position)
        };
        if rules.iter().any(uses_acl) {
            context.used.insert(position);
        }
    }
}

/// Reads the addresses of a section. Returns `None` if the section is only a backend.
fn read_binds(
    context: &mut Context<'_>,
    proxy: &Proxy,
    sections: &[Proxy],
    notes: &mut Notes,
) -> Option<Binds> {
    let environment = context.environment;
    let lines = || sections.iter().flat_map(|proxy| &proxy.lines);
    let is_ipv4_port_taken = |port: &str| bind::has_ipv4_wildcard(lines(), port, environment);
    let bind_context = bind::BindContext {
        environment,
        base: &context.certificate_directory,
        is_ipv4_port_taken: &is_ipv4_port_taken,
        listen_addresses: &context.listen_addresses,
        suites: &context.suites,
    };
    let mut binds = Binds::default();
    for line in proxy.lines.iter().filter(|line| line.keyword() == "bind") {
        context.used.insert(line.position);
        binds.read(line, &bind_context, notes);
    }
    let assigned_ports = &mut context.assigned_ports;
    let mut next_port = || {
        let mut ports = FIRST_ASSIGNED_PORT + *assigned_ports..;
        let is_free = |port: &u16| {
            let suffix = format!(":{port}");
            let mut words = lines().flat_map(|line| &line.words);
            !words.any(|word| word.ends_with(&suffix))
        };
        let port = ports.find(is_free).unwrap_or(FIRST_ASSIGNED_PORT);
        *assigned_ports = port - FIRST_ASSIGNED_PORT + 1;
        port
    };
    // A `listen` without a bind is only a backend.
    let required = (!proxy.is_backend).then_some(proxy.position);
    binds.complete(required, &mut next_port, notes);
    context.listen_addresses.extend(binds.addresses());
    (!binds.is_empty()).then_some(binds)
}

/// First port to assign to sections without an address that Weir can listen on.
const FIRST_ASSIGNED_PORT: u16 = 22_000;

/// Imports a section that only shows statistics. The section becomes `admin` on the loopback address.
fn import_statistics(
    context: &mut Context<'_>,
    proxy: &Proxy,
    sections: &[Proxy],
    notes: &mut Notes,
) {
    let mut binds = proxy.lines.iter().filter(|line| line.keyword() == "bind");
    let bind_with_port = binds.find_map(|line| {
        let port = bind::first_port(line, context.environment)?;
        let other_sections = sections.iter().filter(|other| other.name != proxy.name);
        let mut other_lines = other_sections.flat_map(|other| &other.lines);
        let has_same_port = |line: &Line| {
            let suffix = format!(":{port}");
            line.keyword() == "bind" && line.word(1).is_some_and(|word| word.ends_with(&suffix))
        };
        (!other_lines.any(has_same_port)).then_some((line, port))
    });
    if let Some((line, port)) = bind_with_port.filter(|_| !context.has_node_key("admin")) {
        let admin = format!("127.0.0.1:{port}");
        notes.remark(
            line.position,
            format!("imported as `admin`: the dashboard and /metrics at {admin}, reachable only from this host"),
        );
        context.add_to_node(Entry::new("admin", admin, line.position));
    }
    for line in &proxy.lines {
        context.mark_used(line);
        if !notes.has_note(line.position) {
            notes.remark(
                line.position,
                "not imported: `weir status`, the dashboard and /metrics show the state",
            );
        }
    }
}

/// Returns whether the section only shows statistics.
fn only_shows_statistics(proxy: &Proxy) -> bool {
    const OTHER_KEYWORDS: [&str; 6] = [
        "server",
        "server-template",
        "use_backend",
        "default_backend",
        "redirect",
        "http-request",
    ];
    let is_exporter = |line: &Line| line.words.iter().any(|word| word == "prometheus-exporter");
    let shows_statistics = |line: &Line| line.keyword() == "stats" || is_exporter(line);
    let has_other_purpose = |line: &Line| {
        OTHER_KEYWORDS.contains(&line.keyword())
            && !is_exporter(line)
            && line.word(1) != Some("auth")
    };
    let mut lines = proxy.lines.iter();
    lines.clone().any(shows_statistics) && !lines.any(has_other_purpose)
}

/// Returns the port of a listener, or `None` if the port is a variable.
fn port_of(listen: &str) -> Option<u16> {
    listen.rsplit(':').next()?.parse().ok()
}

/// Writes routes of a service for requests that also meet the condition `outer`, with their header changes. If the
/// routes are from the rules of a backend, `backend_pool` is the backend's pool.
fn write_routes(
    context: &mut Context<'_>,
    (service, backend_pool): (&str, Option<&str>),
    (outer, routes): (&Condition, Vec<FrontendRoute>),
    changes: &AllChanges,
    notes: &mut Notes,
) {
    for (position, condition, action) in routes {
        let Some(combined) = outer
            .and(&condition)
            .filter(|_| !outer.excludes(&condition))
        else {
            continue;
        };
        let (frontend, backend) = match action.pool() {
            Some(pool) => changes.for_pool(pool),
            None => changes.for_response(backend_pool, position),
        };
        let cookie_servers = action.pool().and_then(|it| context.cookie_servers.get(it));
        let cookie_servers = cookie_servers.cloned().unwrap_or_default();
        for (condition, edits) in variants(&combined, &frontend, &backend, notes) {
            let variants = cookie_servers.iter();
            for (condition, edits) in variants.filter_map(|it| it.variant(&condition, &edits)) {
                context
                    .writer
                    .route_with_edits(service, position, &condition, &action, &edits, notes);
            }
            context
                .writer
                .route_with_edits(service, position, &condition, &action, &edits, notes);
        }
    }
}

/// Returns whether the backend is the backend half of the section: a `frontend` and a `backend` may have the same name.
fn is_own_backend(proxy: &Proxy, name: &str) -> bool {
    proxy.is_backend && proxy.name == name
}

/// Returns the routes for the rules of a pool's backend, in order: redirects, responses and `use-server`.
fn backend_routes(
    context: &mut Context<'_>,
    pool: &str,
    scope: RuleScope<'_>,
    notes: &mut Notes,
) -> Vec<FrontendRoute> {
    let pool_entry = context
        .pools
        .iter()
        .find(|(_, pool_entry)| *pool_entry == pool);
    let Some(name) = pool_entry.map(|(name, _)| name.clone()) else {
        return Vec::new();
    };
    let mut backends = scope.sections.iter();
    let backend = backends.find(|section| section.is_backend && section.name == name);
    let Some(backend) = backend.filter(|section| !section.is_frontend) else {
        return Vec::new();
    };
    let acls = Acls::read(context.environment, &backend.lines, notes);
    let rules = read_rules(context, backend, notes);
    let rules: Vec<FrontendRule<'_>> = rules
        .into_iter()
        .filter(|rule| rule.action.pool().is_none())
        .chain(preferred::rules(context, backend))
        .collect();
    for position in rules
        .iter()
        .flat_map(|rule| acls.positions_of(rule.condition))
    {
        context.used.insert(position);
    }
    convert_rules(&rules, &acls, scope.backend(), backend, notes)
}

/// Header and path changes by the rules of a frontend and, for each pool, of its backend.
struct AllChanges {
    frontend: Changes,
    by_pool: HashMap<String, Changes>,
}

impl AllChanges {
    /// Returns the changes of the frontend and of the pool's backend.
    fn for_pool(&self, pool: &str) -> (Changes, Changes) {
        let backend = self.by_pool.get(pool).cloned().unwrap_or_default();
        (self.frontend.clone(), backend)
    }

    /// Returns the changes of the frontend and the backend to the response of a rule in the line at `position`. All
    /// rules of the frontend precede those of a backend.
    fn for_response(&self, backend_pool: Option<&str>, position: Position) -> (Changes, Changes) {
        let Some(pool) = backend_pool else {
            let frontend = self.frontend.for_response(|other| other < position);
            return (frontend, Changes::default());
        };
        let backend = self.by_pool.get(pool);
        let backend = backend.map(|it| it.for_response(|other| other < position));
        (
            self.frontend.for_response(|_| true),
            backend.unwrap_or_default(),
        )
    }
}

/// Returns the header and path changes of a service. `frontend_routes` are the frontend's routes.
fn service_changes(
    context: &mut Context<'_>,
    proxy: &Proxy,
    scope: RuleScope<'_>,
    default: Option<&(String, String)>,
    listen: Listeners<'_>,
    frontend_routes: &[FrontendRoute],
    notes: &mut Notes,
) -> AllChanges {
    let mut changes = AllChanges {
        frontend: Changes::default(),
        by_pool: HashMap::new(),
    };
    if !proxy.is_http() {
        return changes;
    }
    let backends = || scope.sections.iter().filter(|backend| backend.is_backend);
    let default_backend =
        default.and_then(|(name, _)| backends().find(|section| section.name == *name));
    let mut forwarded = [Some(proxy), default_backend].into_iter().flatten();
    let is_service_option =
        |line: &Line| forward::parse(line).is_none_or(|it| it.is_supported_by_service());
    let forwarded =
        forwarded.any(|section| section.option("forwardfor").is_some_and(is_service_option));
    // haproxy adds the field only once.
    let is_added = forwarded || proxy.option("forwardfor").is_some();
    let listen: Vec<String> = listen.iter().map(|(address, _)| address.clone()).collect();
    changes.frontend = header::proxy_changes(
        context,
        proxy,
        (scope.acls, frontend_routes),
        (scope.frontend, forwarded, &listen),
        notes,
    );
    for backend in backends().filter(|backend| !is_own_backend(proxy, &backend.name)) {
        let Some(pool) = context.pools.get(&backend.name).cloned() else {
            continue;
        };
        let acls = Acls::read(context.environment, &backend.lines, notes);
        let mut backend_changes = header::proxy_changes(
            context,
            backend,
            (&acls, &[]),
            (scope.backend(), is_added, &listen),
            notes,
        );
        if default.is_none_or(|(name, _)| *name != backend.name) {
            backend_changes.add_keys(route_keys(context, backend, default_backend, notes));
        }
        changes.by_pool.insert(pool, backend_changes);
    }
    changes
}

/// Returns the rules in haproxy's order of evaluation.
fn read_rules<'p>(
    context: &mut Context<'_>,
    proxy: &'p Proxy,
    notes: &mut Notes,
) -> Vec<FrontendRule<'p>> {
    let mut rules = Vec::new();
    let mut admitting_rules: Vec<&'p Line> = Vec::new();
    let mut add_rule = |context: &mut Context<'_>,
                        line: &'p Line,
                        (rule, except): (ParsedRule<'p>, Vec<&'p Line>),
                        notes: &mut Notes| match rule {
        Ok((action, condition)) => {
            context.mark_used(line);
            rules.push(FrontendRule {
                line,
                action,
                condition,
                except,
            });
        }
        Err(reason) => {
            line.reject(notes, &reason);
            // An access rule that is not supported still becomes a route, so that it does not admit clients.
            if let Some((action, condition)) = rule::rejection_of(line) {
                rules.push(FrontendRule {
                    line,
                    action,
                    condition,
                    except,
                });
            }
        }
    };
    let lines_with = |keyword: &'static str| {
        let lines = proxy.lines.iter();
        lines.filter(move |line| line.keyword() == keyword)
    };
    for line in lines_with("tcp-request")
        .chain(lines_with("block"))
        .chain(lines_with("http-request"))
    {
        let stage = inspect::stage(line);
        if inspect::admits_requests(line) {
            admitting_rules.push(line);
            context.mark_used(line);
        } else if inspect::is_builtin(line, proxy, notes) {
            context.mark_used(line);
        } else if user::is_auth(line) && user::is_supported(context, proxy, line) {
            // The rule becomes part of the routes' changes.
        } else if let Some(rule) = parse_rule(line, context.environment) {
            let except = admitting_rules.iter().copied();
            let except = except
                .filter(|other| inspect::stage(other) == stage)
                .collect();
            add_rule(context, line, (rule, except), notes);
        }
    }
    for line in lines_with("redirect") {
        let rule = parse_redirect_line(line);
        add_rule(context, line, (rule, Vec::new()), notes);
    }
    for line in lines_with("use_backend").filter(|_| proxy.is_frontend) {
        let rule = match parse_use_backend(line) {
            None => parse_backend_map(context, proxy, line),
            Some((name, condition)) => match context.pools.get(name) {
                Some(pool) => Ok((Action::Pool(pool.clone()), condition)),
                None => Err(format!("the backend `{name}` is not defined")),
            },
        };
        add_rule(context, line, (rule, Vec::new()), notes);
    }
    if proxy.is_frontend && proxy.is_backend {
        rules.extend(preferred::rules(context, proxy));
    }
    rules
}

/// Parses `use_backend %[req.hdr(host),lower,map(/etc/haproxy/hosts.map,default)]`.
fn parse_backend_map<'l>(
    context: &mut Context<'_>,
    proxy: &Proxy,
    line: &'l Line,
) -> ParsedRule<'l> {
    let (arguments, words) = condition(line.arguments());
    let lookup = match arguments {
        [name] => rule::parse_lookup(name)
            .or_else(|| rule::parse_computed_name(name, context.pools.iter())),
        _ => None,
    };
    let lookup =
        lookup.ok_or("the name of the backend is computed, but a route's pool is fixed")?;
    if line.follows_source_change && lookup.key.contains("{client}") {
        return Err(source::CHANGED.to_owned());
    }
    // If the map has no default, haproxy continues with the next rule, or with `default_backend` after the last
    // `use_backend`.
    let is_last = proxy
        .last(&["use_backend"])
        .is_some_and(|last_line| last_line.position == line.position);
    let next = proxy
        .last(&["default_backend"])
        .and_then(|line| line.word(1));
    let next = next.filter(|_| is_last).map(str::to_owned);
    let default = lookup.default.clone().or(next);
    let default = default.as_ref();
    let pool = default.and_then(|name| context.pools.get(name)).cloned();
    let pool = pool.ok_or("the map has no default, but a route with a map requires one")?;
    let map = context.map_name(&lookup, line.position);
    Ok((Action::PoolFromMap(map, pool), words))
}

/// Converts rules to routes.
fn convert_rules(
    rules: &[FrontendRule<'_>],
    acls: &Acls,
    frontend: FrontendContext<'_>,
    proxy: &Proxy,
    notes: &mut Notes,
) -> Vec<FrontendRoute> {
    let mut routes = Vec::new();
    for rule in rules {
        let is_close = rule.action == Action::Close;
        if !proxy.is_http() && rule.action.pool().is_none() && !is_close {
            rule.line
                .reject(notes, "a tcp service cannot redirect or send responses");
            continue;
        }
        let mut conversion =
            acls.condition_except((rule.line, rule.condition), &rule.except, frontend);
        let is_exact = !matches!(conversion, Conversion::Unsupported(_));
        if !is_exact && is_rejection(&rule.action) {
            conversion = convert_rejection(rule, acls, frontend, &conversion, notes);
        }
        if rule.line.word(1) == Some("tarpit") && conversion != Conversion::Never {
            let reason =
                "the delay is not imported: a route has no `tarpit` and responds immediately";
            notes.add(rule.line.position, reason);
            if is_exact {
                notes.unmark_restriction(rule.line.position);
            }
        }
        let conditions = match conversion {
            Conversion::Always => vec![Condition::default()],
            Conversion::Never => Vec::new(),
            Conversion::AnyOf(conditions) => conditions,
            Conversion::Unsupported(reason) => {
                rule.line.reject(notes, &reason);
                continue;
            }
        };
        for condition in conditions {
            push_route(&mut routes, rule, condition, notes);
        }
    }
    routes
}

/// Returns whether a rule rejects requests.
fn is_rejection(action: &Action) -> bool {
    match action {
        Action::Respond { status, .. } | Action::RespondWithFields { status, .. } => *status >= 400,
        Action::Close => true,
        _ => false,
    }
}

/// Converts the condition of a rule that rejects requests, and adds a note that routes do not support the condition as
/// written. An unsupported part of an access rule must not admit clients, and an unsupported limit must not reject
/// every client.
fn convert_rejection(
    rule: &FrontendRule<'_>,
    acls: &Acls,
    frontend: FrontendContext<'_>,
    unsupported: &Conversion,
    notes: &mut Notes,
) -> Conversion {
    let Conversion::Unsupported(reason) = unsupported else {
        return unsupported.clone();
    };
    let frontend = frontend.with_zero_counters();
    let condition = (rule.line, rule.condition);
    let conversion = match acls.condition_except(condition, &rule.except, frontend) {
        Conversion::Unsupported(_) => {
            acls.broadened_condition(rule.condition, frontend.for_line(rule.line))
        }
        Conversion::Never => {
            let reason = format!("{reason}; clients above the limit are admitted (see `limits`)");
            rule.line.reject(notes, &reason);
            return Conversion::Never;
        }
        conversion => {
            let reason =
                format!("{reason}; every client is treated as if it had sent no earlier requests");
            rule.line.reject(notes, &reason);
            return conversion;
        }
    };
    let reason = format!("{reason}; the route rejects more requests than the rule");
    rule.line.reject(notes, &reason);
    conversion
}

/// Adds the routes of a rule for one of its conditions.
fn push_route(
    routes: &mut Vec<FrontendRoute>,
    rule: &FrontendRule<'_>,
    condition: Condition,
    notes: &mut Notes,
) {
    let position = rule.line.position;
    match &rule.action {
        Action::Redirect { to, status } if rule::drops_query(to) => {
            let Some(redirects) = rule::routes_without_query(&condition, to) else {
                let reason = "a route's `redirect` cannot drop the query, because no capture group can be added to the \
                              condition's regular expression";
                return rule.line.reject(notes, reason);
            };
            routes.extend(redirects.into_iter().map(|(condition, to)| {
                let status = *status;
                (position, condition, Action::Redirect { to, status })
            }));
        }
        action => routes.push((position, condition, action.clone())),
    }
}

/// Returns the backend for requests that no rule matches, and its pool.
fn default_pool(
    context: &mut Context<'_>,
    proxy: &Proxy,
    notes: &mut Notes,
) -> Option<(String, String)> {
    if let Some(line) = proxy.last(&["default_backend"]) {
        context.mark_used(line);
        let name = line.word(1).unwrap_or("");
        match context.pools.get(name) {
            Some(pool) => return Some((name.to_owned(), pool.clone())),
            None => line.reject(notes, &format!("the backend `{name}` is not defined")),
        }
    }
    let own_pool = proxy
        .is_backend
        .then(|| context.pools.get(&proxy.name))
        .flatten();
    own_pool.map(|pool| (proxy.name.clone(), pool.clone()))
}
