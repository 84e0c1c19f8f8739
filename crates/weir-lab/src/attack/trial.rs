//! One attack on one proxy: a namespace, an origin, the proxy, other clients, the attack, and what all of that did.

use std::net::Ipv4Addr;
use std::path::Path;
use std::sync::atomic::Ordering;
use std::thread::Scope;
use std::time::{Duration, Instant};

use rustix::thread::{CpuSet, sched_setaffinity};

use super::attacker::{Attacker, Work};
use super::catalog::{Attack, Target};
use super::origin::{Origin, Requests};
use super::prober::{PERIOD, Prober, Probes, Sample};
use super::proxy::{self, Candidate};
use super::rules::{Column, DESCRIPTOR_FLOOR};
use super::usage::{self, Processes, Usage};
use crate::error::{LabError, Result};
use crate::interrupt;
use crate::namespace::Namespace;
use crate::process::{Daemon, Launcher};
use crate::session::Session;

/// Other clients alone, before the attack.
const WARM_UP: Duration = Duration::from_secs(1);
/// What a proxy gets to recover. It is the same for all, and the worst that the column of recovery can show.
pub(crate) const SETTLE: Duration = Duration::from_secs(5);
/// Time between two looks at the proxy's processes.
const SAMPLING: Duration = Duration::from_millis(20);
/// So many requests in a row must be as before the attack.
const NORMAL_RUN: usize = 10;
/// Latency that counts as normal whatever it was before.
const NORMAL: Duration = Duration::from_millis(20);
/// The attackers' addresses. The other clients have another one.
const SOURCES: [Ipv4Addr; 4] = [
    Ipv4Addr::new(127, 0, 0, 10),
    Ipv4Addr::new(127, 0, 0, 11),
    Ipv4Addr::new(127, 0, 0, 12),
    Ipv4Addr::new(127, 0, 0, 13),
];
/// Attackers give way to the origin and to the other clients, whose time is measured.
const NICENESS: i32 = 5;

/// What every trial of a run has in common.
pub(crate) struct Setting<'a> {
    pub(crate) session: &'a Session,
    pub(crate) certificate: &'a Path,
    pub(crate) duration: Duration,
    /// After which the origin answers what attackers ask for.
    pub(crate) delay: Duration,
    pub(crate) proxy_cpu: usize,
    pub(crate) tool_cpu: usize,
}

/// What one trial measured.
#[derive(Clone, Debug)]
pub(crate) struct Measurement {
    pub(crate) work: Work,
    /// Of the attackers' work.
    pub(crate) sent_per_second: f64,
    /// Requests of the attackers that reached the origin, and the most at once.
    pub(crate) requests: (u64, u64),
    /// Share of its CPU that the program itself used: attackers, origin and other clients.
    pub(crate) tool_share: f64,
    values: [f64; Column::ALL.len()],
}

impl Measurement {
    pub(crate) fn value(&self, column: Column) -> f64 {
        self.values[column as usize]
    }
}

/// Runs one trial. Everything that it made is gone when it returns.
pub(crate) fn run(
    setting: &Setting<'_>,
    attack: &Attack,
    candidate: &Candidate,
) -> Result<Measurement> {
    let number = setting.session.next_number();
    let namespace = Namespace::create(&format!("{}-{number}", setting.session.tag()))?;
    namespace.set_sysctls(&[
        ("net/ipv4/ip_local_port_range", "10000 65535"),
        ("net/ipv4/tcp_rmem", "4096 65536 262144"),
        ("net/ipv4/tcp_wmem", "4096 65536 262144"),
        ("net/core/somaxconn", "4096"),
    ])?;
    let directory = setting.session.directory(&number.to_string())?;
    let launcher = Launcher {
        namespace: &namespace,
        directory: &directory,
    };
    let measurement = namespace.enter(|| {
        pin(setting.tool_cpu)?;
        let trial = Trial {
            setting,
            attack,
            requests: Requests::default(),
            probes: Probes::default(),
        };
        std::thread::scope(|scope| {
            let outcome = trial.perform(scope, &launcher, candidate);
            trial.stop();
            outcome
        })
    });
    // Only files of this trial; the session's own end removes what does not go now.
    let _ = std::fs::remove_dir_all(&directory);
    measurement
}

fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).map_err(|errno| socket_error("CPU affinity")(errno.into()))
}

/// Names what an error of the program's own sockets and threads was about.
fn socket_error(what: &'static str) -> impl FnOnce(std::io::Error) -> LabError {
    move |source| LabError::Start {
        program: what.to_owned(),
        source,
    }
}

