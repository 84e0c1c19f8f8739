//! Defines the state changes that are reported to users, and runs the notify programs of pools.

mod batch;

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;
use weir_sys::privileged::{self, Program};

use crate::local::run_via_helper;

pub(crate) use batch::Notifiers;

/// Time limit for a notify program. A program that exceeds it is killed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The object whose state changed.
#[derive(Debug)]
pub(crate) enum Subject {
    /// The pool as a whole.
    Pool,
    /// A server of the pool.
    Server(String),
    /// A server of the pool, for one service only.
    ServerInService(String, String),
    /// A service that uses the pool.
    Service(String),
}

/// A change of state.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) pool: String,
    pub(crate) subject: Subject,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    pub(crate) reason: String,
}

/// Runs the notify program for a change. Errors are logged, not returned.
pub(crate) async fn run(command: Vec<String>, change: Change) {
    let Some((program, arguments)) = command.split_first() else {
        return;
    };
    let (server, service) = match &change.subject {
        Subject::Pool => ("", ""),
        Subject::Server(name) => (name.as_str(), ""),
        Subject::ServerInService(server, service) => (server.as_str(), service.as_str()),
        Subject::Service(name) => ("", name.as_str()),
    };
    if let Some(helper) = privileged::helper() {
        let request = Program::Notify {
            command: command.clone(),
            pool: change.pool.clone(),
            server: server.to_owned(),
            service: service.to_owned(),
            from: change.from.to_owned(),
            to: change.to.to_owned(),
            reason: change.reason.clone(),
        };
        match timeout(TIMEOUT, run_via_helper(helper, &request)).await {
            Ok(Ok(Some(0))) => {}
            Ok(Ok(code)) => tracing::warn!(program, ?code, "notify program failed"),
            Ok(Err(error)) => tracing::warn!(program, %error, "failed to run the notify program"),
            Err(_) => tracing::warn!(program, "notify program timed out"),
        }
        return;
    }
    let mut command = Command::new(program);
    weir_sys::restore_nofile(command.as_std_mut());
    let child = command
        .args(arguments)
        .env("WEIR_POOL", &change.pool)
        .env("WEIR_SERVER", server)
        .env("WEIR_SERVICE", service)
        .env("WEIR_FROM", change.from)
        .env("WEIR_TO", change.to)
        .env("WEIR_REASON", &change.reason)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .kill_on_drop(true)
        .status();
    match timeout(TIMEOUT, child).await {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => tracing::warn!(program, %status, "notify program failed"),
        Ok(Err(error)) => tracing::warn!(program, %error, "failed to run the notify program"),
        Err(_) => tracing::warn!(program, "notify program timed out"),
    }
}
