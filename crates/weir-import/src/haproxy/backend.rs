//! Converts `backend` sections and the backend half of `listen` sections to pools.

use super::line::Line;
use super::section::Proxy;
use super::server::{self, Options, ServerScope};
use super::{Context, parse_time, preferred};
use crate::document::{Entry, Item, Value};
use crate::layer7::{self, PoolServer};
use crate::note::{Notes, Position};
use crate::probe::Probe;
use crate::scheduler::scheduler;
use crate::time::format_millis;

#[expect(clippy::too_many_lines, reason = "the parts of one section in order")]
/// Writes the pool of a section.
pub(super) fn write(
    context: &mut Context<'_>,
    proxy: &Proxy,
    sections: &[Proxy],
    notes: &mut Notes,
) {
    let scope = ServerScope::read(context, proxy, sections, notes);
    let mut servers = Vec::new();
    let mut named_servers: Vec<(String, PoolServer)> = Vec::new();
    let mut tls = None;
    let mut proxy_version = None;
    let mut http2: Option<Position> = None;
    let mut slow_start = None;
    let mut shutdown: Option<Position> = None;
    let mut dns_entries = Vec::new();
    let mut dns_backups = Vec::new();
    let mut probes: Option<Vec<Probe>> = None;
    for line in &proxy.lines {
        match line.keyword() {
            // The addresses of a host name may change at run time.
            "server" | "server-template"
                if line.keyword() == "server-template"
                    || line.word(2).is_some_and(server::is_host_name) =>
            {
                let converted = match line.keyword() {
                    "server" => convert_dns_servers(context, line, (2, 3), &scope, notes),
                    _ => convert_template(context, line, &scope, notes),
                };
                let Some((dns_servers, options)) = converted else {
                    continue;
                };
                merge_pool_settings(&mut proxy_version, &mut slow_start, &options, line, notes);
                merge_tls(&mut tls, options.tls, line, notes);
                http2 = http2.or(options.http2);
                shutdown = shutdown.or(options.shutdown);
                dns_entries.push(dns_servers.item);
                dns_backups.extend(options.backup);
                match &probes {
                    Some(first) if *first != dns_servers.probes => notes.add(
                        line.position,
                        "the server's check is not imported: all names in a pool's `servers_dns` have the same checks, \
                         those of the first name",
                    ),
                    Some(_) => {}
                    None => probes = Some(dns_servers.probes),
                }
            }
            "server" => {
                let converted = server::convert_server(context, line, &scope, notes);
                let Some((server, options)) = converted else {
                    continue;
                };
                context.mark_used(line);
                http2 = http2.or(options.http2);
                shutdown = shutdown.or(options.shutdown);
                let name = line.word(1).unwrap_or_default().to_owned();
                named_servers.push((name, server.clone()));
                add_server(&mut servers, server);
                merge_pool_settings(&mut proxy_version, &mut slow_start, &options, line, notes);
                merge_tls(&mut tls, options.tls, line, notes);
            }
            "source" => line.reject(
                notes,
                "Weir has no setting for the source address of connections to servers",
            ),
            _ => {}
        }
    }
    let mut entries = Vec::new();
    match proxy.option("allbackups") {
        Some(line) => context.mark_used(line),
        None if dns_backups.is_empty() => {
            entries.extend(sorry_entry(context, proxy, &mut servers, notes));
        }
        None => note_additional_backups(&servers, dns_backups, notes),
    }
    entries.extend(crate::layer7::servers_dns(dns_entries));
    if let Some((millis, position)) = slow_start {
        entries.push(Entry::new("slow_start", format_millis(millis), position));
        servers.iter_mut().for_each(scale_weight);
    }
    if let Some(position) = http2 {
        entries.push(Entry::new("http2", true, position));
    }
    if let Some(position) = shutdown {
        notes.remark(
            position,
            "`on_remove` also closes connections to servers that a reload removes",
        );
        entries.push(Entry::new("on_remove", "reset", position));
    }
    push_scheduler(context, &mut entries, proxy, notes);
    if let Some(line) = proxy.last(&["timeout", "queue"]) {
        context.mark_used(line);
        match line.word(2).and_then(parse_time) {
            Some(millis) => entries.push(Entry::new(
                "queue_timeout",
                format_millis(millis),
                line.position,
            )),
            None => line.reject(notes, "haproxy requires a time"),
        }
    }
    if proxy.is_http() && server::read_only_cookie(proxy).is_none() {
        push_sticky(context, &mut entries, proxy, notes);
    }
    if let Some((version, position)) = proxy_version.flatten() {
        // Servers that expect the PROXY protocol do not work without it.
        entries.push(Entry::new("proxy_protocol", version, position).essential());
    }
    if let Some((line, host)) = fixed_host(proxy) {
        context.mark_used(line);
        entries.push(Entry::new("host", host, line.position));
    }
    if let Some(tls) = tls.filter(|tls| !tls.is_empty()) {
        entries.push(Entry::implied("tls", tls));
    }
    if servers.is_empty()
        && !entries.iter().any(|entry| entry.key == "servers_dns")
        && proxy.is_frontend
        && !proxy.lines.iter().any(|line| line.keyword() == "server")
    {
        // A `listen` without servers contains only rules.
        return;
    }
    let name = context.writer.names.claim(&proxy.name);
    context.pools.insert(proxy.name.clone(), name.clone());
    let pool = layer7::Pool {
        position: proxy.position,
        name,
        entries,
        servers,
        probes,
        lines: proxy.lines.iter().map(|line| line.position).collect(),
    };
    context.writer.write_pool(pool.clone());
    super::cookie::read(context, &scope, notes);
    if !proxy.is_http() {
        preferred::write(context, proxy, (&pool, &named_servers), notes);
    }
}

