//! Writes log lines to their destination: a file, standard output, a syslog daemon or systemd's journal.

use std::fs::File;
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::os::unix::net::UnixDatagram;
use std::path::Path;
use std::time::{Duration, SystemTime};

use weir_http::access::rfc3339;
use weir_model::{AccessLog, LogTarget, SyslogFormat};

/// Syslog message priority: facility local0, severity info (RFC 5424 section 6.2.1).
const PRIORITY: u8 = 16 * 8 + 6;

/// Maximum time that sending a message may block. Blocking delays other logs, but not the workers.
const SEND_TIMEOUT: Duration = Duration::from_secs(1);

/// Opens a log's destination.
///
/// # Errors
/// Fails if the file cannot be opened, or nothing listens on the socket.
pub(super) fn open(log: &AccessLog, service: &str) -> io::Result<Sink> {
    let writer: Box<dyn Write + Send> = match log.target() {
        LogTarget::Stdout => Box::new(io::stdout()),
        LogTarget::File(path) => {
            let file = weir_sys::privileged::append(Path::new(path))?;
            let identity = identity(&file);
            return Ok(Sink {
                writer: Box::new(file),
                identity,
            });
        }
        LogTarget::Syslog(path) => Box::new(MessageWriter::connect(
            path,
            match log.syslog {
                SyslogFormat::Rfc3164 => MessageFormat::Rfc3164,
                SyslogFormat::Rfc5424 => MessageFormat::Rfc5424,
            },
            service,
        )?),
        LogTarget::Journal(path) => Box::new(MessageWriter::connect(
            path,
            MessageFormat::Journal,
            service,
        )?),
    };
    Ok(Sink {
        writer,
        identity: None,
    })
}

/// An open destination.
pub(super) struct Sink {
    pub(super) writer: Box<dyn Write + Send>,
    /// Device and inode, if the destination is a file.
    pub(super) identity: Option<(u64, u64)>,
}

impl Sink {
    /// Returns whether the path now refers to a different file or no longer exists.
    pub(super) fn is_moved(&self, path: &str) -> bool {
        let Some(identity) = self.identity else {
            return false;
        };
        match std::fs::metadata(path) {
            Ok(metadata) => (metadata.dev(), metadata.ino()) != identity,
            // An unprivileged process may lack access to the directory.
            Err(error) => error.kind() == io::ErrorKind::NotFound,
        }
    }
}

fn identity(file: &File) -> Option<(u64, u64)> {
    let metadata = file.metadata().ok()?;
    // A renamed pipe or device does not have to be reopened.
    metadata.is_file().then(|| (metadata.dev(), metadata.ino()))
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum MessageFormat {
    Rfc3164,
    Rfc5424,
    Journal,
}

/// A writer that sends each line as a datagram.
struct MessageWriter {
    socket: UnixDatagram,
    format: MessageFormat,
    host: String,
    service: String,
    message: Vec<u8>,
}

impl MessageWriter {
    fn connect(path: &str, format: MessageFormat, service: &str) -> io::Result<Self> {
        let socket = UnixDatagram::unbound()?;
        socket.connect(path)?;
        socket.set_write_timeout(Some(SEND_TIMEOUT))?;
        Ok(Self {
            socket,
            format,
            host: rustix::system::uname()
                .nodename()
                .to_string_lossy()
                .into_owned(),
            service: service.to_owned(),
            message: Vec::new(),
        })
    }

    /// Formats the message for a line. `line` has no newline.
    fn format(&mut self, line: &[u8], time_ms: u64) -> io::Result<()> {
        let (pid, out) = (std::process::id(), &mut self.message);
        out.clear();
        match self.format {
            MessageFormat::Rfc3164 => write!(out, "<{PRIORITY}>weir[{pid}]: ")?,
            MessageFormat::Rfc5424 => {
                let time = rfc3339(time_ms);
                write!(
                    out,
                    "<{PRIORITY}>1 {time} {} weir {pid} access - ",
                    self.host
                )?;
            }
            MessageFormat::Journal => {
                let service = &self.service;
                write!(
                    out,
                    "PRIORITY=6\nSYSLOG_FACILITY=16\nSYSLOG_IDENTIFIER=weir\nWEIR_SERVICE={service}\nMESSAGE="
                )?;
            }
        }
        out.extend_from_slice(line);
        if self.format == MessageFormat::Journal {
            out.push(b'\n');
        }
        Ok(())
    }
}

impl Write for MessageWriter {
    /// Sends each line as a datagram. Bytes after the last newline are sent as a line too.
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        let since = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
        let time_ms = u64::try_from(since.as_millis()).unwrap_or(0);
        let mut sent = 0;
        for line in bytes.split_inclusive(|byte| *byte == b'\n') {
            let text = line.strip_suffix(b"\n").unwrap_or(line);
            if !text.is_empty() {
                self.format(text, time_ms)?;
                match self.socket.send(&self.message) {
                    Ok(_) => {}
                    Err(_) if sent > 0 => return Ok(sent),
                    Err(error) => return Err(error),
                }
            }
            sent += line.len();
        }
        Ok(sent)
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn messages(format: MessageFormat) -> MessageWriter {
        let (socket, _) = UnixDatagram::pair().unwrap();
        MessageWriter {
            socket,
            format,
            host: "h".to_owned(),
            service: "web".to_owned(),
            message: Vec::new(),
        }
    }

    #[test]
    fn message_header_depends_on_format() {
        let pid = std::process::id();
        let journal = "PRIORITY=6\nSYSLOG_FACILITY=16\nSYSLOG_IDENTIFIER=weir\nWEIR_SERVICE=web\nMESSAGE=a b\n";
        for (format, expected) in [
            (MessageFormat::Rfc3164, format!("<134>weir[{pid}]: a b")),
            (
                MessageFormat::Rfc5424,
                format!("<134>1 1970-01-01T00:00:01.500Z h weir {pid} access - a b"),
            ),
            (MessageFormat::Journal, journal.to_owned()),
        ] {
            let mut messages = messages(format);
            messages.format(b"a b", 1_500).unwrap();
            assert_eq!(String::from_utf8_lossy(&messages.message), expected);
        }
    }

    #[test]
    fn each_line_is_sent_as_a_datagram() {
        let (socket, reader) = UnixDatagram::pair().unwrap();
        let mut messages = MessageWriter {
            socket,
            ..messages(MessageFormat::Rfc3164)
        };
        messages.write_all(b"\none\ntwo\n").unwrap();
        for expected in ["one", "two"] {
            let mut buffer = [0; 100];
            let length = reader.recv(&mut buffer).unwrap();
            let text = String::from_utf8_lossy(&buffer[..length]).into_owned();
            assert!(text.ends_with(&format!("]: {expected}")), "{text}");
        }
    }
}
