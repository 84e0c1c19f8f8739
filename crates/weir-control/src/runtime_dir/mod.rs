//! Manages the runtime directory of a daemon: its lock, socket and token, and the record of the active configuration.

mod draining;
mod error;
mod namespace;
pub(crate) mod socket_group;

use std::fs;
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use tokio::net::UnixListener;
use weir_sys::{LockFile, create_private, create_private_listener, replace_file};

use crate::api::Token;
use crate::hex;
use crate::status::Draining;
use weir_runtime_dir::SocketAccess;

pub use self::draining::{DrainingRecord, RemainingConnections};
pub use self::error::Error;
pub use self::namespace::{OtherNamespace, other_namespace};
pub use weir_engine::LOCK_FILE;

/// Maximum time for a daemon to exit after its keeper has exited, and the interval between checks.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// The API's socket.
pub const SOCKET: &str = "weir.sock";

/// Length of the API socket's accept queue.
const BACKLOG: i32 = 1024;

/// Name of the API's socket before the daemon is ready.
const NEW_SOCKET: &str = "weir.sock.new";

/// A second link to the socket during an upgrade, because the successor may replace the socket.
const SOCKET_LINK: &str = "weir.sock.held";

/// The file with a token for API clients over TCP, which need one for changes.
const TOKEN: &str = "token";

/// A link to the active configuration file, for commands that run while no daemon is running.
const CONFIGURATION: &str = "configuration";

/// The files with the text of the active configuration, which can differ from the configuration file. The name depends
/// on the format (TOML or JSON). The names must not change: earlier versions use them, too, and can run before or after
/// this version.
const ACTIVE_CONFIG_FILES: [&str; 2] = ["in-force.toml", "in-force.json"];

/// Returns whether a daemon holds the directory's lock. The daemon might not be listening on its socket yet.
pub fn is_locked(runtime_dir: &Path) -> bool {
    LockFile::is_held(&runtime_dir.join(LOCK_FILE))
}

/// Returns the configuration file that the last daemon in a runtime directory used.
pub fn last_configuration(runtime_dir: &Path) -> Option<PathBuf> {
    fs::read_link(runtime_dir.join(CONFIGURATION)).ok()
}

/// Returns the file that contains the text of the configuration that the last daemon in a runtime directory used.
pub fn active_config_file(runtime_dir: &Path) -> Option<PathBuf> {
    let files = active_config_files(runtime_dir);
    files.into_iter().find(|path| path.exists())
}

/// Returns the two possible files for the text of the active configuration; at most one exists.
pub fn active_config_files(runtime_dir: &Path) -> [PathBuf; 2] {
    ACTIVE_CONFIG_FILES.map(|name| runtime_dir.join(name))
}

/// A runtime directory that only this process uses.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    /// Who may access the socket and the directory.
    access: SocketAccess,
    /// The lock; `None` = the keeper holds the lock while this process is running.
    _lock: Option<LockFile>,
}

impl RuntimeDir {
    /// Returns the directory path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates the directory if necessary and acquires its lock.
    ///
    /// # Errors
    /// [`Error::Running`] if another process holds the lock. Also fails if the directory or a file in it has the wrong
    /// owner or mode, or cannot be created.
    pub fn acquire(path: &Path) -> Result<Self, Error> {
        let lock = Self::lock(path)?;
        Ok(Self {
            path: path.to_owned(),
            access: SocketAccess::default(),
            _lock: Some(lock),
        })
    }

    /// Opens the directory of a daemon whose keeper holds the lock. The keeper may be an earlier version, which set
    /// more permissive modes.
    ///
    /// # Errors
    /// Fails if the directory or a file in it has the wrong owner or mode.
    pub fn open_with_keeper(path: &Path) -> Result<Self, Error> {
        weir_runtime_dir::prepare(path)?;
        Ok(Self {
            path: path.to_owned(),
            access: SocketAccess::default(),
            _lock: None,
        })
    }

    /// Applies access settings to the directory and the socket.
    ///
    /// # Errors
    /// Fails if the group or the mode cannot be set.
    pub(crate) fn set_access(&mut self, access: SocketAccess) -> Result<(), Error> {
        access.apply_to_directory(&self.path)?;
        self.access = access;
        let socket = self.path.join(SOCKET);
        if socket.exists() {
            access.apply_to_socket(&socket, || set_socket_group(SOCKET))?;
        }
        Ok(())
    }

    /// Creates the directory if necessary and acquires its lock. If the holder is a keeper that has just been killed,
    /// waits for at most two seconds for its daemon, which also holds the lock, to exit.
    ///
    /// # Errors
    /// See [`Self::acquire`].
    pub fn lock(path: &Path) -> Result<LockFile, Error> {
        Self::lock_for(path, std::process::id())
    }