const ADDITIONAL_BACKUP: &str =
    "haproxy uses only the first backup server that is up; Weir uses all of them together";

fn is_backup(server: &PoolServer) -> bool {
    server.entries.iter().any(|entry| entry.key == "backup")
}

/// Adds a note for each backup server after the first. `dns_backups` are the lines of backup servers from DNS.
fn note_additional_backups(servers: &[PoolServer], dns_backups: Vec<Position>, notes: &mut Notes) {
    let servers = servers.iter().filter(|server| is_backup(server));
    let mut backups: Vec<Position> = servers.map(|server| server.position).collect();
    backups.extend(dns_backups);
    backups.sort_unstable();
    for position in backups.into_iter().skip(1) {
        notes.add(position, ADDITIONAL_BACKUP);
    }
}

/// If there are exactly two backup servers, removes the second one and returns it as `sorry`. If there are more, adds
/// a note for each one after the second. Without `option allbackups`, haproxy uses only the first backup server that
/// is up, while Weir distributes requests over all backup servers.
fn sorry_entry(
    context: &mut Context<'_>,
    proxy: &Proxy,
    servers: &mut Vec<PoolServer>,
    notes: &mut Notes,
) -> Option<Entry> {
    let backup_indices: Vec<usize> = (0..servers.len())
        .filter(|index| is_backup(&servers[*index]))
        .collect();
    let [_, second, additional @ ..] = backup_indices.as_slice() else {
        return None;
    };
    if !additional.is_empty() {
        for index in additional {
            notes.add(servers[*index].position, ADDITIONAL_BACKUP);
        }
        return None;
    }
    let mut server = servers.remove(*second);
    server
        .entries
        .retain(|entry| !matches!(entry.key, "backup" | "weight"));
    if !server.probes.is_empty() {
        let name = |probe: &Probe| {
            let name = context.writer.check(&proxy.name, probe);
            Item::new(name, Some(probe.position))
        };
        let names: Vec<Item> = server.probes.iter().map(name).collect();
        server
            .entries
            .push(Entry::new("check", names, server.position));
    }
    let reason =
        "the second backup server is imported as `sorry`, which is used if the first one is down";
    notes.remark(server.position, reason);
    Some(Entry::new("sorry", server.entries, server.position))
}

