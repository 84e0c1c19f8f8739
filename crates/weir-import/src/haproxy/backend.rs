//! `backend` and the backend half of `listen`: pools.

use super::check::Checks;
use super::line::Line;
use super::section::Proxy;
use super::server::{self, Options};
use super::{Context, time};
use crate::document::{Entry, Value};
use crate::layer7::{Group, Upstream};
use crate::note::{Notes, Place};
use crate::probe::Probe;
use crate::time::show;

pub(super) fn write(context: &mut Context<'_>, proxy: &Proxy, notes: &mut Notes) {
    let checks = Checks::read(context, proxy, notes);
    let mut shared = Options::default();
    for line in proxy.defaults.iter().chain(&proxy.lines) {
        if line.keyword() == "default-server" {
            context.uses(line);
            shared.read(&line.words[1..], line, notes);
        }
    }
    let mut servers = Vec::new();
    let mut tls = None;
    let mut told = None;
    let mut slow = None;
    let mut names = None;
    for line in &proxy.lines {
        match line.keyword() {
            "server" => {
                let found = server::server(context, line, &shared, &checks, proxy, notes);
                let Some((server, options)) = found else {
                    continue;
                };
                context.uses(line);
                servers.push(server);
                of_pool(&mut told, &mut slow, &options, line, notes);
                same(&mut tls, options.tls, line, notes);
            }
            "server-template" if names.is_none() => {
                names = template(context, line, &shared, &checks, proxy, notes);
                if let Some((_, options)) = &mut names {
                    of_pool(&mut told, &mut slow, options, line, notes);
                    same(&mut tls, std::mem::take(&mut options.tls), line, notes);
                }
            }
            "server-template" => line.refuse(notes, "a pool has its servers from one name"),
            "use-server" => line.refuse(notes, "routes choose pools, not servers"),
            "source" => line.refuse(notes, "connections to servers leave by any address"),
            _ => {}
        }
    }
    let mut probes = Vec::new();
    let mut entries = Vec::new();
    if let Some((named, _)) = names {
        entries.push(named.entry);
        probes = named.probes;
    }
    if let Some((millis, place)) = slow {
        entries.push(Entry::new("slow_start", show(millis), place));
        servers.iter_mut().for_each(refine_weight);
    }
    scheduler(context, &mut entries, proxy, notes);
    if let Some(line) = proxy.last(&["timeout", "queue"]) {
        context.uses(line);
        match line.word(2).and_then(time) {
            Some(millis) => entries.push(Entry::new("queue_timeout", show(millis), line.place)),
            None => line.refuse(notes, "haproxy wants a time"),
        }
    }
    sticky(context, &mut entries, proxy, notes);
    if let Some((version, place)) = told.flatten() {
        // Servers that wait for it understand nothing else.
        entries.push(Entry::new("proxy_protocol", version, place).essential());
    }
    if let Some(tls) = tls.filter(|tls| !tls.is_empty()) {
        entries.push(Entry::implied("tls", tls));
    }
    if servers.is_empty()
        && !entries.iter().any(|entry| entry.key == "servers_dns")
        && proxy.takes_clients
        && !proxy.lines.iter().any(|line| line.keyword() == "server")
    {
        // A listen without servers has rules alone.
        return;
    }
    let name = context.writer.names.take(&proxy.name);
    context.pools.insert(proxy.name.clone(), name.clone());
    context.writer.group(Group {
        from: proxy.place,
        name,
        entries,
        servers,
        probes,
        lines: proxy.lines.iter().map(|line| line.place).collect(),
    });
}

/// A weight grows in whole steps, and haproxy's in sixteenths of one: the servers' proportions stay, and there are steps.
fn refine_weight(server: &mut Upstream) {
    const STEPS: u64 = 100;
    let weight = server.entries.iter_mut().find(|it| it.key == "weight");
    match weight.map(|entry| &mut entry.item.value) {
        Some(Value::Integer(weight)) => *weight *= STEPS,
        _ => server.entries.push(Entry::implied("weight", STEPS)),
    }
}

/// Servers that a name service knows.
struct Named {
    entry: Entry,
    probes: Vec<Probe>,
}

/// `server-template web 1-10 _http._tcp.web.example resolvers dns check`.
fn template(
    context: &mut Context<'_>,
    line: &Line,
    shared: &Options,
    checks: &Checks,
    proxy: &Proxy,
    notes: &mut Notes,
) -> Option<(Named, Options)> {
    let (Some(_), Some(_), Some(address)) = (line.word(1), line.word(2), line.word(3)) else {
        line.refuse(notes, "haproxy wants a prefix, a number and a name");
        return None;
    };
    let place = line.place;
    let (name, port) = match address.rsplit_once(':') {
        Some((name, port)) => match port.parse::<u64>() {
            Ok(port) => (name, Some(port)),
            Err(_) => {
                line.refuse(notes, &format!("{port} is no port"));
                return None;
            }
        },
        None => (address, None),
    };
    if name.parse::<std::net::IpAddr>().is_ok() {
        line.refuse(notes, "it is an address, and servers are listed");
        return None;
    }
    let mut options = shared.clone();
    let words: Vec<String> = without(&line.words[4..], &["resolvers", "init-addr"]);
    options.read(&words, line, notes);
    options.own_of_no_server(line, notes);
    let mut table = vec![Entry::new("name", name, place).essential()];
    if name.starts_with('_') {
        table.push(Entry::new("record", "SRV", place).essential());
    }
    if let Some(port) = port {
        table.push(Entry::new("port", port, place).essential());
    }
    context.uses(line);
    notes.say(
        place,
        "servers are as many as the name has, and the machine's resolvers are asked; `resolvers` names others",
    );
    let probes = checks.of(context, &options, proxy, line, notes);
    options.settle_tls();
    let entry = Entry::new("servers_dns", table, place).essential();
    Some((Named { entry, probes }, options))
}

