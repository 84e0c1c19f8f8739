//! Runs libFuzzer on one target: `WEIR_FUZZ_TARGET=NAME weir-fuzz [LIBFUZZER_OPTIONS] [CORPUS…]`.
//!
//! `WEIR_FUZZ_COMMAND='list' weir-fuzz` runs the commands of [`weir_fuzz::command`].
//!
//! Environment variables specify the target and the command because libFuzzer parses all arguments.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use weir_fuzz::{TARGETS, Target, find};

const TARGET: &str = "WEIR_FUZZ_TARGET";
const COMMAND: &str = "WEIR_FUZZ_COMMAND";

static SELECTED: OnceLock<&'static Target> = OnceLock::new();

fn select_target() -> &'static Target {
    let name = std::env::var(TARGET).unwrap_or_default();
    find(&name).unwrap_or_else(|| {
        let names: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("{TARGET} must be one of: {}", names.join(" "));
        std::process::exit(2)
    })
}

fn run_command() {
    let Ok(command) = std::env::var(COMMAND) else {
        return;
    };
    let result = weir_fuzz::command::run(&command);
    std::process::exit(match result {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{COMMAND}: {error}");
            2
        }
    });
}

fuzz_target!(
    init: run_command(),
    |input: &[u8]| (SELECTED.get_or_init(select_target).run)(input)
);
