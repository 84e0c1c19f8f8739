//! Converts `upstream` blocks to pools.

use std::collections::{HashMap, HashSet};

use super::Context;
use super::target::{dns_entry, server_address};
use super::tree::Node;
use crate::document::{Entry, Item};
use crate::layer7::{self, PoolServer};
use crate::note::{Notes, Position};
use crate::scheduler::scheduler as as_scheduler;

/// Upstreams by name, and which of them are used.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    by_name: HashMap<String, Node>,
    /// Upstreams whose pool was written.
    used: HashSet<String>,
    /// Upstreams that a `proxy_pass` or another directive mentions.
    mentioned: HashSet<String>,
}

impl Upstreams {
    pub(super) fn read(&mut self, node: &Node, notes: &mut Notes) {
        match node.word(1) {
            Some(name) if !self.by_name.contains_key(name) => {
                self.by_name.insert(name.to_owned(), node.clone());
            }
            Some(_) => node.reject(
                notes,
                "an upstream with this name already exists; nginx rejects the file",
            ),
            None => node.reject(notes, "the name is missing"),
        }
    }

    /// Records which upstreams these directives mention. Returns the number of lookups, which does not depend on the
    /// number of upstreams.
    pub(super) fn record_mentions(&mut self, nodes: &[Node]) -> usize {
        let mut lookups = 0;
        for node in nodes {
            let words = node.words.get(1..).unwrap_or_default();
            let takes_no_upstream = matches!(node.keyword(), "rewrite" | "return");
            let is_target = node.keyword().ends_with("_pass")
                || !takes_no_upstream && words.iter().any(|word| word.contains('$'));
            let is_end = |c: char| !c.is_alphanumeric() && !"-._~".contains(c);
            let names = words.iter().flat_map(|word| word.split(is_end));
            for name in names.filter(|name| is_target && !name.is_empty()) {
                lookups += 1;
                if self.by_name.contains_key(name) {
                    self.mentioned.insert(name.to_owned());
                }
            }
            lookups += self.record_mentions(node.inner());
        }
        lookups
    }

    /// Returns an upstream, and records that it is used.
    pub(super) fn get(&mut self, name: &str) -> Option<Node> {
        let found = self.by_name.get(name)?.clone();
        self.used.insert(name.to_owned());
        Some(found)
    }

    /// Adds notes about unused upstreams.
    pub(super) fn note_unused(&self, notes: &mut Notes) {
        for (name, node) in &self.by_name {
            if !self.used.contains(name) {
                if self.mentioned.contains(name) {
                    node.reject(notes, "no directive that Weir supports uses this upstream");
                } else {
                    node.ignore(notes, "nothing uses this upstream");
                }
            }
        }
    }
}

/// Writes the pool of an upstream. `tls` are the keys of its `tls`; `port` is the default port.
pub(super) fn write(
    context: &mut Context<'_>,
    node: &Node,
    (tls, host): (Vec<Entry>, Option<Entry>),
    port: u16,
    notes: &mut Notes,
) -> String {
    let mut entries = vec![];
    let mut scheduler = Entry::implied("scheduler", as_scheduler("round_robin"));
    let mut servers = Vec::new();
    let mut names = Vec::new();
    for inner in node.inner() {
        match inner.keyword() {
            "server" => match inner
                .word(1)
                .and_then(|host| dns_entry(host, port, inner.position))
            {
                Some(name) => names.push(dns_server(name, inner, notes)),
                None => servers.extend(convert_server(context, inner, port, notes)),
            },
            "least_conn" | "ip_hash" => {
                scheduler = Entry::new("scheduler", as_scheduler(inner.keyword()), inner.position);
            }
            "random" => scheduler = Entry::new("scheduler", as_scheduler("random"), inner.position),
            "least_time" => scheduler = Entry::new("scheduler", "least-time", inner.position),
            "hash" => match inner.word(1).and_then(hash_key) {
                Some(key) => {
                    let table = vec![
                        Entry::new("name", "hash", inner.position).essential(),
                        Entry::new("key", key, inner.position).essential(),
                    ];
                    scheduler = Entry::new("scheduler", table, inner.position);
                }
                None => inner.reject(
                    notes,
                    "the `key` of `hash` accepts only the source, the URI, the path, a field, a cookie or a parameter",
                ),
            },
            "sticky" if inner.word(1) == Some("cookie") && inner.word(2).is_some() => {
                push_sticky(&mut entries, inner, notes);
            }
            // This line is imported as `limits.idle_servers` of the services.
            "keepalive" if keepalive(node).is_some() => {}
            "keepalive" => inner.reject(notes, "nginx requires a number"),
            "keepalive_requests" => {
                inner.reject(notes, "`limits.server_requests` is set per service")
            }
            "zone" | "keepalive_timeout" | "keepalive_time" | "resolver" | "resolver_timeout" => {
                notes.remark(inner.position, "not imported: a pool has no such key");
            }
            _ => inner.reject(notes, "a pool has no such key"),
        }
    }
    note_backups_of_full_servers(&servers, notes);
    entries.insert(0, scheduler);
    entries.extend(crate::layer7::servers_dns(names));
    if !tls.is_empty() {
        entries.push(Entry::implied("tls", tls));
    }
    entries.extend(host);
    let name = context.writer.names.claim(node.word(1).unwrap_or("pool"));
    context.writer.write_pool(layer7::Pool {
        position: node.position,
        name: name.clone(),
        entries,
        servers,
        probes: None,
        lines: node.block_positions(),
    });
    name
}

