//! Lowers `[notify.NAME]`.

use std::ops::Range;

use weir_model::{Mail, Notifier};

use super::check::command;
use super::tracing::receiver;
use crate::catalog::{NOTIFY, NOTIFY_STATES};
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::suggest::nearest;
use crate::tree::{Entry, Table};
use crate::view::{Sink, View, keyword, text};

/// Lowers `[notify.NAME]`; `pools` are the names of all pools.
pub(super) fn notifier(
    sink: &mut Sink<'_>,
    entry: &Entry<'_>,
    table: &Table<'_>,
    pools: &[&str],
) -> Notifier {
    let view = View::open(sink, &NOTIFY, table, &entry.key_span);
    let notifier = Notifier {
        name: entry.key.to_string(),
        pools: pool_names(sink, &view, pools),
        states: states(sink, &view),
        interval: view
            .duration(sink, "interval")
            .unwrap_or(Notifier::INTERVAL),
        command: command(sink, &view, "command"),
        user: view
            .text(sink, "user")
            .map_or(Notifier::USER, |(user, _)| user)
            .to_owned(),
        webhook: receiver(
            sink,
            &view,
            "webhook",
            "webhook_ca",
            "https://hooks.example.com/path",
        ),
        mail: mail(sink, &view),
    };
    let has = |key| view.get(key).is_some();
    if !has("command") && !has("webhook") && !has("mail") {
        let message = format!("notify {} has no receiver", notifier.name);
        let fix = "add `command`, `webhook` or `mail`";
        sink.push(Diagnostic::new(Code::MissingKey, &entry.key_span, message).fix(fix));
    }
    notifier
}

fn pool_names(sink: &mut Sink<'_>, view: &View<'_, '_>, pools: &[&str]) -> Vec<String> {
    let Some((_, kind)) = view.get("pools") else {
        return Vec::new();
    };
    let mut names = Vec::new();
    for item in view.list(sink, "pools").unwrap_or_default() {
        let Some((name, span)) = text(sink, item, kind) else {
            continue;
        };
        if pools.contains(&name) {
            names.push(name.to_owned());
            continue;
        }
        let message = format!("pool `{}` does not exist", name.escape_debug());
        let fix = nearest(name, pools.iter().copied()).map_or_else(
            || format!("add [pool.{}]", name.escape_debug()),
            |near| format!("did you mean `{near}`?"),
        );
        sink.push(Diagnostic::new(Code::DanglingPool, span, message).fix(fix));
    }
    names
}

fn states(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Vec<String> {
    let items = view.list(sink, "states").unwrap_or_default();
    let states = items
        .iter()
        .filter_map(|item| keyword(sink, item, &NOTIFY_STATES));
    states.map(str::to_owned).collect()
}

fn mail(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Mail> {
    let (_, kind) = view.get("mail")?;
    let mut recipients = Vec::new();
    for item in view.list(sink, "mail").unwrap_or_default() {
        if let Some((mailbox, span)) = text(sink, item, kind) {
            recipients.extend(parse_mailbox(sink, mailbox, span));
        }
    }
    let sender = view.text(sink, "mail_from");
    let sender = sender.and_then(|(mailbox, span)| parse_mailbox(sink, mailbox, span));
    let server = view.text(sink, "mail_server");
    let server = server.map_or(Mail::SERVER, |(server, span)| {
        let port = server.rsplit_once(':').map(|(_, port)| port.parse::<u16>());
        if !matches!(port, Some(Ok(1..))) {
            let message = "`mail_server` needs a port from 1 to 65535";
            let fix = format!("write \"{}\"", Mail::SERVER);
            sink.push(Diagnostic::new(Code::BadText, span, message).fix(fix));
        }
        server
    });
    if recipients.is_empty() {
        return None;
    }
    Some(Mail {
        server: server.to_owned(),
        from: sender.unwrap_or_default(),
        to: recipients,
    })
}

fn parse_mailbox(sink: &mut Sink<'_>, text: &str, span: &Range<usize>) -> Option<String> {
    if Mail::is_mailbox(text) {
        return Some(text.to_owned());
    }
    let message = format!("`{}` is not an email address", text.escape_debug());
    sink.push(Diagnostic::new(Code::BadText, span, message).fix("write \"name@host.example\""));
    None
}
