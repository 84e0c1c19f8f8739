//! Arguments and wiring of the weir program.
//!
//! A command turns its arguments into one call of weir-control or weir-lab, and the answer into text and an exit code.
//! Nothing is decided here.

mod arguments;
mod command;
mod failure;
mod quiet;
mod terminal;

use std::process::ExitCode;

use clap::error::{ContextKind, ContextValue};
use clap::{CommandFactory, Parser};

use arguments::Arguments;

fn main() -> ExitCode {
    if let Some(code) = command::by_program_name() {
        return code;
    }
    let arguments = Arguments::try_parse().unwrap_or_else(|error| visible(error).exit());
    match command::execute(&arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

/// Removes suggestions of commands that are hidden because only `weir run` starts them.
fn visible(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) {
        let commands = Arguments::command();
        let is_visible = |name: &&String| {
            let command = commands.find_subcommand(name);
            command.is_some_and(|command| !command.is_hide_set())
        };
        let shown: Vec<String> = names.iter().filter(is_visible).cloned().collect();
        error.remove(ContextKind::SuggestedSubcommand);
        if !shown.is_empty() {
            error.insert(
                ContextKind::SuggestedSubcommand,
                ContextValue::Strings(shown),
            );
        }
    }
    error
}
