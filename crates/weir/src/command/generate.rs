//! Implements `weir generate`, which generates man pages, shell completions and the manual's command reference.
//!
//! The sources are the command line definition and the key catalog. The generator is a command rather than a build
//! script, to keep builds fast.

mod roff;

use std::fmt::Write as _;
use std::path::Path;
use std::process::ExitCode;

use clap::{Arg, Command, CommandFactory};

use super::Outcome;
use crate::arguments::{Arguments, Generate};
use crate::terminal;

pub(super) fn generate(output: &Generate) -> Outcome {
    match output {
        Generate::Completion { shell } => {
            let mut script = Vec::new();
            clap_complete::generate(*shell, &mut definition(), "weir", &mut script);
            terminal::print(&String::from_utf8_lossy(&script))?;
        }
        Generate::Man { directory } => write_man_pages(directory)?,
        Generate::Commands => terminal::print(&commands_page())?,
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the command line definition without the subcommand `help`, whose pages would repeat the other pages.
fn definition() -> Command {
    Arguments::command().disable_help_subcommand(true)
}

fn write_man_pages(directory: &Path) -> std::io::Result<()> {
    clap_mangen::generate_to(definition(), directory)?;
    std::fs::write(directory.join(roff::FILE), roff::configuration())
}

/// Returns the direct subcommands that are not hidden.
fn visible_subcommands(command: &Command) -> impl Iterator<Item = &Command> {
    command.get_subcommands().filter(|it| !it.is_hide_set())
}

/// Returns the manual's command reference.
fn commands_page() -> String {
    let mut root = definition();
    root.build();
    let mut out = String::from(
        "# Commands\n\nGenerated from the program's own definition; `weir COMMAND --help` prints the same. \
         [Exit codes](exit-codes.md).\n\n## Options of every command\n\n",
    );
    push_table(
        &mut out,
        root.get_arguments().filter(|it| it.is_global_set()),
    );
    for command in visible_subcommands(&root) {
        push_command(&mut out, command, "weir", 2);
    }
    out
}

fn push_command(out: &mut String, command: &Command, parent: &str, depth: usize) {
    let name = format!("{parent} {}", command.get_name());
    let about = command.get_about().map(ToString::to_string);
    let _ = writeln!(
        out,
        "\n{} `{name}`\n\n{}.\n\n```\n{}\n```",
        "#".repeat(depth),
        about.unwrap_or_default(),
        usage(command)
    );
    let mut arguments = command
        .get_arguments()
        .filter(|it| !it.is_global_set() && !it.is_hide_set() && it.get_id() != "help")
        .peekable();
    if arguments.peek().is_some() {
        out.push('\n');
        push_table(out, arguments);
    }
    for nested in visible_subcommands(command) {
        push_command(out, nested, &name, depth + 1);
    }
}

/// Returns the usage line without its label.
fn usage(command: &Command) -> String {
    let usage = command.clone().render_usage().to_string();
    usage.trim_start_matches("Usage: ").trim().to_owned()
}

fn push_table<'a>(out: &mut String, arguments: impl Iterator<Item = &'a Arg>) {
    out.push_str("| option | meaning | default |\n|---|---|---|\n");
    for argument in arguments {
        let mut help = argument
            .get_help()
            .map(ToString::to_string)
            .unwrap_or_default();
        let values: Vec<String> = argument
            .get_possible_values()
            .iter()
            .filter(|_| argument.get_action().takes_values())
            .map(|value| format!("`{}`", value.get_name()))
            .collect();
        if !values.is_empty() {
            let _ = write!(help, ": {}", values.join(", "));
        }
        if let Some(name) = argument.get_env() {
            let _ = write!(help, "; also in `{}`", name.display());
        }
        let defaults: Vec<String> = argument
            .get_default_values()
            .iter()
            .filter(|_| argument.get_action().takes_values())
            .map(|value| format!("`{}`", value.display()))
            .collect();
        let name = argument.to_string().replace('|', "\\|");
        let row = format!("| `{name}` | {} | {} |", escape(&help), defaults.join(" "));
        out.push_str(&row.replace("|  |", "| |"));
        out.push('\n');
    }
}

/// Escapes the characters that Markdown would interpret in a table cell.
fn escape(text: &str) -> String {
    text.replace('|', "\\|").replace('<', "&lt;")
}
