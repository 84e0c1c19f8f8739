//! Defines the experiments, runs them, and builds the report of a run.

mod clustered_rest;
mod disturbance;
mod fail;
mod local_clients;
mod reload_under_load;
mod round;
mod saturated_uplink;
mod slow_server;
mod small_box_nat;
mod stateless_direct;
mod trial;

use std::path::{Path, PathBuf};

use crate::error::{LabError, Result};
use crate::interrupt;
use crate::peer::{nginx, php};
use crate::progress::Progress;
use crate::rate::Rate;
use crate::report::{Failure, Panel, Report, Row, Timing, busy, note};
use crate::requirement;
use crate::session::Session;
use disturbance::Disturbance;
use round::Round;
use trial::{Balancer, Measurement, RunContext, Site, Trial};

/// An experiment.
#[derive(Clone, Copy, Debug)]
pub struct Experiment {
    /// The name on the command line.
    pub name: &'static str,
    /// A one-line summary.
    pub summary: &'static str,
    trials: fn(&RunOptions) -> Result<Vec<Trial>>,
}

const EXPERIMENTS: [Experiment; 7] = [
    Experiment {
        name: "saturated-uplink",
        summary: "4 MB files over slow links: which methods share the director's uplink, and which use all uplinks",
        trials: saturated_uplink::trials,
    },
    Experiment {
        name: "reload-under-load",
        summary: "short requests while the balancer is repeatedly reloaded, upgraded or killed, compared with the \
         same load without disturbances",
        trials: reload_under_load::trials,
    },
    Experiment {
        name: "clustered-rest",
        summary: "a service on two servers managed by ldirectord, compared with one server alone, with and without \
         keep-alive",
        trials: clustered_rest::trials,
    },
    Experiment {
        name: "small-box-nat",
        summary: "short requests from many clients through NAT, compared with one server alone and the kernel's \
         conntrack",
        trials: small_box_nat::trials,
    },
    Experiment {
        name: "stateless-direct",
        summary: "PHP pages that are small, slow or of different sizes, over direct routing, compared with nftables \
         and nginx with FastCGI",
        trials: stateless_direct::trials,
    },
    Experiment {
        name: "local-clients",
        summary: "clients on the director while servers join and leave, compared with HAProxy on loopback and a direct \
         connection",
        trials: local_clients::trials,
    },
    Experiment {
        name: "slow-server",
        summary: "one of four servers becomes slower by 1, 5 and 20 ms, is then starved of CPU time, and then recovers",
        trials: slow_server::trials,
    },
];

/// Options of a run. Defaults are the values of the experiment's field report.
#[derive(Clone, Debug, Default)]
pub struct RunOptions {
    /// Rate of each host's link.
    pub rate: Option<Rate>,
    /// Number of requests per run of `ab`.
    pub requests: Option<u32>,
    /// Number of concurrent requests.
    pub concurrency: Option<u32>,
    /// Stop a server under load instead of measuring, if the experiment supports this.
    pub fail: bool,
    /// Number of runs; medians are reported. 0 counts as 1.
    pub repeat: u32,
    /// The scheduler, by its name in Weir.
    pub scheduler: Option<String>,
    /// Names of methods; empty = all.
    pub methods: Vec<String>,
    /// Names of faults, for experiments that inject faults; empty = all.
    pub faults: Vec<String>,
    /// Number of directors, for experiments with a group.
    pub directors: Option<u8>,
    /// The report directory, to which the HTML file is written.
    pub report: PathBuf,
    /// The `weir` program; `None` = the running program, or `weir` next to it.
    pub weir: Option<PathBuf>,
    /// A second `weir` program, for faults that need two builds; `None` = a copy of the first one.
    pub second_weir: Option<PathBuf>,
}

/// Returns the experiments that reproduce a field report, in the order of the reports.
pub fn list() -> &'static [Experiment] {
    &EXPERIMENTS
}

