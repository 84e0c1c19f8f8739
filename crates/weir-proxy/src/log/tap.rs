//! Streams a service's exchanges (`weir tap`): workers record them, and an API client reads them.
//!
//! A tap is a log whose records are read by an API client instead of the log writer. Without taps, the cost for each
//! exchange is one atomic load.

use std::collections::HashMap;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, PoisonError, Weak};

use weir_http::access::Record;
use weir_model::{AccessLog, LogFormat, ProxyProtocol};

use super::{ExchangeSummary, Log, LogRecord};

/// Maximum number of concurrent taps on a service.
pub const MAX_TAPS: usize = 4;

/// Line format of a text tap.
const TEXT_FORMAT: &str = "{time} {client}:{port} {method} {host} {target} {status} {pool}/{server} {total_ms} ms \
                    {bytes_in}/{bytes_out} {end}";

/// The taps on all services, by service name. Removed services have no strong reference.
static SERVICES: Mutex<Option<HashMap<String, Weak<Taps>>>> = Mutex::new(None);

/// The taps on a service.
#[derive(Debug, Default)]
pub(crate) struct Taps {
    active: AtomicUsize,
    logs: Mutex<Vec<Weak<Log>>>,
}

impl Taps {
    /// Returns the taps on the service with this name.
    pub(crate) fn for_service(service: &str) -> Arc<Self> {
        let mut services = SERVICES.lock().unwrap_or_else(PoisonError::into_inner);
        let services = services.get_or_insert_default();
        services.retain(|_, taps| taps.strong_count() > 0);
        if let Some(taps) = services.get(service).and_then(Weak::upgrade) {
            return taps;
        }
        let taps = Arc::new(Self::default());
        services.insert(service.to_owned(), Arc::downgrade(&taps));
        taps
    }

    /// Returns whether exchanges must be recorded.
    pub(crate) fn is_active(&self) -> bool {
        self.active.load(Ordering::Relaxed) > 0
    }

    /// Adds a finished record to every tap.
    pub(crate) fn put(
        &self,
        worker: usize,
        time_ms: u64,
        record: &LogRecord,
        summary: &ExchangeSummary<'_>,
    ) {
        let logs = self.logs.lock().unwrap_or_else(PoisonError::into_inner);
        for log in logs.iter().filter_map(Weak::upgrade) {
            log.put(worker, time_ms, record, &record.tap_values, summary);
        }
    }
}

/// Why a service cannot be tapped.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum TapError {
    /// There is no proxy service with this name.
    #[error("proxy service not found; {}", list_names(.existing))]
    UnknownService {
        /// The names of the proxy services, sorted.
        existing: Vec<String>,
    },
    /// The service has the maximum number of taps.
    #[error("this service already has {MAX_TAPS} taps")]
    TooMany,
}

/// Maximum number of services that an error message lists.
const MAX_LISTED: usize = 8;

fn list_names(names: &[String]) -> String {
    let first = &names[..names.len().min(MAX_LISTED)];
    match names.len().saturating_sub(MAX_LISTED) {
        _ if names.is_empty() => "no proxy services are configured".to_owned(),
        0 => format!("proxy services: {}", first.join(", ")),
        more => format!("proxy services: {} and {more} more", first.join(", ")),
    }
}

/// Returns the names of the services that can be tapped, sorted.
fn service_names() -> Vec<String> {
    let services = SERVICES.lock().unwrap_or_else(PoisonError::into_inner);
    let services = services.iter().flatten();
    let existing = services.filter(|(_, taps)| taps.strong_count() > 0);
    let mut names: Vec<String> = existing.map(|(name, _)| name.clone()).collect();
    names.sort_unstable();
    names
}

/// A condition on the exchanges that a tap shows.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Match {
    name: String,
    pattern: String,
}

impl Match {
    /// Parses `NAME=PATTERN`. NAME is a variable of the access log, `path` or `query`; `*` in PATTERN matches any
    /// characters.
    ///
    /// # Errors
    /// Returns an error message if the text has no `=` or the name is unknown.
    pub fn parse(text: &str) -> Result<Self, String> {
        let Some((name, pattern)) = text.split_once('=') else {
            return Err(format!(
                "`{text}`: expected NAME=PATTERN, such as status=5*"
            ));
        };
        if !LogFormat::NAMES.contains(&name) && !matches!(name, "path" | "query") {
            let names = LogFormat::NAMES.join(" ");
            return Err(format!(
                "unknown variable `{name}`; use one of {names} path query"
            ));
        }
        Ok(Self {
            name: name.to_owned(),
            pattern: pattern.to_owned(),
        })
    }

    fn matches(&self, record: &Record<'_>) -> bool {
        record.matches(&self.name, self.pattern.as_bytes())
    }
}

/// An open tap. Dropping it closes the tap.
#[derive(Debug)]
pub struct Tap {
    taps: Weak<Taps>,
    log: Arc<Log>,
    matches: Vec<Match>,
    spare: Vec<u8>,
    reported: u64,
}

