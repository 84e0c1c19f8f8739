//! Notifies the service manager of startup, reload and stop (sd_notify(3)).
//!
//! Each notification is a datagram to the socket in `NOTIFY_SOCKET`. Without this variable, there is no service
//! manager, and a [`Notifier`] does nothing. The variable is not removed, because removing it is not safe in a process
//! with threads.

use std::env;
use std::ffi::OsStr;
use std::io::IoSlice;
use std::mem::MaybeUninit;
use std::os::fd::BorrowedFd;
use std::os::linux::net::SocketAddrExt;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::net::{SocketAddr, UnixDatagram};
use std::time::Duration;

use rustix::net::{
    SendAncillaryBuffer, SendAncillaryMessage, SendFlags, SocketAddrUnix, sendmsg_addr,
};

use crate::clock::{Clock, now_ns};
use crate::{Error, Result};

/// Time limit for sending. The manager's queue holds only a few messages (net.unix.max_dgram_qlen), a starting service
/// can send thousands of descriptors, and the manager stops a service that does not send `READY=1`.
const SEND_TIMEOUT: Duration = Duration::from_secs(5);

/// A notification to the service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification<'a> {
    /// The startup or reload is complete.
    Ready,
    /// A reload has started. The message includes the monotonic time, which `Type=notify-reload` requires.
    Reloading,
    /// The daemon is stopping.
    Stopping,
    /// A line for `systemctl status`; line breaks are replaced with spaces.
    Status(&'a str),
}

impl Notification<'_> {
    fn message(self, monotonic_us: u64) -> String {
        match self {
            Self::Ready => "READY=1".to_owned(),
            Self::Reloading => format!("RELOADING=1\nMONOTONIC_USEC={monotonic_us}"),
            Self::Stopping => "STOPPING=1".to_owned(),
            Self::Status(text) => format!("STATUS={}", text.replace('\n', " ")),
        }
    }
}

/// Sends notifications to the service manager, if there is one.
#[derive(Debug)]
pub struct Notifier {
    manager: Option<SocketAddr>,
}

impl Notifier {
    /// Creates a notifier for the socket in the environment variable `NOTIFY_SOCKET`.
    ///
    /// # Errors
    /// Fails if the value is neither an absolute path nor an abstract name (`@…`).
    pub fn from_env() -> Result<Self> {
        match env::var_os("NOTIFY_SOCKET") {
            Some(name) if !name.is_empty() => Self::for_socket(&name),
            _ => Ok(Self { manager: None }),
        }
    }

    /// Creates a notifier for the socket `name`, in the format of `NOTIFY_SOCKET`.
    ///
    /// # Errors
    /// See [`Notifier::from_env`].
    pub fn for_socket(name: &OsStr) -> Result<Self> {
        let call_error = |error| Error::call("NOTIFY_SOCKET", name.to_string_lossy(), error);
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
            [b'/', ..] => SocketAddr::from_pathname(name),
            _ => Err(std::io::ErrorKind::InvalidInput.into()),
        };
        Ok(Self {
            manager: Some(address.map_err(call_error)?),
        })
    }

    /// Returns whether there is a service manager.
    pub fn is_managed(&self) -> bool {
        self.manager.is_some()
    }

    /// Sends one notification.
    ///
    /// # Errors
    /// Fails if the manager's socket is closed, or its queue stays full until the time limit. The caller should log the
    /// error and continue.
    pub fn send(&self, notification: Notification<'_>) -> Result<()> {
        let Some(manager) = &self.manager else {
            return Ok(());
        };
        let message = notification.message(now_ns(Clock::Monotonic) / 1_000);
        Self::send_text(manager, &message)
    }

    /// Stores a descriptor in the manager's file descriptor store, for the next start of this service. The descriptor
    /// replaces a stored one with the same name. The name must not contain a colon.
    ///
    /// # Errors
    /// See [`Notifier::send`].
    pub fn store_descriptor(&self, name: &str, file: BorrowedFd<'_>) -> Result<()> {
        self.remove_descriptor(name)?;
        let Some(manager) = &self.manager else {
            return Ok(());
        };
        let message = format!("FDSTORE=1\nFDNAME={name}");
        let files = [file];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let mut send = || -> std::io::Result<()> {
            let address = match (manager.as_pathname(), manager.as_abstract_name()) {
                (Some(path), _) => SocketAddrUnix::new(path)?,
                (_, Some(name)) => SocketAddrUnix::new_abstract_name(name)?,
                _ => return Err(std::io::ErrorKind::InvalidInput.into()),
            };
            let parts = [IoSlice::new(message.as_bytes())];
            sendmsg_addr(
                &socket_with_timeout()?,
                &address,
                &parts,
                &mut control,
                SendFlags::NOSIGNAL,
            )?;
            Ok(())
        };
        send().map_err(|error| Error::call("sendmsg", "NOTIFY_SOCKET", error))
    }

    /// Removes a name from the manager's file descriptor store.
    ///
    /// # Errors
    /// See [`Notifier::send`].
    pub fn remove_descriptor(&self, name: &str) -> Result<()> {
        match &self.manager {
            Some(manager) => Self::send_text(manager, &format!("FDSTOREREMOVE=1\nFDNAME={name}")),
            None => Ok(()),
        }
    }

    fn send_text(manager: &SocketAddr, message: &str) -> Result<()> {
        let send = || socket_with_timeout()?.send_to_addr(message.as_bytes(), manager);
        send()
            .map(|_| ())
            .map_err(|error| Error::call("sendto", "NOTIFY_SOCKET", error))
    }
}

