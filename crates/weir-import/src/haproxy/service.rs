//! Writes the table of a service from the settings of a frontend and its default backend, except for rules.

use super::line::Line;
use super::section::Proxy;
use super::{Context, forward, log, parse_time, path};
use crate::document::{Entry, Item, Table};
use crate::note::{Notes, Position};
use crate::time::format_millis;

/// Writes the table of a service.
#[expect(clippy::too_many_arguments, reason = "the parts of one service")]
pub(super) fn write_service(
    context: &mut Context<'_>,
    proxy: &Proxy,
    name: &str,
    listen: &[(String, Position)],
    tls: &[Entry],
    (pool, default): (&str, &Option<(String, String)>),
    (sections, rate): (&[Proxy], &[Entry]),
    notes: &mut Notes,
) {
    let mut table = Table::new(&["service", name], proxy.position);
    let listen: Vec<Item> = listen
        .iter()
        .map(|(listen, position)| Item::new(listen.as_str(), Some(*position)))
        .collect();
    table.push(Entry::implied("listen", listen).essential());
    table.push(Entry::implied("forward", "proxy").essential());
    let mode = proxy.last(&["mode"]);
    match mode {
        Some(line) if matches!(line.word(1), Some("http" | "tcp")) => context.mark_used(line),
        Some(line) => line.reject(notes, "Weir has no such mode; the service uses tcp"),
        None => {}
    }
    let protocol = if proxy.is_http() { "http" } else { "tcp" };
    table.push(
        Entry::new(
            "protocol",
            protocol,
            mode.map_or(proxy.position, |line| line.position),
        )
        .essential(),
    );
    table.push(Entry::implied("pool", pool).essential());
    if !tls.is_empty() {
        table.push(Entry::implied("tls", tls.to_vec()).essential());
    }
    let backend = default.as_ref().and_then(|(name, _)| {
        sections
            .iter()
            .find(|proxy| proxy.is_backend && proxy.name == *name)
    });
    push_timeouts(context, &mut table, proxy, backend.unwrap_or(proxy), notes);
    push_persistence(context, &mut table, backend.unwrap_or(proxy), sections);
    push_retry_on(context, &mut table, backend.unwrap_or(proxy), notes);
    let limit_context = (sections, rate, default.is_some());
    push_limits(
        context,
        &mut table,
        proxy,
        backend.unwrap_or(proxy),
        limit_context,
        notes,
    );
    if proxy.is_http() {
        let forwarded = proxy
            .option("forwardfor")
            .or_else(|| backend.and_then(|backend| backend.option("forwardfor")));
        // Other forms of the option are header changes of routes.
        let forwarded = forwarded
            .filter(|line| forward::parse(line).is_none_or(|it| it.is_supported_by_service()));
        table.push(Entry::implied("forwarded", false));
        if let Some(line) = forwarded {
            context.mark_used(line);
            table.push(x_forwarded_entry(line, notes));
        }
        push_abort_on_close(context, &mut table, backend.unwrap_or(proxy));
        push_request_buffering(context, &mut table, [proxy, backend.unwrap_or(proxy)]);
        path::push_normalize_path(context, &mut table, proxy, notes);
        table.push(underscores_entry(context, proxy));
        push_compression(
            context,
            &mut table,
            [proxy, backend.unwrap_or(proxy)],
            notes,
        );
        let proxies = [proxy, backend.unwrap_or(proxy)];
        push_error_pages(context, &mut table, proxies, notes);
    }
    log::push_access_log(context, &mut table, proxy, notes);
    table.dependent_lines = proxy.lines.iter().map(|line| line.position).collect();
    context.writer.document.push(table);
}

/// Writes `[defaults.service]` for a file with only `defaults` sections, because the other sections are in other files.
pub(super) fn write_defaults(context: &mut Context<'_>, proxy: &Proxy, notes: &mut Notes) {
    let mut table = Table::new(&["defaults", "service"], proxy.position);
    if let Some(line) = proxy.last(&["mode"]) {
        context.mark_used(line);
        let protocol = if proxy.is_http() { "http" } else { "tcp" };
        table.push(Entry::implied("forward", "proxy").essential());
        table.push(Entry::new("protocol", protocol, line.position));
    }
    push_timeouts(context, &mut table, proxy, proxy, notes);
    push_retry_on(context, &mut table, proxy, notes);
    push_limits(context, &mut table, proxy, proxy, (&[], &[], true), notes);
    if let Some(line) = proxy.option("forwardfor").filter(|_| proxy.is_http()) {
        context.mark_used(line);
        table.push(Entry::implied("forwarded", false));
        table.push(x_forwarded_entry(line, notes));
    }
    if proxy.is_http() {
        push_compression(context, &mut table, [proxy, proxy], notes);
        push_error_pages(context, &mut table, [proxy, proxy], notes);
    }
    log::push_access_log(context, &mut table, proxy, notes);
    if !table.entries.is_empty() {
        context.writer.document.push(table);
    }
}

