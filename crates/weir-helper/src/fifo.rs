//! Creates the FIFOs that receive the state changes of virtual routers, and writes to them.
//!
//! As in keepalived, a FIFO that does not exist is created, and removed when it is no longer needed. It stays open, so
//! lines wait in it until a process reads them. A FIFO that another program created is never removed. Symbolic links
//! are not followed.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::io::{self, ErrorKind};
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::{FileTypeExt, MetadataExt};

use rustix::fs::{CWD, FileType, Gid, Mode, OFlags, Uid};
use weir_model::VirtualRouter;

use crate::state::Addresses;

/// The open FIFOs of the active configuration.
#[derive(Debug, Default)]
pub(crate) struct Fifos {
    open: BTreeMap<String, OwnedFd>,
    /// Paths for which the last operation failed, and the failure was logged.
    failed: BTreeSet<String>,
}

impl Fifos {
    /// Opens the FIFOs of the virtual routers, and creates those that do not exist. Removes those that were created for
    /// virtual routers that no longer exist.
    pub(crate) fn configure(&mut self, routers: &[VirtualRouter], addresses: &mut Addresses) {
        let fifos = routers.iter().filter_map(fifo_and_user);
        let configured: BTreeMap<&str, &str> = fifos.collect();
        self.open
            .retain(|path, _| configured.contains_key(path.as_str()));
        self.failed
            .retain(|path| configured.contains_key(path.as_str()));
        addresses.remove_fifos(&|path| !configured.contains_key(path));
        for (path, user) in configured {
            let result = self.open(path, user, addresses);
            self.log_failure(path, result);
        }
    }

    /// Writes a line to the FIFO of a virtual router, if it has one. The line is lost if the FIFO is full.
    pub(crate) fn write(&mut self, router: &VirtualRouter, line: &str, addresses: &mut Addresses) {
        let Some((path, user)) = fifo_and_user(router) else {
            return;
        };
        let open_result = self.open(path, user, addresses);
        let result = open_result.and_then(|()| {
            let file = self.open.get(path).ok_or(ErrorKind::NotFound)?;
            match rustix::io::write(file, line.as_bytes()) {
                Err(rustix::io::Errno::AGAIN) => Err(io::Error::other(
                    "it is full: no process reads it fast enough",
                )),
                result => Ok(result.map(drop)?),
            }
        });
        self.log_failure(path, result);
    }

