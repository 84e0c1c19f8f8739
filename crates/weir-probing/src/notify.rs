//! Runs the programs that pools notify of changes.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// A program that takes longer is killed.
const TIMEOUT: Duration = Duration::from_secs(30);

/// The object that has changed.
#[derive(Debug)]
pub(crate) enum What {
    /// The pool as a whole.
    Pool,
    /// One of its servers.
    Server(String),
    /// One of its servers, in one service only.
    Path(String, String),
    /// A service that uses it.
    Service(String),
}

/// A change of state.
#[derive(Debug)]
pub(crate) struct Change {
    pub(crate) pool: String,
    pub(crate) what: What,
    pub(crate) from: &'static str,
    pub(crate) to: &'static str,
    pub(crate) reason: String,
}

/// Runs the program. A failure is only logged.
pub(crate) async fn run(command: Vec<String>, change: Change) {
    let Some((program, arguments)) = command.split_first() else {
        return;
    };
    let (server, service) = match &change.what {
        What::Pool => ("", ""),
        What::Server(name) => (name.as_str(), ""),
        What::Path(server, service) => (server.as_str(), service.as_str()),
        What::Service(name) => ("", name.as_str()),
    };
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
        Ok(Err(error)) => tracing::warn!(program, %error, "could not run the notify program"),
        Err(_) => tracing::warn!(program, "notify program timed out"),
    }
}
