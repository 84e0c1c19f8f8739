//! Lowers a pool's `sticky`.

use std::ops::Range;

use weir_model::{Sticky, StickyMode};

use super::secret;
use crate::catalog;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::tree::Value;
use crate::view::{Sink, View, wrong_type};

/// Returns whether a byte is allowed in a cookie name (RFC 6265 section 4.1.1).
fn is_cookie_name_byte(byte: u8) -> bool {
    byte.is_ascii_graphic() && !b"()<>@,;:\\\"/[]?={}".contains(&byte)
}

/// Returns whether a server's `cookie` is a valid value of the sticky cookie (`cookie-value` in RFC 6265 section
/// 4.1.1). `~` is not allowed, because it ends the value with `mode = "prefix"`.
pub(crate) fn is_cookie_value(value: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_graphic() && !b"\",;\\~".contains(&byte);
    !value.is_empty() && value.bytes().all(is_allowed)
}

/// Returns a server's `cookie`: the value of the sticky cookie that identifies the server. Reports an invalid value.
pub(super) fn cookie_value(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<String> {
    let (value, span) = view.text(sink, "cookie")?;
    if !is_cookie_value(value) {
        let message = format!("invalid cookie value `{}`", value.escape_debug());
        sink.push(
            Diagnostic::new(Code::BadText, span, message).fix("use letters, digits, `-` and `_`"),
        );
        return None;
    }
    Some(value.to_owned())
}

/// Returns the warning about a server's `cookie` in a pool without `sticky`.
pub(super) fn cookie_without_sticky(span: &Range<usize>) -> Diagnostic {
    Diagnostic::new(
        Code::NoEffect,
        span,
        "`cookie` has no effect: the pool has no `sticky`",
    )
    .fix("set `sticky = { cookie = \"NAME\" }` in the pool, or remove `cookie`")
}

pub(super) fn sticky(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<Sticky> {
    let (entry, kind) = view.get("sticky")?;
    let Value::Table(table) = &entry.item.value else {
        sink.push(wrong_type(&entry.item, kind));
        return None;
    };
    let view = View::open(sink, &catalog::STICKY, table, &entry.key_span);
    let mode = view.choice(sink, "mode", &StickyMode::ALL, StickyMode::as_str);
    let secret = secret::from_key(sink, &view, "secret");
    let attributes = view.text(sink, "attributes");
    if let Some((text, span)) = attributes
        && !text
            .bytes()
            .all(|byte| byte == b' ' || byte.is_ascii_graphic())
    {
        sink.push(
            Diagnostic::new(
                Code::BadText,
                span,
                "the value contains characters that are not allowed in a header field",
            )
            .fix("use printable ASCII characters, for example \"Path=/; Secure\""),
        );
    }
    let private = view.flag(sink, "private").unwrap_or_default();
    if let Some((entry, _)) = view.get("private")
        && private
        && mode.is_some_and(|mode| mode != StickyMode::Insert)
    {
        sink.push(
            Diagnostic::new(
                Code::NoEffect,
                &entry.key_span,
                "`private` has no effect: Weir inserts cookies only with `mode = \"insert\"`",
            )
            .fix("remove `private`"),
        );
    }
    let (cookie, span) = view.text(sink, "cookie")?;
    if cookie.is_empty() || !cookie.bytes().all(is_cookie_name_byte) {
        let message = format!("invalid cookie name `{}`", cookie.escape_debug());
        sink.push(
            Diagnostic::new(Code::BadName, span, message).fix("use letters, digits, `-` and `_`"),
        );
        return None;
    }
    Some(Sticky {
        cookie: cookie.to_owned(),
        mode: mode.unwrap_or_default(),
        secret,
        attributes: attributes.map(|(text, _)| text.to_owned()),
        private,
    })
}
