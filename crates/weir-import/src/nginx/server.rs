//! Converts `server` blocks to services, and to routes by server name.

use std::collections::HashSet;

use super::action::is_whole_url;
use super::listen::{Listen, ListenGroup, group_by_servers, read_listens};
use super::location::{BlockRoute, PathUse, block_routes};
use super::tree::{Node, inherited};
use super::{Context, parse_time, unsupported_reason};
use super::{header, limit, log, page, tls, user_id};
use crate::document::{Entry, Item, Table};
use crate::layer7::{Action, Condition};
use crate::name::sanitize;
use crate::note::{Notes, Position};
use crate::time::format_millis;

/// Writes the services of all server blocks in `outer`, the lines of `http`.
pub(super) fn write(context: &mut Context<'_>, outer: &[Node], notes: &mut Notes) {
    let servers: Vec<&Node> = outer
        .iter()
        .filter(|node| node.keyword() == "server")
        .collect();
    // Blocks are not inherited, and searching all of them for each server block would be slow.
    let is_inheritable = |node: &&Node| !matches!(node.keyword(), "server" | "upstream");
    let lines: Vec<Node> = outer.iter().filter(is_inheritable).cloned().collect();
    let outer = lines.as_slice();
    let mut addresses: Vec<_> = servers
        .iter()
        .map(|server| read_listens(server, context.environment, true, notes))
        .collect();
    for (server, listens) in servers.iter().zip(&mut addresses) {
        if let Some(line) = tls::ssl_on_line(server.inner(), outer) {
            context.used.insert(line.position);
            let encrypted = listens.iter_mut().filter(|it| !it.is_for_plain_http());
            encrypted.for_each(|listen| listen.tls = true);
        }
    }
    for (server, listens) in servers.iter().zip(&addresses) {
        if listens.is_empty() {
            server.reject(notes, "Weir cannot listen on any address of this block");
        }
    }
    for group in group_by_servers(&addresses) {
        write_service(context, &group, &servers, outer, notes);
    }
    for (node, reason) in std::mem::take(&mut context.unneeded) {
        if context.used.contains(&node.position) {
            continue;
        }
        if !context.rejecting_ifs.is_empty() {
            node.reject(notes, reason);
            continue;
        }
        // nginx does not evaluate these lines either.
        node.ignore(notes, reason);
    }
    for server in servers {
        for line in server.inner() {
            let is_handled = ["listen", "server_name", "location", "return", "rewrite"]
                .contains(&line.keyword());
            if is_handled || context.used.contains(&line.position) || notes.has_note(line.position)
            {
                continue;
            }
            match no_effect_reason(line, server.inner(), outer) {
                Some(reason) => notes.remark(line.position, format!("not imported: {reason}")),
                None => line.reject(notes, unsupported_reason(line.keyword())),
            }
        }
    }
}

/// Returns why a line of a server block has no effect, or `None` if it has or may have an effect.
fn no_effect_reason(line: &Node, server_lines: &[Node], outer: &[Node]) -> Option<&'static str> {
    let value = |keyword: &str| {
        let mut lines = server_lines.iter().rev().chain(outer.iter().rev());
        lines
            .find(|line| line.keyword() == keyword)
            .and_then(|line| line.word(1))
    };
    match (line.keyword(), line.word(1)) {
        (
            "proxy_intercept_errors"
            | "gzip"
            | "autoindex"
            | "ssl"
            | "ssl_verify_client"
            | "userid",
            Some("off"),
        ) => Some("this is nginx's default"),
        ("root" | "index" | "autoindex" | "try_files", _) if responds_first(server_lines) => {
            Some("nginx responds before it selects a file")
        }
        ("client_max_body_size", _) if responds_first(server_lines) => {
            Some("nginx responds before it reads a body")
        }
        ("gzip_types" | "gzip_min_length" | "gzip_vary", _) if value("gzip") != Some("on") => {
            Some("compression is off")
        }
        (keyword, _) if keyword.starts_with("proxy_") && !has_target(server_lines) => {
            Some("the server block does not proxy any request to a server")
        }
        (keyword @ ("add_header" | "proxy_set_header"), _)
            if is_overridden(keyword, server_lines) =>
        {
            Some("every location overrides it")
        }
        ("ssl_trusted_certificate", _)
            if value("ssl_verify_client").is_none_or(|it| it == "off") =>
        {
            Some("neither client certificates nor OCSP stapling is used")
        }
        ("real_ip_header" | "real_ip_recursive", _) if value("set_real_ip_from").is_none() => {
            Some("nginx trusts no proxy without `set_real_ip_from`")
        }
        ("ssl_protocols", _) => Some("the first server block for the address sets it"),
        (keyword, _)
            if keyword.starts_with("userid_") && value("userid").is_none_or(|it| it == "off") =>
        {
            Some("`userid` is off")
        }
        _ => None,
    }
}

