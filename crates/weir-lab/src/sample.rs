//! Samples the byte rates of all hosts during a trial.
//!
//! The sampler counts bytes after the shapers, so that a sample shows the traffic on the link and not the offered
//! traffic. The counters of the hosts are not used, because they include neither packets that XDP sends nor packets
//! that XDP consumes.

use std::collections::HashMap;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread::ScopedJoinHandle;
use std::time::{Duration, Instant};

use crate::error::{LabError, Result};
use crate::topology::Topology;

/// Sampling interval.
pub(crate) const SAMPLING_INTERVAL: Duration = Duration::from_millis(250);
/// The counters of the calling thread's network namespace (proc(5)).
const COUNTERS: &str = "/proc/thread-self/net/dev";

/// Rates of a host, for the intervals in [`Series::seconds`].
#[derive(Clone, Debug, PartialEq, serde::Serialize)]
pub struct HostSeries {
    /// Name of the host: `client`, `director`, `server1`….
    pub host: String,
    /// Transmit rates, in Mbit/s.
    pub transmit: Vec<f64>,
    /// Receive rates, in Mbit/s.
    pub receive: Vec<f64>,
}

/// Rates of all hosts during a trial.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Series {
    /// End of each interval, in seconds since the start of the measurement.
    pub seconds: Vec<f64>,
    /// One entry per host: client, director, servers.
    pub hosts: Vec<HostSeries>,
}

/// The first server's share of the responses during a run. JSON: `"slow_server_share"`.
#[derive(Clone, Debug, Default, PartialEq, serde::Serialize)]
pub struct Shares {
    /// The share of all responses in the run, 0 to 1.
    #[serde(rename = "slow_server_share")]
    pub mean: f64,
    /// End of each interval, in seconds since the start of the run.
    #[serde(skip)]
    pub seconds: Vec<f64>,
    /// The share in each interval. An interval without responses repeats the previous share.
    #[serde(skip)]
    pub shares: Vec<f64>,
}

impl Series {
    /// Returns the mean rates `(transmit, receive)` of a host in Mbit/s.
    pub fn mean(&self, host: &str) -> Option<(f64, f64)> {
        let series = self.hosts.iter().find(|series| series.host == host)?;
        let mean = |values: &[f64]| {
            let mut start = 0.0;
            let mut bits = 0.0;
            for (value, end) in values.iter().zip(&self.seconds) {
                bits += value * (end - start);
                start = *end;
            }
            if start > 0.0 { bits / start } else { 0.0 }
        };
        Some((mean(&series.transmit), mean(&series.receive)))
    }

    /// Reduces the series to at most `points` intervals for drawing, with means over adjacent intervals.
    pub(crate) fn downsample(&self, points: usize) -> Series {
        let step = self.seconds.len().div_ceil(points.max(1)).max(1);
        let ends = self
            .seconds
            .chunks(step)
            .filter_map(|chunk| chunk.last().copied())
            .collect();
        let average = |values: &[f64]| -> Vec<f64> {
            values
                .chunks(step)
                .map(|chunk| chunk.iter().sum::<f64>() / chunk.len() as f64)
                .collect()
        };
        let hosts = self.hosts.iter().map(|series| HostSeries {
            host: series.host.clone(),
            transmit: average(&series.transmit),
            receive: average(&series.receive),
        });
        Series {
            seconds: ends,
            hosts: hosts.collect(),
        }
    }
}

/// Parses `/proc/net/dev` and returns `(received, sent)` bytes by device.
fn parse_counters(text: &str) -> HashMap<&str, (u64, u64)> {
    let line = |line: &'_ str| -> Option<(usize, u64, u64)> {
        let colon = line.find(':')?;
        let fields: Vec<u64> = line[colon + 1..]
            .split_whitespace()
            .map_while(|word| word.parse().ok())
            .collect();
        Some((colon, *fields.first()?, *fields.get(8)?))
    };
    text.lines()
        .filter_map(|l| line(l).map(|(colon, rx, tx)| (l[..colon].trim(), (rx, tx))))
        .collect()
}

