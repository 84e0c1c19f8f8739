//! Runs one attack on one proxy in a namespace, with a server and other clients, and measures the effects.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread::Scope;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use super::attacker::{Attacker, Work};
use super::catalog::{Attack, Target};
use super::origin::{Origin, RequestCounters};
use super::prober::{Prober, Probes, REQUEST_INTERVAL, Sample};
use super::proxy::{self, Candidate};
use super::rules::{Column, DESCRIPTOR_FLOOR};
use super::usage::{self, Processes, Usage};
use crate::error::{LabError, Result};
use crate::interrupt;
use crate::namespace::Namespace;
use crate::process::{Daemon, Launcher};
use crate::session::Session;

/// Warm-up time before the attack, during which only the other clients send requests.
const WARM_UP: Duration = Duration::from_secs(1);
/// Time limit for a proxy to recover, the same for all proxies. It is also the maximum of the recovery column.
pub(crate) const RECOVERY_TIMEOUT: Duration = Duration::from_secs(5);
/// Interval between samples of the proxy's processes.
const SAMPLING_INTERVAL: Duration = Duration::from_millis(20);
/// Number of consecutive requests that a recovered proxy must serve as fast as before the attack.
const NORMAL_REQUESTS: usize = 10;
/// Latency that always counts as normal, regardless of the latency before the attack.
const NORMAL_LATENCY: Duration = Duration::from_millis(20);
/// Source addresses of the attackers. The other clients use a different address.
const SOURCES: [Ipv4Addr; 4] = [
    Ipv4Addr::new(127, 0, 0, 10),
    Ipv4Addr::new(127, 0, 0, 11),
    Ipv4Addr::new(127, 0, 0, 12),
    Ipv4Addr::new(127, 0, 0, 13),
];
/// Increment that gives the attackers a lower priority than the server and the other clients, whose latency is
/// measured.
const ATTACKER_NICE_INCREMENT: i32 = 5;

/// Settings that all trials of a run share.
pub(crate) struct Settings<'a> {
    pub(crate) session: &'a Session,
    pub(crate) certificate: &'a Path,
    pub(crate) duration: Duration,
    /// Delay before the server responds to the attackers' requests.
    pub(crate) delay: Duration,
    pub(crate) proxy_cpu: usize,
    pub(crate) tool_cpu: usize,
}

/// Results of one trial.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    pub(crate) work: Work,
    /// Units of work that the attackers sent per second.
    pub(crate) sent_per_second: f64,
    /// Attackers' requests that reached the server: total and maximum concurrent.
    pub(crate) requests: (u64, u64),
    /// Share of `tool_cpu` that the lab used for the attackers, the server and the other clients.
    pub(crate) tool_share: f64,
    values: [f64; Column::ALL.len()],
    /// The privileges of the proxy's processes, one line per process.
    pub(crate) privileges: Vec<String>,
}

impl Measurement {
    pub(crate) fn value(&self, column: Column) -> f64 {
        self.values[column as usize]
    }
}

/// Runs one trial. Removes everything that it created before it returns.
pub(crate) fn run(
    settings: &Settings<'_>,
    attack: &Attack,
    candidate: &Candidate,
) -> Result<Measurement> {
    let number = settings.session.next_number();
    let namespace = Namespace::create(&format!("{}-{number}", settings.session.tag()))?;
    namespace.set_sysctls(&[
        ("net/ipv4/ip_local_port_range", "10000 65535"),
        ("net/ipv4/tcp_rmem", "4096 65536 262144"),
        ("net/ipv4/tcp_wmem", "4096 65536 262144"),
        ("net/core/somaxconn", "4096"),
    ])?;
    let directory = settings.session.directory(&number.to_string())?;
    let launcher = Launcher {
        namespace: &namespace,
        cgroup: None,
        directory: &directory,
    };
    let measurement = namespace.enter(|| {
        pin(settings.tool_cpu)?;
        let trial = Trial {
            settings,
            attack,
            requests: RequestCounters::default(),
            probes: Probes::default(),
        };
        std::thread::scope(|scope| {
            let outcome = trial.perform(scope, &launcher, candidate);
            trial.stop();
            outcome
        })
    });
    // Best effort: the session removes any remaining files of this trial when it ends.
    let _ = std::fs::remove_dir_all(&directory);
    measurement
}

fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| LabError::file("CPU affinity")(errno.into()))
}

/// Keeps a CPU awake by starting a process that runs only while nothing else needs the CPU (SCHED_IDLE). The time that
/// a sleeping virtual CPU takes to wake up depends on the host, and the kernel counts it as CPU time of processes.
/// Without the process, identical rounds differ by a factor of two.
fn keep_awake(launcher: &Launcher<'_>, cpu: usize) -> Result<Daemon> {
    let name = format!("awake-{cpu}");
    let cpu = cpu.to_string();
    let loop_forever = ["sh", "-c", "while :; do :; done"];
    let pinned = ["--idle", "0", "taskset", "-c", &cpu];
    launcher.start(
        &name,
        Path::new("chrt"),
        &[&pinned[..], &loop_forever].concat(),
    )
}

/// Adds the name of the failed component to an I/O error of the lab itself.
fn start_error(component: &'static str) -> impl FnOnce(std::io::Error) -> LabError {
    move |source| LabError::Start {
        program: component.to_owned(),
        source,
    }
}

struct Trial<'a> {
    settings: &'a Settings<'a>,
    attack: &'a Attack,
    requests: RequestCounters,
    probes: Probes,
}

/// The state of the proxy when the attack begins.
struct Baseline {
    processes: Processes,
    usage: Usage,
    /// Highest latency of the other clients that counts as normal.
    normal: Duration,
    start: Instant,
    tool_cpu_time: Duration,
}

/// Peak usage, the end of the attack, and when the proxy's descriptor count returned to the baseline.
struct Observations {
    peak: Usage,
    attack_end: Instant,
    descriptors_recovered_at: Option<Instant>,
}

