//! Access logs. Each worker appends records to its own buffer; one thread formats and writes them.
//!
//! A worker takes an uncontended lock and copies some bytes. If the writer does not keep up, records are dropped and
//! counted.

mod sink;
pub mod tap;

use std::net::SocketAddr;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_http::access::Record;
use weir_model::{AccessLog, Desired, LogFormat, LogTarget, ProxyProtocol};

use crate::tls::Problem;
use sink::Sink;

/// Bytes of records that a worker may buffer.
const ROOM: usize = 4 << 20;
/// Interval of the writer.
const PAUSE: Duration = Duration::from_millis(50);

/// Interval of warnings about an access log that cannot be written.
const COMPLAINT: Duration = Duration::from_secs(60);

/// Changes when every file has to be opened again.
static REOPEN: AtomicU32 = AtomicU32::new(0);

/// Opens the files of all logs again before their next lines.
pub fn reopen_logs() {
    REOPEN.fetch_add(1, Ordering::Relaxed);
}

/// The record of an exchange in progress.
#[derive(Debug, Default)]
pub(crate) struct Note {
    /// Method, target, `Host`, `Referer` and `User-Agent`, concatenated.
    text: Vec<u8>,
    ends: [usize; 5],
    version: &'static str,
    /// Nanoseconds of the monotonic clock.
    pub(crate) began: u64,
    pub(crate) part_began: u64,
    /// Microseconds of each phase.
    pub(crate) spent_us: [u64; 5],
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) status: u16,
    /// Values of the log's further variables, in their order; absent ones are empty.
    pub(crate) more: Vec<Vec<u8>>,
}

impl Note {
    /// Starts a new record in the same buffer.
    pub(crate) fn begin(&mut self, now: u64) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        *self = Self {
            text,
            began: now,
            part_began: now,
            ..Self::default()
        };
    }

    /// Sets the request's fields.
    pub(crate) fn request(&mut self, parts: [&[u8]; 5], version: &'static str) {
        for (end, part) in self.ends.iter_mut().zip(parts) {
            self.text.extend_from_slice(part);
            *end = self.text.len();
        }
        self.version = version;
    }

    fn part(&self, at: usize) -> &[u8] {
        let start = if at == 0 { 0 } else { self.ends[at - 1] };
        &self.text[start..self.ends[at]]
    }
}

/// The fields of a line that are known at the end of an exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Outcome<'a> {
    pub(crate) client: SocketAddr,
    pub(crate) pool: &'a str,
    pub(crate) server: &'a str,
    pub(crate) retries: u32,
    pub(crate) end: [u8; 2],
    /// The route's line in the configuration; 0 = none.
    pub(crate) route: u32,
}

/// Finds access logs that cannot be opened.
pub(crate) fn problems(desired: &Desired) -> Vec<Problem> {
    let logs = desired.proxies.iter();
    let logs = logs.filter_map(|proxy| Some((proxy, proxy.access_log.as_ref()?)));
    let problems = logs.filter_map(|(proxy, log)| {
        let file = match log.target() {
            LogTarget::File(file) => file,
            // Daemons that are restarted create their sockets again.
            LogTarget::Stdout | LogTarget::Syslog(_) | LogTarget::Journal(_) => return None,
        };
        let path = Path::new(file);
        let directory = path.parent()?;
        let place = if directory.as_os_str().is_empty() {
            Path::new(".")
        } else {
            directory
        };
        let cause = match place.metadata() {
            Ok(found) if found.is_dir() && !path.is_dir() => return None,
            Ok(_) => "not a file in a directory".to_owned(),
            Err(error) => format!("{}: {error}", place.display()),
        };
        Some(Problem {
            fatal: false,
            message: format!("service {}: {} cannot be written", proxy.name, log.path),
            cause: format!("{cause}; lines would be dropped and counted"),
            fix: "create the directory with write permission for the daemon's user".to_owned(),
            source: proxy.source,
        })
    });
    problems.collect()
}

/// Records of one worker.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Exchanges that were sampled.
    seen: u32,
}

