//! haproxy.cfg: frontends, backends and listens with their defaults; servers with their options; the common conditions.
//!
//! A frontend becomes a service for its plain binds and one for its binds with TLS, so that `ssl_fc` is known in each.

mod acl;
mod backend;
mod bind;
mod check;
mod criterion;
mod frontend;
mod header;
mod line;
mod path;
mod rule;
mod section;
mod server;
mod service;

use std::collections::{HashMap, HashSet};

use crate::layer4::Writer;
use crate::note::{Notes, Place};
use crate::settle::settle;
use crate::{Imported, World};

use line::Line;
use section::Proxy;

/// What the whole file is read into.
struct Context<'w> {
    world: &'w dyn World,
    writer: Writer,
    /// Names of pools by those of backends.
    pools: HashMap<String, String>,
    /// Lines that something came of, so that those of defaults are told once, if at all.
    used: HashSet<Place>,
}

/// Reads haproxy.cfg.
pub fn haproxy(name: &str, text: &str, world: &dyn World) -> Imported {
    let mut notes = Notes::default();
    let lines = line::lines(world, &mut notes, name, text);
    let file = section::read(lines, &mut notes);
    let mut context = Context {
        world,
        writer: Writer::default(),
        pools: HashMap::new(),
        used: HashSet::new(),
    };
    for line in &file.global {
        global(line, &mut notes);
    }
    for proxy in file.proxies.iter().filter(|proxy| proxy.has_servers) {
        backend::write(&mut context, proxy, &mut notes);
    }
    for proxy in file.proxies.iter().filter(|proxy| proxy.takes_clients) {
        frontend::write(&mut context, proxy, &file.proxies, &mut notes);
    }
    for proxy in &file.proxies {
        leftovers(&context, proxy, &mut notes);
    }
    settle(context.writer.document, notes)
}

impl Context<'_> {
    fn uses(&mut self, line: &Line) {
        self.used.insert(line.place);
    }
}

/// A time of haproxy: a number with `us`, `ms`, `s`, `m`, `h` or `d`, by itself milliseconds.
fn time(text: &str) -> Option<u64> {
    let end = text
        .find(|c: char| !c.is_ascii_digit())
        .unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    let number: u64 = number.parse().ok()?;
    number.checked_mul(match unit {
        "us" => return Some(number.div_ceil(1000)),
        "ms" | "" => 1,
        "s" => 1000,
        "m" => 60_000,
        "h" => 3_600_000,
        "d" => 86_400_000,
        _ => return None,
    })
}

fn global(line: &Line, notes: &mut Notes) {
    let why = match line.keyword() {
        "log" | "log-tag" | "log-send-hostname" => "`access_log` of a service writes to a file",
        "maxconn" => "`limits.connections` stands in each service",
        "nbthread" | "nbproc" | "cpu-map" | "thread-groups" | "cpu-policy" => {
            "Weir has a worker for each processor"
        }
        "user" | "group" | "uid" | "gid" | "chroot" | "daemon" | "pidfile" | "node"
        | "description" => "how the process runs is its unit's matter",
        "stats" => "`weir status`, the unix socket and /metrics show what is going on",
        keyword if keyword.starts_with("ssl-") || keyword == "ca-base" || keyword == "crt-base" => {
            "Weir's own choice of TLS is taken; see `tls` of a service"
        }
        keyword if keyword.starts_with("tune.") => "Weir tunes itself",
        _ => "weir.toml has no place for it",
    };
    line.refuse(notes, why);
}

/// Says of every line that nothing came of and nothing was said of why.
fn leftovers(context: &Context<'_>, proxy: &Proxy, notes: &mut Notes) {
    for line in proxy.lines.iter().chain(&proxy.defaults) {
        if context.used.contains(&line.place) || notes.speaks_of(line.place) {
            continue;
        }
        line.refuse(notes, elsewhere(line));
    }
}

fn elsewhere(line: &Line) -> &'static str {
    let option = (line.keyword(), line.word(1).unwrap_or(""));
    match option {
        (
            "log" | "log-format" | "log-format-sd" | "error-log-format" | "unique-id-format"
            | "unique-id-header",
            _,
        )
        | (
            "option" | "no",
            "httplog"
            | "tcplog"
            | "httpslog"
            | "dontlognull"
            | "dontlog-normal"
            | "logasap"
            | "log-health-checks"
            | "log-separate-errors",
        ) => "`access_log` of a service writes to a file",
        ("option", "redispatch") => "Weir tries another server in any case, `limits.retries` times",
        (
            "option",
            "http-keep-alive" | "http-tunnel" | "prefer-last-server" | "tcp-smart-connect"
            | "tcp-smart-accept" | "clitcpka" | "srvtcpka" | "tcpka",
        ) => "Weir keeps connections in any case",
        (
            "option",
            "splice-auto" | "splice-request" | "splice-response" | "contstats" | "http-no-delay",
        ) => "Weir does as is best by itself",
        ("option", "http-buffer-request") => "`request_buffering` is a service's of protocol http",
        ("http-reuse" | "fullconn" | "backlog" | "max-keep-alive-queue" | "tune", _) => {
            "Weir does as is best by itself"
        }
        ("stats" | "monitor-uri" | "monitor" | "monitor-net", _) => {
            "`weir status`, the unix socket and /metrics show what is going on"
        }
        ("errorfile", _) => {
            "`error_pages` of a service takes files by their whole path, one for each status"
        }
        ("errorloc" | "errorloc302" | "errorloc303" | "errorfiles" | "http-error", _) => {
            "`error_pages` of a service names files, a status each"
        }
        ("stick-table" | "stick" | "tcp-request" | "tcp-response", _) => {
            "Weir has no tables of clients; see `sticky` of a pool and `limits`"
        }
        ("compression", _) => "`compression` of a service has no such word",
        ("filter" | "cache", _) => "Weir has neither filters nor a cache",
        (
            "http-request" | "http-response",
            "set-header" | "del-header" | "add-header" | "replace-path",
        ) => "there is no client that it is for",
        ("http-response" | "http-after-response" | "rspadd" | "rspidel" | "rspdel", _) => {
            "a route cannot say it; see `set_response_header`, `remove_response_header`"
        }
        ("http-request", "normalize-uri") => {
            "`normalize_path` of a service is for what its frontend compares"
        }
        ("http-request" | "reqadd" | "reqidel" | "reqrep" | "reqirep" | "reqdel", _) => {
            "a route cannot say it; see `rewrite`, `set_header`, `remove_header`"
        }
        ("hash-type" | "hash-balance-factor" | "hash-preserve-affinity", _) => {
            "`hash` of Weir is consistent in any case, and of another function"
        }
        ("email-alert", _) => "Weir sends no mail; `notify` of a pool calls a program",
        ("description" | "id" | "guid", _) => "a remark",
        ("retry-on", _) => "a service has `retry_on` from its default backend alone",
        ("timeout", _) => {
            "`timeouts` of a service has no such key, or the service has it from another pool"
        }
        ("tcp-check" | "http-check" | "external-check", _) => "no check here has a place for it",
        ("acl", _) => "no route here needs it",
        ("default_backend" | "use_backend", _) => "there is no bind whose clients it would be for",
        _ => "weir.toml has no place for it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_have_units() {
        assert_eq!(time("5s"), Some(5000));
        assert_eq!(time("30"), Some(30));
        assert_eq!(time("1500us"), Some(2));
        assert_eq!(time("2m"), Some(120_000));
        assert_eq!(time("x"), None);
        assert_eq!(time("99999999999999999999d"), None);
        assert_eq!(time("999999999999d"), None);
    }
}
