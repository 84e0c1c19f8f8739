//! `weir explain`.

use std::process::ExitCode;

use weir_control::client::Client;

use super::{Outcome, block_on};
use crate::arguments::{Explain, Places};
use crate::failure::Failure;
use crate::terminal;

pub(super) fn explain(places: &Places, question: &Explain) -> Outcome {
    let client = Client::new(&places.runtime_dir);
    let answer = match (&question.packet, &question.request) {
        (Some(packet), _) => block_on(client.explain(packet))??,
        (None, Some(request)) => block_on(client.explain_request(request, &question.headers))??,
        (None, None) => return Err(Failure::failed("a packet or a request is needed")),
    };
    let text = if question.json {
        serde_json::to_string_pretty(&answer).map_err(Failure::failed)? + "\n"
    } else {
        answer.to_string()
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}