    /// Like [`Self::lock`], but for the unprivileged keeper with the process ID `process`, which receives the
    /// descriptor.
    ///
    /// # Errors
    /// See [`Self::lock`].
    pub(crate) fn lock_for(path: &Path, process: u32) -> Result<LockFile, Error> {
        weir_runtime_dir::prepare(path)?;
        let start = Instant::now();
        loop {
            match LockFile::acquire_for(path.join(LOCK_FILE), process) {
                Err(weir_sys::Error::Locked { holder, .. }) => {
                    let has_exited = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
                    if !holder.is_some_and(has_exited) || start.elapsed() > EXIT_TIMEOUT {
                        return Err(Error::Running { holder });
                    }
                    std::thread::sleep(EXIT_POLL_INTERVAL);
                }
                other => return Ok(other?),
            }
        }
    }

    /// Listens on a socket with a temporary name. The socket of an earlier daemon stays in place until the new socket's
    /// mode is set and requests are served.
    ///
    /// # Errors
    /// Fails if the path exceeds the length limit of socket names (108 bytes), if the directory cannot be written, or
    /// if the socket's group or mode cannot be set.
    pub fn listen(&self) -> Result<UnixListener, Error> {
        let temporary = self.path.join(NEW_SOCKET);
        remove_if_present(&temporary)?;
        let listener = create_private_listener(&temporary, BACKLOG)
            .and_then(UnixListener::from_std)
            .map_err(|error| file_error(&temporary, error))?;
        self.access
            .apply_to_socket(&temporary, || set_socket_group(NEW_SOCKET))?;
        Ok(listener)
    }

    /// Sets the group of a daemon's socket, for the helper service. Rejects other files.
    ///
    /// # Errors
    /// Fails if the file is not the API's socket, or is not owned by the account.
    pub(crate) fn set_socket_group(
        directory: &Path,
        name: &str,
        account: u32,
        group: u32,
    ) -> io::Result<()> {
        if ![SOCKET, NEW_SOCKET].contains(&name) {
            return Err(io::Error::other(format!("{name} is not the API's socket")));
        }
        socket_group::set(&directory.join(name), account, group)
    }

    /// Removes the temporary socket, because this daemon will not serve requests.
    pub fn remove_temporary_socket(&self) {
        let _ = fs::remove_file(self.path.join(NEW_SOCKET));
    }

    /// Moves the temporary socket to the API's path, replacing the socket of an earlier daemon.
    ///
    /// # Errors
    /// Fails if the directory cannot be written.
    pub(crate) fn publish_socket(&self) -> Result<(), Error> {
        let path = self.path.join(SOCKET);
        fs::rename(self.path.join(NEW_SOCKET), &path).map_err(|error| file_error(&path, error))
    }

    /// Creates a second link to the socket. If a successor replaces the socket and then fails, clients could not reach
    /// this daemon without the second link.
    pub(crate) fn create_socket_link(&self) {
        self.remove_socket_link();
        if let Err(error) = fs::hard_link(self.path.join(SOCKET), self.path.join(SOCKET_LINK)) {
            tracing::warn!(%error, "failed to create a second link to the socket");
        }
    }

    /// Restores the socket from the second link.
    ///
    /// # Errors
    /// Fails if the directory cannot be written.
    pub(crate) fn restore_socket(&self) -> Result<(), Error> {
        let (link, path) = (self.path.join(SOCKET_LINK), self.path.join(SOCKET));
        if link.exists() {
            // If both links refer to the same file, the rename removes neither, so remove the second link.
            fs::rename(&link, &path).map_err(|error| file_error(&path, error))?;
            self.remove_socket_link();
        }
        Ok(())
    }

    /// Returns a record with which this process reports that it is draining.
    pub(crate) fn draining_record(&self) -> DrainingRecord {
        DrainingRecord::new(&self.path)
    }

    /// Returns the draining daemons that have clients.
    pub fn draining(&self) -> Vec<Draining> {
        draining::read_all(&self.path)
    }

    /// Returns the number of a server's active connections in draining daemons.
    pub(crate) fn draining_connections(&self, pool: &str, server: &str) -> u64 {
        draining::connections(&self.path, pool, server)
    }

    /// Removes the second link. Failures are ignored, because they are harmless.
    pub(crate) fn remove_socket_link(&self) {
        let _ = fs::remove_file(self.path.join(SOCKET_LINK));
    }

