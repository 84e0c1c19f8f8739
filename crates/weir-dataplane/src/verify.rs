//! Loading a program again when the kernel asks for it.

use std::io::ErrorKind;

use aya::programs::ProgramError;

/// How often a program is given to the verifier; libbpf stops after as many (`PROG_LOAD_ATTEMPTS`).
const ATTEMPTS: usize = 5;

/// Calls `load` until the verifier has an answer. It leaves with EAGAIN when its thread has a signal to take
/// (kernel/bpf/verifier.c, `do_check`), and on a busy machine a program is under its eyes for a second.
///
/// # Errors
/// The kernel's last answer.
pub(crate) fn until_verified(
    load: impl FnMut() -> Result<(), ProgramError>,
) -> Result<(), ProgramError> {
    until_answered(
        load,
        |error| matches!(error, ProgramError::LoadError { io_error, .. } if io_error.kind() == ErrorKind::WouldBlock),
    )
}

fn until_answered<E>(
    mut call: impl FnMut() -> Result<(), E>,
    interrupted: impl Fn(&E) -> bool,
) -> Result<(), E> {
    for _ in 1..ATTEMPTS {
        match call() {
            Err(error) if interrupted(&error) => {}
            answer => return answer,
        }
    }
    call()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What comes of a call that is interrupted `times` before it ends with `answer`, and how often it was made.
    fn after(times: usize, answer: Result<(), &'static str>) -> (Result<(), &'static str>, usize) {
        let mut calls = 0;
        let call = || {
            calls += 1;
            if calls > times {
                answer
            } else {
                Err("interrupted")
            }
        };
        let end = until_answered(call, |error| *error == "interrupted");
        (end, calls)
    }

    #[test]
    fn an_interrupted_verifier_is_asked_again() {
        assert_eq!(after(0, Ok(())), (Ok(()), 1));
        assert_eq!(after(2, Ok(())), (Ok(()), 3));
        assert_eq!(after(2, Err("refused")), (Err("refused"), 3));
    }

    #[test]
    fn patience_ends() {
        assert_eq!(after(ATTEMPTS, Ok(())), (Err("interrupted"), ATTEMPTS));
    }
}
