//! Retries loading a program if verification was interrupted.

use std::io::ErrorKind;

use aya::programs::ProgramError;

/// Maximum number of attempts, the same as in libbpf (`PROG_LOAD_ATTEMPTS`).
const MAX_ATTEMPTS: usize = 5;

/// Calls `load` until verification completes, at most [`MAX_ATTEMPTS`] times. The verifier returns EAGAIN if the thread
/// has a pending signal (kernel/bpf/verifier.c, `do_check`), and verification can take a second on a busy machine.
///
/// # Errors
/// Returns the error of the last attempt.
pub(crate) fn load_until_verified(
    load: impl FnMut() -> Result<(), ProgramError>,
) -> Result<(), ProgramError> {
    retry_interrupted(
        load,
        |error| matches!(error, ProgramError::LoadError { io_error, .. } if io_error.kind() == ErrorKind::WouldBlock),
    )
}

fn retry_interrupted<E>(
    mut call: impl FnMut() -> Result<(), E>,
    is_interrupted: impl Fn(&E) -> bool,
) -> Result<(), E> {
    for _ in 1..MAX_ATTEMPTS {
        match call() {
            Err(error) if is_interrupted(&error) => {}
            result => return result,
        }
    }
    call()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Retries a call that is interrupted `times` times before it returns `result`. Returns the final result and the
    /// number of calls.
    fn retry_after_interruptions(
        times: usize,
        result: Result<(), &'static str>,
    ) -> (Result<(), &'static str>, usize) {
        let mut calls = 0;
        let call = || {
            calls += 1;
            if calls > times {
                result
            } else {
                Err("interrupted")
            }
        };
        let end = retry_interrupted(call, |error| *error == "interrupted");
        (end, calls)
    }

    #[test]
    fn interrupted_load_is_retried() {
        assert_eq!(retry_after_interruptions(0, Ok(())), (Ok(()), 1));
        assert_eq!(retry_after_interruptions(2, Ok(())), (Ok(()), 3));
        assert_eq!(
            retry_after_interruptions(2, Err("refused")),
            (Err("refused"), 3)
        );
    }

    #[test]
    fn retries_are_limited() {
        assert_eq!(
            retry_after_interruptions(MAX_ATTEMPTS, Ok(())),
            (Err("interrupted"), MAX_ATTEMPTS)
        );
    }
}
