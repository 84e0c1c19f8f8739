//! What goes to the terminal: colours where they are wanted, and an end without noise when the reader is gone.

use std::env;
use std::io::{self, IsTerminal, Write};

use tracing_subscriber::EnvFilter;
use tracing_subscriber::layer::SubscriberExt;
use tracing_subscriber::util::SubscriberInitExt;

use crate::quiet::{Counting, Quiet};

/// Whether stderr takes colours: it is a terminal, and `NO_COLOR` is not set (no-color.org: to anything but nothing).
pub(crate) fn color() -> bool {
    io::stderr().is_terminal() && env::var_os("NO_COLOR").is_none_or(|value| value.is_empty())
}

/// Results, to stdout.
///
/// # Errors
/// The reader went away, as `head` does, or a disk is full.
pub(crate) fn print(text: &str) -> io::Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        // Nobody reads on: no mistake of this program's, and nothing left to do for it.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => std::process::exit(0),
        other => other,
    }
}

/// Everything else, to stderr; if that is gone too there is nobody to tell.
pub(crate) fn complain(text: &str) {
    let _ = io::stderr().lock().write_all(text.as_bytes());
}

/// A line an event on stderr; `WEIR_LOG` chooses which in place of `usual`, as `debug` or `weir_control=trace`.
pub(crate) fn log(usual: &str) {
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new(usual));
    let format = tracing_subscriber::fmt::format()
        .with_ansi(color())
        .with_target(false);
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(color());
    // The journal knows the time itself.
    if env::var_os("JOURNAL_STREAM").is_some() && !io::stderr().is_terminal() {
        let format = Counting(format.without_time());
        builder.event_format(format).finish().with(Quiet).init();
    } else {
        let format = Counting(format);
        builder.event_format(format).finish().with(Quiet).init();
    }
}
