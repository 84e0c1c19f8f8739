//! `stream`: TCP services.

use super::listen::listens;
use super::target::{Url, pool};
use super::tree::Node;
use super::{Context, reason, time};
use crate::document::{Entry, Item, Table};
use crate::note::Notes;
use crate::time::format_millis;

pub(super) fn write(context: &mut Context<'_>, stream: &Node, notes: &mut Notes) {
    for node in stream
        .inner()
        .iter()
        .filter(|node| node.keyword() == "upstream")
    {
        context.upstreams.read(node, notes);
    }
    for node in stream.inner() {
        match node.keyword() {
            "upstream" => {}
            "server" => server(context, node, notes),
            keyword => node.reject(notes, reason(keyword)),
        }
    }
    context.upstreams.unused(notes);
}

fn server(context: &mut Context<'_>, node: &Node, notes: &mut Notes) {
    let found = listens(node, context.environment, false, notes);
    let (udp, tcp): (Vec<_>, Vec<_>) = found.into_iter().partition(|listen| listen.udp);
    if let Some(udp) = udp.first() {
        notes.add(
            udp.position,
            "not imported: the proxy only supports TCP; use forward = \"nat\" for UDP",
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
        return node.reject(notes, "it has no address that Weir can listen on");
    }
    let to = line.word(1).unwrap_or("");
    let pool_ref = if to.contains('$') {
        Err(
            "the target is computed; routes of a `tcp` service match the TLS server name"
                .to_owned(),
        )
    } else {
        let url = Url {
            tls: false,
            host: to.to_owned(),
            path: None,
        };
        pool(context, &url, (Vec::new(), None), line, notes)
    };
    let pool_ref = match pool_ref {
        Ok(pool_ref) => pool_ref,
        Err(why) => return node.reject(notes, &why),
    };
    let port = tcp[0].address.rsplit(':').next().unwrap_or("");
    let name = context.services.take(&format!("stream-{port}"));
    let mut table = Table::new(&["service", &name], node.position);
    let listen: Vec<Item> = tcp
        .iter()
        .map(|listen| Item::new(listen.address.as_str(), Some(listen.position)))
        .collect();
    table.push(Entry::implied("listen", listen).essential());
    table.push(Entry::implied("forward", "proxy").essential());
    table.push(Entry::implied("protocol", "tcp").essential());
    table.push(Entry::new("pool", pool_ref.pool, line.position).essential());
    let timeouts = timeouts(node, notes);
    if !timeouts.is_empty() {
        table.push(Entry::implied("timeouts", timeouts));
    }
    if tcp.iter().any(|listen| listen.tls) {
        node.reject(
            notes,
            "TLS of a stream is not imported: see `tls` of a service",
        );
        return;
    }
    table.covers = node.lines();
    context.writer.document.push(table);
}

/// Keys of `timeouts`; the other lines are not supported.
fn timeouts(node: &Node, notes: &mut Notes) -> Vec<Entry> {
    let mut timeouts = Vec::new();
    for line in node.inner() {
        match line.keyword() {
            "listen" | "proxy_pass" => {}
            key @ ("proxy_connect_timeout" | "proxy_timeout") => {
                let ours = if key == "proxy_timeout" {
                    "tunnel"
                } else {
                    "connect"
                };
                match line.word(1).and_then(time).filter(|millis| *millis > 0) {
                    Some(millis) => {
                        timeouts.push(Entry::new(ours, format_millis(millis), line.position))
                    }
                    None => line.reject(notes, "it is not a valid time"),
                }
            }
            keyword => line.reject(notes, reason(keyword)),
        }
    }
    timeouts
}
