//! Defines the `basic_auth` setting: users and the hashes of their passwords (RFC 7617).

use std::collections::BTreeMap;
use std::fmt;

named_enum! {
    /// Password hash format, recognized by its prefix.
    #[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
    pub enum PasswordHashFormat {
        /// `$2y$`, `$2b$`, `$2a$`, `$2x$`.
        Bcrypt = "bcrypt",
        /// `$apr1$`: Apache's MD5.
        Apr1 = "apr1",
        /// `{SHA}`: base64 of SHA-1, without salt.
        Sha1 = "SHA",
        /// `$5$` (crypt(5)).
        Sha256Crypt = "SHA-256 crypt",
        /// `$6$` (crypt(5)).
        Sha512Crypt = "SHA-512 crypt",
    }
}

impl PasswordHashFormat {
    /// Returns the format of a hash; `None` = unknown, for example a plain text password.
    pub fn of(hash: &str) -> Option<Self> {
        let formats = [
            ("$2y$", Self::Bcrypt),
            ("$2b$", Self::Bcrypt),
            ("$2a$", Self::Bcrypt),
            ("$2x$", Self::Bcrypt),
            ("$apr1$", Self::Apr1),
            ("{SHA}", Self::Sha1),
            ("$5$", Self::Sha256Crypt),
            ("$6$", Self::Sha512Crypt),
        ];
        let mut formats = formats.into_iter();
        let entry = formats.find(|(prefix, _)| hash.starts_with(prefix));
        entry.map(|(_, format)| format)
    }
}

/// Users who may send requests.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct BasicAuth {
    /// Realm that browsers show in the login prompt.
    pub realm: String,
    /// File from which the users were read.
    pub file: Option<String>,
    /// Password hashes, by user name.
    users: BTreeMap<String, String>,
}

impl BasicAuth {
    /// Default of [`realm`](Self::realm).
    pub const DEFAULT_REALM: &'static str = "Restricted";

    /// Creates a set of users. If a user occurs several times, the first entry applies, as in Apache and nginx.
    pub fn new(
        realm: String,
        file: Option<String>,
        users: impl IntoIterator<Item = (String, String)>,
    ) -> Self {
        let mut by_name = BTreeMap::new();
        for (name, hash) in users {
            by_name.entry(name).or_insert(hash);
        }
        Self {
            realm,
            file,
            users: by_name,
        }
    }

    /// Returns the hash of a user's password.
    pub fn hash_of(&self, user: &str) -> Option<&str> {
        self.users.get(user).map(String::as_str)
    }

    /// Returns the password hash of the user with this number, modulo the number of users. For an unknown user, the
    /// proxy verifies the password against this hash, so that the response time does not reveal which users exist.
    pub fn any_hash(&self, number: u64) -> Option<&str> {
        let index = number.checked_rem(self.users.len() as u64)?;
        let mut hashes = self.users.values().skip(usize::try_from(index).ok()?);
        hashes.next().map(String::as_str)
    }

    /// Returns the number of users.
    pub fn len(&self) -> usize {
        self.users.len()
    }

    /// Returns whether there are no users. If so, every request is rejected.
    pub fn is_empty(&self) -> bool {
        self.users.is_empty()
    }
}

/// Omits the password hashes.
impl fmt::Debug for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "BasicAuth({self})")
    }
}

/// Formats the settings as `realm "Staff", 3 users`.
impl fmt::Display for BasicAuth {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let plural = if self.len() == 1 { "" } else { "s" };
        write!(f, "realm {:?}, {} user{plural}", self.realm, self.len())?;
        match &self.file {
            None => Ok(()),
            Some(file) => write!(f, ", file {file}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_entry_of_a_user_applies_and_hashes_are_not_shown() {
        let entry = |name: &str, hash: &str| (name.to_owned(), hash.to_owned());
        let users = [entry("a", "{SHA}1"), entry("a", "{SHA}2")];
        let auth = BasicAuth::new("R".to_owned(), None, users);
        assert_eq!((auth.hash_of("a"), auth.len()), (Some("{SHA}1"), 1));
        assert_eq!(format!("{auth:?}"), "BasicAuth(realm \"R\", 1 user)");
        let users = [entry("a", "{SHA}1"), entry("b", "{SHA}2")];
        let auth = BasicAuth::new("R".to_owned(), None, users);
        let hashes = [2, 3].map(|number| auth.any_hash(number));
        assert_eq!(hashes, [Some("{SHA}1"), Some("{SHA}2")]);
        let none = BasicAuth::new("R".to_owned(), None, []);
        assert_eq!(none.any_hash(3), None);
        assert!(none.is_empty() && !auth.is_empty());
    }

    #[test]
    fn hash_format_is_recognized_by_prefix() {
        assert_eq!(
            PasswordHashFormat::of("$2y$05$x"),
            Some(PasswordHashFormat::Bcrypt)
        );
        assert_eq!(
            PasswordHashFormat::of("$6$x$y"),
            Some(PasswordHashFormat::Sha512Crypt)
        );
        for other in ["", "secret", "$1$x$y", "$7$x"] {
            assert_eq!(PasswordHashFormat::of(other), None);
        }
    }
}