    /// Opens a FIFO, unless it is already open and has not been replaced. Creates the FIFO if it does not exist.
    fn open(&mut self, path: &str, user: &str, addresses: &mut Addresses) -> io::Result<()> {
        let is_created = match fs::symlink_metadata(path) {
            Ok(metadata) if !metadata.file_type().is_fifo() => {
                return Err(io::Error::other("it is not a FIFO"));
            }
            Ok(metadata) => {
                let identity = Some((metadata.dev(), metadata.ino()));
                if self.open.get(path).and_then(identity_of) == identity {
                    return Ok(());
                }
                false
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {
                create(path, addresses)?;
                true
            }
            Err(error) => return Err(error),
        };
        // Opening it for reading too keeps lines while no process reads them.
        let flags = OFlags::RDWR | OFlags::NONBLOCK | OFlags::CLOEXEC | OFlags::NOFOLLOW;
        let file = rustix::fs::open(path, flags, Mode::empty())?;
        if FileType::from_raw_mode(rustix::fs::fstat(&file)?.st_mode) != FileType::Fifo {
            return Err(io::Error::other("it is not a FIFO"));
        }
        if is_created {
            change_owner(&file, path, user);
        }
        self.open.insert(path.to_owned(), file);
        Ok(())
    }

    /// Logs the first of consecutive failures.
    fn log_failure(&mut self, path: &str, result: io::Result<()>) {
        match result {
            Ok(()) => {
                self.failed.remove(path);
            }
            Err(error) if self.failed.insert(path.to_owned()) => {
                tracing::warn!(path, %error, "state changes are not written to the FIFO");
            }
            Err(_) => {}
        }
    }
}

impl Addresses {
    /// Removes the FIFOs that the helper created at the affected paths.
    pub(crate) fn remove_fifos(&mut self, is_affected: &dyn Fn(&str) -> bool) {
        let affected = self.record.fifos.iter().filter(|path| is_affected(path));
        let affected: Vec<String> = affected.cloned().collect();
        if affected.is_empty() {
            return;
        }
        for path in affected {
            let metadata = fs::symlink_metadata(&path);
            if metadata.is_ok_and(|it| it.file_type().is_fifo())
                && let Err(error) = fs::remove_file(&path)
            {
                tracing::warn!(path, %error, "failed to remove the FIFO");
            }
            self.record.fifos.remove(&path);
        }
        self.write_or_log();
    }
}

/// Returns the path of a virtual router's FIFO, and the account that owns it.
fn fifo_and_user(router: &VirtualRouter) -> Option<(&str, &str)> {
    let path = router.notify.fifo.as_deref()?;
    Some((path, router.notify.user.as_str()))
}

fn identity_of(file: &OwnedFd) -> Option<(u64, u64)> {
    let stat = rustix::fs::fstat(file).ok()?;
    Some((stat.st_dev, stat.st_ino))
}

/// Creates a FIFO that only its owner can open. Records it first, so that a crash leaves no unrecorded FIFO.
fn create(path: &str, addresses: &mut Addresses) -> io::Result<()> {
    let is_new = addresses.record.fifos.insert(path.to_owned());
    if is_new {
        addresses.write_or_log();
    }
    let mode = Mode::RUSR | Mode::WUSR;
    let created = rustix::fs::mknodat(CWD, path, FileType::Fifo, mode, 0);
    if created.is_err() {
        addresses.record.fifos.remove(path);
        addresses.write_or_log();
    }
    Ok(created?)
}

fn change_owner(file: impl AsFd, path: &str, user: &str) {
    if user == "root" {
        return;
    }
    let result = match weir_sys::account(user) {
        Some((user, group)) => {
            let (user, group) = (Uid::from_raw(user), Gid::from_raw(group));
            rustix::fs::fchown(file, Some(user), Some(group)).map_err(io::Error::from)
        }
        None => Err(io::Error::other(format!("the user {user} does not exist"))),
    };
    if let Err(error) = result {
        tracing::warn!(path, user, %error, "failed to change the owner of the FIFO");
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read;
    use std::os::unix::fs::OpenOptionsExt;
    use std::path::{Path, PathBuf};

    use super::*;
    use crate::{machine, record};

    struct Directory(PathBuf);

    impl Directory {
        fn new(test: &str) -> Self {
            let name = format!("weir-fifo-{test}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            fs::create_dir(&path).unwrap();
            Self(path)
        }

        fn fifo(&self) -> String {
            self.0.join("fifo").to_str().unwrap().to_owned()
        }

        async fn addresses(&self) -> Addresses {
            Addresses::open(&self.0, true).await.unwrap()
        }
    }

    impl Drop for Directory {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn router(fifo: &str) -> VirtualRouter {
        let text = format!(
            "[vrrp.outside]\ninterface = \"lo\"\nvirtual_router_id = 51\naddresses = [\"192.0.2.10/32\"]\n\
             notify_fifo = \"{fifo}\"\n"
        );
        let desired = machine::parse(&text, &machine::Environment).unwrap();
        desired.vrrp.into_iter().next().unwrap()
    }

    fn read(path: &str) -> String {
        let mut options = fs::OpenOptions::new();
        let flags = rustix::fs::OFlags::NONBLOCK.bits();
        let options = options.read(true).custom_flags(flags.cast_signed());
        let mut bytes = [0; 256];
        let length = options.open(path).unwrap().read(&mut bytes).unwrap();
        String::from_utf8_lossy(&bytes[..length]).into_owned()
    }

    #[tokio::test]
    async fn fifo_is_created_keeps_lines_and_is_removed() {
        let directory = Directory::new("created");
        let (path, mut fifos) = (directory.fifo(), Fifos::default());
        let (router, mut addresses) = (router(&path), directory.addresses().await);
        fifos.configure(std::slice::from_ref(&router), &mut addresses);
        let metadata = fs::symlink_metadata(&path).unwrap();
        assert!(metadata.file_type().is_fifo());
        assert_eq!(metadata.mode() & 0o777, 0o600);
        fifos.write(&router, "first\n", &mut addresses);
        fifos.write(&router, "second\n", &mut addresses);
        assert_eq!(read(&path), "first\nsecond\n");
        // The next helper adopts the FIFO.
        drop((fifos, addresses));
        let (mut fifos, mut addresses) = (Fifos::default(), directory.addresses().await);
        fifos.configure(&[router], &mut addresses);
        fifos.configure(&[], &mut addresses);
        assert!(!Path::new(&path).exists());
        assert!(record::read(&directory.0).is_empty());
    }

    #[tokio::test]
    async fn fifo_of_another_program_is_not_removed() {
        let directory = Directory::new("existing");
        let (path, mut fifos) = (directory.fifo(), Fifos::default());
        let make = || rustix::fs::mknodat(CWD, &path, FileType::Fifo, Mode::RUSR | Mode::WUSR, 0);
        make().unwrap();
        let (router, mut addresses) = (router(&path), directory.addresses().await);
        fifos.configure(std::slice::from_ref(&router), &mut addresses);
        // The program replaces the FIFO.
        fs::remove_file(&path).unwrap();
        make().unwrap();
        fifos.write(&router, "line\n", &mut addresses);
        assert_eq!(read(&path), "line\n");
        fifos.configure(&[], &mut addresses);
        addresses.remove_fifos(&|_| true);
        assert!(Path::new(&path).exists());
    }

    #[tokio::test]
    async fn symbolic_links_and_other_files_are_neither_written_nor_removed() {
        let directory = Directory::new("link");
        let (path, mut fifos) = (directory.fifo(), Fifos::default());
        let target = directory.0.join("target");
        fs::write(&target, "text").unwrap();
        std::os::unix::fs::symlink(&target, &path).unwrap();
        let (router, mut addresses) = (router(&path), directory.addresses().await);
        fifos.configure(std::slice::from_ref(&router), &mut addresses);
        fifos.write(&router, "line\n", &mut addresses);
        assert!(fifos.failed.contains(&path) && addresses.record.fifos.is_empty());
        fs::remove_file(&path).unwrap();
        fs::rename(&target, &path).unwrap();
        fifos.write(&router, "line\n", &mut addresses);
        fifos.configure(&[], &mut addresses);
        assert_eq!(fs::read_to_string(&path).unwrap(), "text");
    }
}
