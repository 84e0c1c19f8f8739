//! Defines the faults that the lab injects into the active director.

use super::Vrrp;

/// A fault of the active director.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The program that runs VRRP is stopped with SIGTERM.
    Stop,
    /// The director's link drops all frames in both directions; the carrier remains up.
    Cut,
    /// The director's link drops all frames that the director sends; the director still receives.
    OneWay,
    /// The directors do not receive each other's advertisements; both reach the client and the server.
    Partition,
    /// All processes of the director are stopped with SIGSTOP.
    Pause,
    /// `kill -9` of the process that runs VRRP.
    KillVrrp,
    /// `kill -9` of the parent of the process that runs VRRP.
    KillKeeper,
    /// `kill -9` of Weir's daemon.
    KillDaemon,
    /// `kill -9` of Weir's helper.
    KillHelper,
    /// `kill -9` of all processes of the director. Its kernel keeps the addresses and forwards packets.
    KillAll,
    /// The program that runs VRRP reloads its configuration.
    Reload,
    /// `weir upgrade` to a copy of the program.
    Upgrade,
}

impl Fault {
    pub(crate) const ALL: [Self; 12] = [
        Self::Stop,
        Self::Cut,
        Self::OneWay,
        Self::Partition,
        Self::Pause,
        Self::KillVrrp,
        Self::KillKeeper,
        Self::KillDaemon,
        Self::KillHelper,
        Self::KillAll,
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
            Self::KillAll => "kill-all",
            Self::Reload => "reload",
            Self::Upgrade => "upgrade",
        }
    }

    /// Returns whether the directors can be used again after the fault is reverted. Otherwise, programs have exited or
    /// were replaced.
    pub(crate) const fn is_reversible(self) -> bool {
        match self {
            Self::Cut
            | Self::OneWay
            | Self::Partition
            | Self::Pause
            | Self::KillDaemon
            | Self::KillHelper
            | Self::Reload => true,
            Self::Stop | Self::KillVrrp | Self::KillKeeper | Self::KillAll | Self::Upgrade => false,
        }
    }

    /// Returns whether the fault can be injected into a director with this VRRP program.
    pub(crate) const fn applies_to(self, vrrp: Vrrp) -> bool {
        match self {
            Self::KillHelper => matches!(vrrp, Vrrp::Weir),
            _ => true,
        }
    }
}
