//! `server` blocks: services, and routes by the names of servers.

use super::listen::{Shared, listens, shared};
use super::location::{Passed, Way, ways};
use super::tree::Node;
use super::{Context, reason, time};
use super::{limit, page, tls};
use crate::document::{Entry, Item, Table};
use crate::layer7::{Action, Condition};
use crate::name::plain;
use crate::note::{Notes, Place};
use crate::time::show;

pub(super) fn write(context: &mut Context<'_>, outer: &[Node], notes: &mut Notes) {
    let servers: Vec<&Node> = outer
        .iter()
        .filter(|node| node.keyword() == "server")
        .collect();
    let all: Vec<_> = servers
        .iter()
        .map(|server| listens(server, context.world, true, notes))
        .collect();
    for (server, listens) in servers.iter().zip(&all) {
        if listens.is_empty() {
            server.refuse(notes, "it listens nowhere that Weir could");
        }
    }
    for group in shared(&all) {
        service(context, &group, &servers, outer, notes);
    }
    for (node, why) in std::mem::take(&mut context.unneeded) {
        if !context.used.contains(&node.place) {
            node.refuse(notes, why);
        }
    }
    for server in servers {
        for line in server.inner() {
            let read = ["listen", "server_name", "location", "return", "rewrite"]
                .contains(&line.keyword());
            if !read && !context.used.contains(&line.place) && !notes.speaks_of(line.place) {
                line.refuse(notes, reason(line.keyword()));
            }
        }
    }
}

/// Names of a server block that routes can say: exact ones, and `*.` with a name.
fn names(server: &Node, notes: &mut Notes) -> Vec<String> {
    let mut names = Vec::new();
    let lines = server
        .inner()
        .iter()
        .filter(|line| line.keyword() == "server_name");
    for line in lines {
        for word in line.words.iter().skip(1) {
            match word.as_str() {
                "_" | "" | "\"\"" => {}
                name if name.starts_with('~') => {
                    notes.say(
                        line.place,
                        format!("{name} is not carried over: `host` is no expression"),
                    );
                }
                name if name.ends_with(".*") => {
                    notes.say(
                        line.place,
                        format!("{name} is not carried over: a star stands at the front of a host"),
                    );
                }
                name => match name.strip_prefix('.') {
                    Some(rest) => names.extend([
                        rest.to_ascii_lowercase(),
                        format!("*.{}", rest.to_ascii_lowercase()),
                    ]),
                    None => names.push(name.to_ascii_lowercase()),
                },
            }
        }
    }
    names
}

/// A route, its host, and how early it is tried.
type Routed = ((bool, usize), Condition, Way);

fn service(
    context: &mut Context<'_>,
    group: &Shared,
    servers: &[&Node],
    outer: &[Node],
    notes: &mut Notes,
) {
    let tls = group.listen[0].tls;
    let scheme = if tls { "https" } else { "http" };
    let Some(default) = servers.get(group.default) else {
        return;
    };
    let mut routes: Vec<Routed> = Vec::new();
    let mut rest = None;
    let mut idle = None;
    let mut told = false;
    let mut passed = Passed::default();
    let (pages, paths) = page::pages(context, default, outer, notes);
    for index in &group.servers {
        let Some(server) = servers.get(*index) else {
            continue;
        };
        let own: &[String] = if *index == group.default { &paths } else { &[] };
        let found = ways(context, server, scheme, outer, (own, idle, passed), notes);
        idle = found.idle;
        passed = found.passed;
        told |= found.told;
        let names = names(server, notes);
        if *index == group.default {
            rest = Some(found.all);
            continue;
        }
        if names.is_empty() {
            server.refuse(notes, "it has no name by which a route could find it");
        }
        for name in names {
            routes.extend(of_host(&name, &found.all, server.place));
        }
    }
    // Exact names come before `*.`, longer ones before shorter.
    routes.sort_by_key(|(order, ..)| *order);
    let mut rest = rest.unwrap_or_default();
    let last = rest.last().filter(|way| way.is_rest()).cloned();
    let pool = match &last {
        Some(Way {
            action: Action::Pool(pool),
            ..
        }) => {
            if last.as_ref().is_some_and(|way| way.edits.is_empty()) {
                rest.pop();
            }
            pool.clone()
        }
        _ => context.writer.no_servers(default.place),
    };
    let name = name_of(context, group, default, tls);
    let looks = |way: &Way| way.path.is_some() || way.regex.is_some();
    passed.compared = rest
        .iter()
        .chain(routes.iter().map(|(.., way)| way))
        .any(looks);
    table(
        context,
        &name,
        group,
        default,
        &pool,
        outer,
        (idle, told, pages, passed),
        notes,
    );
    for (_, condition, way) in &routes {
        context
            .writer
            .edited_route(&name, way.place, condition, &way.action, &way.edits, notes);
    }
    let answered = last.is_some();
    for way in rest {
        let condition = Condition {
            path: way.path.clone(),
            regex: way.regex.clone(),
            ..way.when.clone()
        };
        context
            .writer
            .edited_route(&name, way.place, &condition, &way.action, &way.edits, notes);
    }
    if !answered {
        let answer = Action::Answer {
            status: 404,
            body: String::new(),
        };
        context
            .writer
            .route(&name, default.place, &Condition::default(), &answer);
    }
}