/// Words but for those options and what stands behind each.
fn without(words: &[String], options: &[&str]) -> Vec<String> {
    let mut kept = Vec::new();
    let mut words = words.iter();
    while let Some(word) = words.next() {
        if options.contains(&word.as_str()) {
            let _ = words.next();
        } else {
            kept.push(word.clone());
        }
    }
    kept
}

/// TLS with servers is the pool's: the first server's, and the others' if it is the same.
fn same(pool: &mut Option<Vec<Entry>>, server: Vec<Entry>, line: &Line, notes: &mut Notes) {
    match pool {
        None => *pool = Some(server),
        Some(first) if *first != server => notes.say(
            line.place,
            "TLS with servers is the pool's, and this server's is another than the first one's",
        ),
        Some(_) => {}
    }
}

/// The version by which servers are told of clients, and the line that says so.
type Told = Option<(&'static str, Place)>;

/// What servers have for themselves in haproxy and is the pool's here: the first one's.
fn of_pool(
    told: &mut Option<Told>,
    slow: &mut Option<(u64, Place)>,
    options: &Options,
    line: &Line,
    notes: &mut Notes,
) {
    let version = |told: Told| told.map(|(version, _)| version);
    match *told {
        None => *told = Some(options.send_proxy),
        Some(first) if version(first) != version(options.send_proxy) => notes.say(
            line.place,
            "`proxy_protocol` is the pool's, and this server is told otherwise than the first one",
        ),
        Some(_) => {}
    }
    match (*slow, options.slow_start) {
        (Some((first, _)), Some((own, _))) if first != own => notes.say(
            line.place,
            "slowstart is not carried over: `slow_start` is the pool's, and has another server's time",
        ),
        (None, own) => *slow = own,
        _ => {}
    }
}

fn scheduler(
    context: &mut Context<'_>,
    entries: &mut Vec<Entry>,
    proxy: &Proxy,
    notes: &mut Notes,
) {
    let Some(line) = proxy.last(&["balance"]) else {
        entries.push(Entry::implied("scheduler", "roundrobin"));
        return;
    };
    context.uses(line);
    let place = line.place;
    let word = line.word(1).unwrap_or("");
    let (name, argument) = match word.split_once('(') {
        Some((name, rest)) => (name, rest.trim_end_matches(')')),
        None => (word, line.word(2).unwrap_or("")),
    };
    let key = match name {
        "roundrobin" | "static-rr" | "leastconn" | "source" | "first" | "random" => {
            entries.push(Entry::new("scheduler", name, place));
            return;
        }
        "uri" if line.words.iter().any(|word| word == "whole") => "uri".to_owned(),
        "uri" => "path".to_owned(),
        "url_param" => format!("query:{argument}"),
        "hdr" => format!("header:{argument}"),
        _ => return line.refuse(notes, "Weir balances by nothing of the kind"),
    };
    let mut table = vec![
        Entry::new("name", "hash", place).essential(),
        Entry::new("key", key, place).essential(),
    ];
    if let Some(factor) = proxy.last(&["hash-balance-factor"]) {
        let percent = factor.word(1).and_then(|word| word.parse::<u64>().ok());
        if let Some(percent) = percent.filter(|percent| *percent > 0) {
            context.uses(factor);
            let mut entry = Entry::new("max_load", 0_u32, factor.place);
            entry.item.value = Value::Hundredths(percent);
            table.push(entry);
        }
    }
    for option in ["depth", "len", "check_post", "use_domain_only"] {
        if line.words.iter().any(|word| word == option) {
            notes.say(
                place,
                format!("{option} is not carried over: `key` has no such word"),
            );
        }
    }
    entries.push(Entry::new("scheduler", table, place));
}

/// `cookie SRV insert indirect nocache`.
fn sticky(context: &mut Context<'_>, entries: &mut Vec<Entry>, proxy: &Proxy, notes: &mut Notes) {
    let Some(line) = proxy.last(&["cookie"]) else {
        return;
    };
    let Some(name) = line.word(1) else {
        return line.refuse(notes, "haproxy wants the name of the cookie");
    };
    context.uses(line);
    let mut mode = "";
    let mut attributes = vec!["Path=/".to_owned()];
    let mut words = line.words.iter().skip(2).map(String::as_str);
    while let Some(word) = words.next() {
        match word {
            "insert" | "rewrite" | "prefix" => mode = word,
            "indirect" => {}
            "httponly" => attributes.push("HttpOnly".to_owned()),
            "secure" => attributes.push("Secure".to_owned()),
            "domain" => attributes.extend(words.next().map(|domain| format!("Domain={domain}"))),
            "attr" => attributes.extend(words.next().map(str::to_owned)),
            "maxidle" | "maxlife" => {
                words.next();
                notes.say(
                    line.place,
                    format!("{word} is not carried over: `sticky` has no such key"),
                );
            }
            other => notes.say(
                line.place,
                format!("{other} is not carried over: `sticky` has no such key"),
            ),
        }
    }
    if mode.is_empty() {
        return line.refuse(
            notes,
            "a cookie that is only read is not carried over: `sticky` is insert, rewrite or prefix",
        );
    }
    let mut table = vec![
        Entry::new("cookie", name, line.place).essential(),
        Entry::new("mode", mode, line.place).essential(),
    ];
    if mode == "insert" {
        table.push(Entry::new("attributes", attributes.join("; "), line.place));
    }
    entries.push(Entry::new("sticky", table, line.place));
}
