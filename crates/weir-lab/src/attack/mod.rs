//! Implements `weir-lab attack`, which runs floods and slow clients against Weir, HAProxy and nginx.
//!
//! All proxies have the same settings.
//!
//! A trial is one attack on one newly started proxy in a separate network namespace. The proxies take turns in each
//! round, so that other load on the machine affects all of them. The proxy has one CPU; the attackers, the server and
//! the other clients share a second one. Attacks have a fixed rate, so that the columns compare the cost of the same
//! attack. Another column shows how many units per second the attackers could send.
//!
//! Start reading at `catalog` (the attacks), `trial` (the measurement), `rules` (the limits) and `proxy` (the
//! settings).

mod attacker;
mod catalog;
mod frame;
mod origin;
mod prober;
mod proxy;
mod report;
mod rules;
mod socket;
mod trial;
mod usage;

use std::path::PathBuf;
use std::time::Duration;

use rustix::thread::sched_getaffinity;

use self::catalog::{ATTACKS, Attack};
use self::proxy::{Candidate, Kind};
use self::trial::Settings;
use crate::error::{LabError, Result};
use crate::interrupt;
use crate::progress::Progress;
use crate::requirement::{self, ATTACK, BASE};
use crate::session::Session;

pub use self::report::{AttackReport, AttackRow};

/// Arguments of `weir-lab attack`.
#[derive(Clone, Debug, clap::Args)]
pub struct AttackArguments {
    /// Print the list of attacks and exit.
    #[arg(long)]
    pub list: bool,
    /// Print JSON instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Number of rounds; the table shows medians.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub rounds: u32,
    /// Duration of each attack, in seconds.
    #[arg(long, value_name = "N", default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=60))]
    pub seconds: u32,
    /// Delay of the server's responses to the attackers, in seconds.
    #[arg(long, value_name = "N", default_value_t = 60, value_parser = clap::value_parser!(u32).range(1..=3600))]
    pub delay: u32,
    /// Run only these attacks: names, or parts of names.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub only: Vec<String>,
    /// Run only these proxies.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub proxies: Vec<String>,
    /// The weir program [default: `weir` next to this program, or in PATH].
    #[arg(long, value_name = "PATH")]
    pub weir: Option<PathBuf>,
    /// The haproxy program.
    #[arg(long, value_name = "PATH", env = "HAPROXY")]
    pub haproxy: Option<PathBuf>,
    /// The nginx program.
    #[arg(long, value_name = "PATH", env = "NGINX")]
    pub nginx: Option<PathBuf>,
}

/// Returns the names and descriptions of all attacks.
pub fn list() -> Vec<(&'static str, &'static str)> {
    let attacks = ATTACKS.iter();
    attacks
        .map(|attack| (attack.name, attack.summary))
        .collect()
}

/// Runs the attacks and returns the results.
///
/// # Errors
/// Returns [`LabError::Usage`] for an unknown attack or proxy, or with fewer than two CPUs. Fails like a lab run, and
/// if a proxy exits.
pub fn run(arguments: &AttackArguments) -> Result<AttackReport> {
    let attacks = select_attacks(&arguments.only)?;
    let candidates = candidates(arguments)?;
    requirement::require_root()?;
    requirement::require_programs(BASE.into_iter().chain(ATTACK))?;
    requirement::raise_open_file_limit();
    interrupt::install();
    let (proxy_cpu, tool_cpu) = cpus()?;
    let session = Session::open()?;
    let files = session.directory("files")?;
    let certificate = proxy::make_certificate(&files)?;
    let settings = Settings {
        session: &session,
        certificate: &certificate,
        duration: Duration::from_secs(arguments.seconds.into()),
        delay: Duration::from_secs(arguments.delay.into()),
        proxy_cpu,
        tool_cpu,
    };
    let mut report = AttackReport::new(&settings, arguments.rounds, &candidates, &files);
    let progress = Progress::new();
    for attack in attacks {
        let mut results = vec![Vec::new(); candidates.len()];
        for round in 1..=arguments.rounds {
            for (candidate, results) in candidates.iter().zip(&mut results) {
                let name = format!("{} on {}", attack.name, candidate.kind.name());
                progress.set(&name, &format!("round {round}"));
                let trial = progress.show_during(|| trial::run(&settings, attack, candidate));
                progress.remove(&name);
                results.push(trial.map_err(|error| error.in_trial(&name))?);
            }
        }
        report.add(attack, &candidates, &results);
        progress.line(attack.name);
    }
    Ok(report)
}

