//! Creates the responses: JSON documents, and errors with their status codes.

use axum::extract::rejection::{PathRejection, QueryRejection};
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use super::message::ApiError;

/// An error response with its status code.
pub(super) struct Failure(StatusCode, ApiError);

impl Failure {
    pub(super) fn new(status: StatusCode, error: impl ToString) -> Self {
        Self(status, ApiError::new(error))
    }
}

/// An error from the daemon is reported as a client error, because it is caused by the request, for example by an
/// invalid file, name or packet. The exception is a daemon that is stopping.
impl From<ApiError> for Failure {
    fn from(error: ApiError) -> Self {
        let status = if error.is_stopping {
            StatusCode::SERVICE_UNAVAILABLE
        } else {
            StatusCode::UNPROCESSABLE_ENTITY
        };
        Self(status, error)
    }
}

/// Converts the error for a path that is not valid UTF-8 after decoding.
impl From<PathRejection> for Failure {
    fn from(rejection: PathRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

/// Converts the error for an unknown or repeated parameter.
impl From<QueryRejection> for Failure {
    fn from(rejection: QueryRejection) -> Self {
        Self::new(rejection.status(), rejection.body_text())
    }
}

impl IntoResponse for Failure {
    fn into_response(self) -> Response {
        (self.0, json(&self.1)).into_response()
    }
}

/// Returns JSON with a trailing newline.
pub(super) fn json(value: &impl Serialize) -> Response {
    match serde_json::to_string(value) {
        Ok(text) => ([(header::CONTENT_TYPE, "application/json")], text + "\n").into_response(),
        Err(error) => (StatusCode::INTERNAL_SERVER_ERROR, error.to_string()).into_response(),
    }
}
