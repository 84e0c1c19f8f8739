//! Serves HAProxy's commands. A client sends a command as one line on the Unix socket, instead of an HTTP request.
//!
//! The commands get the status document from the router, so the same permissions apply as for `GET /v1/status`.

use std::io::{Error, ErrorKind, Result};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::http::header;
use http_body_util::BodyExt;
use hyper::service::Service;
use hyper_util::service::TowerToHyperService;
use rustix::net::{RecvFlags, recv};
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite, AsyncWriteExt, Interest};
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::haproxy_commands::{MAX_LINE_BYTES, is_command, reply};
use crate::metrics::uptime_s;
use crate::status::Report;

/// Maximum number of bytes to read and discard after the line, and the time limit for reading them.
const MAX_REST_BYTES: u64 = 64 << 10;
const REST_TIMEOUT: Duration = Duration::from_secs(1);

/// Waits for the first byte, and returns whether it starts a command rather than an HTTP request. Leaves the byte
/// unread. Fails if it does not arrive within `limit`.
pub(super) async fn starts_with_command(stream: &UnixStream, limit: Duration) -> Result<bool> {
    let mut first = [0_u8; 1];
    let peek = async {
        loop {
            stream.readable().await?;
            let read = || Ok(recv(stream, &mut first[..], RecvFlags::PEEK)?.0);
            match stream.try_io(Interest::READABLE, read) {
                Err(error) if error.kind() == ErrorKind::WouldBlock => {}
                done => return done,
            }
        }
    };
    let length = timeout(limit, peek).await??;
    // If the client closed the connection without sending a byte, let the HTTP server handle the connection.
    Ok(length == 1 && is_command(first[0]))
}

/// Reads a line within `limit`, responds to it and closes the connection, as HAProxy does outside its interactive mode.
pub(super) async fn serve(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    router: Router,
    limit: Duration,
) -> Result<()> {
    let line = timeout(limit, read_line(&mut stream)).await??;
    let request = Request::get("/v1/status").header(header::HOST, "weir");
    let request = request.body(Body::empty()).map_err(Error::other)?;
    let response = TowerToHyperService::new(router).call(request).await;
    let response = response.map_err(Error::other)?;
    let body = response.into_body().collect().await.map_err(Error::other)?;
    let body = body.to_bytes();
    let text = match serde_json::from_slice::<Report>(&body) {
        Ok(report) => {
            let now = SystemTime::now();
            let since = now.duration_since(UNIX_EPOCH).unwrap_or_default();
            reply(&line, &report, (since.as_secs(), uptime_s(now)))
        }
        // The router returned an error response, which is JSON.
        Err(_) => String::from_utf8_lossy(&body).into_owned() + "\n\n",
    };
    stream.write_all(text.as_bytes()).await?;
    stream.shutdown().await?;
    // Read the remaining input: the kernel resets a connection that is closed with unread input, and the response would
    // be lost.
    let mut unread = stream.take(MAX_REST_BYTES);
    let _ = timeout(
        REST_TIMEOUT,
        tokio::io::copy(&mut unread, &mut tokio::io::sink()),
    )
    .await;
    Ok(())
}

/// Reads the first line, up to a newline, the end of the input or the maximum length.
async fn read_line(stream: &mut (impl AsyncRead + Unpin)) -> Result<String> {
    let mut bytes = Vec::new();
    while bytes.len() < MAX_LINE_BYTES {
        match stream.read_u8().await {
            Ok(b'\n') => break,
            Ok(byte) => bytes.push(byte),
            Err(error) if error.kind() == ErrorKind::UnexpectedEof => break,
            Err(error) => return Err(error),
        }
    }
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}
