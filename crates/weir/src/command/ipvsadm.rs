//! Implements `weir ipvsadm`, which also runs when the binary is invoked as `ipvsadm`.

use std::ffi::OsString;
use std::io::{self, BufReader, Write};
use std::process::ExitCode;

use weir_control::ipvsadm::{HostNames, Streams, run};
use weir_engine::Paths;

use super::{Outcome, block_on};
use crate::arguments::GlobalOptions;

/// Reads Weir's global options from the environment. When the program is invoked as `ipvsadm`, it does not accept them
/// as arguments.
pub(super) fn from_environment() -> GlobalOptions {
    GlobalOptions::from_environment()
}

pub(super) fn ipvsadm(global: &GlobalOptions, program: &str, arguments: &[OsString]) -> Outcome {
    let arguments: Vec<String> = arguments
        .iter()
        .map(|argument| argument.to_string_lossy().into_owned())
        .collect();
    let paths = Paths {
        runtime_dir: global.runtime_dir.clone(),
        pin_dir: global.pin_dir.clone(),
    };
    let mut input = BufReader::new(io::stdin());
    let mut output = io::BufWriter::new(io::stdout());
    let streams = Streams {
        input: &mut input,
        output: &mut output,
        errors: &mut io::stderr(),
    };
    let code = block_on(run(&paths, program, &arguments, &HostNames, streams))??;
    output.flush()?;
    Ok(ExitCode::from(code))
}