/// Converts `option forwardfor except 127.0.0.0/8` to `x_forwarded`.
fn x_forwarded_entry(line: &Line, notes: &mut Notes) -> Entry {
    let mut fields = vec![Entry::new("for", "append", line.position)];
    let mut words = line.words.iter().skip(2).map(String::as_str);
    while let Some(word) = words.next() {
        let value = (word != "if-none").then(|| words.next()).flatten();
        match (word, value) {
            ("except", Some(network)) => {
                let networks = vec![network.to_owned()];
                fields.push(Entry::new("except", networks, line.position).essential());
            }
            ("header", Some(name)) if name.eq_ignore_ascii_case("X-Forwarded-For") => {}
            _ => notes.add(
                line.position,
                format!("\"{word}\" and any following arguments are not imported: `x_forwarded` has no such option"),
            ),
        }
    }
    Entry::new("x_forwarded", fields, line.position)
}

/// Adds `abort_on_close` for `option abortonclose` of the backend; haproxy's default is off.
fn push_abort_on_close(context: &mut Context<'_>, table: &mut Table, backend: &Proxy) {
    const OPTION: &str = "abortonclose";
    let entry = match backend.option_line(OPTION) {
        Some(line) => {
            context.mark_used(line);
            let is_on = line.keyword() == "option";
            Entry::new("abort_on_close", is_on, line.position)
        }
        None => Entry::implied("abort_on_close", false),
    };
    table.push(entry);
}

/// Adds `request_buffering` for `option http-buffer-request`: on if the frontend or the backend enables it.
fn push_request_buffering(context: &mut Context<'_>, table: &mut Table, proxies: [&Proxy; 2]) {
    let lines = proxies.map(|proxy| proxy.option_line("http-buffer-request"));
    let option_lines: Vec<_> = lines.into_iter().flatten().collect();
    option_lines.iter().for_each(|line| context.mark_used(line));
    let enabling_line = option_lines.iter().find(|line| line.keyword() == "option");
    if let Some(line) = enabling_line.or(option_lines.first()) {
        let entry = Entry::new("request_buffering", enabling_line.is_some(), line.position);
        table.push(entry);
    }
}

/// Adds `error_pages` for `errorfile 503 /etc/haproxy/errors/503.http` and `errorloc 503 URL`: Weir reads haproxy's
/// format. The frontend overrides its backend, and both override their defaults.
fn push_error_pages(
    context: &mut Context<'_>,
    table: &mut Table,
    proxies: [&Proxy; 2],
    notes: &mut Notes,
) {
    let proxy_lines = proxies.iter().map(|proxy| &proxy.lines);
    let defaults = proxies.iter().map(|proxy| &proxy.defaults);
    let mut statuses = Vec::new();
    let mut pages = Vec::new();
    for line in proxy_lines
        .chain(defaults)
        .flat_map(|lines| lines.iter().rev())
    {
        let line_pages = error_pages_of(context, line);
        let is_replaced = line_pages
            .iter()
            .all(|(status, ..)| statuses.contains(status));
        if line_pages.is_empty() || is_replaced && context.used.contains(&line.position) {
            continue;
        }
        if is_replaced {
            let reason = "not imported: another page for the same status replaces it";
            notes.remark(line.position, reason);
            continue;
        }
        context.mark_used(line);
        for (status, keys, position) in line_pages {
            if statuses.contains(&status) {
                continue;
            }
            context.used.insert(position);
            let mut page = vec![Entry::new("status", status.as_str(), position)];
            page.extend(keys);
            statuses.push(status);
            pages.push(Item::new(page, Some(position)));
        }
    }
    if !pages.is_empty() {
        pages.sort_by_key(|page| page.position);
        table.push(Entry::implied("error_pages", pages));
    }
}

