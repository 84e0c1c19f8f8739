//! `frontend` and the frontend half of `listen`: services and their routes.

use std::collections::HashMap;

use super::Context;
use super::acl::{Acls, Meaning};
use super::bind::Binds;
use super::header::{self, FrontendRoute};
use super::line::Line;
use super::rule::{ParsedRule, http_request, redirect_line, use_backend};
use super::section::Proxy;
use super::service::service;
use crate::document::Entry;
use crate::edit::Edits;
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Position};

/// Addresses of a service, with their lines.
type Listeners<'a> = &'a [(String, Position)];

/// A rule to be converted for each service of the frontend.
struct FrontendRule<'l> {
    line: &'l Line,
    action: Action,
    condition: &'l [String],
}

#[expect(clippy::too_many_lines, reason = "the parts of one section in order")]
pub(super) fn write(context: &mut Context<'_>, proxy: &Proxy, all: &[Proxy], notes: &mut Notes) {
    let mut binds = Binds::default();
    for line in proxy.lines.iter().filter(|line| line.keyword() == "bind") {
        context.mark_used(line);
        binds.read(line, context.environment, notes);
    }
    if binds.is_empty() {
        if !proxy.has_servers {
            notes.add(
                proxy.position,
                "not imported: it has no address that Weir can listen on",
            );
        }
        return;
    }
    if only_statistics(proxy) {
        for line in &proxy.lines {
            context.mark_used(line);
            notes.remark(
                line.position,
                "not imported: `weir status`, the dashboard and /metrics show the state",
            );
        }
        return;
    }
    let acls = Acls::read(context.environment, &proxy.lines, notes);
    let rules = rules(context, proxy, notes);
    let default = default_pool(context, proxy, notes);
    let kinds = [(false, false), (true, false), (false, true), (true, true)];
    let mut first = true;
    for (tls, proxied) in kinds {
        let listen = &binds.of(tls, proxied);
        if listen.is_empty() {
            continue;
        }
        let wanted = match (first, tls, proxied) {
            (true, ..) => proxy.name.clone(),
            (_, true, false) => format!("{}-tls", proxy.name),
            (_, false, _) => format!("{}-proxied", proxy.name),
            (_, true, true) => format!("{}-tls-proxied", proxy.name),
        };
        first = false;
        // Services and pools have separate namespaces.
        let name = super::super::name::plain(&wanted);
        let name = service_name(context, name);
        let keys = if tls { binds.keys.as_slice() } else { &[] };
        let routes = routes(&rules, &acls, tls, proxy, notes);
        let lost = default.is_none();
        let pool = match &default {
            Some((_, pool)) => pool.clone(),
            None => context.writer.no_servers(proxy.position),
        };
        service(
            context,
            proxy,
            &name,
            listen,
            keys,
            (&pool, &default),
            all,
            notes,
        );
        if proxied && let Some(table) = context.writer.document.tables.last_mut() {
            table.push(Entry::new("proxy_protocol", true, listen[0].1).essential());
        }
        let edits = changes(
            context,
            proxy,
            all,
            (tls, default.as_ref(), listen),
            (&acls, &routes),
            notes,
        );
        let edits_of = |action: &Action| match action {
            Action::Pool(pool) => edits.get(pool).cloned().unwrap_or_default(),
            _ => Edits::default(),
        };
        for (position, condition, action) in routes {
            if let Action::Pool(pool) = &action {
                let own = of_backend(context, pool, all, tls, notes);
                for (position, rule, action) in own {
                    if let Some(both) = condition.and(&rule) {
                        context.writer.route(&name, position, &both, &action);
                    }
                }
            }
            context.writer.route_with_edits(
                &name,
                position,
                &condition,
                &action,
                &edits_of(&action),
                notes,
            );
        }
        if default
            .as_ref()
            .is_some_and(|(name, _)| *name != proxy.name)
        {
            for (position, rule, action) in of_backend(context, &pool, all, tls, notes) {
                context.writer.route(&name, position, &rule, &action);
            }
        }
        let rest = Action::Pool(pool.clone());
        let edits = edits_of(&rest);
        if proxy.is_http() && !lost && !edits.is_empty() {
            let every = Condition::default();
            context
                .writer
                .route_with_edits(&name, proxy.position, &every, &rest, &edits, notes);
        }
        if lost && proxy.is_http() {
            // haproxy responds with 503 to requests that no rule matches.
            let response = Action::Respond {
                status: 503,
                body: String::new(),
            };
            context
                .writer
                .route(&name, proxy.position, &Condition::default(), &response);
        }
    }
    for position in acls.all() {
        let used = rules
            .iter()
            .any(|rule| acls.lines_of(rule.condition).contains(&position));
        if used {
            context.used.insert(position);
        }
    }
}

