//! `userlist` and `http-request auth`: `basic_auth` of routes.

use sha_crypt::{PasswordHasher as _, ShaCrypt};

use super::Context;
use super::acl::{Acls, Meaning};
use super::criterion::Clients;
use super::line::Line;
use super::rule::condition;
use super::section::Proxy;
use crate::document::{Entry, Item};
use crate::note::Notes;

/// Returns the hash of a password that haproxy.cfg has in clear text, in the format `$5$` of crypt(5). The salt is
/// derived from the name, so that the output is reproducible and equal passwords of different users have different
/// hashes.
pub(super) fn hash(name: &str, password: &str) -> Option<String> {
    const SALT_BYTES: usize = 9;
    let mut salt = [0x57_u8; SALT_BYTES];
    for (at, byte) in name.bytes().enumerate() {
        salt[at % SALT_BYTES] = salt[at % SALT_BYTES].rotate_left(3) ^ byte;
    }
    let hash = ShaCrypt::SHA256.hash_password_with_salt(password.as_bytes(), &salt);
    hash.ok().map(|hash| hash.as_str().to_owned())
}

/// Returns whether a line is `http-request auth`.
pub(super) fn is_auth(line: &Line) -> bool {
    line.keyword() == "http-request" && line.word(1) == Some("auth")
}

/// Returns whether [`auth`] supports the rule.
pub(super) fn is_supported(context: &Context<'_>, proxy: &Proxy, line: &Line) -> bool {
    let mut discarded = Notes::default();
    let acls = Acls::read(context.environment, &proxy.lines, &mut discarded);
    auth(context, &acls, line, Clients::default(), &mut discarded).is_some()
}

/// Returns the requests that require authentication, and `basic_auth`. `None` = the rule is not supported, with a note.
pub(super) fn auth(
    context: &Context<'_>,
    acls: &Acls,
    line: &Line,
    clients: Clients<'_>,
    notes: &mut Notes,
) -> Option<(Meaning, Vec<Entry>)> {
    let (what, words) = condition(line.arguments());
    let with = |valid: bool| Clients {
        authenticated: Some(valid),
        ..clients
    };
    // The rule applies to requests without a valid password, and to no others.
    let exempts_users = acls.condition(words, with(true)) == Meaning::Never;
    let requests = acls.condition(words, with(false));
    let list = acls.text_of(words);
    let list = list.iter().find_map(|word| {
        let rest = word.strip_prefix("http_auth(")?;
        rest.split(')').next()
    });
    let users = list.and_then(|list| context.users.get(list));
    let Some(users) = users.filter(|_| exempts_users) else {
        line.reject(
            notes,
            "Weir responds with status 401 instead; write the users to a file and set `basic_auth` of the route",
        );
        return None;
    };
    let mut hashed = Vec::new();
    for user in users {
        match &user.hash {
            Some(hash) => {
                let text = format!("{}:{hash}", user.name);
                hashed.push(Item::new(text, Some(user.position)));
            }
            None => notes.add(
                user.position,
                "not imported: `basic_auth` does not support the hash; the user gets status 401",
            ),
        }
    }
    let realm = what.iter().position(|word| word == "realm");
    let realm = realm.and_then(|at| what.get(at + 1));
    let mut keys = vec![Entry::new("users", hashed, line.position).essential()];
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
        let of = |name, password| hash(name, password).unwrap_or_default();
        assert!(of("anna", "secret").starts_with("$5$"));
        assert_eq!(of("anna", "secret"), of("anna", "secret"));
        assert_ne!(of("anna", "secret"), of("bert", "secret"));
        assert_ne!(of("anna", "secret"), of("anna", "public"));
    }
}
