//! Drives BIRD 2 and 3: writes an include file with two `static` protocols, and sends `configure` to BIRD's control
//! socket.
//!
//! Weir never changes bird.conf. bird.conf must include the file at top level and export the routes of the protocols
//! `weir4` and `weir6`.

use std::fmt::Write as _;
use std::path::Path;

use tokio::io::{AsyncBufReadExt, AsyncWriteExt, BufReader};
use tokio::net::UnixStream;
use tokio::time::timeout;
use weir_sys::untrusted_file::{self, Owner};

use super::{COMMAND_TIMEOUT, Change, prefix};
use crate::Error;
use crate::error::Result;

/// Maximum length of a reply.
const MAX_REPLY_BYTES: usize = 64 * 1024;

/// Content of an include file that Weir no longer uses. It defines no protocol, because BIRD rejects a configuration
/// that defines a protocol twice. The file is not removed, because bird.conf may include it without a wildcard.
const UNUSED_FILE_TEXT: &str = "# Written by Weir, which no longer uses this file.\n";

/// Writes the include file if its content has changed, and makes BIRD read its configuration.
pub(super) async fn apply(socket: &Path, include: &Path, change: &Change<'_>) -> Result<()> {
    write(include, &render(change))?;
    reconfigure(socket).await
}

/// Removes the protocols from an include file that Weir no longer uses, and makes BIRD read its configuration.
pub(super) async fn clear(socket: &Path, include: &Path) -> Result<()> {
    if include.symlink_metadata().is_ok() {
        write(include, UNUSED_FILE_TEXT)?;
    }
    reconfigure(socket).await
}

fn write(include: &Path, text: &str) -> Result<()> {
    // BIRD runs as a separate user, so the file must be world-readable. BIRD may own the directory, so anything other
    // than a regular file with this content is replaced.
    let current = untrusted_file::read(include, Owner::Any, text.len() as u64);
    if current.as_deref() == Ok(text) {
        return Ok(());
    }
    weir_sys::replace_public_file(include, text.as_bytes()).map_err(|source| Error::File {
        path: include.to_owned(),
        source,
    })
}

async fn reconfigure(socket: &Path) -> Result<()> {
    timeout(COMMAND_TIMEOUT, configure(socket))
        .await
        .map_err(|_| Error::Timeout { speaker: "bird" })?
}

/// Returns the content of the include file.
pub(super) fn render(change: &Change<'_>) -> String {
    let mut text = String::from(
        "# Written by Weir, which replaces this file. Export the routes of weir4 and weir6 in bird.conf.\n",
    );
    for (name, channel, is_v4) in [("weir4", "ipv4", true), ("weir6", "ipv6", false)] {
        let _ = writeln!(text, "protocol static {name} {{\n  {channel};");
        let routes = change.routes.iter();
        for (vip, quality) in routes.filter(|(vip, _)| vip.is_ipv4() == is_v4) {
            let communities: String = change
                .communities(*quality)
                .map(|it| format!(" bgp_community.add(({},{}));", it.0, it.1))
                .collect();
            let attributes = match communities.as_str() {
                "" => String::new(),
                communities => format!(" {{{communities} }}"),
            };
            let _ = writeln!(text, "  route {} blackhole{attributes};", prefix(*vip));
        }
        text.push_str("}\n");
    }
    text
}

/// Sends `configure`. A reply consists of lines of the form `CCCC-text`, followed by a last line `CCCC text`.
async fn configure(socket: &Path) -> Result<()> {
    let file_error = |source| Error::File {
        path: socket.to_owned(),
        source,
    };
    let stream = UnixStream::connect(socket).await.map_err(file_error)?;
    let (reader, mut writer) = stream.into_split();
    let mut lines = BufReader::new(reader).lines();
    let mut length = 0;
    let mut read_reply = async || {
        loop {
            let line = lines.next_line().await.map_err(file_error)?;
            let line = line.ok_or_else(|| file_error(std::io::ErrorKind::UnexpectedEof.into()))?;
            length += line.len();
            match parse_outcome(&line) {
                Some(outcome) => return outcome,
                None if length > MAX_REPLY_BYTES => return Err(rejection("the reply is too long")),
                None => {}
            }
        }
    };
    read_reply().await?;
    writer.write_all(b"configure\n").await.map_err(file_error)?;
    read_reply().await
}

/// Parses the result from a line of a reply; `None` = this is not the last line.
pub(super) fn parse_outcome(line: &str) -> Option<Result<()>> {
    let (code, text) = line.split_at_checked(4)?;
    let code: u16 = code.parse().ok()?;
    let text = text.strip_prefix(' ')?;
    Some(match code {
        // A code below 8000 means success, or that BIRD is still reconfiguring other protocols.
        0..8000 => Ok(()),
        _ => Err(rejection(text)),
    })
}

fn rejection(reply: &str) -> Error {
    Error::Rejected {
        speaker: "bird",
        reply: reply.to_owned(),
    }
}
