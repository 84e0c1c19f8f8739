//! `weir-lab`: the lab as a program of its own; `weir lab` is the same.

use std::process::ExitCode;

use clap::Parser;

#[derive(Parser)]
#[command(
    name = "weir-lab",
    version,
    about = "The experiments, in network namespaces, beside the real peers"
)]
struct Arguments {
    #[command(subcommand)]
    command: weir_lab::LabCommand,
}

fn main() -> ExitCode {
    weir_lab::execute(&Arguments::parse().command)
}
