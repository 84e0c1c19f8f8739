//! Failures of the active director.

use super::Vrrp;

/// A way in which the active director fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Its programs are stopped in order.
    Stop,
    /// Its link carries nothing in either direction, and keeps its carrier.
    Cut,
    /// What it sends is lost, and it still receives.
    OneWay,
    /// The directors do not receive each other's advertisements; both reach client and server.
    Partition,
    /// All its processes are stopped by SIGSTOP.
    Pause,
    /// `kill -9` of the process that runs VRRP.
    KillVrrp,
    /// `kill -9` of the process above it.
    KillKeeper,
    /// `kill -9` of Weir's daemon.
    KillDaemon,
    /// `kill -9` of Weir's helper.
    KillHelper,
    /// Reload of the program that runs VRRP.
    Reload,
    /// `weir upgrade`.
    Upgrade,
}

impl Fault {
    pub(crate) const ALL: [Self; 11] = [
        Self::Stop,
        Self::Cut,
        Self::OneWay,
        Self::Partition,
        Self::Pause,
        Self::KillVrrp,
        Self::KillKeeper,
        Self::KillDaemon,
        Self::KillHelper,
        Self::Reload,
        Self::Upgrade,
    ];

    pub(crate) const fn name(self) -> &'static str {
        match self {
            Self::Stop => "stop",
            Self::Cut => "cut",
            Self::OneWay => "one-way",
            Self::Partition => "partition",
            Self::Pause => "pause",
            Self::KillVrrp => "kill-vrrp",
            Self::KillKeeper => "kill-keeper",
            Self::KillDaemon => "kill-daemon",
            Self::KillHelper => "kill-helper",
            Self::Reload => "reload",
            Self::Upgrade => "upgrade",
        }
    }

    /// Whether the directors can be used again once it is undone. Otherwise programs have ended or were replaced.
    pub(crate) const fn is_undone(self) -> bool {
        match self {
            Self::Cut
            | Self::OneWay
            | Self::Partition
            | Self::Pause
            | Self::KillDaemon
            | Self::KillHelper
            | Self::Reload => true,
            Self::Stop | Self::KillVrrp | Self::KillKeeper | Self::Upgrade => false,
        }
    }

    /// Whether it can happen to a director with this VRRP.
    pub(crate) const fn concerns(self, vrrp: Vrrp) -> bool {
        match self {
            Self::KillHelper => matches!(vrrp, Vrrp::Weir),
            _ => true,
        }
    }
}
