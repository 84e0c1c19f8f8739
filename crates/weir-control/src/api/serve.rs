//! Connections of the API, bounded in number and in what each may cost.
//!
//! A connection that sends no complete header in time is closed; so is an idle one. Above the limit new ones wait in the
//! kernel's backlog.

use std::io;
use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, UnixListener};
use tokio::sync::Semaphore;

/// Connections at once, of each listener.
const CONNECTIONS: usize = 64;

/// From the first byte waited for to the end of the header.
const HEADER_DEADLINE: Duration = Duration::from_secs(10);

/// Rest after an error of accept(2), most often that descriptors ran out.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// Something that gives connections.
pub trait Listener: Send + 'static {
    /// A connection.
    type Connection: AsyncRead + AsyncWrite + Unpin + Send + 'static;

    /// The next one.
    fn next(&self) -> impl Future<Output = io::Result<Self::Connection>> + Send;
}

impl Listener for UnixListener {
    type Connection = tokio::net::UnixStream;

    async fn next(&self) -> io::Result<Self::Connection> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

impl Listener for TcpListener {
    type Connection = tokio::net::TcpStream;

    async fn next(&self) -> io::Result<Self::Connection> {
        self.accept().await.map(|(stream, _)| stream)
    }
}

/// Answers connections until it is dropped.
pub async fn serve<L: Listener>(listener: L, router: Router) {
    let places = Arc::new(Semaphore::new(CONNECTIONS));
    loop {
        let Ok(place) = places.clone().acquire_owned().await else {
            return;
        };
        let stream = match listener.next().await {
            Ok(stream) => stream,
            Err(error) => {
                tracing::warn!(%error, "a connection to the API was not accepted");
                tokio::time::sleep(ACCEPT_PAUSE).await;
                continue;
            }
        };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let connection = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(HEADER_DEADLINE)
                .half_close(true)
                .serve_connection(TokioIo::new(stream), service);
            // A client that breaks off is its own affair.
            if let Err(error) = connection.await {
                tracing::debug!(%error, "a connection to the API ended early");
            }
            drop(place);
        });
    }
}