/// Returns whether the lines of a server block respond to every request before a location is selected.
fn responds_first(server_lines: &[Node]) -> bool {
    server_lines
        .iter()
        .any(|line| line.keyword() == "return" || line.keyword() == "rewrite" && is_whole_url(line))
}

/// Returns whether a block has a target, possibly with a protocol that Weir does not support.
fn has_target(nodes: &[Node]) -> bool {
    nodes
        .iter()
        .any(|node| node.keyword().ends_with("_pass") || has_target(node.inner()))
}

/// Returns whether every location to which a directive of the server block applies overrides the directive.
fn is_overridden(keyword: &str, server_lines: &[Node]) -> bool {
    let contains =
        |node: &Node, keyword: &str| node.inner().iter().any(|line| line.keyword() == keyword);
    let locations = || {
        server_lines
            .iter()
            .filter(|line| line.keyword() == "location")
    };
    if locations().any(|node| contains(node, "location")) {
        return false;
    }
    if keyword == "proxy_set_header" {
        let mut passing_locations =
            locations().filter(|node| contains(node, "proxy_pass") || contains(node, "if"));
        return passing_locations.all(|node| contains(node, keyword));
    }
    // Responses outside of locations have the fields of the server block.
    let is_response = |line: &Node| matches!(line.keyword(), "return" | "rewrite" | "if");
    let is_catch_all = |node: &Node| node.word(1) == Some("/");
    !server_lines.iter().any(is_response)
        && locations().any(is_catch_all)
        && locations().all(|node| contains(node, keyword))
}

/// Returns the names of a server block in lower case: exact names, names with `*`, and regular expressions.
fn server_names(server: &Node) -> Vec<String> {
    let mut names = Vec::new();
    let lines = server
        .inner()
        .iter()
        .filter(|line| line.keyword() == "server_name");
    for line in lines {
        for word in line.words.iter().skip(1) {
            match word.as_str() {
                "_" | "" | "\"\"" => {}
                name => match name.strip_prefix('.') {
                    Some(rest) => names.extend([
                        rest.to_ascii_lowercase(),
                        format!("*.{}", rest.to_ascii_lowercase()),
                    ]),
                    None => names.push(normalize_name(name)),
                },
            }
        }
    }
    names
}

/// Returns a name in lower case. As in nginx, a regular expression with an upper-case letter ignores case; its escapes,
/// such as `\D`, must not change.
fn normalize_name(name: &str) -> String {
    match name.strip_prefix('~') {
        Some(regex) if regex.contains(|c: char| c.is_ascii_uppercase()) => format!("~(?i){regex}"),
        Some(_) => name.to_owned(),
        None => name.to_ascii_lowercase(),
    }
}

/// The sort order of a route, its condition, and the route.
type HostRoute = ((u8, usize), Condition, BlockRoute);

