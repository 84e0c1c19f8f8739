//! Records advertisements on a third host with their arrival times.

use std::net::{IpAddr, Ipv4Addr};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

use weir_sys::RawIpSocket;

use super::pair::Pair;

/// IP protocol and group of VRRP (RFC 9568, section 5.1.1).
const PROTOCOL: u8 = 112;
const GROUP: Ipv4Addr = Ipv4Addr::new(224, 0, 0, 18);
const CLIENT: Ipv4Addr = Ipv4Addr::new(10, 0, 0, 2);

/// An advertisement.
#[derive(Clone, Copy, Debug)]
pub(super) struct Advertisement {
    pub(super) received_at: Instant,
    pub(super) source: IpAddr,
    pub(super) priority: u8,
}

/// A period during which a director advertised without a gap of three or more intervals.
#[derive(Clone, Copy, Debug)]
struct ActivePeriod {
    source: IpAddr,
    first: Instant,
    last: Instant,
}

/// Records advertisements until it is dropped.
pub(super) struct Recorder {
    stop: Arc<AtomicBool>,
    received: Arc<Mutex<Vec<Advertisement>>>,
    thread: Option<JoinHandle<()>>,
}

impl Recorder {
    pub(super) fn start(pair: &Pair) -> Self {
        let index = index_of_eth0(pair);
        let stop = Arc::new(AtomicBool::new(false));
        let received = Arc::new(Mutex::new(Vec::new()));
        let (stopped, list) = (Arc::clone(&stop), Arc::clone(&received));
        let thread = pair.world.spawn_on("client", move || {
            let group = Some(GROUP.into());
            let socket = RawIpSocket::open(PROTOCOL, "eth0", index, CLIENT.into(), group);
            let socket = socket.expect("open a raw socket");
            while !stopped.load(Ordering::Relaxed) {
                while let Ok(Some(packet)) = socket.receive() {
                    let received_at = Instant::now();
                    list.lock()
                        .unwrap_or_else(PoisonError::into_inner)
                        .push(Advertisement {
                            received_at,
                            source: packet.source,
                            // The offset is the same in versions 2 and 3.
                            priority: packet.bytes[2],
                        });
                }
                std::thread::sleep(Duration::from_millis(1));
            }
        });
        Self {
            stop,
            received,
            thread: Some(thread),
        }
    }

    pub(super) fn received(&self) -> Vec<Advertisement> {
        self.received
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Returns the longest time between two advertisements of a director since `since`.
    pub(super) fn longest_gap(&self, source: &str, since: Instant) -> Duration {
        let source: IpAddr = source.parse().expect("parse the address");
        let times: Vec<Instant> = self
            .received()
            .iter()
            .filter(|it| it.source == source && it.received_at >= since)
            .map(|it| it.received_at)
            .collect();
        let gaps = times.windows(2).map(|pair| pair[1] - pair[0]);
        gaps.max()
            .expect("recorder received several advertisements")
    }

    /// Returns the longest time since `since` during which two directors advertised as active.
    pub(super) fn longest_overlap(&self, since: Instant, interval: Duration) -> Duration {
        let periods = periods(&self.received(), since, interval);
        let mut longest = Duration::ZERO;
        for (index, period) in periods.iter().enumerate() {
            for other in periods[index + 1..]
                .iter()
                .filter(|it| it.source != period.source)
            {
                let end = period.last.min(other.last);
                longest = longest.max(end.saturating_duration_since(period.first.max(other.first)));
            }
        }
        longest
    }
}

/// Returns the index of the client's eth0. Reads it with `ip`, because the mounted /sys shows the host's interfaces.
fn index_of_eth0(pair: &Pair) -> u32 {
    let output = pair.world.output("client", "ip -o link show dev eth0");
    let output = String::from_utf8_lossy(&output.stdout).into_owned();
    let index = output
        .split(':')
        .next()
        .and_then(|it| it.trim().parse().ok());
    index.expect("read the index of eth0")
}

fn periods(received: &[Advertisement], since: Instant, interval: Duration) -> Vec<ActivePeriod> {
    let mut periods: Vec<ActivePeriod> = Vec::new();
    let mut ended_sources: Vec<IpAddr> = Vec::new();
    for advertisement in received.iter().filter(|it| it.received_at >= since) {
        if advertisement.priority == 0 {
            ended_sources.push(advertisement.source);
            continue;
        }
        let has_ended = ended_sources.contains(&advertisement.source);
        ended_sources.retain(|source| *source != advertisement.source);
        let running = periods
            .iter_mut()
            .rev()
            .find(|period| period.source == advertisement.source);
        match running {
            Some(period)
                if !has_ended && advertisement.received_at - period.last < interval * 3 =>
            {
                period.last = advertisement.received_at
            }
            _ => periods.push(ActivePeriod {
                source: advertisement.source,
                first: advertisement.received_at,
                last: advertisement.received_at,
            }),
        }
    }
    periods
}

impl Drop for Recorder {
    fn drop(&mut self) {
        self.stop.store(true, Ordering::Relaxed);
        if let Some(thread) = self.thread.take() {
            let _ = thread.join();
        }
    }
}

#[test]
fn overlap_is_time_with_two_active_directors() {
    let start = Instant::now();
    let interval = Duration::from_millis(100);
    let sources: [IpAddr; 2] = [[10, 0, 0, 3].into(), [10, 0, 0, 4].into()];
    let received = |list: &[(u64, usize, u8)]| -> Vec<Advertisement> {
        list.iter()
            .map(|(ms, source, priority)| Advertisement {
                received_at: start + Duration::from_millis(*ms),
                source: sources[*source],
                priority: *priority,
            })
            .collect()
    };
    let recorder = |list: &[(u64, usize, u8)]| Recorder {
        stop: Arc::new(AtomicBool::new(false)),
        received: Arc::new(Mutex::new(received(list))),
        thread: None,
    };
    let overlap = |list: &[(u64, usize, u8)]| recorder(list).longest_overlap(start, interval);
    // The first handover is graceful; the second follows after the other director becomes silent.
    let ordered = [
        (0, 0, 100),
        (100, 0, 100),
        (150, 0, 0),
        (160, 1, 50),
        (260, 1, 50),
    ];
    assert_eq!(overlap(&ordered), Duration::ZERO);
    let silent = [
        (0, 0, 100),
        (100, 0, 100),
        (500, 1, 50),
        (600, 1, 50),
        (700, 0, 100),
    ];
    assert_eq!(overlap(&silent), Duration::ZERO);
    let overlapping = [
        (0, 0, 100),
        (50, 1, 50),
        (100, 0, 100),
        (150, 1, 50),
        (200, 0, 100),
    ];
    assert_eq!(overlap(&overlapping), Duration::from_millis(100));
}
