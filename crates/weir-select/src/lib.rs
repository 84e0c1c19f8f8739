//! Makes the proxy's decisions for one request, without sockets: route, pool, server, queue, retry, limit, response.
//!
//! [`route`] maps a parsed request to a decision: a pool, a redirect or a response. [`Selection`] then selects the
//! server: its outputs are instructions to connect to a server, to queue the request, or to respond; its inputs are the
//! results of connecting, sending and waiting. [`Balancer`] applies the pool's scheduler with the algorithms of
//! weir-sched. [`Load`], [`limit`] and [`Budget`] contain the counters that limit load per server, requests per client,
//! and retries.
//!
//! ```text
//! request -> route::decide -> Respond | Redirect | pool
//!                                                  |
//!            Selection: select -> Connect -> (response) -> done
//!                          |  ^      |
//!                          v  |      +-- failure -> retry: select again, on another server
//!                        Queue +                 -> Respond
//! ```
//!
//! The crate reads no clock and opens no socket: time and random numbers are arguments, and the driver (weir-proxy)
//! executes the decisions. Loads are atomic integers because workers share them; there are no locks.

mod balance;
mod budget;
pub mod key;
pub mod limit;
mod load;
mod pool;
mod retry;
pub mod route;
mod selection;
#[cfg(test)]
mod test_server;

pub use balance::{Balancer, Criteria};
pub use budget::Budget;
pub use load::Load;
pub use pool::{Pool, Server, TriedServers};
pub use retry::{Fault, RetryPolicy};
pub use selection::{
    AttemptKind, ConnectError, Connections, Failure, Next, Output, QueueExit, Reason, Replay,
    Selection, SelectionContext, UnwantedResponse, Verdict,
};
