//! Converts `stream` blocks to TCP services, with routes by TLS server name.

use std::cmp::Reverse;

use super::listen::read_listens;
use super::target::{Url, find_or_write_pool};
use super::tree::Node;
use super::{Context, log, parse_time, unsupported_reason};
use crate::document::{Entry, Item, Table};
use crate::layer7::{Action, Condition};
use crate::note::{Notes, Position};
use crate::time::format_millis;

/// Writes the services of a `stream` block.
pub(super) fn write(context: &mut Context<'_>, stream: &Node, notes: &mut Notes) {
    for node in stream
        .inner()
        .iter()
        .filter(|node| node.keyword() == "upstream")
    {
        context.upstreams.read(node, notes);
    }
    let maps: Vec<&Node> = stream
        .inner()
        .iter()
        .filter(|node| is_name_map(node))
        .collect();
    let servers = stream.inner().iter();
    for node in servers.filter(|node| node.keyword() == "server") {
        write_server(context, node, stream.inner(), &maps, notes);
    }
    for node in stream.inner() {
        match node.keyword() {
            "upstream" | "server" => {}
            "map" | "access_log" | "log_format" if is_handled(context, node, notes) => {}
            keyword => node.reject(notes, unsupported_reason(keyword)),
        }
    }
    context.upstreams.note_unused(notes);
}

/// Returns whether a line was imported, or has a note.
fn is_handled(context: &Context<'_>, line: &Node, notes: &Notes) -> bool {
    context.used.contains(&line.position) || notes.has_note(line.position)
}

/// Returns whether a directive is `map $ssl_preread_server_name $name`, which selects pools by TLS server name.
fn is_name_map(node: &Node) -> bool {
    node.keyword() == "map"
        && node.word(1) == Some("$ssl_preread_server_name")
        && node.word(2).is_some_and(|name| name.starts_with('$'))
}

/// The targets of a stream.
struct Targets {
    /// The pool for connections to which no name applies.
    pool: String,
    /// Host names with their pools and lines.
    by_name: Vec<(String, String, Position)>,
    /// Whether Weir reads the TLS server name.
    reads_name: bool,
}

/// Reads the target of a `proxy_pass`: an upstream, an address, or the variable of a map of TLS server names.
fn read_targets(
    context: &mut Context<'_>,
    node: &Node,
    line: &Node,
    maps: &[&Node],
    notes: &mut Notes,
) -> Result<Targets, String> {
    const COMPUTED: &str =
        "the target is computed; routes of a `tcp` service match only the TLS server name";
    let mut pool_of = |host: &str, position: &Node| {
        let url = Url {
            tls: false,
            host: host.to_owned(),
            path: None,
        };
        find_or_write_pool(context, &url, (Vec::new(), None), position, notes)
            .map(|found| found.pool)
    };
    let target = line.word(1).unwrap_or("");
    if !target.contains('$') {
        let reads_name = false;
        return Ok(Targets {
            pool: pool_of(target, line)?,
            by_name: Vec::new(),
            reads_name,
        });
    }
    let name = target.replace(['{', '}'], "");
    let mut maps = maps.iter();
    let map = maps
        .find(|map| map.word(2) == Some(&name))
        .ok_or(COMPUTED)?;
    let reads_name = |line: &Node| line.keyword() == "ssl_preread" && line.word(1) == Some("on");
    if !node.inner().iter().any(reads_name) {
        return Err("the TLS server name is unknown without `ssl_preread on`".to_owned());
    }
    let with_hostnames = map.inner().iter().any(|line| line.keyword() == "hostnames");
    let (mut by_name, mut default) = (Vec::new(), None);
    for entry in map.inner() {
        match entry.words.as_slice() {
            [word] if word == "hostnames" || word == "volatile" => {}
            [key, value] if value.contains('$') => {
                return Err(format!("the pool of `{key}` is computed"));
            }
            [key, value] if key == "default" => default = Some(pool_of(value, entry)?),
            [key, value] => {
                let pool = pool_of(value, entry)?;
                for host in route_hosts(key, with_hostnames)? {
                    by_name.push((host, pool.clone(), entry.position));
                }
            }
            _ => return Err(COMPUTED.to_owned()),
        }
    }
    // Exact names come first, then names with `*`, longest first, then regular expressions.
    by_name.sort_by_key(|(host, ..)| match host {
        host if host.starts_with('~') => (2, Reverse(0)),
        host if host.contains('*') => (1, Reverse(host.len())),
        _ => (0, Reverse(0)),
    });
    context.used.insert(map.position);
    context.used.extend(map.block_positions());
    let pool = match default {
        Some(pool) => pool,
        None => context.writer.pool_without_servers(map.position),
    };
    Ok(Targets {
        pool,
        by_name,
        reads_name: true,
    })
}

