//! Writes access logs: workers buffer records, and one thread formats and writes them.
//!
//! For a worker, logging a record costs an uncontended lock and a short copy. If the writer is too slow, records are
//! dropped and counted.

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

/// Maximum number of bytes in a worker's buffer.
const BUFFER_MAX_BYTES: usize = 4 << 20;
/// Interval at which the writer writes buffered records.
const WRITE_INTERVAL: Duration = Duration::from_millis(50);

/// Interval between warnings about an access log that cannot be written.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

/// Incremented when all files must be reopened.
static REOPEN_GENERATION: AtomicU32 = AtomicU32::new(0);

/// Makes all logs reopen their files before the next line.
pub fn reopen_logs() {
    REOPEN_GENERATION.fetch_add(1, Ordering::Relaxed);
}

/// The log record of an exchange in progress.
#[derive(Debug, Default)]
pub(crate) struct LogRecord {
    /// Method, target, `Host`, `Referer` and `User-Agent`, concatenated.
    text: Vec<u8>,
    /// End offset of each of these texts in `text`.
    ends: [usize; 5],
    version: &'static str,
    /// When the exchange began, in nanoseconds on the monotonic clock.
    pub(crate) began_ns: u64,
    /// When the current timer was started, in nanoseconds on the monotonic clock.
    pub(crate) timer_started_ns: u64,
    /// Durations in microseconds: request, queue, connect, response and total.
    pub(crate) durations_us: [u64; 5],
    pub(crate) bytes_in: u64,
    pub(crate) bytes_out: u64,
    pub(crate) status: u16,
    /// Values for the format's variables, in the order of [`Log::variables`]; empty = no value.
    pub(crate) values: Vec<Vec<u8>>,
    /// The same for the variables of taps: the variables of [`LogFormat::Json`].
    pub(crate) tap_values: Vec<Vec<u8>>,
}

impl LogRecord {
    /// Starts a new record, and reuses the buffer.
    pub(crate) fn begin(&mut self, now: u64) {
        let mut text = std::mem::take(&mut self.text);
        text.clear();
        *self = Self {
            text,
            began_ns: now,
            timer_started_ns: now,
            ..Self::default()
        };
    }

    /// Sets the request texts.
    pub(crate) fn set_request(&mut self, parts: [&[u8]; 5], version: &'static str) {
        for (end, part) in self.ends.iter_mut().zip(parts) {
            self.text.extend_from_slice(part);
            *end = self.text.len();
        }
        self.version = version;
    }

    fn text(&self, index: usize) -> &[u8] {
        let start = if index == 0 { 0 } else { self.ends[index - 1] };
        &self.text[start..self.ends[index]]
    }
}

/// The fields of a log line that are known only at the end of an exchange.
#[derive(Debug, Clone, Copy)]
pub(crate) struct ExchangeSummary<'a> {
    pub(crate) client: SocketAddr,
    pub(crate) pool: &'a str,
    pub(crate) server: &'a str,
    pub(crate) retries: u32,
    /// Termination flags.
    pub(crate) termination: [u8; 2],
    /// The route's line number in the configuration file; 0 = no route.
    pub(crate) route_line: u32,
}

/// Returns a problem for each access log that cannot be written.
pub(crate) fn problems(desired: &Desired) -> Vec<Problem> {
    let logs = desired.proxies.iter();
    let logs = logs.filter_map(|proxy| Some((proxy, proxy.access_log.as_ref()?)));
    let problems = logs.filter_map(|(proxy, log)| {
        let (cause, fix) = match log.target() {
            LogTarget::File(file) => (
                unusable_directory(Path::new(file))?,
                "create the directory with write permission for the daemon's user",
            ),
            LogTarget::Syslog(path) | LogTarget::Journal(path) => (
                missing_socket(Path::new(path))?,
                "start the log daemon, or set `access_log` to a file",
            ),
            LogTarget::Stdout => return None,
        };
        Some(Problem {
            fatal: false,
            message: format!("service {}: {} cannot be written", proxy.name, log.path),
            cause: format!("{cause}; lines would be dropped and counted"),
            fix: fix.to_owned(),
            source: proxy.source,
        })
    });
    problems.collect()
}