/// Returns whether the section only shows statistics.
fn only_statistics(proxy: &Proxy) -> bool {
    const LEADS: [&str; 6] = [
        "server",
        "server-template",
        "use_backend",
        "default_backend",
        "redirect",
        "http-request",
    ];
    let shows = |line: &Line| line.keyword() == "stats";
    let leads = |line: &Line| {
        let exporter = line.words.iter().any(|word| word == "prometheus-exporter");
        LEADS.contains(&line.keyword()) && !exporter && line.word(1) != Some("auth")
    };
    let mut lines = proxy.lines.iter();
    lines.clone().any(shows) && !lines.any(leads)
}

/// Redirects and responses of the rules of a pool's backend, in order.
fn of_backend(
    context: &mut Context<'_>,
    pool: &str,
    all: &[Proxy],
    tls: bool,
    notes: &mut Notes,
) -> Vec<FrontendRoute> {
    let named = context.pools.iter().find(|(_, named)| *named == pool);
    let Some(name) = named.map(|(name, _)| name.clone()) else {
        return Vec::new();
    };
    let mut backends = all.iter().filter(|one| one.has_servers && one.name == name);
    let Some(backend) = backends.next().filter(|one| !one.takes_clients) else {
        return Vec::new();
    };
    let acls = Acls::read(context.environment, &backend.lines, notes);
    let rules = rules(context, backend, notes);
    let rules: Vec<FrontendRule<'_>> = rules
        .into_iter()
        .filter(|rule| !matches!(rule.action, Action::Pool(_)))
        .collect();
    for position in rules.iter().flat_map(|rule| acls.lines_of(rule.condition)) {
        context.used.insert(position);
    }
    routes(&rules, &acls, tls, backend, notes)
}

