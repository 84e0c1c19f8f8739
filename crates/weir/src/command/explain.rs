//! `weir explain`.

use std::process::ExitCode;

use weir_control::client::Client;

use super::{Outcome, block_on};
use crate::arguments::{Explain, Places};
use crate::failure::Failure;
use crate::terminal;

pub(super) fn explain(places: &Places, question: &Explain) -> Outcome {
    let Some(packet) = &question.packet else {
        return Err(Failure::not_built("explain --request"));
    };
    let answer = block_on(Client::new(&places.runtime_dir).explain(packet))??;
    let text = if question.json {
        serde_json::to_string_pretty(&answer).map_err(Failure::failed)? + "\n"
    } else {
        answer.to_string()
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
