//! Defines the errors that can occur while a router is examined.

use std::io;
use std::time::Duration;

/// An error that occurred while a router was examined.
#[derive(Debug, thiserror::Error)]
pub enum RouterError {
    /// Neither BIRD nor FRR responds.
    #[error(
        "no BGP speaker was found: {bird}; {frr}. Start BIRD or FRR, or specify a command: \
        --speaker \"birdc -s SOCKET\""
    )]
    NoSpeaker {
        /// Why BIRD was not found.
        bird: String,
        /// Why FRR was not found.
        frr: String,
    },
    /// The specified command line contains no supported tool.
    #[error("--speaker: {command:?} contains neither `birdc` nor `vtysh`")]
    UnknownCommand {
        /// The command line.
        command: String,
    },
    /// A program cannot be run.
    #[error("{program}: {source}")]
    Program {
        /// The program.
        program: String,
        /// The error.
        source: io::Error,
    },
    /// The speaker rejected a command, or is not running.
    #[error("{program}: {reply}")]
    Rejected {
        /// The program.
        program: String,
        /// The last line of the reply.
        reply: String,
    },
    /// A program did not exit in time.
    #[error("{program} did not exit within {} s", limit.as_secs())]
    Timeout {
        /// The program.
        program: String,
        /// The time limit.
        limit: Duration,
    },
    /// The output of a program is too long, because the router has a large table.
    #[error(
        "{speaker}'s routes exceed {mebibytes} MiB: specify the VIPs, for example --router 192.0.2.10"
    )]
    TooLong {
        /// The speaker.
        speaker: String,
        /// The limit, in MiB.
        mebibytes: usize,
    },
    /// The kernel's routes cannot be read.
    #[error(transparent)]
    Netlink(#[from] weir_netlink::Error),
}
