//! The program that libFuzzer drives: `WEIR_FUZZ_TARGET=NAME weir-fuzz [libFuzzer's options] [CORPUS…]`, or
//! `WEIR_FUZZ_COMMAND='list' weir-fuzz` for the commands of [`weir_fuzz::command`]. Environment variables, because
//! libFuzzer takes every argument.

#![no_main]

use std::sync::OnceLock;

use libfuzzer_sys::fuzz_target;
use weir_fuzz::{TARGETS, Target, find};

const TARGET: &str = "WEIR_FUZZ_TARGET";
const COMMAND: &str = "WEIR_FUZZ_COMMAND";

static CHOSEN: OnceLock<&'static Target> = OnceLock::new();

fn choose() -> &'static Target {
    let name = std::env::var(TARGET).unwrap_or_default();
    find(&name).unwrap_or_else(|| {
        let known: Vec<&str> = TARGETS.iter().map(|target| target.name).collect();
        eprintln!("{TARGET} must be one of: {}", known.join(" "));
        std::process::exit(2)
    })
}

fn carry_out_command() {
    let Ok(command) = std::env::var(COMMAND) else {
        return;
    };
    let done = weir_fuzz::command::run(&command);
    std::process::exit(match done {
        Ok(()) => 0,
        Err(error) => {
            eprintln!("{COMMAND}: {error}");
            2
        }
    });
}

fuzz_target!(
    init: carry_out_command(),
    |input: &[u8]| (CHOSEN.get_or_init(choose).run)(input)
);
