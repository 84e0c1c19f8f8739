//! `weir run`.

use std::process::ExitCode;

use weir_control::daemon::{self, Options};
use weir_control::engine::Paths;
use weir_control::traffic::Traffic;

use super::Outcome;
use crate::arguments::Places;
use crate::failure::Failure;
use crate::terminal;

/// Besides the thread that owns the engine: the API must answer and take in while a configuration is applied.
const API_THREADS: usize = 1;

pub(super) fn run(places: &Places) -> Outcome {
    terminal::log("info");
    let options = Options {
        config: std::path::absolute(places.config())?,
        runtime_dir: places.runtime_dir.clone(),
        color: terminal::color(),
    };
    let paths = Paths {
        runtime_dir: places.runtime_dir.clone(),
        pin_dir: places.pin_dir.clone(),
    };
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(API_THREADS)
        .enable_all()
        .build()?;
    let opened = daemon::run(&options, async |desired| {
        Traffic::open(&paths, desired).await
    });
    runtime.block_on(opened).map_err(|error| match error {
        daemon::Error::Configuration(rejected) => Failure::Findings {
            findings: rejected.diagnostics,
        },
        other => Failure::failed(other),
    })?;
    Ok(ExitCode::SUCCESS)
}