/// One service's log.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) kind: AccessLog,
    pub(crate) protocol: ProxyProtocol,
    service: String,
    /// One for each worker.
    noted: Box<[Mutex<Buffer>]>,
    /// Names in the format that are not columns of a record.
    pub(crate) more: Vec<String>,
    dropped: AtomicU64,
    reopen: AtomicBool,
}

impl Log {
    pub(crate) fn new(
        kind: &AccessLog,
        protocol: ProxyProtocol,
        service: &str,
        workers: usize,
    ) -> Self {
        Self {
            kind: kind.clone(),
            more: kind
                .format
                .variables()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            protocol,
            service: service.to_owned(),
            noted: (0..workers).map(|_| Mutex::default()).collect(),
            dropped: AtomicU64::new(0),
            reopen: AtomicBool::new(false),
        }
    }

    /// Lines that were dropped because the writer did not keep up or the file could not be written.
    pub(crate) fn dropped(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Opens the file again before the next line, because log rotation may have moved it.
    pub(crate) fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }

    /// Adds a finished record; `time_ms` counts from 1970.
    pub(crate) fn put(&self, worker: usize, time_ms: u64, note: &Note, outcome: &Outcome<'_>) {
        // A tap may have been opened for another number of workers.
        let Some(buffer) = self.noted.get(worker) else {
            return;
        };
        let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let is_failure = note.status >= 500 || outcome.end != *b"--";
        if self.kind.sample > 1 && !is_failure {
            let turn = buffer.seen % self.kind.sample;
            buffer.seen = buffer.seen.wrapping_add(1);
            if turn != 0 {
                return;
            }
        }
        let into = &mut buffer.bytes;
        if into.len() > ROOM {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let mut number = |value: u64| into.extend_from_slice(&value.to_le_bytes());
        number(time_ms);
        number(note.bytes_in);
        number(note.bytes_out);
        note.spent_us.iter().for_each(|us| number(*us));
        number(u64::from(note.status) << 32 | u64::from(outcome.retries));
        number(u64::from(u16::from_be_bytes(outcome.end)) << 16 | u64::from(outcome.client.port()));
        let address = match outcome.client.ip() {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            std::net::IpAddr::V6(v6) => v6,
        };
        into.extend_from_slice(&address.octets());
        let own = [
            outcome.pool.as_bytes(),
            outcome.server.as_bytes(),
            note.version.as_bytes(),
        ];
        let noted = (0..5).map(|at| note.part(at));
        for part in own.into_iter().chain(noted) {
            // A target is half a head at most, and a head 64 KiB.
            let len = u32::try_from(part.len()).unwrap_or(0);
            into.extend_from_slice(&len.to_le_bytes());
            into.extend_from_slice(part);
        }
        let route = match outcome.route {
            0 => String::new(),
            line => line.to_string(),
        };
        for (at, name) in self.more.iter().enumerate() {
            let value = match name.as_str() {
                "route" => route.as_bytes(),
                _ => note.more.get(at).map_or(&b""[..], Vec::as_slice),
            };
            let len = u32::try_from(value.len()).unwrap_or(0);
            into.extend_from_slice(&len.to_le_bytes());
            into.extend_from_slice(value);
        }
    }

    /// Formats the buffered records that are `wanted`, and returns their number.
    pub(crate) fn lines(
        &self,
        spare: &mut Vec<u8>,
        out: &mut Vec<u8>,
        wanted: impl Fn(&Record<'_>) -> bool,
    ) -> u64 {
        let mut count = 0;
        for noted in &self.noted {
            spare.clear();
            std::mem::swap(
                spare,
                &mut noted.lock().unwrap_or_else(PoisonError::into_inner).bytes,
            );
            let mut rest = spare.as_slice();
            while let Some(line) = read(&mut rest, &self.service, &self.more) {
                if !wanted(&line) {
                    continue;
                }
                match (&self.kind.format, self.protocol) {
                    (LogFormat::Combined, ProxyProtocol::Tcp) => line.write_tcp(out),
                    (format, _) => line.write(format, out),
                }
                count += 1;
            }
        }
        count
    }
}

fn read<'a>(rest: &mut &'a [u8], service: &'a str, more: &'a [String]) -> Option<Record<'a>> {
    fn number(rest: &mut &[u8]) -> Option<u64> {
        let (bytes, after) = rest.split_first_chunk::<8>()?;
        *rest = after;
        Some(u64::from_le_bytes(*bytes))
    }
    fn part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (bytes, after) = rest.split_first_chunk::<4>()?;
        let (part, after) = after.split_at_checked(u32::from_le_bytes(*bytes) as usize)?;
        *rest = after;
        Some(part)
    }
    let (time_ms, bytes_in, bytes_out) = (number(rest)?, number(rest)?, number(rest)?);
    let mut spent_us = [0; 5];
    for us in &mut spent_us {
        *us = number(rest)?;
    }
    let (status, end) = (number(rest)?, number(rest)?);
    let (address, after) = rest.split_first_chunk::<16>()?;
    *rest = after;
    let address = std::net::Ipv6Addr::from(*address).to_canonical();
    let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).unwrap_or_default();
    let (pool, server) = (text(part(rest)?), text(part(rest)?));
    let version = text(part(rest)?);
    let mut record = Record {
        time_ms,
        client: SocketAddr::new(address, end as u16),
        service,
        pool,
        server,
        method: part(rest)?,
        target: part(rest)?,
        version,
        host: part(rest)?,
        referer: part(rest)?,
        agent: part(rest)?,
        status: (status >> 32) as u16,
        bytes_in,
        bytes_out,
        spent_us,
        retries: status as u32,
        end: ((end >> 16) as u16).to_be_bytes(),
        more: Vec::with_capacity(more.len()),
    };
    for name in more {
        record.more.push((name.as_str(), part(rest)?));
    }
    Some(record)
}

