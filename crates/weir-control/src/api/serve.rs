//! Serves API connections, and limits their number, their idle time and the size of their requests.
//!
//! A connection is closed if the client does not send a complete header in time, is idle for too long, or does not read
//! the response. [`connection_limit`](super::connection_limit) selects the connections that are closed to admit others.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::{Extension, Request};
use axum::http::StatusCode;
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream, UnixListener, UnixStream};
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use super::body::{MAX_BODY_BYTES, MAX_TEXT_BODY_BYTES, collect};
use super::caller::{Caller, Role};
use super::command_line;
use super::connection_limit::{ConnectionLimit, Limits, Progress, Slot};
use super::failure::Failure;
use super::policy::{ConnectionInfo, SharedPolicy, required_role};
use super::rejection::{Reason, RejectionCounters};
use super::write_timeout::WriteTimeout;

/// Time limit for a request header, a command line or a TLS handshake.
const HEADER_TIMEOUT: Duration = Duration::from_secs(5);

/// Time limit for a request body.
const BODY_TIMEOUT: Duration = Duration::from_secs(10);

/// Time limit for a client that does not read the response.
const WRITE_TIMEOUT: Duration = Duration::from_secs(10);

/// Pause after an error from accept(2), which is usually caused by a lack of file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// A listening socket.
#[derive(Debug)]
pub enum Listener {
    /// The Unix socket in the runtime directory.
    Unix(UnixListener),
    /// The TCP socket that `[node] admin` configures.
    Tcp {
        /// The socket.
        listener: TcpListener,
        /// The policy for its clients.
        policy: SharedPolicy,
        /// Counters of rejected connections.
        rejections: Arc<RejectionCounters>,
    },
}

/// An accepted connection.
#[derive(Debug)]
enum AcceptedStream {
    Unix(UnixStream),
    Tcp(TcpStream, ConnectionInfo),
}

trait Stream: AsyncRead + AsyncWrite + Send + Unpin {}
impl<S: AsyncRead + AsyncWrite + Send + Unpin> Stream for S {}

impl Listener {
    const fn limits(&self) -> Limits {
        match self {
            Self::Unix(_) => Limits::UNIX,
            Self::Tcp { .. } => Limits::TCP,
        }
    }

    /// Accepts the next connection and identifies its peer.
    async fn accept(&self) -> io::Result<(AcceptedStream, Caller)> {
        match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = stream.peer_cred()?;
                let caller = Caller::Unix {
                    uid: peer.uid(),
                    gid: peer.gid(),
                    pid: peer.pid(),
                };
                Ok((AcceptedStream::Unix(stream), caller))
            }
            Self::Tcp { listener, .. } => {
                let (stream, peer) = listener.accept().await?;
                let info = ConnectionInfo {
                    local: stream.local_addr()?,
                    tls: false,
                };
                let role = Role::Read;
                Ok((
                    AcceptedStream::Tcp(stream, info),
                    Caller::Tcp { peer, role },
                ))
            }
        }
    }

    /// Counts and logs a rejected TCP connection. Ignores connections to the Unix socket.
    fn record_rejection(&self, reason: Reason, caller: &Caller) {
        if let (Self::Tcp { rejections, .. }, Caller::Tcp { peer, .. }) = (self, caller) {
            rejections.record(reason, *peer);
        }
    }

    /// Performs the TLS handshake if the policy requires TLS.
    async fn handshake(
        &self,
        accepted: AcceptedStream,
    ) -> io::Result<(Box<dyn Stream>, ConnectionInfo)> {
        match (self, accepted) {
            (_, AcceptedStream::Unix(stream)) => {
                let local = SocketAddr::from(([0, 0, 0, 0], 0));
                Ok((Box::new(stream), ConnectionInfo { local, tls: false }))
            }
            (Self::Tcp { policy, .. }, AcceptedStream::Tcp(stream, info)) => {
                let Some(tls) = policy.get().tls.clone() else {
                    return Ok((Box::new(stream), info));
                };
                let handshake = TlsAcceptor::from(tls).accept(stream);
                let stream = timeout(HEADER_TIMEOUT, handshake).await??;
                Ok((Box::new(stream), ConnectionInfo { tls: true, ..info }))
            }
            (Self::Unix(_), AcceptedStream::Tcp(stream, info)) => Ok((Box::new(stream), info)),
        }
    }
}

