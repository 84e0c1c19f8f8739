//! `weir server`.

use std::process::ExitCode;
use std::time::Duration;

use weir_control::api::{OperatorState, ServerRequest};
use weir_control::client::{self, Client};
use weir_control::status::Report;

use super::{Outcome, block_on};
use crate::arguments::{Places, Server, ServerName, ServerWord};
use crate::terminal;

/// How often `drain --wait` looks.
const LOOK: Duration = Duration::from_millis(500);

/// How often it says that it still waits.
const SAY: u32 = 4;

pub(super) fn server(places: &Places, server: &Server) -> Outcome {
    let request = match server.word {
        ServerWord::Drain { .. } => ServerRequest::State(OperatorState::Drain),
        ServerWord::Maint => ServerRequest::State(OperatorState::Maint),
        ServerWord::Ready => ServerRequest::State(OperatorState::Ready),
        ServerWord::Weight { weight } => ServerRequest::Weight(weight),
    };
    let client = Client::new(&places.runtime_dir);
    let name = &server.server;
    block_on(async {
        client.server(&name.pool, &name.address, request).await?;
        if matches!(server.word, ServerWord::Drain { wait: true }) {
            drained(&client, name).await?;
        }
        Ok::<(), client::Error>(())
    })??;
    Ok(ExitCode::SUCCESS)
}

/// Waits until no flow of the server is left.
async fn drained(client: &Client, name: &ServerName) -> Result<(), client::Error> {
    for look in 0_u32.. {
        let left = flows(&client.status().await?, name);
        if left == 0 {
            break;
        }
        if look % SAY == SAY - 1 {
            let ServerName { pool, address } = name;
            terminal::complain(&format!("{pool}/{address}: {left} flows left\n"));
        }
        tokio::time::sleep(LOOK).await;
    }
    Ok(())
}

fn flows(report: &Report, name: &ServerName) -> u64 {
    report
        .services
        .iter()
        .filter(|service| service.pool == name.pool)
        .flat_map(|service| &service.servers)
        .filter(|server| server.address == name.address)
        .map(|server| server.active_connections + server.inactive_connections)
        .sum()
}
