//! Runs the lab as a separate program, `weir-lab`. `weir lab` runs the same experiments, but has no `attack`.

use std::process::ExitCode;

use clap::{Parser, Subcommand};

#[derive(Parser)]
#[command(
    name = "weir-lab",
    version,
    about = "Runs experiments in network namespaces and compares Weir with other load balancers"
)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

/// The commands of `weir lab`, and those that only this program has.
#[derive(Subcommand)]
enum Command {
    #[command(flatten)]
    Lab(weir_lab::LabCommand),
    /// Attack Weir, HAProxy and nginx, and compare the cost for them and for their other clients.
    Attack(weir_lab::AttackArguments),
}

fn main() -> ExitCode {
    match Arguments::parse().command {
        Command::Lab(command) => weir_lab::execute(&command),
        Command::Attack(arguments) => weir_lab::execute_attack(&arguments),
    }
}
