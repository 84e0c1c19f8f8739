//! Describes the conditions of a run that a reader needs to interpret the results.

use std::path::Path;

use crate::experiment::RunOptions;
use crate::peer::haproxy;
use crate::process;
use crate::rate::Rate;
use crate::topology::BACKLOG;

/// Conditions that the trials of a run have in common.
pub(crate) struct RunProperties {
    pub(crate) link: Option<Rate>,
    /// Names of the schedulers in Weir; several if the methods use different schedulers.
    pub(crate) schedulers: Vec<String>,
    pub(crate) haproxy: bool,
    pub(crate) nftables_direct: bool,
    pub(crate) side_by_side: bool,
    /// Whether balancers were disturbed.
    pub(crate) disturbed: bool,
    /// Whether servers joined and left.
    pub(crate) membership_changes: bool,
    /// Whether the lab's own servers ran, one of which was slower.
    pub(crate) paced: bool,
}

/// Returns the notes of a run.
pub(crate) fn for_run(
    options: &RunOptions,
    properties: &RunProperties,
    weir: Option<&Path>,
) -> Vec<String> {
    let mut notes = vec![link(properties)];
    notes.push(format!(
        "Accept queues: {BACKLOG} on every host, for Weir and its peers."
    ));
    notes.extend(schedulers(properties));
    if options.repeat > 1 {
        notes.push(format!(
            "Each row is the run with the median time out of {} runs; \"failed\" is the highest count of all runs.",
            options.repeat
        ));
    }
    if properties.side_by_side {
        notes.push(
            "Methods with slow links ran in parallel, each with separate hosts and links.".into(),
        );
    }
    if properties.disturbed {
        notes.push(
            "The balancer is reloaded every 100 ms; each reload adds or removes one server. If SYNs are dropped, a \
             reload starts one second after the previous one has ended. Upgrades and kills (-9) of the daemon start \
             every second. \"keep-alive\": the client is wrk, which keeps its connections open. In other runs, it \
             is ab, which opens one connection per request and counts a broken connection up to three times."
                .into(),
        );
    }
    if properties.membership_changes {
        notes.push(
            "Clients run on the director. In disturbed runs, one server joins or leaves every 60 ms: through \
             Weir's API, or by a reload of HAProxy, which takes longer. \"keep-alive\": the client is wrk, which \
             keeps its connections open. In other runs, it is ab, which opens one connection per request."
                .into(),
        );
    }
    if properties.paced {
        notes.push(
            "The servers are threads of the lab: a response takes 4 ms, and 1, 5 or 20 ms more at the first server. \
             While the first server is starved of CPU time, it handles one request at a time, each in 8 ms. ab opens \
             one connection per request."
                .into(),
        );
    }
    notes.push(machine());
    if let Some(path) = weir {
        notes.push(format!("Weir: {}.", path.display()));
    }
    notes
}

fn link(properties: &RunProperties) -> String {
    match properties.link {
        Some(rate) => format!(
            "Links: {rate} for every host in both directions, shaped outside the host; the client's receive direction \
             is not limited."
        ),
        None => "Links: not limited; the CPUs are the bottleneck, and all hosts share them.".into(),
    }
}

fn schedulers(properties: &RunProperties) -> Option<String> {
    let mut parts = Vec::new();
    match properties.schedulers.as_slice() {
        [] => {}
        [scheduler] => parts.push(format!("Weir: {scheduler}")),
        _ => parts.push("Weir: the scheduler in the method's name".into()),
    }
    if let (true, Some(scheduler)) = (properties.haproxy, properties.schedulers.first()) {
        parts.push(match haproxy::balance(scheduler) {
            Some(balance) => format!("HAProxy: balance {balance}"),
            None => "HAProxy has no equivalent and uses balance roundrobin".into(),
        });
    }
    if properties.nftables_direct {
        parts.push(
            "nftables hashes the client's port, because it keeps no state for round robin".into(),
        );
    }
    (!parts.is_empty()).then(|| format!("Schedulers: {}.", parts.join("; ")))
}

fn machine() -> String {
    let kernel = std::fs::read_to_string("/proc/sys/kernel/osrelease").unwrap_or_default();
    let processors = std::thread::available_parallelism().map_or(1, std::num::NonZero::get);
    let mut parts = vec![
        format!("kernel {}", kernel.trim()),
        format!("{processors} processors"),
    ];
    // Skip programs that are not installed: the run did not use them.
    for path in ["haproxy", "nginx", "nft"]
        .iter()
        .filter_map(|name| process::find(name))
    {
        // Some programs print their version to stdout, others to stderr.
        let line = format!("{} -v 2>&1", path.display());
        if let Ok(text) = process::run("sh", &["-c", &line]) {
            parts.extend(text.lines().next().map(|line| line.trim().to_owned()));
        }
    }
    format!("Machine: {}.", parts.join(", "))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn scheduler_missing_in_a_peer_is_reported() {
        let note = |scheduler: &str| {
            let properties = RunProperties {
                link: None,
                schedulers: vec![scheduler.to_owned()],
                haproxy: true,
                nftables_direct: true,
                side_by_side: false,
                disturbed: false,
                membership_changes: false,
                paced: false,
            };
            schedulers(&properties).expect("has a note")
        };
        assert!(note("mh").contains("no equivalent"));
        assert!(note("wlc").contains("leastconn"));
        assert!(note("rr").contains("hashes the client's port"));
    }
}