struct Trial<'a> {
    setting: &'a Setting<'a>,
    attack: &'a Attack,
    requests: Requests,
    probes: Probes,
}

/// What is known when the attack begins.
struct Before {
    processes: Processes,
    usage: Usage,
    /// Latency of the other clients that is normal.
    normal: Duration,
    start: Instant,
    tool_cpu: Duration,
}

/// The highest of what was seen, and when the proxy was as before.
struct Seen {
    peak: Usage,
    attack_end: Instant,
    descriptors_back: Option<Instant>,
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
        let origin = Origin::bind(self.setting.delay, &self.requests);
        let origin = origin.map_err(socket_error("the origin"))?;
        scope.spawn(|| origin.run());
        let mut daemon =
            candidate.start(launcher, self.setting.proxy_cpu, self.setting.certificate)?;
        let is_http2 = attack.target == Target::Http2;
        let prober = Prober::new(proxy::probed(attack.target), is_http2, &self.probes);
        let prober = prober.map_err(socket_error("the other clients"))?;
        let probing = scope.spawn(|| prober.run());
        self.wait(WARM_UP)?;
        let before = self.before(&daemon)?;
        let attacker = Attacker::new(attack, proxy::attacked(attack.target), &SOURCES)
            .map_err(socket_error("the attacker"))?;
        let duration = self.setting.duration;
        let attacking = scope.spawn(move || {
            // Without it the attackers have the origin's priority; the column of the tool's own share shows whether it
            // matters.
            if let Ok(own) = rustix::process::getpriority_process(None) {
                let _ = rustix::process::setpriority_process(None, own + NICENESS);
            }
            attacker.run(duration)
        });
        let seen = self.watch(&before, || attacking.is_finished())?;
        let work = attacking
            .join()
            .unwrap_or_else(|panic| std::panic::resume_unwind(panic))
            .map_err(socket_error("the attacker"))?;
        let (seen, left) = self.settle(&before, seen, &mut daemon)?;
        let after = before.processes.usage();
        self.probes.stop.store(true, Ordering::Relaxed);
        // It waits for the answers that are still to come.
        let _ = probing.join();
        Ok(self.measurement(&before, &seen, left, after, work))
    }

    fn wait(&self, time: Duration) -> Result<()> {
        let end = Instant::now() + time;
        while Instant::now() < end {
            if interrupt::requested() {
                return Err(LabError::Interrupted);
            }
            std::thread::sleep(SAMPLING);
        }
        Ok(())
    }

    fn before(&self, daemon: &Daemon) -> Result<Before> {
        let samples = self.probes.samples();
        let answered = samples.iter().filter(|sample| sample.succeeded).count();
        if answered < samples.len() || answered < NORMAL_RUN {
            return Err(LabError::Failed {
                program: "the other clients, before the attack".into(),
                status: format!("{answered} of {} requests answered", samples.len()),
                message: String::new(),
            });
        }
        let processes = Processes::of(daemon.pid());
        Ok(Before {
            usage: processes.usage(),
            processes,
            normal: NORMAL.max(3 * percentile(&samples, 0.99)),
            start: Instant::now(),
            tool_cpu: usage::own_cpu(),
        })
    }

    /// Looks at the proxy until the attack is over.
    fn watch(&self, before: &Before, is_over: impl Fn() -> bool) -> Result<Seen> {
        let mut peak = before.usage;
        // Past the attack's duration it only closes its connections.
        while !is_over() {
            if interrupt::requested() {
                return Err(LabError::Interrupted);
            }
            peak = higher(peak, before.processes.usage());
            std::thread::sleep(SAMPLING);
        }
        Ok(Seen {
            peak,
            attack_end: Instant::now(),
            descriptors_back: None,
        })
    }

    /// Waits until the proxy is as before the attack, or time is up; also returns the requests that remain at the server.
    fn settle(&self, before: &Before, mut seen: Seen, daemon: &mut Daemon) -> Result<(Seen, u64)> {
        loop {
            let now = before.processes.usage();
            seen.peak = higher(seen.peak, now);
            let limit = before.usage.descriptors + DESCRIPTOR_FLOOR;
            if now.descriptors > limit {
                seen.descriptors_back = None;
            } else if seen.descriptors_back.is_none() {
                seen.descriptors_back = Some(Instant::now());
            }
            let left = self.requests.present.load(Ordering::Relaxed);
            let is_normal = self.normal_since(before, &seen).is_some();
            let is_settled = left == 0 && seen.descriptors_back.is_some() && is_normal;
            if is_settled || seen.attack_end.elapsed() >= SETTLE {
                daemon.check_running()?;
                return Ok((seen, left));
            }
            if interrupt::requested() {
                return Err(LabError::Interrupted);
            }
            std::thread::sleep(SAMPLING);
        }
    }

    /// Since when the other clients are served as before.
    fn normal_since(&self, before: &Before, seen: &Seen) -> Option<Instant> {
        let mut samples = self.probes.samples();
        samples.retain(|sample| sample.issued >= seen.attack_end);
        normal_since(&samples, before.normal)
    }

    fn measurement(
        &self,
        before: &Before,
        seen: &Seen,
        left: u64,
        after: Usage,
        work: Work,
    ) -> Measurement {
        let mut samples = self.probes.samples();
        let recovered = self.normal_since(before, seen).zip(seen.descriptors_back);
        let recovery = recovered.map_or(SETTLE, |(probes, descriptors)| {
            let moment = probes.max(descriptors);
            moment.saturating_duration_since(seen.attack_end)
        });
        samples.retain(|it| it.issued >= before.start && it.issued < seen.attack_end);
        let attack_seconds = seen.attack_end.duration_since(before.start).as_secs_f64();
        let cpu = after.cpu.saturating_sub(before.usage.cpu).as_secs_f64() * 1000.0;
        let memory = seen.peak.memory.saturating_sub(before.usage.memory) as f64;
        let descriptors = seen.peak.descriptors - before.usage.descriptors;
        let tool = usage::own_cpu().saturating_sub(before.tool_cpu);
        let mut values = [0.0; Column::ALL.len()];
        values[Column::Cpu as usize] = cpu / attack_seconds;
        values[Column::Memory as usize] = memory / f64::from(1 << 20);
        values[Column::Descriptors as usize] = descriptors as f64;
        values[Column::Left as usize] = left as f64;
        values[Column::Latency as usize] = percentile(&samples, 0.99).as_secs_f64() * 1000.0;
        values[Column::Recovery as usize] = recovery.as_secs_f64();
        Measurement {
            sent_per_second: work.sent as f64 / attack_seconds,
            work,
            requests: (
                self.requests.total.load(Ordering::Relaxed),
                self.requests.most.load(Ordering::Relaxed),
            ),
            tool_share: tool.as_secs_f64() / before.start.elapsed().as_secs_f64(),
            values,
        }
    }
}

