//! The runtime directory of a daemon: its lock, its socket, and a link to the active configuration.

use std::fs;
use std::io::{self, Read, Write};
use std::os::fd::OwnedFd;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use rustix::fs::{Mode, fchmod};
use rustix::net::{
    AddressFamily, SocketAddrUnix, SocketFlags, SocketType, bind, listen, socket_with,
};
use tokio::net::UnixListener;
use weir_sys::{LockFile, create_private, replace_file};

use super::Error;
use super::draining::{self, DrainingRecord};
use crate::api::Token;
use crate::status::Draining;
use weir_runtime_dir::SocketAccess;

/// How long a daemon may take to die after its keeper, and how often that is looked at.
const EXIT_TIMEOUT: Duration = Duration::from_secs(2);
const EXIT_POLL_INTERVAL: Duration = Duration::from_millis(5);

/// Held by the daemon as long as it lives.
pub const LOCK: &str = "lock";

/// The API's socket.
pub const SOCKET: &str = "weir.sock";

/// A daemon's that is not ready.
const NEW_SOCKET: &str = "weir.sock.new";

/// The same socket while a successor may put its own in its place.
const SOCKET_LINK: &str = "weir.sock.held";

/// What a client of the API over TCP shows before it may change anything.
const TOKEN: &str = "token";

/// A link to the active configuration, for commands while no daemon runs.
const CONFIGURATION: &str = "configuration";

/// The active text, from which the file may differ; named by its language.
const TEXTS: [&str; 2] = ["in-force.toml", "in-force.json"];

/// The active configuration of the last daemon of a runtime directory.
pub fn last_configuration(runtime_dir: &Path) -> Option<PathBuf> {
    fs::read_link(runtime_dir.join(CONFIGURATION)).ok()
}

/// A file with the active text of the last daemon of a runtime directory.
pub fn last_text(runtime_dir: &Path) -> Option<PathBuf> {
    let texts = TEXTS.map(|name| runtime_dir.join(name));
    texts.into_iter().find(|path| path.exists())
}

/// A runtime directory that is ours until dropped.
#[derive(Debug)]
pub struct RuntimeDir {
    path: PathBuf,
    /// Of the socket, and of the way to it.
    access: SocketAccess,
    /// Without one the keeper holds it, for as long as this process lives.
    _lock: Option<LockFile>,
}

impl RuntimeDir {
    /// Makes the directory if need be and takes its lock.
    ///
    /// # Errors
    /// [`Error::Running`] when another daemon holds it.
    pub fn take(path: &Path) -> Result<Self, Error> {
        let lock = Self::lock(path)?;
        Ok(Self {
            path: path.to_owned(),
            access: SocketAccess::default(),
            _lock: Some(lock),
        })
    }

    /// Of a daemon whose keeper has the lock. The keeper may be an earlier build's, which left wider modes.
    ///
    /// # Errors
    /// The directory, or what it holds, is not what it must be.
    pub fn kept(path: &Path) -> Result<Self, Error> {
        weir_runtime_dir::prepare(path)?;
        Ok(Self {
            path: path.to_owned(),
            access: SocketAccess::default(),
            _lock: None,
        })
    }

    /// Lets those through to the socket who may use it from now on.
    ///
    /// # Errors
    /// The kernel refuses the group.
    pub fn set_access(&mut self, access: SocketAccess) -> Result<(), Error> {
        access.open_directory(&self.path)?;
        self.access = access;
        let socket = self.path.join(SOCKET);
        if socket.exists() {
            access.open_socket(&socket)?;
        }
        Ok(())
    }

