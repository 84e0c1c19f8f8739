//! `weir run`.

use std::env;
use std::io::{self, IsTerminal};
use std::process::ExitCode;

use tracing_subscriber::EnvFilter;
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
    log();
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

/// A line an event on stderr; `WEIR_LOG` chooses which, as `debug` or `weir_control=trace`.
fn log() {
    let filter = EnvFilter::try_from_env("WEIR_LOG").unwrap_or_else(|_| EnvFilter::new("info"));
    let builder = tracing_subscriber::fmt()
        .with_env_filter(filter)
        .with_writer(io::stderr)
        .with_ansi(terminal::color())
        .with_target(false);
    // The journal knows the time itself.
    if env::var_os("JOURNAL_STREAM").is_some() && !io::stderr().is_terminal() {
        builder.without_time().init();
    } else {
        builder.init();
    }
}
