//! One module a command.

mod check;
mod clean;
mod doctor;
mod explain;
mod import;
mod ipvsadm;
mod lab;
mod plan;
mod protect;
mod real_server;
mod reload;
mod run;
mod schema;
mod server;
mod status;
mod token;
mod upgrade;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::arguments::{Arguments, Command, TokenAction};
use crate::failure::Failure;
use crate::terminal;

/// How a command ends.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// Does what the arguments say.
pub(crate) fn execute(arguments: &Arguments) -> Outcome {
    let places = &arguments.places;
    match &arguments.command {
        Command::Run => run::run(places),
        Command::Check { strict, json } => check::check(places, *strict, *json),
        Command::Plan { json } => plan::plan(places, *json),
        Command::Reload { guard, json } => reload::reload(places, *guard, *json),
        Command::Status { json, watch } => status::status(places, *json, *watch),
        Command::Explain(question) => explain::explain(places, question),
        Command::Server(server) => server::server(places, server),
        Command::Clean { force } => clean::clean(places, *force),
        Command::Schema => schema::schema(),
        Command::RealServer { command } => real_server::real_server(places, command),
        Command::Lab { command } => Ok(lab::lab(command)),
        Command::Ipvsadm(rest) => ipvsadm::ipvsadm(places, "ipvsadm", &rest.rest),
        Command::Import(import) => import::import(import),
        Command::Upgrade { path } => upgrade::upgrade(places, path.as_deref()),
        Command::Protect(arguments) => protect::protect(places, arguments),
        Command::Token {
            action: TokenAction::Add { name, role, file },
        } => token::add(file, name, *role),
        Command::Doctor(arguments) => doctor::director(places, arguments),
        Command::Top(_) => Err(Failure::not_built("top")),
    }
}

/// The program is also called by the name of what it stands in for; then its own grammar does not apply.
pub(crate) fn by_program_name() -> Option<ExitCode> {
    let called: OsString = std::env::args_os().next()?;
    let name = Path::new(&called).file_name()?;
    (name == "ipvsadm").then(|| {
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let program = called.to_string_lossy();
        let done = ipvsadm::ipvsadm(&ipvsadm::places(), &program, &arguments);
        done.unwrap_or_else(|failure| failure.report())
    })
}

/// For commands that ask once: one thread is enough.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(work))
}

/// How long a command may be silent, and how often it speaks from then on.
const SILENCE: Duration = Duration::from_secs(2);
const AGAIN: Duration = Duration::from_secs(10);

/// [`block_on`] for what may take long: says on stderr that it goes on.
fn patiently<T>(what: &str, work: impl Future<Output = T>) -> Result<T, Failure> {
    let begun = Instant::now();
    block_on(speaking(work, SILENCE, AGAIN, || {
        let seconds = begun.elapsed().as_secs();
        terminal::complain(&format!(
            "weir: still working: {what}, {seconds} s so far\n"
        ));
    }))
}

/// How long the daemon may take for what it answers at once when it can.
const ANSWER: Duration = Duration::from_secs(30);

/// Waits for `work` and calls `speak` after `first`, then after every `again`.
async fn speaking<T>(
    work: impl Future<Output = T>,
    first: Duration,
    again: Duration,
    mut speak: impl FnMut(),
) -> T {
    let mut work = std::pin::pin!(work);
    let mut silence = first;
    loop {
        match tokio::time::timeout(silence, &mut work).await {
            Ok(done) => return done,
            Err(_) => speak(),
        }
        silence = again;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_what_takes_long_is_spoken_of() {
        let mut spoken = 0;
        let quick = speaking(async { 1 }, Duration::ZERO, Duration::ZERO, || spoken += 1);
        assert_eq!(block_on(quick).unwrap(), 1);
        assert_eq!(spoken, 0);

        let (done, work) = tokio::sync::oneshot::channel();
        let mut done = Some(done);
        let moment = Duration::from_millis(1);
        let slow = speaking(work, moment, moment, || {
            spoken += 1;
            if spoken == 3
                && let Some(done) = done.take()
            {
                done.send(()).expect("it is waited for");
            }
        });
        block_on(slow).unwrap().unwrap();
        assert!(spoken >= 3, "{spoken}");
    }
}
