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

use clap::Parser;

use arguments::Arguments;

fn main() -> ExitCode {
    if let Some(code) = command::by_program_name() {
        return code;
    }
    let arguments = Arguments::parse();
    match command::execute(&arguments) {
        Ok(code) => code,
        Err(failure) => failure.report(),
    }
}
