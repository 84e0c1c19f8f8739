//! `email-alert`: mails about the servers of a backend.

use super::Context;
use super::section::Proxy;
use crate::mail::{Mail, Text};
use crate::note::Notes;

/// Adds the mails of a backend; `mailers` are the `mailers` sections with their first mailer.
pub(super) fn write(
    context: &mut Context<'_>,
    proxy: &Proxy,
    mailers: &[(String, Text)],
    notes: &mut Notes,
) {
    let Some(pool) = context.pools.get(&proxy.name).cloned() else {
        return;
    };
    let line = |what: &str| {
        let line = proxy.last(&["email-alert", what])?;
        Some((line.word(2)?.to_owned(), line.position))
    };
    let (Some((name, at)), Some(to)) = (line("mailers"), line("to")) else {
        return;
    };
    let Some((_, server)) = mailers.iter().find(|(known, _)| *known == name) else {
        notes.add(
            at,
            format!("not imported: there is no mailers section {name}"),
        );
        return;
    };
    let from = line("from");
    let used = [
        Some(at),
        Some(to.1),
        Some(server.1),
        from.as_ref().map(|it| it.1),
    ];
    context.used.extend(used.into_iter().flatten());
    context.writer.mails.push(Mail {
        to: vec![to],
        from,
        server: Some(server.clone()),
        pools: vec![pool],
    });
}
