//! Passes requests to the task that owns the planes.
//!
//! Requests wait in a queue and are executed one at a time, so reloads never overlap. Each command contains a channel
//! for its result. A request is executed even if its client disconnects.

use tokio::sync::{mpsc, oneshot};

use super::caller::Caller;
use super::message::{
    ApiError, FileRequest, NodeUpdate, PublishRequest, PublishResponse, ReloadResponse,
    ServerStatus, UpgradeRequest, UpgradeResponse,
};
use weir_state::ServerUpdate;

use crate::explain::{ExplainResponse, Packet, Request};
use crate::history::HistoryReport;
use crate::ipvsadm_message as ipvsadm;
use crate::plan::Plan;
use crate::status::{Group, Report};

/// Capacity of the queue. When it is full, further requests wait.
const QUEUE_CAPACITY: usize = 64;

/// The channel for a command's result.
pub type Reply<T> = oneshot::Sender<Result<T, ApiError>>;

/// A command for the task that owns the planes.
#[derive(Debug)]
pub enum Command {
    /// Return the status document.
    Status(Reply<Report>),
    /// Return the totals for the last 15 minutes: those of one service, or of all services together.
    History(Option<String>, Reply<HistoryReport>),
    /// Apply a configuration, within the caller's permissions.
    Reload(FileRequest, Caller, Reply<ReloadResponse>),
    /// Start a new version of the program and hand over to it.
    Upgrade(UpgradeRequest, Reply<UpgradeResponse>),
    /// Return the changes that applying a configuration would make.
    Plan(FileRequest, Caller, Reply<Plan>),
    /// Set or remove a server's override.
    Server {
        /// The server's pool.
        pool: String,
        /// The server's address, as in the file.
        address: String,
        /// The new override.
        request: ServerUpdate,
        /// The reply with the server's resulting state.
        reply: Reply<ServerStatus>,
    },
    /// Return a server's current state.
    ServerStatus {
        /// The server's pool.
        pool: String,
        /// The server's address, as in the file.
        address: String,
        /// The reply with the server's state.
        reply: Reply<ServerStatus>,
    },
    /// Add a server to a pool, or change or remove an added server.
    Member {
        /// The server's pool.
        pool: String,
        /// The server's address, as in a file.
        address: String,
        /// The keys of a list entry; `None` = remove the server.
        keys: Option<serde_json::Map<String, serde_json::Value>>,
        /// The reply that reports success or failure.
        reply: Reply<()>,
    },
    /// Drain this director, or make it ready again.
    Node(NodeUpdate, Reply<NodeUpdate>),
    /// Return the status of the group of directors.
    Cluster(Reply<Group>),
    /// Publish a configuration to the group.
    Publish(PublishRequest, Reply<PublishResponse>),
    /// Execute a request from ipvsadm.
    Ipvsadm(ipvsadm::Request, Reply<ipvsadm::Response>),
    /// Explain how a packet would be handled.
    Explain(Packet, Reply<ExplainResponse>),
    /// Explain how an HTTP request would be handled.
    ExplainRequest(Request, Reply<ExplainResponse>),
}

/// The sending end of the command queue.
#[derive(Clone, Debug)]
pub struct CommandSender {
    queue: mpsc::Sender<Command>,
}

/// Creates a command queue. Returns its sender and receiver.
pub fn command_queue() -> (CommandSender, mpsc::Receiver<Command>) {
    let (queue, receiver) = mpsc::channel(QUEUE_CAPACITY);
    (CommandSender { queue }, receiver)
}

impl CommandSender {
    /// Queues a command and waits for its result.
    ///
    /// # Errors
    /// Fails if the daemon rejects the command, fails to execute it, or is stopping.
    pub async fn send<T>(&self, command: impl FnOnce(Reply<T>) -> Command) -> Result<T, ApiError> {
        let (reply, result) = oneshot::channel();
        self.queue
            .send(command(reply))
            .await
            .map_err(|_| ApiError::stopping())?;
        result.await.map_err(|_| ApiError::stopping())?
    }
}
