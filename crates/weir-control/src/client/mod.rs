//! The API as the commands use it: one request on the daemon's unix socket, one answer.

use std::io;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::api::{
    ExplainRequest, FileRequest, Refusal, Reloaded, ServerNow, ServerOrder, UpgradeRequest,
    Upgraded,
};
use crate::daemon::SOCKET;
use crate::explain::{Answer, Packet};
use crate::ipvsadm;
use crate::plan::Plan;
use crate::status::Report;

/// Largest answer, bytes; a hundred thousand servers fit.
const MAX_ANSWER_BYTES: usize = 256 << 20;

/// Why there is no answer.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No daemon listens on the socket.
    #[error("no daemon answers at {path}", path = path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
    },
    /// This user may not use the socket.
    #[error(
        "{path}: Permission denied: run as root, or as a member of `socket_group` in [node]",
        path = path.display()
    )]
    Denied {
        /// The socket.
        path: PathBuf,
    },
    /// The socket is there, and cannot be used.
    #[error("{path}: {source}", path = path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The kernel's answer.
        source: io::Error,
    },
    /// The daemon said no.
    #[error(transparent)]
    Refused(#[from] Refusal),
    /// The daemon took the request, and no answer came in time.
    #[error("the daemon does not respond{}", .stopped.map_or_else(String::new, |pid| format!(": process {pid} is stopped, `kill -CONT {pid}` continues it")))]
    Silent {
        /// Its process, where that is stopped by a signal or a debugger.
        stopped: Option<u32>,
    },
    /// The daemon went away, or what answers is no daemon.
    #[error("the daemon broke off: {reason}")]
    Broken {
        /// What the protocol's code says.
        reason: String,
    },
}

impl Error {
    fn broken(error: impl ToString) -> Self {
        Self::Broken {
            reason: error.to_string(),
        }
    }
}

/// The daemon of a runtime directory.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    /// How long an answer may take; `None` = as long as it does.
    limit: Option<Duration>,
}

impl Client {
    /// Connects with each request.
    pub fn new(runtime_dir: &Path) -> Self {
        Self {
            socket: runtime_dir.join(SOCKET),
            limit: None,
        }
    }