/// Adds a note to backup servers if other servers have `max_conns`.
fn note_backups_of_full_servers(servers: &[PoolServer], notes: &mut Notes) {
    let has = |server: &PoolServer, key| server.entries.iter().any(|entry| entry.key == key);
    let (backups, regular): (Vec<_>, Vec<_>) =
        servers.iter().partition(|server| has(server, "backup"));
    if regular.iter().any(|server| has(server, "max_connections")) {
        for backup in backups {
            notes.add(
                backup.position,
                "nginx also uses a backup while the other servers are at max_conns; in Weir, requests wait in the \
                 queue",
            );
        }
    }
}

/// Returns N from an upstream's line `keepalive N`, and the position of the line.
pub(super) fn keepalive(node: &Node) -> Option<(u64, Position)> {
    let line = node
        .inner()
        .iter()
        .find(|inner| inner.keyword() == "keepalive")?;
    Some((line.word(1)?.parse().ok()?, line.position))
}

/// Imports `sticky cookie NAME domain=… path=…`, and adds notes about options without an equivalent, such as `expires`.
fn push_sticky(entries: &mut Vec<Entry>, node: &Node, notes: &mut Notes) {
    let mut attributes = Vec::new();
    for word in &node.words[3..] {
        match word.split_once('=') {
            Some(("path", path)) => attributes.push(format!("Path={path}")),
            Some(("domain", domain)) => attributes.push(format!("Domain={domain}")),
            Some(("samesite", same)) => attributes.push(format!("SameSite={same}")),
            None if word == "secure" => attributes.push("Secure".to_owned()),
            None if word == "httponly" => attributes.push("HttpOnly".to_owned()),
            _ => notes.add(
                node.position,
                format!("{word} is not imported: `sticky` has no such key"),
            ),
        }
    }
    // nginx sends only the configured attributes; by default, Weir would add others.
    let table = vec![
        Entry::new("cookie", node.words[2].as_str(), node.position).essential(),
        Entry::new("attributes", attributes.join("; "), node.position),
    ];
    entries.push(Entry::new("sticky", table, node.position));
}

/// Returns Weir's `key` for a variable, or `None` if Weir has no equivalent.
pub(super) fn hash_key(text: &str) -> Option<String> {
    Some(match text {
        "$remote_addr" | "$binary_remote_addr" => "source".to_owned(),
        "$request_uri" => "uri".to_owned(),
        "$uri" | "$document_uri" => "path".to_owned(),
        "$host" | "$http_host" => "header:Host".to_owned(),
        text => {
            if let Some(name) = text.strip_prefix("$http_") {
                format!("header:{}", name.replace('_', "-"))
            } else if let Some(name) = text.strip_prefix("$cookie_") {
                format!("cookie:{name}")
            } else {
                format!("query:{}", text.strip_prefix("$arg_")?)
            }
        }
    })
}

/// Returns an entry of `servers_dns` with the options of its `server` line.
fn dns_server(name: Vec<Entry>, node: &Node, notes: &mut Notes) -> Item {
    let mut entries = name;
    entries.extend(server_options(node, notes));
    Item::new(entries, Some(node.position))
}

fn convert_server(
    context: &Context<'_>,
    node: &Node,
    port: u16,
    notes: &mut Notes,
) -> Option<PoolServer> {
    let Some(address) = node.word(1) else {
        node.reject(notes, "the address is missing");
        return None;
    };
    let address = match server_address(context.environment, address, port) {
        Ok(address) => address,
        Err(reason) => {
            node.reject(notes, &reason);
            return None;
        }
    };
    let mut entries = vec![Entry::new("address", address, node.position).essential()];
    entries.extend(server_options(node, notes));
    Some(PoolServer {
        position: node.position,
        entries,
        probes: Vec::new(),
    })
}