/// The routes of a server block under one of its names.
fn of_host(name: &str, ways: &[Way], place: Place) -> Vec<Routed> {
    let order = (name.starts_with("*."), usize::MAX - name.len());
    let of = |path: Option<String>, regex: Option<String>| Condition {
        host: Some(name.to_owned()),
        path,
        regex,
        ..Condition::default()
    };
    let routed = |way: &Way| {
        let mut condition = of(way.path.clone(), way.regex.clone());
        // One of several names of a server block: what is asked of another one is nothing to this one.
        let asked = way.when.host.clone().unwrap_or_else(|| name.to_owned());
        let below = name
            .strip_prefix('*')
            .is_some_and(|end| asked.ends_with(end));
        if asked != name && !below {
            return None;
        }
        condition.host = Some(asked);
        let rest = Condition {
            host: None,
            ..way.when.clone()
        };
        Some((order, condition.and(&rest)?, way.clone()))
    };
    let mut routes: Vec<Routed> = ways.iter().filter_map(routed).collect();
    if ways.last().is_none_or(|way| !way.is_rest()) {
        let answer = Action::Answer {
            status: 404,
            body: String::new(),
        };
        routes.push((order, of(None, None), Way::rest(place, answer)));
    }
    routes
}

/// After the default server's first name, or the port.
fn name_of(context: &mut Context<'_>, group: &Shared, default: &Node, tls: bool) -> String {
    let names = default
        .inner()
        .iter()
        .find(|line| line.keyword() == "server_name");
    let named = names
        .and_then(|line| line.word(1))
        .filter(|name| name.starts_with(|c: char| c.is_ascii_alphanumeric()));
    let port = group.listen[0].address.rsplit(':').next().unwrap_or("");
    let wanted = match named {
        Some(name) if tls => format!("{name}-tls"),
        Some(name) => name.to_owned(),
        None => format!("nginx-{port}"),
    };
    let wanted = plain(&wanted);
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

#[expect(
    clippy::too_many_arguments,
    reason = "a service is made of all of these"
)]
fn table(
    context: &mut Context<'_>,
    name: &str,
    group: &Shared,
    default: &Node,
    pool: &str,
    outer: &[Node],
    (idle, told, pages, passed): (Option<(u64, Place)>, bool, Vec<Item>, Passed),
    notes: &mut Notes,
) {
    let mut table = Table::new(&["service", name], default.place);
    let listen: Vec<Item> = group
        .listen
        .iter()
        .map(|listen| Item::new(listen.address.as_str(), Some(listen.place)))
        .collect();
    table.push(Entry::implied("listen", listen).essential());
    table.push(Entry::implied("forward", "proxy").essential());
    table.push(Entry::implied("protocol", "http").essential());
    table.push(Entry::implied("pool", pool).essential());
    let mut find = |keyword: &str| {
        let levels = [default.inner(), outer];
        let found = levels
            .iter()
            .find_map(|nodes| nodes.iter().rev().find(|node| node.keyword() == keyword));
        let node = found?;
        context.used.insert(node.place);
        Some((node.word(1)?.to_owned(), node.place))
    };
    if group.listen[0].tls {
        let mut keys = tls::keys(&mut find, default.place, notes);
        keys.extend(tls::minimum([default.inner(), outer], notes));
        table.push(Entry::implied("tls", keys).essential());
    }
    if let Some((word, place)) = find("proxy_ignore_client_abort") {
        table.push(Entry::new("abort_on_close", word != "on", place));
    }
    if let Some((word, place)) = find("proxy_request_buffering") {
        table.push(Entry::new("request_buffering", word != "off", place));
    }
    let timeouts = timeouts(&mut find, notes);
    if !timeouts.is_empty() {
        table.push(Entry::implied("timeouts", timeouts));
    }
    let levels = [default.inner(), outer];
    let limits = limit::limits(context, levels, idle, notes);
    if !limits.is_empty() {
        table.push(Entry::implied("limits", limits));
    }
    if let Some(entry) = limit::retry_on(context, levels, notes) {
        table.push(entry);
    }
    if !pages.is_empty() {
        table.push(Entry::implied("error_pages", pages));
    }
    normalize_path(context, &mut table, levels, passed, notes);
    compression(context, &mut table, [default.inner(), outer]);
    trusted(context, &mut table, default, outer);
    if !told {
        table.push(Entry::implied("forwarded", false));
    }
    underscores(context, &mut table, levels);
    if group.listen[0].proxy_protocol {
        table.push(Entry::new("proxy_protocol", true, group.listen[0].place));
    }
    table.covers = default.lines();
    context.writer.document.push(table);
}