/// Returns `(sent, received)` bytes of each host: bytes sent by `NAME-a` to the bridge, and by `NAME` to the host.
fn read(names: &[String]) -> Result<Vec<(u64, u64)>> {
    let text = std::fs::read_to_string(COUNTERS).map_err(LabError::file(COUNTERS))?;
    let counters = parse_counters(&text);
    let sent = |device: &str| counters.get(device).map_or(0, |(_, tx)| *tx);
    Ok(names
        .iter()
        .map(|name| (sent(&format!("{name}-a")), sent(name)))
        .collect())
}

/// Samples `topology` while `work` runs. Returns the result of `work` and the samples.
pub(crate) fn run_sampled<T>(
    topology: &Topology,
    work: impl FnOnce() -> Result<T>,
) -> Result<(T, Series)> {
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let sampler = scope.spawn(|| topology.wire.enter(|| collect(topology, &stop)));
        let result = work();
        stop.store(true, Ordering::Release);
        let series = join(sampler)?;
        Ok((result?, series))
    })
}

fn join(sampler: ScopedJoinHandle<'_, Result<Series>>) -> Result<Series> {
    match sampler.join() {
        Ok(series) => series,
        Err(panic) => std::panic::resume_unwind(panic),
    }
}

fn collect(topology: &Topology, stop: &AtomicBool) -> Result<Series> {
    let names: Vec<String> = topology.hosts().map(|host| host.name.clone()).collect();
    let mut series = Series {
        seconds: Vec::new(),
        hosts: names
            .iter()
            .map(|host| HostSeries {
                host: host.clone(),
                transmit: Vec::new(),
                receive: Vec::new(),
            })
            .collect(),
    };
    let start = Instant::now();
    let mut previous = (start, read(&names)?);
    while !stop.load(Ordering::Acquire) {
        std::thread::sleep(SAMPLING_INTERVAL);
        let now = (Instant::now(), read(&names)?);
        let seconds = (now.0 - previous.0).as_secs_f64();
        let rate =
            |after: u64, before: u64| after.saturating_sub(before) as f64 * 8.0 / 1e6 / seconds;
        for ((host, after), before) in series.hosts.iter_mut().zip(&now.1).zip(&previous.1) {
            host.transmit.push(rate(after.0, before.0));
            host.receive.push(rate(after.1, before.1));
        }
        series.seconds.push((now.0 - start).as_secs_f64());
        previous = now;
    }
    Ok(series)
}

#[cfg(test)]
mod tests {
    use super::*;

    const PROC_NET_DEV: &str = "\
Inter-|   Receive                                                |  Transmit
 face |bytes    packets errs drop fifo frame compressed multicast|bytes    packets errs drop fifo colls carrier \
 compressed
    lo:       1       0    0    0    0     0          0         0        1       0    0    0    0     0       \
    0          0
server1-a:  700       9    0    0    0     0          0         0     4242      11    0    0    0     0       \
0          0
";

    #[test]
    fn counters_are_parsed() {
        let counters = parse_counters(PROC_NET_DEV);
        assert_eq!(counters.get("server1-a"), Some(&(700, 4242)));
        assert_eq!(counters.len(), 2);
    }

    fn series() -> Series {
        Series {
            seconds: vec![1.0, 2.0, 4.0],
            hosts: vec![HostSeries {
                host: "director".into(),
                transmit: vec![10.0, 0.0, 5.0],
                receive: vec![1.0, 1.0, 1.0],
            }],
        }
    }

    #[test]
    fn mean_weights_intervals_by_duration() {
        assert_eq!(series().mean("director"), Some((5.0, 1.0)));
        assert_eq!(series().mean("missing"), None);
    }

    #[test]
    fn downsampling_averages_adjacent_intervals() {
        let downsampled = series().downsample(2);
        assert_eq!(downsampled.seconds, [2.0, 4.0]);
        assert_eq!(downsampled.hosts[0].transmit, [5.0, 5.0]);
        assert_eq!(series().downsample(100), series());
    }
}
