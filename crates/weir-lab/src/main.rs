//! `weir-lab`: the lab as a program of its own; `weir lab` has its experiments too, but not `attack`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "weir-lab",
    version,
    about = "The experiments, in network namespaces, compared with the real peers"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// The lab's commands, and what the product does not carry.
#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Lab(weir_lab::LabCommand),
    /// Attack Weir, HAProxy and nginx in turn, and compare what that costs them and their other clients.
    Attack(weir_lab::AttackArguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Lab(command) => weir_lab::execute(&command),
        Command::Attack(arguments) => weir_lab::execute_attack(&arguments),
    }
}
