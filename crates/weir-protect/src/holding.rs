//! Holds frames of new connections, and reinjects them when holding ends.
//!
//! While frames are held, the deadline of the BPF programs is refreshed, and frames are collected from the ring buffer.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::{Instant, interval, sleep_until};
use weir_dataplane::{HeldFrame, Hold, HoldCounts, HoldTarget, wait_for_packets};
use weir_netlink::Link;
use weir_sys::{Clock, now_ns};

use crate::error::{Error, io_error};
use crate::frame::{self, Loopback};
use crate::migration::ProtectionGuard;

/// Interval at which the ring buffer is read and the deadline of the programs is refreshed. The interval is too short
/// for the buffer to fill up.
const REFRESH_INTERVAL: Duration = Duration::from_millis(20);
/// How long the programs hold frames after a refresh.
const HOLD_TIME: Duration = Duration::from_millis(500);

/// Maximum number of held frames; a server could not accept more connections at the same time.
const MAX_FRAMES: usize = 1 << 17;

/// The attached programs and the frames collected from them.
#[derive(Debug)]
pub(crate) struct HeldConnections {
    hold: Hold,
    loopback: Loopback,
    frames: Vec<HeldFrame>,
    deadline: Instant,
    is_released: bool,
    /// Set until holding ends.
    guard: Option<ProtectionGuard>,
}

impl HeldConnections {
    /// Attaches to the loopback device and to every device with a MAC address; logs devices to which this fails.
    /// [`Self::begin`] starts holding. `guard` is dropped when holding ends.
    ///
    /// # Errors
    /// Fails if the kernel rejects a BPF program, or raw sockets are not permitted.
    pub(crate) fn open(
        targets: &[SocketAddr],
        local: &[IpAddr],
        links: &[Link],
        guard: ProtectionGuard,
    ) -> Result<Self, Error> {
        let targets: Vec<HoldTarget> = targets
            .iter()
            .map(|target| HoldTarget {
                address: target.ip(),
                port: target.port(),
            })
            .collect();
        let mut hold = Hold::open(&targets, local)?;
        // Packets without an Ethernet header, such as those of a tunnel, cannot be reinjected unchanged.
        for link in links
            .iter()
            .filter(|link| link.loopback || link.mac.is_some())
        {
            if let Err(error) = hold.attach(&link.name) {
                tracing::warn!(
                    %error,
                    interface = link.name,
                    "failed to attach the BPF programs: connections on this interface are not held"
                );
            }
        }
        Ok(Self {
            hold,
            loopback: Loopback::open().map_err(io_error("failed to open raw sockets"))?,
            frames: Vec::new(),
            deadline: Instant::now(),
            is_released: true,
            guard: Some(guard),
        })
    }

    /// Starts holding, for at most `max`.
    ///
    /// # Errors
    /// Fails if the kernel rejects the new deadline.
    pub(crate) fn begin(&mut self, max: Duration) -> Result<(), Error> {
        self.deadline = Instant::now() + max;
        self.is_released = false;
        self.refresh()
    }

    /// Returns the maximum remaining time that connections are held.
    pub(crate) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn refresh(&mut self) -> Result<(), Error> {
        let time = u64::try_from(self.remaining().min(HOLD_TIME).as_nanos()).unwrap_or(0);
        Ok(self.hold.set_deadline(now_ns(Clock::Monotonic) + time)?)
    }

    /// Holds connections while `work` runs. If the time limit expires, too many connections are held, or the deadline
    /// cannot be refreshed, releases the connections and continues to wait for `work`.
    pub(crate) async fn hold_during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut refreshes = interval(REFRESH_INTERVAL);
        loop {
            tokio::select! {
                output = &mut work => return output,
                () = sleep_until(self.deadline), if !self.is_released => {
                    self.release_early("the time limit has expired");
                }
                _ = refreshes.tick(), if !self.is_released => {
                    self.collect();
                    if let Err(error) = self.refresh() {
                        self.release_early(&error.to_string());
                    }
                }
            }
            if self.frames.len() >= MAX_FRAMES && !self.is_released {
                self.release_early("too many connections are held");
            }
        }
    }

    fn collect(&mut self) {
        while let Some(frame) = self.hold.next_frame() {
            self.frames.push(frame);
        }
    }

    fn release_early(&mut self, reason: &str) {
        tracing::warn!(reason, "released held connections before the command ended");
        self.release();
        // Drop the guard now, because the command may wait for another `weir protect`, or may never exit.
        self.guard = None;
    }

    /// Stops holding and reinjects the held frames.
    fn release(&mut self) {
        self.is_released = true;
        if let Err(error) = self.hold.set_deadline(0) {
            tracing::warn!(%error, "failed to stop holding: the BPF programs stop when their deadline expires");
        }
        self.collect();
        self.reinject();
    }

    fn reinject(&mut self) {
        for mut frame in std::mem::take(&mut self.frames) {
            frame::complete_checksum(&mut frame.bytes);
            let result = if frame.ifindex == frame::LOOPBACK {
                let sent = self.loopback.send(&frame.bytes);
                sent.map_err(|error| error.to_string())
            } else {
                self.hold.release(&frame).map_err(|error| error.to_string())
            };
            if let Err(error) = result {
                tracing::warn!(%error, "failed to reinject a frame: its client must retransmit it");
            }
        }
    }

    /// Stops holding and returns the counters.
    ///
    /// # Errors
    /// Fails if the counters cannot be read.
    pub(crate) async fn end(mut self) -> Result<HoldCounts, Error> {
        if !self.is_released {
            self.release();
        }
        // A program may still have been processing a packet when its deadline was cleared.
        if tokio::task::spawn_blocking(wait_for_packets).await.is_err() {
            tracing::warn!("failed to wait for packets in flight: some may be lost");
        }
        self.collect();
        self.reinject();
        Ok(self.hold.counts()?)
    }
}
