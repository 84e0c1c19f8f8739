//! From bytes to text: what a file must be before its configuration is looked at.
//!
//! Opening and reading belong to the caller; here is what can be wrong with the result, and the words for it.

use std::path::PathBuf;

use crate::code::Code;

/// The largest file that is read; a hundred thousand servers fit twice.
pub const MAX_FILE_BYTES: u64 = 16 << 20;

/// A file that holds no configuration at all.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FileError {
    /// There is no such file.
    #[error("{} does not exist", path.display())]
    Missing {
        /// As the operator named it.
        path: PathBuf,
    },
    /// It is there, and reading it failed.
    #[error("{} cannot be read: {reason}", path.display())]
    Unreadable {
        /// As the operator named it.
        path: PathBuf,
        /// The system's words.
        reason: String,
    },
    /// Larger than [`MAX_FILE_BYTES`].
    #[error("the file has {bytes} bytes, and a configuration at most {MAX_FILE_BYTES}")]
    TooLarge {
        /// Size of the file, or the part of it that was read.
        bytes: u64,
    },
    /// Not UTF-8.
    #[error("the file is not UTF-8: byte {offset}, in line {line}, begins no character")]
    NotUtf8 {
        /// Offset of the first wrong byte, from 0.
        offset: usize,
        /// Its line, from 1.
        line: usize,
    },
    /// A NUL byte, which neither TOML nor JSON knows.
    #[error("the file holds a NUL at byte {offset}, in line {line}, and {count} in all")]
    Nul {
        /// Offset of the first, from 0.
        offset: usize,
        /// Its line, from 1.
        line: usize,
        /// How many there are.
        count: usize,
    },
}

impl FileError {
    /// The stable number.
    pub const fn code(&self) -> Code {
        match self {
            Self::Missing { .. } | Self::Unreadable { .. } => Code::Unreadable,
            Self::TooLarge { .. } => Code::TooLarge,
            Self::NotUtf8 { .. } => Code::NotUtf8,
            Self::Nul { .. } => Code::HasNul,
        }
    }

    /// What to do about it.
    pub const fn fix(&self) -> &'static str {
        match self {
            Self::Missing { .. } => {
                "name another file with -c, or write this one; an empty file is a valid start"
            }
            Self::Unreadable { .. } => "look at its owner, its mode, and whether it is a file",
            Self::TooLarge { .. } => {
                "this is probably another file; name the configuration with -c"
            }
            Self::NotUtf8 { .. } => "save it as UTF-8; `iconv -f latin1 -t utf-8` mends most",
            Self::Nul { .. } => {
                "the file is damaged, binary, or UTF-16; restore it, or save it as UTF-8"
            }
        }
    }
}

/// The text of a file's bytes.
///
/// # Errors
/// [`FileError::TooLarge`], [`FileError::Nul`] and [`FileError::NotUtf8`], looked for in this order.
pub fn load(bytes: &[u8]) -> Result<&str, FileError> {
    let size = bytes.len() as u64;
    if size > MAX_FILE_BYTES {
        return Err(FileError::TooLarge { bytes: size });
    }
    let line = |offset: usize| {
        1 + bytes[..offset]
            .iter()
            .filter(|byte| **byte == b'\n')
            .count()
    };
    if let Some(offset) = bytes.iter().position(|byte| *byte == 0) {
        let count = bytes.iter().filter(|byte| **byte == 0).count();
        return Err(FileError::Nul {
            offset,
            line: line(offset),
            count,
        });
    }
    std::str::from_utf8(bytes).map_err(|error| {
        let offset = error.valid_up_to();
        FileError::NotUtf8 {
            offset,
            line: line(offset),
        }
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_wrong_byte_is_named_with_its_line() {
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
    fn the_limit_itself_is_allowed() {
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
