//! `weir server`.

use std::process::ExitCode;
use std::time::{Duration, Instant};

use weir_control::api::{OperatorState, ServerNow, ServerRequest};
use weir_control::client::Client;

use super::{ANSWER, Outcome, block_on, patiently};
use crate::arguments::{Places, Server, ServerName, ServerWord};
use crate::failure::Failure;
use crate::terminal;

/// How often `drain --wait` looks.
const LOOK: Duration = Duration::from_millis(500);

/// How often it reports that it still waits while nothing changes, and how often at most while something does.
const REPORT: Duration = Duration::from_secs(15);
const REPORT_AT_MOST: Duration = Duration::from_secs(2);

pub(super) fn server(places: &Places, server: &Server) -> Outcome {
    let request = match server.word {
        ServerWord::Drain { .. } => ServerRequest::State(OperatorState::Drain),
        ServerWord::Maint => ServerRequest::State(OperatorState::Maint),
        ServerWord::Ready => ServerRequest::State(OperatorState::Ready),
        ServerWord::Weight { weight } => ServerRequest::Weight(weight),
    };
    let client = Client::new(&places.runtime_dir).within(ANSWER);
    let name = &server.server;
    let done = client.server(&name.pool, &name.address, request);
    let mut now = patiently("the change", done)??;
    let mut late = None;
    if let ServerWord::Drain {
        wait: true,
        timeout,
    } = server.word
    {
        let begun = Instant::now();
        now = block_on(drained(&client, name, timeout))??;
        if now.open_connections > 0 {
            late = Some(begun.elapsed());
        }
    }
    let text = if server.json {
        serde_json::to_string_pretty(&now).map_err(Failure::failed)? + "\n"
    } else {
        format!("{}\n", told(name, &server.word, &now))
    };
    terminal::print(&text)?;
    match late {
        None => Ok(ExitCode::SUCCESS),
        Some(waited) => Err(Failure::Failed {
            message: format!(
                "{}/{}: {} left after {} s; the server stays drained",
                name.pool,
                name.address,
                connections(now.open_connections),
                waited.as_secs()
            ),
        }),
    }
}

/// Waits until no connection of the server is open, or until the time is over; returns the server as it is then.
async fn drained(
    client: &Client,
    name: &ServerName,
    timeout: Option<Duration>,
) -> Result<ServerNow, Failure> {
    let begun = Instant::now();
    let mut reported: Option<(u64, Instant)> = None;
    loop {
        let now = client.server_now(&name.pool, &name.address).await?;
        let open = now.open_connections;
        let left = timeout.map(|timeout| timeout.saturating_sub(begun.elapsed()));
        if open == 0 || left.is_some_and(|left| left.is_zero()) {
            return Ok(now);
        }
        let is_due = reported.is_none_or(|(count, at)| {
            let pause = if count == open {
                REPORT
            } else {
                REPORT_AT_MOST
            };
            at.elapsed() >= pause
        });
        if is_due {
            reported = Some((open, Instant::now()));
            let ServerName { pool, address } = name;
            terminal::complain(&format!(
                "weir: {pool}/{address}: waiting for {} to end, {} s so far\n",
                connections(open),
                begun.elapsed().as_secs()
            ));
        }
        tokio::time::sleep(left.map_or(LOOK, |left| left.min(LOOK))).await;
    }
}

fn connections(count: u64) -> String {
    match count {
        0 => "no open connection".to_owned(),
        1 => "1 open connection".to_owned(),
        more => format!("{more} open connections"),
    }
}

/// What became of the server, in a line.
fn told(name: &ServerName, word: &ServerWord, now: &ServerNow) -> String {
    let ServerName { pool, address } = name;
    let left = connections(now.open_connections);
    let state = match now.state.as_str() {
        "unused" => "no service uses its pool".to_owned(),
        state => format!("{state}, effective weight {}", now.effective_weight),
    };
    match word {
        ServerWord::Drain { .. } if now.open_connections == 0 => {
            format!("{pool}/{address} is drained: no new connections, {left}")
        }
        ServerWord::Drain { .. } => {
            format!("{pool}/{address} is draining: no new connections, {left}")
        }
        ServerWord::Maint => {
            format!("{pool}/{address} is in maintenance: no new connections, no checks, {left}")
        }
        ServerWord::Ready => format!("{pool}/{address} is as configured again: {state}"),
        ServerWord::Weight { weight } => format!(
            "{pool}/{address} has weight {weight}, {} is configured: {state}",
            now.weight
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_change_is_reported_in_a_line() {
        let name = ServerName {
            pool: "app".to_owned(),
            address: "10.0.0.6:80".to_owned(),
        };
        let now = ServerNow {
            state: "up".to_owned(),
            weight: 2,
            effective_weight: 5,
            open_connections: 1,
            ..ServerNow::default()
        };
        let drain = ServerWord::Drain {
            wait: false,
            timeout: None,
        };
        let words = [
            drain,
            ServerWord::Maint,
            ServerWord::Ready,
            ServerWord::Weight { weight: 5 },
        ];
        let lines: Vec<String> = words.iter().map(|word| told(&name, word, &now)).collect();
        assert_eq!(
            lines,
            [
                "app/10.0.0.6:80 is draining: no new connections, 1 open connection",
                "app/10.0.0.6:80 is in maintenance: no new connections, no checks, 1 open connection",
                "app/10.0.0.6:80 is as configured again: up, effective weight 5",
                "app/10.0.0.6:80 has weight 5, 2 is configured: up, effective weight 5",
            ]
        );
    }
}