    /// The same with a limit for each answer.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        let limit = Some(limit);
        Self { limit, ..self }
    }

    /// What is true now.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self) -> Result<Report, Error> {
        self.ask(Method::GET, "/v1/status", &()).await
    }

    /// Brings a file into force and waits for it.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn reload(&self, request: &FileRequest) -> Result<Reloaded, Error> {
        self.ask(Method::POST, "/v1/reload", request).await
    }

    /// Has another program take over, and waits for it.
    ///
    /// # Errors
    /// See [`Error`]; then the daemon goes on.
    pub async fn upgrade(&self, request: &UpgradeRequest) -> Result<Upgraded, Error> {
        self.ask(Method::POST, "/v1/upgrade", request).await
    }

    /// What a reload would change.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn plan(&self, request: &FileRequest) -> Result<Plan, Error> {
        self.ask(Method::POST, "/v1/plan", request).await
    }

    /// What would become of a packet.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn explain(&self, packet: &Packet) -> Result<Answer, Error> {
        let request = ExplainRequest {
            packet: Some(packet.to_string()),
            request: None,
            headers: Vec::new(),
        };
        self.ask(Method::POST, "/v1/explain", &request).await
    }

    /// What would become of a request, with header lines.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn explain_request(
        &self,
        request: &str,
        headers: &[String],
    ) -> Result<Answer, Error> {
        let request = ExplainRequest {
            packet: None,
            request: Some(request.to_owned()),
            headers: headers.to_vec(),
        };
        self.ask(Method::POST, "/v1/explain", &request).await
    }

    /// An operator's word about a server; `address` as in the file.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn server(
        &self,
        pool: &str,
        address: &str,
        request: ServerOrder,
    ) -> Result<ServerNow, Error> {
        let path = format!("/v1/servers/{}/{}", segment(pool), segment(address));
        self.ask(Method::POST, &path, &request).await
    }

    /// A server as it is now; `address` as in the file.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn server_now(&self, pool: &str, address: &str) -> Result<ServerNow, Error> {
        let path = format!("/v1/servers/{}/{}", segment(pool), segment(address));
        self.ask(Method::GET, &path, &()).await
    }

    /// What ipvsadm asks.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ipvsadm(&self, request: &ipvsadm::Request) -> Result<ipvsadm::Answer, Error> {
        self.ask(Method::POST, "/v1/ipvsadm", request).await
    }

    /// Repeats a request that a daemon did not execute because another one has taken over.
    ///
    /// A killed daemon may drop a connection that it has not read: if no daemon is there any more, the error is the same
    /// as for a later request.
    async fn ask<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let work = self.ask_patiently(method, path, body);
        let Some(limit) = self.limit else {
            return work.await;
        };
        match timeout(limit, work).await {
            Ok(answer) => answer,
            Err(_) => Err(Error::Silent {
                stopped: self.stopped().await,
            }),
        }
    }

    /// The process at the socket, if it is stopped.
    async fn stopped(&self) -> Option<u32> {
        let stream = self.connect().await.ok()?;
        let pid = stream.peer_cred().ok()?.pid()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The name is in brackets and may hold any character; the state comes behind it.
        let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
        let pid = u32::try_from(pid).ok()?;
        matches!(state, 'T' | 't').then_some(pid)
    }

    async fn ask_patiently<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let answer = self.ask_once(method.clone(), path, body).await;
        match answer {
            Err(Error::Broken { .. }) => drop(self.connect().await?),
            // Its successor, if it has one, answers there already.
            Err(Error::Refused(Refusal { leaving: true, .. })) => {
                return self.ask_once(method, path, body).await;
            }
            _ => {}
        }
        answer
    }

    async fn ask_once<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let stream = self.connect().await?;
        let connected = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = connected.map_err(Error::broken)?;
        // Its errors come back through the request as well.
        let driver = tokio::spawn(connection);
        let body = if method == Method::GET {
            Bytes::new()
        } else {
            Bytes::from(serde_json::to_vec(body).map_err(Error::broken)?)
        };
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header(header::HOST, "weir")
            .header(header::CONTENT_TYPE, "application/json")
            .body(Full::new(body))
            .map_err(Error::broken)?;
        let answer = sender.send_request(request).await.map_err(Error::broken)?;
        let status = answer.status();
        let limited = Limited::new(answer.into_body(), MAX_ANSWER_BYTES);
        let bytes = limited.collect().await.map_err(Error::broken)?.to_bytes();
        driver.abort();
        if status == StatusCode::OK {
            return serde_json::from_slice(&bytes).map_err(Error::broken);
        }
        Err(match serde_json::from_slice::<Refusal>(&bytes) {
            Ok(refusal) => Error::Refused(refusal),
            Err(_) => Error::broken(status),
        })
    }

    async fn connect(&self) -> Result<UnixStream, Error> {
        let path = self.socket.clone();
        UnixStream::connect(&path)
            .await
            .map_err(|source| match source.kind() {
                // A daemon that died by SIGKILL leaves its socket, which refuses.
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    Error::NoDaemon { path }
                }
                io::ErrorKind::PermissionDenied => Error::Denied { path },
                // Its queue of connections is full.
                io::ErrorKind::WouldBlock => Error::Silent { stopped: None },
                _ => Error::Socket { path, source },
            })
    }
}

/// One segment of a path: everything but RFC 3986's unreserved characters is escaped.
fn segment(text: &str) -> String {
    text.bytes()
        .map(|byte| match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'.' | b'_' | b'~' => {
                char::from(byte).to_string()
            }
            other => format!("%{other:02X}"),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn addresses_become_one_segment() {
        assert_eq!(segment("10.0.0.5:80"), "10.0.0.5%3A80");
        assert_eq!(segment("[2001:db8::1]:80"), "%5B2001%3Adb8%3A%3A1%5D%3A80");
        assert_eq!(segment("a/b"), "a%2Fb");
    }
}