#[expect(clippy::too_many_lines, reason = "one step for each group of keys")]
fn write_service(
    context: &mut Context<'_>,
    group: &ListenGroup,
    servers: &[&Node],
    outer: &[Node],
    notes: &mut Notes,
) {
    let tls = group.listen[0].tls;
    let scheme = if tls { "https" } else { "http" };
    let Some(default) = servers.get(group.default) else {
        return;
    };
    let mut routes: Vec<HostRoute> = Vec::new();
    let mut default_routes = None;
    let mut idle_limit = None;
    let lines = group.servers.iter().filter_map(|index| servers.get(*index));
    let mut lines = lines.flat_map(|server| server.inner());
    context.appends_forwarded_for = header::appends_forwarded_for(outer)
        || lines.any(|line| header::appends_forwarded_for(std::slice::from_ref(line)));
    context.has_nonstandard_port = group.listen.iter().any(Listen::has_nonstandard_port);
    let mut path_use = PathUse::default();
    let mut known_names: HashSet<String> = HashSet::new();
    let pages = page::error_pages(context, default, outer, notes);
    context.access_log = log::group_log(context, group, servers, outer, notes);
    for index in &group.servers {
        let Some(server) = servers.get(*index) else {
            continue;
        };
        context.service_lines.clear();
        if *index == group.default {
            let lines = server.inner().iter().map(|line| line.position);
            context.service_lines.extend(lines);
        }
        context.routes_per_location = match *index == group.default {
            true => 1,
            false => server_names(server).len(),
        };
        let mut block = block_routes(
            context,
            server,
            scheme,
            outer,
            (idle_limit, path_use),
            notes,
        );
        user_id::add_routes(context, server, outer, &mut block.all, notes);
        log::disable_for_block(context, server, outer, &mut block.all);
        idle_limit = block.idle_limit;
        path_use = block.path_use;
        // If several server blocks have the same name, the first one gets the requests.
        let mut names = server_names(server);
        names.retain(|name| !known_names.contains(name));
        known_names.extend(names.iter().cloned());
        if *index == group.default {
            default_routes = Some(block.all);
            continue;
        }
        if names.is_empty() {
            server.reject(notes, "the server block has no name that a route can match");
        }
        for name in names {
            routes.extend(host_routes(&name, &block.all, server.position));
        }
    }
    // As in nginx: exact names, names that begin with `*`, names that end with `*`, then regular expressions. Longer
    // names come before shorter ones.
    routes.sort_by_key(|(order, ..)| *order);
    let mut default_routes = default_routes.unwrap_or_default();
    let last = default_routes
        .last()
        .filter(|route| route.is_catch_all())
        .cloned();
    let pool = match &last {
        Some(BlockRoute {
            action: Action::Pool(pool),
            ..
        }) => {
            if last.as_ref().is_some_and(|route| route.edits.is_empty()) {
                default_routes.pop();
            }
            pool.clone()
        }
        _ => context.writer.pool_without_servers(default.position),
    };
    let name = service_name(context, group, default, tls);
    let compares_path = |route: &BlockRoute| {
        let is_restart = matches!(route.action, Action::Restart { .. });
        route.path.is_some() || route.regex.is_some() || is_restart
    };
    path_use.compares_paths = default_routes
        .iter()
        .chain(routes.iter().map(|(.., route)| route))
        .any(compares_path);
    write_table(
        context,
        &name,
        group,
        default,
        &pool,
        outer,
        (idle_limit, pages, path_use),
        notes,
    );
    for (_, condition, route) in &routes {
        context.writer.route_with_edits(
            &name,
            route.position,
            condition,
            &route.action,
            &route.edits,
            notes,
        );
    }
    let has_catch_all = last.is_some();
    for route in default_routes {
        let condition = Condition {
            path: route.path.clone(),
            regex: route.regex.clone(),
            ..route.extra_condition.clone()
        };
        context.writer.route_with_edits(
            &name,
            route.position,
            &condition,
            &route.action,
            &route.edits,
            notes,
        );
    }
    if !has_catch_all {
        let response = Action::Respond {
            status: 404,
            body: String::new(),
        };
        context
            .writer
            .route(&name, default.position, &Condition::default(), &response);
    }
}

