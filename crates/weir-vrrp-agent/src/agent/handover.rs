//! Passes the state of virtual routers from one agent to the next.
//!
//! The state is when each virtual router was last advertised as active, when it entered its state, how often it became
//! active, whether it is released, and when the first agent started. The keeper reads the shortest interval of an
//! active router ([`active_interval`]).
//!
//! The state is an in-memory file that the keeper keeps open and passes to each agent as standard output. It is a list
//! of 16-byte slots: a hash of a key, and a value. An agent ignores keys that it does not know. A slot is written with
//! a single system call, so that an agent that is killed leaves no partial slot.
//!
//! | key | value |
//! |---|---|
//! | name of a virtual router | time of the last advertisement, or 0 while the router is not active |
//! | name and [`RELEASED`] | 1; the slot exists while the router is released |
//! | name, [`SINCE`] and a state | time at which the router entered this state, which is its current state |
//! | name and [`TAKEOVERS`] | number of times the router became active |
//! | [`ACTIVE_INTERVAL`] | shortest advertisement interval of an active router; no slot if none is active |
//! | [`FIRST_START`] | time at which the first agent started |
//! | [`STOPPED`] | 1 if the virtual routers that an agent has recorded as active are no longer active |
//!
//! The slots of the first kind are at the beginning, in the order of the configuration. Times are from
//! `CLOCK_BOOTTIME`, and times and intervals are in nanoseconds. Only the time at which a state was entered is
//! Unix time, in milliseconds.

use std::io;
use std::time::{Duration, SystemTime};

use weir_model::VirtualRouter;
use weir_vrrp::State;

const SLOT_BYTES: u64 = 16;
/// Suffix of a name; the NUL byte distinguishes the key from other names.
const RELEASED: &str = "\0released";
const SINCE: &str = "\0since ";
const TAKEOVERS: &str = "\0takeovers";
const ACTIVE_INTERVAL: &str = "\0active interval";
const FIRST_START: &str = "\0first start";
const STOPPED: &str = "\0stopped";

/// State of a virtual router for the next agent.
#[derive(Debug)]
pub(super) struct RecordedRouter<'a> {
    pub(super) name: &'a str,
    /// When the virtual router was last advertised; `None` = it is not active.
    pub(super) last_sent: Option<Duration>,
    pub(super) is_released: bool,
    /// The state, and when it was entered.
    pub(super) state: State,
    pub(super) since: SystemTime,
    pub(super) takeovers: u64,
    /// The advertisement interval.
    pub(super) interval: Duration,
}

#[derive(Debug)]
pub(super) struct Handover {
    /// The file's content when this agent last read it.
    previous: Vec<u8>,
    is_first: bool,
    /// When the first agent started.
    first_start: Duration,
}

/// Returns the FNV-1a hash of a key, which is the same in every build.
fn hash(key: &str) -> u64 {
    key.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn released_key(name: &str) -> String {
    format!("{name}{RELEASED}")
}

fn takeovers_key(name: &str) -> String {
    format!("{name}{TAKEOVERS}")
}

fn since_key(name: &str, state: State) -> String {
    format!("{name}{SINCE}{}", state.as_str())
}

/// Returns Unix time in milliseconds.
pub(super) fn unix_milliseconds(time: SystemTime) -> u64 {
    let time = time.duration_since(SystemTime::UNIX_EPOCH);
    u64::try_from(time.unwrap_or_default().as_millis()).unwrap_or(u64::MAX)
}

fn nanoseconds(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

fn slot(key: &str, value: u64) -> [u8; 16] {
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&hash(key).to_le_bytes());
    bytes[8..].copy_from_slice(&value.to_le_bytes());
    bytes
}

fn last_sent_slot(name: &str, last_sent: Option<Duration>) -> [u8; 16] {
    slot(name, last_sent.map_or(0, nanoseconds))
}

/// Returns the value of a key; `None` if there is no slot or the value is 0.
fn find(content: &[u8], key: &str) -> Option<u64> {
    let slots = content.chunks_exact(16);
    let read_u64 = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |value, byte| (value << 8) | u64::from(*byte))
    };
    let mut matching = slots.filter(|slot| read_u64(&slot[..8]) == hash(key));
    let value = matching.next().map(|slot| read_u64(&slot[8..]))?;
    (value > 0).then_some(value)
}

/// Returns the shortest advertisement interval of a virtual router that is active, from the content of a state file;
/// `None` if none is active, or the agent's version does not record it.
pub fn active_interval(content: &[u8]) -> Option<Duration> {
    let interval = find(content, ACTIVE_INTERVAL)?;
    (!is_stopped(content)).then_some(Duration::from_nanos(interval))
}

