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
    /// Returns whether both alerts have the same recipients, sender and mail server.
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

#[cfg(test)]
mod tests {
    use super::*;

    /// Returns email alerts with these recipients, sender, server and pool; an empty text means none.
    fn mail(to: &[&str], from: &str, server: &str, pool: &str) -> Mail {
        let text = |text: &str| (text.to_owned(), Position::FIRST);
        let optional = |value: &str| (!value.is_empty()).then(|| text(value));
        Mail {
            to: to.iter().map(|it| text(it)).collect(),
            from: optional(from),
            server: optional(server),
            pools: optional(pool).into_iter().map(|(pool, _)| pool).collect(),
        }
    }

    fn rendered(mails: Vec<Mail>) -> String {
        let mut document = Document::default();
        write(mails, &mut document);
        document.render().text
    }

    #[test]
    fn pools_with_the_same_delivery_share_a_table() {
        let mails = vec![
            mail(&["a@x"], "f@x", "m:25", "p"),
            mail(&["a@x"], "f@x", "m:25", "q"),
            mail(&[], "f@x", "m:25", "none"),
            mail(&["b@x"], "f@x", "m:25", "r"),
            mail(&["a@x"], "g@x", "m:25", "s"),
            mail(&["a@x"], "f@x", "n:25", "t"),
        ];
        assert_eq!(
            rendered(mails),
            "[notify.mail]\npools = [\"p\", \"q\"]\nmail = [\"a@x\"]\nmail_from = \"f@x\"\n\
             mail_server = \"m:25\"\n\n\
             [notify.mail-2]\npools = [\"r\"]\nmail = [\"b@x\"]\nmail_from = \"f@x\"\n\
             mail_server = \"m:25\"\n\n\
             [notify.mail-3]\npools = [\"s\"]\nmail = [\"a@x\"]\nmail_from = \"g@x\"\n\
             mail_server = \"m:25\"\n\n\
             [notify.mail-4]\npools = [\"t\"]\nmail = [\"a@x\"]\nmail_from = \"f@x\"\n\
             mail_server = \"n:25\"\n"
        );
    }

    #[test]
    fn mail_without_pools_or_sender_has_only_recipients() {
        let text = rendered(vec![mail(&["a@x", "b@x"], "", "", "")]);
        assert_eq!(text, "[notify.mail]\nmail = [\"a@x\", \"b@x\"]\n");
        assert_eq!(rendered(vec![mail(&[], "f@x", "m:25", "p")]), "");
    }

    #[test]
    fn mail_server_has_a_port_and_ipv6_has_brackets() {
        for (host, port, expected) in [
            ("mail.example", None, "mail.example:25"),
            ("mail.example", Some("587"), "mail.example:587"),
            ("192.0.2.1", None, "192.0.2.1:25"),
            ("2001:db8::1", Some("26"), "[2001:db8::1]:26"),
        ] {
            assert_eq!(server_address(host, port), expected);
        }
    }
}
