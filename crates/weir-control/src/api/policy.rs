//! Defines the access policy of a TCP listener of the API: names, tokens and roles.
//!
//! After a reload, the new policy applies to the next request on every connection.

use std::net::SocketAddr;
use std::sync::{Arc, PoisonError, RwLock};

use axum::extract::{Extension, Request, State};
use axum::http::{Method, StatusCode, header};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use rustls::ServerConfig;

use super::caller::{Caller, Role};
use super::failure::Failure;
use super::host::{self, HostError};
use super::rejection::{Reason, RejectionCounters};
use super::token::{Tokens, bearer};

/// The names, tokens and roles that a TCP listener accepts.
#[derive(Debug)]
pub struct Policy {
    /// The certificates of `tls`, in order of expiry.
    pub certificates: Vec<weir_proxy::CertificateExpiry>,
    /// The tokens, with their roles.
    pub tokens: Tokens,
    /// Whether reading requires a token.
    pub read_requires_token: bool,
    /// Accepted values of `Host` in addition to the address, in lower case.
    pub hosts: Vec<String>,
    /// The TLS configuration; `None` = plain HTTP.
    pub tls: Option<Arc<ServerConfig>>,
}

/// A listener's active policy, which a reload can replace.
#[derive(Clone, Debug)]
pub struct SharedPolicy(Arc<RwLock<Arc<Policy>>>);

impl SharedPolicy {
    /// Creates a shared policy with `policy` as the active one.
    pub fn new(policy: Arc<Policy>) -> Self {
        Self(Arc::new(RwLock::new(policy)))
    }

    /// Returns the active policy.
    pub fn get(&self) -> Arc<Policy> {
        Arc::clone(&self.0.read().unwrap_or_else(PoisonError::into_inner))
    }

    /// Replaces the active policy.
    pub fn set(&self, policy: Arc<Policy>) {
        *self.0.write().unwrap_or_else(PoisonError::into_inner) = policy;
    }
}

/// The properties of a TCP connection.
#[derive(Clone, Copy, Debug)]
pub(super) struct ConnectionInfo {
    /// The address that the client connected to.
    pub(super) local: SocketAddr,
    /// Whether the connection uses TLS.
    pub(super) tls: bool,
}

/// The state of a TCP listener's middleware.
#[derive(Clone, Debug)]
pub(super) struct Gate {
    pub(super) policy: SharedPolicy,
    pub(super) rejections: Arc<RejectionCounters>,
}

/// Returns the role that a request requires; the write role for requests without a rule of their own. A tap requires
/// more than the read role, because the paths and queries in clients' requests can contain secrets.
pub(super) fn required_role(method: &Method, path: &str) -> Role {
    if path.starts_with("/v1/tap/") {
        return Role::Operate;
    }
    let is_read = method == Method::GET || method == Method::HEAD;
    if is_read || (method == Method::POST && path == "/v1/explain") {
        return Role::Read;
    }
    if method == Method::POST && (path.starts_with("/v1/servers/") || path == "/v1/node") {
        return Role::Operate;
    }
    Role::Write
}

/// Accepts requests that are intended for this server and whose callers have the required role. Runs before the body is
/// read.
pub(super) async fn gate(
    State(gate): State<Gate>,
    Extension(info): Extension<ConnectionInfo>,
    Extension(caller): Extension<Caller>,
    mut request: Request,
    next: Next,
) -> Response {
    let Caller::Tcp { peer, .. } = caller else {
        return next.run(request).await;
    };
    match check(&gate.policy.get(), info, peer, &request) {
        Ok(role) => {
            request.extensions_mut().insert(Caller::Tcp { peer, role });
            next.run(request).await
        }
        Err((reason, response)) => {
            gate.rejections.record(reason, peer);
            *response
        }
    }
}

/// Rejects requests on the Unix socket that come from a page with another origin or use a public DNS name. A browser
/// can reach the socket through a port that an operator forwards to the socket.
pub(super) async fn socket_gate(request: Request, next: Next) -> Response {
    match host::check_socket(request.headers()) {
        Ok(()) => next.run(request).await,
        Err(error) => *misdirected(error).1,
    }
}

type Rejection = (Reason, Box<Response>);

