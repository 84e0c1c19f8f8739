//! Starts the privileged processes: directly, or through the helper service.
//!
//! A keeper that runs as root starts them directly. An unprivileged keeper uses the helper service if the service
//! manager has configured the service's socket; otherwise it starts no helpers.

use std::os::fd::{AsFd, OwnedFd};
use std::path::{Path, PathBuf};

use weir_engine::Paths;
use weir_runtime_dir::{ContentBeforeStart, Sharing};

use super::announcer::Announcer;
use super::error::Error;
use super::helper::{self, Kind};
use super::root_info::RootInfo;
use super::service::{self, PermitSocket, ServiceClient, StopHandle};
use super::vrrp::VrrpProcesses;
use crate::runtime_dir::RuntimeDir;

/// Starts privileged processes, directly or through the helper service.
#[derive(Debug)]
pub(super) enum Privileged {
    /// This process starts them itself. If it is unprivileged, it starts no helpers.
    InProcess {
        vrrp: VrrpProcesses,
        announcer: Announcer,
        paths: Paths,
        /// The configuration file, which only the helpers read.
        configuration: PathBuf,
        /// The owner of the runtime directory before an upgrade.
        owner: Option<u32>,
        /// How root shared the runtime directory with its owner before an upgrade.
        sharing: Option<Sharing>,
        /// Whether any daemon of this keeper has been unprivileged.
        confined: bool,
        /// The runtime directory's content before the start.
        before: ContentBeforeStart,
        /// The programs that root has permitted.
        permits: PermitSocket,
    },
    /// The helper service starts them.
    Service {
        client: ServiceClient,
        stopping: Option<StopHandle>,
        /// The runtime directory's content before the start.
        before: ContentBeforeStart,
    },
}

/// The channels from a daemon to its helpers, and the information that the daemon needs.
#[derive(Debug, Default)]
pub(super) struct HelperChannels {
    pub(super) engine: Option<OwnedFd>,
    pub(super) helper: Option<OwnedFd>,
    /// Information from the helper service.
    pub(super) root_info: Option<RootInfo>,
}

impl Privileged {
    /// Acquires the runtime directory's lock, and also returns it. Must be called inside a tokio runtime, by a thread
    /// that lives as long as the process.
    ///
    /// # Errors
    /// Fails if another process holds the lock, the directory cannot be used, or the helper service did not respond in
    /// time.
    pub(super) fn open(paths: &Paths, configuration: &Path) -> Result<(Self, OwnedFd), Error> {
        let is_root = rustix::process::geteuid().is_root();
        if let Some(socket) = service::configured_socket().filter(|_| !is_root) {
            let client = ServiceClient::connect(&socket)?;
            let lock = client.lock()?;
            let service = Self::Service {
                client,
                stopping: None,
                before: ContentBeforeStart::of_locked(&paths.runtime_dir),
            };
            return Ok((service, lock));
        }
        let mut before = ContentBeforeStart::before_lock(&paths.runtime_dir);
        let lock = RuntimeDir::lock(&paths.runtime_dir)?;
        before.record_files();
        let lock = lock.as_fd().try_clone_to_owned();
        let lock = lock.map_err(|source| Error::Lock { source })?;
        // If a keeper was killed, the account may still own the directory.
        weir_runtime_dir::return_to_root(&paths.runtime_dir);
        let mut permits = PermitSocket::new(&paths.runtime_dir)?;
        if is_root {
            permits.serve();
        }
        let privileged = Self::InProcess {
            before,
            permits,
            vrrp: VrrpProcesses::new(&paths.runtime_dir, configuration),
            announcer: Announcer::new(&paths.runtime_dir, configuration),
            paths: paths.clone(),
            configuration: configuration.to_owned(),
            owner: None,
            sharing: None,
            confined: false,
        };
        Ok((privileged, lock))
    }

    /// Returns the channels to a new daemon's helpers; the daemon runs `program`.
    ///
    /// # Errors
    /// Fails if the open-file limit is reached, or the helper service rejects the program.
    pub(super) fn start_helpers(&self, program: &Path) -> Result<HelperChannels, Error> {
        match self {
            Self::InProcess {
                configuration,
                paths,
                ..
            } => {
                let supervise = |kind| helper::supervise(kind, program, configuration, paths);
                Ok(HelperChannels {
                    engine: supervise(Kind::Engine)?,
                    helper: supervise(Kind::Files)?,
                    root_info: None,
                })
            }
            Self::Service { client, .. } => {
                let root_info = client.root_info(program);
                let root_info = root_info.map_err(|reason| Error::Service { reason })?;
                Ok(HelperChannels {
                    engine: Some(client.start_helper(Kind::Engine, program)?),
                    helper: Some(client.start_helper(Kind::Files, program)?),
                    root_info: Some(root_info),
                })
            }
        }
    }

    /// Returns whether the last daemon had dropped its privileges, or never had any. Records from such a daemon must
    /// not cause the next daemon to keep more privileges.
    pub(super) fn is_confined(&self, has_daemon: bool) -> bool {
        match self {
            Self::InProcess { owner, paths, .. } => {
                let is_upgrade = owner.is_some() && has_daemon;
                is_upgrade || weir_runtime_dir::owning_account(&paths.runtime_dir).is_some()
            }
            Self::Service { .. } => true,
        }
    }