/// Changes the content of a state file so that the next agent continues releases, start delays and counters, but no
/// state of a virtual router. Call this function after the addresses of active virtual routers have been removed.
pub fn stop_routers(content: &mut Vec<u8>) {
    content.extend(slot(STOPPED, 1));
}

fn is_stopped(content: &[u8]) -> bool {
    find(content, STOPPED).is_some()
}

impl Handover {
    /// Reads the previous agent's state, which is empty if standard output is not a state file.
    pub(super) fn open(now: Duration) -> Self {
        Self::new(weir_sys::read_stdout_file().unwrap_or_default(), now)
    }

    fn new(previous: Vec<u8>, now: Duration) -> Self {
        let first_start = find(&previous, FIRST_START).map(Duration::from_nanos);
        Self {
            first_start: first_start.unwrap_or(now),
            previous,
            is_first: true,
        }
    }

    /// Reads the previous agent's state again, because that agent may still be running.
    pub(super) fn read_again(&mut self) {
        self.previous = weir_sys::read_stdout_file().unwrap_or_default();
    }

    /// Returns whether [`Self::take_is_first`] has not been called yet.
    pub(super) const fn is_first(&self) -> bool {
        self.is_first
    }

    /// Returns true on the first call.
    pub(super) const fn take_is_first(&mut self) -> bool {
        std::mem::replace(&mut self.is_first, false)
    }

    /// Returns when the previous agent last advertised a virtual router as active; `None` if it was not active.
    pub(super) fn last_sent(&self, name: &str) -> Option<Duration> {
        let last_sent = find(&self.previous, name)?;
        (!is_stopped(&self.previous)).then_some(Duration::from_nanos(last_sent))
    }

    /// Returns whether a virtual router was released when this agent started.
    pub(super) fn was_released(&self, name: &str) -> bool {
        find(&self.previous, &released_key(name)).is_some()
    }

    /// Returns a virtual router's state when this agent started, and when that state was entered; `None` = unknown.
    pub(super) fn state_since(&self, name: &str) -> Option<(State, SystemTime)> {
        if is_stopped(&self.previous) {
            return None;
        }
        [State::Backup, State::Active, State::Fault]
            .into_iter()
            .find_map(|state| {
                let since = Duration::from_millis(find(&self.previous, &since_key(name, state))?);
                Some((state, SystemTime::UNIX_EPOCH.checked_add(since)?))
            })
    }

    /// Returns how often a virtual router had become active when this agent started.
    pub(super) fn takeovers(&self, name: &str) -> u64 {
        find(&self.previous, &takeovers_key(name)).unwrap_or(0)
    }

    /// Subtracts the time since the first agent's start from the start delays, so that the delays do not begin again in
    /// a new agent or after a reload.
    pub(super) fn shorten_start_delays(&self, routers: &mut [VirtualRouter], now: Duration) {
        let elapsed = now.saturating_sub(self.first_start);
        for router in routers {
            router.start_delay = router.start_delay.saturating_sub(elapsed);
        }
    }