fn higher(one: Usage, other: Usage) -> Usage {
    Usage {
        cpu: one.cpu.max(other.cpu),
        memory: one.memory.max(other.memory),
        descriptors: one.descriptors.max(other.descriptors),
    }
}

/// The nearest rank; 0 without samples.
fn percentile(samples: &[Sample], share: f64) -> Duration {
    let mut latencies: Vec<_> = samples.iter().map(|sample| sample.latency).collect();
    latencies.sort();
    let rank = (latencies.len() as f64 * share).ceil() as usize;
    let at = rank.saturating_sub(1);
    latencies.get(at).copied().unwrap_or_default()
}

/// The beginning of the first run of requests, none left out, that were served within `normal`.
fn normal_since(samples: &[Sample], normal: Duration) -> Option<Instant> {
    let span = PERIOD * u32::try_from(NORMAL_RUN - 1).unwrap_or(u32::MAX);
    let is_normal = |run: &&[Sample]| {
        let whole = run[NORMAL_RUN - 1].issued.duration_since(run[0].issued) == span;
        let good = |sample: &Sample| sample.succeeded && sample.latency <= normal;
        whole && run.iter().all(good)
    };
    samples
        .windows(NORMAL_RUN)
        .find(is_normal)
        .map(|run| run[0].issued)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn samples(count: u32, latency: impl Fn(u32) -> Duration) -> Vec<Sample> {
        let start = Instant::now();
        let sample = |number| Sample {
            issued: start + PERIOD * number,
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
            let moment = normal_since(samples, NORMAL)?;
            Some(moment.duration_since(samples[0].issued))
        };
        assert_eq!(since(&samples), Some(PERIOD * 3));
        // One that has no answer yet is not in the list.
        samples.remove(10);
        assert_eq!(since(&samples), Some(PERIOD * 11));
        samples[30].succeeded = false;
        assert_eq!(since(&samples), Some(PERIOD * 11));
        samples[15].succeeded = false;
        assert_eq!(since(&samples[..20]), None);
    }
}
