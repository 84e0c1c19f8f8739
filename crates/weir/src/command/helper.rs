//! Implements `weir helper --service`, which the service manager starts.

use std::path::PathBuf;
use std::process::ExitCode;

use weir_control::keeper;

use super::{Outcome, block_on};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

pub(super) fn service(global: &GlobalOptions) -> Outcome {
    terminal::start_log("info");
    weir_sys::set_no_new_privs().map_err(Failure::failed)?;
    let socket =
        keeper::configured_socket().unwrap_or_else(|| PathBuf::from(keeper::HELPER_SOCKET));
    let configuration = std::path::absolute(global.config())?;
    let paths = super::run::paths(global);
    // Run on this thread: the kernel kills the helpers when the thread that started them exits (PR_SET_PDEATHSIG).
    block_on(keeper::serve_keepers(&socket, &configuration, &paths))?.map_err(Failure::failed)?;
    Ok(ExitCode::SUCCESS)
}
