//! Parses the command line and runs the command.
//!
//! A command converts its arguments into a call to another crate, such as weir-control or weir-lab, and converts the
//! result into text and an exit code. This crate makes no decisions.

mod arguments;
mod command;
mod failure;
mod log_rate_limit;
mod terminal;

use std::process::ExitCode;

use clap::builder::StyledStr;
use clap::error::{ContextKind, ContextValue, ErrorKind};
use clap::{CommandFactory, Parser};

use arguments::Arguments;

fn main() -> ExitCode {
    if let Some(code) = command::run_as_ipvsadm() {
        return code;
    }
    let arguments = Arguments::try_parse()
        .unwrap_or_else(|error| with_tip(without_hidden_suggestions(error)).exit());
    match command::execute(&arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}

const CONFIGURATION_TIP: &str =
    "`-c FILE` selects the configuration file: `weir check -c FILE`, `weir run -c FILE`";

/// Arguments of nginx, HAProxy, ipvsadm and service scripts that operators may type out of habit, and the equivalent
/// Weir commands.
const EQUIVALENTS: [(&[&str], &str); 9] = [
    (
        &["-t", "-T", "test", "configtest", "validate", "verify"],
        "`weir check` validates the configuration",
    ),
    (
        &["-s", "-sf", "-st", "reconfigure", "refresh"],
        "`weir reload` applies a changed configuration",
    ),
    (&["-f", "-C"], CONFIGURATION_TIP),
    (
        &["-D", "-d", "-db", "start", "daemon", "serve"],
        "`weir run` is the daemon; under systemd: `systemctl start weir`",
    ),
    (
        &["stop", "restart", "quit", "shutdown"],
        "SIGTERM stops the daemon; under systemd: `systemctl stop weir`. Layer 4 continues until `weir clean`",
    ),
    (
        &["-L", "-l", "-Ln", "-A", "-a", "-E", "-e", "-S", "-R", "-Z"],
        "`weir ipvsadm` accepts the options of ipvsadm",
    ),
    (
        &["-v", "-vv", "version"],
        "`weir --version` prints the version",
    ),
    (
        &["show", "stats", "list", "ls", "info"],
        "`weir status` shows services and servers",
    ),
    (
        &["drain", "enable", "disable", "set", "weight"],
        "`weir server POOL/ADDRESS drain|ready|maint|weight N`",
    ),
];

/// Adds the equivalent Weir command as a tip to an error about an unknown argument or command.
fn with_tip(mut error: clap::Error) -> clap::Error {
    let kind = match error.kind() {
        ErrorKind::UnknownArgument => ContextKind::InvalidArg,
        ErrorKind::InvalidSubcommand => ContextKind::InvalidSubcommand,
        _ => return error,
    };
    let typed = match error.get(kind) {
        Some(ContextValue::String(typed)) => typed.clone(),
        _ => return error,
    };
    let first = std::env::args_os().nth(1).unwrap_or_default();
    let is_first = first.to_string_lossy().starts_with(&typed);
    let mut equivalent = EQUIVALENTS.iter();
    let equivalent = equivalent.find(|(names, _)| names.contains(&typed.as_str()));
    let equivalent = equivalent.filter(|_| is_first).map(|(_, tip)| *tip);
    let is_file = [".toml", ".json"].iter().any(|end| typed.ends_with(end));
    if let Some(tip) = equivalent.or(is_file.then_some(CONFIGURATION_TIP)) {
        error.insert(
            ContextKind::Suggested,
            ContextValue::StyledStrs(vec![StyledStr::from(tip)]),
        );
    }
    error
}

/// Removes suggestions of hidden commands, which only `weir run` starts.
fn without_hidden_suggestions(mut error: clap::Error) -> clap::Error {
    if let Some(ContextValue::Strings(names)) = error.get(ContextKind::SuggestedSubcommand) {
        let commands = Arguments::command();
        let is_visible = |name: &&String| {
            let command = commands.find_subcommand(name);
            command.is_some_and(|command| !command.is_hide_set())
        };
        let shown_names: Vec<String> = names.iter().filter(is_visible).cloned().collect();
        error.remove(ContextKind::SuggestedSubcommand);
        if !shown_names.is_empty() {
            error.insert(
                ContextKind::SuggestedSubcommand,
                ContextValue::Strings(shown_names),
            );
        }
    }
    error
}
