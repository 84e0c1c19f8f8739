//! The control socket: one line of JSON as the request, one as the answer.

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
/// Connections that wait to be accepted.
const BACKLOG: i32 = 128;
/// Connections that are served at the same time; more are closed.
const CLIENTS_MAX: usize = 64;
/// Maximum size of a request, in bytes.
const REQUEST_MAX: u64 = 4 << 20;
/// Maximum size of an answer, in bytes.
const ANSWER_MAX: u64 = 4 << 20;
/// How long a client may take for its request.
const PATIENCE: Duration = Duration::from_secs(2);
/// How long the daemon waits for the status.
const STATUS_TIMEOUT: Duration = Duration::from_millis(500);
/// How long a command waits for an answer.
const ANSWER_TIMEOUT: Duration = Duration::from_secs(5);

/// A request to the agent.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Order {
    /// Report all virtual routers.
    Status,
    /// Stop being active, and stay so.
    Release {
        /// Name of the virtual router.
        router: String,
    },
    /// The daemon reports what virtual routers track.
    Observed(Observed),
    /// End `Release`.
    Resume {
        /// Name of the virtual router.
        router: String,
    },
}

/// What the daemon knows about tracked objects.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Observed {
    /// Whether each service can serve, by name.
    pub services: BTreeMap<String, bool>,
    /// Whether each pool has what it requires, by name.
    pub pools: BTreeMap<String, bool>,
    /// Whether packets can be forwarded.
    pub data_plane: bool,
}

/// Reports what virtual routers track. Blocks for at most half a second.
///
/// # Errors
/// No agent answers.
pub fn observe(runtime_dir: &Path, observed: &Observed) -> Result<(), Error> {
    exchange(
        runtime_dir,
        &Order::Observed(observed.clone()),
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

/// A request, and where its answer goes.
pub(crate) type Pending = (Order, oneshot::Sender<Response>);

/// Creates the socket, for the owner alone, or for the account of the daemon.
pub(crate) fn bind(runtime_dir: &Path) -> Result<UnixListener, Error> {
    let path = runtime_dir.join(SOCKET);
    let failed = |source| Error::Socket {
        path: path.clone(),
        source,
    };
    match fs::remove_file(&path) {
        Err(error) if error.kind() != ErrorKind::NotFound => return Err(failed(error)),
        _ => {}
    }
    let listener = weir_sys::private_listener(&path, BACKLOG).map_err(failed)?;
    let listener = UnixListener::from_std(listener).map_err(failed)?;
    weir_runtime_dir::chown_socket(runtime_dir, &path).map_err(failed)?;
    Ok(listener)
}

/// Accepts clients and passes their requests on.
pub(crate) async fn accept(listener: UnixListener, orders: mpsc::Sender<Pending>) {
    let clients = Arc::new(Semaphore::new(CLIENTS_MAX));
    loop {
        match listener.accept().await {
            Ok((stream, _)) => {
                let Ok(permit) = Arc::clone(&clients).try_acquire_owned() else {
                    continue;
                };
                let orders = orders.clone();
                tokio::spawn(async move {
                    let _ = timeout(PATIENCE, answer(stream, orders)).await;
                    drop(permit);
                });
            }
            Err(_) => tokio::time::sleep(PATIENCE).await,
        }
    }
}

async fn answer(stream: UnixStream, orders: mpsc::Sender<Pending>) -> io::Result<()> {
    let (reader, mut writer) = stream.into_split();
    let mut line = String::new();
    tokio::io::BufReader::new(reader.take(REQUEST_MAX))
        .read_line(&mut line)
        .await?;
    let response = match serde_json::from_str(&line) {
        Err(error) => Response::Rejected(error.to_string()),
        Ok(order) => {
            let (sender, receiver) = oneshot::channel();
            let _ = orders.send((order, sender)).await;
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

/// Sends a request to the agent of a runtime directory, and returns the virtual routers afterwards. Blocks for at most
/// five seconds.
///
/// # Errors
/// No agent answers, or it rejects the request.
pub fn order(runtime_dir: &Path, order: &Order) -> Result<Vec<RouterReport>, Error> {
    exchange(runtime_dir, order, ANSWER_TIMEOUT)
}

fn exchange(
    runtime_dir: &Path,
    order: &Order,
    limit: Duration,
) -> Result<Vec<RouterReport>, Error> {
    let path: PathBuf = runtime_dir.join(SOCKET);
    let exchange = || -> io::Result<String> {
        let mut stream = StdStream::connect(&path)?;
        stream.set_read_timeout(Some(limit))?;
        stream.set_write_timeout(Some(limit))?;
        let mut text = serde_json::to_vec(order)?;
        text.push(b'\n');
        stream.write_all(&text)?;
        let mut line = String::new();
        BufReader::new(stream.take(ANSWER_MAX)).read_line(&mut line)?;
        Ok(line)
    };
    let failed = |source| Error::Socket {
        path: path.clone(),
        source,
    };
    let line = exchange().map_err(failed)?;
    match serde_json::from_str(&line).map_err(|error| failed(error.into()))? {
        Response::Routers(routers) => Ok(routers),
        Response::Rejected(reason) => Err(Error::Rejected(reason)),
    }
}

/// The virtual routers of a runtime directory's agent. Blocks for at most half a second.
///
/// # Errors
/// No agent answers.
pub fn status(runtime_dir: &Path) -> Result<Vec<RouterReport>, Error> {
    exchange(runtime_dir, &Order::Status, STATUS_TIMEOUT)
}
