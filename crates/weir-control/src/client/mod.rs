//! Implements the API client that the commands use. It opens a connection to the daemon's Unix socket for each request.

mod tap;

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use http_body_util::{BodyExt, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::{Method, Request, StatusCode, header};
use hyper_util::rt::TokioIo;
use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, utf8_percent_encode};
use serde::Serialize;
use serde::de::DeserializeOwned;
use tokio::net::UnixStream;
use tokio::time::timeout;

use crate::api::{
    ApiError, ExplainRequest, FileRequest, NodeUpdate, PublishRequest, PublishResponse,
    ReloadResponse, ServerStatus, ServerUpdate, UpgradeRequest, UpgradeResponse,
};
use crate::explain::{ExplainResponse, Packet};
use crate::ipvsadm_message as ipvsadm;
use crate::log_filter::Filter;
use crate::plan::Plan;
use crate::runtime_dir::SOCKET;
use crate::status::{Group, Report};

/// Maximum size of a response in bytes, enough for a hundred thousand servers.
const MAX_RESPONSE_BYTES: usize = 256 << 20;

/// Why a request failed.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// No daemon listens on the socket.
    #[error("no daemon is listening on {path}", path = path.display())]
    NoDaemon {
        /// The socket.
        path: PathBuf,
    },
    /// This user is not permitted to use the socket.
    #[error(
        "{path}: permission denied: run as root, or as a member of `socket_group` in [node]",
        path = path.display()
    )]
    Denied {
        /// The socket.
        path: PathBuf,
    },
    /// The socket exists, but cannot be used.
    #[error("{path}: {source}", path = path.display())]
    Socket {
        /// The socket.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The daemon rejected the request.
    #[error(transparent)]
    Refused(#[from] ApiError),
    /// The daemon did not accept the connection or did not respond in time.
    #[error("the daemon did not respond {}{}", describe_limit(*.limit), stopped_process(*.stopped))]
    Silent {
        /// The time limit; `None` = the daemon did not accept the connection, because too many clients are waiting.
        limit: Option<Duration>,
        /// The daemon's process ID if a signal or a debugger has stopped the process.
        stopped: Option<u32>,
    },
    /// The daemon closed the connection, or its response is invalid.
    #[error("no valid response from the daemon: {reason}")]
    Broken {
        /// A description of the error.
        reason: String,
    },
}

fn describe_limit(limit: Option<Duration>) -> String {
    limit.map_or_else(
        || "in time".to_owned(),
        |limit| format!("within {} s", limit.as_secs_f64()),
    )
}

fn stopped_process(pid: Option<u32>) -> String {
    pid.map_or_else(String::new, |pid| {
        format!(": process {pid} is stopped; to continue it, run `kill -CONT {pid}`")
    })
}

impl Error {
    fn broken(error: impl ToString) -> Self {
        Self::Broken {
            reason: error.to_string(),
        }
    }
}

/// A client for the daemon that uses a given runtime directory.
#[derive(Clone, Debug)]
pub struct Client {
    socket: PathBuf,
    /// Time limit for a response; `None` = no limit.
    limit: Option<Duration>,
}

impl Client {
    /// Creates a client that opens a connection for each request.
    pub fn new(runtime_dir: &Path) -> Self {
        Self {
            socket: runtime_dir.join(SOCKET),
            limit: None,
        }
    }

    /// Sets a time limit for each response.
    #[must_use]
    pub fn within(self, limit: Duration) -> Self {
        let limit = Some(limit);
        Self { limit, ..self }
    }

    /// Returns the current status.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn status(&self) -> Result<Report, Error> {
        self.send(Method::GET, "/v1/status", &()).await
    }

    /// Applies a configuration, and waits until it is active and its guard, if requested, has ended.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn reload(&self, request: &FileRequest) -> Result<ReloadResponse, Error> {
        self.send(Method::POST, "/v1/reload", request).await
    }

    /// Replaces the daemon with a new program and waits until it is ready.
    ///
    /// # Errors
    /// See [`Error`]. The old daemon then continues to run.
    pub async fn upgrade(&self, request: &UpgradeRequest) -> Result<UpgradeResponse, Error> {
        self.send(Method::POST, "/v1/upgrade", request).await
    }

    /// Returns the changes that a reload would make.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn plan(&self, request: &FileRequest) -> Result<Plan, Error> {
        self.send(Method::POST, "/v1/plan", request).await
    }

    /// Explains how a packet would be handled.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn explain(&self, packet: &Packet) -> Result<ExplainResponse, Error> {
        let request = ExplainRequest {
            packet: Some(packet.to_string()),
            ..ExplainRequest::default()
        };
        self.send(Method::POST, "/v1/explain", &request).await
    }

    /// Explains how a request with these header lines would be handled. `address` is the client's address, if known.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn explain_request(
        &self,
        request: &str,
        headers: &[String],
        address: Option<IpAddr>,
    ) -> Result<ExplainResponse, Error> {
        let request = ExplainRequest {
            packet: None,
            request: Some(request.to_owned()),
            headers: headers.to_vec(),
            client: address,
        };
        self.send(Method::POST, "/v1/explain", &request).await
    }

    /// Sets or removes a server's override; `address` is written as in the file.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn server(
        &self,
        pool: &str,
        address: &str,
        request: ServerUpdate,
    ) -> Result<ServerStatus, Error> {
        let path = format!("/v1/servers/{}/{}", segment(pool), segment(address));
        self.send(Method::POST, &path, &request).await
    }

    /// Returns a server's current state; `address` is written as in the file.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn server_status(&self, pool: &str, address: &str) -> Result<ServerStatus, Error> {
        let path = format!("/v1/servers/{}/{}", segment(pool), segment(address));
        self.send(Method::GET, &path, &()).await
    }

    /// Drains the director, or makes it ready again.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn node(&self, request: NodeUpdate) -> Result<NodeUpdate, Error> {
        self.send(Method::POST, "/v1/node", &request).await
    }

    /// Returns the status of the director group.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn cluster(&self) -> Result<Group, Error> {
        self.send(Method::GET, "/v1/cluster", &()).await
    }

    /// Publishes a configuration to the group of directors.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn publish(&self, request: &PublishRequest) -> Result<PublishResponse, Error> {
        self.send(Method::POST, "/v1/cluster/publish", request)
            .await
    }

    /// Executes a request from ipvsadm.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn ipvsadm(&self, request: &ipvsadm::Request) -> Result<ipvsadm::Response, Error> {
        self.send(Method::POST, "/v1/ipvsadm", request).await
    }

    /// Returns the daemon's active log filter.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn log_filter(&self) -> Result<Filter, Error> {
        self.send(Method::GET, "/v1/log", &()).await
    }

    /// Changes the daemon's log filter until the daemon stops.
    ///
    /// # Errors
    /// See [`Error`].
    pub async fn set_log_filter(&self, filter: &Filter) -> Result<Filter, Error> {
        self.send(Method::POST, "/v1/log", filter).await
    }

    /// Sends a request. Repeats the request if the daemon did not execute it because a successor has taken over.
    ///
    /// If the daemon is killed, the connection can break before the request is read. If no daemon is running by then,
    /// the error is the same as for a later request.
    async fn send<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let request = self.request_with_retry(method, path, body);
        let Some(limit) = self.limit else {
            return request.await;
        };
        match timeout(limit, request).await {
            Ok(response) => response,
            Err(_) => Err(Error::Silent {
                limit: Some(limit),
                stopped: self.stopped_daemon().await,
            }),
        }
    }

    /// Returns the ID of the process that serves the socket if a signal or a debugger has stopped the process.
    async fn stopped_daemon(&self) -> Option<u32> {
        let stream = self.connect().await.ok()?;
        let pid = stream.peer_cred().ok()?.pid()?;
        let stat = std::fs::read_to_string(format!("/proc/{pid}/stat")).ok()?;
        // The state follows the process name, which is in parentheses and can contain any character.
        let state = stat.rsplit_once(')')?.1.trim_start().chars().next()?;
        let pid = u32::try_from(pid).ok()?;
        matches!(state, 'T' | 't').then_some(pid)
    }

    async fn request_with_retry<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let response = self.request_once(method.clone(), path, body).await;
        match response {
            Err(Error::Broken { .. }) => drop(self.connect().await?),
            // A successor already listens on the socket.
            Err(Error::Refused(ApiError {
                is_stopping: true, ..
            })) => {
                return self.request_once(method, path, body).await;
            }
            _ => {}
        }
        response
    }

    async fn request_once<T: DeserializeOwned>(
        &self,
        method: Method,
        path: &str,
        body: &impl Serialize,
    ) -> Result<T, Error> {
        let stream = self.connect().await?;
        let result = http1::handshake(TokioIo::new(stream)).await;
        let (mut sender, connection) = result.map_err(Error::broken)?;
        // `send_request` also returns the connection's errors.
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
        let response = sender.send_request(request).await.map_err(Error::broken)?;
        let status = response.status();
        let limited = Limited::new(response.into_body(), MAX_RESPONSE_BYTES);
        let bytes = limited.collect().await.map_err(Error::broken)?.to_bytes();
        driver.abort();
        if status == StatusCode::OK {
            return serde_json::from_slice(&bytes).map_err(Error::broken);
        }
        Err(match serde_json::from_slice::<ApiError>(&bytes) {
            Ok(error) => Error::Refused(error),
            Err(_) => Error::broken(status),
        })
    }

    async fn connect(&self) -> Result<UnixStream, Error> {
        let path = self.socket.clone();
        UnixStream::connect(&path)
            .await
            .map_err(|source| match source.kind() {
                // The socket of a killed daemon refuses connections.
                io::ErrorKind::NotFound | io::ErrorKind::ConnectionRefused => {
                    Error::NoDaemon { path }
                }
                io::ErrorKind::PermissionDenied => Error::Denied { path },
                // The listen backlog is full.
                io::ErrorKind::WouldBlock => Error::Silent {
                    limit: None,
                    stopped: None,
                },
                _ => Error::Socket { path, source },
            })
    }
}

/// The characters to escape: all except the unreserved characters (RFC 3986 section 2.3).
const RESERVED: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');

/// Encodes text as one path segment.
fn segment(text: &str) -> impl fmt::Display {
    utf8_percent_encode(text, RESERVED)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn address_is_escaped_into_one_path_segment() {
        assert_eq!(segment("10.0.0.5:80").to_string(), "10.0.0.5%3A80");
        assert_eq!(
            segment("[2001:db8::1]:80").to_string(),
            "%5B2001%3Adb8%3A%3A1%5D%3A80"
        );
        assert_eq!(segment("a/b").to_string(), "a%2Fb");
    }
}
