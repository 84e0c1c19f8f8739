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
/// Timeout for connecting, and for each read.
const IO_TIMEOUT: Duration = Duration::from_millis(500);

/// The results of a load run.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Measurement {
    pub(super) outage: Duration,
    pub(super) requests: u64,
    pub(super) failed: u64,
}

/// The time at which a request ended, and whether there was a response.
type FinishedRequest = (Instant, bool);

/// Sends a request and returns the name of the node that responds.
fn request(address: SocketAddr) -> Option<String> {
    let mut stream = TcpStream::connect_timeout(&address, IO_TIMEOUT).ok()?;
    stream.set_read_timeout(Some(IO_TIMEOUT)).ok()?;
    stream
        .write_all(b"GET /hello HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n")
        .ok()?;
    let mut text = String::new();
    stream.read_to_string(&mut text).ok()?;
    let _ = stream.shutdown(Shutdown::Both);
    let (_, name) = text.split_once("Up ")?;
    Some(name.trim().to_owned())
}

fn vip_address() -> Option<SocketAddr> {
    let vip: IpAddr = VIP.parse().ok()?;
    Some(SocketAddr::new(vip, PORT))
}

/// Sends a request from the client and returns the name of the node that responds.
pub(super) fn request_from(client: &Namespace) -> Result<Option<String>> {
    client.enter(|| Ok(vip_address().and_then(request)))
}

/// Sends requests while `fault` runs.
pub(super) fn measure(
    client: &Namespace,
    fault: impl FnOnce() -> Result<()>,
) -> Result<Measurement> {
    let stop = AtomicBool::new(false);
    let requests: Mutex<Vec<FinishedRequest>> = Mutex::new(Vec::new());
    let started = Instant::now();
    std::thread::scope(|scope| {
        let run = || {
            client.enter(|| {
                send(&stop, &requests);
                Ok(())
            })
        };
        let clients: Vec<_> = (0..CLIENTS).map(|_| scope.spawn(run)).collect();
        let result = fault();
        stop.store(true, Ordering::Relaxed);
        for client in clients {
            let result = client.join();
            result.map_err(|_| LabError::file("client")(std::io::ErrorKind::Other.into()))??;
        }
        result
    })?;
    let mut requests = requests
        .into_inner()
        .unwrap_or_else(PoisonError::into_inner);
    requests.sort_unstable();
    Ok(evaluate(started, Instant::now(), &requests))
}

fn send(stop: &AtomicBool, requests: &Mutex<Vec<FinishedRequest>>) {
    let Some(address) = vip_address() else {
        return;
    };
    while !stop.load(Ordering::Relaxed) {
        let has_response = request(address).is_some();
        let request = (Instant::now(), has_response);
        requests
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .push(request);
        // A refused connection fails immediately, so pause between requests.
        std::thread::sleep(Duration::from_millis(2));
    }
}

/// Returns the longest time without a response, and the numbers of requests and failures.
fn evaluate(started: Instant, end: Instant, requests: &[FinishedRequest]) -> Measurement {
    let responses = requests
        .iter()
        .filter(|(_, has_response)| *has_response)
        .map(|(time, _)| *time);
    let (mut last, mut outage) = (started, Duration::ZERO);
    for time in responses.chain([end]) {
        outage = outage.max(time.saturating_duration_since(last));
        last = time;
    }
    Measurement {
        outage,
        requests: requests.len() as u64,
        failed: requests
            .iter()
            .filter(|(_, has_response)| !has_response)
            .count() as u64,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outage_is_the_longest_time_without_a_response() {
        let start = Instant::now();
        let time = |ms: u64| start + Duration::from_millis(ms);
        let requests = [
            (time(10), true),
            (time(20), true),
            (time(300), false),
            (time(520), true),
        ];
        let measurement = evaluate(start, time(600), &requests);
        assert_eq!(measurement.outage, Duration::from_millis(500));
        assert_eq!((measurement.requests, measurement.failed), (4, 1));
        assert_eq!(
            evaluate(start, time(600), &[]).outage,
            Duration::from_millis(600)
        );
    }
}