    /// Makes the directory if need be and takes its lock. That of a keeper which was killed a moment ago is waited for:
    /// its daemon, which holds it too, dies after it.
    ///
    /// # Errors
    /// [`Error::Running`] when another process holds it.
    pub fn lock(path: &Path) -> Result<LockFile, Error> {
        weir_runtime_dir::prepare(path)?;
        let begun = Instant::now();
        loop {
            match LockFile::acquire(path.join(LOCK)) {
                Err(weir_sys::Error::Locked { holder, .. }) => {
                    let gone = |pid: u32| !Path::new(&format!("/proc/{pid}")).exists();
                    if !holder.is_some_and(gone) || begun.elapsed() > EXIT_TIMEOUT {
                        return Err(Error::Running { holder });
                    }
                    std::thread::sleep(EXIT_POLL_INTERVAL);
                }
                other => return Ok(other?),
            }
        }
    }

    /// Listens on a socket that no client finds yet: until its mode is right, and requests are answered, a former
    /// daemon's is there.
    ///
    /// # Errors
    /// The path is longer than a socket's name may be (108 bytes), or cannot be written.
    pub fn listen(&self) -> Result<UnixListener, Error> {
        let made = self.path.join(NEW_SOCKET);
        remove(&made)?;
        let listener = private_listener(&made).map_err(|e| file(&made, e))?;
        self.access.open_socket(&made)?;
        Ok(listener)
    }

    /// Removes that socket: no daemon will answer.
    pub fn withdraw(&self) {
        let _ = fs::remove_file(self.path.join(NEW_SOCKET));
    }

    /// Puts that socket in place of a former daemon's, dead or alive.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn publish_socket(&self) -> Result<(), Error> {
        let path = self.path.join(SOCKET);
        fs::rename(self.path.join(NEW_SOCKET), &path).map_err(|e| file(&path, e))
    }

    /// Gives the socket a second name, for the case that a successor which fails has put its own in its place. Without
    /// one that case costs the way to this daemon, and nothing else.
    pub fn keep_socket_link(&self) {
        self.remove_socket_link();
        if let Err(error) = fs::hard_link(self.path.join(SOCKET), self.path.join(SOCKET_LINK)) {
            tracing::warn!(%error, "the socket could not be held");
        }
    }

    /// Puts the socket that is held back in its place.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn restore_socket(&self) -> Result<(), Error> {
        let (held, path) = (self.path.join(SOCKET_LINK), self.path.join(SOCKET));
        if held.exists() {
            // Of two names of one file it takes away neither.
            fs::rename(&held, &path).map_err(|e| file(&path, e))?;
            self.remove_socket_link();
        }
        Ok(())
    }

    /// For a daemon that was succeeded.
    pub fn draining_record(&self) -> DrainingRecord {
        DrainingRecord::new(&self.path)
    }

    /// Daemons before this one that still have clients.
    pub fn draining(&self) -> Vec<Draining> {
        draining::all(&self.path)
    }

    /// The socket needs its second name no more. One that stays does no harm.
    pub fn remove_socket_link(&self) {
        let _ = fs::remove_file(self.path.join(SOCKET_LINK));
    }

    /// The token of the API over TCP: what the directory holds, or a new one, for the owner alone to read.
    ///
    /// # Errors
    /// The file cannot be read or written, or holds no token.
    pub fn token(&self) -> Result<Token, Error> {
        let path = self.path.join(TOKEN);
        let held = match fs::read_to_string(&path) {
            Ok(text) => text,
            Err(error) if error.kind() == io::ErrorKind::NotFound => {
                new_token(&path).map_err(|e| file(&path, e))?
            }
            Err(error) => return Err(file(&path, error)),
        };
        let unfit = || {
            let shortest = Token::SHORTEST;
            let why = format!("a token has at least {shortest} characters");
            file(&path, io::Error::new(io::ErrorKind::InvalidData, why))
        };
        Token::new(held.trim()).ok_or_else(unfit)
    }

    /// Records the active file and its text.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn record_configuration(&self, configuration: &Path, text: &str) -> Result<(), Error> {
        // By the text: it may have come without a file, in the other language.
        let json = text.trim_start().starts_with('{');
        let [own, other] = if json { [TEXTS[1], TEXTS[0]] } else { TEXTS };
        let kept = self.path.join(own);
        replace_file(&kept, text.as_bytes()).map_err(|e| file(&kept, e))?;
        remove(&self.path.join(other))?;
        let link = self.path.join(CONFIGURATION);
        if fs::read_link(&link).is_ok_and(|known| known == configuration) {
            return Ok(());
        }
        let made = self.path.join("configuration.new");
        remove(&made)?;
        std::os::unix::fs::symlink(configuration, &made).map_err(|e| file(&made, e))?;
        fs::rename(&made, &link).map_err(|e| file(&link, e))
    }

    /// Removes everything that is remembered there, as a boot would; locks stay. Returns how many files that were.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn forget(&self) -> Result<usize, Error> {
        Ok(weir_runtime_dir::forget(&self.path)?)
    }

    /// Takes the socket away, so that clients see at once that there is no daemon.
    ///
    /// # Errors
    /// The directory cannot be written.
    pub fn close(&self) -> Result<(), Error> {
        remove(&self.path.join(SOCKET))
    }
}

