//! Implements `weir node`, and the hidden command `weir announcer`, which `weir run` starts.

use std::process::ExitCode;

use weir_control::api::{NodeState, NodeUpdate};
use weir_control::client::Client;

use super::{Outcome, REPLY_TIMEOUT, block_on, with_progress};
use crate::arguments::{GlobalOptions, NodeAction};
use crate::failure::Failure;
use crate::terminal;

pub(super) fn node(global: &GlobalOptions, action: NodeAction, json: bool) -> Outcome {
    let state = match action {
        NodeAction::Drain => NodeState::Drain,
        NodeAction::Ready => NodeState::Ready,
    };
    let client = Client::new(&global.runtime_dir).within(REPLY_TIMEOUT);
    let request = client.node(NodeUpdate { state });
    let reply = with_progress("the change", request)??;
    let text = match (json, reply.state) {
        (true, _) => serde_json::to_string(&reply).map_err(Failure::failed)? + "\n",
        (false, NodeState::Drain) => {
            "draining: withdrawing routes and releasing virtual routers; `weir node ready` reverts this\n".to_owned()
        }
        (false, NodeState::Ready) => "ready\n".to_owned(),
    };
    terminal::print(&text)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn announcer(global: &GlobalOptions) -> Outcome {
    terminal::start_log("info");
    let configuration = std::path::absolute(global.config())?;
    block_on(weir_announce::run(&global.runtime_dir, &configuration))?.map_err(Failure::failed)?;
    Ok(ExitCode::SUCCESS)
}
