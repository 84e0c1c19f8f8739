//! `weir top`: a live view of services, pools and servers from the control socket.
//!
//! It reads the status document every second, like `weir status --watch`, and shows rates as the difference of two
//! documents. Orders go through the API, so the role of the user decides what is allowed.

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
use weir_control::api::ServerOrder;
use weir_control::client::Client;

use super::{Outcome, REPLY_TIMEOUT, STATUS_TIMEOUT, block_on};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;
use screen::{Next, Order, Screen};

/// Interval of documents.
const PERIOD: Duration = Duration::from_secs(1);

/// Events of the terminal that may wait.
const EVENTS: usize = 64;

pub(super) fn top(global: &GlobalOptions) -> Outcome {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Err(Failure::Usage {
            message: "top needs a terminal; use `weir status`, with --json for programs".to_owned(),
        });
    }
    let client = Client::new(&global.runtime_dir);
    block_on(async {
        // Without a daemon the message appears on the normal screen.
        let report = client.clone().within(STATUS_TIMEOUT).status().await?;
        let screen = Screen::new(report, Instant::now());
        let mut terminal = ratatui::try_init()?;
        let ended = show(&mut terminal, &client, screen).await;
        ratatui::try_restore()?;
        ended.map(|()| ExitCode::SUCCESS)
    })?
}

/// Shows the view until the user or a signal ends it.
async fn show(
    terminal: &mut DefaultTerminal,
    client: &Client,
    mut screen: Screen,
) -> Result<(), Failure> {
    let color = terminal::wants_color();
    let mut events = events();
    let mut terminate = signal(SignalKind::terminate())?;
    let mut hangup = signal(SignalKind::hangup())?;
    let mut ticks = tokio::time::interval(PERIOD);
    ticks.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        terminal.draw(|frame| draw::draw(frame, &screen, color))?;
        let next = tokio::select! {
            _ = terminate.recv() => Next::Quit,
            _ = hangup.recv() => Next::Quit,
            event = events.recv() => match event {
                Some(Event::Key(key)) => screen.key(key),
                Some(_) => Next::Draw,
                // The terminal is gone.
                None => Next::Quit,
            },
            _ = ticks.tick() => {
                refresh(&mut screen, client).await;
                Next::Draw
            }
        };
        match next {
            Next::Draw => {}
            Next::Quit => return Ok(()),
            Next::Execute(order) => {
                screen.message = Some(execute(client, order).await);
                refresh(&mut screen, client).await;
            }
        }
    }
}

async fn refresh(screen: &mut Screen, client: &Client) {
    match client.clone().within(STATUS_TIMEOUT).status().await {
        Ok(report) => screen.update(report, Instant::now()),
        Err(error) => screen.trouble = Some(error.to_string()),
    }
}

/// Executes an order and returns its result in one line.
async fn execute(client: &Client, order: Order) -> String {
    let client = client.clone().within(REPLY_TIMEOUT);
    let verb = order.verb();
    let request = ServerOrder(order.change);
    match client.server(&order.pool, &order.server, request).await {
        Ok(now) => format!(
            "{}/{}: {verb} done, now {}, effective weight {}",
            now.pool, now.address, now.state, now.effective_weight
        ),
        Err(error) => format!("{}/{}: {verb} failed: {error}", order.pool, order.server),
    }
}

/// Reads the terminal on a thread, because the read blocks. The thread ends with the process.
fn events() -> mpsc::Receiver<Event> {
    let (sender, receiver) = mpsc::channel(EVENTS);
    std::thread::spawn(move || {
        while let Ok(event) = event::read() {
            if sender.blocking_send(event).is_err() {
                return;
            }
        }
    });
    receiver
}
