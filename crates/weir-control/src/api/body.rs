//! Reads request bodies.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::StatusCode;

use super::failure::Failure;

/// Maximum size of a request body that contains no configuration, in bytes.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// Maximum size of a body that contains a configuration, in bytes. A file specified by its path can be larger.
pub const MAX_TEXT_BODY_BYTES: usize = 4 << 20;

/// Reads a body of at most `max` bytes.
pub(super) async fn collect(body: Body, max: usize) -> Result<Bytes, Failure> {
    // Reading fails if the body is too large or the client has disconnected. A disconnected client does not read the
    // response.
    to_bytes(body, max).await.map_err(|_| {
        let error = format!("the body must not exceed {max} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    })
}