    /// Returns the token for the API over TCP. Reads the token file, or creates one that only its owner can read.
    ///
    /// # Errors
    /// Fails if the file cannot be read or written, or contains no valid token.
    pub fn token(&self) -> Result<Token, Error> {
        let path = self.path.join(TOKEN);
        let content = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                new_token(&path).map_err(|error| file_error(&path, error))?
            }
            Err(error) => return Err(file_error(&path, error)),
        };
        let invalid = || {
            let length = Token::MIN_LENGTH;
            let reason =
                format!("the token must have at least {length} printable ASCII characters");
            file_error(&path, io::Error::new(io::ErrorKind::InvalidData, reason))
        };
        Token::new(content.trim()).ok_or_else(invalid)
    }

    /// Records the active configuration file's path and the text that was loaded from it.
    ///
    /// # Errors
    /// Fails if the directory cannot be written.
    pub(crate) fn record_configuration(
        &self,
        configuration: &Path,
        text: &str,
    ) -> Result<(), Error> {
        // Determine the format from the text, because it can differ from the format of the configuration file.
        let is_json = text.trim_start().starts_with('{');
        let [name, unused_name] = if is_json {
            [ACTIVE_CONFIG_FILES[1], ACTIVE_CONFIG_FILES[0]]
        } else {
            ACTIVE_CONFIG_FILES
        };
        let text_file = self.path.join(name);
        replace_file(&text_file, text.as_bytes()).map_err(|error| file_error(&text_file, error))?;
        remove_if_present(&self.path.join(unused_name))?;
        let link = self.path.join(CONFIGURATION);
        if fs::read_link(&link).is_ok_and(|target| target == configuration) {
            return Ok(());
        }
        let temporary = self.path.join("configuration.new");
        remove_if_present(&temporary)?;
        std::os::unix::fs::symlink(configuration, &temporary)
            .map_err(|error| file_error(&temporary, error))?;
        fs::rename(&temporary, &link).map_err(|error| file_error(&link, error))
    }

    /// Removes all state files, as a reboot does, but keeps the locks. Returns the number of removed files.
    ///
    /// # Errors
    /// Fails if the directory cannot be written.
    pub fn remove_state_files(&self) -> Result<usize, Error> {
        Ok(weir_runtime_dir::remove_state_files(&self.path)?)
    }

    /// Removes the socket, so clients' requests fail immediately.
    ///
    /// # Errors
    /// Fails if the directory cannot be written.
    pub fn remove_socket(&self) -> Result<(), Error> {
        remove_if_present(&self.path.join(SOCKET))
    }
}

/// Makes the helper service set the group of a socket that this process has created. Fails if there is no helper
/// service.
fn set_socket_group(name: &str) -> io::Result<()> {
    match socket_group::service() {
        Some(service) => socket_group::request(&service, name),
        None => Err(io::ErrorKind::PermissionDenied.into()),
    }
}

/// Generates 256 random bits in hexadecimal and writes them to `path`. The file gets its final name only when it is
/// complete, because later daemons would keep using a partial token.
fn new_token(path: &Path) -> io::Result<String> {
    let mut token_bytes = [0; 32];
    fs::File::open("/dev/urandom")?.read_exact(&mut token_bytes)?;
    let text = hex::encode(&token_bytes);
    let temporary = path.with_extension("new");
    create_private(&temporary)?.write_all(text.as_bytes())?;
    fs::rename(&temporary, path)?;
    Ok(text)
}

fn remove_if_present(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file_error(path, error)),
        _ => Ok(()),
    }
}

fn file_error(path: &Path, source: io::Error) -> Error {
    Error::File {
        path: path.to_owned(),
        source,
    }
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt;

    use super::*;

    #[tokio::test]
    async fn lock_is_exclusive_and_stale_socket_is_replaced() {
        let path = std::env::temp_dir().join(format!("weir-runtime-{}", std::process::id()));
        let first = RuntimeDir::acquire(&path).unwrap();
        let holder = Some(std::process::id());
        match RuntimeDir::acquire(&path) {
            Err(Error::Running { holder: found }) => assert_eq!(found, holder),
            other => panic!("{other:?}"),
        }
        drop(first.listen().unwrap());
        first.publish_socket().unwrap();
        drop(first);
        let second = RuntimeDir::acquire(&path).unwrap();
        let _listener = second.listen().unwrap();
        let socket = path.join(SOCKET);
        let result = std::os::unix::net::UnixStream::connect(&socket);
        assert!(result.is_err(), "the socket belongs to the first daemon");
        second.publish_socket().unwrap();
        assert_eq!(
            fs::metadata(&socket).unwrap().permissions().mode() & 0o777,
            0o600
        );
        std::os::unix::net::UnixStream::connect(&socket).unwrap();
        for configuration in ["/etc/a.toml", "/etc/b.json", "/etc/c.toml"] {
            second
                .record_configuration(Path::new(configuration), configuration)
                .unwrap();
            let recorded = last_configuration(&path);
            assert_eq!(recorded.as_deref(), Some(Path::new(configuration)));
            let text = fs::read_to_string(active_config_file(&path).unwrap()).unwrap();
            assert_eq!(text, configuration);
        }
        // The file name depends on the text's format rather than on the configuration file's.
        for (text, name) in [
            ("{}", ACTIVE_CONFIG_FILES[1]),
            ("[node]\n", ACTIVE_CONFIG_FILES[0]),
        ] {
            second
                .record_configuration(Path::new("/etc/c.toml"), text)
                .unwrap();
            assert_eq!(active_config_file(&path), Some(path.join(name)));
        }
        second.remove_socket().unwrap();
        assert!(!socket.exists());
        fs::remove_dir_all(&path).unwrap();
    }
}
