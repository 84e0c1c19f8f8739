//! Runs commands in one of FRR's daemons over its Unix socket, with vtysh's protocol: the request is a command and a
//! NUL byte; the reply is text, three NUL bytes and a status byte.

use std::io;
use std::path::{Path, PathBuf};

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::UnixStream;

use crate::Error;
use crate::error::Result;

/// Maximum length of a reply.
const MAX_REPLY_BYTES: usize = 64 * 1024;
/// NUL bytes and status byte after the text of a reply.
const TRAILER_BYTES: usize = 4;

/// A connection to a daemon, which executes commands in configuration mode.
#[derive(Debug)]
pub(super) struct Connection {
    path: PathBuf,
    stream: UnixStream,
}

impl Connection {
    /// Connects to the socket of a daemon, and enters configuration mode.
    ///
    /// # Errors
    /// Returns an error if the socket does not exist or is not accessible, or if no daemon listens or accepts the
    /// connection.
    pub(super) async fn open(path: &Path) -> io::Result<Self> {
        let mut connection = Self {
            path: path.to_owned(),
            stream: UnixStream::connect(path).await?,
        };
        for line in ["enable", "configure terminal"] {
            connection.execute(line).await.map_err(io::Error::other)?;
        }
        Ok(connection)
    }

    /// Executes commands.
    ///
    /// # Errors
    /// Returns an error if the connection is lost or a command fails. The commands after it are not executed.
    pub(super) async fn execute_all(&mut self, lines: &[String]) -> Result<()> {
        for line in lines {
            self.execute(line).await?;
        }
        Ok(())
    }

    /// Executes a command, and returns its output.
    ///
    /// # Errors
    /// Returns an error if the connection is lost or the command fails.
    pub(super) async fn execute(&mut self, line: &str) -> Result<String> {
        let failed = |source| Error::File {
            path: self.path.clone(),
            source,
        };
        let request = [line.as_bytes(), b"\0"].concat();
        self.stream.write_all(&request).await.map_err(failed)?;
        let mut reply = Vec::new();
        let (length, status) = loop {
            if reply.len() > MAX_REPLY_BYTES {
                return Err(failed(io::Error::other("the reply is too long")));
            }
            if let Some(end) = parse_end(&reply) {
                break end;
            }
            if self.stream.read_buf(&mut reply).await.map_err(failed)? == 0 {
                return Err(failed(io::ErrorKind::UnexpectedEof.into()));
            }
        };
        let text = String::from_utf8_lossy(&reply[..length]).into_owned();
        // Some commands report an error but return a success status.
        if status == 0 && !text.lines().any(|line| line.starts_with('%')) {
            return Ok(text);
        }
        let status = format!("`{line}` failed with status {status}");
        Err(Error::rejected("frr", &text, &status))
    }
}

/// Returns the length of a reply's text, and its status; `None` = the reply is incomplete.
fn parse_end(reply: &[u8]) -> Option<(usize, u8)> {
    let length = reply.iter().position(|byte| *byte == 0)?;
    let status = reply.get(length + TRAILER_BYTES - 1)?;
    Some((length, *status))
}
