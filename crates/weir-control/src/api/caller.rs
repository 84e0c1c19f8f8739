//! Defines the client that sent a request, and its permissions.
//!
//! On the Unix socket, the kernel provides the peer's credentials (SO_PEERCRED). Over TCP, a token identifies the
//! client. The caller is attached to each HTTP request, and to the commands that depend on it.

use std::fmt;
use std::net::SocketAddr;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

/// A client's permissions; each role includes the previous ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Role {
    /// The client may read the status and metrics, and use explain.
    Read,
    /// The client may also change the state and weight of servers.
    Operate,
    /// The client may also change the configuration, the servers of pools, and services created with ipvsadm.
    Write,
}

impl Role {
    /// Returns the role's name, as in a token file.
    pub const fn name(self) -> &'static str {
        match self {
            Self::Read => "read",
            Self::Operate => "operate",
            Self::Write => "write",
        }
    }
}

impl fmt::Display for Role {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// The error for text that is not a role name.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("the role must be `read`, `operate` or `write`")]
pub struct UnknownRole;

impl FromStr for Role {
    type Err = UnknownRole;

    fn from_str(text: &str) -> Result<Self, UnknownRole> {
        let roles = [Self::Read, Self::Operate, Self::Write];
        let role = roles.into_iter().find(|role| role.name() == text);
        role.ok_or(UnknownRole)
    }
}

/// A connection's client.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Caller {
    /// A process on this machine, with the credentials that the kernel recorded when the process connected to the Unix
    /// socket.
    Unix {
        /// Effective user ID.
        uid: u32,
        /// Effective group ID.
        gid: u32,
        /// Process ID; absent if its PID namespace is not visible.
        pid: Option<i32>,
    },
    /// A client that connected over TCP.
    Tcp {
        /// The client's address and port.
        peer: SocketAddr,
        /// The role of the client's token; [`Role::Read`] without a token.
        role: Role,
    },
}

impl Caller {
    /// Returns the daemon itself as the caller, for reloads that a signal triggers.
    pub(crate) fn this_process() -> Self {
        Self::Unix {
            uid: rustix::process::geteuid().as_raw(),
            gid: rustix::process::getegid().as_raw(),
            pid: i32::try_from(std::process::id()).ok(),
        }
    }

    /// Returns whether the caller is root or the daemon's user on the Unix socket. Only these owners may specify files
    /// and programs, change privileged keys, and see lines quoted from files.
    pub fn is_owner(&self) -> bool {
        match self {
            Self::Unix { uid, .. } => *uid == 0 || *uid == rustix::process::geteuid().as_raw(),
            Self::Tcp { .. } => false,
        }
    }

    /// Returns the caller's role. Every client of the Unix socket has the highest role, because the socket's mode
    /// already restricts access.
    pub const fn role(&self) -> Role {
        match self {
            Self::Unix { .. } => Role::Write,
            Self::Tcp { role, .. } => *role,
        }
    }
}

/// Formats the caller for logs.
impl fmt::Display for Caller {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Unix { uid, pid, .. } => {
                write!(f, "uid {uid}")?;
                pid.map_or(Ok(()), |pid| write!(f, ", pid {pid}"))
            }
            Self::Tcp { peer, role } => write!(f, "{peer}, role {role}"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_root_and_the_daemons_user_are_owners() {
        let daemon_uid = rustix::process::geteuid().as_raw();
        let unix = |uid| Caller::Unix {
            uid,
            gid: 0,
            pid: Some(1),
        };
        assert!(Caller::this_process().is_owner());
        assert!(unix(0).is_owner() && unix(daemon_uid).is_owner());
        assert!(!unix(daemon_uid + 1).is_owner());
        let peer = SocketAddr::from(([127, 0, 0, 1], 1));
        let role = Role::Write;
        assert!(!Caller::Tcp { peer, role }.is_owner());
    }

    #[test]
    fn higher_role_includes_lower_ones() {
        assert!(Role::Read < Role::Operate && Role::Operate < Role::Write);
        for role in [Role::Read, Role::Operate, Role::Write] {
            assert_eq!(role.to_string().parse(), Ok(role));
        }
        assert_eq!("Write".parse::<Role>(), Err(UnknownRole));
    }
}