fn check(
    policy: &Policy,
    info: ConnectionInfo,
    peer: SocketAddr,
    request: &Request,
) -> Result<Role, Rejection> {
    if policy.tls.is_some() && !info.tls {
        let error = "this address now requires TLS; reconnect";
        return Err(reject(
            Reason::Handshake,
            StatusCode::MISDIRECTED_REQUEST,
            error,
        ));
    }
    let parts = (request.version(), request.uri(), request.headers());
    host::check(parts, &policy.hosts, info.local).map_err(misdirected)?;
    let method = request.method();
    let required = required_role(method, request.uri().path());
    // The dashboard page requires no token: a browser cannot send one when it opens the page, and the page contains no
    // data.
    let is_page = required == Role::Read && request.uri().path() == "/";
    let Some(authorization) = request.headers().get(header::AUTHORIZATION) else {
        if is_page || required == Role::Read && !policy.read_requires_token {
            return Ok(Role::Read);
        }
        return Err(unauthorized(Reason::NoToken, required));
    };
    let loopback = peer.ip().to_canonical().is_loopback();
    let found =
        bearer(authorization.as_bytes()).and_then(|token| policy.tokens.find(token, loopback));
    let Some((token, role)) = found else {
        return Err(unauthorized(Reason::BadToken, required));
    };
    if role < required {
        let error =
            format!("this request requires a token with the role `{required}`; yours has `{role}`");
        let failure = Failure::new(StatusCode::FORBIDDEN, error);
        let challenge = format!("Bearer error=\"insufficient_scope\", scope=\"{required}\"");
        let response = ([(header::WWW_AUTHENTICATE, challenge)], failure).into_response();
        return Err((Reason::Role, Box::new(response)));
    }
    if required > Role::Read {
        let path = request.uri().path();
        tracing::info!(%peer, token, %method, path, "admin request");
    }
    Ok(role)
}

fn reject(reason: Reason, status: StatusCode, error: impl ToString) -> Rejection {
    let response = Failure::new(status, error).into_response();
    (reason, Box::new(response))
}

fn misdirected(error: HostError) -> Rejection {
    match error {
        HostError::Malformed => reject(
            Reason::Host,
            StatusCode::BAD_REQUEST,
            "a request must have exactly one `Host`, a name or address with its port",
        ),
        HostError::Host => reject(
            Reason::Host,
            StatusCode::MISDIRECTED_REQUEST,
            "`Host` is not this server's address; `hosts` in [node.admin] lists the accepted names",
        ),
        HostError::Origin => reject(
            Reason::Origin,
            StatusCode::FORBIDDEN,
            "`Origin` does not match `Host`",
        ),
    }
}

fn unauthorized(reason: Reason, required: Role) -> Rejection {
    let (challenge, error) = if reason == Reason::BadToken {
        ("Bearer error=\"invalid_token\"", "invalid token".to_owned())
    } else {
        (
            "Bearer",
            format!(
                "this request requires `Authorization: Bearer` with a token that has the role `{required}`: a token \
                 from `tokens` in [node.admin] or, on loopback, the content of `token` in the runtime directory"
            ),
        )
    };
    let failure = Failure::new(StatusCode::UNAUTHORIZED, error);
    let response = ([(header::WWW_AUTHENTICATE, challenge)], failure).into_response();
    (reason, Box::new(response))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations that do not require a token, and those that only the daemon's owner may request, have no role.
    #[test]
    fn required_roles_match_the_documentation() {
        let document = include_str!("../../../../docs/manual/openapi.json");
        let document: serde_json::Value = serde_json::from_str(document).unwrap();
        let mut compared = 0;
        for (path, operations) in document["paths"].as_object().unwrap() {
            for (method, operation) in operations.as_object().unwrap() {
                let method = method.to_ascii_uppercase().parse().unwrap();
                let documented = operation["x-role"].as_str().unwrap();
                if !["none", "owner"].contains(&documented) {
                    let required = required_role(&method, path);
                    assert_eq!(required.name(), documented, "{method} {path}");
                    compared += 1;
                }
            }
        }
        assert!(compared > 10, "{compared}");
    }

    #[test]
    fn required_role_depends_on_method_and_path() {
        let role = |method: &str, path| required_role(&method.parse().unwrap(), path);
        for path in ["/", "/v1/status", "/metrics", "/no/such/thing"] {
            assert_eq!(role("GET", path), Role::Read);
            assert_eq!(role("HEAD", path), Role::Read);
            assert_eq!(role("POST", path), Role::Write);
        }
        assert_eq!(role("POST", "/v1/explain"), Role::Read);
        assert_eq!(role("POST", "/v1/servers/p/a"), Role::Operate);
        assert_eq!(role("POST", "/v1/node"), Role::Operate);
        assert_eq!(role("GET", "/v1/tap/www"), Role::Operate);
        for (method, path) in [
            ("PUT", "/v1/servers/p/a"),
            ("DELETE", "/v1/servers/p/a"),
            ("POST", "/v1/plan"),
            ("POST", "/v1/reload"),
            ("POST", "/v1/ipvsadm"),
            ("POST", "/v1/upgrade"),
            ("OPTIONS", "/v1/status"),
        ] {
            assert_eq!(role(method, path), Role::Write, "{method} {path}");
        }
    }
}
