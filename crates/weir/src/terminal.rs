//! Writes results, messages and the log, with colors on a terminal. Exits silently if the reader of stdout has closed
//! the pipe.

use std::env;
use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;
use weir_control::log_filter;

use crate::log_rate_limit::{RateLimit, WithSuppressedCount};

/// Returns whether to use colors on stderr: stderr must be a terminal, and the user must not have disabled colors.
pub(crate) fn color() -> bool {
    io::stderr().is_terminal() && wants_color()
}

/// Returns whether `NO_COLOR` is unset or empty (no-color.org).
pub(crate) fn wants_color() -> bool {
    env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Writes results to stdout. Exits with 0 if the reader, such as `head`, has closed the pipe.
///
/// # Errors
/// Fails if writing to stdout fails, for example because the disk is full.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // The reader does not need more output.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other,
    }
}

/// Writes messages to stderr. Errors are ignored, because they could not be reported.
pub(crate) fn eprint(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// Starts the log on stderr. `WEIR_LOG` overrides the level `default` if it is valid, for example `debug` or
/// `weir_control=trace`, and `weir log` changes it in a daemon.
pub(crate) fn start_log(default: &str) {
    let variable = env::var("WEIR_LOG").ok();
    let parsed = variable.and_then(|text| Some((EnvFilter::try_new(&text).ok()?, text)));
    let (filter, text) = parsed.unwrap_or_else(|| (EnvFilter::new(default), default.to_owned()));
    let format = tracing_subscriber::fmt::format()
        .with_ansi(color())
        .with_target(false);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(color());
    // The journal adds the time.
    if env::var_os("JOURNAL_STREAM").is_some() && !io::stderr().is_terminal() {
        let format = WithSuppressedCount(format.without_time());
        let builder = builder.event_format(format).with_filter_reloading();
        let handle = builder.reload_handle();
        builder.finish().with(RateLimit).init();
        log_filter::register(&text, move |new| {
            let filter = EnvFilter::try_new(new).map_err(|error| error.to_string())?;
            handle.reload(filter).map_err(|error| error.to_string())
        });
    } else {
        let format = WithSuppressedCount(format);
        let builder = builder.event_format(format).with_filter_reloading();
        let handle = builder.reload_handle();
        builder.finish().with(RateLimit).init();
        log_filter::register(&text, move |new| {
            let filter = EnvFilter::try_new(new).map_err(|error| error.to_string())?;
            handle.reload(filter).map_err(|error| error.to_string())
        });
    }
}