    /// Replaces all slots with those of the configured virtual routers.
    pub(super) fn replace(&self, routers: &[RecordedRouter<'_>]) {
        log_failure(weir_sys::replace_stdout_file(&self.content(routers)));
    }

    fn content(&self, routers: &[RecordedRouter<'_>]) -> Vec<u8> {
        let times = routers.iter();
        let times = times.map(|router| last_sent_slot(router.name, router.last_sent));
        let released = routers.iter().filter(|router| router.is_released);
        let released = released.map(|router| slot(&released_key(router.name), 1));
        let since = routers.iter().map(|router| {
            let key = since_key(router.name, router.state);
            slot(&key, unix_milliseconds(router.since))
        });
        let takeovers = routers.iter();
        let takeovers = takeovers.map(|it| slot(&takeovers_key(it.name), it.takeovers));
        let active_routers = routers.iter().filter(|it| it.state == State::Active);
        let interval = active_routers.map(|it| it.interval).min();
        let interval = interval.map(|it| slot(ACTIVE_INTERVAL, nanoseconds(it)));
        let first_start = slot(FIRST_START, nanoseconds(self.first_start));
        times
            .chain(released)
            .chain(since)
            .chain(takeovers)
            .chain(interval)
            .chain([first_start])
            .flatten()
            .collect()
    }

    /// Writes the time of a virtual router's last advertisement; `None` = the router is not active.
    pub(super) fn write(&self, index: usize, name: &str, last_sent: Option<Duration>) {
        let offset = SLOT_BYTES * u64::try_from(index).unwrap_or(u64::MAX / SLOT_BYTES);
        let slot = last_sent_slot(name, last_sent);
        log_failure(weir_sys::write_stdout_file(offset, &slot));
    }
}

fn log_failure(result: io::Result<()>) {
    if let Err(error) = result {
        tracing::debug!(%error, "failed to record the state for the next agent");
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn recorded_router(
        name: &str,
        last_sent: Option<Duration>,
        is_released: bool,
    ) -> RecordedRouter<'_> {
        RecordedRouter {
            name,
            last_sent,
            is_released,
            state: match (last_sent, is_released) {
                (Some(_), _) => State::Active,
                (None, true) => State::Fault,
                (None, false) => State::Backup,
            },
            since: SystemTime::UNIX_EPOCH + SECOND,
            takeovers: 3,
            interval: Duration::from_millis(100),
        }
    }

    #[test]
    fn state_is_found_by_name() {
        let time = Duration::from_nanos(1_234_567_890_123);
        let routers = [
            recorded_router("a", Some(time), false),
            recorded_router("b", None, true),
            recorded_router("c", None, false),
        ];
        let content = Handover::new(Vec::new(), SECOND).content(&routers);
        let next = Handover::new(content.clone(), 5 * SECOND);
        let actual =
            ["a", "b", "c", "d"].map(|name| (next.last_sent(name), next.was_released(name)));
        let expected = [
            (Some(time), false),
            (None, true),
            (None, false),
            (None, false),
        ];
        assert_eq!(actual, expected);
        let states = ["a", "b", "c", "d"].map(|name| next.state_since(name));
        let expected = [
            Some(State::Active),
            Some(State::Fault),
            Some(State::Backup),
            None,
        ];
        let since = SystemTime::UNIX_EPOCH + SECOND;
        assert_eq!(states, expected.map(|state| Some((state?, since))));
        let takeovers = ["a", "d"].map(|name| next.takeovers(name));
        assert_eq!(takeovers, [3, 0]);
        let truncated = Handover::new(content[..10].to_vec(), SECOND);
        assert_eq!(truncated.last_sent("a"), None);
    }

    /// Earlier versions read and write only the slots at the beginning.
    #[test]
    fn first_slots_have_format_of_earlier_versions() {
        let routers = [
            recorded_router("a", Some(SECOND), true),
            recorded_router("b", None, false),
        ];
        let content = Handover::new(Vec::new(), SECOND).content(&routers);
        let earlier = [last_sent_slot("a", Some(SECOND)), last_sent_slot("b", None)];
        assert_eq!(content[..32], earlier.concat());
        let next = Handover::new(earlier.concat(), 5 * SECOND);
        assert_eq!(next.last_sent("a"), Some(SECOND));
        assert!(!next.was_released("a"));
        assert_eq!(next.state_since("a"), None);
        assert_eq!(next.first_start, 5 * SECOND);
    }

    #[test]
    fn active_interval_is_the_shortest_of_active_routers() {
        let interval = |routers: &[RecordedRouter<'_>]| {
            let content = Handover::new(Vec::new(), SECOND).content(routers);
            active_interval(&content)
        };
        let with_interval = |name, last_sent, interval| RecordedRouter {
            interval,
            ..recorded_router(name, last_sent, false)
        };
        let (long, short) = (2 * SECOND, Duration::from_millis(10));
        let backup = || with_interval("a", None, short);
        assert_eq!(interval(&[backup()]), None);
        let active_config = |name, interval| with_interval(name, Some(SECOND), interval);
        let routers = [
            backup(),
            active_config("b", long),
            active_config("c", SECOND),
        ];
        assert_eq!(interval(&routers), Some(SECOND));
    }

    #[test]
    fn only_releases_and_counters_continue_after_a_stop() {
        let routers = [
            recorded_router("a", Some(SECOND), false),
            recorded_router("b", None, true),
        ];
        let mut content = Handover::new(Vec::new(), SECOND).content(&routers);
        stop_routers(&mut content);
        assert_eq!(active_interval(&content), None);
        let next = Handover::new(content, 5 * SECOND);
        assert_eq!(next.last_sent("a"), None);
        assert_eq!(["a", "b"].map(|name| next.state_since(name)), [None, None]);
        assert_eq!(
            ["a", "b"].map(|name| next.was_released(name)),
            [false, true]
        );
        assert_eq!(next.takeovers("a"), 3);
        assert_eq!(next.first_start, SECOND);
        // The `STOPPED` slot is removed by the next agent's first record.
        assert_eq!(active_interval(&next.content(&routers)), Some(SECOND / 10));
    }

    #[test]
    fn first_start_is_that_of_the_first_agent() {
        let mut content = Vec::new();
        for now in [10, 20, 30] {
            let handover = Handover::new(content, now * SECOND);
            assert_eq!(handover.first_start, 10 * SECOND);
            content = handover.content(&[]);
        }
    }
}
