//! Defines the etcd keys of a group. `docs/manual/cluster.md` documents them for other programs.

/// Prefix of the keys of all groups.
const ROOT: &str = "/weir/";
/// Maximum length of a group or member name, in bytes.
const NAME_MAX_BYTES: usize = 64;

/// The error for an invalid group or member name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("a name must be 1 to 64 characters long and contain only a-z, A-Z, 0-9, `-`, `_` and `.`")]
pub struct InvalidName;

/// Checks a group or member name.
///
/// # Errors
/// Returns an error if the name is empty, is longer than 64 bytes, or contains characters other than ASCII letters,
/// digits, `-`, `_` and `.`.
pub fn check_name(name: &str) -> Result<(), InvalidName> {
    let is_allowed = |c: char| c.is_ascii_alphanumeric() || "-_.".contains(c);
    let has_valid_length = (1..=NAME_MAX_BYTES).contains(&name.len());
    if has_valid_length && name.chars().all(is_allowed) {
        Ok(())
    } else {
        Err(InvalidName)
    }
}

/// A key of a group, without the prefix.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Key {
    /// The pointer to the published configuration.
    Current,
    /// The pointer to the last configuration that all members have applied.
    Complete,
    /// The pointer to the configuration that [`Self::Complete`] contained before.
    Previous,
    /// Why the rollout of a configuration was stopped.
    Stopped,
    /// The member whose turn it is to apply the configuration.
    Turn,
    /// A member that applies the configuration at the same time as others.
    Applying(String),
    /// A chunk of a configuration, by digest.
    Chunk(String),
    /// The record of a member, attached to its lease.
    Member(String),
    /// The VIPs that a member announces, attached to its lease.
    Serving(String),
    /// The servers that a member's checks report down, attached to its lease.
    Health(String),
    /// The override of a server, by pool and address as in the configuration.
    Override(String, String),
    /// A server added through the API, by pool and address.
    Server(String, String),
}

/// The keys of one group.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Keys {
    prefix: String,
}

impl Keys {
    /// Creates the keys of a group. `group` must be valid according to [`check_name`].
    pub fn new(group: &str) -> Self {
        Self {
            prefix: format!("{ROOT}{group}/"),
        }
    }

    /// Returns the prefix of all the group's keys.
    pub fn prefix(&self) -> &str {
        &self.prefix
    }

    /// Returns the end of the range of the group's keys (exclusive).
    pub fn end(&self) -> String {
        // The prefix ends in a slash; '0' follows it in ASCII.
        let mut end = self.prefix.clone();
        end.pop();
        end.push('0');
        end
    }

    /// Returns the full name of a key in etcd, including the prefix.
    pub fn name(&self, key: &Key) -> String {
        let prefix = &self.prefix;
        match key {
            Key::Current => format!("{prefix}config/current"),
            Key::Complete => format!("{prefix}config/complete"),
            Key::Previous => format!("{prefix}config/previous"),
            Key::Stopped => format!("{prefix}config/stopped"),
            Key::Turn => format!("{prefix}config/turn"),
            Key::Applying(member) => format!("{prefix}config/applying/{member}"),
            Key::Chunk(digest) => format!("{prefix}config/chunk/{digest}"),
            Key::Member(member) => format!("{prefix}member/{member}"),
            Key::Serving(member) => format!("{prefix}serving/{member}"),
            Key::Health(member) => format!("{prefix}health/{member}"),
            Key::Override(pool, server) => format!("{prefix}override/{pool}/{server}"),
            Key::Server(pool, server) => format!("{prefix}server/{pool}/{server}"),
        }
    }

    /// Parses the name of a key in etcd. Returns `None` for an unknown name, for example if another program or a later
    /// version wrote the key.
    pub fn parse(&self, name: &str) -> Option<Key> {
        let name = name.strip_prefix(&self.prefix)?;
        let (kind, suffix) = name.split_once('/')?;
        let parse_pair = || {
            let (pool, server) = suffix.split_once('/')?;
            (!server.is_empty()).then(|| (pool.to_owned(), server.to_owned()))
        };
        match (kind, suffix) {
            ("config", "current") => Some(Key::Current),
            ("config", "complete") => Some(Key::Complete),
            ("config", "previous") => Some(Key::Previous),
            ("config", "stopped") => Some(Key::Stopped),
            ("config", "turn") => Some(Key::Turn),
            ("config", _) => match suffix.split_once('/')? {
                ("chunk", digest) => Some(Key::Chunk(digest.to_owned())),
                ("applying", member) => {
                    check_name(member).ok()?;
                    Some(Key::Applying(member.to_owned()))
                }
                _ => None,
            },
            ("member" | "serving" | "health", _) if check_name(suffix).is_err() => None,
            ("member", _) => Some(Key::Member(suffix.to_owned())),
            ("serving", _) => Some(Key::Serving(suffix.to_owned())),
            ("health", _) => Some(Key::Health(suffix.to_owned())),
            ("override", _) => parse_pair().map(|(pool, server)| Key::Override(pool, server)),
            ("server", _) => parse_pair().map(|(pool, server)| Key::Server(pool, server)),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_key_round_trips() {
        let keys = Keys::new("edge");
        assert_eq!(
            (keys.prefix(), keys.end().as_str()),
            ("/weir/edge/", "/weir/edge0")
        );
        let owned = |text: &str| text.to_owned();
        for key in [
            Key::Current,
            Key::Complete,
            Key::Previous,
            Key::Stopped,
            Key::Turn,
            Key::Applying(owned("lb1")),
            Key::Chunk(owned("ab12")),
            Key::Member(owned("lb1")),
            Key::Serving(owned("lb1")),
            Key::Health(owned("lb1")),
            Key::Override(owned("web"), owned("[2001:db8::1]:80")),
            Key::Server(owned("web"), owned("10.0.0.5")),
        ] {
            let name = keys.name(&key);
            assert!(name.starts_with("/weir/edge/") && name < keys.end());
            assert_eq!(keys.parse(&name), Some(key));
        }
        for unknown in [
            "/weir/edge/",
            "/weir/edge2/member/a",
            "/weir/edge/new/a",
            "/weir/edge/server/a",
            "/weir/edge/member/a/b",
            "/weir/edge/member/\u{1b}[2J",
            "/weir/edge/config/applying/",
        ] {
            assert_eq!(keys.parse(unknown), None, "{unknown}");
        }
    }

    #[test]
    fn invalid_names_are_rejected() {
        assert_eq!(check_name("edge-1.example"), Ok(()));
        assert_eq!(check_name(&"x".repeat(64)), Ok(()));
        for name in ["", "a/b", "ä", "a b", &"x".repeat(65)] {
            assert_eq!(check_name(name), Err(InvalidName), "{name}");
        }
    }
}
