//! Holds frames: renews the programs' deadline, collects frames from the ring, reinjects them at the end.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::{Instant, interval, sleep_until};
use weir_dataplane::{HeldFrame, Hold, HoldCounts, HoldTarget, wait_for_packets};
use weir_netlink::Link;
use weir_sys::{Clock, now_ns};

use crate::error::{Error, io_error};
use crate::frame::{self, Loopback};
use crate::migration::ProtectionGuard;

/// How often the ring is emptied, long before it can be full, and the programs' deadline is renewed.
const RENEWAL: Duration = Duration::from_millis(20);
/// How long the programs hold frames after a renewal.
const RENEWED_FOR: Duration = Duration::from_millis(500);

/// Most frames that are held: the server could not accept more at once.
const MAX_FRAMES: usize = 1 << 17;

/// See the module.
#[derive(Debug)]
pub(crate) struct Holding {
    hold: Hold,
    loopback: Loopback,
    frames: Vec<HeldFrame>,
    deadline: Instant,
    ended: bool,
    /// While connections are held.
    guard: Option<ProtectionGuard>,
}

impl Holding {
    /// Attaches to every device that connections may arrive on; nothing is held yet. `guard` is dropped when holding
    /// ends.
    ///
    /// # Errors
    /// The kernel rejects a program, or raw sockets are not permitted.
    pub(crate) fn open(
        to: &[SocketAddr],
        own: &[IpAddr],
        links: &[Link],
        guard: ProtectionGuard,
    ) -> Result<Self, Error> {
        let to: Vec<HoldTarget> = to
            .iter()
            .map(|to| HoldTarget {
                address: to.ip(),
                port: to.port(),
            })
            .collect();
        let mut hold = Hold::open(&to, own)?;
        // Packets without an Ethernet header (of a tunnel) could not be reinjected unchanged.
        for link in links
            .iter()
            .filter(|link| link.loopback || link.mac.is_some())
        {
            if let Err(error) = hold.attach(&link.name) {
                tracing::warn!(%error, interface = link.name, "could not attach: connections on this interface are \
                 not held");
            }
        }
        Ok(Self {
            hold,
            loopback: Loopback::open().map_err(io_error("raw sockets"))?,
            frames: Vec::new(),
            deadline: Instant::now(),
            ended: true,
            guard: Some(guard),
        })
    }

    /// Starts holding, for at most `max`.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn begin(&mut self, max: Duration) -> Result<(), Error> {
        self.deadline = Instant::now() + max;
        self.ended = false;
        self.renew()
    }

    /// The remaining time.
    pub(crate) fn remaining(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn renew(&mut self) -> Result<(), Error> {
        let time = u64::try_from(self.remaining().min(RENEWED_FOR).as_nanos()).unwrap_or(0);
        Ok(self.hold.until(now_ns(Clock::Monotonic) + time)?)
    }

    /// Holds while `work` runs. When the time is over it releases the connections and keeps waiting for `work`.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut renewals = interval(RENEWAL);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = sleep_until(self.deadline), if !self.ended => self.give_up("time limit"),
                _ = renewals.tick(), if !self.ended => {
                    self.collect();
                    if let Err(error) = self.renew() {
                        self.give_up(&error.to_string());
                    }
                }
            }
            if self.frames.len() >= MAX_FRAMES && !self.ended {
                self.give_up("too many connections are held");
            }
        }
    }

    fn collect(&mut self) {
        while let Some(frame) = self.hold.take() {
            self.frames.push(frame);
        }
    }

    fn give_up(&mut self, why: &str) {
        tracing::warn!(why, "releasing connections before the command has ended");
        self.release();
        // The command may itself wait for another protection, or never end.
        self.guard = None;
    }

    /// Stops holding and reinjects the held frames.
    fn release(&mut self) {
        self.ended = true;
        if let Err(error) = self.hold.until(0) {
            tracing::warn!(%error, "holding ends when the programs' deadline passes");
        }
        self.collect();
        self.reinject();
    }

    fn reinject(&mut self) {
        for mut frame in std::mem::take(&mut self.frames) {
            frame::complete_checksum(&mut frame.bytes);
            let sent_back = if frame.ifindex == frame::LOOPBACK {
                let sent = self.loopback.send(&frame.bytes);
                sent.map_err(|error| error.to_string())
            } else {
                self.hold.release(&frame).map_err(|error| error.to_string())
            };
            if let Err(error) = sent_back {
                tracing::warn!(%error, "could not reinject a frame: its client has to retry");
            }
        }
    }

    /// Ends holding and returns the counts.
    ///
    /// # Errors
    /// The counts cannot be read.
    pub(crate) async fn end(mut self) -> Result<HoldCounts, Error> {
        if !self.ended {
            self.release();
        }
        // Packets that a program was processing when its deadline was cleared.
        if tokio::task::spawn_blocking(wait_for_packets).await.is_err() {
            tracing::warn!("could not wait for packets in flight: some may be lost");
        }
        self.collect();
        self.reinject();
        Ok(self.hold.counts()?)
    }
}