/// The thread that writes all logs.
#[derive(Debug)]
pub(crate) struct Writer {
    logs: Arc<Mutex<Vec<Weak<Log>>>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// A log's open file.
struct Open {
    log: Arc<Log>,
    file: Option<Sink>,
    reopened: u32,
    /// The last write may have ended within a line.
    torn: bool,
    trouble: Option<Trouble>,
}

/// Lines cannot be written.
#[derive(Debug, Clone, Copy)]
struct Trouble {
    since: Instant,
    /// When a warning was last logged, and the lines lost since then and in total.
    logged: Instant,
    lost: u64,
    lost_in_all: u64,
}

impl Writer {
    /// Starts it.
    ///
    /// # Errors
    /// The thread cannot be created.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (logs, stop) = (
            Arc::<Mutex<Vec<Weak<Log>>>>::default(),
            Arc::new(AtomicBool::new(false)),
        );
        let (theirs, stopped) = (Arc::clone(&logs), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("weir-proxy-log".to_owned())
            .spawn(move || run(&theirs, &stopped))?;
        Ok(Self { logs, stop, thread })
    }

    /// Adds a log. It is written until all other references are dropped.
    pub(crate) fn add(&self, log: &Arc<Log>) {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.retain(|known| known.strong_count() > 0);
        if !logs.iter().any(|known| known.as_ptr() == Arc::as_ptr(log)) {
            logs.push(Arc::downgrade(log));
        }
    }

    /// Writes all buffered records, then stops.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!("the access log writer has panicked");
        }
    }
}

fn run(logs: &Mutex<Vec<Weak<Log>>>, stop: &AtomicBool) {
    let mut open: Vec<Open> = Vec::new();
    let (mut spare, mut out) = (Vec::new(), Vec::new());
    loop {
        let last = stop.load(Ordering::Acquire);
        let present: Vec<Arc<Log>> = {
            let logs = logs.lock().unwrap_or_else(PoisonError::into_inner);
            logs.iter().filter_map(Weak::upgrade).collect()
        };
        for log in present {
            if !open.iter().any(|known| Arc::ptr_eq(&known.log, &log)) {
                open.push(Open {
                    log,
                    file: None,
                    reopened: REOPEN.load(Ordering::Relaxed),
                    torn: false,
                    trouble: None,
                });
            }
        }
        for one in &mut open {
            out.clear();
            let count = one.log.lines(&mut spare, &mut out, |_| true);
            if count > 0 {
                one.write(&out, count, Instant::now());
            }
        }
        // No other reference: its service was removed, and everything is written.
        open.retain(|one| Arc::strong_count(&one.log) > 1);
        if last {
            return;
        }
        std::thread::park_timeout(PAUSE);
    }
}

