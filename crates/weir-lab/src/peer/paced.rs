//! Runs web servers whose responses take a given time, as threads of the lab.
//!
//! A thread sleeps for the response time, with an error of about 0.1 ms. Each server has a fixed number of threads,
//! which exceeds the number of concurrent requests of any method.

use std::io::{Read, Write};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::error::{LabError, Result};
use crate::namespace::Namespace;
use crate::peer::nginx;
use crate::sample::Shares;

/// Response time of a normal server.
pub(crate) const NORMAL_TIME: Duration = Duration::from_millis(4);
/// Response time of a server that is starved of CPU time and handles one request at a time.
pub(crate) const STARVED_TIME: Duration = Duration::from_millis(8);

const THREADS: usize = 48;
const STACK_BYTES: usize = 128 * 1024;
const IDLE_LIMIT: Duration = Duration::from_secs(10);
const REQUEST_BYTES: usize = 4096;
const RESPONSE: &[u8] = b"HTTP/1.0 200 OK\r\nContent-Length: 3\r\nConnection: close\r\n\r\nUp\n";
/// Interval between samples of the shares.
const SAMPLING_INTERVAL: Duration = Duration::from_millis(100);

/// The speed of the first server.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Pace {
    /// The server is as fast as the others.
    #[default]
    Normal,
    /// Each response takes this much longer.
    Slower(Duration),
    /// The server handles one request at a time.
    Starved,
}

#[derive(Debug, Default)]
struct SharedState {
    extra_us: AtomicU64,
    starved: AtomicBool,
    processor: Mutex<()>,
    responses: AtomicU64,
    stopped: AtomicBool,
}

/// A running server. Dropping it stops the threads.
#[derive(Debug)]
pub(crate) struct Server {
    shared: Arc<SharedState>,
    listener: Arc<TcpListener>,
}

impl Server {
    /// Starts a server on all addresses of a host.
    pub(crate) fn start(namespace: &Namespace) -> Result<Self> {
        let start_error = |source| LabError::Start {
            program: "the lab's web server".into(),
            source,
        };
        let listen = || {
            let address = (std::net::Ipv4Addr::UNSPECIFIED, nginx::PORT);
            TcpListener::bind(address).map_err(start_error)
        };
        let server = Self {
            shared: Arc::new(SharedState::default()),
            listener: Arc::new(namespace.enter(listen)?),
        };
        for _ in 0..THREADS {
            let (shared, listener) = (server.shared.clone(), server.listener.clone());
            std::thread::Builder::new()
                .name("paced".into())
                .stack_size(STACK_BYTES)
                .spawn(move || shared.serve(&listener))
                .map_err(start_error)?;
        }
        Ok(server)
    }

    fn set_pace(&self, pace: Pace) {
        let extra = match pace {
            Pace::Slower(extra) => extra,
            Pace::Normal | Pace::Starved => Duration::ZERO,
        };
        let extra_us = u64::try_from(extra.as_micros()).unwrap_or(u64::MAX);
        self.shared.extra_us.store(extra_us, Ordering::Relaxed);
        let starved = pace == Pace::Starved;
        self.shared.starved.store(starved, Ordering::Relaxed);
    }

    fn responses(&self) -> u64 {
        self.shared.responses.load(Ordering::Relaxed)
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.shared.stopped.store(true, Ordering::Relaxed);
        // Wake the threads that are blocked in accept(2).
        let _ = rustix::net::shutdown(&self.listener, rustix::net::Shutdown::Both);
    }
}

impl SharedState {
    fn serve(&self, listener: &TcpListener) {
        while !self.stopped.load(Ordering::Relaxed) {
            match listener.accept() {
                // Ignore clients that have closed their connection.
                Ok((stream, _)) => drop(self.respond(stream)),
                Err(_) => std::thread::sleep(Duration::from_millis(1)),
            }
        }
    }