/// Returns the keys for the options of a server.
fn server_options(node: &Node, notes: &mut Notes) -> Vec<Entry> {
    let position = node.position;
    let mut entries: Vec<Entry> = Vec::new();
    for word in node.words.iter().skip(2) {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let number = value.parse::<u64>().ok();
        match (name, number) {
            ("weight", Some(1)) | ("max_conns", Some(0)) => {}
            ("weight", Some(weight)) => entries.push(Entry::new("weight", weight, position)),
            ("max_conns", Some(max)) => entries.push(Entry::new("max_connections", max, position)),
            // Without this key, Weir would use the server as a regular server.
            ("backup", _) => entries.push(Entry::new("backup", true, position).essential()),
            ("down", _) => {
                entries.retain(|entry| entry.key != "weight");
                entries.push(Entry::new("weight", 0_u32, position));
                notes.remark(
                    position,
                    "down, so imported with weight = 0; `weir server POOL/ADDRESS maint` does this at run time",
                );
            }
            ("max_fails", Some(0)) => notes.add(
                position,
                "max_fails=0 is not imported: Weir ejects failing servers; `max_ejected` is set per pool",
            ),
            ("max_fails" | "fail_timeout", _) => {
                notes.remark(
                    position,
                    format!("{name} is not imported: Weir ejects failing servers; see `max_ejected`"),
                );
            }
            // Names are resolved at run time anyway.
            ("resolve", _) => {}
            ("slow_start", _) => notes.add(
                position,
                "slow_start is not imported: it is set per pool and requires a check",
            ),
            _ => notes.add(
                position,
                format!("{word} is not imported: a server in weir.toml has no such key"),
            ),
        }
    }
    entries
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::EmptyEnvironment;
    use crate::document::Value;

    /// Returns the `attributes` that are imported from a `sticky` line. Debian's nginx has no `sticky`, so the corpus
    /// cannot contain it.
    fn attributes(line: &str) -> Option<String> {
        let mut notes = Notes::default();
        let nodes = super::super::tree::read_file(&EmptyEnvironment, &mut notes, "f", line);
        let mut entries = Vec::new();
        push_sticky(&mut entries, &nodes[0], &mut notes);
        let Value::Table(table) = &entries[0].item.value else {
            return None;
        };
        let found = table.iter().find(|entry| entry.key == "attributes")?;
        match &found.item.value {
            Value::Text(text) => Some(text.clone()),
            _ => None,
        }
    }

    #[test]
    fn lookups_of_mentioned_upstreams_grow_linearly() {
        let lookups = |count: usize| {
            let mut notes = Notes::default();
            let lines = (0..count).map(|at| {
                format!(
                    "upstream u{at} {{ server 10.0.0.1; }} server {{ location / {{ \
                     proxy_pass http://u{at}; }} }}\n"
                )
            });
            let text: String = lines.collect();
            let nodes = super::super::tree::read_file(&EmptyEnvironment, &mut notes, "f", &text);
            let mut upstreams = Upstreams::default();
            for node in nodes.iter().filter(|node| node.keyword() == "upstream") {
                upstreams.read(node, &mut notes);
            }
            let lookups = upstreams.record_mentions(&nodes);
            assert_eq!(upstreams.mentioned.len(), count);
            lookups
        };
        // A target has two words: `http` and the name.
        assert_eq!((lookups(100), lookups(400)), (200, 800));
    }

    #[test]
    fn sticky_cookie_has_only_the_configured_attributes() {
        assert_eq!(attributes("sticky cookie SRV;").as_deref(), Some(""));
        assert_eq!(
            attributes("sticky cookie SRV path=/x samesite=strict secure;").as_deref(),
            Some("Path=/x; SameSite=strict; Secure")
        );
    }

    #[test]
    fn variables_become_hash_keys() {
        for (text, expected) in [
            ("$remote_addr", Some("source")),
            ("$binary_remote_addr", Some("source")),
            ("$request_uri", Some("uri")),
            ("$uri", Some("path")),
            ("$document_uri", Some("path")),
            ("$host", Some("header:Host")),
            ("$http_host", Some("header:Host")),
            ("$http_x_a", Some("header:x-a")),
            ("$cookie_a_b", Some("cookie:a_b")),
            ("$arg_a_b", Some("query:a_b")),
            ("$host$uri", None),
            ("a", None),
        ] {
            assert_eq!(hash_key(text).as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn mentioned_upstreams_are_recorded() {
        for (lines, is_mentioned) in [
            ("proxy_pass http://app;", true),
            ("fastcgi_pass app;", true),
            ("proxy_pass http://app/;", true),
            ("proxy_pass http://app.x;", false),
            ("proxy_pass http://app-x;", false),
            ("set $app http://app;", true),
            ("set x app;", false),
            ("map $a $b { default app; }", false),
            ("map $a $b { default app$x; }", true),
            ("map $a $b { default \"app $x\"; }", true),
            ("rewrite ^ http://app/$1;", false),
            ("return 301 http://app$uri;", false),
            ("add_header X app;", false),
            ("location / { proxy_pass http://app; }", true),
        ] {
            let mut notes = Notes::default();
            let text = format!("upstream app {{ server 10.0.0.5; }} {lines}");
            let nodes = super::super::tree::read_file(&EmptyEnvironment, &mut notes, "f", &text);
            let mut upstreams = Upstreams::default();
            upstreams.read(&nodes[0], &mut notes);
            upstreams.record_mentions(&nodes[1..]);
            assert_eq!(upstreams.mentioned.contains("app"), is_mentioned, "{lines}");
        }
    }

    #[test]
    fn sticky_cookie_attributes_are_imported() {
        for (options, expected) in [
            ("domain=.a.example", "Domain=.a.example"),
            ("httponly", "HttpOnly"),
            ("secure httponly path=/", "Secure; HttpOnly; Path=/"),
            ("expires=1h", ""),
            ("other", ""),
        ] {
            let line = format!("sticky cookie SRV {options};");
            assert_eq!(attributes(&line).as_deref(), Some(expected), "{options}");
        }
    }
}