/// Returns the routes of a server block for one of its names.
fn host_routes(name: &str, block_routes: &[BlockRoute], position: Position) -> Vec<HostRoute> {
    let order = match name {
        name if name.starts_with('~') => (3, 0),
        name if name.starts_with('*') => (1, usize::MAX - name.len()),
        name if name.ends_with('*') => (2, usize::MAX - name.len()),
        name => (0, usize::MAX - name.len()),
    };
    let condition_for = |path: Option<String>, regex: Option<String>| Condition {
        host: Some(name.to_owned()),
        path,
        regex,
        ..Condition::default()
    };
    let for_host = |route: &BlockRoute| {
        let mut condition = condition_for(route.path.clone(), route.regex.clone());
        // If the server block has several names, a condition on a different name never matches here.
        let host = route
            .extra_condition
            .host
            .clone()
            .unwrap_or_else(|| name.to_owned());
        let matches_wildcard = name
            .strip_prefix('*')
            .is_some_and(|suffix| host.ends_with(suffix));
        if host != name && !matches_wildcard {
            return None;
        }
        condition.host = Some(host);
        Some((order, condition.and(&route.extra_condition)?, route.clone()))
    };
    let mut routes: Vec<HostRoute> = block_routes.iter().filter_map(for_host).collect();
    if block_routes
        .last()
        .is_none_or(|route| !route.is_catch_all())
    {
        let response = Action::Respond {
            status: 404,
            body: String::new(),
        };
        routes.push((
            order,
            condition_for(None, None),
            BlockRoute::catch_all(position, response),
        ));
    }
    routes
}

/// Returns a name for the service, from the first name of the default server block if it begins with a letter or digit,
/// otherwise from the port.
fn service_name(
    context: &mut Context<'_>,
    group: &ListenGroup,
    default: &Node,
    tls: bool,
) -> String {
    let names = default
        .inner()
        .iter()
        .find(|line| line.keyword() == "server_name");
    let name = names
        .and_then(|line| line.word(1))
        .filter(|name| name.starts_with(|c: char| c.is_ascii_alphanumeric()));
    let port = group.listen[0].address.rsplit(':').next().unwrap_or("");
    let base_name = match name {
        Some(name) if tls => format!("{name}-tls"),
        Some(name) => name.to_owned(),
        None => format!("nginx-{port}"),
    };
    context.services.claim(&sanitize(&base_name))
}

#[expect(clippy::too_many_arguments, reason = "the parts of one service")]
/// Writes the table of a service, with the settings of the default server block.
fn write_table(
    context: &mut Context<'_>,
    name: &str,
    group: &ListenGroup,
    default: &Node,
    pool: &str,
    outer: &[Node],
    (idle_limit, pages, path_use): (Option<(u64, Position)>, Vec<Item>, PathUse),
    notes: &mut Notes,
) {
    let mut table = Table::new(&["service", name], default.position);
    let listen: Vec<Item> = group
        .listen
        .iter()
        .map(|listen| Item::new(listen.address.as_str(), Some(listen.position)))
        .collect();
    table.push(Entry::implied("listen", listen).essential());
    table.push(Entry::implied("forward", "proxy").essential());
    table.push(Entry::implied("protocol", "http").essential());
    table.push(Entry::implied("pool", pool).essential());
    let mut find = |keyword: &str| {
        let levels = [default.inner(), outer];
        let directive = levels
            .iter()
            .find_map(|nodes| nodes.iter().rev().find(|node| node.keyword() == keyword));
        let node = directive?;
        context.used.insert(node.position);
        Some((node.word(1)?.to_owned(), node.position))
    };
    if group.listen[0].tls {
        let mut keys = tls::keys(&mut find, default.position, notes);
        let minimum = tls::minimum([default.inner(), outer], notes);
        keys.extend(tls::cipher_keys(&mut find, minimum.as_ref(), notes));
        keys.extend(minimum);
        table.push(Entry::implied("tls", keys).essential());
    }
    if let Some((word, position)) = find("proxy_ignore_client_abort") {
        table.push(Entry::new("abort_on_close", word != "on", position));
    }
    if let Some((word, position)) = find("proxy_request_buffering") {
        table.push(Entry::new("request_buffering", word != "off", position));
    }
    let timeouts = timeout_keys(&mut find, notes);
    if !timeouts.is_empty() {
        table.push(Entry::implied("timeouts", timeouts));
    }
    let levels = [default.inner(), outer];
    let limits = limit::limits(context, levels, idle_limit, notes);
    if !limits.is_empty() {
        table.push(Entry::implied("limits", limits));
    }
    if let Some(entry) = limit::retry_on(context, levels, notes) {
        table.push(entry);
    }
    if !pages.is_empty() {
        table.push(Entry::implied("error_pages", pages));
    }
    push_normalize_path(context, &mut table, levels, path_use, notes);
    let compressed = compression(context, &[default.inner(), outer]);
    if let Some((_, keys)) = compressed.filter(|(_, keys)| !keys.is_empty()) {
        table.push(Entry::implied("compression", keys));
    }
    push_trusted(context, &mut table, default, outer, notes);
    table.push(Entry::implied("forwarded", false));
    if context.appends_forwarded_for {
        let fields = vec![Entry::implied("for", "append")];
        table.push(Entry::implied("x_forwarded", fields));
    }
    push_underscores(context, &mut table, levels);
    if group.listen[0].proxy_protocol {
        table.push(Entry::new("proxy_protocol", true, group.listen[0].position));
    }
    table
        .entries
        .extend(context.access_log.take().map(|log| log.entry));
    table.dependent_lines = default.block_positions();
    context.writer.document.push(table);
}