/// Returns the line and the value of the last unconditional `http-request set-header Host www.example`; the value
/// becomes the pool's `host`.
pub(super) fn fixed_host(proxy: &Proxy) -> Option<(&Line, &str)> {
    let mut lines = proxy.lines.iter().rev();
    lines.find_map(|line| match line.words.as_slice() {
        [keyword, verb, name, value]
            if keyword == "http-request"
                && verb == "set-header"
                && name.eq_ignore_ascii_case("Host")
                && !value.contains('%') =>
        {
            Some((line, value.as_str()))
        }
        _ => None,
    })
}

/// Scales a weight for `slow_start`: Weir increases weights in whole steps, haproxy in sixteenths. Scaling keeps the
/// proportions.
fn scale_weight(server: &mut PoolServer) {
    const STEPS: u64 = 100;
    let weight = server.entries.iter_mut().find(|it| it.key == "weight");
    match weight.map(|entry| &mut entry.item.value) {
        Some(Value::Integer(weight)) => *weight *= STEPS,
        _ => server.entries.push(Entry::implied("weight", STEPS)),
    }
}

/// Adds a server. If the file lists the same server several times, its weights and limits are added up.
fn add_server(servers: &mut Vec<PoolServer>, server: PoolServer) {
    let number = |server: &PoolServer, key: &str| {
        let mut entries = server.entries.iter();
        entries.find_map(|entry| match (entry.key == key, &entry.item.value) {
            (true, Value::Integer(number)) => Some(*number),
            _ => None,
        })
    };
    let other_keys = |server: &PoolServer| -> Vec<Entry> {
        let mut entries = server.entries.clone();
        entries.retain(|entry| !matches!(entry.key, "weight" | "max_connections"));
        entries
    };
    let is_equal = |existing: &&mut PoolServer| {
        existing.probes == server.probes
            && other_keys(existing) == other_keys(&server)
            && number(existing, "max_connections").is_some()
                == number(&server, "max_connections").is_some()
    };
    let Some(existing) = servers.iter_mut().find(is_equal) else {
        servers.push(server);
        return;
    };
    let mut entries = other_keys(existing);
    let weight = number(existing, "weight").unwrap_or(1) + number(&server, "weight").unwrap_or(1);
    entries.push(Entry::new("weight", weight, server.position));
    if let (Some(existing_limit), Some(limit)) = (
        number(existing, "max_connections"),
        number(&server, "max_connections"),
    ) {
        entries.push(Entry::new(
            "max_connections",
            existing_limit + limit,
            server.position,
        ));
    }
    existing.entries = entries;
}

/// Servers from DNS: an entry of `servers_dns`, and the checks.
struct DnsServers {
    item: Item,
    probes: Vec<Probe>,
}

/// Converts `server-template web 1-10 _http._tcp.web.example resolvers dns check`.
fn convert_template(
    context: &mut Context<'_>,
    line: &Line,
    scope: &ServerScope<'_>,
    notes: &mut Notes,
) -> Option<(DnsServers, Options)> {
    if line.word(3).is_none() {
        line.reject(notes, "haproxy requires a prefix, a number and a name");
        return None;
    }
    notes.remark(
        line.position,
        "the DNS records of the name determine the number of servers",
    );
    convert_dns_servers(context, line, (3, 4), scope, notes)
}

