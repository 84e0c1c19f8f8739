//! Writes results to standard output.

use std::io::{self, ErrorKind, Write};

use crate::error::{LabError, Result};

/// Writes results. A closed pipe, for example from `head`, is not an error.
///
/// # Errors
/// Fails if writing to standard output fails, for example because the disk is full.
pub(crate) fn print(text: &str) -> Result<()> {
    let mut out = io::stdout().lock();
    match out.write_all(text.as_bytes()).and_then(|()| out.flush()) {
        Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(()),
        result => result.map_err(LabError::file("standard output")),
    }
}
