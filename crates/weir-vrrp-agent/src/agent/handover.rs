//! Passes state from one agent to the next: when each virtual router was last advertised as active.
//!
//! The state is an in-memory file that the keeper keeps open and passes to each agent as standard output. It contains a
//! 16-byte slot for each virtual router: a hash of the name, and the time of the last advertisement (`CLOCK_BOOTTIME`,
//! nanoseconds), or 0 while the router is not active. A slot is written with a single system call, so that an agent
//! that is killed leaves no partial slot.

use std::io;
use std::time::Duration;

const SLOT_BYTES: u64 = 16;

#[derive(Debug)]
pub(super) struct Handover {
    /// The file's content when this agent started.
    previous: Vec<u8>,
    is_first: bool,
}

/// Returns the FNV-1a hash of a name, which is the same in every build.
fn hash(name: &str) -> u64 {
    name.bytes().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

fn slot(name: &str, last_sent: Option<Duration>) -> [u8; 16] {
    let nanoseconds = last_sent.map_or(0, |it| u64::try_from(it.as_nanos()).unwrap_or(u64::MAX));
    let mut bytes = [0; 16];
    bytes[..8].copy_from_slice(&hash(name).to_le_bytes());
    bytes[8..].copy_from_slice(&nanoseconds.to_le_bytes());
    bytes
}

fn find_last_sent(content: &[u8], name: &str) -> Option<Duration> {
    let slots = content.chunks_exact(16);
    let read_u64 = |bytes: &[u8]| {
        bytes
            .iter()
            .rev()
            .fold(0, |value, byte| (value << 8) | u64::from(*byte))
    };
    let mut matching = slots.filter(|slot| read_u64(&slot[..8]) == hash(name));
    let nanoseconds = matching.next().map(|slot| read_u64(&slot[8..]))?;
    (nanoseconds > 0).then(|| Duration::from_nanos(nanoseconds))
}

impl Handover {
    /// Reads the previous agent's state, which is empty if standard output is not a state file.
    pub(super) fn open() -> Self {
        Self {
            previous: weir_sys::read_stdout_file().unwrap_or_default(),
            is_first: true,
        }
    }

    /// Returns true on the first call.
    pub(super) const fn take_is_first(&mut self) -> bool {
        std::mem::replace(&mut self.is_first, false)
    }

    /// Returns when the previous agent last advertised a virtual router as active; `None` if it was not active.
    pub(super) fn last_sent(&self, name: &str) -> Option<Duration> {
        find_last_sent(&self.previous, name)
    }

    /// Replaces all slots with those of the configured virtual routers.
    pub(super) fn replace<'a>(&self, routers: impl Iterator<Item = (&'a str, Option<Duration>)>) {
        let content: Vec<u8> = routers
            .flat_map(|(name, last_sent)| slot(name, last_sent))
            .collect();
        log_failure(weir_sys::replace_stdout_file(&content));
    }

    /// Writes a slot. `last_sent` is the time of the last advertisement, or `None` if the router is not active.
    pub(super) fn write(&self, index: usize, name: &str, last_sent: Option<Duration>) {
        let offset = SLOT_BYTES * u64::try_from(index).unwrap_or(u64::MAX / SLOT_BYTES);
        log_failure(weir_sys::write_stdout_file(offset, &slot(name, last_sent)));
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

    #[test]
    fn slot_is_found_by_name() {
        let time = Duration::from_nanos(1_234_567_890_123);
        let mut content = slot("a", Some(time)).to_vec();
        content.extend(slot("b", None));
        assert_eq!(find_last_sent(&content, "a"), Some(time));
        assert_eq!(find_last_sent(&content, "b"), None);
        assert_eq!(find_last_sent(&content, "c"), None);
        assert_eq!(find_last_sent(&content[..10], "a"), None);
    }
}