/// Returns `underscores` for `option http-restrict-req-hdr-names`; without it, haproxy forwards field names with
/// underscores.
fn underscores_entry(context: &mut Context<'_>, proxy: &Proxy) -> Entry {
    let line = proxy.last(&["option", "http-restrict-req-hdr-names"]);
    let choice = match line.and_then(|line| line.word(2)) {
        Some("delete") => "drop",
        Some("reject") => "reject",
        _ => "keep",
    };
    match line {
        Some(line) => {
            context.mark_used(line);
            Entry::new("underscores", choice, line.position)
        }
        None => Entry::implied("underscores", choice),
    }
}

/// The status of an error page, its other keys, and its position.
type ErrorPage = (String, Vec<Entry>, Position);

/// Returns the pages of a line: `errorfile 503 FILE`, `errorloc 503 URL`, `errorfiles NAME` of an `http-errors`
/// section, `http-error status 503 … errorfile FILE`.
fn error_pages_of(context: &Context<'_>, line: &Line) -> Vec<ErrorPage> {
    let page_of_line = |line: &Line| {
        let position = line.position;
        let page = |status: &str, keys| Some((status.to_owned(), keys, position));
        let words: Vec<&str> = line.words.iter().map(String::as_str).collect();
        let (status, file) = match words.as_slice() {
            ["errorloc" | "errorloc302", status, url] if is_plain_url(url) => {
                return page(status, vec![Entry::new("redirect", *url, position)]);
            }
            ["errorloc303", status, url] if is_plain_url(url) => {
                let status_key = Entry::new("redirect_status", 303_u64, position);
                return page(
                    status,
                    vec![Entry::new("redirect", *url, position), status_key],
                );
            }
            ["errorfile", status, file] => (status, file),
            ["http-error", "status", status, "errorfile", file] => (status, file),
            // Weir derives the type from the file name.
            [
                "http-error",
                "status",
                status,
                "content-type",
                content_type,
                "file",
                file,
            ] if content_type.starts_with(media_type(file)) => (status, file),
            _ => return None,
        };
        // `/dev/null` is an empty response: haproxy only closes the connection.
        let is_usable = file.starts_with('/') && !file.starts_with("/dev/") || *file == "/dev/null";
        let file = is_usable.then(|| Entry::new("file", *file, position))?;
        page(status, vec![file])
    };
    match (line.keyword(), line.word(1)) {
        ("errorfiles", Some(name)) => {
            let statuses = line.words.get(2..).unwrap_or_default();
            let section_pages = context
                .pages
                .get(name)
                .into_iter()
                .flatten()
                .filter_map(page_of_line);
            let has_listed_status =
                |page: &ErrorPage| statuses.is_empty() || statuses.contains(&page.0);
            section_pages.filter(has_listed_status).collect()
        }
        _ => page_of_line(line).into_iter().collect(),
    }
}

/// Returns whether a URL can be the target of an error page, which must not contain variables.
fn is_plain_url(url: &str) -> bool {
    url.bytes()
        .all(|byte| byte.is_ascii_graphic() && !b"{}\\\"<>^`|".contains(&byte))
}

/// Returns the media type that Weir derives from the file name of an error page.
fn media_type(file: &str) -> &'static str {
    match file.rsplit('.').next() {
        Some("html") => "text/html",
        Some("json") => "application/json",
        Some("svg") => "image/svg+xml",
        _ => "text/plain",
    }
}

/// Adds `compression` for `compression algo gzip` and `compression type text/html`. Without types, Weir compresses its
/// default types.
fn push_compression(
    context: &mut Context<'_>,
    table: &mut Table,
    proxies: [&Proxy; 2],
    notes: &mut Notes,
) {
    let mut find = |name: &str| {
        let mut proxies = proxies.iter();
        let line = proxies.find_map(|proxy| proxy.last(&["compression", name]))?;
        context.mark_used(line);
        let words = line.words.get(2..).unwrap_or_default().to_vec();
        Some((words, line.position))
    };
    let algorithm_line = ["algo", "algo-res"].into_iter().find_map(&mut find);
    let Some((algorithms, position)) = algorithm_line else {
        return;
    };
    let types = ["type", "type-res"].into_iter().find_map(&mut find);
    // gzip is the only algorithm that both haproxy and Weir support.
    if !algorithms.iter().any(|word| word == "gzip") {
        // `identity` does not compress.
        if algorithms.iter().any(|word| word != "identity") {
            let reason = "not imported: of haproxy's algorithms, `codings` accepts only gzip";
            notes.add(position, reason);
        }
        return;
    }
    let mut entries = vec![Entry::new("codings", vec!["gzip".to_owned()], position)];
    if let Some((types, position)) = types {
        entries.push(Entry::new("types", types, position));
    }
    table.push(Entry::implied("compression", entries));
}