/// Converts the servers that a name resolves to. The name is the word at `name_index`; the options start at
/// `options_index`. Adds a note and returns `None` if the line is invalid.
fn convert_dns_servers(
    context: &mut Context<'_>,
    line: &Line,
    (name_index, options_index): (usize, usize),
    scope: &ServerScope<'_>,
    notes: &mut Notes,
) -> Option<(DnsServers, Options)> {
    let address = line.word(name_index)?;
    let position = line.position;
    let address = ["ipv4@", "ipv6@"]
        .iter()
        .find_map(|kind| address.strip_prefix(kind))
        .unwrap_or(address);
    let (name, port) = match address.rsplit_once(':') {
        Some((name, port)) => match port.parse::<u64>() {
            Ok(port) => (name, Some(port)),
            Err(_) => {
                line.reject(notes, &format!("invalid port {port}"));
                return None;
            }
        },
        None => (address, None),
    };
    if name.parse::<std::net::IpAddr>().is_ok() {
        line.reject(
            notes,
            "`servers_dns` accepts only names, not addresses; list the address in `servers`",
        );
        return None;
    }
    let is_name = |byte: u8| byte.is_ascii_alphanumeric() || b"-._".contains(&byte);
    if name.is_empty() || !name.bytes().all(is_name) {
        line.reject(notes, &format!("{name} is not a valid host name"));
        return None;
    }
    let mut options = scope.default_options.clone();
    let words: Vec<String> = remove_options(&line.words[options_index..], &["init-addr"]);
    options.read(&words, line, notes);
    let is_service = name.starts_with('_');
    let mut table = vec![Entry::new("name", name, position).essential()];
    if is_service {
        table.push(Entry::new("record", "SRV", position).essential());
    }
    table.extend(options.dns_keys(line, is_service));
    if let Some(port) = port {
        table.push(Entry::new("port", port, position).essential());
    }
    if let Some((name, position)) = &options.resolvers {
        let servers = context.resolvers.get(name).cloned().unwrap_or_default();
        let servers = servers.into_iter();
        let servers: Vec<Item> = servers
            .map(|(address, position)| Item::new(address, Some(position)))
            .collect();
        if !servers.is_empty() {
            table.push(Entry::new("resolvers", servers, *position));
        }
    }
    context.mark_used(line);
    match scope.cookie_entry(&options, notes) {
        // In the list of the name's servers, `#` would begin a comment.
        Some(_) if options.has_cookie_with('#') => {
            notes.add(
                position,
                "cookie is not imported: `servers_dns` does not accept `#` in it",
            );
        }
        entry => table.extend(entry),
    }
    let probes = scope.probes(context, &options, line, notes);
    options.complete_tls();
    let item = Item::new(table, Some(position));
    Some((DnsServers { item, probes }, options))
}

/// Returns the words without these options and their values.
fn remove_options(words: &[String], options: &[&str]) -> Vec<String> {
    let mut remaining = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if options.contains(&word.as_str()) {
            let _ = words.next();
        } else {
            remaining.push(word.clone());
        }
    }
    remaining
}

/// Keeps the TLS settings of the first server for the pool, and adds a note if the settings of `server` differ.
fn merge_tls(pool: &mut Option<Vec<Entry>>, server: Vec<Entry>, line: &Line, notes: &mut Notes) {
    match pool {
        None => *pool = Some(server),
        Some(first) if *first != server => notes.add(
            line.position,
            "TLS to servers is set per pool: the first server's settings are used, but this server's differ",
        ),
        Some(_) => {}
    }
}

