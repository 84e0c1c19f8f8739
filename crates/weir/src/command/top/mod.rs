//! Implements `weir top`, a live view of services, pools and servers from the control socket.
//!
//! Reads the status every second, like `weir status --watch`, and calculates rates from two successive reports. Changes
//! to servers go through the API, so the user's role determines what is allowed.

mod draw;
mod rows;
mod screen;

use std::io::{self, IsTerminal};
use std::process::ExitCode;
use std::time::{Duration, Instant};

use ratatui::DefaultTerminal;
use ratatui::crossterm::event::{self, Event};
use tokio::signal::unix::{SignalKind, signal};
use tokio::sync::mpsc;
use weir_control::api::ServerUpdate;
use weir_control::client::Client;

use super::{Outcome, REPLY_TIMEOUT, STATUS_TIMEOUT, block_on};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;
use screen::{Action, Screen, ServerChange};

/// Interval at which the status is read.
const REFRESH_INTERVAL: Duration = Duration::from_secs(1);

/// Maximum number of queued events from the terminal.
const MAX_QUEUED_EVENTS: usize = 64;

pub(super) fn top(global: &GlobalOptions) -> Outcome {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::Usage {
            message:
                "top requires a terminal; use `weir status`, or `weir status --json` in scripts"
                    .to_owned(),
        });
    }
    let client = Client::new(&global.runtime_dir);
    block_on(async {
        // If there is no daemon, the message must appear on the normal screen, not the alternate one.
        let report = client.clone().within(STATUS_TIMEOUT).status().await?;
        let screen = Screen::new(report, Instant::now());
        let mut terminal = ratatui::try_init()?;
        let result = show(&mut terminal, &client, screen).await;
        ratatui::try_restore()?;
        result.map(|()| ExitCode::SUCCESS)
    })?
}

/// Shows the view until the user or a signal ends the program.
async fn show(
    terminal: &mut DefaultTerminal,
    client: &Client,
    mut screen: Screen,
) -> Result<(), Failure> {
    let color = terminal::wants_color();
    let mut events = read_events();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut ticks = tokio::time::interval(REFRESH_INTERVAL);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        terminal.draw(|frame| draw::draw(frame, &screen, color))?;
        let next = tokio::select! {
            _ = terminate.recv() => Action::Quit,
            _ = hangup.recv() => Action::Quit,
            event = events.recv() => match event {
                Some(Event::Key(key)) => screen.handle_key(key),
                Some(_) => Action::Draw,
                // The terminal has been closed.
                None => Action::Quit,
            },
            _ = ticks.tick() => {
                refresh(&mut screen, client).await;
                Action::Draw
            }
        };
        match next {
            Action::Draw => {}
            Action::Quit => return Ok(()),
            Action::Execute(change) => {
                screen.message = Some(execute(client, change).await);
                refresh(&mut screen, client).await;
            }
        }
    }
}

async fn refresh(screen: &mut Screen, client: &Client) {
    match client.clone().within(STATUS_TIMEOUT).status().await {
        Ok(report) => screen.update(report, Instant::now()),
        Err(error) => screen.error = Some(error.to_string()),
    }
}

/// Makes a change and returns its result in one line.
async fn execute(client: &Client, change: ServerChange) -> String {
    let client = client.clone().within(REPLY_TIMEOUT);
    let verb = change.verb();
    let request = ServerUpdate(change.request);
    match client.server(&change.pool, &change.server, request).await {
        Ok(server) => format!(
            "{}/{}: {verb} done, now {}, effective weight {}",
            server.pool, server.address, server.state, server.effective_weight
        ),
        Err(error) => format!("{}/{}: {verb} failed: {error}", change.pool, change.server),
    }
}

/// Reads terminal events on a separate thread, because the read blocks. The thread runs until the process exits or the
/// terminal is closed.
fn read_events() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(MAX_QUEUED_EVENTS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}
