//! Implements `weir real-server`: prepares a server for `direct`, `tunnel` and `l3dsr`, and reverts the changes.
//!
//! The changes can also be shown ([`show`]). `up` adds VIPs to the state in the runtime directory, and `down` removes
//! them. Both then apply a [`plan`](plan::plan) of changes to sysctls, BPF programs and addresses. If `up` fails, its
//! changes are rolled back. Settings that Weir did not make, or that other programs have changed since, are not
//! reverted. Listening sockets, routes and firewalls are not changed.
//!
//! All functions work in the calling thread's network namespace and must be called inside a tokio runtime.

mod apply;
mod boot;
pub mod desired;
mod doctor;
mod dropped_packet;
pub mod entry;
mod error;
mod listener;
pub mod plan;
mod problem;
mod report;
mod request;
mod state;
mod unmanaged_vip;

pub use doctor::doctor;
pub use error::{Error, Result};
pub use plan::Step;
pub use problem::Problem;
pub use report::{Report, SysctlReport};
pub use request::{
    ArgumentError, DownRequest, Options, PrefixArgument, TunnelArgument, UpRequest, VipArgument,
};
pub use state::is_recorded;

use apply::{Host, reconcile};
use state::State;
use weir_dataplane::real_server::object_id;

/// Prepares this host for the VIPs of `request`, in addition to the VIPs that it is already prepared for. Returns the
/// steps taken; empty = no change was necessary.
///
/// # Errors
/// [`Error::Rejected`] if the request was rejected before anything was changed. Any other error is returned after the
/// changes of this call have been rolled back; changes that cannot be rolled back remain recorded.
pub async fn up(options: &Options, request: &UpRequest) -> Result<Vec<Step>> {
    let mut state = State::open(options)?;
    let desired = state
        .desired
        .with(request)
        .map_err(|problems| Error::Rejected { problems })?;
    let before = std::mem::replace(&mut state.desired, desired);
    let host = Host::open(options).await?;
    let actual = host.read_state()?;
    let problems = plan::problems(&state.desired, &actual, &state.record);
    if !problems.is_empty() {
        return Err(Error::Rejected { problems });
    }
    state.save()?;
    match reconcile(&host, &mut state).await {
        Ok(steps) => Ok(steps),
        Err(error) => {
            state.desired = before;
            // Return the first error. Changes that cannot be rolled back remain recorded for `down`.
            if let Ok(host) = Host::open(options).await {
                let _rolled_back = reconcile(&host, &mut state).await;
            }
            state.save()?;
            Err(error)
        }
    }
}

/// Reverts the preparation for the VIPs of `request`, or for all VIPs. Returns the steps taken; empty = nothing had to
/// be reverted.
///
/// # Errors
/// Fails if a step fails. The steps before it were taken; the others remain recorded.
pub async fn down(options: &Options, request: &DownRequest) -> Result<Vec<Step>> {
    let mut state = State::open(options)?;
    state.desired = state.desired.without(&request.vips);
    let host = Host::open(options).await?;
    let steps = reconcile(&host, &mut state).await?;
    state.save()?;
    Ok(steps)
}

/// Repairs settings made by [`up`] that other programs have changed. Returns the steps taken. Reads the host's state
/// only if there is a VIP.
///
/// # Errors
/// Fails if the host's state cannot be read, a step fails, or `up` or `down` is running. The next call tries again.
pub async fn repair(options: &Options) -> Result<Vec<Step>> {
    let (desired, record) = state::read_unlocked(options)?;
    if desired.entries.is_empty() {
        return Ok(Vec::new());
    }
    let host = Host::open(options).await?;
    if plan::plan(&desired, &host.read_state()?, &record, object_id()).is_empty() {
        return Ok(Vec::new());
    }
    let mut state = State::open(options)?;
    let steps = reconcile(&host, &mut state).await?;
    state.save()?;
    Ok(steps)
}

/// Returns the settings made by [`up`], and which of them other programs have changed.
///
/// # Errors
/// Fails if the state file or the host's state cannot be read.
pub async fn show(options: &Options) -> Result<Report> {
    let (desired, record) = state::read_unlocked(options)?;
    let actual = Host::open(options).await?.read_state()?;
    let drift = plan::plan(&desired, &actual, &record, object_id());
    Ok(Report::new(&desired, &record, &actual, &drift))
}
