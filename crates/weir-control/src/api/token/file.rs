//! Reads and writes the token file, which contains one `NAME ROLE HASH` per line.

use std::fs::{File, OpenOptions};
use std::io::{self, Read, Write};
use std::os::unix::fs::{MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

use aws_lc_rs::rand;
use rustix::process::geteuid;

use super::{NamedToken, hash};
use crate::api::Role;
use crate::hex;

/// Maximum size of the file in bytes, enough for ten thousand tokens.
const MAX_BYTES: u64 = 1 << 20;

/// Maximum length of a token's name in bytes.
const MAX_NAME_BYTES: usize = 64;

/// Why a token file cannot be used. The errors do not quote the file, because it could be the wrong file, or could
/// contain a token by mistake.
#[derive(Debug, thiserror::Error)]
pub enum TokenFileError {
    /// The file cannot be opened, read or written.
    #[error("{path}: {source}", path = path.display())]
    File {
        /// The file.
        path: PathBuf,
        /// The kernel's error.
        source: io::Error,
    },
    /// The file is not a regular file, or is too large.
    #[error("{path}: a token file must be a regular file of at most {MAX_BYTES} bytes", path = path.display())]
    Kind {
        /// The file.
        path: PathBuf,
    },
    /// The file belongs to another user, who could add tokens.
    #[error(
        "{path}: the file is owned by user {uid}, but must be owned by root or the daemon's user: chown root {path}",
        path = path.display()
    )]
    Owner {
        /// The file.
        path: PathBuf,
        /// The owner's user ID.
        uid: u32,
    },
    /// Other users have access to the file.
    #[error(
        "{path}: the mode is {mode:04o}, but other users must have no access: chmod 0600 {path}",
        path = path.display()
    )]
    Mode {
        /// The file.
        path: PathBuf,
        /// Permission bits.
        mode: u32,
    },
    /// A line does not have the form `NAME ROLE HASH`, or its name already occurred.
    #[error("{path}:{line}: {reason}", path = path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// Line number, from 1.
        line: usize,
        /// The problem.
        reason: &'static str,
    },
    /// The name is invalid or already has a token.
    #[error("{path}: {reason}", path = path.display())]
    Name {
        /// The file.
        path: PathBuf,
        /// The problem.
        reason: &'static str,
    },
    /// The system's random number generator failed.
    #[error("the system's random number generator failed")]
    Random,
}

/// Reads the tokens from a file, which must be owned by root or this user and must not be accessible to others.
///
/// # Errors
/// Fails if the file cannot be read, is not a regular file, is too large, has the wrong owner or mode, or has an
/// invalid line.
pub fn named_tokens(path: &Path) -> Result<Vec<NamedToken>, TokenFileError> {
    // Open the file without blocking, because it could be a FIFO.
    let file =
        weir_sys::privileged::open_nonblocking(path).map_err(|source| file_error(path, source))?;
    parse(path, &read_checked(path, &file)?)
}

/// Generates a token, adds its hash to the file, which is created if necessary, and returns the token. The token itself
/// is not stored.
///
/// # Errors
/// Fails if the file cannot be used or written, the name is invalid or in use, or no random number is available.
pub fn add_token(path: &Path, name: &str, role: Role) -> Result<String, TokenFileError> {
    let invalid_name = |reason| TokenFileError::Name {
        path: path.to_owned(),
        reason,
    };
    if !is_name(name) {
        return Err(invalid_name(
            "a name has 1 to 64 characters: letters, digits, `.`, `_`, `-`",
        ));
    }
    let mut options = OpenOptions::new();
    options.read(true).append(true).create(true).mode(0o600);
    let mut file = options
        .open(path)
        .map_err(|error| file_error(path, error))?;
    let content = read_checked(path, &file)?;
    if parse(path, &content)?
        .iter()
        .any(|token| token.name == name)
    {
        return Err(invalid_name(
            "this name already has a token; remove its line first",
        ));
    }
    let mut token_bytes = [0; 32];
    rand::fill(&mut token_bytes).map_err(|_| TokenFileError::Random)?;
    let token = hex::encode(&token_bytes);
    let separator = if content.is_empty() || content.ends_with('\n') {
        ""
    } else {
        "\n"
    };
    let line = format!(
        "{separator}{name} {role} {}\n",
        hex::encode(&hash(token.as_bytes()))
    );
    let result = file
        .write_all(line.as_bytes())
        .and_then(|()| file.sync_all());
    result.map_err(|error| file_error(path, error))?;
    Ok(token)
}

