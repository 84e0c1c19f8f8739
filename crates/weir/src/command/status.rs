//! Implements `weir status`.

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant, SystemTime};

use ratatui::crossterm::terminal::size as reported_size;
use weir_control::client::{self, Client};
use weir_control::configuration::{self, Secrets};
use weir_control::status::table::{self, Previous, View};
use weir_control::status::{Report, pinned};
use weir_control::{daemon, runtime_dir};

use super::{Outcome, STATUS_TIMEOUT, block_on};
use crate::arguments::{Command, GlobalOptions};
use crate::failure::Failure;
use crate::terminal;

/// Refresh interval of `--watch`.
const WATCH_INTERVAL: Duration = Duration::from_secs(1);

/// Minimum number of columns of the formatted text.
const MIN_COLUMNS: usize = 80;

/// Number of rows of a terminal whose size is unknown.
const DEFAULT_ROWS: usize = 24;

/// Returns the number of columns and rows of the terminal, or `None` if they are unknown or 0 (a pty without a size).
fn terminal_size() -> Option<(u16, u16)> {
    let reported = reported_size().ok();
    reported.filter(|&(columns, rows)| columns > 0 && rows > 0)
}

/// Escape sequences around a page of `--watch`. The first disables line wrapping; the second erases the rest of the
/// screen and enables line wrapping (DEC private mode 7, ECMA-48: ED).
const PAGE_SEQUENCES: (&str, &str) = ("\x1b[?7l", "\x1b[J\x1b[?7h");

/// The options of the command.
struct Query {
    pool: Option<String>,
    down: bool,
    json: bool,
    watch: bool,
}

pub(super) fn status(global: &GlobalOptions, command: &Command) -> Outcome {
    let Command::Status {
        pool,
        down,
        json,
        watch,
    } = command
    else {
        return Ok(ExitCode::SUCCESS);
    };
    let query = Query {
        pool: pool.clone(),
        down: *down,
        json: *json,
        watch: *watch,
    };
    let client = Client::new(&global.runtime_dir).within(STATUS_TIMEOUT);
    block_on(async {
        if query.watch {
            return watch_status(&client, &query).await;
        }
        match client.status().await {
            Ok(report) => {
                terminal::print(&render(report, &query)?)?;
                Ok(ExitCode::SUCCESS)
            }
            Err(error @ (client::Error::NoDaemon { .. } | client::Error::Silent { .. })) => {
                print_pinned(global, &query, error).await
            }
            Err(error) => Err(error.into()),
        }
    })?
}

/// Returns `COLUMNS`, or the width of the terminal; `MIN_COLUMNS` if both are unknown.
fn columns() -> usize {
    let variable = std::env::var("COLUMNS").ok();
    let columns = variable.and_then(|text| text.parse().ok());
    columns
        .unwrap_or_else(|| terminal_size().map_or(MIN_COLUMNS, |(columns, _)| usize::from(columns)))
}

fn view(query: &Query) -> View<'static> {
    let is_terminal = io::stdout().is_terminal();
    View {
        width: is_terminal.then(|| columns().max(MIN_COLUMNS)),
        color: is_terminal && terminal::wants_color(),
        all: query.pool.is_some() || query.down,
        down: query.down,
        now: SystemTime::UNIX_EPOCH.elapsed().ok(),
        previous: None,
    }
}

fn render(mut report: Report, query: &Query) -> Result<String, Failure> {
    table::select(&mut report, query.pool.as_deref(), query.down).map_err(Failure::failed)?;
    if !query.json {
        return Ok(table::render(&report, &view(query)));
    }
    let text = serde_json::to_string_pretty(&report).map_err(Failure::failed)?;
    Ok(text + "\n")
}

