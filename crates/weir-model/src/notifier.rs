//! Defines the settings of `[notify.NAME]`, which sends messages about state changes.

use std::time::Duration;

use crate::HttpReceiver;

/// A receiver of messages about state changes of servers, pools and services.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Notifier {
    /// Name, unique.
    pub name: String,
    /// Pools to report on; empty = all.
    pub pools: Vec<String>,
    /// New states to report; empty = all.
    pub states: Vec<String>,
    /// Minimum time between two messages. A message contains all changes since the previous one.
    pub interval: Duration,
    /// Program and arguments; empty = none.
    pub command: Vec<String>,
    /// User that the program runs as.
    pub user: String,
    /// Web server that receives the changes as JSON.
    pub webhook: Option<HttpReceiver>,
    /// Mail server, sender and recipients of emails.
    pub mail: Option<Mail>,
}

impl Notifier {
    /// Default of `interval`.
    pub const INTERVAL: Duration = Duration::from_secs(10);
    /// Default of `user`.
    pub const USER: &str = "nobody";

    /// Returns whether a pool's change to a state is reported.
    pub fn matches(&self, pool: &str, state: &str) -> bool {
        let is_selected =
            |list: &[String], value: &str| list.is_empty() || list.iter().any(|it| it == value);
        is_selected(&self.pools, pool) && is_selected(&self.states, state)
    }
}

/// Settings for emails that are sent over SMTP (RFC 5321) without TLS, through a mail server on this host or network.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Mail {
    /// `ADDRESS:PORT` of the mail server.
    pub server: String,
    /// Sender.
    pub from: String,
    /// Recipients, at least one.
    pub to: Vec<String>,
}

impl Mail {
    /// Default of `mail_server`.
    pub const SERVER: &str = "127.0.0.1:25";

    /// Returns whether a text is a mailbox (`a@b`) of at most 254 bytes that contains no delimiters of the protocol.
    pub fn is_mailbox(text: &str) -> bool {
        let is_plain = |byte: u8| byte.is_ascii_graphic() && !b"<>,;:\"()[]\\".contains(&byte);
        text.len() <= 254
            && text.bytes().all(is_plain)
            && matches!(text.split_once('@'), Some((name, host)) if !name.is_empty() && !host.is_empty())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn mailbox_has_two_parts_and_no_smtp_delimiters() {
        assert!(Mail::is_mailbox("root@localhost"));
        for text in ["root", "@h", "a@", "a b@h", "a@h>\r\nDATA", "<a@h>"] {
            assert!(!Mail::is_mailbox(text), "{text}");
        }
    }

    #[test]
    fn filters_select_changes_by_pool_and_state() {
        let mut notifier = Notifier {
            name: "n".to_owned(),
            pools: Vec::new(),
            states: Vec::new(),
            interval: Notifier::INTERVAL,
            command: Vec::new(),
            user: Notifier::USER.to_owned(),
            webhook: None,
            mail: None,
        };
        assert!(notifier.matches("web", "down"));
        notifier.pools = vec!["web".to_owned()];
        notifier.states = vec!["down".to_owned()];
        assert!(notifier.matches("web", "down"));
        assert!(!notifier.matches("web", "up") && !notifier.matches("app", "down"));
    }
}