fn read_checked(path: &Path, file: &File) -> Result<String, TokenFileError> {
    let metadata = file.metadata().map_err(|error| file_error(path, error))?;
    let owned_path = || path.to_owned();
    if !metadata.is_file() || metadata.len() > MAX_BYTES {
        return Err(TokenFileError::Kind { path: owned_path() });
    }
    let uid = metadata.uid();
    if uid != 0 && uid != geteuid().as_raw() {
        return Err(TokenFileError::Owner {
            path: owned_path(),
            uid,
        });
    }
    let mode = metadata.mode() & 0o7777;
    if mode & 0o077 != 0 {
        return Err(TokenFileError::Mode {
            path: owned_path(),
            mode,
        });
    }
    let mut text = String::new();
    let mut limited = file.take(MAX_BYTES);
    limited
        .read_to_string(&mut text)
        .map_err(|error| file_error(path, error))?;
    Ok(text)
}

fn parse(path: &Path, text: &str) -> Result<Vec<NamedToken>, TokenFileError> {
    let mut tokens: Vec<NamedToken> = Vec::new();
    for (index, line) in text.lines().enumerate() {
        let line = line.split('#').next().unwrap_or_default().trim();
        if line.is_empty() {
            continue;
        }
        let token = parse_line(line).and_then(|token| {
            let is_duplicate = tokens.iter().any(|other| other.name == token.name);
            if is_duplicate {
                return Err("the name appears twice");
            }
            Ok(token)
        });
        tokens.push(token.map_err(|reason| TokenFileError::Line {
            path: path.to_owned(),
            line: index + 1,
            reason,
        })?);
    }
    Ok(tokens)
}

fn parse_line(line: &str) -> Result<NamedToken, &'static str> {
    let words: Vec<&str> = line.split_whitespace().collect();
    let &[name, role, digest] = words.as_slice() else {
        return Err("a line must be NAME ROLE HASH");
    };
    if !is_name(name) {
        return Err("a name has 1 to 64 characters: letters, digits, `.`, `_`, `-`");
    }
    let role = role
        .parse()
        .map_err(|_| "the role must be `read`, `operate` or `write`")?;
    let hash =
        hex::decode(digest).ok_or("the hash must be a SHA-256 hash of 64 hexadecimal digits")?;
    Ok(NamedToken {
        name: name.to_owned(),
        role,
        hash,
    })
}

fn is_name(text: &str) -> bool {
    let is_allowed = |byte: u8| byte.is_ascii_alphanumeric() || b"._-".contains(&byte);
    (1..=MAX_NAME_BYTES).contains(&text.len()) && text.bytes().all(is_allowed)
}

fn file_error(path: &Path, source: io::Error) -> TokenFileError {
    TokenFileError::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::fs::{self, Permissions};
    use std::os::unix::fs::PermissionsExt;

    use super::*;
    use crate::api::Tokens;

    #[test]
    fn added_token_is_found_with_its_role() {
        let path = std::env::temp_dir().join(format!("weir-tokens-{}", std::process::id()));
        let _ = fs::remove_file(&path);
        let first = add_token(&path, "prometheus", Role::Read).unwrap();
        let mut text = fs::read_to_string(&path).unwrap();
        assert!(
            !text.contains(&first),
            "the file must not contain the token"
        );
        text = format!("# who may\n\n{} # scrapes", text.trim_end());
        fs::write(&path, text).unwrap();
        let second = add_token(&path, "deploy", Role::Write).unwrap();
        let tokens = Tokens {
            runtime_dir_token: None,
            named: named_tokens(&path).unwrap(),
        };
        let role_of = |token: &str| tokens.find(token.as_bytes(), false);
        assert_eq!(role_of(&first), Some(("prometheus", Role::Read)));
        assert_eq!(role_of(&second), Some(("deploy", Role::Write)));
        let error = add_token(&path, "deploy", Role::Read).unwrap_err();
        assert!(error.to_string().contains("remove its line"), "{error}");
        fs::set_permissions(&path, Permissions::from_mode(0o640)).unwrap();
        let error = named_tokens(&path).unwrap_err();
        assert!(error.to_string().contains("chmod 0600"), "{error}");
        fs::remove_file(&path).unwrap();
    }

    #[test]
    fn invalid_line_is_located_and_not_quoted() {
        let hash = "a".repeat(64);
        let path = Path::new("tokens");
        for (text, reason) in [
            ("secret".to_owned(), "NAME ROLE HASH"),
            (format!("a/b read {hash}"), "a name has"),
            (format!("secret admin {hash}"), "must be `read`"),
            ("a read secret".to_owned(), "64 hexadecimal"),
            (format!("a read {}", "é".repeat(32)), "64 hexadecimal"),
            (format!("a read {hash} secret"), "NAME ROLE HASH"),
            (format!("a read {hash}\na write {hash}"), "twice"),
        ] {
            let error = parse(path, &format!("\n{text}\n")).unwrap_err().to_string();
            assert!(error.starts_with("tokens:"), "{error}");
            assert!(error.contains(reason), "{error}");
            assert!(!error.contains("secret"), "{error}");
        }
    }
}
