//! sd_notify(3): telling the service manager about start, reload and stop.
//!
//! One datagram per notification to the socket named by `NOTIFY_SOCKET`. Without
//! that variable there is no manager, and a [`Notifier`] does nothing. The
//! variable is only read; it is never removed, since that would not be safe in a
//! process with threads.

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

/// How long a manager may take to read. Its queue holds a few messages (net.unix.max_dgram_qlen), a start may send
/// thousands of descriptors, and a manager that misses `READY=1` ends the service.
const PATIENCE: Duration = Duration::from_secs(5);

/// What can be said to the service manager.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Notification<'a> {
    /// Start or reload is complete.
    Ready,
    /// A reload has begun; carries the monotonic time, which `Type=notify-reload` needs.
    Reloading,
    /// The daemon is stopping.
    Stopping,
    /// One line for `systemctl status`; line breaks become spaces.
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

/// The way to the service manager, or to nowhere.
#[derive(Debug)]
pub struct Notifier {
    manager: Option<SocketAddr>,
}

impl Notifier {
    /// From `NOTIFY_SOCKET` of the environment.
    ///
    /// # Errors
    /// The variable is set to something that is neither an absolute path nor an
    /// abstract name (`@…`).
    pub fn from_env() -> Result<Self> {
        match env::var_os("NOTIFY_SOCKET") {
            Some(name) if !name.is_empty() => Self::to(&name),
            _ => Ok(Self { manager: None }),
        }
    }

    /// To the socket `name`, in the form of `NOTIFY_SOCKET`.
    ///
    /// # Errors
    /// As [`Notifier::from_env`].
    pub fn to(name: &OsStr) -> Result<Self> {
        let failed = |e| Error::call("NOTIFY_SOCKET", name.to_string_lossy(), e);
        let address = match name.as_bytes() {
            [b'@', rest @ ..] => SocketAddr::from_abstract_name(rest),
            [b'/', ..] => SocketAddr::from_pathname(name),
            _ => Err(std::io::ErrorKind::InvalidInput.into()),
        };
        Ok(Self {
            manager: Some(address.map_err(failed)?),
        })
    }

    /// Whether a service manager listens.
    pub fn is_managed(&self) -> bool {
        self.manager.is_some()
    }

    /// Sends one notification.
    ///
    /// # Errors
    /// The manager's socket is gone, or full for seconds. Nothing else depends on it: log and go on.
    pub fn send(&self, notification: Notification<'_>) -> Result<()> {
        let Some(manager) = &self.manager else {
            return Ok(());
        };
        let message = notification.message(now_ns(Clock::Monotonic) / 1_000);
        Self::send_text(manager, &message)
    }

    /// Has the manager hold a descriptor under a name without colons, for this service's next start; in place of one
    /// that it holds under that name.
    ///
    /// # Errors
    /// As [`Notifier::send`].
    pub fn store(&self, name: &str, file: BorrowedFd<'_>) -> Result<()> {
        self.forget(name)?;
        let Some(manager) = &self.manager else {
            return Ok(());
        };
        let message = format!("FDSTORE=1\nFDNAME={name}");
        let files = [file];
        let mut space = [MaybeUninit::uninit(); rustix::cmsg_space!(ScmRights(1))];
        let mut control = SendAncillaryBuffer::new(&mut space);
        control.push(SendAncillaryMessage::ScmRights(&files));
        let mut send = || -> std::io::Result<()> {
            let to = match (manager.as_pathname(), manager.as_abstract_name()) {
                (Some(path), _) => SocketAddrUnix::new(path)?,
                (_, Some(name)) => SocketAddrUnix::new_abstract_name(name)?,
                _ => return Err(std::io::ErrorKind::InvalidInput.into()),
            };
            let parts = [IoSlice::new(message.as_bytes())];
            sendmsg_addr(&patient()?, &to, &parts, &mut control, SendFlags::NOSIGNAL)?;
            Ok(())
        };
        send().map_err(|e| Error::call("sendmsg", "NOTIFY_SOCKET", e))
    }

    /// Has the manager let go of what it holds under a name.
    ///
    /// # Errors
    /// As [`Notifier::send`].
    pub fn forget(&self, name: &str) -> Result<()> {
        match &self.manager {
            Some(manager) => Self::send_text(manager, &format!("FDSTOREREMOVE=1\nFDNAME={name}")),
            None => Ok(()),
        }
    }

    fn send_text(manager: &SocketAddr, message: &str) -> Result<()> {
        let send = || patient()?.send_to_addr(message.as_bytes(), manager);
        send()
            .map(|_| ())
            .map_err(|e| Error::call("sendto", "NOTIFY_SOCKET", e))
    }
}

/// A socket that waits for a place in the manager's queue.
fn patient() -> std::io::Result<UnixDatagram> {
    let socket = UnixDatagram::unbound()?;
    socket.set_write_timeout(Some(PATIENCE))?;
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
    fn abstract_socket_receives_every_kind() {
        let name = format!("weir-notify-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier::to(OsStr::new(&format!("@{name}"))).unwrap();
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
    fn slow_manager_receives_every_message() {
        const STORED: usize = 100;
        let name = format!("weir-slow-{}", std::process::id());
        let address = SocketAddr::from_abstract_name(&name).unwrap();
        let manager = UnixDatagram::bind_addr(&address).unwrap();
        let notifier = Notifier::to(OsStr::new(&format!("@{name}"))).unwrap();
        let sends = std::thread::spawn(move || {
            let file = std::fs::File::open("/dev/null").unwrap();
            for number in 0..STORED {
                let name = format!("socket{number}");
                notifier.store(&name, file.as_fd()).unwrap();
            }
            notifier.send(Notification::Ready).unwrap();
        });
        let mut heard = Vec::new();
        while heard.last().is_none_or(|it| it != "READY=1") {
            // A queue's places are soon taken.
            std::thread::yield_now();
            heard.push(receive(&manager));
        }
        sends.join().unwrap();
        let stored = heard.iter().filter(|it| it.starts_with("FDSTORE=1"));
        assert_eq!(stored.count(), STORED);
    }

    #[test]
    fn path_without_listener_is_an_error() {
        let notifier = Notifier::to(OsStr::new("/nonexistent/notify")).unwrap();
        assert!(notifier.send(Notification::Ready).is_err());
    }

    #[test]
    fn relative_names_are_refused() {
        assert!(Notifier::to(OsStr::new("notify")).is_err());
    }

    #[test]
    fn without_a_manager_nothing_is_sent() {
        let notifier = Notifier { manager: None };
        assert!(!notifier.is_managed());
        notifier.send(Notification::Stopping).unwrap();
    }
}
