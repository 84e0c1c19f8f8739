//! The proxy's decisions for one request, without sockets: route, pool, server, queue, retry, limit, answer.
//!
//! [`route`] turns a parsed request into a decision: a pool, a redirect or an answer. [`Selection`] then selects the
//! server: it outputs which server to connect to, whether to queue, and when to answer; its inputs are the results of
//! connecting, sending and waiting. [`Balancer`] applies the pool's scheduler with the algorithms of weir-sched.
//! [`Load`], [`limit`] and [`Budget`] are the counters that bound servers, clients and retries.
//!
//! ```text
//! request -> route::decide -> Answer | Redirect | pool
//!                                                  |
//!            Selection: select -> Connect -> (response) -> done
//!                          |  ^      |
//!                          v  |      +-- failure -> retry: select again, on another server
//!                        Queue +                 -> Answer
//! ```
//!
//! The crate reads no clock and opens no socket: time and random numbers are arguments, and the driver (weir-proxy)
//! executes what is decided. Loads are atomic integers because workers share them; nothing here takes a lock.

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
pub use pool::{Pool, Server, Tried};
pub use retry::{Fault, RetryPolicy};
pub use selection::{
    ConnectError, Connections, Counted, Env, Failure, Next, Output, QueueExit, Reason, Replay,
    Selection, Unwanted, Verdict,
};
