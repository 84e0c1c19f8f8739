//! Defines and runs the commands of `weir lab`. They print results to stdout and everything else to stderr.

use std::path::PathBuf;
use std::process::ExitCode;

use clap::{Args, Subcommand};

use crate::attack::{self, AttackArguments};
use crate::error::{LabError, Result};
use crate::experiment::{self, RunOptions, default_report_directory};
use crate::failover;
use crate::output;
use crate::pacemaker;
use crate::rate::Rate;
use crate::report::{all, store, table};
use crate::scale_out;
use crate::scaling::{self, ScalingArguments};

/// Subcommands of `weir lab`.
#[derive(Clone, Debug, Subcommand)]
pub enum LabCommand {
    /// List the experiments.
    List {
        /// Print JSON.
        #[arg(long)]
        json: bool,
    },
    /// Run an experiment and write its report.
    Run(RunArguments),
    /// Write one HTML file with all experiments and the figures of the field reports.
    Report(ReportArguments),
    /// Simulate a group of directors behind a router: how many connections break, and what resources a director needs.
    Scaling(ScalingArguments),
}

/// Arguments of `weir lab report`.
#[derive(Clone, Debug, Args)]
pub struct ReportArguments {
    /// Directory with the results of `weir lab run … --report DIR`; the file is DIR/index.html.
    #[arg(long, value_name = "DIR", default_value_os_t = default_report_directory().to_owned())]
    pub report: PathBuf,
    /// Print the comparisons as JSON.
    #[arg(long)]
    pub json: bool,
    /// Run all experiments first.
    #[arg(long)]
    pub run: bool,
    /// With --run: number of requests per measurement.
    #[arg(long, value_name = "N", requires = "run", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub requests: Option<u32>,
    /// With --run: number of runs; medians are reported.
    #[arg(long, value_name = "N", requires = "run", default_value_t = 1,
        value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// With --run: the weir program to test [default: the running program].
    #[arg(long, value_name = "PATH", requires = "run")]
    pub weir: Option<PathBuf>,
}

/// Arguments of `weir lab run`. The defaults are the values of the experiment's field report.
#[derive(Clone, Debug, Args)]
pub struct RunArguments {
    /// The experiment's name; `weir lab list` shows all names.
    pub name: String,
    /// Print JSON instead of the table.
    #[arg(long)]
    pub json: bool,
    /// Directory of the HTML file.
    #[arg(long, value_name = "DIR", default_value_os_t = default_report_directory().to_owned())]
    pub report: PathBuf,
    /// Rate of each host's link, for example 10mbit.
    #[arg(long, value_name = "RATE")]
    pub rate: Option<Rate>,
    /// Number of requests per measurement.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=10_000_000))]
    pub requests: Option<u32>,
    /// Number of concurrent requests.
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=20_000))]
    pub concurrency: Option<u32>,
    /// Number of runs; medians are reported.
    #[arg(long, value_name = "N", default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repeat: u32,
    /// Instead of measuring, stop a server under load and restart it (small-box-nat, clustered-rest).
    #[arg(long)]
    pub fail: bool,
    /// Run the report's cluster with Corosync and Pacemaker, and make its active node fail (clustered-rest).
    #[arg(long, conflicts_with = "fail")]
    pub pacemaker: bool,
    /// The scheduler, by its name in Weir.
    #[arg(long, value_name = "NAME")]
    pub scheduler: Option<String>,
    /// Run only these methods.
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub methods: Vec<String>,
    /// Inject only these faults (director-failover, scale-out, clustered-rest --pacemaker).
    #[arg(long, value_name = "NAMES", value_delimiter = ',')]
    pub faults: Vec<String>,
    /// Number of directors at the beginning [default: 4] (scale-out).
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u8).range(2..=7))]
    pub directors: Option<u8>,
    /// The weir program to test [default: the running program].
    #[arg(long, value_name = "PATH")]
    pub weir: Option<PathBuf>,
    /// The weir program of some directors, for faults that need two builds [default: a copy of the other program]
    /// (scale-out).
    #[arg(long, value_name = "PATH")]
    pub second_weir: Option<PathBuf>,
}

