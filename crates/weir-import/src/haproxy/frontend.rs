//! `frontend` and the frontend half of `listen`: services and their routes.

use std::collections::HashMap;

use super::Context;
use super::acl::{Acls, Meaning};
use super::bind::Binds;
use super::header::{self, Seen};
use super::line::Line;
use super::rule::{Rule, http_request, redirect_line, use_backend};
use super::section::Proxy;
use super::service::service;
use crate::document::Entry;
use crate::edit::Edits;
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Place};

/// A rule that is tried for each service of the frontend.
struct Tried<'l> {
    line: &'l Line,
    action: Action,
    condition: &'l [String],
}

pub(super) fn write(context: &mut Context<'_>, proxy: &Proxy, all: &[Proxy], notes: &mut Notes) {
    let mut binds = Binds::default();
    for line in proxy.lines.iter().filter(|line| line.keyword() == "bind") {
        context.uses(line);
        binds.read(line, context.world, notes);
    }
    if binds.plain.is_empty() && binds.tls.is_empty() {
        if !proxy.has_servers {
            notes.say(
                proxy.place,
                "not carried over: it listens nowhere that Weir could",
            );
        }
        return;
    }
    let acls = Acls::read(context.world, &proxy.lines, notes);
    let rules = rules(context, proxy, notes);
    let default = default_pool(context, proxy, notes);
    let both = !binds.plain.is_empty() && !binds.tls.is_empty();
    for tls in [false, true] {
        let listen = if tls { &binds.tls } else { &binds.plain };
        if listen.is_empty() {
            continue;
        }
        let wanted = match (tls, both) {
            (true, true) => format!("{}-tls", proxy.name),
            _ => proxy.name.clone(),
        };
        // Services and pools are of different kinds: one name may be of both.
        let name = super::super::name::plain(&wanted);
        let name = service_name(context, name);
        let keys = if tls { binds.keys.as_slice() } else { &[] };
        let routes = routes(&rules, &acls, tls, proxy, notes);
        let lost = default.is_none();
        let pool = match &default {
            Some((_, pool)) => pool.clone(),
            None => context.writer.no_servers(proxy.place),
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
        if let Some(place) = binds.proxy_protocol
            && let Some(table) = context.writer.document.tables.last_mut()
        {
            table.push(Entry::new("proxy_protocol", true, place).essential());
        }
        let edits = changes(
            context,
            proxy,
            all,
            (tls, default.as_ref()),
            (&acls, &routes),
            notes,
        );
        let of = |action: &Action| match action {
            Action::Pool(pool) => edits.get(pool).cloned().unwrap_or_default(),
            _ => Edits::default(),
        };
        for (place, condition, action) in routes {
            context
                .writer
                .edited_route(&name, place, &condition, &action, &of(&action), notes);
        }
        let rest = Action::Pool(pool.clone());
        let edits = of(&rest);
        if proxy.is_http() && !lost && !edits.is_empty() {
            let every = Condition::default();
            context
                .writer
                .edited_route(&name, proxy.place, &every, &rest, &edits, notes);
        }
        if lost && proxy.is_http() {
            // What no rule takes is answered as haproxy does.
            let answer = Action::Answer {
                status: 503,
                body: String::new(),
            };
            context
                .writer
                .route(&name, proxy.place, &Condition::default(), &answer);
        }
    }
    for place in acls.all() {
        let used = rules
            .iter()
            .any(|rule| acls.lines_of(rule.condition).contains(&place));
        if used {
            context.used.insert(place);
        }
    }
}

/// What becomes of heads on their way to each pool: the frontend's rules, then its backend's. `seen` are the
/// frontend's routes.
fn changes(
    context: &mut Context<'_>,
    proxy: &Proxy,
    all: &[Proxy],
    (tls, default): (bool, Option<&(String, String)>),
    (acls, seen): (&Acls, &[Seen]),
    notes: &mut Notes,
) -> HashMap<String, Edits> {
    if !proxy.is_http() {
        return HashMap::new();
    }
    let backends = || all.iter().filter(|backend| backend.has_servers);
    let of_default = default.and_then(|(name, _)| backends().find(|one| one.name == *name));
    let mut told = [Some(proxy), of_default].into_iter().flatten();
    let told = told.any(|one| one.option("forwardfor").is_some());
    let own = header::edits(context, proxy, (acls, seen), (tls, told), notes);
    let mut changes = HashMap::new();
    for backend in backends() {
        let Some(pool) = context.pools.get(&backend.name).cloned() else {
            continue;
        };
        let edits = if backend.name == proxy.name {
            own.clone()
        } else {
            let acls = Acls::read(context.world, &backend.lines, notes);
            own.then(&header::edits(
                context,
                backend,
                (&acls, &[]),
                (tls, told),
                notes,
            ))
        };
        changes.insert(pool, edits);
    }
    changes
}

/// A name that no other service has.
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

/// Rules in the order that haproxy tries them.
fn rules<'p>(context: &mut Context<'_>, proxy: &'p Proxy, notes: &mut Notes) -> Vec<Tried<'p>> {
    let mut rules = Vec::new();
    let mut take =
        |context: &mut Context<'_>, line: &'p Line, rule: Rule<'p>, notes: &mut Notes| match rule {
            Ok((action, condition)) => {
                context.uses(line);
                rules.push(Tried {
                    line,
                    action,
                    condition,
                });
            }
            Err(why) => line.refuse(notes, &why),
        };
    for line in proxy
        .lines
        .iter()
        .filter(|line| line.keyword() == "http-request")
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
            None => Err("its name is computed, and a route's pool is one".to_owned()),
            Some((name, condition)) => match context.pools.get(name) {
                Some(pool) => Ok((Action::Pool(pool.clone()), condition)),
                None => Err(format!("there is no backend {name}")),
            },
        };
        take(context, line, rule, notes);
    }
    rules
}

/// Rules as routes, for clients that come by TLS or not.
fn routes(
    rules: &[Tried<'_>],
    acls: &Acls,
    tls: bool,
    proxy: &Proxy,
    notes: &mut Notes,
) -> Vec<(Place, Condition, Action)> {
    let mut routes = Vec::new();
    for rule in rules {
        if !proxy.is_http() && !matches!(rule.action, Action::Pool(_)) {
            rule.line
                .refuse(notes, "a tcp service sends nobody elsewhere");
            continue;
        }
        match acls.condition(rule.condition, tls) {
            Meaning::Always => {
                routes.push((rule.line.place, Condition::default(), rule.action.clone()));
            }
            Meaning::Never => {}
            Meaning::AnyOf(conditions) => {
                for condition in conditions {
                    routes.push((rule.line.place, condition, rule.action.clone()));
                }
            }
            Meaning::Unsaid(why) => rule.line.refuse(notes, &why),
        }
    }
    routes
}

/// The pool of requests that no rule takes, and the backend that it comes from.
fn default_pool(
    context: &mut Context<'_>,
    proxy: &Proxy,
    notes: &mut Notes,
) -> Option<(String, String)> {
    if let Some(line) = proxy.last(&["default_backend"]) {
        context.uses(line);
        let name = line.word(1).unwrap_or("");
        match context.pools.get(name) {
            Some(pool) => return Some((name.to_owned(), pool.clone())),
            None => line.refuse(notes, &format!("there is no backend {name}")),
        }
    }
    let own = proxy
        .has_servers
        .then(|| context.pools.get(&proxy.name))
        .flatten();
    own.map(|pool| (proxy.name.clone(), pool.clone()))
}
