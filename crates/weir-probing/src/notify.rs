//! Programs that are told of changes.

use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

/// What it gets; then it is killed.
const LONGEST: Duration = Duration::from_secs(30);

/// What has changed.
#[derive(Debug)]
pub(crate) enum What {
    /// The pool as a whole.
    Pool,
    /// One of its servers.
    Server(String),
    /// One of its servers, in one service alone.
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

/// Calls the program; that it failed is logged and changes nothing.
pub(crate) async fn tell(command: Vec<String>, change: Change) {
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
    match timeout(LONGEST, child).await {
        Ok(Ok(status)) if status.success() => {}
        Ok(Ok(status)) => tracing::warn!(program, %status, "the program that is told of changes"),
        Ok(Err(error)) => tracing::warn!(program, %error, "the program that is told of changes"),
        Err(_) => tracing::warn!(program, "the program that is told of changes took too long"),
    }
}
