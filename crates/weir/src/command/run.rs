//! Implements `weir run`.

use std::process::ExitCode;

use weir_control::configuration;
use weir_control::daemon::{self, Options};
use weir_control::keeper::{self, KeeperState};
use weir_control::traffic::Traffic;
use weir_engine::Paths;

use super::{Outcome, namespace};
use crate::arguments::GlobalOptions;
use crate::failure::Failure;
use crate::terminal;

/// Number of threads in addition to the one that owns the engine: the API must reply while the engine applies a
/// configuration.
const API_THREADS: usize = 1;

pub(super) fn run(global: &GlobalOptions) -> Outcome {
    terminal::start_log("info");
    daemon::hide_memory();
    match KeeperState::from_environment()? {
        Some(keeper_state) => run_daemon(global, keeper_state),
        None => run_keeper(global),
    }
}

/// Runs the keeper on this thread: the kernel kills the daemon when the thread that started it exits
/// (PR_SET_PDEATHSIG).
fn run_keeper(global: &GlobalOptions) -> Outcome {
    // The program of an unprivileged user may gain CAP_NET_BIND_SERVICE from its file at each exec; no_new_privs would
    // prevent that.
    if rustix::process::geteuid().is_root() {
        weir_sys::set_no_new_privs().map_err(Failure::failed)?;
    }
    // Errors in the file must be reported before anything is created. After that, only daemons read the file.
    let file = std::path::absolute(global.config())?;
    // An unprivileged keeper cannot read the file; its first daemon reads it.
    if keeper::configured_socket().is_none() {
        configuration::load(&file, terminal::color())
            .and_then(|loaded| configuration::with_usable_files(loaded, &file))
            .map_err(|rejected| Failure::Findings {
                findings: rejected.diagnostics,
            })?;
    }
    let paths = paths(global);
    namespace::check_start(global, &paths)?;
    let code = super::block_on(keeper::run(&paths, &file))?.map_err(Failure::failed)?;
    Ok(ExitCode::from(code))
}

pub(super) fn paths(global: &GlobalOptions) -> Paths {
    Paths {
        runtime_dir: global.runtime_dir.clone(),
        pin_dir: global.pin_dir.clone(),
    }
}

fn run_daemon(global: &GlobalOptions, mut keeper_state: KeeperState) -> Outcome {
    let options = Options {
        config: std::path::absolute(global.config())?,
        runtime_dir: global.runtime_dir.clone(),
        pin_dir: global.pin_dir.clone(),
        color: terminal::color(),
    };
    let paths = paths(global);
    // This must happen before threads are started, because existing threads would keep their privileges.
    daemon::separate(&options, &mut keeper_state).map_err(|error| {
        keeper_state.link.report_failure(&error);
        Failure::failed(error)
    })?;
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(API_THREADS)
        .enable_all()
        .build()?;
    let keeper = keeper_state.link.clone();
    let running = daemon::run(
        &options,
        keeper_state,
        async |plane_configuration, keeper_state| {
            Traffic::open(&paths, plane_configuration, keeper_state).await
        },
    );
    let result = runtime.block_on(running);
    result.map_err(|error| {
        keeper.report_failure(&error);
        match error {
            daemon::Error::Configuration(rejected) => Failure::Findings {
                findings: rejected.diagnostics,
            },
            other => Failure::failed(other),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}
