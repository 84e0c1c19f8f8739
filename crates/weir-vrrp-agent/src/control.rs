//! Serves the control socket and sends requests to it. A request and its response are one line of JSON each.

use std::collections::BTreeMap;
use std::fs;
use std::io::{self, BufRead, BufReader, ErrorKind, Read, Write};
use std::os::unix::net::UnixStream as StdStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt};
use tokio::net::{UnixListener, UnixStream};
use tokio::sync::{Semaphore, mpsc, oneshot};
use tokio::time::timeout;

use crate::{Error, RouterReport};

const SOCKET: &str = "vrrp.sock";
/// Maximum number of connections waiting to be accepted.
const BACKLOG: i32 = 128;
/// Maximum number of concurrent connections; others are closed.
const MAX_CLIENTS: usize = 64;
/// Maximum size of a request, in bytes.
const REQUEST_MAX_BYTES: u64 = 4 << 20;
/// Maximum size of a response, in bytes.
const RESPONSE_MAX_BYTES: u64 = 4 << 20;
/// Time limit for a client to send a request and receive the response.
const CLIENT_TIMEOUT: Duration = Duration::from_secs(2);
/// Time limit for each read or write when the daemon reports or asks for the status.
const STATUS_TIMEOUT: Duration = Duration::from_millis(500);
/// Time limit for each read or write of a command.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(5);

/// A request to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum ControlRequest {
    /// Return the status of all virtual routers.
    Status,
    /// Prevent a virtual router from being active until `Resume`, even if the agent is replaced.
    Release {
        /// Name of the virtual router.
        router: String,
    },
    /// The daemon's report on objects that virtual routers track.
    Observed(ObservedState),
    /// Revert `Release`.
    Resume {
        /// Name of the virtual router.
        router: String,
    },
}

/// The daemon's report on objects that virtual routers track.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ObservedState {
    /// Whether each service can serve, by name.
    pub services: BTreeMap<String, bool>,
    /// Whether each pool fulfills its requirements, by name.
    pub pools: BTreeMap<String, bool>,
    /// Whether packets can be forwarded.
    pub data_plane: bool,
    /// Whether the director is drained, so that no virtual router may be active. A daemon of an earlier version does
    /// not report this; it only sends `Release`.
    #[serde(default)]
    pub drained: bool,
}

/// Reports the state of tracked objects to the agent. Blocks for at most half a second per read or write.
///
/// # Errors
/// Returns an error if no agent responds, or if it rejects the report.
pub fn report_observed_state(runtime_dir: &Path, observed: &ObservedState) -> Result<(), Error> {
    exchange(
        runtime_dir,
        &ControlRequest::Observed(observed.clone()),
        STATUS_TIMEOUT,
    )
    .map(drop)
}

#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub(crate) enum Response {
    Routers(Vec<RouterReport>),
    Rejected(String),
}

/// A request and the channel for its response.
pub(crate) type PendingControlRequest = (ControlRequest, oneshot::Sender<Response>);

/// Creates the socket. Only its owner can connect: this user, or the daemon's account.
pub(crate) fn bind(runtime_dir: &Path) -> Result<UnixListener, Error> {
    let path = runtime_dir.join(SOCKET);
    let socket_error = |source| Error::Socket {
        path: path.clone(),
        source,
    };
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(socket_error(error)),
        _ => {}
    }
    let listener = weir_sys::create_private_listener(&path, BACKLOG).map_err(socket_error)?;
    let listener = UnixListener::from_std(listener).map_err(socket_error)?;
    weir_runtime_dir::chown_socket(runtime_dir, &path).map_err(socket_error)?;
    Ok(listener)
}

/// Accepts clients and forwards their requests to `requests`.
pub(crate) async fn accept(listener: UnixListener, requests: mpsc::Sender<PendingControlRequest>) {
    let clients = Arc::new(Semaphore::new(MAX_CLIENTS));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(permit) = Arc::clone(&clients).try_acquire_owned() else {
                    continue;
                };
                let requests = requests.clone();
                tokio::spawn(async move {
                    let _ = timeout(CLIENT_TIMEOUT, respond(stream, requests)).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(CLIENT_TIMEOUT).await,
        }
    }
}

async fn respond(
    stream: UnixStream,
    requests: mpsc::Sender<PendingControlRequest>,
) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    tokio::io::BufReader::new(reader.take(REQUEST_MAX_BYTES))
        .read_line(&mut line)
        .await?;
    let response = match serde_json::from_str(&line) {
        Err(error) => Response::Rejected(error.to_string()),
        Ok(request) => {
            let (sender, receiver) = oneshot::channel();
            let _ = requests.send((request, sender)).await;
            match receiver.await {
                Ok(response) => response,
                Err(_) => return Ok(()),
            }
        }
    };
    let mut text = serde_json::to_vec(&response)?;
    text.push(b'\n');
    writer.write_all(&text).await
}

/// Sends a request to the agent of a runtime directory and returns the resulting state of the virtual routers. Blocks
/// for at most five seconds per read or write.
///
/// # Errors
/// Returns an error if no agent responds, or if it rejects the request.
pub fn send_request(
    runtime_dir: &Path,
    request: &ControlRequest,
) -> Result<Vec<RouterReport>, Error> {
    exchange(runtime_dir, request, RESPONSE_TIMEOUT)
}

fn exchange(
    runtime_dir: &Path,
    request: &ControlRequest,
    timeout: Duration,
) -> Result<Vec<RouterReport>, Error> {
    let path: PathBuf = runtime_dir.join(SOCKET);
    let exchange = || -> io::Result<String> {
        let mut stream = StdStream::connect(&path)?;
        stream.set_read_timeout(Some(timeout))?;
        stream.set_write_timeout(Some(timeout))?;
        let mut text = serde_json::to_vec(request)?;
        text.push(b'\n');
        stream.write_all(&text)?;
        let mut line = String::new();
        BufReader::new(stream.take(RESPONSE_MAX_BYTES)).read_line(&mut line)?;
        Ok(line)
    };
    let socket_error = |source| Error::Socket {
        path: path.clone(),
        source,
    };
    let line = exchange().map_err(socket_error)?;
    match serde_json::from_str(&line).map_err(|error| socket_error(error.into()))? {
        Response::Routers(routers) => Ok(routers),
        Response::Rejected(reason) => Err(Error::Rejected(reason)),
    }
}

/// Returns the virtual routers of a runtime directory's agent. Blocks for at most half a second per read or write.
///
/// # Errors
/// Returns an error if no agent responds.
pub fn status(runtime_dir: &Path) -> Result<Vec<RouterReport>, Error> {
    exchange(runtime_dir, &ControlRequest::Status, STATUS_TIMEOUT)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn report_of_earlier_daemon_is_accepted() {
        let text = r#"{"observed":{"services":{"web":true},"pools":{},"data_plane":true}}"#;
        let expected = ObservedState {
            services: BTreeMap::from([("web".to_owned(), true)]),
            data_plane: true,
            ..ObservedState::default()
        };
        let request: ControlRequest = serde_json::from_str(text).unwrap();
        assert_eq!(request, ControlRequest::Observed(expected));
    }
}
