//! Sends GET requests to check that a method serves requests before the lab measures it.

use std::io::{Read, Write};
use std::net::{SocketAddr, TcpStream};
use std::time::Duration;

use crate::error::Result;
use crate::interrupt::wait_for;
use crate::namespace::Namespace;

const ATTEMPT_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits until a GET of `path` from `client` returns 200.
///
/// # Errors
/// Returns [`crate::LabError::Deadline`] with the result of the last attempt.
pub(crate) fn wait_until_served(
    client: &Namespace,
    target: SocketAddr,
    path: &str,
    limit: Duration,
) -> Result<()> {
    let mut last = String::new();
    let last_seen = std::cell::RefCell::new(&mut last);
    let attempt = || {
        let outcome = client.enter(|| Ok(status_line(target, path)))?;
        let is_served = matches!(&outcome, Ok(line) if line.contains(" 200 "));
        **last_seen.borrow_mut() = match outcome {
            Ok(line) => format!(": the last response was \"{line}\""),
            Err(error) => format!(": the last attempt failed with \"{error}\""),
        };
        Ok(is_served.then_some(()))
    };
    wait_for(
        &format!("a response from http://{target}{path}"),
        limit,
        attempt,
        || last_seen.borrow().clone(),
    )
}

fn status_line(target: SocketAddr, path: &str) -> std::io::Result<String> {
    let mut stream = TcpStream::connect_timeout(&target, ATTEMPT_TIMEOUT)?;
    stream.set_read_timeout(Some(ATTEMPT_TIMEOUT))?;
    write!(stream, "GET {path} HTTP/1.0\r\nHost: lab\r\n\r\n")?;
    let mut start = [0; 64];
    let length = stream.read(&mut start)?;
    let text = String::from_utf8_lossy(start.get(..length).unwrap_or_default()).into_owned();
    Ok(text.lines().next().unwrap_or_default().to_owned())
}
