//! Implements `weir vrrp`, and the hidden commands `weir vrrp-agent` and `weir helper`, which `weir run` starts.

use std::io::ErrorKind;
use std::os::fd::AsFd;
use std::os::unix::net::UnixStream;
use std::process::ExitCode;

use weir_control::client::Client;
use weir_control::status::{VirtualRouterStatus, vrrp as vrrp_status};
use weir_control::{daemon, keeper};
use weir_sys::Channel;
use weir_vrrp_agent::ControlRequest;

use super::{Outcome, STATUS_TIMEOUT, block_on};
use crate::arguments::{GlobalOptions, Vrrp as Arguments, VrrpAction};
use crate::failure::Failure;
use crate::terminal;

pub(super) fn vrrp(global: &GlobalOptions, arguments: &Arguments) -> Outcome {
    let router = arguments.name.clone().unwrap_or_default();
    let request = match arguments.action {
        None => ControlRequest::Status,
        Some(VrrpAction::Release) => ControlRequest::Release { router },
        Some(VrrpAction::Resume) => ControlRequest::Resume { router },
    };
    if matches!(request, ControlRequest::Resume { .. }) && is_drained(global)? {
        return Err(Failure::Failed {
            message: "this director is drained, so its virtual routers remain released: run `weir node ready`"
                .to_owned(),
        });
    }
    let pending_routers = match request {
        ControlRequest::Status => routers_during_guard(global)?,
        _ => None,
    };
    let mut routers = match pending_routers {
        Some(routers) => routers,
        None => agent_routers(global, &request)?,
    };
    if let Some(name) = &arguments.name {
        routers.retain(|it| it.router.name == *name);
    }
    if arguments.json {
        let text = serde_json::to_string_pretty(&routers).map_err(Failure::failed)?;
        terminal::print(&format!("{text}\n"))?;
    } else if routers.is_empty() {
        terminal::print("no virtual routers are configured\n")?;
    } else {
        terminal::print(&vrrp_status::table(&routers))?;
    }
    Ok(ExitCode::SUCCESS)
}

/// Returns the virtual routers, or the error, from the VRRP agent.
fn agent_routers(
    global: &GlobalOptions,
    request: &ControlRequest,
) -> Result<Vec<VirtualRouterStatus>, Failure> {
    match weir_vrrp_agent::send_request(&global.runtime_dir, request) {
        Ok(routers) => Ok(routers.into_iter().map(VirtualRouterStatus::from).collect()),
        Err(weir_vrrp_agent::Error::Socket { source, .. })
            if source.kind() == ErrorKind::PermissionDenied =>
        {
            Err(Failure::Failed {
                message: "vrrp requires root privileges".to_owned(),
            })
        }
        Err(error @ weir_vrrp_agent::Error::Socket { .. }) => Err(no_agent_failure(global, &error)),
        Err(error) => Err(Failure::failed(error)),
    }
}

/// Returns the virtual routers from the daemon if some of them have changes that are pending until the reload guard
/// ends; the agent does not know such changes. A daemon that does not respond does not prevent the command.
fn routers_during_guard(
    global: &GlobalOptions,
) -> Result<Option<Vec<VirtualRouterStatus>>, Failure> {
    let client = Client::new(&global.runtime_dir).within(STATUS_TIMEOUT);
    let status = block_on(async { client.status().await })?;
    let routers = status.map(|report| report.vrrp).unwrap_or_default();
    let has_pending = routers.iter().any(|it| it.pending.is_some());
    Ok(has_pending.then_some(routers))
}

/// Returns whether the daemon reports that this director is drained. A daemon that does not respond does not prevent
/// the command, because the agent runs without it.
fn is_drained(global: &GlobalOptions) -> Result<bool, Failure> {
    let client = Client::new(&global.runtime_dir).within(STATUS_TIMEOUT);
    let status = block_on(async { client.status().await })?;
    Ok(status.is_ok_and(|report| report.drained))
}

/// Returns the failure for an agent that does not reply. A daemon without virtual routers starts no agent.
fn no_agent_failure(global: &GlobalOptions, error: &weir_vrrp_agent::Error) -> Failure {
    let message = format!("no VRRP agent is running: {error}");
    match UnixStream::connect(global.runtime_dir.join("weir.sock")) {
        Ok(_) => Failure::Failed {
            message: format!(
                "{message}; a daemon is running, so either no [vrrp.NAME] is configured or the agent has failed"
            ),
        },
        Err(_) => Failure::NoDaemon { message },
    }
}

/// Starts the log, and returns the channel to the parent process, which this process inherited as standard input. Fails
/// if the parent process is not Weir.
fn take_channel() -> Result<Channel, Failure> {
    terminal::start_log("info");
    keeper::check_parent().map_err(|_| Failure::Failed {
        message: "only `weir run` can start this command".to_owned(),
    })?;
    let channel = std::io::stdin().as_fd().try_clone_to_owned()?;
    // Programs that this process starts must not inherit the channel.
    weir_sys::redirect_stdin_to_null().map_err(Failure::failed)?;
    Ok(Channel::from(channel))
}

pub(super) fn agent(global: &GlobalOptions, standby: bool) -> Outcome {
    let channel = take_channel()?;
    block_on(weir_vrrp_agent::run(channel, &global.runtime_dir, standby))?
        .map_err(Failure::failed)?;
    Ok(ExitCode::SUCCESS)
}

pub(super) fn helper(
    global: &GlobalOptions,
    adopt: bool,
    for_daemon: bool,
    engine: bool,
) -> Outcome {
    let channel = take_channel()?;
    if engine {
        let configuration = std::path::absolute(global.config())?;
        let paths = super::run::paths(global);
        weir_engine_host::restrict().map_err(Failure::failed)?;
        block_on(weir_engine_host::serve(channel, &configuration, &paths))?
            .map_err(Failure::failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    if for_daemon {
        let configuration = std::path::absolute(global.config())?;
        block_on(weir_helper::serve_daemon(channel, &configuration))?.map_err(Failure::failed)?;
        return Ok(ExitCode::SUCCESS);
    }
    let texts = daemon::active_config_files(&global.runtime_dir);
    let configuration = std::path::absolute(global.config())?;
    block_on(weir_helper::serve(
        channel,
        &global.runtime_dir,
        &texts,
        &configuration,
        adopt,
    ))?
    .map_err(Failure::failed)?;
    Ok(ExitCode::SUCCESS)
}
