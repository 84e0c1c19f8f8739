//! `[notify.NAME]`: messages about changes of state.

use std::time::Duration;

/// A receiver of messages about servers, pools and services that change their state.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Notifier {
    /// Name, unique.
    pub name: String,
    /// Pools whose changes are sent; empty = all.
    pub pools: Vec<String>,
    /// New states that are sent; empty = all.
    pub states: Vec<String>,
    /// Shortest time between two messages; changes in between are sent in one.
    pub interval: Duration,
    /// Program and arguments; empty = none.
    pub command: Vec<String>,
    /// User that the program runs as.
    pub user: String,
    /// Web server that gets the changes as JSON.
    pub webhook: Option<Webhook>,
    /// Recipients of a mail.
    pub mail: Option<Mail>,
}

impl Notifier {
    /// Default of `interval`.
    pub const INTERVAL: Duration = Duration::from_secs(10);
    /// Default of `user`.
    pub const USER: &str = "nobody";

    /// Whether a change is sent.
    pub fn wants(&self, pool: &str, state: &str) -> bool {
        let lists =
            |list: &[String], value: &str| list.is_empty() || list.iter().any(|it| it == value);
        lists(&self.pools, pool) && lists(&self.states, state)
    }
}

/// `http://HOST[:PORT]/PATH`.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Webhook {
    /// Name or address, and the port: `hooks.example:80`.
    pub authority: String,
    /// Path and query.
    pub path: String,
}

impl Webhook {
    /// Parses a URL.
    ///
    /// # Errors
    /// What is wrong, for a diagnostic.
    pub fn parse(url: &str) -> Result<Self, &'static str> {
        let Some(rest) = url.strip_prefix("http://") else {
            return Err("the URL must begin with `http://`");
        };
        let is_plain = |byte: u8| byte.is_ascii_graphic();
        if !rest.bytes().all(is_plain) {
            return Err("the URL contains a space or a character that is not ASCII");
        }
        let at = rest.find('/').unwrap_or(rest.len());
        let (authority, path) = rest.split_at(at);
        if authority.is_empty() || authority.contains(['@', '?', '#']) {
            return Err("the URL has no host, or a user");
        }
        let has_port = authority
            .rsplit_once(':')
            .is_some_and(|(_, port)| port.parse::<u16>().is_ok());
        Ok(Self {
            authority: if has_port {
                authority.to_owned()
            } else {
                format!("{authority}:80")
            },
            path: if path.is_empty() { "/" } else { path }.to_owned(),
        })
    }
}

/// A mail by SMTP (RFC 5321), without TLS, for a mail server on this host or network.
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

    /// Whether a text is a mailbox without delimiters of the protocol: `a@b`.
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
    fn webhook_has_an_authority_and_a_path() {
        let hook = |url| Webhook::parse(url).map(|hook| (hook.authority, hook.path));
        let of = |authority: &str, path: &str| Ok((authority.to_owned(), path.to_owned()));
        assert_eq!(hook("http://h"), of("h:80", "/"));
        assert_eq!(hook("http://h:8080/a?b"), of("h:8080", "/a?b"));
        assert_eq!(hook("http://[::1]:9/x"), of("[::1]:9", "/x"));
        assert_eq!(hook("http://[::1]/x"), of("[::1]:80", "/x"));
        for wrong in ["https://h", "http:///x", "http://u@h/", "http://h/a b", "h"] {
            assert!(hook(wrong).is_err(), "{wrong}");
        }
    }

    #[test]
    fn mailbox_contains_no_delimiter_of_smtp() {
        assert!(Mail::is_mailbox("root@localhost"));
        for wrong in ["root", "@h", "a@", "a b@h", "a@h>\r\nDATA", "<a@h>"] {
            assert!(!Mail::is_mailbox(wrong), "{wrong}");
        }
    }

    #[test]
    fn empty_filters_want_everything() {
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
        assert!(notifier.wants("web", "down"));
        notifier.pools = vec!["web".to_owned()];
        notifier.states = vec!["down".to_owned()];
        assert!(notifier.wants("web", "down"));
        assert!(!notifier.wants("web", "up") && !notifier.wants("app", "down"));
    }
}
