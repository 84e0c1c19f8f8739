//! Connections of the API, bounded in number, in time and in what each may cost.
//!
//! A connection that sends no complete header in time is closed; so is an idle one, and one that does not read its
//! answer. Which of them make room for others is for [`slot`](super::connection_limit) to say.

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

use super::connection_limit::{ConnectionLimit, Limits, Progress, Slot};
use super::policy::{SharedPolicy, Via, required};
use super::refusal::{Reason, Refused};
use super::write_timeout::WriteTimeout;
use super::{Caller, Failure, MAX_BODY_BYTES, MAX_TEXT_BODY_BYTES, Role, collect};

/// From the first byte waited for to the end of the header; also for a TLS handshake.
const HEADER_DEADLINE: Duration = Duration::from_secs(5);

/// How long a client may take to send a body.
const BODY_DEADLINE: Duration = Duration::from_secs(10);

/// How long a client may read nothing of an answer.
const WRITE_DEADLINE: Duration = Duration::from_secs(10);

/// Rest after an error of accept(2), most often that descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Where connections come from.
#[derive(Debug)]
pub enum Listener {
    /// The socket of the runtime directory.
    Unix(UnixListener),
    /// `[node] admin`.
    Tcp {
        /// Its socket.
        listener: TcpListener,
        /// Whom it serves.
        policy: SharedPolicy,
        /// Where connections are counted that it refuses.
        refused: Arc<Refused>,
    },
}

/// A connection before the first byte.
#[derive(Debug)]
enum Accepted {
    Unix(UnixStream),
    Tcp(TcpStream, Via),
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

    /// The next connection, with what is known of its other end before it says a word.
    async fn next(&self) -> io::Result<(Accepted, Caller)> {
        match self {
            Self::Unix(listener) => {
                let (stream, _) = listener.accept().await?;
                let peer = stream.peer_cred()?;
                let caller = Caller::Unix {
                    uid: peer.uid(),
                    gid: peer.gid(),
                    pid: peer.pid(),
                };
                Ok((Accepted::Unix(stream), caller))
            }
            Self::Tcp { listener, .. } => {
                let (stream, peer) = listener.accept().await?;
                let via = Via {
                    local: stream.local_addr()?,
                    tls: false,
                };
                let role = Role::Read;
                Ok((Accepted::Tcp(stream, via), Caller::Tcp { peer, role }))
            }
        }
    }

    fn refuse(&self, reason: Reason, caller: &Caller) {
        if let (Self::Tcp { refused, .. }, Caller::Tcp { peer, .. }) = (self, caller) {
            refused.note(reason, *peer);
        }
    }

    /// Encrypts a connection where the policy asks for it.
    async fn open(&self, accepted: Accepted) -> io::Result<(Box<dyn Stream>, Via)> {
        match (self, accepted) {
            (_, Accepted::Unix(stream)) => {
                let local = SocketAddr::from(([0, 0, 0, 0], 0));
                Ok((Box::new(stream), Via { local, tls: false }))
            }
            (Self::Tcp { policy, .. }, Accepted::Tcp(stream, via)) => {
                let Some(tls) = policy.get().tls.clone() else {
                    return Ok((Box::new(stream), via));
                };
                let handshake = TlsAcceptor::from(tls).accept(stream);
                let stream = timeout(HEADER_DEADLINE, handshake).await??;
                Ok((Box::new(stream), Via { tls: true, ..via }))
            }
            (Self::Unix(_), Accepted::Tcp(stream, via)) => Ok((Box::new(stream), via)),
        }
    }
}

/// Answers connections until it is dropped.
pub async fn serve(listener: Listener, router: Router) {
    let limit = ConnectionLimit::new(listener.limits());
    let listener = Arc::new(listener);
    loop {
        let (accepted, caller) = match listener.next().await {
            Ok(next) => next,
            Err(error) => {
                tracing::warn!(%error, "a connection to the API was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let Some(slot) = limit.take(&caller) else {
            listener.refuse(Reason::Connections, &caller);
            continue;
        };
        let (listener, router) = (Arc::clone(&listener), router.clone());
        tokio::spawn(async move {
            let progress = Arc::clone(&slot.progress);
            tokio::select! {
                () = progress.closed() => listener.refuse(Reason::Connections, &caller),
                () = connection(&listener, accepted, caller, router, &slot) => {}
            }
        });
    }
}

async fn connection(
    listener: &Listener,
    accepted: Accepted,
    caller: Caller,
    router: Router,
    slot: &Slot,
) {
    let (stream, via) = match listener.open(accepted).await {
        Ok(opened) => opened,
        Err(error) => {
            tracing::debug!(%error, "a TLS handshake with the API failed");
            listener.refuse(Reason::Handshake, &caller);
            return;
        }
    };
    let router = router
        .layer(Extension(caller))
        .layer(Extension(via))
        .layer(Extension(Arc::clone(&slot.progress)));
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_DEADLINE)
        .half_close(true)
        .serve_connection(
            TokioIo::new(WriteTimeout::new(stream, WRITE_DEADLINE)),
            TowerToHyperService::new(router),
        );
    // A client that breaks off is its own affair.
    if let Err(error) = connection.await {
        tracing::debug!(%error, "a connection to the API ended early");
    }
}

/// Takes the whole body in before anything is done, so that a connection at work waits for nothing of its client.
pub(super) async fn take_in(
    Extension(progress): Extension<Arc<Progress>>,
    request: Request,
    next: Next,
) -> Response {
    let path = request.uri().path();
    let holds_text = matches!(path, "/v1/plan" | "/v1/reload")
        && required(request.method(), path) == Role::Write;
    let most = if holds_text {
        MAX_TEXT_BODY_BYTES
    } else {
        MAX_BODY_BYTES
    };
    let (parts, body) = request.into_parts();
    let bytes = match timeout(BODY_DEADLINE, collect(body, most)).await {
        Ok(Ok(bytes)) => bytes,
        Ok(Err(failure)) => return failure.into_response(),
        Err(_) => {
            let error = "the body did not come in time";
            return Failure::new(StatusCode::REQUEST_TIMEOUT, error).into_response();
        }
    };
    progress.works();
    let response = next
        .run(Request::from_parts(parts, Body::from(bytes)))
        .await;
    progress.waits();
    response
}