/// Runs the experiment `name`, prints progress to stderr, writes the HTML file, and returns the report.
///
/// A failed method does not stop the others. [`Report::failures`] lists it.
///
/// # Errors
/// Fails before creating anything if a name or an option is invalid, if the caller is not root, or if programs are
/// missing. Returns [`LabError::Interrupted`] after Ctrl-C.
pub fn run(name: &str, options: &RunOptions) -> Result<Report> {
    let experiment = find(name)?;
    let trials = select_trials((experiment.trials)(options)?, &options.methods)?;
    requirement::require_root()?;
    if options.fail {
        requirement::require_programs(fail::programs())?;
    } else {
        requirement::require_programs(trials.iter().flat_map(Trial::programs))?;
    }
    let uses_weir = |trial: &Trial| trial.method.balancer.needs_weir();
    let needs_weir = options.fail || trials.iter().any(uses_weir);
    let weir = if needs_weir {
        Some(requirement::find_weir(options.weir.as_deref())?)
    } else {
        None
    };
    let busy = busy::note();
    requirement::raise_open_file_limit();
    interrupt::install();

    let session = Session::open()?;
    let pages = session.directory("pages")?;
    nginx::write_pages(&pages)?;
    php::write_pages(&pages)?;
    let progress = Progress::new();
    let context = RunContext {
        session: &session,
        progress: &progress,
        weir: weir.as_deref(),
        pages: &pages,
    };
    if options.fail {
        let mut report = progress.show_during(|| fail::run(experiment, options, &context))?;
        report.notes.extend(note::for_run(
            options,
            &run_properties(&[]),
            weir.as_deref(),
        ));
        report.busy = busy;
        report.write_html(&options.report)?;
        return Ok(report);
    }
    let repeat = options.repeat.max(1);
    let rounds = progress.show_during(|| {
        (0..repeat)
            .map(|_| round::run(&context, &trials))
            .collect::<Result<Vec<_>>>()
    })?;

    let mut report = build_report(experiment, &trials, &rounds);
    report.notes = note::for_run(options, &run_properties(&trials), weir.as_deref());
    report.busy = busy;
    report.write_html(&options.report)?;
    Ok(report)
}

fn find(name: &str) -> Result<&'static Experiment> {
    let names = || EXPERIMENTS.map(|experiment| experiment.name).join(", ");
    EXPERIMENTS
        .iter()
        .find(|experiment| experiment.name == name)
        .ok_or_else(|| LabError::UnknownExperiment {
            name: name.into(),
            existing: names(),
        })
}

fn select_trials(trials: Vec<Trial>, methods: &[String]) -> Result<Vec<Trial>> {
    let method_names = trials
        .iter()
        .map(|trial| trial.method.name.clone())
        .collect::<Vec<_>>();
    if let Some(unknown) = methods.iter().find(|method| !method_names.contains(method)) {
        let reason = format!(
            "unknown method \"{unknown}\"; the methods of this experiment are: {}",
            method_names.join(", ")
        );
        return Err(LabError::Usage {
            option: "--methods",
            reason,
        });
    }
    let is_selected = |trial: &Trial| methods.is_empty() || methods.contains(&trial.method.name);
    Ok(trials.into_iter().filter(is_selected).collect())
}

/// Returns the scheduler of a run: the specified one, or `default`. Fails if the name is not valid.
fn scheduler(options: &RunOptions, default: &str) -> Result<String> {
    let name = options.scheduler.as_deref().unwrap_or(default);
    // The name must be one word, because it is written to a configuration file. Weir checks whether the scheduler
    // exists.
    if !name.is_empty()
        && name
            .chars()
            .all(|c| c.is_ascii_alphanumeric() || c == '-' || c == '_')
    {
        return Ok(name.to_owned());
    }
    let reason = format!("\"{name}\" is not a valid scheduler name; examples: rr, wlc, sh");
    Err(LabError::Usage {
        option: "--scheduler",
        reason,
    })
}

/// Builds the report from the median round of each row. If any round failed, the method failed.
fn build_report(experiment: &Experiment, trials: &[Trial], rounds: &[Round]) -> Report {
    let mut report = Report::new(experiment.name, experiment.summary);
    for (index, trial) in trials.iter().enumerate() {
        let method = &trial.method.name;
        let mut measured_rounds = Vec::new();
        for result in rounds.iter().filter_map(|round| round.get(index)) {
            match result {
                Ok(measurements) => measured_rounds.push(measurements),
                Err(error) => report.failures.push(Failure {
                    method: method.clone(),
                    error: error.to_string(),
                }),
            }
        }
        for index in 0..trial.workloads.len() {
            let runs: Vec<&Measurement> = measured_rounds
                .iter()
                .filter_map(|measurements| measurements.get(index))
                .collect();
            let Some(median) = round::median(&runs) else {
                continue;
            };
            let name = median
                .workload
                .as_ref()
                .map_or(method.clone(), |workload| format!("{method}/{workload}"));
            report.rows.push(Row {
                name: name.clone(),
                requests_per_second: median.outcome.requests_per_second,
                kbytes_per_second: median.outcome.kbytes_per_second,
                // The median would hide a failure in one of three rounds.
                failed: runs.iter().map(|run| run.outcome.failed).max().unwrap_or(0),
                seconds: median.outcome.seconds,
                ratio: None,
                timing: median.outcome.latency.clone().map(|latency| {
                    let disturbed = median.disturbed.clone().unwrap_or_default();
                    Timing {
                        latency,
                        disturbances: disturbed.milliseconds,
                        refused: disturbed.refused,
                    }
                }),
                shares: median.shares.clone(),
            });
            if let Some(link) = trial.plan.link {
                let link = link.megabits_per_second();
                report.panels.push(Panel {
                    name,
                    link,
                    series: median.series.clone(),
                });
            }
        }
    }
    report.set_ratios();
    report
}

