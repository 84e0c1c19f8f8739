//! Reports the servable VIPs to the announcer, and drains this director for `weir node drain`.

use std::fs;
use std::io::{self, ErrorKind};
use std::net::IpAddr;
use std::path::{Path, PathBuf};
use std::time::Duration;

use weir_announce::{Client, DaemonReport, Report};
use weir_model::Desired;
use weir_sys::replace_file;
use weir_vrrp_agent::ControlRequest;

use crate::api::{ApiError, NodeState, NodeUpdate};

/// The file that records whether the node is drained, so that a drained node stays drained after a restart.
const FILE: &str = "node.json";
/// Number of attempts to reach the VRRP agent, which may still be starting, and the interval between attempts.
const ATTEMPTS: u32 = 25;
const RETRY_INTERVAL: Duration = Duration::from_millis(200);

/// This node's state: whether it is drained, and the VIPs that it announces.
#[derive(Debug)]
pub(super) struct Node {
    announcer: Client,
    runtime_dir: PathBuf,
    is_draining: bool,
}

impl Node {
    /// Reads the recorded state. Must be called inside a tokio runtime.
    pub(super) fn new(runtime_dir: &Path) -> Self {
        let recorded = fs::read(runtime_dir.join(FILE)).unwrap_or_default();
        let recorded = serde_json::from_slice::<NodeUpdate>(&recorded);
        let is_draining = recorded.is_ok_and(|update| update.state == NodeState::Drain);
        if is_draining {
            tracing::warn!("this director is drained; to end this, run `weir node ready`");
        }
        Self {
            announcer: Client::new(runtime_dir),
            runtime_dir: runtime_dir.to_owned(),
            is_draining,
        }
    }

    pub(super) const fn is_draining(&self) -> bool {
        self.is_draining
    }

    /// Reports to the announcer which VIPs can be served, if this has changed.
    ///
    /// A VIP for which `must_announce` returns true stays announced, because no other director announces it.
    pub(super) fn announce(
        &self,
        mut daemon_report: Option<DaemonReport>,
        must_announce: impl Fn(IpAddr) -> bool,
    ) {
        let vips = daemon_report
            .iter_mut()
            .flat_map(|daemon_report| &mut daemon_report.vips);
        for state in vips.filter(|it| !it.serves && must_announce(it.vip)) {
            state.serves = true;
        }
        self.announcer.send(daemon_report);
    }

    /// Returns the announcer's latest report.
    pub(super) fn report(&self) -> Option<Report> {
        self.announcer.report()
    }

    /// Drains this director, or makes it ready again. Records the new state before it takes effect.
    ///
    /// # Errors
    /// Fails if the state cannot be recorded, or if this director is to be drained but has neither `[announce]` nor
    /// `[vrrp.NAME]`. In both cases, nothing changes.
    pub(super) fn set_state(
        &mut self,
        update: NodeUpdate,
        desired: &Desired,
    ) -> Result<(), ApiError> {
        let can_move_vips = desired.announce.is_some() || !desired.vrrp.is_empty();
        if update.state == NodeState::Drain && !can_move_vips {
            return Err(ApiError::new(
                "there is nothing to move to another director: neither [announce] nor [vrrp.NAME] is configured; if \
                 another program, such as keepalived, moves the VIPs, use its command",
            ));
        }
        self.record(update).map_err(|error| {
            let path = self.runtime_dir.join(FILE);
            ApiError::new(format!("{}: {error}", path.display()))
        })?;
        self.is_draining = update.state == NodeState::Drain;
        match update.state {
            NodeState::Drain => tracing::info!("draining this director"),
            NodeState::Ready => tracing::info!("this director is ready"),
        }
        self.update_routers(desired);
        Ok(())
    }

    /// Releases the virtual routers if this node is drained; otherwise resumes them.
    pub(super) fn update_routers(&self, desired: &Desired) {
        for router in &desired.vrrp {
            let name = router.name.clone();
            let command = match self.is_draining {
                true => ControlRequest::Release { router: name },
                false => ControlRequest::Resume { router: name },
            };
            let runtime_dir = self.runtime_dir.clone();
            tokio::task::spawn_blocking(move || send_to_agent(&runtime_dir, &command));
        }
    }

    fn record(&self, update: NodeUpdate) -> io::Result<()> {
        let path = self.runtime_dir.join(FILE);
        match update.state {
            NodeState::Drain => replace_file(&path, &serde_json::to_vec(&update)?),
            NodeState::Ready => match fs::remove_file(&path) {
                Err(error) if error.kind() != ErrorKind::NotFound => Err(error),
                _ => Ok(()),
            },
        }
    }
}

fn send_to_agent(runtime_dir: &Path, request: &ControlRequest) {
    for attempt in 1..=ATTEMPTS {
        match weir_vrrp_agent::send_request(runtime_dir, request) {
            Ok(_) => return,
            Err(weir_vrrp_agent::Error::Socket { .. }) if attempt < ATTEMPTS => {
                std::thread::sleep(RETRY_INTERVAL);
            }
            Err(error) => {
                tracing::error!(%error, "failed to release or resume a virtual router");
                return;
            }
        }
    }
}