    fn respond(&self, mut stream: TcpStream) -> std::io::Result<()> {
        stream.set_read_timeout(Some(IDLE_LIMIT))?;
        let mut request = [0; REQUEST_BYTES];
        let mut length = 0;
        while !request[..length].ends_with(b"\r\n\r\n") {
            match stream.read(&mut request[length..])? {
                0 => return Ok(()),
                increase => length += increase,
            }
        }
        if self.starved.load(Ordering::Relaxed) {
            let _turn = self
                .processor
                .lock()
                .unwrap_or_else(PoisonError::into_inner);
            std::thread::sleep(STARVED_TIME);
        } else {
            let extra = Duration::from_micros(self.extra_us.load(Ordering::Relaxed));
            std::thread::sleep(NORMAL_TIME + extra);
        }
        stream.write_all(RESPONSE)?;
        self.responses.fetch_add(1, Ordering::Relaxed);
        stream.shutdown(Shutdown::Write)
    }
}

/// Sets the pace of the first server, runs `work`, and returns its result and the first server's share of responses.
pub(crate) fn run_paced<T: Send>(
    servers: &[Server],
    pace: Pace,
    work: impl FnOnce() -> Result<T> + Send,
) -> Result<(T, Shares)> {
    if let Some(first) = servers.first() {
        first.set_pace(pace);
    }
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| sample_shares(servers, &done));
        let result = work();
        done.store(true, Ordering::Release);
        let shares = sampler
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic));
        Ok((result?, shares))
    })
}

fn sample_shares(servers: &[Server], done: &AtomicBool) -> Shares {
    let read = || -> Vec<u64> { servers.iter().map(Server::responses).collect() };
    let started_at = Instant::now();
    let first = read();
    let mut before = first.clone();
    let mut shares = Shares::default();
    let mut last = 0.0;
    while !done.load(Ordering::Acquire) {
        std::thread::sleep(SAMPLING_INTERVAL);
        let now = read();
        last = share(&before, &now).unwrap_or(last);
        shares.seconds.push(started_at.elapsed().as_secs_f64());
        shares.shares.push(last);
        before = now;
    }
    shares.mean = share(&first, &read()).unwrap_or_default();
    shares
}

/// Returns the first server's share of the responses between two readings; `None` = there were no responses.
fn share(before: &[u64], now: &[u64]) -> Option<f64> {
    let increase = |(now, before): (&u64, &u64)| (now - before) as f64;
    let all: f64 = now.iter().zip(before).map(increase).sum();
    let first_server = now.iter().zip(before).next().map_or(0.0, increase);
    (all > 0.0).then(|| first_server / all)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn share_covers_the_responses_between_two_counts() {
        assert_eq!(share(&[1, 1, 1, 1], &[2, 2, 3, 1]), Some(0.25));
        assert_eq!(share(&[1, 1], &[1, 1]), None);
    }

    #[test]
    fn response_takes_the_given_time_and_is_counted() {
        let shared = Arc::new(SharedState::default());
        shared.extra_us.store(10_000, Ordering::Relaxed);
        let listener = TcpListener::bind("127.0.0.1:0").expect("bind a port");
        let address = listener.local_addr().expect("read the local address");
        let thread_state = shared.clone();
        let thread = std::thread::spawn(move || {
            let (stream, _) = listener.accept().expect("accept a client");
            thread_state.respond(stream)
        });
        let started_at = Instant::now();
        let mut stream = TcpStream::connect(address).expect("connect");
        stream
            .write_all(b"GET / HTTP/1.0\r\n\r\n")
            .expect("send the request");
        let mut text = String::new();
        stream.read_to_string(&mut text).expect("read");
        thread.join().expect("join the thread").expect("respond");
        assert!(text.starts_with("HTTP/1.0 200") && text.ends_with("Up\n"));
        assert!(started_at.elapsed() >= NORMAL_TIME + Duration::from_millis(10));
        assert_eq!(shared.responses.load(Ordering::Relaxed), 1);
    }
}