    /// Prepares the runtime directory for the start of a successor. Returns the program to start.
    ///
    /// # Errors
    /// Returns a message if an unprivileged daemon has specified a program that root has not permitted, or that users
    /// other than root can change.
    pub(super) fn begin_upgrade(&mut self, program: &Path) -> Result<PathBuf, String> {
        self.record_confinement();
        match self {
            Self::InProcess {
                owner,
                sharing,
                paths,
                permits,
                ..
            } => {
                // If the daemon is unprivileged, check the program, because the daemon could specify any file.
                *owner = weir_runtime_dir::owning_account(&paths.runtime_dir);
                *sharing = weir_runtime_dir::sharing(&paths.runtime_dir);
                if owner.is_none() {
                    return Ok(program.to_owned());
                }
                let program = permits.check(program).inspect_err(|reason| {
                    tracing::error!(reason, "refused a request from the daemon");
                })?;
                // An earlier version rejects a directory that another account owns.
                weir_runtime_dir::return_to_root(&paths.runtime_dir);
                Ok(program)
            }
            // The service checks the program when a helper is started, and the directory stays shared.
            Self::Service { .. } => Ok(program.to_owned()),
        }
    }

    /// Records that an unprivileged daemon has written the files in the runtime directory. During an upgrade, this
    /// cannot be determined from their owner, which is root.
    fn record_confinement(&mut self) {
        let is_confined = self.is_confined(true);
        if let Self::InProcess { vrrp, confined, .. } = self
            && !*confined
            && is_confined
        {
            *confined = true;
            vrrp.confine();
        }
    }

    /// Recreates the socket for permits after an upgrade, because [`Self::begin_upgrade`] may have removed it.
    pub(super) fn serve_permits(&mut self) {
        if let Self::InProcess { permits, .. } = self
            && rustix::process::geteuid().is_root()
        {
            permits.serve();
        }
    }

    /// Cancels an upgrade: gives the runtime directory back to the daemon that continues.
    pub(super) fn cancel_upgrade(&mut self) {
        self.serve_permits();
        if let Self::InProcess {
            owner: Some(owner),
            sharing,
            paths,
            ..
        } = self
        {
            weir_runtime_dir::give_to_account(&paths.runtime_dir, *owner);
            if let Some(sharing) = sharing {
                weir_runtime_dir::restore_sharing(&paths.runtime_dir, *sharing);
            }
        }
    }

    /// Starts the VRRP processes if the active configuration has virtual routers; otherwise stops them.
    pub(super) fn configure_vrrp(&mut self, configured: bool, program: &Path) {
        self.record_confinement();
        match self {
            Self::InProcess { vrrp, paths, .. } => {
                share(paths, configured);
                vrrp.configure(configured, program);
            }
            Self::Service { client, .. } => client.configure_vrrp(configured, program),
        }
    }

    /// Starts the announcer if the active configuration announces VIPs; otherwise stops it.
    pub(super) fn configure_announcer(&mut self, configured: bool, program: &Path) {
        self.record_confinement();
        match self {
            Self::InProcess {
                announcer, paths, ..
            } => {
                share(paths, configured);
                announcer.configure(configured, program);
            }
            Self::Service { client, .. } => client.configure_announcer(configured, program),
        }
    }

    /// Begins to stop announcements and virtual routers.
    pub(super) fn stop(&mut self) {
        match self {
            Self::InProcess {
                vrrp, announcer, ..
            } => {
                announcer.stop();
                // Stop the virtual routers last, so that routes are withdrawn before another director takes over the
                // VIPs.
                vrrp.stop();
            }
            Self::Service {
                client, stopping, ..
            } => {
                if stopping.is_none() {
                    *stopping = Some(client.stop());
                }
            }
        }
    }

    /// Stops all processes, waits until they have exited, and gives the runtime directory back to root. If no daemon
    /// has become ready, removes the files that the start created.
    pub(super) async fn shutdown(mut self, has_served: bool) {
        self.stop();
        match self {
            Self::InProcess {
                vrrp,
                announcer,
                paths,
                before,
                ..
            } => {
                announcer.shutdown().await;
                vrrp.shutdown().await;
                // An earlier version rejects a directory that another account owns.
                weir_runtime_dir::return_to_root(&paths.runtime_dir);
                if !has_served {
                    before.remove_created();
                }
            }
            Self::Service {
                stopping, before, ..
            } => {
                if let Some(stopping) = stopping {
                    stopping.wait();
                }
                if !has_served {
                    // Root's files, such as the lock, stay: this process is not allowed to remove them.
                    before.remove_created();
                }
            }
        }
    }
}

/// Lets a root process keep records in the runtime directory, even if an unprivileged daemon owns it.
fn share(paths: &Paths, is_needed: bool) {
    if is_needed {
        weir_runtime_dir::share(&paths.runtime_dir);
    }
}
