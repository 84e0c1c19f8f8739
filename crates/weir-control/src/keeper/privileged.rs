//! Starts the privileged processes: this keeper with the rights of root, or the helper service for a keeper that a
//! service manager has started without rights.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use weir_engine::Paths;
use weir_runtime_dir::Sharing;

use super::announcer::Announcer;
use super::error::Error;
use super::facts::Facts;
use super::helper::{self, Kind};
use super::service::{self, PermitSocket, ServiceClient, Stopping};
use super::vrrp::VrrpProcesses;
use crate::runtime_dir::RuntimeDir;

/// Starts privileged processes, directly or through the helper service.
#[derive(Debug)]
pub(super) enum Privileged {
    /// This process; without rights it starts no helpers.
    Own {
        vrrp: VrrpProcesses,
        announcer: Announcer,
        paths: Paths,
        /// The configuration file, for helpers; the keeper does not read it.
        configuration: PathBuf,
        /// The owner of the runtime directory before an upgrade.
        owner: Option<u32>,
        /// How root shared it with the owner.
        sharing: Option<Sharing>,
        /// A daemon of this keeper had no rights.
        confined: bool,
        /// The programs that root has named.
        permits: PermitSocket,
    },
    /// The helper service.
    Service {
        client: ServiceClient,
        stopping: Option<Stopping>,
    },
}

/// The channels of a daemon to its helpers, and what it must know.
#[derive(Debug, Default)]
pub(super) struct Attendance {
    pub(super) engine: Option<OwnedFd>,
    pub(super) helper: Option<OwnedFd>,
    /// From the helper service.
    pub(super) facts: Option<Facts>,
}

impl Privileged {
    /// Returns it with the lock of the runtime directory. Must be called inside a tokio runtime, by a thread that lives
    /// as long as the process.
    ///
    /// # Errors
    /// Another process has the lock, or the helper service does not answer.
    pub(super) fn open(paths: &Paths, configuration: &Path) -> Result<(Self, OwnedFd), Error> {
        let is_root = rustix::process::geteuid().is_root();
        if let Some(socket) = service::configured_socket().filter(|_| !is_root) {
            let client = ServiceClient::connect(&socket)?;
            let lock = client.lock()?;
            let stopping = None;
            return Ok((Self::Service { client, stopping }, lock));
        }
        let lock = RuntimeDir::lock(&paths.runtime_dir)?;
        let lock = lock.as_fd().try_clone_to_owned();
        let lock = lock.map_err(|source| Error::Signals { source })?;
        // Of a keeper that was killed.
        weir_runtime_dir::return_to_root(&paths.runtime_dir);
        let mut permits = PermitSocket::new(&paths.runtime_dir)?;
        if is_root {
            permits.serve();
        }
        let own = Self::Own {
            permits,
            vrrp: VrrpProcesses::new(&paths.runtime_dir, configuration),
            announcer: Announcer::new(&paths.runtime_dir, configuration),
            paths: paths.clone(),
            configuration: configuration.to_owned(),
            owner: None,
            sharing: None,
            confined: false,
        };
        Ok((own, lock))
    }

    /// The channels of a new daemon of `program` to its helpers.
    ///
    /// # Errors
    /// The limit of open files is reached, or the helper service refuses the program.
    pub(super) fn attend(&self, program: &Path) -> Result<Attendance, Error> {
        match self {
            Self::Own {
                configuration,
                paths,
                ..
            } => {
                let attend = |kind| helper::attend(kind, program, configuration, paths);
                Ok(Attendance {
                    engine: attend(Kind::Engine)?,
                    helper: attend(Kind::Files)?,
                    facts: None,
                })
            }
            Self::Service { client, .. } => {
                let facts = client.facts(program);
                let facts = facts.map_err(|reason| Error::Service { reason })?;
                Ok(Attendance {
                    engine: Some(client.attend(Kind::Engine, program)?),
                    helper: Some(client.attend(Kind::Files, program)?),
                    facts: Some(facts),
                })
            }
        }
    }

    /// Whether the last daemon had given up its rights, or has never had any. What it has recorded must not lead to
    /// more.
    pub(super) fn is_confined(&self, has_daemon: bool) -> bool {
        match self {
            Self::Own { owner, paths, .. } => {
                let is_upgrade = owner.is_some() && has_daemon;
                is_upgrade || weir_runtime_dir::account_that_owns(&paths.runtime_dir).is_some()
            }
            Self::Service { .. } => true,
        }
    }