/// Adds `normalize_path`. nginx compares decoded paths, including encoded slashes. nginx sends servers the path as
/// received, or the decoded path if `proxy_pass` has a path.
fn push_normalize_path(
    context: &mut Context<'_>,
    table: &mut Table,
    levels: [&[Node]; 2],
    path_use: PathUse,
    notes: &mut Notes,
) {
    let mut entries = Vec::new();
    let directive = levels.iter().find_map(|nodes| {
        let mut nodes = nodes.iter().rev();
        nodes.find(|node| node.keyword() == "merge_slashes")
    });
    if let Some(node) = directive.filter(|node| node.word(1) == Some("off")) {
        context.used.insert(node.position);
        entries.push(Entry::new("merge_slashes", false, node.position));
    }
    if path_use.compares_paths {
        entries.push(Entry::implied("encoded_slash", "decode"));
    }
    match path_use.sends_normalized_path {
        Some(position) if path_use.sends_received_path => notes.add(
            position,
            "servers get the path as received, not normalized, because another `proxy_pass` requires it",
        ),
        Some(position) => entries.push(Entry::new("forward", "normalized", position)),
        None => {}
    }
    if !entries.is_empty() {
        table.push(Entry::implied("normalize_path", entries));
    }
}

/// The top-level media types; `types` has no pattern that matches all of them.
const ALL_TYPES: [&str; 9] = [
    "application",
    "audio",
    "font",
    "image",
    "message",
    "model",
    "multipart",
    "text",
    "video",
];

/// Returns the line of `gzip` that applies, and the keys of `compression`; without keys, compression is off. `levels`
/// are innermost first. By default, nginx compresses only HTML.
pub(super) fn compression(
    context: &mut Context<'_>,
    levels: &[&[Node]],
) -> Option<(Position, Vec<Entry>)> {
    let mut find = |keyword: &str| {
        let mut levels = levels.iter();
        let node =
            levels.find_map(|nodes| nodes.iter().rev().find(|node| node.keyword() == keyword))?;
        context.used.insert(node.position);
        Some(node)
    };
    let gzip = find("gzip")?;
    if gzip.word(1) != Some("on") {
        return Some((gzip.position, Vec::new()));
    }
    let mut entries = vec![Entry::new(
        "codings",
        vec!["gzip".to_owned()],
        gzip.position,
    )];
    let mut kinds = vec!["text/html".to_owned()];
    let types = find("gzip_types");
    if let Some(types) = types {
        kinds.extend(types.words.iter().skip(1).cloned());
    }
    let has_star = kinds.iter().any(|kind| kind == "*");
    let kinds = match has_star {
        true => ALL_TYPES.map(|kind| format!("{kind}/*")).to_vec(),
        false => kinds,
    };
    entries.push(Entry::new(
        "types",
        kinds,
        types.map_or(gzip.position, |types| types.position),
    ));
    let minimum = find("gzip_min_length");
    let bytes = minimum.and_then(|node| node.word(1)?.parse::<u64>().ok());
    entries.push(match (minimum, bytes) {
        (Some(node), Some(bytes)) => Entry::new("minimum", bytes, node.position),
        // This is nginx's default.
        _ => Entry::implied("minimum", 20_u64),
    });
    Some((gzip.position, entries))
}

