//! Converts `userlist` and `http-request auth` to `basic_auth` of routes.

use sha_crypt::{PasswordHasher as _, ShaCrypt};

use super::Context;
use super::acl::{Acls, Conversion};
use super::criterion::FrontendContext;
use super::line::Line;
use super::rule::condition;
use super::section::Proxy;
use crate::document::{Entry, Item};
use crate::note::Notes;

/// Returns the hash, in the format `$5$` of crypt(5), of a password that haproxy.cfg contains in plain text. The salt
/// is derived from the name, so the output is reproducible, and equal passwords of different users have different
/// hashes.
pub(super) fn hash_password(name: &str, password: &str) -> Option<String> {
    const SALT_BYTES: usize = 9;
    let mut salt = [0x57_u8; SALT_BYTES];
    for (index, byte) in name.bytes().enumerate() {
        salt[index % SALT_BYTES] = salt[index % SALT_BYTES].rotate_left(3) ^ byte;
    }
    let hash = ShaCrypt::SHA256.hash_password_with_salt(password.as_bytes(), &salt);
    hash.ok().map(|hash| hash.as_str().to_owned())
}

/// Returns whether a line is `http-request auth`.
pub(super) fn is_auth(line: &Line) -> bool {
    line.keyword() == "http-request" && line.word(1) == Some("auth")
}

/// Returns whether [`convert_auth`] supports the rule.
pub(super) fn is_supported(context: &Context<'_>, proxy: &Proxy, line: &Line) -> bool {
    let mut discarded = Notes::default();
    let acls = Acls::read(context.environment, &proxy.lines, &mut discarded);
    convert_auth(
        context,
        &acls,
        line,
        FrontendContext::default(),
        &mut discarded,
    )
    .is_some()
}

/// Returns the requests that require authentication, and `basic_auth`. Adds a note and returns `None` if the rule is
/// not supported.
pub(super) fn convert_auth(
    context: &Context<'_>,
    acls: &Acls,
    line: &Line,
    frontend: FrontendContext<'_>,
    notes: &mut Notes,
) -> Option<(Conversion, Vec<Entry>)> {
    let (action, words) = condition(line.arguments());
    let with_authentication = |valid: bool| FrontendContext {
        authenticated: Some(valid),
        ..frontend.for_line(line)
    };
    // The rule must apply only to requests without a valid password.
    let exempts_users = acls.condition(words, with_authentication(true)) == Conversion::Never;
    let mut requests = acls.condition(words, with_authentication(false));
    let list_name = acls.all_words(words);
    let list_name = list_name.iter().find_map(|word| {
        let rest = word.strip_prefix("http_auth(")?;
        rest.split(')').next()
    });
    let users = list_name.and_then(|list_name| context.users.get(list_name));
    let Some(users) = users.filter(|_| exempts_users) else {
        line.reject(
            notes,
            "Weir responds with status 401 instead; write the users to a file and set the route's `basic_auth`",
        );
        return None;
    };
    if let Conversion::Unsupported(reason) = &requests {
        // A lost access rule must not admit clients.
        let reason =
            format!("{reason}; the route requires a password for more requests than the rule");
        line.reject(notes, &reason);
        requests = acls.broadened_condition(words, with_authentication(false));
    }
    let mut entries = Vec::new();
    for user in users {
        match &user.hash {
            Some(hash) => {
                let text = format!("{}:{hash}", user.name);
                entries.push(Item::new(text, Some(user.position)));
            }
            None => notes.add(
                user.position,
                "not imported: `basic_auth` does not support the hash; the user gets status 401",
            ),
        }
    }
    let realm = action.iter().position(|word| word == "realm");
    let realm = realm.and_then(|index| action.get(index + 1));
    let mut keys = vec![Entry::new("users", entries, line.position).essential()];
    if let Some(realm) = realm {
        keys.push(Entry::new("realm", realm.as_str(), line.position));
    }
    let entry = Entry::new("basic_auth", keys, line.position).essential();
    Some((requests, vec![entry]))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_depends_on_name_and_password() {
        let hash_of = |name, password| hash_password(name, password).unwrap_or_default();
        assert!(hash_of("anna", "secret").starts_with("$5$"));
        assert_eq!(hash_of("anna", "secret"), hash_of("anna", "secret"));
        assert_ne!(hash_of("anna", "secret"), hash_of("bert", "secret"));
        assert_ne!(hash_of("anna", "secret"), hash_of("anna", "public"));
    }

    #[test]
    fn users_with_the_same_password_have_different_hashes() {
        let hash_of = |name| hash_password(name, "secret").unwrap_or_default();
        for (name, other) in [
            ("a", "b"),
            ("a", "c"),
            ("a", "e"),
            ("ab", "ba"),
            ("ab", "cb"),
            ("ab", "ac"),
            ("aaaaaaaaa", "aaaaaaaaaa"),
            ("administrator-one", "administrator-two"),
            ("aaaaaaaaaz", "caaaaaaaaz"),
            ("aaaaaaaaaz", "cqqqqqqqqz"),
        ] {
            assert_ne!(hash_of(name), hash_of(other), "{name} {other}");
        }
    }
}