/// Header changes for each pool: the frontend's rules, then its backend's. `frontend_routes` are the frontend's
/// routes.
fn changes(
    context: &mut Context<'_>,
    proxy: &Proxy,
    all: &[Proxy],
    (tls, default, listen): (bool, Option<&(String, String)>, Listeners<'_>),
    (acls, frontend_routes): (&Acls, &[FrontendRoute]),
    notes: &mut Notes,
) -> HashMap<String, Edits> {
    if !proxy.is_http() {
        return HashMap::new();
    }
    let backends = || all.iter().filter(|backend| backend.has_servers);
    let of_default = default.and_then(|(name, _)| backends().find(|one| one.name == *name));
    let mut forwarded = [Some(proxy), of_default].into_iter().flatten();
    let forwarded = forwarded.any(|one| one.option("forwardfor").is_some());
    let listen: Vec<String> = listen.iter().map(|(address, _)| address.clone()).collect();
    let own = header::edits(
        context,
        proxy,
        (acls, frontend_routes),
        (tls, forwarded, &listen),
        notes,
    );
    let mut changes = HashMap::new();
    for backend in backends() {
        let Some(pool) = context.pools.get(&backend.name).cloned() else {
            continue;
        };
        let edits = if backend.name == proxy.name {
            own.clone()
        } else {
            let acls = Acls::read(context.environment, &backend.lines, notes);
            own.then(&header::edits(
                context,
                backend,
                (&acls, &[]),
                (tls, forwarded, &listen),
                notes,
            ))
        };
        changes.insert(pool, edits);
    }
    changes
}

/// Returns a name that no other service has.
fn service_name(context: &Context<'_>, wanted: String) -> String {
    let taken = |name: &str| {
        let mut tables = context.writer.document.tables.iter();
        tables.any(|table| {
            table.path.len() == 2 && table.path[0] == "service" && table.path[1] == name
        })
    };
    let mut name = wanted.clone();
    let mut count = 2;
    while taken(&name) {
        name = format!("{wanted}-{count}");
        count += 1;
    }
    name
}

/// Returns the rules in haproxy's order of evaluation.
fn rules<'p>(
    context: &mut Context<'_>,
    proxy: &'p Proxy,
    notes: &mut Notes,
) -> Vec<FrontendRule<'p>> {
    let mut rules = Vec::new();
    let mut take = |context: &mut Context<'_>,
                    line: &'p Line,
                    rule: ParsedRule<'p>,
                    notes: &mut Notes| match rule {
        Ok((action, condition)) => {
            context.mark_used(line);
            rules.push(FrontendRule {
                line,
                action,
                condition,
            });
        }
        Err(why) => line.reject(notes, &why),
    };
    for line in proxy
        .lines
        .iter()
        .filter(|line| matches!(line.keyword(), "http-request" | "tcp-request" | "block"))
    {
        if let Some(rule) = http_request(line) {
            take(context, line, rule, notes);
        }
    }
    for line in proxy
        .lines
        .iter()
        .filter(|line| line.keyword() == "redirect")
    {
        take(context, line, redirect_line(line), notes);
    }
    for line in proxy
        .lines
        .iter()
        .filter(|line| line.keyword() == "use_backend")
    {
        let rule = match use_backend(line) {
            None => Err("the backend's name is computed, and a route's pool is fixed".to_owned()),
            Some((name, condition)) => match context.pools.get(name) {
                Some(pool) => Ok((Action::Pool(pool.clone()), condition)),
                None => Err(format!("no such backend: {name}")),
            },
        };
        take(context, line, rule, notes);
    }
    rules
}

/// Converts rules to routes, for TLS clients or plain ones.
fn routes(
    rules: &[FrontendRule<'_>],
    acls: &Acls,
    tls: bool,
    proxy: &Proxy,
    notes: &mut Notes,
) -> Vec<(Position, Condition, Action)> {
    let mut routes = Vec::new();
    for rule in rules {
        if !proxy.is_http() && !matches!(rule.action, Action::Pool(_)) {
            rule.line
                .reject(notes, "a tcp service cannot redirect or respond");
            continue;
        }
        let is_auth = rule.line.word(1) == Some("auth");
        if is_auth {
            rule.line.reject(
                notes,
                "clients get status 401; write the users to a file and use `basic_auth`",
            );
        }
        let refuses = match &rule.action {
            Action::Respond { status, .. } => *status >= 400,
            Action::Close => true,
            _ => false,
        };
        let mut meaning = acls.condition(rule.condition, tls);
        if let (Meaning::Unsupported(why), true) = (&meaning, refuses) {
            // A lost access rule must not admit clients.
            let why = format!("{why}; more requests than those of the rule are refused");
            rule.line.reject(notes, &why);
            meaning = acls.at_least(rule.condition, tls);
        }
        match meaning {
            Meaning::Always => {
                routes.push((
                    rule.line.position,
                    Condition::default(),
                    rule.action.clone(),
                ));
            }
            Meaning::Never => {}
            Meaning::AnyOf(conditions) => {
                for condition in conditions {
                    routes.push((rule.line.position, condition, rule.action.clone()));
                }
            }
            Meaning::Unsupported(why) => rule.line.reject(notes, &why),
        }
    }
    routes
}

/// Returns the pool of requests that no rule matches, and its backend.
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
            None => line.reject(notes, &format!("no such backend: {name}")),
        }
    }
    let own = proxy
        .has_servers
        .then(|| context.pools.get(&proxy.name))
        .flatten();
    own.map(|pool| (proxy.name.clone(), pool.clone()))
}