/// Serves connections until the future is dropped.
pub async fn serve(listener: Listener, router: Router) {
    let limit = ConnectionLimit::new(listener.limits());
    let listener = Arc::new(listener);
    loop {
        let (accepted, caller) = match listener.accept().await {
            Ok(accepted) => accepted,
            Err(error) => {
                tracing::warn!(%error, "failed to accept a connection to the API");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = limit.acquire(&caller) else {
            listener.record_rejection(Reason::Connections, &caller);
            continue;
        };
        let (listener, router) = (Arc::clone(&listener), router.clone());
        tokio::spawn(async move {
            let progress = Arc::clone(&slot.progress);
            tokio::select! {
                () = progress.closed() => listener.record_rejection(Reason::Connections, &caller),
                () = serve_connection(&listener, accepted, caller, router, &slot) => {}
            }
        });
    }
}

async fn serve_connection(
    listener: &Listener,
    accepted: AcceptedStream,
    caller: Caller,
    router: Router,
    slot: &Slot,
) {
    let accepted = match accepted {
        AcceptedStream::Unix(stream) => {
            match command_line::starts_with_command(&stream, HEADER_TIMEOUT).await {
                Ok(false) => AcceptedStream::Unix(stream),
                Ok(true) => {
                    let router = router.layer(Extension(caller));
                    let router = router.layer(Extension(Arc::clone(&slot.progress)));
                    let stream = WriteTimeout::new(stream, WRITE_TIMEOUT);
                    if let Err(error) = command_line::serve(stream, router, HEADER_TIMEOUT).await {
                        tracing::debug!(%error, "a command connection to the API was closed early");
                    }
                    return;
                }
                Err(error) => {
                    tracing::debug!(%error, "no data was received on a connection to the API");
                    return;
                }
            }
        }
        AcceptedStream::Tcp(..) => accepted,
    };
    let (stream, info) = match listener.handshake(accepted).await {
        Ok(opened) => opened,
        Err(error) => {
            tracing::debug!(%error, "a TLS handshake on a connection to the API failed");
            listener.record_rejection(Reason::Handshake, &caller);
            return;
        }
    };
    let router = router
        .layer(Extension(caller))
        .layer(Extension(info))
        .layer(Extension(Arc::clone(&slot.progress)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIMEOUT)
        .half_close(true)
        .serve_connection(
            TokioIo::new(WriteTimeout::new(stream, WRITE_TIMEOUT)),
            TowerToHyperService::new(router),
        );
    // Not a warning, because any client can cause this by disconnecting.
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to the API was closed early");
    }
}

/// Receives the whole body before the request is executed, so that execution never waits for the client.
pub(super) async fn receive_body(
    Extension(progress): Extension<Arc<Progress>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let has_text_body = matches!(path, "/v1/plan" | "/v1/reload" | "/v1/cluster/publish")
        && required_role(request.method(), path) == Role::Write;
    let max_bytes = if has_text_body {
        MAX_TEXT_BODY_BYTES
    } else {
        MAX_BODY_BYTES
    };
    let (parts, body) = request.into_parts();
    let bytes = match timeout(BODY_TIMEOUT, collect(body, max_bytes)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(failure)) => return failure.into_response(),
        Err(_) => {
            let error = "the body was not received in time";
            return Failure::new(StatusCode::REQUEST_TIMEOUT, error).into_response();
        }
    };
    progress.set_executing();
    let response = next
        .run(Request::from_parts(parts, Body::from(bytes)))
        .await;
    progress.set_waiting();
    response
}