impl From<&RunArguments> for RunOptions {
    fn from(arguments: &RunArguments) -> Self {
        RunOptions {
            rate: arguments.rate,
            requests: arguments.requests,
            concurrency: arguments.concurrency,
            repeat: arguments.repeat,
            fail: arguments.fail,
            scheduler: arguments.scheduler.clone(),
            methods: arguments.methods.clone(),
            faults: arguments.faults.clone(),
            directors: arguments.directors,
            report: arguments.report.clone(),
            weir: arguments.weir.clone(),
            second_weir: arguments.second_weir.clone(),
        }
    }
}

/// Runs a subcommand. Exit codes: 0 = success, 1 = failed (even if only one method failed), 2 = usage error.
pub fn execute(command: &LabCommand) -> ExitCode {
    let outcome = match command {
        LabCommand::List { json } => output::print(&list(*json)).map(|()| ExitCode::SUCCESS),
        LabCommand::Run(arguments) => run(arguments),
        LabCommand::Report(arguments) => report(arguments),
        LabCommand::Scaling(arguments) => scaling::run(arguments)
            .and_then(|text| output::print(&text))
            .map(|()| ExitCode::SUCCESS),
    };
    match outcome {
        Ok(code) => code,
        Err(error) => {
            eprintln!("weir lab: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

/// Runs `weir-lab attack`. Exit codes: 0 = all limits are met, 1 = a limit is exceeded or the run failed, 2 = usage
/// error.
pub fn execute_attack(arguments: &AttackArguments) -> ExitCode {
    if arguments.list {
        for (name, summary) in attack::list() {
            println!("{name:<25} {summary}");
        }
        return ExitCode::SUCCESS;
    }
    match attack::run(arguments) {
        Ok(report) => {
            let text = if arguments.json {
                format!("{}\n", report.json())
            } else {
                report.table()
            };
            print!("{text}");
            if report.passed() {
                ExitCode::SUCCESS
            } else {
                ExitCode::FAILURE
            }
        }
        Err(error) => {
            eprintln!("weir-lab attack: {error}");
            ExitCode::from(error.exit_code())
        }
    }
}

fn run(arguments: &RunArguments) -> Result<ExitCode> {
    let names: Vec<&str> = experiments().map(|(name, _)| name).collect();
    if !names.contains(&arguments.name.as_str()) {
        return Err(LabError::UnknownExperiment {
            name: arguments.name.clone(),
            existing: names.join(", "),
        });
    }
    if arguments.pacemaker && arguments.name != pacemaker::EXPERIMENT {
        return Err(LabError::Usage {
            option: "--pacemaker",
            reason: format!("only {} supports it", pacemaker::EXPERIMENT),
        });
    }
    if let Some(option) = unsupported_option(arguments) {
        let mode = if arguments.pacemaker {
            " with --pacemaker"
        } else if arguments.fail {
            " with --fail"
        } else {
            ""
        };
        return Err(LabError::Usage {
            option,
            reason: format!("{}{mode} does not support it", arguments.name),
        });
    }
    let status = |succeeded| {
        if succeeded {
            ExitCode::SUCCESS
        } else {
            ExitCode::FAILURE
        }
    };
    if arguments.pacemaker {
        return pacemaker::run(&arguments.into(), arguments.json).map(status);
    }
    if arguments.name == failover::NAME {
        return failover::run(&arguments.into(), arguments.json).map(status);
    }
    if arguments.name == scale_out::NAME {
        return scale_out::run(&arguments.into(), arguments.json).map(status);
    }
    let report = experiment::run(&arguments.name, &arguments.into())?;
    if arguments.json {
        output::print(&format!("{}\n", report.json()))?;
    } else {
        output::print(&table::render(&report))?;
    }
    // The table contains the failures. With JSON output, they are also printed to stderr.
    if arguments.json {
        for failure in &report.failures {
            eprintln!("weir lab: {}: {}", failure.method, failure.error);
        }
    }
    if let Some(path) = &report.html {
        eprintln!("report: {}", path.display());
    }
    Ok(if report.failures.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the first specified option that this run does not support.
fn unsupported_option(arguments: &RunArguments) -> Option<&'static str> {
    let supported = match arguments.name.as_str() {
        failover::NAME => ["--methods", "--faults", "--repeat"].as_slice(),
        scale_out::NAME => &[
            "--methods",
            "--faults",
            "--repeat",
            "--concurrency",
            "--directors",
            "--second-weir",
        ],
        _ if arguments.pacemaker => &["--faults", "--repeat"],
        _ if arguments.fail => &[
            "--rate",
            "--requests",
            "--concurrency",
            "--scheduler",
            "--fail",
        ],
        "slow-server" => &[
            "--rate",
            "--requests",
            "--concurrency",
            "--repeat",
            "--methods",
        ],
        _ => &[
            "--rate",
            "--requests",
            "--concurrency",
            "--repeat",
            "--methods",
            "--scheduler",
        ],
    };
    let specified = [
        ("--rate", arguments.rate.is_some()),
        ("--requests", arguments.requests.is_some()),
        ("--concurrency", arguments.concurrency.is_some()),
        ("--repeat", arguments.repeat != 1),
        ("--fail", arguments.fail),
        ("--scheduler", arguments.scheduler.is_some()),
        ("--methods", !arguments.methods.is_empty()),
        ("--faults", !arguments.faults.is_empty()),
        ("--directors", arguments.directors.is_some()),
        ("--second-weir", arguments.second_weir.is_some()),
    ];
    let mut specified = specified
        .into_iter()
        .filter(|(_, is_specified)| *is_specified);
    specified.find_map(|(option, _)| (!supported.contains(&option)).then_some(option))
}

/// Writes the report of all experiments. The exit code is 1 if an experiment failed or has no results.
fn report(arguments: &ReportArguments) -> Result<ExitCode> {
    let mut is_complete = true;
    if arguments.run {
        let options = RunOptions {
            requests: arguments.requests,
            repeat: arguments.repeat,
            weir: arguments.weir.clone(),
            report: arguments.report.clone(),
            ..RunOptions::default()
        };
        for experiment in experiment::list() {
            eprintln!("{}", experiment.name);
            let report = experiment::run(experiment.name, &options)?;
            for failure in &report.failures {
                eprintln!("weir lab: {}: {}", failure.method, failure.error);
            }
            is_complete &= report.failures.is_empty();
        }
    }
    let (mut reports, mut missing) = (Vec::new(), Vec::new());
    for experiment in experiment::list() {
        match store::read(&arguments.report, experiment.name)? {
            Some(report) => reports.push(report),
            None => missing.push(experiment.name),
        }
    }
    if reports.is_empty() {
        return Err(LabError::NoResults {
            directory: arguments.report.clone(),
        });
    }
    let path = arguments.report.join("index.html");
    std::fs::write(&path, all::render(&reports, &missing)).map_err(LabError::file(&path))?;
    if arguments.json {
        let comparisons: Vec<_> = reports.iter().flat_map(all::comparisons).collect();
        let document = serde_json::json!({ "comparisons": comparisons, "missing": missing });
        output::print(&format!("{document:#}\n"))?;
    }
    for name in &missing {
        eprintln!("weir lab: {name}: no results");
    }
    eprintln!("report: {}", path.display());
    Ok(if is_complete && missing.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::FAILURE
    })
}

/// Returns the names and summaries of all experiments.
fn experiments() -> impl Iterator<Item = (&'static str, &'static str)> {
    let measured = experiment::list()
        .iter()
        .map(|experiment| (experiment.name, experiment.summary));
    measured.chain([
        (failover::NAME, failover::SUMMARY),
        (scale_out::NAME, scale_out::SUMMARY),
    ])
}

fn list(json: bool) -> String {
    let experiments = experiments();
    if json {
        let entries: Vec<_> = experiments
            .map(|(name, summary)| serde_json::json!({ "name": name, "summary": summary }))
            .collect();
        return format!("{}\n", serde_json::json!({ "experiments": entries }));
    }
    experiments
        .map(|(name, summary)| format!("{name:<18} {summary}\n"))
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use clap::Parser;

    #[derive(Debug, Parser)]
    struct Line {
        #[command(subcommand)]
        command: LabCommand,
    }

    #[test]
    fn documented_options_are_parsed() {
        let line = "lab run saturated-uplink --json --rate 100mbit --requests 20 --concurrency 4 --repeat 3 \
                    --scheduler wlc --methods direct,nat --report out";
        let parsed = Line::try_parse_from(line.split_whitespace())
            .expect("parse arguments")
            .command;
        let LabCommand::Run(arguments) = parsed else {
            panic!("expected `run`")
        };
        let options = RunOptions::from(&arguments);
        assert_eq!(options.rate.map(Rate::bits_per_second), Some(100_000_000));
        assert_eq!(options.methods, ["direct", "nat"]);
        assert_eq!(
            (options.requests, options.concurrency, options.repeat),
            (Some(20), Some(4), 3)
        );
    }

    #[test]
    fn values_out_of_range_are_rejected() {
        for invalid in [
            "--rate 10",
            "--requests 0",
            "--repeat 0",
            "--concurrency -1",
        ] {
            let line = format!("lab run saturated-uplink {invalid}");
            assert!(
                Line::try_parse_from(line.split_whitespace()).is_err(),
                "{invalid}"
            );
        }
    }

    #[test]
    fn options_and_values_of_other_experiments_are_rejected() {
        let error = |line: &str| {
            let parsed = Line::try_parse_from(line.split_whitespace()).expect("parse arguments");
            let LabCommand::Run(arguments) = parsed.command else {
                panic!("expected `run`")
            };
            run(&arguments)
                .expect_err("the arguments were accepted")
                .exit_code()
        };
        for invalid in [
            "lab run small-box-nat --pacemaker",
            "lab run small-box-nat --faults kill",
            "lab run clustered-rest --pacemaker --methods kill",
            "lab run clustered-rest --pacemaker --faults cut",
            "lab run director-failover --faults none",
            "lab run director-failover --directors 4",
            "lab run scale-out --faults none",
            "lab run scale-out --methods haproxy",
        ] {
            assert_eq!(error(invalid), 2, "{invalid}");
        }
    }

    #[test]
    fn options_without_effect_and_unknown_experiments_are_rejected() {
        for (line, option) in [
            ("director-failover --rate 10mbit", "--rate"),
            ("director-failover --requests 9", "--requests"),
            ("director-failover --concurrency 9", "--concurrency"),
            ("director-failover --scheduler rr", "--scheduler"),
            ("director-failover --fail", "--fail"),
            ("director-failover --second-weir x", "--second-weir"),
            ("scale-out --rate 10mbit", "--rate"),
            ("scale-out --scheduler rr", "--scheduler"),
            ("clustered-rest --pacemaker --requests 9", "--requests"),
            ("clustered-rest --fail --repeat 2", "--repeat"),
            ("small-box-nat --fail --methods nat", "--methods"),
            ("slow-server --scheduler rr", "--scheduler"),
            ("no-such-thing", ""),
        ] {
            let line = format!("lab run {line}");
            let parsed = Line::try_parse_from(line.split_whitespace()).expect("parse arguments");
            let LabCommand::Run(arguments) = parsed.command else {
                panic!("expected `run`")
            };
            let error = run(&arguments).expect_err("the arguments were accepted");
            assert_eq!(error.exit_code(), 2, "{line}: {error}");
            match error {
                LabError::Usage {
                    option: reported, ..
                } => assert_eq!(reported, option, "{line}"),
                LabError::UnknownExperiment { existing, .. } => {
                    assert!(
                        existing.contains(failover::NAME) && existing.contains(scale_out::NAME)
                    );
                }
                other => panic!("{line}: {other}"),
            }
        }
    }

    #[test]
    fn list_contains_all_experiments() {
        insta::assert_snapshot!(list(false));
    }
}
