//! Implements `weir server`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_control::api::{Override, ServerStatus, ServerUpdate};
use weir_control::client::Client;

use super::{Outcome, REPLY_TIMEOUT, block_on, with_progress};
use crate::arguments::{GlobalOptions, Server, ServerAction, ServerName};
use crate::failure::Failure;
use crate::terminal;

/// Limits of the polling interval of `drain --wait`.
const MIN_POLL_INTERVAL: Duration = Duration::from_millis(100);
const MAX_POLL_INTERVAL: Duration = Duration::from_millis(500);
/// Ratio of the polling interval to the duration of a request, within these limits. Reduces the load of a daemon with
/// many servers.
const POLL_INTERVAL_RATIO: u32 = 4;

/// Interval of progress reports while the count does not change.
const REPORT_INTERVAL: Duration = Duration::from_secs(15);
/// Minimum interval of progress reports while the count changes.
const MIN_REPORT_INTERVAL: Duration = Duration::from_secs(2);

pub(super) fn server(global: &GlobalOptions, server: &Server) -> Outcome {
    let request = match server.action {
        ServerAction::Drain { .. } => ServerUpdate(Some(Override::Drain)),
        ServerAction::Maint => ServerUpdate(Some(Override::Maint)),
        ServerAction::Ready => ServerUpdate(None),
        ServerAction::Weight { weight } => ServerUpdate(Some(Override::Weight(weight))),
    };
    let client = Client::new(&global.runtime_dir).within(REPLY_TIMEOUT);
    let name = &server.server;
    let change = client.server(&name.pool, &name.address, request);
    let mut current = with_progress("the change", change)??;
    let mut timed_out_after = None;
    if let ServerAction::Drain {
        wait: true,
        timeout,
    } = server.action
    {
        let started = Instant::now();
        current = block_on(wait_until_drained(&client, name, timeout))??;
        if current.open_connections > 0 {
            timed_out_after = Some(started.elapsed());
        }
    }
    let text = if server.json {
        serde_json::to_string_pretty(&current).map_err(Failure::failed)? + "\n"
    } else {
        format!("{}\n", summary(name, &server.action, &current))
    };
    terminal::print(&text)?;
    match timed_out_after {
        None => Ok(ExitCode::SUCCESS),
        Some(waited) => Err(Failure::Failed {
            message: format!(
                "{}/{}: {} after {} s; the server stays drained",
                name.pool,
                name.address,
                connections(current.open_connections),
                waited.as_secs()
            ),
        }),
    }
}

/// Waits until the server has no open connections or `timeout` expires. Returns the server's state at that time.
async fn wait_until_drained(
    client: &Client,
    name: &ServerName,
    timeout: Option<Duration>,
) -> Result<ServerStatus, Failure> {
    let started = Instant::now();
    let mut last_report: Option<(u64, Instant)> = None;
    loop {
        let requested_at = Instant::now();
        let current = client.server_status(&name.pool, &name.address).await?;
        let open = current.open_connections;
        let remaining = timeout.map(|timeout| timeout.saturating_sub(started.elapsed()));
        if open == 0 || remaining.is_some_and(|remaining| remaining.is_zero()) {
            return Ok(current);
        }
        let is_due = last_report.is_none_or(|(count, reported_at)| {
            let pause = if count == open {
                REPORT_INTERVAL
            } else {
                MIN_REPORT_INTERVAL
            };
            reported_at.elapsed() >= pause
        });
        if is_due {
            last_report = Some((open, Instant::now()));
            let ServerName { pool, address } = name;
            terminal::eprint(&format!(
                "weir: {pool}/{address}: waiting for {} to end, {} s so far\n",
                connections(open),
                started.elapsed().as_secs()
            ));
        }
        let pause = poll_interval(requested_at.elapsed());
        tokio::time::sleep(remaining.map_or(pause, |remaining| remaining.min(pause))).await;
    }
}

/// Returns the time between two requests if a request takes `duration`.
fn poll_interval(duration: Duration) -> Duration {
    (duration * POLL_INTERVAL_RATIO).clamp(MIN_POLL_INTERVAL, MAX_POLL_INTERVAL)
}

fn connections(count: u64) -> String {
    match count {
        0 => "no open connections".to_owned(),
        1 => "1 open connection".to_owned(),
        _ => format!("{count} open connections"),
    }
}

/// Returns a line about the result of an action.
fn summary(name: &ServerName, action: &ServerAction, current: &ServerStatus) -> String {
    let ServerName { pool, address } = name;
    let open = connections(current.open_connections);
    let state = match current.state.as_str() {
        "unused" => "no service uses its pool".to_owned(),
        state => format!("{state}, effective weight {}", current.effective_weight),
    };
    match action {
        ServerAction::Drain { .. } if current.open_connections == 0 => {
            format!("{pool}/{address} is drained: no new connections, {open}")
        }
        ServerAction::Drain { .. } => {
            format!("{pool}/{address} is draining: no new connections, {open}")
        }
        ServerAction::Maint => {
            format!("{pool}/{address} is in maintenance: no new connections, no checks, {open}")
        }
        ServerAction::Ready => format!("{pool}/{address} has no override: {state}"),
        ServerAction::Weight { weight } => format!(
            "{pool}/{address} has weight {weight} (configured: {}): {state}",
            current.weight
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn polling_is_frequent_unless_the_daemon_is_slow() {
        let interval_ms = |ms| poll_interval(Duration::from_millis(ms)).as_millis();
        assert_eq!([1, 50, 1_000].map(interval_ms), [100, 200, 500]);
    }

    #[test]
    fn each_action_has_a_one_line_summary() {
        let name = ServerName {
            pool: "app".to_owned(),
            address: "10.0.0.6:80".to_owned(),
        };
        let current = ServerStatus {
            state: "up".to_owned(),
            weight: 2,
            effective_weight: 5,
            open_connections: 1,
            ..ServerStatus::default()
        };
        let drain = ServerAction::Drain {
            wait: false,
            timeout: None,
        };
        let actions = [
            drain,
            ServerAction::Maint,
            ServerAction::Ready,
            ServerAction::Weight { weight: 5 },
        ];
        let lines: Vec<String> = actions
            .iter()
            .map(|action| summary(&name, action, &current))
            .collect();
        assert_eq!(
            lines,
            [
                "app/10.0.0.6:80 is draining: no new connections, 1 open connection",
                "app/10.0.0.6:80 is in maintenance: no new connections, no checks, 1 open connection",
                "app/10.0.0.6:80 has no override: up, effective weight 5",
                "app/10.0.0.6:80 has weight 5 (configured: 2): up, effective weight 5",
            ]
        );
    }
}