impl Trial<'_> {
    fn stop(&self) {
        self.probes.stop.store(true, Ordering::Relaxed);
        self.requests.stop.store(true, Ordering::Relaxed);
    }

    fn perform<'scope, 'env>(
        &'env self,
        scope: &'scope Scope<'scope, 'env>,
        launcher: &Launcher<'_>,
        candidate: &Candidate,
    ) -> Result<Measurement> {
        let attack = self.attack;
        let _awake = [self.settings.proxy_cpu, self.settings.tool_cpu]
            .into_iter()
            .map(|cpu| keep_awake(launcher, cpu))
            .collect::<Result<Vec<Daemon>>>()?;
        let origin = Origin::bind(self.settings.delay, &self.requests);
        let origin = origin.map_err(start_error("the server"))?;
        scope.spawn(|| origin.run());
        let mut daemon =
            candidate.start(launcher, self.settings.proxy_cpu, self.settings.certificate)?;
        let is_http2 = attack.target == Target::Http2;
        let prober = Prober::new(proxy::probe_address(attack.target), is_http2, &self.probes);
        let prober = prober.map_err(start_error("the other clients"))?;
        let probing = scope.spawn(|| prober.run());
        self.wait(WARM_UP)?;
        let baseline = self.take_baseline(&daemon)?;
        let attacker = Attacker::new(attack, proxy::attack_address(attack.target), &SOURCES)
            .map_err(start_error("the attacker"))?;
        let duration = self.settings.duration;
        let attacking = scope.spawn(move || {
            // If the priority cannot be set, the attackers run at the server's priority. The column "tool CPU" shows
            // whether that matters.
            if let Ok(nice) = rustix::process::getpriority_process(None) {
                let _ = rustix::process::setpriority_process(None, nice + ATTACKER_NICE_INCREMENT);
            }
            attacker.run(duration)
        });
        let observed = self.watch(&baseline, || attacking.is_finished())?;
        let work = attacking
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .map_err(start_error("the attacker"))?;
        let (observed, remaining) = self.wait_until_recovered(&baseline, observed, &mut daemon)?;
        let after = baseline.processes.usage();
        self.probes.stop.store(true, Ordering::Relaxed);
        // The prober waits for outstanding responses.
        let _ = probing.join();
        Ok(self.measurement(&baseline, &observed, remaining, after, work))
    }

    fn wait(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if interrupt::is_interrupted() {
                return Err(LabError::Interrupted);
            }
            std::thread::sleep(SAMPLING_INTERVAL);
        }
        Ok(())
    }

    fn take_baseline(&self, daemon: &Daemon) -> Result<Baseline> {
        let samples = self.probes.samples();
        let succeeded = samples.iter().filter(|sample| sample.succeeded).count();
        if succeeded < samples.len() || succeeded < NORMAL_REQUESTS {
            return Err(LabError::Failed {
                program: "baseline requests before the attack".into(),
                status: format!("{succeeded} of {} requests succeeded", samples.len()),
                message: String::new(),
            });
        }
        let processes = Processes::read(daemon.pid());
        Ok(Baseline {
            usage: processes.usage(),
            processes,
            normal: NORMAL_LATENCY.max(3 * percentile(&samples, 0.99)),
            start: Instant::now(),
            tool_cpu_time: usage::own_cpu(),
        })
    }

    /// Samples the proxy's usage until the attack is over.
    fn watch(&self, baseline: &Baseline, is_over: impl Fn() -> bool) -> Result<Observations> {
        let mut peak = baseline.usage;
        // After the configured duration, the attacker only closes its connections.
        while !is_over() {
            if interrupt::is_interrupted() {
                return Err(LabError::Interrupted);
            }
            peak = max_usage(peak, baseline.processes.usage());
            std::thread::sleep(SAMPLING_INTERVAL);
        }
        Ok(Observations {
            peak,
            attack_end: Instant::now(),
            descriptors_recovered_at: None,
        })
    }

    /// Waits until the proxy has returned to its baseline or the time limit has expired. Also returns the number of
    /// requests that are still in flight at the server.
    fn wait_until_recovered(
        &self,
        baseline: &Baseline,
        mut observed: Observations,
        daemon: &mut Daemon,
    ) -> Result<(Observations, u64)> {
        loop {
            let now = baseline.processes.usage();
            observed.peak = max_usage(observed.peak, now);
            let limit = baseline.usage.descriptors + DESCRIPTOR_FLOOR;
            if now.descriptors > limit {
                observed.descriptors_recovered_at = None;
            } else if observed.descriptors_recovered_at.is_none() {
                observed.descriptors_recovered_at = Some(Instant::now());
            }
            let remaining = self.requests.in_flight.load(Ordering::Relaxed);
            let is_normal = self.normal_since(baseline, &observed).is_some();
            let has_recovered =
                remaining == 0 && observed.descriptors_recovered_at.is_some() && is_normal;
            if has_recovered || observed.attack_end.elapsed() >= RECOVERY_TIMEOUT {
                daemon.check_running()?;
                return Ok((observed, remaining));
            }
            if interrupt::is_interrupted() {
                return Err(LabError::Interrupted);
            }
            std::thread::sleep(SAMPLING_INTERVAL);
        }
    }

    /// Returns the time since which the proxy has served the other clients as before the attack.
    fn normal_since(&self, baseline: &Baseline, observed: &Observations) -> Option<Instant> {
        let mut samples = self.probes.samples();
        samples.retain(|sample| sample.due >= observed.attack_end);
        normal_since(&samples, baseline.normal)
    }

    fn measurement(
        &self,
        baseline: &Baseline,
        observed: &Observations,
        remaining: u64,
        after: Usage,
        work: Work,
    ) -> Measurement {
        let mut samples = self.probes.samples();
        let recovered = self
            .normal_since(baseline, observed)
            .zip(observed.descriptors_recovered_at);
        let recovery = recovered.map_or(RECOVERY_TIMEOUT, |(probes, descriptors)| {
            let recovered_at = probes.max(descriptors);
            recovered_at.saturating_duration_since(observed.attack_end)
        });
        samples.retain(|sample| sample.due >= baseline.start && sample.due < observed.attack_end);
        let attack_seconds = observed
            .attack_end
            .duration_since(baseline.start)
            .as_secs_f64();
        let cpu = after.cpu.saturating_sub(baseline.usage.cpu).as_secs_f64() * 1000.0;
        let memory = observed.peak.memory.saturating_sub(baseline.usage.memory) as f64;
        let descriptors = observed.peak.descriptors - baseline.usage.descriptors;
        let tool = usage::own_cpu().saturating_sub(baseline.tool_cpu_time);
        let mut values = [0.0; Column::ALL.len()];
        values[Column::Cpu as usize] = cpu / attack_seconds;
        values[Column::Memory as usize] = memory / f64::from(1 << 20);
        values[Column::Descriptors as usize] = descriptors as f64;
        values[Column::Remaining as usize] = remaining as f64;
        values[Column::Latency as usize] = percentile(&samples, 0.99).as_secs_f64() * 1000.0;
        values[Column::Recovery as usize] = recovery.as_secs_f64();
        Measurement {
            sent_per_second: work.sent as f64 / attack_seconds,
            work,
            requests: (
                self.requests.total.load(Ordering::Relaxed),
                self.requests.max_in_flight.load(Ordering::Relaxed),
            ),
            tool_share: tool.as_secs_f64() / baseline.start.elapsed().as_secs_f64(),
            values,
            privileges: baseline.processes.privileges(),
        }
    }
}

