//! Lowers `basic_auth` of services and routes.

use std::ops::Range;

use weir_model::{BasicAuth, PasswordHashFormat};

use super::list_file;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::Value;
use crate::view::{Sink, View, text, wrong_type};

const HASH_FIX: &str =
    "use the output of `htpasswd -nB NAME`; hashes begin with $2y$, $5$, $6$, $apr1$ or {SHA}";

/// Lowers `basic_auth`; `None` = the key is absent or invalid, `Some(None)` = `false`.
pub(super) fn basic_auth(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Option<BasicAuth>> {
    let (entry, kind) = view.get("basic_auth")?;
    let table = match &entry.item.value {
        Value::Bool(false) => return Some(None),
        Value::Table(table) => table,
        other => {
            let diagnostic = match other {
                Value::Bool(_) => {
                    let message = "`basic_auth` requires users";
                    Diagnostic::new(Code::WrongType, &entry.item.span, message)
                }
                _ => wrong_type(&entry.item, kind),
            };
            sink.push(diagnostic.fix(
                "write { file = \"/etc/weir/users\" }, { users = [\"NAME:HASH\"] }, or false",
            ));
            return None;
        }
    };
    let view = View::open(sink, &catalog::BASIC_AUTH, table, &entry.key_span);
    let realm = realm(sink, &view)?;
    let mut users = Vec::new();
    for item in view.list(sink, "users").unwrap_or_default() {
        if let Some((text, span)) = text(sink, item, &Kind::DescribedText("`NAME:HASH`")) {
            match parse_user(text) {
                Ok(user) => users.push(user),
                Err(reason) => {
                    sink.push(Diagnostic::new(Code::BadText, span, reason).fix(HASH_FIX))
                }
            }
        }
    }
    let file = view.text(sink, "file");
    if let Some((path, span)) = file {
        users.extend(users_of_file(sink, path, span)?);
    }
    let is_listed = view
        .get("users")
        .is_some_and(|(entry, _)| !is_empty_list(&entry.item.value));
    if file.is_none() && !is_listed {
        sink.push(
            Diagnostic::new(
                Code::EmptyList,
                &entry.key_span,
                "`basic_auth` has no users",
            )
            .cause("every request would be rejected")
            .fix("add `file` or `users`, or write basic_auth = false"),
        );
        return None;
    }
    Some(Some(BasicAuth::new(
        realm,
        file.map(|(path, _)| path.to_owned()),
        users,
    )))
}

fn is_empty_list(value: &Value<'_>) -> bool {
    matches!(value, Value::List(items) if items.is_empty())
}

/// Returns the realm, which is sent as a quoted string (RFC 9110 section 5.6.4).
fn realm(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<String> {
    let Some((realm, span)) = view.text(sink, "realm") else {
        return Some(BasicAuth::DEFAULT_REALM.to_owned());
    };
    let is_allowed =
        |byte: u8| (byte == b' ' || byte.is_ascii_graphic()) && !b"\"\\".contains(&byte);
    if realm.bytes().all(is_allowed) {
        return Some(realm.to_owned());
    }
    sink.push(
        Diagnostic::new(
            Code::BadText,
            span,
            "the realm contains characters that are not allowed",
        )
        .fix("use printable ASCII characters except `\"` and `\\`"),
    );
    None
}

/// Parses `NAME:HASH`, or returns the reason why it is invalid. The reason does not quote the text, so no hash is
/// logged.
fn parse_user(text: &str) -> Result<(String, String), &'static str> {
    let Some((name, hash)) = text.split_once(':') else {
        return Err("expected NAME:HASH");
    };
    // Lines in Apache password files can have additional fields.
    let hash = hash.split(':').next().unwrap_or_default().trim();
    match (name.is_empty(), PasswordHashFormat::of(hash)) {
        (true, _) => Err("the user name is empty"),
        (_, None) => Err("unknown password hash format"),
        (false, Some(_)) => Ok((name.to_owned(), hash.to_owned())),
    }
}

fn users_of_file(
    sink: &mut Sink<'_>,
    path: &str,
    span: &Range<usize>,
) -> Option<Vec<(String, String)>> {
    let content = list_file::read(sink, path, span, "users")?;
    let mut users = Vec::new();
    for (number, line) in list_file::lines(&content) {
        match parse_user(line) {
            Ok(user) => users.push(user),
            Err(reason) => {
                sink.push(
                    Diagnostic::new(
                        Code::BadListFile,
                        span,
                        format!("{path}:{number}: {reason}"),
                    )
                    .fix(HASH_FIX),
                );
                return None;
            }
        }
    }
    Some(users)
}