fn select_attacks(only: &[String]) -> Result<Vec<&'static Attack>> {
    for part in only {
        if !ATTACKS.iter().any(|attack| attack.name.contains(part)) {
            let names: Vec<_> = ATTACKS.iter().map(|attack| attack.name).collect();
            return Err(LabError::Usage {
                option: "--only",
                reason: format!(
                    "unknown attack \"{part}\"; the attacks are {}",
                    names.join(", ")
                ),
            });
        }
    }
    let is_exact = |part: &String| ATTACKS.iter().any(|attack| attack.name == part);
    let is_selected = |attack: &&Attack| {
        // An exact name such as `reset` selects only this attack.
        let fits =
            |part: &String| attack.name == part || (!is_exact(part) && attack.name.contains(part));
        only.is_empty() || only.iter().any(fits)
    };
    Ok(ATTACKS.iter().filter(is_selected).collect())
}

fn candidates(arguments: &AttackArguments) -> Result<Vec<Candidate>> {
    let names = Kind::ALL.map(Kind::name);
    if let Some(unknown) = arguments
        .proxies
        .iter()
        .find(|name| !names.contains(&name.as_str()))
    {
        return Err(LabError::Usage {
            option: "--proxies",
            reason: format!(
                "unknown proxy \"{unknown}\"; the proxies are {}",
                names.join(", ")
            ),
        });
    }
    let is_selected = |kind: &Kind| {
        arguments.proxies.is_empty() || arguments.proxies.iter().any(|it| it == kind.name())
    };
    let find = |kind| {
        let specified = match kind {
            Kind::Weir => &arguments.weir,
            Kind::Haproxy => &arguments.haproxy,
            Kind::Nginx => &arguments.nginx,
        };
        // Ignore an empty variable, which `make attack` can pass.
        let specified = specified
            .as_deref()
            .filter(|path| !path.as_os_str().is_empty());
        Candidate::find(kind, specified)
    };
    Kind::ALL
        .into_iter()
        .filter(is_selected)
        .map(find)
        .collect()
}

/// Returns the first two CPUs that this process may use: one for the proxy and one for the lab itself.
fn cpus() -> Result<(usize, usize)> {
    let set =
        sched_getaffinity(None).map_err(|errno| LabError::file("CPU affinity")(errno.into()))?;
    let mut cpus = (0..rustix::thread::CpuSet::MAX_CPU).filter(|cpu| set.is_set(*cpu));
    match (cpus.next(), cpus.next()) {
        (Some(first), Some(second)) => Ok((first, second)),
        _ => Err(LabError::Usage {
            option: "attack",
            reason: "requires two CPUs: one for the proxy and one for all other programs".into(),
        }),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(only: &[&str]) -> Vec<&'static str> {
        let only: Vec<String> = only.iter().map(|part| (*part).to_owned()).collect();
        let attacks = select_attacks(&only).expect("known names");
        attacks.iter().map(|attack| attack.name).collect()
    }

    #[test]
    fn attacks_are_selected_by_name_or_part() {
        assert_eq!(names(&[]).len(), ATTACKS.len());
        assert_eq!(names(&["reset"]), ["reset"]);
        assert_eq!(
            names(&["ping", "abandoned"]),
            ["ping", "abandoned-fin", "abandoned-rst"]
        );
        assert_eq!(names(&["made-you-reset"]).len(), 5);
        assert!(select_attacks(&["none".to_owned()]).is_err());
    }
}