/// Adds `underscores` for `underscores_in_headers` and `ignore_invalid_headers`: by default, nginx considers names
/// with `_` invalid and ignores such fields.
fn push_underscores(context: &mut Context<'_>, table: &mut Table, levels: [&[Node]; 2]) {
    let switches = [
        ("underscores_in_headers", "on"),
        ("ignore_invalid_headers", "off"),
    ];
    for (keyword, value_to_keep) in switches {
        let mut levels = levels.iter();
        let Some(node) =
            levels.find_map(|nodes| nodes.iter().rev().find(|node| node.keyword() == keyword))
        else {
            continue;
        };
        context.used.insert(node.position);
        if node.word(1) == Some(value_to_keep)
            && table.entries.iter().all(|entry| entry.key != "underscores")
        {
            table.push(Entry::new("underscores", "keep", node.position));
        }
    }
}

/// Adds `trusted` for `set_real_ip_from`, `client_ip_header` for `real_ip_header`, and `client_ip_recursive` for
/// `real_ip_recursive`.
fn push_trusted(
    context: &mut Context<'_>,
    table: &mut Table,
    default: &Node,
    outer: &[Node],
    notes: &mut Notes,
) {
    let levels = [default.inner(), outer];
    let trusted: Vec<Item> = inherited(&levels, "set_real_ip_from")
        .into_iter()
        .filter_map(|node| Some(Item::new(node.word(1)?, Some(node.position))))
        .collect();
    // The lines of the server block replace those of `http`.
    if !trusted.is_empty() {
        let lines = levels.into_iter().flatten();
        let lines =
            lines.filter(|node| node.keyword() == "set_real_ip_from" && node.words.len() > 1);
        context.used.extend(lines.map(|node| node.position));
    }
    let mut lines = default.inner().iter().chain(outer);
    let recursive = lines.find(|line| line.keyword() == "real_ip_recursive");
    let mut lines = default.inner().iter().chain(outer);
    let field = lines.find(|line| line.keyword() == "real_ip_header");
    let name = field.and_then(|line| line.word(1)).unwrap_or("X-Real-IP");
    if !trusted.is_empty() && name != "proxy_protocol" {
        for line in [recursive, field].into_iter().flatten() {
            context.used.insert(line.position);
        }
        let position = field.map(|line| line.position).or(trusted[0].position);
        table.push(match position {
            Some(position) => Entry::new("client_ip_header", name, position),
            None => Entry::implied("client_ip_header", name),
        });
        if name.eq_ignore_ascii_case("X-Forwarded-For")
            && let Some(position) = position
        {
            if recursive.and_then(|line| line.word(1)) != Some("on") {
                table.push(Entry::new("client_ip_recursive", false, position));
            }
            if context.appends_forwarded_for {
                let reason = "nginx appends the client's address to X-Forwarded-For again; Weir appends the address of \
                              the proxy";
                notes.add(position, reason);
            }
        }
    }
    if !trusted.is_empty() {
        table.push(Entry::implied("trusted", trusted));
    }
}

/// Returns the keys of `timeouts`.
fn timeout_keys(
    find: &mut dyn FnMut(&str) -> Option<(String, Position)>,
    notes: &mut Notes,
) -> Vec<Entry> {
    const TIMES: &[(&str, &str)] = &[
        ("client_header_timeout", "request"),
        ("keepalive_timeout", "idle"),
        ("client_body_timeout", "client"),
        ("send_timeout", "client"),
        ("proxy_connect_timeout", "connect"),
        ("proxy_read_timeout", "server"),
        ("proxy_send_timeout", "server"),
    ];
    let mut timeouts: Vec<Entry> = Vec::new();
    for (keyword, key) in TIMES {
        let Some((text, position)) = find(keyword) else {
            continue;
        };
        match parse_time(&text) {
            Some(0) => notes.add(
                position,
                "not imported: 0 disables the timeout, but Weir always has one",
            ),
            Some(_) if timeouts.iter().any(|entry| entry.key == *key) => {
                notes.remark(
                    position,
                    format!("not imported: `timeouts.{key}` applies to both directions"),
                );
            }
            Some(millis) => timeouts.push(Entry::new(key, format_millis(millis), position)),
            None => notes.add(position, "not imported: invalid time"),
        }
    }
    timeouts
}