fn run_properties(trials: &[Trial]) -> note::RunProperties {
    let has_balancer =
        |balancer: Balancer| trials.iter().any(|trial| trial.method.balancer == balancer);
    let mut schedulers: Vec<String> = Vec::new();
    for name in trials.iter().map(|trial| &trial.method.scheduler) {
        if !name.is_empty() && !schedulers.contains(name) {
            schedulers.push(name.clone());
        }
    }
    note::RunProperties {
        link: trials.first().and_then(|trial| trial.plan.link),
        schedulers,
        haproxy: has_balancer(Balancer::Haproxy),
        nftables_direct: has_balancer(Balancer::NftablesDirect),
        disturbed: has_disturbance(trials, |it| it != Disturbance::Membership),
        membership_changes: has_disturbance(trials, |it| it == Disturbance::Membership),
        paced: trials.iter().any(|trial| trial.site == Site::Paced),
        side_by_side: round::batches(trials).iter().any(|batch| batch.len() > 1),
    }
}

/// Returns whether any trial has a disturbance that `is_selected` selects.
fn has_disturbance(trials: &[Trial], is_selected: impl Fn(Disturbance) -> bool) -> bool {
    trials.iter().any(|trial| match trial.method.balancer {
        Balancer::Disturbed(_, disturbance) => is_selected(disturbance),
        _ => false,
    })
}

/// Returns the default directory for reports.
pub(crate) fn default_report_directory() -> &'static Path {
    Path::new("lab-report")
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peer::ab::Outcome;
    use crate::sample::Series;

    fn options() -> RunOptions {
        RunOptions::default()
    }

    fn names(trials: &[Trial]) -> Vec<&str> {
        trials
            .iter()
            .map(|trial| trial.method.name.as_str())
            .collect()
    }

    #[test]
    fn saturated_uplink_has_all_methods_in_order() {
        let trials = saturated_uplink::trials(&options()).expect("create the trials");
        assert_eq!(
            names(&trials),
            [
                "one-server",
                "haproxy",
                "nat",
                "nftables",
                "direct",
                "tunnel",
                "l3dsr"
            ]
        );
    }

    #[test]
    fn methods_are_selected_by_name_and_unknown_name_is_usage_error() {
        let trials = || saturated_uplink::trials(&options()).expect("create the trials");
        let selected = select_trials(trials(), &["direct".into(), "one-server".into()])
            .expect("select the trials");
        assert_eq!(names(&selected), ["one-server", "direct"]);
        let error =
            select_trials(trials(), &["dsr".into()]).expect_err("an unknown name was accepted");
        assert_eq!(error.exit_code(), 2);
        assert!(error.to_string().contains("l3dsr"), "{error}");
    }

    #[test]
    fn scheduler_name_cannot_inject_configuration() {
        let with = |name: &str| {
            scheduler(
                &RunOptions {
                    scheduler: Some(name.into()),
                    ..options()
                },
                "rr",
            )
        };
        assert_eq!(with("wlc").expect("a valid name was rejected"), "wlc");
        assert!(with("rr\"\nsorry = \"10.0.0.9").is_err());
        assert!(with("").is_err());
    }

    fn measurement(seconds: f64, failed: u64) -> Measurement {
        let outcome = Outcome {
            requests_per_second: 100.0 / seconds,
            kbytes_per_second: 1.0,
            failed,
            seconds,
            ..Outcome::default()
        };
        Measurement {
            workload: None,
            outcome,
            series: Series::default(),
            disturbed: None,
            shares: None,
        }
    }

    #[test]
    fn row_is_median_run_with_highest_failure_count() {
        let trials = select_trials(
            saturated_uplink::trials(&options()).expect("create the trials"),
            &["one-server".into()],
        )
        .expect("select the trials");
        let rounds: Vec<Round> = [(30.0, 0), (10.0, 2), (20.0, 0)]
            .map(|(seconds, failed)| vec![Ok(vec![measurement(seconds, failed)])])
            .into();
        let report = build_report(&EXPERIMENTS[0], &trials, &rounds);
        assert_eq!((report.rows[0].seconds, report.rows[0].failed), (20.0, 2));
        assert_eq!(report.rows[0].ratio, Some(1.0));
    }
}
