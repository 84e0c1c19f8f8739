//! `weir run`.

use std::process::ExitCode;

use weir_control::configuration;
use weir_control::daemon::{self, Options};
use weir_control::engine::Paths;
use weir_control::keeper::{self, Kept};
use weir_control::traffic::Traffic;

use super::Outcome;
use crate::arguments::Places;
use crate::failure::Failure;
use crate::terminal;

/// Besides the thread that owns the engine: the API must answer and take in while a configuration is applied.
const API_THREADS: usize = 1;

pub(super) fn run(places: &Places) -> Outcome {
    terminal::log("info");
    daemon::hide_memory();
    match Kept::from_environment()? {
        Some(kept) => daemon(places, kept),
        None => keeper(places),
    }
}

/// One thread, whose end the daemon would not survive: nothing else may run it.
fn keeper(places: &Places) -> Outcome {
    // A mistake is told before anything is made; from here on only daemons read the file.
    let file = std::path::absolute(places.config())?;
    configuration::load(&file, terminal::color())
        .and_then(|loaded| configuration::with_usable_files(loaded, &file))
        .map_err(|rejected| Failure::Findings {
            findings: rejected.diagnostics,
        })?;
    let code = super::block_on(keeper::keep(&places.runtime_dir))?.map_err(Failure::failed)?;
    Ok(ExitCode::from(code))
}

fn daemon(places: &Places, kept: Kept) -> Outcome {
    let options = Options {
        config: std::path::absolute(places.config())?,
        runtime_dir: places.runtime_dir.clone(),
        pin_dir: places.pin_dir.clone(),
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
    let keeper = kept.link.clone();
    let opened = daemon::run(&options, kept, async |desired, kept| {
        Traffic::open(&paths, desired, kept).await
    });
    let ended = runtime.block_on(opened);
    ended.map_err(|error| {
        keeper.fail(&error);
        match error {
            daemon::Error::Configuration(rejected) => Failure::Findings {
                findings: rejected.diagnostics,
            },
            other => Failure::failed(other),
        }
    })?;
    Ok(ExitCode::SUCCESS)
}
