//! Permits ipvsadm edits that a client has requested on a socket of this process.
//!
//! The client sends its edits to this socket, and the kernel reports the client's user ID. When the daemon requests
//! these edits, this process executes them once, and executes no others. A compromised daemon has connections from root
//! too, so a connection does not prove that root requests an edit.

use std::collections::VecDeque;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::{Duration, Instant};

use serde::{Deserialize, Serialize};
use weir_ipvsadm::Edit;
use weir_model::Node;
use weir_runtime_dir::EDITS_SOCKET;
use weir_sys::{ServiceSocket, connect_to_service, names};

use crate::caller;

/// Maximum time that a client has to send its message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);
/// Maximum time that this process has to respond.
const RESPONSE_TIMEOUT: Duration = Duration::from_secs(10);
/// How long edits are permitted: the daemon may have to finish a reload before it requests them.
const VALIDITY: Duration = Duration::from_secs(60);
/// Maximum number of requests waiting for the daemon; a further request replaces the oldest one.
const MAX_WAITING_REQUESTS: usize = 64;

/// A client's request.
#[derive(Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct PermitRequest {
    edits: Vec<Edit>,
}

/// The response to a client.
#[derive(Debug, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
enum Response {
    Permitted,
    Refused { reason: String },
}

/// Permits these edits in the engine process of an unprivileged daemon. The process executes them when the daemon
/// requests them. Returns whether this process exists.
///
/// # Errors
/// Returns a message if the engine process rejects the edits.
pub fn permit_edits(runtime_dir: &Path, edits: &[Edit]) -> Result<bool, String> {
    let Ok((channel, peer)) = connect_to_service(&runtime_dir.join(EDITS_SOCKET)) else {
        return Ok(false);
    };
    if peer.user != 0 {
        return Ok(false);
    }
    let request = PermitRequest {
        edits: edits.to_vec(),
    };
    let request = serde_json::to_vec(&request).map_err(|error| error.to_string())?;
    let response = channel
        .set_receive_timeout(Some(RESPONSE_TIMEOUT))
        .and_then(|()| channel.send(&request, &[]))
        .and_then(|()| channel.receive());
    match response.map_err(|error| error.to_string())? {
        Some(message) => match serde_json::from_slice(&message.bytes) {
            Ok(Response::Permitted) => Ok(true),
            Ok(Response::Refused { reason }) => Err(reason),
            Err(error) => Err(format!(
                "the privileged layer 4 process sent an invalid response: {error}"
            )),
        },
        None => Err("the privileged layer 4 process has exited".to_owned()),
    }
}

/// A request waiting for the daemon.
#[derive(Debug)]
struct WaitingRequest {
    edits: Vec<Edit>,
    /// The client's user ID.
    user: u32,
    received_at: Instant,
}

/// The state that is shared with the socket's thread.
#[derive(Debug, Default)]
struct State {
    /// The settings that determine who may edit services.
    node: Node,
    waiting: VecDeque<WaitingRequest>,
}

/// The socket, and the requests of clients.
#[derive(Debug)]
pub(crate) struct Permits {
    path: PathBuf,
    state: Arc<Mutex<State>>,
    /// The socket with its group; `None` = this process does not listen.
    socket: Option<(Arc<ServiceSocket>, Option<u32>)>,
}

impl Permits {
    /// Creates a `Permits` without requests; [`Self::serve`] opens the socket.
    pub(crate) fn new(runtime_dir: &Path) -> Self {
        Self {
            path: runtime_dir.join(EDITS_SOCKET),
            state: Arc::default(),
            socket: None,
        }
    }

    /// Listens with these settings, unless this process already does. Recreates the socket if it was removed.
    pub(crate) fn serve(&mut self, node: &Node) {
        let group = node.socket_group.as_deref().and_then(names::group_id);
        let group = group.filter(|_| node.socket_mode.is_for_group());
        let mut state = lock(&self.state);
        if state.node != *node {
            state.node.clone_from(node);
        }
        drop(state);
        let is_served = self
            .socket
            .as_ref()
            .is_some_and(|(socket, socket_group)| *socket_group == group && socket.has_name());
        if is_served {
            return;
        }
        self.stop();
        let socket = match ServiceSocket::listen_in_shared(&self.path, group) {
            Ok(socket) => Arc::new(socket),
            Err(error) => {
                tracing::warn!(%error, "ipvsadm cannot edit services");
                return;
            }
        };
        self.socket = Some((Arc::clone(&socket), group));
        let state = Arc::clone(&self.state);
        std::thread::spawn(move || {
            socket.serve(MESSAGE_TIMEOUT, |channel, _, bytes| {
                let response = match record_request(&state, channel.as_fd(), bytes) {
                    Ok(()) => Response::Permitted,
                    Err(reason) => {
                        tracing::error!(reason, "refused edits from ipvsadm");
                        Response::Refused { reason }
                    }
                };
                serde_json::to_vec(&response).unwrap_or_default()
            });
        });
    }

