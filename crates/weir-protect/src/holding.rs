//! The holding itself: beats that keep it alive, frames as they come, its end.

use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use tokio::time::{Instant, interval, sleep_until};
use weir_dataplane::{HeldFrame, Hold, HoldCounts, HoldTarget, wait_for_packets};
use weir_netlink::Link;
use weir_sys::{Clock, now_ns};

use crate::frame::{self, Loopback};
use crate::migration::Turn;
use crate::{Error, io_error};

/// How often the ring is emptied, long before it can be full, and the programs are told that somebody is there; for how
/// long they believe it.
const BEAT: Duration = Duration::from_millis(20);
const BELIEF: Duration = Duration::from_millis(500);

/// More than this are not kept: the server would not take so many at once.
const MOST: usize = 1 << 17;

/// See the module.
#[derive(Debug)]
pub(crate) struct Holding {
    hold: Hold,
    loopback: Loopback,
    frames: Vec<HeldFrame>,
    deadline: Instant,
    over: bool,
    /// As long as anything is held.
    turn: Option<Turn>,
}

impl Holding {
    /// Looks at every device that connections may come by; nothing is held yet. The turn ends when nothing is held any
    /// more.
    ///
    /// # Errors
    /// The kernel takes no program, or there are no raw sockets.
    pub(crate) fn open(
        to: &[SocketAddr],
        own: &[IpAddr],
        links: &[Link],
        turn: Turn,
    ) -> Result<Self, Error> {
        let to: Vec<HoldTarget> = to
            .iter()
            .map(|to| HoldTarget {
                address: to.ip(),
                port: to.port(),
            })
            .collect();
        let mut hold = Hold::open(&to, own)?;
        // What has no Ethernet header (a tunnel, say) could not be given back as it came.
        for link in links
            .iter()
            .filter(|link| link.loopback || link.mac.is_some())
        {
            if let Err(error) = hold.attach(&link.name) {
                tracing::warn!(%error, interface = link.name, "connections by this interface are not held");
            }
        }
        Ok(Self {
            hold,
            loopback: Loopback::open().map_err(io_error("raw sockets"))?,
            frames: Vec::new(),
            deadline: Instant::now(),
            over: true,
            turn: Some(turn),
        })
    }

    /// Holds from now on, for `max` at the longest.
    ///
    /// # Errors
    /// The kernel refuses.
    pub(crate) fn begin(&mut self, max: Duration) -> Result<(), Error> {
        self.deadline = Instant::now() + max;
        self.over = false;
        self.beat()
    }

    /// How much longer it can last.
    pub(crate) fn left(&self) -> Duration {
        self.deadline.saturating_duration_since(Instant::now())
    }

    fn beat(&mut self) -> Result<(), Error> {
        let believed = u64::try_from(self.left().min(BELIEF).as_nanos()).unwrap_or(0);
        Ok(self.hold.until(now_ns(Clock::Monotonic) + believed)?)
    }

    /// Waits for `work`, and holds meanwhile; lets go when the time is over, and waits on.
    pub(crate) async fn during<T>(&mut self, work: impl Future<Output = T>) -> T {
        let mut work = std::pin::pin!(work);
        let mut beats = interval(BEAT);
        loop {
            tokio::select! {
                done = &mut work => return done,
                () = sleep_until(self.deadline), if !self.over => self.give_up("their time is over"),
                _ = beats.tick(), if !self.over => {
                    self.collect();
                    if let Err(error) = self.beat() {
                        self.give_up(&error.to_string());
                    }
                }
            }
            if self.frames.len() >= MOST && !self.over {
                self.give_up("too many are held");
            }
        }
    }

    fn collect(&mut self) {
        while let Some(frame) = self.hold.take() {
            self.frames.push(frame);
        }
    }

    fn give_up(&mut self, why: &str) {
        tracing::warn!(why, "connections are let go before the command has ended");
        self.let_go();
        // The command may itself wait for another protection, or never end.
        self.turn = None;
    }

    /// Nothing is held from now on; what was comes back.
    fn let_go(&mut self) {
        self.over = true;
        if let Err(error) = self.hold.until(0) {
            tracing::warn!(%error, "the holding ends with the next beat");
        }
        self.collect();
        self.give_back();
    }

    fn give_back(&mut self) {
        for mut frame in std::mem::take(&mut self.frames) {
            frame::finish_checksum(&mut frame.bytes);
            let given = if frame.ifindex == frame::LOOPBACK {
                let sent = self.loopback.send(&frame.bytes);
                sent.map_err(|error| error.to_string())
            } else {
                self.hold.release(&frame).map_err(|error| error.to_string())
            };
            if let Err(error) = given {
                tracing::warn!(%error, "a connection waits for its client's retry");
            }
        }
    }

    /// Ends it, and says how much it was.
    ///
    /// # Errors
    /// The kernel does not say.
    pub(crate) async fn end(mut self) -> Result<HoldCounts, Error> {
        if !self.over {
            self.let_go();
        }
        // Packets that were in the program when it was told to hold nothing.
        if tokio::task::spawn_blocking(wait_for_packets).await.is_err() {
            tracing::warn!("packets under way may be lost");
        }
        self.collect();
        self.give_back();
        Ok(self.hold.counts()?)
    }
}
