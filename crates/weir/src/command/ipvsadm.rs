//! `weir ipvsadm`, and the program under the name `ipvsadm`.

use std::ffi::OsString;
use std::io::{self, BufReader, Write};
use std::process::ExitCode;

use weir_control::engine::Paths;
use weir_control::ipvsadm::{HostNames, Streams, run};

use super::{Outcome, block_on};
use crate::arguments::Places;

/// The directories that the environment names: under its other name the program has no option for them.
pub(super) fn places() -> Places {
    Places::from_environment()
}

pub(super) fn ipvsadm(places: &Places, program: &str, arguments: &[OsString]) -> Outcome {
    let arguments: Vec<String> = arguments
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    let paths = Paths {
        runtime_dir: places.runtime_dir.clone(),
        pin_dir: places.pin_dir.clone(),
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