/// The PROXY protocol version for servers, and its line.
type ProxyVersion = Option<(&'static str, Position)>;

/// Some settings are per server in haproxy and per pool in Weir. For these, keeps the first server's values, and adds
/// notes if the values in `options` differ.
fn merge_pool_settings(
    proxy_version: &mut Option<ProxyVersion>,
    slow_start: &mut Option<(u64, Position)>,
    options: &Options,
    line: &Line,
    notes: &mut Notes,
) {
    let version = |proxy_version: ProxyVersion| proxy_version.map(|(version, _)| version);
    match *proxy_version {
        None => *proxy_version = Some(options.send_proxy),
        Some(first) if version(first) != version(options.send_proxy) => notes.add(
            line.position,
            "`proxy_protocol` is set per pool: the first server's setting is used, but this server's differs",
        ),
        Some(_) => {}
    }
    match (*slow_start, options.slow_start) {
        (Some((first, _)), Some((server_time, _))) if first != server_time => notes.add(
            line.position,
            "slowstart is not imported: `slow_start` is set per pool, but an earlier server has a different time",
        ),
        (None, server_time) => *slow_start = server_time,
        _ => {}
    }
}

fn push_scheduler(
    context: &mut Context<'_>,
    entries: &mut Vec<Entry>,
    proxy: &Proxy,
    notes: &mut Notes,
) {
    if let Some(entry) = stick_on_text(context, proxy, notes) {
        return entries.push(entry);
    }
    let Some(line) = proxy.last(&["balance"]) else {
        entries.push(Entry::implied("scheduler", scheduler("roundrobin")));
        return;
    };
    context.mark_used(line);
    for line in ["hash-type", "hash-preserve-affinity"]
        .iter()
        .filter_map(|word| proxy.last(&[word]))
    {
        notes.remark(
            line.position,
            "not imported: the `hash` scheduler is always consistent, and `source` keeps clients on their servers",
        );
    }
    let position = line.position;
    let word = line.word(1).unwrap_or("");
    let (name, argument) = match word.split_once('(') {
        Some((name, rest)) => (name, rest.trim_end_matches(')')),
        None => (word, line.word(2).unwrap_or("")),
    };
    let key = match name {
        "hash" => match hash_key(line.word(2).unwrap_or("")) {
            Some(None) => {
                entries.push(Entry::new("scheduler", scheduler("source"), position));
                return;
            }
            Some(Some(key)) => key,
            None => {
                return line.reject(
                    notes,
                    "a scheduler's `key` does not support this expression",
                );
            }
        },
        "roundrobin" | "static-rr" | "leastconn" | "source" | "first" | "random" => {
            entries.push(Entry::new("scheduler", scheduler(name), position));
            return;
        }
        "uri" if line.words.iter().any(|word| word == "whole") => "uri".to_owned(),
        "uri" => "path".to_owned(),
        "url_param" => format!("query:{argument}"),
        "hdr" => format!("header:{argument}"),
        _ => return line.reject(notes, "Weir does not have this scheduler"),
    };
    let mut table = vec![
        Entry::new("name", "hash", position).essential(),
        Entry::new("key", key, position).essential(),
    ];
    if let Some(factor) = proxy.last(&["hash-balance-factor"]) {
        let percent = factor.word(1).and_then(|word| word.parse::<u64>().ok());
        if let Some(percent) = percent.filter(|percent| *percent > 0) {
            context.mark_used(factor);
            let mut entry = Entry::new("max_load", 0_u32, factor.position);
            entry.item.value = Value::Hundredths(percent);
            table.push(entry);
        }
    }
    for option in ["depth", "len", "check_post", "use_domain_only"] {
        if line.words.iter().any(|word| word == option) {
            notes.add(
                position,
                format!("{option} is not imported: `key` has no such option"),
            );
        }
    }
    entries.push(Entry::new("scheduler", table, position));
}

/// Converts `stick on hdr(X-User)` to the `hash` scheduler, which sends requests with the same text to the same server.
fn stick_on_text(context: &mut Context<'_>, proxy: &Proxy, notes: &mut Notes) -> Option<Entry> {
    let line = proxy.last(&["stick", "on"]).filter(|_| proxy.is_http())?;
    let [_, _, expression] = line.words.as_slice() else {
        return None;
    };
    // A server sets a cookie in its first response, but the hash of that cookie can select a different server.
    let key = hash_key(expression)??;
    if key.starts_with("cookie:") {
        return None;
    }
    let table = proxy.last(&["stick-table", "type"])?;
    if table.words.iter().any(|word| word == "store") {
        return None;
    }
    context.mark_used(line);
    context.mark_used(table);
    let reason = "imported as the `hash` scheduler: a hash of the text selects the server, instead of `balance` and a \
                  stick table";
    for line in [Some(line), proxy.last(&["balance"])].into_iter().flatten() {
        context.mark_used(line);
        notes.remark(line.position, reason);
    }
    let keys = vec![
        Entry::new("name", "hash", line.position).essential(),
        Entry::new("key", key, line.position).essential(),
    ];
    Some(Entry::new("scheduler", keys, line.position))
}

/// Returns the key for `balance hash EXPRESSION`: `Some(None)` for the client's address, `None` if Weir has no such
/// key.
fn hash_key(expression: &str) -> Option<Option<String>> {
    let (fetch, argument) = match expression
        .strip_suffix(')')
        .and_then(|it| it.split_once('('))
    {
        Some((fetch, argument)) => (fetch, argument),
        None => (expression, ""),
    };
    Some(Some(match (fetch, argument) {
        ("src", "") => return Some(None),
        ("path", "") => "path".to_owned(),
        ("pathq" | "url", "") => "uri".to_owned(),
        (_, "") => return None,
        ("hdr" | "req.hdr", name) if !name.contains(',') => format!("header:{name}"),
        ("url_param" | "urlp", name) if !name.contains(',') => format!("query:{name}"),
        ("cook" | "req.cook", name) if !name.contains(',') => format!("cookie:{name}"),
        _ => return None,
    }))
}

/// Adds `sticky` for `cookie SRV insert indirect nocache`.
fn push_sticky(
    context: &mut Context<'_>,
    entries: &mut Vec<Entry>,
    proxy: &Proxy,
    notes: &mut Notes,
) {
    let Some(line) = proxy.last(&["cookie"]) else {
        return;
    };
    let Some(name) = line.word(1) else {
        return line.reject(notes, "haproxy requires the cookie's name");
    };
    context.mark_used(line);
    let (mut mode, mut is_private) = ("", false);
    let mut attributes = vec!["Path=/".to_owned()];
    let mut words = line.words.iter().skip(2).map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "insert" | "rewrite" | "prefix" => mode = word,
            "indirect" => {}
            "nocache" => is_private = true,
            "httponly" => attributes.push("HttpOnly".to_owned()),
            "secure" => attributes.push("Secure".to_owned()),
            "domain" => attributes.extend(words.next().map(|domain| format!("Domain={domain}"))),
            "attr" => attributes.extend(words.next().map(str::to_owned)),
            "maxidle" | "maxlife" => {
                words.next();
                notes.add(
                    line.position,
                    format!("{word} is not imported: `sticky` has no such key"),
                );
            }
            other => notes.add(
                line.position,
                format!("{other} is not imported: `sticky` has no such key"),
            ),
        }
    }
    if mode.is_empty() {
        return line.reject(
            notes,
            "`mode` in `sticky` must be insert, rewrite or prefix",
        );
    }
    let mut table = vec![
        Entry::new("cookie", name, line.position).essential(),
        Entry::new("mode", mode, line.position).essential(),
    ];
    if mode == "insert" && is_private {
        table.push(Entry::new("private", true, line.position));
    }
    if mode == "insert" {
        table.push(Entry::new(
            "attributes",
            attributes.join("; "),
            line.position,
        ));
    }
    entries.push(Entry::new("sticky", table, line.position));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_expressions_become_keys_of_the_hash_scheduler() {
        let key = |text: &str| Some(Some(text.to_owned()));
        for (expression, expected) in [
            ("src", Some(None)),
            ("path", key("path")),
            ("url", key("uri")),
            ("pathq", key("uri")),
            ("hdr(X-A)", key("header:X-A")),
            ("req.hdr(X-A)", key("header:X-A")),
            ("urlp(p)", key("query:p")),
            ("cook(c)", key("cookie:c")),
            ("hdr(X-A,1)", None),
            ("hdr", None),
            ("rand", None),
            ("src(1)", None),
        ] {
            assert_eq!(hash_key(expression), expected, "{expression}");
        }
    }
}