/// Adds the client timeouts of the frontend, and the server timeouts of its default backend.
fn push_timeouts(
    context: &mut Context<'_>,
    table: &mut Table,
    frontend: &Proxy,
    backend: &Proxy,
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
    for (keyword, key, is_backend_setting) in NAMES {
        let proxy = if *is_backend_setting {
            backend
        } else {
            frontend
        };
        let Some(line) = proxy.last(&["timeout", keyword]) else {
            continue;
        };
        context.mark_used(line);
        match line.word(2).and_then(parse_time) {
            Some(millis) => entries.push(Entry::new(key, format_millis(millis), line.position)),
            None => line.reject(notes, "haproxy requires a time"),
        }
    }
    if !entries.is_empty() {
        table.push(Entry::implied("timeouts", entries));
    }
}

/// Returns the timeouts and retry settings of a backend that differ from those of the service, for the routes to the
/// backend.
pub(super) fn route_keys(
    context: &mut Context<'_>,
    backend: &Proxy,
    default_backend: Option<&Proxy>,
    notes: &mut Notes,
) -> Vec<Entry> {
    const NAMES: [(&str, &str); 3] = [
        ("connect", "connect"),
        ("server", "server"),
        ("tunnel", "tunnel"),
    ];
    let find_different = |keywords: &[&str]| {
        let line = backend.last(keywords)?;
        let other = default_backend.and_then(|section| section.last(keywords));
        let is_same = other.is_some_and(|other| other.words == line.words);
        (!is_same).then_some(line)
    };
    let mut timeouts = Vec::new();
    for (keyword, key) in NAMES {
        if let Some(line) = find_different(&["timeout", keyword])
            && let Some(millis) = line.word(2).and_then(parse_time)
        {
            context.mark_used(line);
            timeouts.push(Entry::new(key, format_millis(millis), line.position));
        }
    }
    let mut keys = Vec::new();
    if !timeouts.is_empty() {
        keys.push(Entry::implied("timeouts", timeouts));
    }
    if let Some(line) = find_different(&["retries"])
        && let Some(count) = line.word(1).and_then(|word| word.parse::<u64>().ok())
    {
        context.mark_used(line);
        keys.push(Entry::new("retries", count, line.position));
    }
    if find_different(&["retry-on"]).is_some() {
        keys.extend(retry_conditions(context, backend, notes));
    }
    keys
}

/// Adds `persistence` for `stick on src` with `stick-table type ip expire 30m`.
fn push_persistence(
    context: &mut Context<'_>,
    table: &mut Table,
    backend: &Proxy,
    sections: &[Proxy],
) {
    // `stick match` and `stick store-request` together are equivalent to `stick on`.
    let match_and_store = || {
        let match_line = backend.last(&["stick", "match"])?;
        let store_line = backend.last(&["stick", "store-request"])?;
        (match_line.words[2..] == store_line.words[2..]).then_some((match_line, Some(store_line)))
    };
    let on_line = backend.last(&["stick", "on"]).map(|line| (line, None));
    let Some((stick_line, store_line)) = on_line.or_else(match_and_store) else {
        return;
    };
    let (key, name) = match stick_line.words.get(2..).unwrap_or_default() {
        [key] => (key.as_str(), None),
        [key, word, name] if word == "table" => (key.as_str(), Some(name)),
        _ => return,
    };
    let mask = key
        .strip_prefix("src,ipmask(")
        .and_then(|rest| rest.strip_suffix(')'));
    let mask = mask.map(|mask| mask.parse::<u64>());
    let is_source = key == "src" || matches!(mask, Some(Ok(1..=32)));
    let owner = match name {
        Some(name) => sections.iter().find(|section| section.name == *name),
        None => Some(backend),
    };
    let Some(table_line) = owner.and_then(|section| section.last(&["stick-table", "type"])) else {
        return;
    };
    let words: Vec<&str> = table_line.words.iter().map(String::as_str).collect();
    let value_after = |word: &str| {
        let index = words.iter().position(|it| *it == word)?;
        words.get(index + 1).copied()
    };
    let expire = value_after("expire")
        .and_then(parse_time)
        .filter(|millis| *millis >= 1000);
    let is_address = matches!(value_after("type"), Some("ip" | "ipv6"));
    let stores_counters = value_after("store").is_some_and(|data| data != "server_id");
    let (Some(millis), true, false) = (expire, is_source && is_address, stores_counters) else {
        return;
    };
    context.mark_used(stick_line);
    context.mark_used(table_line);
    store_line.iter().for_each(|line| context.mark_used(line));
    let mut keys = vec![Entry::new(
        "timeout",
        format_millis(millis),
        table_line.position,
    )];
    if let Some(Ok(length)) = mask {
        keys.push(Entry::new("netmask", length, stick_line.position));
    }
    table.push(Entry::new("persistence", keys, stick_line.position));
}

