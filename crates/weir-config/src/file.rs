//! Checks the bytes of a file before it is parsed.
//!
//! The caller opens and reads the file; this module checks the content and provides the error messages.

use std::path::PathBuf;

use crate::code::Code;

/// Maximum file size in bytes; enough for two hundred thousand servers.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// Why a file cannot be used as a configuration.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// The file does not exist.
    #[error("{} does not exist", path.display())]
    Missing {
        /// Path as specified by the operator.
        path: PathBuf,
    },
    /// The file cannot be read.
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable {
        /// Path as specified by the operator.
        path: PathBuf,
        /// Error message of the system.
        reason: String,
    },
    /// The daemon has dropped root privileges, and its account has no access to the file.
    #[error(
        "{} cannot be read: the daemon runs as the account {account}, which is not allowed to read this path or to \
         enter a directory above it",
        path.display()
    )]
    NoAccess {
        /// Path as specified by the operator.
        path: PathBuf,
        /// Name of the account.
        account: &'static str,
    },
    /// The file is larger than [`MAX_FILE_BYTES`].
    #[error("the file is {bytes} bytes long; the maximum is {MAX_FILE_BYTES}")]
    TooLarge {
        /// Size of the file, or of the part that was read.
        bytes: u64,
    },
    /// The file is not UTF-8.
    #[error("the file is not UTF-8: invalid byte at offset {offset}, line {line}")]
    NotUtf8 {
        /// Offset of the first invalid byte, from 0.
        offset: usize,
        /// Line of this byte, from 1.
        line: usize,
    },
    /// The file contains NUL bytes, which TOML and JSON do not allow.
    #[error("the file contains {count} NUL bytes, the first at offset {offset}, line {line}")]
    Nul {
        /// Offset of the first NUL byte, from 0.
        offset: usize,
        /// Line of this byte, from 1.
        line: usize,
        /// Number of NUL bytes.
        count: usize,
    },
}

impl FileError {
    /// Returns the code of the error.
    pub const fn code(&self) -> Code {
        match self {
            Self::Missing { .. } | Self::Unreadable { .. } | Self::NoAccess { .. } => {
                Code::Unreadable
            }
            Self::TooLarge { .. } => Code::TooLarge,
            Self::NotUtf8 { .. } => Code::NotUtf8,
            Self::Nul { .. } => Code::NulByte,
        }
    }

    /// Returns how to fix the error.
    pub const fn fix(&self) -> &'static str {
        match self {
            Self::Missing { .. } => {
                "create the file (it may be empty), or specify another one with -c"
            }
            Self::Unreadable { .. } => "check its owner, its mode, and that it is a regular file",
            Self::NoAccess { .. } => {
                "copy it over the daemon's file and run `weir reload`; or copy it to /etc/weir, let the account read \
                 the copy (chgrp weir, chmod 640), and run `weir reload -c` with the copy"
            }
            Self::TooLarge { .. } => {
                "this is probably the wrong file; specify the configuration with -c"
            }
            Self::NotUtf8 { .. } => "save it as UTF-8, for example with `iconv -f latin1 -t utf-8`",
            Self::Nul { .. } => {
                "the file is damaged, binary, or UTF-16; restore it, or save it as UTF-8"
            }
        }
    }
}

/// Checks the content of a file and returns it as text.
///
/// # Errors
/// Returns [`FileError::TooLarge`], [`FileError::Nul`] or [`FileError::NotUtf8`], checked in this order.
pub fn load(bytes: &[u8]) -> Result<&str, FileError> {
    let size = bytes.len() as u64;
    if size > MAX_FILE_BYTES {
        return Err(FileError::TooLarge { bytes: size });
    }
    let line_of = |offset: usize| {
        1 + bytes[..offset]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
    };
    if let Some(offset) = bytes.iter().position(|byte| *byte == 0) {
        let count = bytes.iter().filter(|byte| **byte == 0).count();
        return Err(FileError::Nul {
            offset,
            line: line_of(offset),
            count,
        });
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        FileError::NotUtf8 {
            offset,
            line: line_of(offset),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_invalid_byte_is_reported_with_line() {
        assert_eq!(
            load(b"[node]\n# \xff\n"),
            Err(FileError::NotUtf8 { offset: 9, line: 2 })
        );
        assert_eq!(
            load(b"a\n\0b\0"),
            Err(FileError::Nul {
                offset: 2,
                line: 2,
                count: 2
            })
        );
    }

    #[test]
    fn file_of_maximum_size_is_allowed() {
        let limit = usize::try_from(MAX_FILE_BYTES).unwrap();
        let mut bytes = vec![b'#'; limit];
        assert!(load(&bytes).is_ok());
        bytes.push(b'#');
        assert_eq!(
            load(&bytes),
            Err(FileError::TooLarge {
                bytes: MAX_FILE_BYTES + 1
            })
        );
    }
}
