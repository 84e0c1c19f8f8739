//! Runs all trials once, in parallel if possible, and selects the run to report.

use super::trial::{Measurement, RunContext, Trial};
use crate::error::{LabError, Result};
use crate::interrupt;

/// Total link rate that two CPUs can shape accurately. Trials with a higher rate, or without a limit, run alone.
const PARALLEL_BITS_PER_SECOND: u64 = 400_000_000;

/// Returns groups of trial indexes. The trials of a group can run in parallel without competing for the CPUs.
pub(super) fn batches(trials: &[Trial]) -> Vec<Vec<usize>> {
    let mut batches: Vec<(u64, Vec<usize>)> = Vec::new();
    for (index, trial) in trials.iter().enumerate() {
        let cost = trial
            .plan
            .link
            .map_or(u64::MAX, |link| link.bits_per_second() * trial.busy_links());
        match batches.last_mut() {
            Some((sum, members)) if sum.saturating_add(cost) <= PARALLEL_BITS_PER_SECOND => {
                *sum += cost;
                members.push(index);
            }
            _ => batches.push((cost, vec![index])),
        }
    }
    batches.into_iter().map(|(_, members)| members).collect()
}

/// Results of all trials, in trial order.
pub(super) type Round = Vec<Result<Vec<Measurement>>>;

/// Runs all trials once.
///
/// # Errors
/// Returns only [`LabError::Interrupted`]; the results include the errors of trials.
pub(super) fn run(context: &RunContext<'_>, trials: &[Trial]) -> Result<Round> {
    let mut results = Vec::new();
    for batch in batches(trials) {
        let outcomes: Round = std::thread::scope(|scope| {
            let batch_trials = batch.iter().filter_map(|index| trials.get(*index));
            let threads: Vec<_> = batch_trials
                .map(|trial| scope.spawn(|| run_trial(context, trial)))
                .collect();
            threads
                .into_iter()
                .map(|thread| {
                    thread
                        .join()
                        .unwrap_or_else(|p| std::panic::resume_unwind(p))
                })
                .collect()
        });
        if interrupt::is_interrupted() {
            return Err(LabError::Interrupted);
        }
        results.extend(outcomes);
    }
    Ok(results)
}

fn run_trial(context: &RunContext<'_>, trial: &Trial) -> Result<Vec<Measurement>> {
    let result = trial.run(context);
    let name = &trial.method.name;
    match &result {
        Ok(measured) => {
            let seconds: f64 = measured
                .iter()
                .map(|measurement| measurement.outcome.seconds)
                .sum();
            context
                .progress
                .done(name, &format!("done, {seconds:.1} s"));
        }
        // The command reports an interruption once for all methods.
        Err(LabError::Interrupted) => {}
        Err(error) => context.progress.done(name, &format!("FAILED: {error}")),
    }
    result
}

/// Returns the run with the median time; for an even number of runs, the faster of the two middle ones.
pub(super) fn median<'a>(runs: &[&'a Measurement]) -> Option<&'a Measurement> {
    let mut sorted = runs.to_vec();
    sorted.sort_by(|a, b| a.outcome.seconds.total_cmp(&b.outcome.seconds));
    sorted.get(sorted.len().saturating_sub(1) / 2).copied()
}

#[cfg(test)]
mod tests {
    use super::super::{RunOptions, saturated_uplink, small_box_nat};
    use super::*;

    #[test]
    fn trials_with_slow_links_run_in_parallel_and_others_alone() {
        let options = |rate: &str| RunOptions {
            rate: Some(rate.parse().expect("rate")),
            ..RunOptions::default()
        };
        let groups =
            |options: &RunOptions| batches(&saturated_uplink::trials(options).expect("trials"));
        assert_eq!(groups(&options("10mbit")).len(), 1);
        assert_eq!(
            groups(&options("100mbit")),
            [vec![0, 1, 2], vec![3], vec![4], vec![5], vec![6]]
        );
        let unlimited = small_box_nat::trials(&RunOptions::default()).expect("trials");
        assert_eq!(batches(&unlimited), [[0], [1], [2]]);
    }
}
