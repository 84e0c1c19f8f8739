//! Runs programs.

use std::io::Write;
use std::process::{Command, Output, Stdio};

/// Runs a program with `input` as its standard input, and returns its output. For programs that read their input before
/// they write more than a pipe holds (64 KiB).
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
    let mut stdin = child.stdin.take().expect("a pipe");
    stdin.write_all(input).expect("it reads its input");
    drop(stdin);
    child.wait_with_output().expect("a child of this process")
}

/// Runs a program and returns its standard output.
///
/// # Panics
/// The program cannot be started, or fails.
pub fn successful_output(command: &mut Command) -> String {
    let output = command.output().expect("it runs");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    assert!(
        output.status.success(),
        "{command:?}: {text}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    text
}
