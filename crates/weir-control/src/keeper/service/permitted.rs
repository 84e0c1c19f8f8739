//! Manages the programs that may be started as root.
//!
//! These are the file of this process (the helper service, or a keeper that runs as root), and files that root has
//! permitted with `weir upgrade`. An unprivileged daemon or its keeper requests the start, so the kernel must confirm
//! that the process that permits a program is root.

use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use weir_runtime_dir::UPGRADE_SOCKET;
use weir_sys::ServiceSocket;

use super::message::{FromService, ToService};
use crate::keeper::error::Error;
use crate::keeper::helper;

/// Maximum number of programs that root has permitted; the oldest program is removed when a new one is added.
const MAX_PERMITTED: usize = 16;
/// Time limit for a client to send its message.
const MESSAGE_TIMEOUT: Duration = Duration::from_secs(2);

/// Programs that may be started as root.
#[derive(Debug)]
pub(super) struct Permitted {
    own_program: PathBuf,
    others: Vec<PathBuf>,
}

impl Permitted {
    /// Permits only this process's own file.
    ///
    /// # Errors
    /// Fails if the path of this process's file is unknown.
    pub(super) fn new() -> Result<Self, Error> {
        let own_program = std::env::current_exe().map_err(|source| Error::Program {
            path: "/proc/self/exe".into(),
            source,
        })?;
        // The suffix means that a package update has replaced the file (proc(5)).
        let name = own_program.to_string_lossy();
        let own_program = name.strip_suffix(" (deleted)").unwrap_or(&name);
        Ok(Self {
            own_program: PathBuf::from(own_program),
            others: Vec::new(),
        })
    }

    /// Permits a program. Links are resolved, because another account could change a link later.
    fn add(&mut self, program: &Path) -> Result<(), String> {
        let program = helper::check_program(program)?;
        self.others.retain(|other| *other != program);
        if self.others.len() >= MAX_PERMITTED {
            self.others.remove(0);
        }
        self.others.push(program);
        Ok(())
    }

    /// Returns the path to a permitted program, with links resolved.
    fn check(&self, program: &Path) -> Result<PathBuf, String> {
        let path = helper::check_program(program)?;
        if self.own_program != path && !self.others.contains(&path) {
            return Err(format!(
                "root has not permitted {}: run `weir upgrade` as root",
                program.display()
            ));
        }
        Ok(path)
    }
}

/// The permitted programs, shared with the threads that respond to clients.
pub(super) type SharedPermitted = Arc<Mutex<Permitted>>;

/// Permits a program. Returns the response to the client.
pub(super) fn permit_program(permitted: &Mutex<Permitted>, program: &Path) -> FromService {
    let mut permitted = permitted.lock().unwrap_or_else(PoisonError::into_inner);
    match permitted.add(program) {
        Ok(()) => FromService::Permitted,
        Err(reason) => FromService::Refused { reason },
    }
}

/// Returns the path to a permitted program, with links resolved.
///
/// # Errors
/// Returns a message if root has not permitted the program, or if another user can change or replace it.
pub(super) fn check(permitted: &Mutex<Permitted>, program: &Path) -> Result<PathBuf, String> {
    let permitted = permitted.lock().unwrap_or_else(PoisonError::into_inner);
    permitted.check(program)
}

/// The socket in the runtime directory through which root permits programs. Used by a keeper that runs as root.
#[derive(Debug)]
pub(in crate::keeper) struct PermitSocket {
    path: PathBuf,
    permitted: SharedPermitted,
    socket: Option<Arc<ServiceSocket>>,
}

impl PermitSocket {
    /// Permits only this process's own file; [`Self::serve`] opens the socket.
    ///
    /// # Errors
    /// Fails if the path of this process's file is unknown.
    pub(in crate::keeper) fn new(runtime_dir: &Path) -> Result<Self, Error> {
        Ok(Self {
            path: runtime_dir.join(UPGRADE_SOCKET),
            permitted: Arc::new(Mutex::new(Permitted::new()?)),
            socket: None,
        })
    }

    /// Listens on the socket, unless this has already been done. Recreates the socket if it was removed.
    pub(in crate::keeper) fn serve(&mut self) {
        if self.socket.as_ref().is_some_and(|socket| socket.has_name()) {
            return;
        }
        self.stop();
        let socket = match ServiceSocket::listen_in_shared(&self.path, None) {
            Ok(socket) => Arc::new(socket),
            Err(error) => {
                tracing::warn!(%error, "`weir upgrade` cannot permit a new program");
                return;
            }
        };
        self.socket = Some(Arc::clone(&socket));
        let permitted = Arc::clone(&self.permitted);
        let runtime_dir = self.path.parent().map(Path::to_owned).unwrap_or_default();
        std::thread::spawn(move || {
            socket.serve(MESSAGE_TIMEOUT, |_, peer, bytes| {
                let response = match serde_json::from_slice(bytes) {
                    Ok(ToService::Permit { program }) if peer.user == 0 => {
                        match permit_program(&permitted, &program) {
                            // If the daemon runs as root, its keeper starts every program that root specifies.
                            FromService::Refused { .. }
                                if weir_runtime_dir::owning_account(&runtime_dir).is_none() =>
                            {
                                FromService::Permitted
                            }
                            response => response,
                        }
                    }
                    Ok(_) | Err(_) => FromService::Refused {
                        reason: format!("user {} is not permitted to request this", peer.user),
                    },
                };
                serde_json::to_vec(&response).unwrap_or_default()
            });
        });
    }

    /// Returns the path to a permitted program, with links resolved.
    ///
    /// # Errors
    /// Returns a message if root has not permitted the program, or if another user can change or replace it.
    pub(in crate::keeper) fn check(&self, program: &Path) -> Result<PathBuf, String> {
        check(&self.permitted, program)
    }

    fn stop(&mut self) {
        if let Some(socket) = self.socket.take() {
            socket.stop();
            if socket.has_name() {
                let _ = std::fs::remove_file(&self.path);
            }
        }
    }
}

impl Drop for PermitSocket {
    fn drop(&mut self) {
        self.stop();
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::keeper::permit;

    #[test]
    fn only_programs_that_root_has_permitted_are_accepted() {
        if !rustix::process::geteuid().is_root() {
            eprintln!("skipped: needs root");
            return;
        }
        let directory = std::env::temp_dir().join(format!("weir-permit-{}", std::process::id()));
        let _ = std::fs::remove_dir_all(&directory);
        std::fs::create_dir(&directory).unwrap();
        let mut socket = PermitSocket::new(&directory).unwrap();
        socket.serve();
        let shell = Path::new("/bin/sh");
        let error = socket.check(shell).unwrap_err();
        assert!(error.contains("root has not permitted /bin/sh"), "{error}");
        let path = directory.join(UPGRADE_SOCKET);
        permit(&path, shell).unwrap();
        assert_eq!(socket.check(shell), Ok(shell.canonicalize().unwrap()));
        // A keeper of an earlier version removes the socket.
        std::fs::remove_file(&path).unwrap();
        socket.serve();
        permit(&path, Path::new("/bin/cat")).unwrap();
        assert!(socket.check(Path::new("/bin/cat")).is_ok());
        drop(socket);
        assert!(!path.exists());
        std::fs::remove_dir_all(&directory).unwrap();
    }
}
