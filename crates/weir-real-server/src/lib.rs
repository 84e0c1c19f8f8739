//! `weir real-server`: prepares a server for `direct`, `tunnel` and `l3dsr`, undoes it and shows it.
//!
//! `up` adds to the state in the runtime directory, `down` removes from it, and both then change the host by the same
//! [`plan`](plan::plan): sysctls, programs, addresses. After an error all changes are rolled back. Changes that Weir
//! did not make, or that others have changed since, are not undone. Listening sockets, routes and firewalls are not
//! touched.
//!
//! Everything here works in the calling thread's network namespace, inside a tokio runtime.

mod apply;
pub mod desired;
mod doctor;
pub mod entry;
mod error;
pub mod plan;
mod problem;
mod report;
mod request;
mod state;

pub use doctor::doctor;
pub use error::{Error, Result};
pub use plan::Step;
pub use problem::Problem;
pub use report::{Report, SysctlReport};
pub use request::{
    ArgumentError, DownRequest, Options, PrefixArgument, TunnelArgument, UpRequest, VipArgument,
};

use apply::{Host, reconcile};
use state::State;
use weir_dataplane::real_server::object_id;

/// Prepares this host for the VIPs of `request` in addition to those that it is prepared for already. Returns the steps
/// taken; none = everything was in place.
///
/// # Errors
/// [`Error::Refused`] before anything is changed; any other after all changes of this call were rolled back.
pub async fn up(options: &Options, request: &UpRequest) -> Result<Vec<Step>> {
    let mut state = State::open(options)?;
    let desired = state
        .desired
        .with(request)
        .map_err(|problems| Error::Refused { problems })?;
    let before = std::mem::replace(&mut state.desired, desired);
    let host = Host::open(options).await?;
    let actual = host.actual()?;
    let problems = plan::problems(&state.desired, &actual, &state.memory);
    if !problems.is_empty() {
        return Err(Error::Refused { problems });
    }
    state.save()?;
    match reconcile(&host, &mut state).await {
        Ok(steps) => Ok(steps),
        Err(error) => {
            state.desired = before;
            // The first error is the cause; changes that cannot be rolled back stay recorded for `down`.
            if let Ok(host) = Host::open(options).await {
                let _rolled_back = reconcile(&host, &mut state).await;
            }
            state.save()?;
            Err(error)
        }
    }
}

/// Undoes the VIPs of `request`, or everything. Returns the steps taken; none = there was nothing to undo.
///
/// # Errors
/// The kernel refuses a step; those before it are done, the others stay recorded.
pub async fn down(options: &Options, request: &DownRequest) -> Result<Vec<Step>> {
    let mut state = State::open(options)?;
    state.desired = state.desired.without(&request.vips);
    let host = Host::open(options).await?;
    let steps = reconcile(&host, &mut state).await?;
    state.save()?;
    Ok(steps)
}

/// Repairs settings of [`up`] that others changed; returns the steps taken. Reads nothing where nothing was set up.
///
/// # Errors
/// The host cannot be read, a step is refused, or `up` or `down` is running; a later call tries again.
pub async fn keep(options: &Options) -> Result<Vec<Step>> {
    let (desired, memory) = state::read_unlocked(options)?;
    if desired.entries.is_empty() {
        return Ok(Vec::new());
    }
    let host = Host::open(options).await?;
    if plan::plan(&desired, &host.actual()?, &memory, object_id()).is_empty() {
        return Ok(Vec::new());
    }
    let mut state = State::open(options)?;
    let steps = reconcile(&host, &mut state).await?;
    state.save()?;
    Ok(steps)
}

/// The settings, and whether they are still in place.
///
/// # Errors
/// The state or the host cannot be read.
pub async fn show(options: &Options) -> Result<Report> {
    let (desired, memory) = state::read_unlocked(options)?;
    let actual = Host::open(options).await?.actual()?;
    let drift = plan::plan(&desired, &actual, &memory, object_id());
    Ok(Report::new(&desired, &memory, &actual, &drift))
}
