//! Who may change something over TCP: whoever sends `Authorization: Bearer TOKEN` (RFC 6750, section 2.1).

use std::fmt;
use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::{StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};

use super::Failure;

/// The secret of `token` in the runtime directory.
#[derive(Clone)]
pub struct Token(Arc<str>);

impl Token {
    /// Fewest characters.
    pub const SHORTEST: usize = 16;

    /// None for one that could be guessed, or that no header could carry.
    pub fn new(text: &str) -> Option<Self> {
        let fit = text.len() >= Self::SHORTEST && text.bytes().all(|byte| byte.is_ascii_graphic());
        fit.then(|| Self(text.into()))
    }

    /// In a time that does not tell how many of the characters were right.
    fn is(&self, shown: &[u8]) -> bool {
        let differs = |(a, b): (u8, &u8)| a ^ b;
        shown.len() == self.0.len()
            && self
                .0
                .bytes()
                .zip(shown)
                .map(differs)
                .fold(0, |all, one| all | one)
                == 0
    }
}

/// A secret does not belong into logs.
impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Token")
    }
}

/// Lets those requests through that show the token.
pub(super) async fn required(State(token): State<Token>, request: Request, next: Next) -> Response {
    let shown = request.headers().get(header::AUTHORIZATION);
    let shown = shown.map(|value| value.as_bytes());
    let Some(shown) = shown.and_then(bearer) else {
        let error = "over TCP this takes `Authorization: Bearer` with the content of `token` in the runtime directory";
        let failure = Failure::new(StatusCode::UNAUTHORIZED, error);
        return ([(header::WWW_AUTHENTICATE, "Bearer")], failure).into_response();
    };
    if !token.is(shown) {
        return Failure::new(StatusCode::FORBIDDEN, "this is not the token").into_response();
    }
    next.run(request).await
}

fn bearer(value: &[u8]) -> Option<&[u8]> {
    let (scheme, token) = value.split_at_checked(7)?;
    scheme.eq_ignore_ascii_case(b"bearer ").then_some(token)
}
