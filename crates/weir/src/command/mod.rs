//! Runs the commands, each of which has its own module.

mod check;
mod clean;
mod cluster;
mod doctor;
mod explain;
mod fmt;
mod generate;
mod helper;
mod import;
mod ipvsadm;
mod lab;
mod log;
mod namespace;
mod node;
mod plan;
mod protect;
mod real_server;
mod reload;
mod run;
mod schema;
mod server;
mod status;
mod tap;
mod token;
mod top;
mod upgrade;
mod vrrp;

use std::ffi::OsString;
use std::path::Path;
use std::process::ExitCode;
use std::time::{Duration, Instant};

use crate::arguments::{Arguments, Command, TokenAction};
use crate::failure::Failure;
use crate::terminal;

/// The result of a command.
pub(crate) type Outcome = Result<ExitCode, Failure>;

/// Runs the command given on the command line.
pub(crate) fn execute(arguments: &Arguments) -> Outcome {
    let global = &arguments.global;
    match &arguments.command {
        Command::Run => run::run(global),
        Command::Check { strict, json } => check::check(global, *strict, *json),
        Command::Plan { json } => plan::plan(global, *json),
        Command::Reload { guard, json } => reload::reload(global, *guard, *json),
        Command::Status { .. } => status::status(global, &arguments.command),
        Command::Explain(arguments) => explain::explain(global, arguments),
        Command::Server(server) => server::server(global, server),
        Command::Clean { force } => clean::clean(global, *force),
        Command::Schema => schema::schema(),
        Command::RealServer { command } => real_server::real_server(global, command),
        Command::Lab { command } => Ok(lab::lab(command)),
        Command::Ipvsadm(rest) => ipvsadm::ipvsadm(global, "ipvsadm", &rest.rest),
        Command::Import(import) => import::import(import),
        Command::Upgrade { path } => upgrade::upgrade(global, path.as_deref()),
        Command::Protect(arguments) => protect::protect(global, arguments),
        Command::Token {
            action: TokenAction::Add { name, role, file },
        } => token::add(global, file, name, *role),
        Command::Doctor(arguments) => doctor::doctor(global, arguments),
        Command::Vrrp(arguments) => vrrp::vrrp(global, arguments),
        Command::VrrpAgent { standby } => vrrp::agent(global, *standby),
        Command::Helper { service: true, .. } => helper::service(global),
        Command::Helper {
            adopt,
            daemon,
            engine,
            service: false,
        } => vrrp::helper(global, *adopt, *daemon, *engine),
        Command::Generate { output } => generate::generate(output),
        Command::Top => top::top(global),
        Command::Tap(arguments) => tap::tap(global, arguments),
        Command::Log { filter, json } => log::log(global, filter.as_deref(), *json),
        Command::Fmt { file, check } => fmt::fmt(global, file.as_deref(), *check),
        Command::Node { action, json } => node::node(global, *action, *json),
        Command::Announcer => node::announcer(global),
        Command::Cluster { command } => cluster::cluster(global, command),
    }
}

/// Runs the program as ipvsadm if it was started under that name; `None` = it was started under a different name.
pub(crate) fn run_as_ipvsadm() -> Option<ExitCode> {
    let program_path: OsString = std::env::args_os().next()?;
    let name = Path::new(&program_path).file_name()?;
    (name == "ipvsadm").then(|| {
        let arguments: Vec<OsString> = std::env::args_os().skip(1).collect();
        let program = program_path.to_string_lossy();
        let outcome = ipvsadm::ipvsadm(&ipvsadm::from_environment(), &program, &arguments);
        outcome.unwrap_or_else(|failure| failure.report())
    })
}

/// Runs a future to completion on this thread.
fn block_on<T>(work: impl Future<Output = T>) -> Result<T, Failure> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()?;
    Ok(runtime.block_on(work))
}

/// Time without output before the first progress report.
const FIRST_PROGRESS: Duration = Duration::from_secs(2);
/// Interval of further progress reports.
const PROGRESS_INTERVAL: Duration = Duration::from_secs(10);

/// Runs a future like [`block_on`], and reports progress on stderr if it takes a long time.
fn with_progress<T>(awaited: &str, work: impl Future<Output = T>) -> Result<T, Failure> {
    let start = Instant::now();
    block_on(report_while(
        work,
        FIRST_PROGRESS,
        PROGRESS_INTERVAL,
        || {
            let seconds = start.elapsed().as_secs();
            terminal::eprint(&format!(
                "weir: still waiting for {awaited} ({seconds} s)\n"
            ));
        },
    ))
}

/// Time limit for the daemon's reply to a request that normally takes milliseconds.
const REPLY_TIMEOUT: Duration = Duration::from_secs(30);

/// Time limit for the reply to `status`, which must report a daemon that hangs.
const STATUS_TIMEOUT: Duration = Duration::from_secs(2);

/// Waits for `work`. Calls `report` after `first`, and then at every `interval`.
async fn report_while<T>(
    work: impl Future<Output = T>,
    first: Duration,
    interval: Duration,
    mut report: impl FnMut(),
) -> T {
    let mut work = std::pin::pin!(work);
    let mut pause = first;
    loop {
        match tokio::time::timeout(pause, &mut work).await {
            Ok(result) => return result,
            Err(_) => report(),
        }
        pause = interval;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn progress_is_reported_only_for_slow_work() {
        let mut reports = 0;
        let quick = report_while(async { 1 }, Duration::ZERO, Duration::ZERO, || reports += 1);
        assert_eq!(block_on(quick).unwrap(), 1);
        assert_eq!(reports, 0);

        let (sender, work) = tokio::sync::oneshot::channel();
        let mut sender = Some(sender);
        let pause = Duration::from_millis(1);
        let slow = report_while(work, pause, pause, || {
            reports += 1;
            if reports == 3
                && let Some(sender) = sender.take()
            {
                sender.send(()).expect("the receiver is alive");
            }
        });
        block_on(slow).unwrap().unwrap();
        assert!(reports >= 3, "{reports}");
    }
}
