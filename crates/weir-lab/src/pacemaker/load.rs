//! Sends requests to the application, each on a new connection, like `ab`.

use std::io::{Read, Write};
use std::net::{IpAddr, Shutdown, SocketAddr, TcpStream};
use std::sync::Mutex;
use std::sync::PoisonError;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use super::cluster::{PORT, VIP};
use crate::error::{LabError, Result};
use crate::namespace::Namespace;

const CLIENTS: usize = 8;
/// Time limit for a request.
const REQUEST_TIMEOUT: Duration = Duration::from_millis(500);

/// The results of a load.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measured {
    pub(super) outage: Duration,
    pub(super) requests: u64,
    pub(super) failed: u64,
}

/// The end of a request, and whether it was answered.
type Ended = (Instant, bool);

/// Sends a request and returns the name of the node that responds.
fn request(to: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&to, REQUEST_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(REQUEST_TIMEOUT)).ok()?;
    stream
        .write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let _ = stream.shutdown(Shutdown::Both);
    let (_, name) = text.split_once("Up ")?;
    Some(name.trim().to_owned())
}

fn address() -> Option<SocketAddr> {
    let vip: IpAddr = VIP.parse().ok()?;
    Some(SocketAddr::new(vip, PORT))
}

/// Sends a request from the client and returns the name of the node that responds.
pub(super) fn request_from(client: &Namespace) -> Result<Option<String>> {
    client.enter(|| Ok(address().and_then(request)))
}

/// Sends requests while `fault` runs.
pub(super) fn measure(client: &Namespace, fault: impl FnOnce() -> Result<()>) -> Result<Measured> {
    let stop = AtomicBool::new(false);
    let all: Mutex<Vec<Ended>> = Mutex::new(Vec::new());
    let started = Instant::now();
    std::thread::scope(|scope| {
        let run = || {
            client.enter(|| {
                send(&stop, &all);
                Ok(())
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(run)).collect();
        let happened = fault();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            let ended = client.join();
            ended.map_err(|_| LabError::file("client")(std::io::ErrorKind::Other.into()))??;
        }
        happened
    })?;
    let mut all = all.into_inner().unwrap_or_else(PoisonError::into_inner);
    all.sort_unstable();
    Ok(outcome(started, Instant::now(), &all))
}

fn send(stop: &AtomicBool, all: &Mutex<Vec<Ended>>) {
    let Some(to) = address() else {
        return;
    };
    while !stop.load(Ordering::Relaxed) {
        let answered = request(to).is_some();
        let ended = (Instant::now(), answered);
        all.lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(ended);
        // A refused connection fails at once.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the longest time between two responses, and the counts.
fn outcome(started: Instant, end: Instant, all: &[Ended]) -> Measured {
    let answers = all
        .iter()
        .filter(|(_, answered)| *answered)
        .map(|(at, _)| *at);
    let (mut last, mut outage) = (started, Duration::ZERO);
    for at in answers.chain([end]) {
        outage = outage.max(at.saturating_duration_since(last));
        last = at;
    }
    Measured {
        outage,
        requests: all.len() as u64,
        failed: all.iter().filter(|(_, answered)| !answered).count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_is_the_longest_time_without_a_response() {
        let start = Instant::now();
        let at = |ms: u64| start + Duration::from_millis(ms);
        let all = [
            (at(10), true),
            (at(20), true),
            (at(300), false),
            (at(520), true),
        ];
        let measured = outcome(start, at(600), &all);
        assert_eq!(measured.outage, Duration::from_millis(500));
        assert_eq!((measured.requests, measured.failed), (4, 1));
        assert_eq!(
            outcome(start, at(600), &[]).outage,
            Duration::from_millis(600)
        );
    }
}