/// nginx compares paths decoded, encoded slashes included. It asks servers for the path as it was received, or for what it
/// compared where `proxy_pass` names a path.
fn normalize_path(
    context: &mut Context<'_>,
    table: &mut Table,
    levels: [&[Node]; 2],
    passed: Passed,
    notes: &mut Notes,
) {
    let mut entries = Vec::new();
    let found = levels.iter().find_map(|nodes| {
        let mut nodes = nodes.iter().rev();
        nodes.find(|node| node.keyword() == "merge_slashes")
    });
    if let Some(node) = found.filter(|node| node.word(1) == Some("off")) {
        context.used.insert(node.place);
        entries.push(Entry::new("merge_slashes", false, node.place));
    }
    if passed.compared {
        entries.push(Entry::implied("encoded_slash", "decode"));
    }
    match passed.normalized {
        Some(place) if passed.received => notes.say(
            place,
            "servers are asked for the path as it was received, as another `proxy_pass` of the service asks",
        ),
        Some(place) => entries.push(Entry::new("forward", "normalized", place)),
        None => {}
    }
    if !entries.is_empty() {
        table.push(Entry::implied("normalize_path", entries));
    }
}

/// `gzip on`, with its types; without any nginx compresses HTML alone.
fn compression(context: &mut Context<'_>, table: &mut Table, levels: [&[Node]; 2]) {
    let mut find = |keyword: &str| {
        let mut levels = levels.iter();
        let node =
            levels.find_map(|nodes| nodes.iter().rev().find(|node| node.keyword() == keyword))?;
        context.used.insert(node.place);
        Some(node)
    };
    let Some(on) = find("gzip") else { return };
    if on.word(1) != Some("on") {
        return;
    }
    let mut entries = vec![Entry::new("codings", vec!["gzip".to_owned()], on.place)];
    let mut kinds = vec!["text/html".to_owned()];
    let types = find("gzip_types");
    if let Some(types) = types {
        kinds.extend(types.words.iter().skip(1).cloned());
    }
    let all = kinds.iter().any(|kind| kind == "*");
    let kinds = if all { vec!["*/*".to_owned()] } else { kinds };
    entries.push(Entry::new(
        "types",
        kinds,
        types.map_or(on.place, |types| types.place),
    ));
    let minimum = find("gzip_min_length");
    let octets = minimum.and_then(|node| node.word(1)?.parse::<u64>().ok());
    entries.push(match (minimum, octets) {
        (Some(node), Some(octets)) => Entry::new("minimum", octets, node.place),
        // nginx's own.
        _ => Entry::implied("minimum", 20_u64),
    });
    table.push(Entry::implied("compression", entries));
}

/// `underscores_in_headers` and `ignore_invalid_headers`: by default nginx calls names with `_` invalid and ignores such fields.
fn underscores(context: &mut Context<'_>, table: &mut Table, levels: [&[Node]; 2]) {
    let switches = [
        ("underscores_in_headers", "on"),
        ("ignore_invalid_headers", "off"),
    ];
    for (keyword, keeps) in switches {
        let mut all = levels.iter();
        let Some(node) =
            all.find_map(|nodes| nodes.iter().rev().find(|node| node.keyword() == keyword))
        else {
            continue;
        };
        context.used.insert(node.place);
        if node.word(1) == Some(keeps)
            && table.entries.iter().all(|entry| entry.key != "underscores")
        {
            table.push(Entry::new("underscores", "keep", node.place));
        }
    }
}

/// `set_real_ip_from`.
fn trusted(context: &mut Context<'_>, table: &mut Table, default: &Node, outer: &[Node]) {
    let trusted: Vec<Item> = default
        .inner()
        .iter()
        .chain(outer)
        .filter(|node| node.keyword() == "set_real_ip_from")
        .filter_map(|node| Some(Item::new(node.word(1)?, Some(node.place))))
        .collect();
    for item in &trusted {
        context.used.extend(item.from);
    }
    if !trusted.is_empty() {
        table.push(Entry::implied("trusted", trusted));
    }
}

/// Keys of `timeouts`.
fn timeouts(
    find: &mut dyn FnMut(&str) -> Option<(String, Place)>,
    notes: &mut Notes,
) -> Vec<Entry> {
    const TIMES: &[(&str, &str)] = &[
        ("client_header_timeout", "request"),
        ("keepalive_timeout", "idle"),
        ("client_body_timeout", "client"),
        ("send_timeout", "client"),
        ("proxy_connect_timeout", "connect"),
        ("proxy_read_timeout", "server"),
    ];
    let mut timeouts: Vec<Entry> = Vec::new();
    for (theirs, ours) in TIMES {
        let Some((text, place)) = find(theirs) else {
            continue;
        };
        match time(&text) {
            Some(0) => notes.say(
                place,
                "not carried over: 0 turns it off, and Weir waits some time in any case",
            ),
            Some(_) if timeouts.iter().any(|entry| entry.key == *ours) => {
                notes.say(place, format!("not carried over: `{ours}` is said already"));
            }
            Some(millis) => timeouts.push(Entry::new(ours, show(millis), place)),
            None => notes.say(place, "not carried over: nginx wants a time"),
        }
    }
    timeouts
}
