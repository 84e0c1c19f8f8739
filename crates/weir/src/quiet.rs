//! Bounds what libraries log about clients: each hostile frame may be worth a warning to the HTTP/2 library, and a flood of them
//! would fill a disk. One line a second remains, and it says how many were left out.

use std::fmt;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use tracing::{Event, Level, Subscriber};
use tracing_subscriber::Layer;
use tracing_subscriber::fmt::format::Writer;
use tracing_subscriber::fmt::{FmtContext, FormatEvent, FormatFields};
use tracing_subscriber::layer::Context;
use tracing_subscriber::registry::LookupSpan;

const INTERVAL: Duration = Duration::from_secs(1);
/// The library whose lines are bounded.
const LIBRARY: &str = "h2";

static LEFT_OUT: AtomicU64 = AtomicU64::new(0);
static LAST: Mutex<Option<Instant>> = Mutex::new(None);

/// Whether an event is one that clients bring about. What an operator asks for by `WEIR_LOG`, `debug` and finer, is not bounded.
fn is_bounded(event: &Event<'_>) -> bool {
    let metadata = event.metadata();
    let module = metadata.target().split("::").next();
    *metadata.level() <= Level::INFO && module == Some(LIBRARY)
}

/// Whether a line is due at `now`.
fn is_due(last: &mut Option<Instant>, now: Instant) -> bool {
    let due = last.is_none_or(|last| now.duration_since(last) >= INTERVAL);
    if due {
        *last = Some(now);
    }
    due
}

/// Leaves lines out.
pub(crate) struct Quiet;

impl<S: Subscriber> Layer<S> for Quiet {
    fn event_enabled(&self, event: &Event<'_>, _: Context<'_, S>) -> bool {
        if !is_bounded(event) {
            return true;
        }
        // Another thread that logs at the same time has the line.
        let due = LAST
            .try_lock()
            .is_ok_and(|mut last| is_due(&mut last, Instant::now()));
        if !due {
            LEFT_OUT.fetch_add(1, Ordering::Relaxed);
        }
        due
    }
}

/// Writes events as another format does, and behind one that others were left out before, how many.
pub(crate) struct Counting<F>(pub(crate) F);

impl<S, N, F> FormatEvent<S, N> for Counting<F>
where
    S: Subscriber + for<'a> LookupSpan<'a>,
    N: for<'a> FormatFields<'a> + 'static,
    F: FormatEvent<S, N>,
{
    fn format_event(
        &self,
        context: &FmtContext<'_, S, N>,
        mut writer: Writer<'_>,
        event: &Event<'_>,
    ) -> fmt::Result {
        self.0.format_event(context, writer.by_ref(), event)?;
        if !is_bounded(event) {
            return Ok(());
        }
        match LEFT_OUT.swap(0, Ordering::Relaxed) {
            0 => Ok(()),
            count => writeln!(
                writer,
                "  {count} lines of the HTTP/2 library left out before"
            ),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_line_a_second_is_due() {
        let (mut last, start) = (None, Instant::now());
        let due =
            (0..50u64).filter(|at| is_due(&mut last, start + Duration::from_millis(at * 100)));
        assert_eq!(due.count(), 5);
    }
}
