//! The way from a request to the one task that owns the engine.
//!
//! Orders wait in a queue and are carried out one at a time, so that reloads never meet. The answer comes back through
//! the order itself; a client that left does not stop its order.

use tokio::sync::{mpsc, oneshot};

use super::caller::Caller;
use super::message::{FileRequest, Refusal, Reloaded, ServerNow, UpgradeRequest, Upgraded};
use weir_state::ServerOrder;

use crate::explain::{Answer, Packet, Request};
use crate::ipvsadm;
use crate::plan::Plan;
use crate::status::Report;

/// Orders that may wait; more clients than that wait to be taken in.
const QUEUE: usize = 64;

/// Where the answer goes.
pub type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// One thing asked of the daemon.
#[derive(Debug)]
pub enum Order {
    /// The status document.
    Status(Reply<Report>),
    /// Apply a configuration, with the rights of whoever sent it.
    Reload(FileRequest, Caller, Reply<Reloaded>),
    /// Another program is to take over.
    Upgrade(UpgradeRequest, Reply<Upgraded>),
    /// What applying a configuration would change.
    Plan(FileRequest, Caller, Reply<Plan>),
    /// An operator's word about a server.
    Server {
        /// Pool.
        pool: String,
        /// Address as in the file.
        address: String,
        /// The word.
        request: ServerOrder,
        /// The server as it is then.
        reply: Reply<ServerNow>,
    },
    /// A server as it is now.
    ServerNow {
        /// Pool.
        pool: String,
        /// Address as in the file.
        address: String,
        /// It.
        reply: Reply<ServerNow>,
    },
    /// A server of a pool that the API adds, changes or takes out.
    Member {
        /// Pool.
        pool: String,
        /// Address as in a file.
        address: String,
        /// What an entry of a list may hold; none = it is taken out.
        keys: Option<serde_json::Map<String, serde_json::Value>>,
        /// No answer but success.
        reply: Reply<()>,
    },
    /// What ipvsadm asks.
    Ipvsadm(ipvsadm::Request, Reply<ipvsadm::Answer>),
    /// What would become of a packet.
    Explain(Packet, Reply<Answer>),
    /// What would become of a request.
    ExplainRequest(Request, Reply<Answer>),
}

/// The sending end, one for each request.
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
    /// Puts an order into the queue and waits for its answer.
    ///
    /// # Errors
    /// The daemon's own refusal, or that it is stopping.
    pub async fn ask<T>(&self, order: impl FnOnce(Reply<T>) -> Order) -> Result<T, Refusal> {
        let (reply, answer) = oneshot::channel();
        self.queue
            .send(order(reply))
            .await
            .map_err(|_| Refusal::leaving())?;
        answer.await.map_err(|_| Refusal::leaving())?
    }
}