/// A socket whose file has mode 0600 from the start: bind(2) gives it the mode of the socket itself
/// (net/unix/af_unix.c).
fn private_listener(path: &Path) -> io::Result<UnixListener> {
    const BACKLOG: i32 = 1024;
    let flags = SocketFlags::CLOEXEC | SocketFlags::NONBLOCK;
    let socket: OwnedFd = socket_with(AddressFamily::UNIX, SocketType::STREAM, flags, None)?;
    fchmod(&socket, Mode::RUSR | Mode::WUSR)?;
    bind(&socket, &SocketAddrUnix::new(path)?)?;
    listen(&socket, BACKLOG)?;
    UnixListener::from_std(socket.into())
}

/// 256 random bits in hexadecimal. Made under another name, as a half-written token would stay for ever.
fn new_token(path: &Path) -> io::Result<String> {
    let mut bits = [0; 32];
    fs::File::open("/dev/urandom")?.read_exact(&mut bits)?;
    let text: String = bits.iter().map(|byte| format!("{byte:02x}")).collect();
    let made = path.with_extension("new");
    create_private(&made)?.write_all(text.as_bytes())?;
    fs::rename(&made, path)?;
    Ok(text)
}

fn remove(path: &Path) -> Result<(), Error> {
    match fs::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(file(path, error)),
        _ => Ok(()),
    }
}

fn file(path: &Path, source: io::Error) -> Error {
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
    async fn one_daemon_a_directory_and_a_dead_ones_socket_is_replaced() {
        let path = std::env::temp_dir().join(format!("weir-runtime-{}", std::process::id()));
        let first = RuntimeDir::take(&path).unwrap();
        let holder = Some(std::process::id());
        match RuntimeDir::take(&path) {
            Err(Error::Running { holder: found }) => assert_eq!(found, holder),
            other => panic!("{other:?}"),
        }
        drop(first.listen().unwrap());
        first.publish_socket().unwrap();
        drop(first);
        let second = RuntimeDir::take(&path).unwrap();
        let _listener = second.listen().unwrap();
        let socket = path.join(SOCKET);
        let refused = std::os::unix::net::UnixStream::connect(&socket);
        assert!(refused.is_err(), "it is the first one's");
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
            let noted = last_configuration(&path);
            assert_eq!(noted.as_deref(), Some(Path::new(configuration)));
            let text = fs::read_to_string(last_text(&path).unwrap()).unwrap();
            assert_eq!(text, configuration);
        }
        // A text in another language than the file's, as the API takes it, is read again as what it is.
        for (text, name) in [("{}", TEXTS[1]), ("[node]\n", TEXTS[0])] {
            second
                .record_configuration(Path::new("/etc/c.toml"), text)
                .unwrap();
            assert_eq!(last_text(&path), Some(path.join(name)));
        }
        second.close().unwrap();
        assert!(!socket.exists());
        fs::remove_dir_all(&path).unwrap();
    }
}
