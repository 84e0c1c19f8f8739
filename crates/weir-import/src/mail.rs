//! Writes email alerts about state changes: `[notify.mail]`.

use crate::document::{Document, Entry, Item, Table};
use crate::note::Position;

/// A value and its source line.
pub(crate) type PositionedText = (String, Position);

/// The email alerts that another program sends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mail {
    pub(crate) to: Vec<PositionedText>,
    pub(crate) from: Option<PositionedText>,
    /// The mail server as `HOST:PORT`.
    pub(crate) server: Option<PositionedText>,
    /// Pools whose changes are reported; empty for all pools.
    pub(crate) pools: Vec<String>,
}

impl Mail {
    /// Returns whether both have the same recipients, sender and mail server.
    fn has_same_delivery(&self, other: &Self) -> bool {
        let texts = |mail: &Self| -> Vec<String> {
            let all = mail.to.iter().chain(&mail.from).chain(&mail.server);
            all.map(|(text, _)| text.clone()).collect()
        };
        texts(self) == texts(other)
    }
}

/// Writes a table for each combination of recipients, sender and mail server. Skips alerts without a recipient.
pub(crate) fn write(mails: Vec<Mail>, document: &mut Document) {
    let mut merged: Vec<Mail> = Vec::new();
    for mail in mails {
        match merged
            .iter_mut()
            .find(|existing| existing.has_same_delivery(&mail))
        {
            Some(existing) => existing.pools.extend(mail.pools),
            None => merged.push(mail),
        }
    }
    let merged = merged.into_iter().filter(|mail| !mail.to.is_empty());
    for (index, mail) in merged.enumerate() {
        let Some((_, first)) = mail.to.first() else {
            continue;
        };
        let name = match index {
            0 => "mail".to_owned(),
            _ => format!("mail-{}", index + 1),
        };
        let mut table = Table::new(&["notify", &name], *first);
        if !mail.pools.is_empty() {
            table.push(Entry::implied("pools", mail.pools));
        }
        let recipients = mail.to.iter();
        let recipients = recipients.map(|(to, position)| Item::new(to.as_str(), Some(*position)));
        let recipients: Vec<Item> = recipients.collect();
        table.push(Entry::new("mail", recipients, *first).essential());
        for (key, text) in [("mail_from", mail.from), ("mail_server", mail.server)] {
            table
                .entries
                .extend(text.map(|(text, position)| Entry::new(key, text, position)));
        }
        document.push(table);
    }
}

/// Returns the mail server as `HOST:PORT`; the default port is 25.
pub(crate) fn server_address(host: &str, port: Option<&str>) -> String {
    let host = match host.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => host.to_owned(),
    };
    format!("{host}:{}", port.unwrap_or("25"))
}