/// Opens a socket that blocks in send calls while the manager's queue is full.
fn socket_with_timeout() -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(SEND_TIMEOUT))?;
    Ok(socket)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::os::fd::AsFd;

    fn receive(socket: &UnixDatagram) -> String {
        let mut buffer = [0; 256];
        let length = socket.recv(&mut buffer).unwrap();
        String::from_utf8(buffer[..length].to_vec()).unwrap()
    }

    #[test]
    fn abstract_socket_receives_each_notification() {
        let name = format!("weir-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier::for_socket(OsStr::new(&format!("@{name}"))).unwrap();
        assert!(notifier.is_managed());

        notifier.send(Notification::Ready).unwrap();
        assert_eq!(receive(&manager), "READY=1");
        notifier
            .send(Notification::Status("3 services\nup"))
            .unwrap();
        assert_eq!(receive(&manager), "STATUS=3 services up");
        notifier.send(Notification::Reloading).unwrap();
        let text = receive(&manager);
        let time = text.strip_prefix("RELOADING=1\nMONOTONIC_USEC=").unwrap();
        assert!(time.parse::<u64>().unwrap() > 0);
        notifier.send(Notification::Stopping).unwrap();
        assert_eq!(receive(&manager), "STOPPING=1");
    }

    #[test]
    fn slow_manager_receives_all_messages() {
        const STORED: usize = 100;
        let name = format!("weir-slow-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier::for_socket(OsStr::new(&format!("@{name}"))).unwrap();
        let sender = std::thread::spawn(move || {
            let file = std::fs::File::open("/dev/null").unwrap();
            for number in 0..STORED {
                let name = format!("socket{number}");
                notifier.store_descriptor(&name, file.as_fd()).unwrap();
            }
            notifier.send(Notification::Ready).unwrap();
        });
        let mut received = Vec::new();
        while received.last().is_none_or(|message| message != "READY=1") {
            // Let the sender fill the queue.
            std::thread::yield_now();
            received.push(receive(&manager));
        }
        sender.join().unwrap();
        let stored = received
            .iter()
            .filter(|message| message.starts_with("FDSTORE=1"));
        assert_eq!(stored.count(), STORED);
    }

    #[test]
    fn path_without_listener_is_an_error() {
        let notifier = Notifier::for_socket(OsStr::new("/nonexistent/notify")).unwrap();
        assert!(notifier.send(Notification::Ready).is_err());
    }

    #[test]
    fn relative_path_is_rejected() {
        assert!(Notifier::for_socket(OsStr::new("notify")).is_err());
    }

    #[test]
    fn nothing_is_sent_without_a_manager() {
        let notifier = Notifier { manager: None };
        assert!(!notifier.is_managed());
        notifier.send(Notification::Stopping).unwrap();
    }
}
