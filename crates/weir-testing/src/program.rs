//! Runs programs and returns their output.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs a program with `input` as its standard input, and returns its output. The program must read its input before it
/// writes more than a pipe can hold (64 KiB).
///
/// # Panics
/// The program cannot be started, or does not read its input.
pub fn output_with_input(command: &mut Command, input: &[u8]) -> Output {
    let child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn();
    let mut child = child.unwrap_or_else(|error| {
        panic!("{command:?}: {error}; `make deps` installs what tests need")
    });
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin
        .write_all(input)
        .expect("write to the program's standard input");
    drop(stdin);
    child.wait_with_output().expect("wait for the program")
}

/// Runs a program and returns its standard output.
///
/// # Panics
/// The program cannot be started, or fails.
pub fn successful_output(command: &mut Command) -> String {
    let output = command.output().expect("run the program");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}
