//! Implements `weir token`, which manages tokens for the HTTP API over TCP.

use std::path::Path;
use std::process::ExitCode;

use weir_control::api::{Role, add_token};
use weir_control::configuration::{self, Secrets};
use weir_control::daemon;

use super::Outcome;
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

/// Creates a token and prints it. Only its hash is stored.
pub(super) fn add(global: &GlobalOptions, file: &Path, name: &str, role: Role) -> Outcome {
    let token = add_token(file, name, role).map_err(Failure::failed)?;
    terminal::print(&format!("{token}\n"))?;
    terminal::eprint(&format!(
        "weir: added the hash of this token to {} for {name}, role {role}; {}\n",
        file.display(),
        activation_advice(global, file)
    ));
    Ok(ExitCode::SUCCESS)
}

/// Returns the steps that activate the tokens in a file.
fn activation_advice(global: &GlobalOptions, file: &Path) -> String {
    let active = daemon::last_configuration(&global.runtime_dir);
    let configuration = global.config.as_deref().or(active.as_deref());
    let configuration = configuration.unwrap_or(global.config());
    let loaded = configuration::load_with(configuration, false, Secrets::Unread);
    let tokens = loaded.ok().and_then(|loaded| loaded.desired.node.admin);
    let tokens = tokens.and_then(|admin| admin.tokens);
    let path = std::path::absolute(file).unwrap_or_else(|_| file.to_owned());
    if tokens.is_some_and(|tokens| Path::new(&tokens) == path) {
        return "run `weir reload` to activate it".to_owned();
    }
    format!(
        "to activate it, set `tokens = \"{}\"` in [node.admin] of {} and run `weir reload`",
        path.display(),
        configuration.display()
    )
}
