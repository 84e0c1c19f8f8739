//! `upstream`: pools.

use std::collections::{HashMap, HashSet};

use super::Context;
use super::target::resolved;
use super::tree::Node;
use crate::document::Entry;
use crate::layer7::{Group, Upstream};
use crate::note::{Notes, Place};

/// The upstreams by their names, and which of them something leads to.
#[derive(Debug, Default)]
pub(super) struct Upstreams {
    named: HashMap<String, Node>,
    led_to: HashSet<String>,
}

impl Upstreams {
    pub(super) fn read(&mut self, node: &Node, notes: &mut Notes) {
        match node.word(1) {
            Some(name) if !self.named.contains_key(name) => {
                self.named.insert(name.to_owned(), node.clone());
            }
            Some(_) => node.refuse(
                notes,
                "there is one of this name already, and nginx refuses the file",
            ),
            None => node.refuse(notes, "it has no name"),
        }
    }

    pub(super) fn get(&mut self, name: &str) -> Option<Node> {
        let found = self.named.get(name)?.clone();
        self.led_to.insert(name.to_owned());
        Some(found)
    }

    /// Says of those that nothing leads to.
    pub(super) fn unused(&self, notes: &mut Notes) {
        for (name, node) in &self.named {
            if !self.led_to.contains(name) {
                node.refuse(notes, "nothing leads to it that Weir could carry over");
            }
        }
    }
}

/// Writes the pool of an upstream; `tls` are the keys of its `tls`, and the port where none is written.
pub(super) fn write(
    context: &mut Context<'_>,
    node: &Node,
    tls: Vec<Entry>,
    port: u16,
    notes: &mut Notes,
) -> String {
    let mut entries = vec![];
    let mut scheduler = Entry::implied("scheduler", "round_robin");
    let mut servers = Vec::new();
    for inner in node.inner() {
        match inner.keyword() {
            "server" => servers.extend(server(context, inner, port, notes)),
            "least_conn" | "ip_hash" => {
                scheduler = Entry::new("scheduler", inner.keyword(), inner.place);
            }
            "random" => scheduler = Entry::new("scheduler", "random", inner.place),
            "least_time" => scheduler = Entry::new("scheduler", "least-time", inner.place),
            "hash" => match inner.word(1).and_then(hash_key) {
                Some(key) => {
                    let table = vec![
                        Entry::new("name", "hash", inner.place).essential(),
                        Entry::new("key", key, inner.place).essential(),
                    ];
                    scheduler = Entry::new("scheduler", table, inner.place);
                }
                None => inner.refuse(
                    notes,
                    "`key` is the source, the URI, the path, a field, a cookie or a parameter",
                ),
            },
            "sticky" if inner.word(1) == Some("cookie") && inner.word(2).is_some() => {
                sticky(&mut entries, inner, notes);
            }
            // Read by the services that lead here.
            "keepalive" if keepalive(node).is_some() => {}
            "keepalive" => inner.refuse(notes, "nginx wants a number"),
            "keepalive_requests" => inner.refuse(notes, "`limits.server_requests` is a service's"),
            "zone" | "keepalive_timeout" | "keepalive_time" | "resolver" | "resolver_timeout" => {
                inner.refuse(notes, "Weir does as is best by itself");
            }
            _ => inner.refuse(notes, "a pool has no such key"),
        }
    }
    entries.insert(0, scheduler);
    if !tls.is_empty() {
        entries.push(Entry::implied("tls", tls));
    }
    let name = context.writer.names.take(node.word(1).unwrap_or("pool"));
    context.writer.group(Group {
        from: node.place,
        name: name.clone(),
        entries,
        servers,
        probes: Vec::new(),
        lines: node.lines(),
    });
    name
}

/// `keepalive N` of an upstream.
pub(super) fn keepalive(node: &Node) -> Option<(u64, Place)> {
    let line = node
        .inner()
        .iter()
        .find(|inner| inner.keyword() == "keepalive")?;
    Some((line.word(1)?.parse().ok()?, line.place))
}

/// `sticky cookie NAME expires=1h domain=… path=…`.
fn sticky(entries: &mut Vec<Entry>, node: &Node, notes: &mut Notes) {
    let mut attributes = Vec::new();
    for word in &node.words[3..] {
        match word.split_once('=') {
            Some(("path", path)) => attributes.push(format!("Path={path}")),
            Some(("domain", domain)) => attributes.push(format!("Domain={domain}")),
            Some(("samesite", same)) => attributes.push(format!("SameSite={same}")),
            None if word == "secure" => attributes.push("Secure".to_owned()),
            None if word == "httponly" => attributes.push("HttpOnly".to_owned()),
            _ => notes.say(
                node.place,
                format!("{word} is not carried over: `sticky` has no such key"),
            ),
        }
    }
    // nginx sends no attribute that is not written here; Weir would add its own.
    let table = vec![
        Entry::new("cookie", node.words[2].as_str(), node.place).essential(),
        Entry::new("attributes", attributes.join("; "), node.place),
    ];
    entries.push(Entry::new("sticky", table, node.place));
}

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

fn server(context: &Context<'_>, node: &Node, port: u16, notes: &mut Notes) -> Option<Upstream> {
    let Some(address) = node.word(1) else {
        node.refuse(notes, "it has no address");
        return None;
    };
    let address = match resolved(context.world, address, port) {
        Ok(address) => address,
        Err(why) => {
            node.refuse(notes, &why);
            return None;
        }
    };
    let place = node.place;
    let mut entries = vec![Entry::new("address", address, place).essential()];
    for word in node.words.iter().skip(2) {
        let (name, value) = word.split_once('=').unwrap_or((word, ""));
        let number = value.parse::<u64>().ok();
        match (name, number) {
            ("weight", Some(1)) | ("max_conns", Some(0)) => {}
            ("weight", Some(weight)) => entries.push(Entry::new("weight", weight, place)),
            ("max_conns", Some(most)) => entries.push(Entry::new("max_connections", most, place)),
            // Used like the others it would be another server than was meant.
            ("backup", _) => entries.push(Entry::new("backup", true, place).essential()),
            ("down", _) => {
                entries.retain(|entry| entry.key != "weight");
                entries.push(Entry::new("weight", 0_u32, place));
                notes.say(place, "it is down: weight = 0; `weir server POOL/ADDRESS maint` says so without the file");
            }
            ("max_fails" | "fail_timeout", _) => {
                notes.say(place, format!("{name} is not carried over: add a `check` to the pool, or leave it to retries"));
            }
            ("slow_start", _) => notes.say(
                place,
                "slow_start is not carried over: it is the pool's, with a check",
            ),
            _ => notes.say(
                place,
                format!("{word} is not carried over: a server of Weir has no such key"),
            ),
        }
    }
    Some(Upstream {
        from: place,
        entries,
        probes: Vec::new(),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Alone;
    use crate::document::Value;

    /// What `attributes` becomes; a nginx of Debian has no `sticky`, so the corpus cannot hold it.
    fn attributes(line: &str) -> Option<String> {
        let mut notes = Notes::default();
        let nodes = super::super::tree::read(&Alone, &mut notes, "f", line);
        let mut entries = Vec::new();
        sticky(&mut entries, &nodes[0], &mut notes);
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
    fn a_cookie_has_the_attributes_that_nginx_sends_and_no_others() {
        assert_eq!(attributes("sticky cookie SRV;").as_deref(), Some(""));
        assert_eq!(
            attributes("sticky cookie SRV path=/x samesite=strict secure;").as_deref(),
            Some("Path=/x; SameSite=strict; Secure")
        );
    }
}
