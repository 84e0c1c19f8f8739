//! Reads the bodies of requests.

use axum::body::{Body, Bytes, to_bytes};
use axum::http::StatusCode;

use super::failure::Failure;

/// Maximum size of a request's body, in bytes.
pub const MAX_BODY_BYTES: usize = 64 * 1024;

/// Maximum size of a body with a configuration, in bytes; a file that is named by its path may be larger.
pub const MAX_TEXT_BODY_BYTES: usize = 4 << 20;

/// Reads a body of at most `most` bytes.
pub(super) async fn collect(body: Body, most: usize) -> Result<Bytes, Failure> {
    // A client that has disconnected does not read this response, so the error is about the size.
    to_bytes(body, most).await.map_err(|_| {
        let error = format!("a body has at most {most} bytes");
        Failure::new(StatusCode::PAYLOAD_TOO_LARGE, error)
    })
}