/// Adds `retry_on` for `retry-on empty-response response-timeout 503`.
fn push_retry_on(context: &mut Context<'_>, table: &mut Table, backend: &Proxy, notes: &mut Notes) {
    if let Some(entry) = retry_conditions(context, backend, notes) {
        table.push(entry);
    }
}

fn retry_conditions(
    context: &mut Context<'_>,
    backend: &Proxy,
    notes: &mut Notes,
) -> Option<Entry> {
    let line = backend.last(&["retry-on"])?;
    context.mark_used(line);
    let mut conditions: Vec<String> = Vec::new();
    for word in line.arguments() {
        let values: &[&str] = match word.as_str() {
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
                notes.add(
                    line.position,
                    format!(
                        "{other} is not imported: a service's `retry_on` has no such condition"
                    ),
                );
                &[]
            }
        };
        conditions.extend(values.iter().map(|word| (*word).to_owned()));
    }
    Some(Entry::new("retry_on", conditions, line.position))
}

/// Returns the backends that the `use_backend` lines of a frontend refer to.
fn referenced_backends<'p>(frontend: &Proxy, sections: &'p [Proxy]) -> Vec<&'p Proxy> {
    let is_referenced = |section: &&Proxy| {
        let mut rules = frontend.lines.iter();
        rules.any(|rule| {
            rule.keyword() == "use_backend" && rule.word(1) == Some(section.name.as_str())
        })
    };
    sections
        .iter()
        .filter(|section| section.is_backend)
        .filter(is_referenced)
        .collect()
}

/// Adds `limits`: the rate limit, `maxconn`, `retries`, and `idle_servers` for options that close connections.
fn push_limits(
    context: &mut Context<'_>,
    table: &mut Table,
    frontend: &Proxy,
    backend: &Proxy,
    (sections, rate, has_default): (&[Proxy], &[Entry], bool),
    notes: &mut Notes,
) {
    let mut entries = rate.to_vec();
    for (keyword, key, proxy) in [
        ("maxconn", "connections", frontend),
        ("retries", "retries", backend),
    ] {
        let Some(line) = proxy.last(&[keyword]) else {
            if let (Some((max, position)), "connections") = (context.max_connections, key) {
                entries.push(Entry::new(key, max, position));
            }
            continue;
        };
        context.mark_used(line);
        match line.word(1).and_then(|word| word.parse::<u64>().ok()) {
            Some(number) => entries.push(Entry::new(key, number, line.position)),
            None => line.reject(notes, "haproxy requires a number"),
        }
    }
    let close_options = ["http-server-close", "httpclose", "forceclose"];
    // Without a default backend, all backends that the rules refer to must have the option.
    let backends: Vec<&Proxy> = match has_default {
        true => Vec::new(),
        false => referenced_backends(frontend, sections),
    };
    let has_close_option = |section: &&Proxy| {
        close_options
            .iter()
            .any(|name| section.option(name).is_some())
    };
    let backends = Some(backends)
        .filter(|backends| backends.iter().all(has_close_option))
        .unwrap_or_default();
    let proxies = [&[backend, frontend], backends.as_slice()].concat();
    let option_lines = close_options
        .iter()
        .flat_map(|name| proxies.iter().filter_map(|section| section.option(name)));
    let option_lines: Vec<&Line> = option_lines.collect();
    option_lines.iter().for_each(|line| context.mark_used(line));
    if let Some(line) = option_lines.first() {
        entries.push(Entry::new("idle_servers", 0_u32, line.position));
        if line.word(1) != Some("http-server-close") {
            notes.remark(
                line.position,
                "server connections close after each request; client connections stay open",
            );
        }
    }
    if !entries.is_empty() {
        table.push(Entry::implied("limits", entries));
    }
}