impl Open {
    fn write(&mut self, out: &[u8], count: u64, now: Instant) {
        let reopened = REOPEN.load(Ordering::Relaxed);
        let is_due = self.log.reopen.swap(false, Ordering::Relaxed) || reopened != self.reopened;
        self.reopened = reopened;
        let is_moved = |file: &Sink| file.is_moved(&self.log.kind.path);
        if is_due || self.file.as_ref().is_some_and(is_moved) {
            (self.file, self.torn) = (None, false);
        }
        match self.try_write(out) {
            Ok(()) => {
                self.torn = false;
                self.recover(now);
            }
            Err((what, error)) => {
                self.log.dropped.fetch_add(count, Ordering::Relaxed);
                self.lose(count, what, &error, now);
            }
        }
    }

    /// # Errors
    /// The operation that failed, and its error.
    fn try_write(&mut self, out: &[u8]) -> Result<(), (&'static str, std::io::Error)> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let opened = sink::open(&self.log.kind, &self.log.service);
                none.insert(opened.map_err(|error| ("opened", error))?)
            }
        };
        let file = &mut file.to;
        let started = if self.torn {
            file.write_all(b"\n")
        } else {
            Ok(())
        };
        if let Err(error) = started.and_then(|()| file.write_all(out)) {
            (self.file, self.torn) = (None, true);
            return Err(("written", error));
        }
        Ok(())
    }

    /// Counts lost lines. Logs a warning at once, and then once a minute.
    fn lose(&mut self, count: u64, what: &str, error: &std::io::Error, now: Instant) {
        let first = self.trouble.is_none();
        let trouble = self.trouble.get_or_insert(Trouble {
            since: now,
            logged: now,
            lost: 0,
            lost_in_all: 0,
        });
        trouble.lost += count;
        trouble.lost_in_all += count;
        if !first && now < trouble.logged + COMPLAINT {
            return;
        }
        trouble.logged = now;
        let (path, lost) = (&self.log.kind.path, std::mem::take(&mut trouble.lost));
        tracing::warn!(path, %error, lost, "the access log cannot be {what}; lines are lost");
    }

    /// Logs once that lines are written again.
    fn recover(&mut self, now: Instant) {
        if let Some(trouble) = self.trouble.take() {
            let (path, lost) = (&self.log.kind.path, trouble.lost_in_all);
            let seconds = now.saturating_duration_since(trouble.since).as_secs();
            tracing::warn!(path, lost, seconds, "writing the access log works again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn log() -> Log {
        let text = "{client} {method} {target} {version} {status} {server} {retries} {end}";
        let kind = AccessLog::to("-", LogFormat::Template(text.to_owned()));
        Log::new(&kind, ProxyProtocol::Http, "web", 1)
    }

    fn outcome() -> Outcome<'static> {
        Outcome {
            client: "192.0.2.1:80".parse().unwrap(),
            pool: "p",
            server: "10.0.0.5",
            retries: 2,
            end: *b"sH",
            route: 0,
        }
    }

    #[test]
    fn records_are_formatted_as_written() {
        let log = log();
        let mut note = Note::default();
        note.begin(0);
        note.request([b"GET", b"/x", b"h", b"", b"agent"], "HTTP/2.0");
        note.status = 504;
        log.put(0, 0, &note, &outcome());
        log.put(0, 0, &note, &outcome());
        let (mut spare, mut out) = (Vec::new(), Vec::new());
        assert_eq!(log.lines(&mut spare, &mut out, |_| true), 2);
        let line = "192.0.2.1 GET /x HTTP/2.0 504 10.0.0.5 2 sH\n";
        assert_eq!(String::from_utf8(out).unwrap(), line.repeat(2));
    }

    /// Accepts a limited number of bytes.
    struct Full(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for Full {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let mut inner = self.0.lock().unwrap();
            let taken = bytes.len().min(inner.1);
            if taken == 0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            inner.0.extend_from_slice(&bytes[..taken]);
            inner.1 -= taken;
            Ok(taken)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn full(disk: &Arc<Mutex<(Vec<u8>, usize)>>) -> Sink {
        Sink {
            to: Box::new(Full(Arc::clone(disk))),
            identity: None,
        }
    }

    #[test]
    fn sample_keeps_failures_and_one_of_many() {
        let mut log = log();
        log.kind.sample = 10;
        let mut note = Note::default();
        note.begin(0);
        note.status = 200;
        let normal = Outcome {
            end: *b"--",
            ..outcome()
        };
        (0..30).for_each(|_| log.put(0, 0, &note, &normal));
        (0..5).for_each(|_| log.put(0, 0, &note, &outcome()));
        note.status = 503;
        log.put(0, 0, &note, &normal);
        let count = log.lines(&mut Vec::new(), &mut Vec::new(), |_| true);
        assert_eq!(count, 3 + 5 + 1);
        assert_eq!(log.dropped(), 0, "what is not sampled is not lost");
    }

    #[test]
    fn further_variables_have_the_values_of_the_request() {
        let format = "{request_id} {header.x} {route} {response.y}.".to_owned();
        let kind = AccessLog::to("-", LogFormat::Template(format));
        let log = Log::new(&kind, ProxyProtocol::Http, "web", 1);
        let mut note = Note::default();
        note.begin(0);
        note.more = vec![b"r1".to_vec(), b"a b".to_vec()];
        let outcome = Outcome {
            route: 12,
            ..outcome()
        };
        log.put(0, 0, &note, &outcome);
        let mut out = Vec::new();
        log.lines(&mut Vec::new(), &mut out, |_| true);
        assert_eq!(String::from_utf8(out).unwrap(), "r1 a b 12 .\n");
    }

    #[test]
    fn renamed_file_is_created_again() {
        let path = std::env::temp_dir().join(format!("weir-log-{}", std::process::id()));
        let text = path.to_str().unwrap();
        let moved = path.with_extension("1");
        let mut kind = AccessLog::to(text, LogFormat::Combined);
        kind.sample = 1;
        let log = Log::new(&kind, ProxyProtocol::Http, "web", 1);
        let mut open = Open {
            log: Arc::new(log),
            file: None,
            reopened: REOPEN.load(Ordering::Relaxed),
            torn: false,
            trouble: None,
        };
        let now = Instant::now();
        open.write(b"one\n", 1, now);
        std::fs::rename(&path, &moved).unwrap();
        open.write(b"two\n", 1, now);
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!(
            (read(&moved), read(&path)),
            ("one\n".into(), "two\n".into())
        );
        let _ = (std::fs::remove_file(&path), std::fs::remove_file(&moved));
    }

    #[test]
    fn line_after_full_disk_starts_on_a_new_line() {
        let disk = Arc::new(Mutex::new((Vec::new(), 6)));
        let mut open = Open {
            log: Arc::new(log()),
            file: Some(full(&disk)),
            reopened: REOPEN.load(Ordering::Relaxed),
            torn: false,
            trouble: None,
        };
        let now = Instant::now();
        open.write(b"one\ntwo\n", 2, now);
        assert_eq!(open.log.dropped(), 2);
        disk.lock().unwrap().1 = 100;
        open.file = Some(full(&disk));
        open.write(b"three\n", 1, now);
        open.write(b"four\n", 1, now);
        assert_eq!(disk.lock().unwrap().0, b"one\ntw\nthree\nfour\n");
    }

    #[test]
    fn records_that_do_not_fit_are_counted() {
        let log = log();
        let note = Note::default();
        let noted = || log.noted[0].lock().unwrap().bytes.len();
        while noted() <= ROOM {
            log.put(0, 0, &note, &outcome());
        }
        let before = noted();
        log.put(0, 0, &note, &outcome());
        assert_eq!((log.dropped(), noted()), (1, before));
    }
}