fn max_usage(a: Usage, b: Usage) -> Usage {
    Usage {
        cpu: a.cpu.max(b.cpu),
        memory: a.memory.max(b.memory),
        descriptors: a.descriptors.max(b.descriptors),
    }
}

/// Returns the nearest-rank percentile; zero if there are no samples.
fn percentile(samples: &[Sample], share: f64) -> Duration {
    let mut latencies: Vec<_> = samples.iter().map(|sample| sample.latency).collect();
    latencies.sort();
    let rank = (latencies.len() as f64 * share).ceil() as usize;
    let index = rank.saturating_sub(1);
    latencies.get(index).copied().unwrap_or_default()
}

/// Returns the start of the first run of [`NORMAL_REQUESTS`] consecutive requests that were all served within `normal`.
fn normal_since(samples: &[Sample], normal: Duration) -> Option<Instant> {
    let span = REQUEST_INTERVAL * u32::try_from(NORMAL_REQUESTS - 1).unwrap_or(u32::MAX);
    let is_normal = |run: &&[Sample]| {
        let contiguous = run[NORMAL_REQUESTS - 1].due.duration_since(run[0].due) == span;
        let is_good = |sample: &Sample| sample.succeeded && sample.latency <= normal;
        contiguous && run.iter().all(is_good)
    };
    samples
        .windows(NORMAL_REQUESTS)
        .find(is_normal)
        .map(|run| run[0].due)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(count: u32, latency: impl Fn(u32) -> Duration) -> Vec<Sample> {
        let start = Instant::now();
        let sample = |number| Sample {
            due: start + REQUEST_INTERVAL * number,
            latency: latency(number),
            succeeded: true,
        };
        (0..count).map(sample).collect()
    }

    #[test]
    fn percentile_is_the_nearest_rank() {
        let samples = samples(200, |number| Duration::from_millis(u64::from(number) + 1));
        assert_eq!(percentile(&samples, 0.99), Duration::from_millis(198));
        assert_eq!(percentile(&samples, 1.0), Duration::from_millis(200));
        assert_eq!(percentile(&[], 0.99), Duration::ZERO);
    }

    #[test]
    fn recovery_begins_with_a_run_without_slow_or_missing_requests() {
        let latency = |number| Duration::from_millis(if number < 3 { 50 } else { 1 });
        let mut samples = samples(40, latency);
        let since = |samples: &[Sample]| {
            let recovered_at = normal_since(samples, NORMAL_LATENCY)?;
            Some(recovered_at.duration_since(samples[0].due))
        };
        assert_eq!(since(&samples), Some(REQUEST_INTERVAL * 3));
        // The list does not contain a request that has no response yet.
        samples.remove(10);
        assert_eq!(since(&samples), Some(REQUEST_INTERVAL * 11));
        samples[30].succeeded = false;
        assert_eq!(since(&samples), Some(REQUEST_INTERVAL * 11));
        samples[15].succeeded = false;
        assert_eq!(since(&samples[..20]), None);
    }
}
