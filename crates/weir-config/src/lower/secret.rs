//! Lowers secrets: text, or a source to read the text from.

use weir_model::{Secret, SecretSource};

use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Item, Value};
use crate::view::{Sink, View, wrong_type};

/// Returns a key's secret, read from its source.
pub(super) fn from_key(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str) -> Option<Secret> {
    let (entry, _) = view.get(name)?;
    secret(sink, &entry.item)
}

/// Returns the secrets in a list, read from their sources.
pub(super) fn list(sink: &mut Sink<'_>, view: &View<'_, '_>, name: &str) -> Vec<Secret> {
    let items = view.list(sink, name).unwrap_or_default();
    items.iter().filter_map(|item| secret(sink, item)).collect()
}

fn secret(sink: &mut Sink<'_>, item: &Item<'_>) -> Option<Secret> {
    let (source, text) = match &item.value {
        Value::Text(text) => (SecretSource::Text, Some(text.as_bytes())),
        Value::Table(_) => (source(sink, item)?, None),
        _ => {
            sink.push(wrong_type(item, &Kind::Secret));
            return None;
        }
    };
    let no_secret = |message: String| Diagnostic::new(Code::SecretUnavailable, &item.span, message);
    let value = match sink.machine.and_then(|machine| machine.secret(&source)) {
        None => text.unwrap_or_default().to_vec(),
        Some(Ok(read)) => {
            if let Some(mode) = read.exposed {
                sink.push(exposed_secret(item, &source, mode));
            }
            text.map_or(read.bytes, <[u8]>::to_vec)
        }
        Some(Err(reason)) => {
            let advice = match &source {
                SecretSource::Text => "set the secret",
                SecretSource::File(_) if reason.contains("Permission denied") => {
                    "run this command as root, or as the account that may read the file"
                }
                SecretSource::File(_) => "create the file with mode 0600",
                SecretSource::Env(_) => {
                    "set it in the environment of `weir run`, or with `EnvironmentFile=` in the systemd unit"
                }
                SecretSource::Credential(_) => "add `LoadCredential=NAME:PATH` to the systemd unit",
            };
            sink.push(no_secret(format!("cannot read the secret: {source}: {reason}")).fix(advice));
            return None;
        }
    };
    let secret = Secret::new(source, value);
    if secret.expose().is_empty() && text.is_some() {
        sink.push(
            no_secret("the secret is empty".to_owned()).fix("set the secret, or remove the key"),
        );
        return None;
    }
    Some(secret)
}

fn source(sink: &mut Sink<'_>, item: &Item<'_>) -> Option<SecretSource> {
    let Value::Table(table) = &item.value else {
        return None;
    };
    let view = View::open(sink, &catalog::SECRET, table, &item.span);
    let file = view.text(sink, "file");
    let env = view.text(sink, "env");
    let credential = view.text(sink, "credential");
    let bad_text = |span, message: &str| Diagnostic::new(Code::BadText, span, message.to_owned());
    let source = match (file, env, credential) {
        (Some((path, span)), None, None) => {
            if !path.starts_with('/') {
                sink.push(
                    bad_text(span, "`file` must be an absolute path")
                        .fix("write an absolute path, as in \"/etc/weir/key\""),
                );
                return None;
            }
            SecretSource::File(path.to_owned())
        }
        (None, Some((name, span)), None) => {
            if name.is_empty() || name.contains(['=', '\0']) {
                sink.push(bad_text(span, "invalid environment variable name"));
                return None;
            }
            SecretSource::Env(name.to_owned())
        }
        (None, None, Some((name, span))) => {
            if matches!(name, "" | "." | "..") || name.contains(['/', '\0']) {
                sink.push(bad_text(span, "invalid credential name"));
                return None;
            }
            SecretSource::Credential(name.to_owned())
        }
        _ => {
            sink.push(
                Diagnostic::new(
                    Code::Contradiction,
                    &item.span,
                    "a secret must have exactly one source",
                )
                .fix("use one of `file`, `env` and `credential`"),
            );
            return None;
        }
    };
    Some(source)
}

fn exposed_secret(item: &Item<'_>, source: &SecretSource, mode: u32) -> Diagnostic {
    let (problem, fix) = match source {
        SecretSource::Text => (
            "this file contains a secret, and every user on this machine can read it".to_owned(),
            "set its mode to 0600, or store the secret elsewhere: { file = … }, { env = … }, { credential = … \
             }".to_owned(),
        ),
        SecretSource::File(path) => (
            format!("every user on this machine can read the secret in {path}"),
            format!("chmod 600 {path}"),
        ),
        other => (
            format!("every user on this machine can read the secret in {other}"),
            "set the mode of its file to 0600".to_owned(),
        ),
    };
    let message = format!("{problem} (mode {mode:04o})");
    Diagnostic::new(Code::ExposedSecret, &item.span, message).fix(fix)
}