    /// Prepares the runtime directory for the start of a successor. Returns the program to start.
    ///
    /// # Errors
    /// A daemon without rights has named a program that root has not permitted, or that other users can change.
    /// Contains the reason.
    pub(super) fn begin_upgrade(&mut self, program: &Path) -> Result<PathBuf, String> {
        self.note_confinement();
        match self {
            Self::Own {
                owner,
                sharing,
                paths,
                permits,
                ..
            } => {
                // A daemon without rights could name any file.
                *owner = weir_runtime_dir::account_that_owns(&paths.runtime_dir);
                *sharing = weir_runtime_dir::sharing(&paths.runtime_dir);
                if owner.is_none() {
                    return Ok(program.to_owned());
                }
                let program = permits.check(program).inspect_err(|reason| {
                    tracing::error!(reason, "refused a request of the daemon");
                })?;
                // An earlier version rejects a directory of another account.
                weir_runtime_dir::return_to_root(&paths.runtime_dir);
                Ok(program)
            }
            // The service checks the program, and the directory remains shared.
            Self::Service { .. } => Ok(program.to_owned()),
        }
    }

    /// A daemon without rights has written files of the runtime directory. During an upgrade they belong to root.
    fn note_confinement(&mut self) {
        let is_confined = self.is_confined(true);
        if let Self::Own { vrrp, confined, .. } = self
            && !*confined
            && is_confined
        {
            *confined = true;
            vrrp.confine();
        }
    }

    /// Another daemon serves. For its start, the runtime directory was that of an earlier version.
    pub(super) fn serve_permits(&mut self) {
        if let Self::Own { permits, .. } = self
            && rustix::process::geteuid().is_root()
        {
            permits.serve();
        }
    }

    /// Gives the runtime directory back to the daemon that continues.
    pub(super) fn give_back(&mut self) {
        self.serve_permits();
        if let Self::Own {
            owner: Some(owner),
            sharing,
            paths,
            ..
        } = self
        {
            weir_runtime_dir::give(&paths.runtime_dir, *owner);
            if let Some(sharing) = sharing {
                weir_runtime_dir::share_again(&paths.runtime_dir, *sharing);
            }
        }
    }

    /// The active configuration has virtual routers, or none.
    pub(super) fn configure_vrrp(&mut self, configured: bool, program: &Path) {
        self.note_confinement();
        match self {
            Self::Own { vrrp, paths, .. } => {
                share(paths, configured);
                vrrp.configure(configured, program);
            }
            Self::Service { client, .. } => client.configure_vrrp(configured, program),
        }
    }

    /// The active configuration announces VIPs, or none.
    pub(super) fn configure_announcer(&mut self, configured: bool, program: &Path) {
        self.note_confinement();
        match self {
            Self::Own {
                announcer, paths, ..
            } => {
                share(paths, configured);
                announcer.configure(configured, program);
            }
            Self::Service { client, .. } => client.configure_announcer(configured, program),
        }
    }

    /// Ends announcements and virtual routers.
    pub(super) fn stop(&mut self) {
        match self {
            Self::Own {
                vrrp, announcer, ..
            } => {
                announcer.stop();
                // Routers stop sending before the addresses move.
                vrrp.stop();
            }
            Self::Service { client, stopping } => {
                if stopping.is_none() {
                    *stopping = Some(client.stop());
                }
            }
        }
    }

    /// Waits until everything has ended, and gives the runtime directory back to root.
    pub(super) async fn end(mut self) {
        self.stop();
        match self {
            Self::Own {
                vrrp,
                announcer,
                paths,
                ..
            } => {
                announcer.end().await;
                vrrp.end().await;
                // An earlier version rejects a directory of another account.
                weir_runtime_dir::return_to_root(&paths.runtime_dir);
            }
            Self::Service { stopping, .. } => {
                if let Some(stopping) = stopping {
                    stopping.wait();
                }
            }
        }
    }
}

/// A process of root is about to keep records in the runtime directory, which may be that of a daemon without rights.
fn share(paths: &Paths, is_needed: bool) {
    if is_needed {
        weir_runtime_dir::share(&paths.runtime_dir);
    }
}
