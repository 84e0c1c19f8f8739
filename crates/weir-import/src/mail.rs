//! Mails about changes of state: `[notify.mail]`.

use crate::document::{Document, Entry, Item, Table};
use crate::note::Position;

/// A text and its line.
pub(crate) type Text = (String, Position);

/// Mails that another program sends.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mail {
    pub(crate) to: Vec<Text>,
    pub(crate) from: Option<Text>,
    /// `HOST:PORT`.
    pub(crate) server: Option<Text>,
    /// Pools whose changes are sent; empty = all.
    pub(crate) pools: Vec<String>,
}

impl Mail {
    /// Whether both go to the same recipients in the same way.
    fn is_same_way(&self, other: &Self) -> bool {
        let texts = |mail: &Self| -> Vec<String> {
            let all = mail.to.iter().chain(&mail.from).chain(&mail.server);
            all.map(|(text, _)| text.clone()).collect()
        };
        texts(self) == texts(other)
    }
}

/// Writes a table for each way. Mails without a recipient are left out.
pub(crate) fn write(mails: Vec<Mail>, document: &mut Document) {
    let mut ways: Vec<Mail> = Vec::new();
    for mail in mails {
        match ways.iter_mut().find(|way| way.is_same_way(&mail)) {
            Some(way) => way.pools.extend(mail.pools),
            None => ways.push(mail),
        }
    }
    let ways = ways.into_iter().filter(|way| !way.to.is_empty());
    for (at, way) in ways.enumerate() {
        let Some((_, first)) = way.to.first() else {
            continue;
        };
        let name = match at {
            0 => "mail".to_owned(),
            _ => format!("mail-{}", at + 1),
        };
        let mut table = Table::new(&["notify", &name], *first);
        if !way.pools.is_empty() {
            table.push(Entry::implied("pools", way.pools));
        }
        let recipients = way.to.iter();
        let recipients = recipients.map(|(to, from)| Item::new(to.as_str(), Some(*from)));
        let recipients: Vec<Item> = recipients.collect();
        table.push(Entry::new("mail", recipients, *first).essential());
        for (key, text) in [("mail_from", way.from), ("mail_server", way.server)] {
            table
                .entries
                .extend(text.map(|(text, from)| Entry::new(key, text, from)));
        }
        document.push(table);
    }
}

/// The mail server of a host without or with a port.
pub(crate) fn server(host: &str, port: Option<&str>) -> String {
    let host = match host.parse::<std::net::Ipv6Addr>() {
        Ok(address) => format!("[{address}]"),
        Err(_) => host.to_owned(),
    };
    format!("{host}:{}", port.unwrap_or("25"))
}