    /// Closes the socket and removes all requests, because another process serves the daemon.
    pub(crate) fn close(&mut self) {
        self.stop();
        lock(&self.state).waiting.clear();
    }

    fn stop(&mut self) {
        if let Some((socket, _)) = self.socket.take() {
            socket.stop();
        }
    }

    /// Returns the user ID of the client that has requested these edits. The permit is valid only once.
    ///
    /// # Errors
    /// Returns a message if no client has requested them.
    pub(crate) fn take_permit(&self, edits: &[Edit]) -> Result<u32, String> {
        let mut state = lock(&self.state);
        state
            .waiting
            .retain(|it| it.received_at.elapsed() < VALIDITY);
        // The daemon executes weight changes for configured servers itself, so its request does not contain them.
        let contains_edits = |client_edits: &[Edit]| {
            let mut client_edits = client_edits.iter();
            edits
                .iter()
                .all(|edit| client_edits.any(|requested| requested == edit))
        };
        let found = state
            .waiting
            .iter()
            .position(|it| contains_edits(&it.edits));
        let request = found.and_then(|index| state.waiting.remove(index));
        let request = request.ok_or_else(|| {
            "no client has requested these ipvsadm edits: use `weir ipvsadm`".to_owned()
        })?;
        Ok(request.user)
    }
}

impl Drop for Permits {
    fn drop(&mut self) {
        self.stop();
    }
}

fn lock(state: &Mutex<State>) -> MutexGuard<'_, State> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

/// Records the edits that a client requests.
///
/// # Errors
/// Returns a message if the request is invalid, or if the client is not allowed to edit services.
fn record_request(
    state: &Mutex<State>,
    client: std::os::fd::BorrowedFd<'_>,
    bytes: &[u8],
) -> Result<(), String> {
    let request = serde_json::from_slice(bytes);
    let PermitRequest { edits } =
        request.map_err(|error| format!("the request is invalid: {error}"))?;
    let mut state = lock(state);
    let user = caller::check(client, &state.node)?;
    if state.waiting.len() >= MAX_WAITING_REQUESTS {
        state.waiting.pop_front();
    }
    let received_at = Instant::now();
    state.waiting.push_back(WaitingRequest {
        edits,
        user,
        received_at,
    });
    drop(state);
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn requested_edits_are_permitted_once_and_other_edits_are_rejected() {
        if !weir_testing::require_root() {
            return;
        }
        let directory = std::env::temp_dir().join(format!("weir-permits-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        let mut permits = Permits::new(&directory);
        assert_eq!(permit_edits(&directory, &[Edit::Clear]), Ok(false));
        permits.serve(&Node::default());
        let zero = Edit::Zero(None);
        // A client that only connects, as `weir status` does, permits nothing.
        let _client = connect_to_service(&directory.join(EDITS_SOCKET)).unwrap();
        assert!(permits.take_permit(&[Edit::Clear]).is_err());
        let requested = [zero.clone(), Edit::Clear, zero.clone()];
        assert_eq!(permit_edits(&directory, &requested), Ok(true));
        for other in [
            vec![Edit::Clear, Edit::Clear],
            vec![zero.clone(), zero.clone(), Edit::Clear],
        ] {
            assert!(permits.take_permit(&other).is_err(), "{other:?}");
        }
        assert_eq!(permits.take_permit(&[Edit::Clear, zero.clone()]), Ok(0));
        assert!(
            permits.take_permit(&[zero]).is_err(),
            "a permit is valid only once"
        );
        // The keeper removed the socket for a different program, but that program did not start.
        std::fs::remove_file(directory.join(EDITS_SOCKET)).unwrap();
        permits.serve(&Node::default());
        assert_eq!(permit_edits(&directory, &[Edit::Clear]), Ok(true));
        permits.close();
        assert!(permits.take_permit(&[Edit::Clear]).is_err());
        assert_eq!(permit_edits(&directory, &[Edit::Clear]), Ok(false));
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
