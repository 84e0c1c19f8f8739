//! `frontend` and the frontend half of `listen`: services and their routes.

use std::collections::HashMap;

use super::acl::{Acls, Meaning};
use super::bind::Binds;
use super::header;
use super::line::Line;
use super::rule::{Rule, http_request, redirect_line, use_backend};
use super::section::Proxy;
use super::{Context, time};
use crate::document::{Entry, Item, Table};
use crate::edit::Edits;
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Place};
use crate::time::show;

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
            None => context.writer.nobody(proxy.place),
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
        let edits = changes(context, proxy, all, (tls, default.as_ref()), &acls, notes);
        let of = |action: &Action| match action {
            Action::Pool(pool) => edits.get(pool).cloned().unwrap_or_default(),
            _ => Edits::default(),
        };
        for (place, condition, action) in routes {
            context
                .writer
                .edited_route(&name, place, &condition, &action, &of(&action));
        }
        let rest = Action::Pool(pool.clone());
        let edits = of(&rest);
        if proxy.is_http() && !lost && !edits.is_empty() {
            let every = Condition::default();
            context
                .writer
                .edited_route(&name, proxy.place, &every, &rest, &edits);
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

/// What becomes of heads on their way to each pool: the frontend's rules, then its backend's.
fn changes(
    context: &mut Context<'_>,
    proxy: &Proxy,
    all: &[Proxy],
    (tls, default): (bool, Option<&(String, String)>),
    acls: &Acls,
    notes: &mut Notes,
) -> HashMap<String, Edits> {
    if !proxy.is_http() {
        return HashMap::new();
    }
    let backends = || all.iter().filter(|backend| backend.has_servers);
    let of_default = default.and_then(|(name, _)| backends().find(|one| one.name == *name));
    let mut told = [Some(proxy), of_default].into_iter().flatten();
    let told = told.any(|one| one.option("forwardfor").is_some());
    let own = header::edits(context, proxy, acls, (tls, told), notes);
    let mut changes = HashMap::new();
    for backend in backends() {
        let Some(pool) = context.pools.get(&backend.name).cloned() else {
            continue;
        };
        let edits = if backend.name == proxy.name {
            own.clone()
        } else {
            let acls = Acls::read(context.world, &backend.lines, notes);
            own.then(&header::edits(context, backend, &acls, (tls, told), notes))
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

#[expect(
    clippy::too_many_arguments,
    reason = "a service is made of all of these"
)]
fn service(
    context: &mut Context<'_>,
    proxy: &Proxy,
    name: &str,
    listen: &[(String, Place)],
    tls: &[Entry],
    (pool, default): (&str, &Option<(String, String)>),
    all: &[Proxy],
    notes: &mut Notes,
) {
    let mut table = Table::new(&["service", name], proxy.place);
    let listen: Vec<Item> = listen
        .iter()
        .map(|(listen, place)| Item::new(listen.as_str(), Some(*place)))
        .collect();
    table.push(Entry::implied("listen", listen).essential());
    table.push(Entry::implied("forward", "proxy").essential());
    let mode = proxy.last(&["mode"]);
    if let Some(line) = mode {
        context.uses(line);
    }
    let protocol = if proxy.is_http() { "http" } else { "tcp" };
    table.push(
        Entry::new(
            "protocol",
            protocol,
            mode.map_or(proxy.place, |line| line.place),
        )
        .essential(),
    );
    table.push(Entry::implied("pool", pool).essential());
    if !tls.is_empty() {
        table.push(Entry::implied("tls", tls.to_vec()).essential());
    }
    let backend = default.as_ref().and_then(|(name, _)| {
        all.iter()
            .find(|proxy| proxy.has_servers && proxy.name == *name)
    });
    timeouts(context, &mut table, proxy, backend.unwrap_or(proxy), notes);
    retry_on(context, &mut table, backend.unwrap_or(proxy), notes);
    limits(context, &mut table, proxy, backend.unwrap_or(proxy), notes);
    if proxy.is_http() {
        let told = proxy
            .option("forwardfor")
            .or_else(|| backend.and_then(|backend| backend.option("forwardfor")));
        match told {
            Some(line) => {
                context.uses(line);
                if let Some(word) = line.word(2) {
                    let why = format!(
                        "not carried over from \"{word}\" on: `forwarded` has no conditions"
                    );
                    notes.say(line.place, why);
                }
            }
            None => table.push(Entry::implied("forwarded", false)),
        }
        compression(context, &mut table, [proxy, backend.unwrap_or(proxy)]);
        error_pages(context, &mut table, [proxy, backend.unwrap_or(proxy)]);
    }
    table.covers = proxy.lines.iter().map(|line| line.place).collect();
    context.writer.document.push(table);
}

/// `errorfile 503 /etc/haproxy/errors/503.http`: the proxy takes what haproxy has in such a file. The frontend's word counts
/// before its backend's, and both before their defaults'.
fn error_pages(context: &mut Context<'_>, table: &mut Table, proxies: [&Proxy; 2]) {
    let own = proxies.iter().map(|proxy| &proxy.lines);
    let defaults = proxies.iter().map(|proxy| &proxy.defaults);
    let mut known = Vec::new();
    let mut pages = Vec::new();
    for line in own.chain(defaults).flat_map(|lines| lines.iter().rev()) {
        let (Some(status), Some(file)) = (line.word(1), line.word(2)) else {
            continue;
        };
        let carried = file.starts_with('/') && !file.starts_with("/dev/");
        if line.keyword() != "errorfile" || !carried {
            continue;
        }
        if known.contains(&status) {
            continue;
        }
        context.uses(line);
        known.push(status);
        let page = vec![
            Entry::new("status", status, line.place),
            Entry::new("file", file, line.place),
        ];
        pages.push(Item::new(page, Some(line.place)));
    }
    if !pages.is_empty() {
        pages.sort_by_key(|page| page.from);
        table.push(Entry::implied("error_pages", pages));
    }
}

/// `compression algo gzip`, `compression type text/html`; what haproxy compresses where it is told no types Weir does too.
fn compression(context: &mut Context<'_>, table: &mut Table, proxies: [&Proxy; 2]) {
    let mut entries = Vec::new();
    let mut find = |name: &str| {
        let line = proxies
            .iter()
            .find_map(|proxy| proxy.last(&["compression", name]))?;
        context.uses(line);
        let words = line.words.get(2..).unwrap_or_default().to_vec();
        Some((words, line.place))
    };
    let named = ["algo", "algo-res"].into_iter().find_map(&mut find);
    let Some((algorithms, place)) = named else {
        return;
    };
    // Of its algorithms browsers share one with Weir's.
    if algorithms.iter().any(|word| word == "gzip") {
        entries.push(Entry::new("codings", vec!["gzip".to_owned()], place));
    }
    if let Some((types, place)) = ["type", "type-res"].into_iter().find_map(&mut find) {
        entries.push(Entry::new("types", types, place));
    }
    if entries.is_empty() {
        return;
    }
    table.push(Entry::implied("compression", entries));
}

/// Those of the frontend, and those towards servers of its default backend.
fn timeouts(
    context: &mut Context<'_>,
    table: &mut Table,
    front: &Proxy,
    back: &Proxy,
    notes: &mut Notes,
) {
    const NAMES: &[(&str, &str, bool)] = &[
        ("http-request", "request", false),
        ("http-keep-alive", "idle", false),
        ("client", "client", false),
        ("connect", "connect", true),
        ("server", "server", true),
        ("tunnel", "tunnel", true),
    ];
    let mut entries = Vec::new();
    for (theirs, ours, of_back) in NAMES {
        let proxy = if *of_back { back } else { front };
        let Some(line) = proxy.last(&["timeout", theirs]) else {
            continue;
        };
        context.uses(line);
        match line.word(2).and_then(time) {
            Some(millis) => entries.push(Entry::new(ours, show(millis), line.place)),
            None => line.refuse(notes, "haproxy wants a time"),
        }
    }
    if !entries.is_empty() {
        table.push(Entry::implied("timeouts", entries));
    }
}

/// `retry-on empty-response response-timeout 503`.
fn retry_on(context: &mut Context<'_>, table: &mut Table, back: &Proxy, notes: &mut Notes) {
    let Some(line) = back.last(&["retry-on"]) else {
        return;
    };
    context.uses(line);
    let mut conditions: Vec<String> = Vec::new();
    for word in line.arguments() {
        let ours: &[&str] = match word.as_str() {
            "none" | "0rtt-rejected" => &[],
            "conn-failure" => &["connect"],
            "empty-response" => &["empty"],
            "junk-response" => &["malformed"],
            "response-timeout" => &["timeout"],
            "all-retryable-errors" => {
                &["connect", "empty", "malformed", "timeout", "500", "502-504"]
            }
            status
                if status
                    .parse()
                    .is_ok_and(|code: u16| (400..600).contains(&code)) =>
            {
                &[status]
            }
            other => {
                notes.say(
                    line.place,
                    format!("{other} is not carried over: `retry_on` of a service knows it not"),
                );
                &[]
            }
        };
        conditions.extend(ours.iter().map(|word| (*word).to_owned()));
    }
    table.push(Entry::new("retry_on", conditions, line.place));
}

fn limits(
    context: &mut Context<'_>,
    table: &mut Table,
    front: &Proxy,
    back: &Proxy,
    notes: &mut Notes,
) {
    let mut entries = Vec::new();
    for (theirs, ours, proxy) in [
        ("maxconn", "connections", front),
        ("retries", "retries", back),
    ] {
        let Some(line) = proxy.last(&[theirs]) else {
            continue;
        };
        context.uses(line);
        match line.word(1).and_then(|word| word.parse::<u64>().ok()) {
            Some(number) => entries.push(Entry::new(ours, number, line.place)),
            None => line.refuse(notes, "haproxy wants a number"),
        }
    }
    let closes = ["http-server-close", "httpclose", "forceclose"];
    let close = closes
        .iter()
        .find_map(|name| back.option(name).or_else(|| front.option(name)));
    if let Some(line) = close {
        context.uses(line);
        entries.push(Entry::new("idle_servers", 0_u32, line.place));
        if line.word(1) != Some("http-server-close") {
            notes.say(
                line.place,
                "connections to servers end with their request; those of clients go on",
            );
        }
    }
    if !entries.is_empty() {
        table.push(Entry::implied("limits", entries));
    }
}
