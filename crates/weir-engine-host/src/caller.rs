//! Decides who may edit ipvsadm's services: root, and members of `socket_group` if `socket_mode` permits them to.
//!
//! The client connects to a socket of this process, and the kernel identifies the client (SO_PEERCRED). The daemon's
//! account is rejected, regardless of its groups.

use std::os::fd::BorrowedFd;

use rustix::net::sockopt::socket_peercred;
use weir_model::Node;
use weir_runtime_dir::ACCOUNT;
use weir_sys::names;

/// Checks the client at the other end of a socket that this process has accepted. Returns the client's user ID.
///
/// # Errors
/// Returns a message if the client is not allowed to edit services.
pub(crate) fn check(socket: BorrowedFd<'_>, node: &Node) -> Result<u32, String> {
    let identification_error =
        |error: &dyn std::fmt::Display| format!("failed to identify the client: {error}");
    let peer = socket_peercred(socket).map_err(|error| identification_error(&error))?;
    let user = peer.uid.as_raw();
    if user == 0 {
        return Ok(user);
    }
    let is_daemon = weir_sys::account(ACCOUNT).is_some_and(|(account, _)| account == user);
    let group = node.socket_group.as_deref().and_then(names::group_id);
    let group = group.filter(|_| node.socket_mode.is_for_group() && !is_daemon);
    let is_member = group.is_some_and(|group| {
        let groups = weir_sys::peer_groups(socket).unwrap_or_default();
        peer.gid.as_raw() == group || groups.contains(&group)
    });
    if is_member {
        return Ok(user);
    }
    Err(format!(
        "user {user} is not allowed to edit ipvsadm services: only root is, and members of `socket_group` if \
        `socket_mode` permits them to"
    ))
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd;
    use std::os::unix::net::UnixStream;

    use super::*;

    #[test]
    fn caller_is_identified_by_kernel() {
        let (client, _other_end) = UnixStream::pair().unwrap();
        let user = rustix::process::geteuid().as_raw();
        let result = check(client.as_fd(), &Node::default());
        if user == 0 {
            assert_eq!(result, Ok(0));
        } else {
            assert!(result.unwrap_err().contains(&format!("user {user}")));
        }
        let file = std::fs::File::open("/dev/null").unwrap();
        assert!(check(file.as_fd(), &Node::default()).is_err());
    }
}
