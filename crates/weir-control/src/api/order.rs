//! Passes requests to the task that owns the engine.
//!
//! Requests wait in a queue and are executed one at a time, so reloads never overlap. The response is returned through
//! the order itself; a client that disconnects does not cancel its request.

use tokio::sync::{mpsc, oneshot};

use super::caller::Caller;
use super::message::{
    FileRequest, NodeOrder, PublishRequest, Published, Refusal, Reloaded, ServerNow,
    UpgradeRequest, Upgraded,
};
use weir_state::ServerOrder;

use crate::explain::{Answer, Packet, Request};
use crate::history::HistoryReport;
use crate::ipvsadm_message as ipvsadm;
use crate::plan::Plan;
use crate::status::{Group, Report};

/// Capacity of the queue; further requests wait to be queued.
const QUEUE: usize = 64;

/// Channel of the response.
pub type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// A request to the daemon.
#[derive(Debug)]
pub enum Order {
    /// The status document.
    Status(Reply<Report>),
    /// Totals of the last 15 minutes, of a service or of all services together.
    History(Option<String>, Reply<HistoryReport>),
    /// Apply a configuration, with the rights of the caller.
    Reload(FileRequest, Caller, Reply<Reloaded>),
    /// Upgrade to another program.
    Upgrade(UpgradeRequest, Reply<Upgraded>),
    /// The changes that applying a configuration would make.
    Plan(FileRequest, Caller, Reply<Plan>),
    /// Set or remove a server's override.
    Server {
        /// Pool.
        pool: String,
        /// Address as in the file.
        address: String,
        /// The override.
        request: ServerOrder,
        /// The resulting state of the server.
        reply: Reply<ServerNow>,
    },
    /// The current state of a server.
    ServerNow {
        /// Pool.
        pool: String,
        /// Address as in the file.
        address: String,
        /// The state of the server.
        reply: Reply<ServerNow>,
    },
    /// A server that the API adds to a pool, changes or removes.
    Member {
        /// Pool.
        pool: String,
        /// Address as in a file.
        address: String,
        /// The keys of a list entry; `None` = remove it.
        keys: Option<serde_json::Map<String, serde_json::Value>>,
        /// Success or failure.
        reply: Reply<()>,
    },
    /// Drain this director, or end that.
    Node(NodeOrder, Reply<NodeOrder>),
    /// The group of directors.
    Cluster(Reply<Group>),
    /// Publish a configuration to the group.
    Publish(PublishRequest, Reply<Published>),
    /// A request of ipvsadm, with the socket of the client.
    Ipvsadm(ipvsadm::Request, Reply<ipvsadm::Answer>),
    /// Explain how a packet would be handled.
    Explain(Packet, Reply<Answer>),
    /// Explain how an HTTP request would be handled.
    ExplainRequest(Request, Reply<Answer>),
}

/// The sender, one for each request.
#[derive(Clone, Debug)]
pub struct Orders {
    queue: mpsc::Sender<Order>,
}

/// A queue of orders.
pub fn orders() -> (Orders, mpsc::Receiver<Order>) {
    let (queue, taken) = mpsc::channel(QUEUE);
    (Orders { queue }, taken)
}

impl Orders {
    /// Queues a request and waits for its response.
    ///
    /// # Errors
    /// The daemon rejects the request or is stopping.
    pub async fn send<T>(&self, order: impl FnOnce(Reply<T>) -> Order) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.queue
            .send(order(reply))
            .await
            .map_err(|_| Refusal::leaving())?;
        answer.await.map_err(|_| Refusal::leaving())?
    }
}