/// Prints the status until the user interrupts the program or the daemon exits.
async fn watch_status(client: &Client, query: &Query) -> Outcome {
    let is_terminal = io::stdout().is_terminal();
    let mut previous: Option<(Report, Instant)> = None;
    loop {
        let mut report = match client.status().await {
            // The daemon may reply next time.
            Err(error @ client::Error::Silent { .. }) => {
                terminal::eprint(&format!("weir: {error}\n"));
                // A full accept queue is reported immediately.
                tokio::time::sleep(WATCH_INTERVAL).await;
                continue;
            }
            other => other?,
        };
        table::select(&mut report, query.pool.as_deref(), query.down).map_err(Failure::failed)?;
        let now = Instant::now();
        let page = if query.json {
            serde_json::to_string(&report).map_err(Failure::failed)? + "\n"
        } else {
            let previous = previous.as_ref().map(|(report, read_at)| Previous {
                report,
                elapsed: now - *read_at,
            });
            let view = View {
                previous,
                ..view(query)
            };
            let text = table::render(&report, &view);
            if is_terminal {
                let rows = terminal_size().map_or(DEFAULT_ROWS, |(_, rows)| usize::from(rows));
                format_page(&text, rows)
            } else {
                text
            }
        };
        terminal::print(&page)?;
        previous = Some((report, now));
        tokio::time::sleep(WATCH_INTERVAL).await;
    }
}

/// Positions each line at its row on a screen with `rows` rows, so that nothing scrolls and the header remains visible.
/// If not all lines fit, the last row reports how many are hidden.
fn format_page(text: &str, rows: usize) -> String {
    let lines = text.lines().count();
    let shown = if lines > rows {
        rows.saturating_sub(1)
    } else {
        lines
    };
    let mut page = PAGE_SEQUENCES.0.to_owned();
    for (index, line) in text.lines().take(shown).enumerate() {
        page.push_str(&format!("\x1b[{};1H{line}\x1b[K", index + 1));
    }
    if shown < lines {
        let hidden = lines - shown;
        page.push_str(&format!(
            "\x1b[{};1H… {hidden} more lines; specify a pool, or use --down\x1b[K",
            shown + 1
        ));
    }
    page + PAGE_SEQUENCES.1
}

/// Prints the state of the pinned data plane because no daemon replies, and returns the failure that reports this.
async fn print_pinned(global: &GlobalOptions, query: &Query, error: client::Error) -> Outcome {
    let last = daemon::last_configuration(&global.runtime_dir);
    let file = global.config.as_deref().or(last.as_deref());
    let desired = configuration::load_with(file.unwrap_or(global.config()), false, Secrets::Unread)
        .map(|loaded| loaded.desired)
        .unwrap_or_default();
    let desired = weir_engine::with_ipvsadm_services(&global.runtime_dir, desired);
    let is_starting = matches!(error, client::Error::NoDaemon { .. })
        && runtime_dir::is_locked(&global.runtime_dir);
    let no_daemon = match is_starting {
        true => format!("{error} yet, but one is starting: its log reports when it is ready"),
        false => error.to_string(),
    };
    let read = pinned::read(&global.runtime_dir, &global.pin_dir, &desired).await;
    let message = match read {
        Ok(report) => {
            terminal::print(&render(report, query)?)?;
            format!("{no_daemon}; showing the pinned data plane")
        }
        Err(error) => format!("{no_daemon}; {error}"),
    };
    Err(Failure::NoDaemon { message })
}

#[cfg(test)]
mod tests {
    use super::format_page;

    #[test]
    fn page_does_not_scroll() {
        let text = format_page("head\nrow\n", 2);
        assert!(!text.contains('\n') && !text.contains("more lines"));
        assert!(text.contains("\x1b[1;1Hhead\x1b[K\x1b[2;1Hrow"), "{text:?}");
    }

    #[test]
    fn page_ends_at_the_last_row() {
        let text = format_page(&"row\n".repeat(30), 24);
        assert!(text.contains("\x1b[24;1H… 7 more lines"), "{text:?}");
        assert!(!text.contains("\x1b[25;"), "{text:?}");
    }
}