/// Returns why a log file cannot be created at this path; `None` = no problem was found.
fn unusable_directory(path: &Path) -> Option<String> {
    let directory = path.parent()?;
    let directory = if directory.as_os_str().is_empty() {
        Path::new(".")
    } else {
        directory
    };
    match directory.metadata() {
        Ok(found) if !found.is_dir() => Some(format!("{} is not a directory", directory.display())),
        Ok(_) if path.is_dir() => Some("the path is a directory".to_owned()),
        Ok(_) => None,
        Err(error) => Some(format!("{}: {error}", directory.display())),
    }
}

/// Returns why messages cannot be sent to a log daemon's socket. The daemon recreates the socket when it restarts.
fn missing_socket(path: &Path) -> Option<String> {
    let error = path.metadata().err()?;
    Some(format!("{}: {error}", path.display()))
}

/// One worker's records.
#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    /// Number of exchanges that were considered for sampling.
    considered: u32,
}

/// One service's access log.
#[derive(Debug)]
pub(crate) struct Log {
    pub(crate) kind: AccessLog,
    pub(crate) protocol: ProxyProtocol,
    service: String,
    /// One buffer for each worker.
    buffers: Box<[Mutex<Buffer>]>,
    /// Names of the format's variables that are not fields of a record.
    pub(crate) variables: Vec<String>,
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
            variables: kind
                .format
                .variables()
                .into_iter()
                .map(str::to_owned)
                .collect(),
            protocol,
            service: service.to_owned(),
            buffers: (0..workers).map(|_| Mutex::default()).collect(),
            dropped: AtomicU64::new(0),
            reopen: AtomicBool::new(false),
        }
    }

    /// Returns the number of lines that were dropped because the writer was too slow or the log could not be written.
    pub(crate) fn dropped_lines(&self) -> u64 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// Makes the writer reopen the file before the next line, because log rotation may have renamed it.
    pub(crate) fn reopen(&self) {
        self.reopen.store(true, Ordering::Relaxed);
    }

    /// Adds a finished record, unless sampling skips it. If the worker's buffer is full, drops and counts the record.
    /// `time_ms` is the time since 1970 in milliseconds; `values` is in the order of [`Log::variables`].
    pub(crate) fn put(
        &self,
        worker: usize,
        time_ms: u64,
        record: &LogRecord,
        values: &[Vec<u8>],
        summary: &ExchangeSummary<'_>,
    ) {
        // The tap may have been opened when there were fewer workers.
        let Some(buffer) = self.buffers.get(worker) else {
            return;
        };
        let mut buffer = buffer.lock().unwrap_or_else(PoisonError::into_inner);
        let is_failure = record.status >= 500 || summary.termination != *b"--";
        if self.kind.sample > 1 && !is_failure {
            let turn = buffer.considered % self.kind.sample;
            buffer.considered = buffer.considered.wrapping_add(1);
            if turn != 0 {
                return;
            }
        }
        let out = &mut buffer.bytes;
        if out.len() > BUFFER_MAX_BYTES {
            self.dropped.fetch_add(1, Ordering::Relaxed);
            return;
        }
        let [request, queue, connect, response, total] = record.durations_us;
        let numbers = [
            time_ms,
            record.bytes_in,
            record.bytes_out,
            request,
            queue,
            connect,
            response,
            total,
            u64::from(record.status) << 32 | u64::from(summary.retries),
            u64::from(u16::from_be_bytes(summary.termination)) << 16
                | u64::from(summary.client.port()),
        ];
        out.extend_from_slice(numbers.map(u64::to_le_bytes).as_flattened());
        let address = match summary.client.ip() {
            std::net::IpAddr::V4(v4) => v4.to_ipv6_mapped(),
            std::net::IpAddr::V6(v6) => v6,
        };
        out.extend_from_slice(&address.octets());
        let names = [
            summary.pool.as_bytes(),
            summary.server.as_bytes(),
            record.version.as_bytes(),
        ];
        let texts = (0..5).map(|index| record.text(index));
        for part in names.into_iter().chain(texts) {
            // The texts always fit: a head is at most 64 KiB long.
            let len = u32::try_from(part.len()).unwrap_or(0);
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(part);
        }
        let has_route = summary.route_line > 0 && self.variables.iter().any(|name| name == "route");
        let route = has_route.then(|| summary.route_line.to_string());
        for (index, name) in self.variables.iter().enumerate() {
            let value = match name.as_str() {
                "route" => route.as_deref().unwrap_or_default().as_bytes(),
                _ => values.get(index).map_or(&b""[..], Vec::as_slice),
            };
            let len = u32::try_from(value.len()).unwrap_or(0);
            out.extend_from_slice(&len.to_le_bytes());
            out.extend_from_slice(value);
        }
    }

    /// Takes the buffered records, and formats those for which `is_selected` returns true. Returns their number.
    pub(crate) fn format_lines(
        &self,
        spare: &mut Vec<u8>,
        out: &mut Vec<u8>,
        is_selected: impl Fn(&Record<'_>) -> bool,
    ) -> u64 {
        let mut count = 0;
        for buffer in &self.buffers {
            spare.clear();
            std::mem::swap(
                spare,
                &mut buffer.lock().unwrap_or_else(PoisonError::into_inner).bytes,
            );
            let mut rest = spare.as_slice();
            while let Some(line) = read_record(&mut rest, &self.service, &self.variables) {
                if !is_selected(&line) {
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

fn read_record<'a>(
    rest: &mut &'a [u8],
    service: &'a str,
    variables: &'a [String],
) -> Option<Record<'a>> {
    fn read_number(rest: &mut &[u8]) -> Option<u64> {
        let (bytes, after) = rest.split_first_chunk::<8>()?;
        *rest = after;
        Some(u64::from_le_bytes(*bytes))
    }
    fn read_part<'a>(rest: &mut &'a [u8]) -> Option<&'a [u8]> {
        let (bytes, after) = rest.split_first_chunk::<4>()?;
        let (part, after) = after.split_at_checked(u32::from_le_bytes(*bytes) as usize)?;
        *rest = after;
        Some(part)
    }
    let (time_ms, bytes_in, bytes_out) =
        (read_number(rest)?, read_number(rest)?, read_number(rest)?);
    let mut durations_us = [0; 5];
    for us in &mut durations_us {
        *us = read_number(rest)?;
    }
    let (status, end) = (read_number(rest)?, read_number(rest)?);
    let (address, after) = rest.split_first_chunk::<16>()?;
    *rest = after;
    let address = std::net::Ipv6Addr::from(*address).to_canonical();
    let text = |bytes: &'a [u8]| std::str::from_utf8(bytes).unwrap_or_default();
    let (pool, server) = (text(read_part(rest)?), text(read_part(rest)?));
    let version = text(read_part(rest)?);
    let mut record = Record {
        time_ms,
        client: SocketAddr::new(address, end as u16),
        service,
        pool,
        server,
        method: read_part(rest)?,
        target: read_part(rest)?,
        version,
        host: read_part(rest)?,
        referer: read_part(rest)?,
        agent: read_part(rest)?,
        status: (status >> 32) as u16,
        bytes_in,
        bytes_out,
        durations_us,
        retries: status as u32,
        termination: ((end >> 16) as u16).to_be_bytes(),
        variables: Vec::with_capacity(variables.len()),
    };
    for name in variables {
        record.variables.push((name.as_str(), read_part(rest)?));
    }
    Some(record)
}

/// The thread that writes all access logs.
#[derive(Debug)]
pub(crate) struct Writer {
    logs: Arc<Mutex<Vec<Weak<Log>>>>,
    stop: Arc<AtomicBool>,
    thread: JoinHandle<()>,
}

/// A log and its open file.
struct OpenLog {
    log: Arc<Log>,
    file: Option<Sink>,
    /// The value of [`REOPEN_GENERATION`] at the last write.
    reopen_generation: u32,
    /// Whether the last write may have ended in the middle of a line.
    ends_within_line: bool,
    outage: Option<Outage>,
}

/// A period during which lines cannot be written.
#[derive(Debug, Clone, Copy)]
struct Outage {
    since: Instant,
    /// When a warning was last logged, and the number of lines lost since then and in total.
    warned_at: Instant,
    lost_since_warning: u64,
    lost_total: u64,
}

impl Writer {
    /// Starts the thread.
    ///
    /// # Errors
    /// Fails if the thread cannot be created.
    pub(crate) fn start() -> std::io::Result<Self> {
        let (logs, stop) = (
            Arc::<Mutex<Vec<Weak<Log>>>>::default(),
            Arc::new(AtomicBool::new(false)),
        );
        let (thread_logs, thread_stop) = (Arc::clone(&logs), Arc::clone(&stop));
        let thread = std::thread::Builder::new()
            .name("weir-proxy-log".to_owned())
            .spawn(move || run(&thread_logs, &thread_stop))?;
        Ok(Self { logs, stop, thread })
    }

    /// Adds a log. The thread writes its records until all other references to the log are dropped.
    pub(crate) fn add(&self, log: &Arc<Log>) {
        let mut logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.retain(|weak| weak.strong_count() > 0);
        if !logs.iter().any(|weak| weak.as_ptr() == Arc::as_ptr(log)) {
            logs.push(Arc::downgrade(log));
        }
    }

    /// Writes all buffered records and stops the thread.
    pub(crate) fn stop(self) {
        self.stop.store(true, Ordering::Release);
        self.thread.thread().unpark();
        if self.thread.join().is_err() {
            tracing::error!("the access log writer panicked");
        }
    }
}

fn run(logs: &Mutex<Vec<Weak<Log>>>, stop: &AtomicBool) {
    let mut open: Vec<OpenLog> = Vec::new();
    let (mut spare, mut out) = (Vec::new(), Vec::new());
    loop {
        let is_last_round = stop.load(Ordering::Acquire);
        let open_logs: Vec<Arc<Log>> = {
            let logs = logs.lock().unwrap_or_else(PoisonError::into_inner);
            logs.iter().filter_map(Weak::upgrade).collect()
        };
        for log in open_logs {
            if !open.iter().any(|entry| Arc::ptr_eq(&entry.log, &log)) {
                open.push(OpenLog {
                    log,
                    file: None,
                    reopen_generation: REOPEN_GENERATION.load(Ordering::Relaxed),
                    ends_within_line: false,
                    outage: None,
                });
            }
        }
        for entry in &mut open {
            out.clear();
            let count = entry.log.format_lines(&mut spare, &mut out, |_| true);
            if count > 0 {
                entry.write(&out, count, Instant::now());
            }
        }
        // There are no other references: the service was removed, and all its records are written.
        open.retain(|entry| Arc::strong_count(&entry.log) > 1);
        if is_last_round {
            return;
        }
        std::thread::park_timeout(WRITE_INTERVAL);
    }
}

impl OpenLog {
    fn write(&mut self, out: &[u8], count: u64, now: Instant) {
        let reopen_generation = REOPEN_GENERATION.load(Ordering::Relaxed);
        let is_due = self.log.reopen.swap(false, Ordering::Relaxed)
            || reopen_generation != self.reopen_generation;
        self.reopen_generation = reopen_generation;
        let is_moved = |file: &Sink| file.is_moved(&self.log.kind.path);
        if is_due || self.file.as_ref().is_some_and(is_moved) {
            (self.file, self.ends_within_line) = (None, false);
        }
        match self.try_write(out) {
            Ok(()) => {
                self.ends_within_line = false;
                self.recover(now);
            }
            Err((operation, error)) => {
                self.log.dropped.fetch_add(count, Ordering::Relaxed);
                self.count_lost(count, operation, &error, now);
            }
        }
    }

    /// Writes to the file. Opens it first if necessary.
    ///
    /// # Errors
    /// Returns the failed operation (`opened` or `written`) and the error.
    fn try_write(&mut self, out: &[u8]) -> Result<(), (&'static str, std::io::Error)> {
        let file = match &mut self.file {
            Some(file) => file,
            none => {
                let opened = sink::open(&self.log.kind, &self.log.service);
                none.insert(opened.map_err(|error| ("opened", error))?)
            }
        };
        let file = &mut file.writer;
        let started = if self.ends_within_line {
            file.write_all(b"\n")
        } else {
            Ok(())
        };
        if let Err(error) = started.and_then(|()| file.write_all(out)) {
            (self.file, self.ends_within_line) = (None, true);
            return Err(("written", error));
        }
        Ok(())
    }

    /// Counts lost lines. Logs a warning immediately, then at intervals of [`WARNING_INTERVAL`].
    fn count_lost(&mut self, count: u64, operation: &str, error: &std::io::Error, now: Instant) {
        let first = self.outage.is_none();
        let outage = self.outage.get_or_insert(Outage {
            since: now,
            warned_at: now,
            lost_since_warning: 0,
            lost_total: 0,
        });
        outage.lost_since_warning += count;
        outage.lost_total += count;
        if !first && now < outage.warned_at + WARNING_INTERVAL {
            return;
        }
        outage.warned_at = now;
        let (path, lost) = (
            &self.log.kind.path,
            std::mem::take(&mut outage.lost_since_warning),
        );
        tracing::warn!(path, %error, lost, "the access log cannot be {operation}; lines are lost");
    }

    /// Logs once that lines can be written again.
    fn recover(&mut self, now: Instant) {
        if let Some(outage) = self.outage.take() {
            let (path, lost) = (&self.log.kind.path, outage.lost_total);
            let seconds = now.saturating_duration_since(outage.since).as_secs();
            tracing::warn!(path, lost, seconds, "the access log can be written again");
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Write;

    use super::*;

    fn log() -> Log {
        let text = "{client} {method} {target} {version} {status} {server} {retries} {end}";
        let kind = AccessLog::new("-", LogFormat::Template(text.to_owned()));
        Log::new(&kind, ProxyProtocol::Http, "web", 1)
    }

    fn summary() -> ExchangeSummary<'static> {
        ExchangeSummary {
            client: "192.0.2.1:80".parse().unwrap(),
            pool: "p",
            server: "10.0.0.5",
            retries: 2,
            termination: *b"sH",
            route_line: 0,
        }
    }

    #[test]
    fn missing_log_daemon_socket_is_reported() {
        let socket = std::env::temp_dir().join(format!("weir-log-socket-{}", std::process::id()));
        let cause = missing_socket(&socket).unwrap();
        assert!(cause.contains("No such file"), "{cause}");
        let _listener = std::os::unix::net::UnixDatagram::bind(&socket).unwrap();
        assert_eq!(missing_socket(&socket), None);
        std::fs::remove_file(&socket).unwrap();
    }

    #[test]
    fn records_are_formatted_by_template() {
        let log = log();
        let mut record = LogRecord::default();
        record.begin(0);
        record.set_request([b"GET", b"/x", b"h", b"", b"agent"], "HTTP/2.0");
        record.status = 504;
        log.put(0, 0, &record, &record.values, &summary());
        log.put(0, 0, &record, &record.values, &summary());
        let (mut spare, mut out) = (Vec::new(), Vec::new());
        assert_eq!(log.format_lines(&mut spare, &mut out, |_| true), 2);
        let line = "192.0.2.1 GET /x HTTP/2.0 504 10.0.0.5 2 sH\n";
        assert_eq!(String::from_utf8(out).unwrap(), line.repeat(2));
    }

    /// A disk with limited space.
    struct LimitedDisk(Arc<Mutex<(Vec<u8>, usize)>>);

    impl Write for LimitedDisk {
        fn write(&mut self, bytes: &[u8]) -> std::io::Result<usize> {
            let mut inner = self.0.lock().unwrap();
            let written_len = bytes.len().min(inner.1);
            if written_len == 0 {
                return Err(std::io::ErrorKind::StorageFull.into());
            }
            inner.0.extend_from_slice(&bytes[..written_len]);
            inner.1 -= written_len;
            Ok(written_len)
        }

        fn flush(&mut self) -> std::io::Result<()> {
            Ok(())
        }
    }

    fn limited_sink(disk: &Arc<Mutex<(Vec<u8>, usize)>>) -> Sink {
        Sink {
            writer: Box::new(LimitedDisk(Arc::clone(disk))),
            identity: None,
        }
    }

    #[test]
    fn sampling_keeps_all_failures_and_a_share_of_successes() {
        let mut log = log();
        log.kind.sample = 10;
        let mut record = LogRecord::default();
        record.begin(0);
        record.status = 200;
        let normal = ExchangeSummary {
            termination: *b"--",
            ..summary()
        };
        (0..30).for_each(|_| log.put(0, 0, &record, &record.values, &normal));
        (0..5).for_each(|_| log.put(0, 0, &record, &record.values, &summary()));
        record.status = 503;
        log.put(0, 0, &record, &record.values, &normal);
        let count = log.format_lines(&mut Vec::new(), &mut Vec::new(), |_| true);
        assert_eq!(count, 3 + 5 + 1);
        assert_eq!(
            log.dropped_lines(),
            0,
            "records that are not sampled do not count as dropped"
        );
    }

    #[test]
    fn format_variables_have_values_of_request() {
        let format = "{request_id} {header.x} {route} {response.y}.".to_owned();
        let kind = AccessLog::new("-", LogFormat::Template(format));
        let log = Log::new(&kind, ProxyProtocol::Http, "web", 1);
        let mut record = LogRecord::default();
        record.begin(0);
        record.values = vec![b"r1".to_vec(), b"a b".to_vec()];
        let summary = ExchangeSummary {
            route_line: 12,
            ..summary()
        };
        log.put(0, 0, &record, &record.values, &summary);
        let mut out = Vec::new();
        log.format_lines(&mut Vec::new(), &mut out, |_| true);
        assert_eq!(String::from_utf8(out).unwrap(), "r1 a b 12 .\n");
    }

    #[test]
    fn renamed_log_file_is_recreated() {
        let path = std::env::temp_dir().join(format!("weir-log-{}", std::process::id()));
        let text = path.to_str().unwrap();
        let moved_path = path.with_extension("1");
        let mut kind = AccessLog::new(text, LogFormat::Combined);
        kind.sample = 1;
        let log = Log::new(&kind, ProxyProtocol::Http, "web", 1);
        let mut open = OpenLog {
            log: Arc::new(log),
            file: None,
            reopen_generation: REOPEN_GENERATION.load(Ordering::Relaxed),
            ends_within_line: false,
            outage: None,
        };
        let now = Instant::now();
        open.write(b"one\n", 1, now);
        std::fs::rename(&path, &moved_path).unwrap();
        open.write(b"two\n", 1, now);
        let read = |path: &Path| std::fs::read_to_string(path).unwrap();
        assert_eq!(
            (read(&moved_path), read(&path)),
            ("one\n".into(), "two\n".into())
        );
        let _ = (
            std::fs::remove_file(&path),
            std::fs::remove_file(&moved_path),
        );
    }

    #[test]
    fn line_after_partial_write_starts_on_new_line() {
        let disk = Arc::new(Mutex::new((Vec::new(), 6)));
        let mut open = OpenLog {
            log: Arc::new(log()),
            file: Some(limited_sink(&disk)),
            reopen_generation: REOPEN_GENERATION.load(Ordering::Relaxed),
            ends_within_line: false,
            outage: None,
        };
        let now = Instant::now();
        open.write(b"one\ntwo\n", 2, now);
        assert_eq!(open.log.dropped_lines(), 2);
        disk.lock().unwrap().1 = 100;
        open.file = Some(limited_sink(&disk));
        open.write(b"three\n", 1, now);
        open.write(b"four\n", 1, now);
        assert_eq!(disk.lock().unwrap().0, b"one\ntw\nthree\nfour\n");
    }

    #[test]
    fn records_beyond_buffer_limit_are_dropped_and_counted() {
        let log = log();
        let record = LogRecord::default();
        let buffered_bytes = || log.buffers[0].lock().unwrap().bytes.len();
        while buffered_bytes() <= BUFFER_MAX_BYTES {
            log.put(0, 0, &record, &record.values, &summary());
        }
        let before = buffered_bytes();
        log.put(0, 0, &record, &record.values, &summary());
        assert_eq!((log.dropped_lines(), buffered_bytes()), (1, before));
    }
}