impl Tap {
    /// Opens a tap on a service. Lines are JSON objects if `json` is true, and text otherwise.
    ///
    /// # Errors
    /// See [`TapError`].
    pub fn open(service: &str, json: bool, matches: Vec<Match>) -> Result<Self, TapError> {
        let taps = {
            let services = SERVICES.lock().unwrap_or_else(PoisonError::into_inner);
            let taps = services.as_ref().and_then(|all| all.get(service));
            taps.and_then(Weak::upgrade)
        };
        let taps = taps.ok_or_else(|| TapError::UnknownService {
            existing: service_names(),
        })?;
        let format = if json {
            LogFormat::Json
        } else {
            LogFormat::Template(TEXT_FORMAT.to_owned())
        };
        let kind = AccessLog::new("-", format);
        let workers = std::thread::available_parallelism().map_or(1, usize::from);
        // `LogRecord::tap_values` has the variables of this format.
        let log = Arc::new(Log::new(
            &kind,
            ProxyProtocol::Http,
            service,
            workers.max(1),
        ));
        let mut logs = taps.logs.lock().unwrap_or_else(PoisonError::into_inner);
        logs.retain(|log| log.strong_count() > 0);
        if logs.len() >= MAX_TAPS {
            return Err(TapError::TooMany);
        }
        logs.push(Arc::downgrade(&log));
        taps.active.fetch_add(1, Ordering::Relaxed);
        drop(logs);
        Ok(Self {
            taps: Arc::downgrade(&taps),
            log,
            matches,
            spare: Vec::new(),
            reported: 0,
        })
    }

    /// Appends the lines since the last call to `out`, and a comment if lines were lost because the reader was too
    /// slow. Returns false if the service was removed.
    pub fn read(&mut self, out: &mut Vec<u8>) -> bool {
        let matches = &self.matches;
        let is_shown =
            |record: &Record<'_>| matches.iter().all(|condition| condition.matches(record));
        self.log.format_lines(&mut self.spare, out, is_shown);
        let dropped = self.log.dropped_lines();
        if dropped > self.reported {
            let lost = dropped - self.reported;
            out.extend_from_slice(format!("# {lost} lines lost\n").as_bytes());
            self.reported = dropped;
        }
        self.taps.strong_count() > 0
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        if let Some(taps) = self.taps.upgrade() {
            taps.active.fetch_sub(1, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn summary() -> ExchangeSummary<'static> {
        ExchangeSummary {
            client: "192.0.2.1:80".parse().unwrap(),
            pool: "p",
            server: "s",
            retries: 0,
            termination: *b"--",
            route_line: 0,
        }
    }

    fn put(taps: &Taps, status: u16) {
        let mut record = LogRecord::default();
        record.begin(0);
        record.set_request([b"GET", b"/x", b"h", b"", b""], "HTTP/1.1");
        record.status = status;
        taps.put(0, 0, &record, &summary());
    }

    #[test]
    fn tap_shows_matching_exchanges_until_it_is_closed() {
        let taps = Taps::for_service("tapped");
        assert!(!taps.is_active());
        let condition = Match::parse("status=5*").unwrap();
        let mut tap = Tap::open("tapped", false, vec![condition]).unwrap();
        assert!(taps.is_active());
        put(&taps, 200);
        put(&taps, 503);
        let mut out = Vec::new();
        assert!(tap.read(&mut out));
        let text = String::from_utf8(out).unwrap();
        assert_eq!(text.lines().count(), 1, "{text}");
        assert!(text.contains(" 192.0.2.1:80 GET h /x 503 p/s "), "{text}");
        drop(tap);
        assert!(!taps.is_active());
    }

    #[test]
    fn tap_selects_by_path_and_query() {
        let taps = Taps::for_service("parts");
        let is_shown = |conditions: &[&str], target: &[u8]| {
            let matches = conditions
                .iter()
                .map(|condition| Match::parse(condition).unwrap());
            let mut tap = Tap::open("parts", false, matches.collect()).unwrap();
            let mut record = LogRecord::default();
            record.begin(0);
            record.set_request([b"GET", target, b"h", b"", b""], "HTTP/1.1");
            taps.put(0, 0, &record, &summary());
            let mut out = Vec::new();
            tap.read(&mut out);
            !out.is_empty()
        };
        assert!(is_shown(&["path=/a", "query=b=*"], b"/a?b=1"));
        assert!(!is_shown(&["path=/a"], b"/ab"));
        assert!(!is_shown(&["path=/a", "query=c*"], b"/a?b=1"));
        assert!(is_shown(&["path=/a", "query="], b"/a"));
    }

    #[test]
    fn too_many_taps_and_unknown_names_are_rejected() {
        let _taps = Taps::for_service("limited");
        let open = || Tap::open("limited", true, Vec::new());
        let taps: Vec<_> = (0..MAX_TAPS).map(|_| open().unwrap()).collect();
        assert_eq!(open().unwrap_err(), TapError::TooMany);
        drop(taps);
        assert!(open().is_ok());
        let unknown = Tap::open("nothing", true, Vec::new()).unwrap_err();
        let TapError::UnknownService { existing } = &unknown else {
            panic!("{unknown}");
        };
        assert!(existing.contains(&"limited".to_owned()), "{unknown}");
        for invalid in ["status", "stat=5*"] {
            assert!(Match::parse(invalid).is_err());
        }
    }

    #[test]
    fn number_of_lost_lines_is_reported_to_slow_reader() {
        let taps = Taps::for_service("slow");
        let mut tap = Tap::open("slow", false, Vec::new()).unwrap();
        for _ in 0..100_000 {
            put(&taps, 200);
        }
        let mut out = Vec::new();
        tap.read(&mut out);
        let text = String::from_utf8(out).unwrap();
        let last = text.lines().last().unwrap();
        assert!(
            last.starts_with("# ") && last.ends_with(" lines lost"),
            "{last}"
        );
    }
}