/// Returns the values of `host` for a key of a map.
fn route_hosts(key: &str, with_hostnames: bool) -> Result<Vec<String>, String> {
    let lower = key.to_ascii_lowercase();
    match key {
        _ if key.starts_with('~') => Ok(vec![key.to_owned()]),
        "" => Err("a route cannot match connections without a server name".to_owned()),
        _ if with_hostnames && key.starts_with('.') => {
            Ok(vec![lower[1..].to_owned(), format!("*{lower}")])
        }
        _ if key.contains('*') && !with_hostnames => Err(format!(
            "without `hostnames`, `*` in {key} is a literal character"
        )),
        _ => Ok(vec![lower]),
    }
}

/// Writes the service of a server block; `outer` are the lines of `stream`.
fn write_server(
    context: &mut Context<'_>,
    node: &Node,
    outer: &[Node],
    maps: &[&Node],
    notes: &mut Notes,
) {
    let addresses = read_listens(node, context.environment, false, notes);
    let (udp, tcp): (Vec<_>, Vec<_>) = addresses.into_iter().partition(|listen| listen.udp);
    if let Some(udp) = udp.first() {
        notes.add(
            udp.position,
            "not imported: `forward = \"proxy\"` supports only TCP; use `forward = \"nat\"` for UDP",
        );
    }
    let Some(line) = node
        .inner()
        .iter()
        .find(|line| line.keyword() == "proxy_pass")
    else {
        return node.reject(notes, "the target is missing");
    };
    if tcp.is_empty() {
        return node.reject(notes, "Weir cannot listen on any address of this block");
    }
    let targets = match read_targets(context, node, line, maps, notes) {
        Ok(targets) => targets,
        Err(reason) => return node.reject(notes, &reason),
    };
    let port = tcp[0].address.rsplit(':').next().unwrap_or("");
    let name = context.services.claim(&format!("stream-{port}"));
    let mut table = Table::new(&["service", &name], node.position);
    let listen: Vec<Item> = tcp
        .iter()
        .map(|listen| Item::new(listen.address.as_str(), Some(listen.position)))
        .collect();
    table.push(Entry::implied("listen", listen).essential());
    table.push(Entry::implied("forward", "proxy").essential());
    table.push(Entry::implied("protocol", "tcp").essential());
    table.push(Entry::new("pool", targets.pool, line.position).essential());
    let timeouts = timeout_keys(node, targets.reads_name, notes);
    if !timeouts.is_empty() {
        table.push(Entry::implied("timeouts", timeouts));
    }
    if tcp.iter().any(|listen| listen.tls) {
        node.reject(
            notes,
            "TLS in streams is not imported; set `tls` of the service",
        );
        return;
    }
    table
        .entries
        .extend(log::stream_log(context, node, outer, notes));
    table.dependent_lines = node.block_positions();
    context.writer.document.push(table);
    for (host, pool, position) in targets.by_name {
        let condition = Condition {
            host: Some(host),
            ..Condition::default()
        };
        let action = Action::Pool(pool);
        context.writer.route(&name, position, &condition, &action);
    }
}

/// Returns the keys of `timeouts`, and adds notes about the other lines.
fn timeout_keys(node: &Node, reads_name: bool, notes: &mut Notes) -> Vec<Entry> {
    let mut timeouts = Vec::new();
    for line in node.inner() {
        match line.keyword() {
            "listen" | "proxy_pass" | "access_log" => {}
            "ssl_preread" if reads_name => {}
            "ssl_preread" => notes.remark(
                line.position,
                "not imported: the target does not depend on the server name",
            ),
            key @ ("proxy_connect_timeout" | "proxy_timeout") => {
                let weir_key = if key == "proxy_timeout" {
                    "tunnel"
                } else {
                    "connect"
                };
                match line
                    .word(1)
                    .and_then(parse_time)
                    .filter(|millis| *millis > 0)
                {
                    Some(millis) => {
                        timeouts.push(Entry::new(weir_key, format_millis(millis), line.position))
                    }
                    None => line.reject(notes, "invalid time"),
                }
            }
            keyword => line.reject(notes, unsupported_reason(keyword)),
        }
    }
    timeouts
}
