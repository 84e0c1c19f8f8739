//! Converts `email-alert` lines to email notifications about the servers of a backend.

use super::Context;
use super::section::Proxy;
use crate::mail::{Mail, PositionedText};
use crate::note::Notes;

/// Adds the email alerts of a backend; `mailers` contains the first mailer of each `mailers` section.
pub(super) fn write(
    context: &mut Context<'_>,
    proxy: &Proxy,
    mailers: &[(String, PositionedText)],
    notes: &mut Notes,
) {
    let Some(pool) = context.pools.get(&proxy.name).cloned() else {
        return;
    };
    let setting = |word: &str| {
        let line = proxy.last(&["email-alert", word])?;
        Some((line.word(2)?.to_owned(), line.position))
    };
    let (Some((name, position)), Some(to)) = (setting("mailers"), setting("to")) else {
        return;
    };
    let Some((_, server)) = mailers.iter().find(|(section, _)| *section == name) else {
        notes.add(
            position,
            format!("not imported: there is no mailers section {name}"),
        );
        return;
    };
    let from = setting("from");
    let used_lines = [
        Some(position),
        Some(to.1),
        Some(server.1),
        from.as_ref().map(|(_, position)| *position),
    ];
    context.used.extend(used_lines.into_iter().flatten());
    context.writer.mails.push(Mail {
        to: vec![to],
        from,
        server: Some(server.clone()),
        pools: vec![pool],
    });
}
