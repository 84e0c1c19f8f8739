//! Finds servers that are slower than the others of their service, from the latency that the daemon estimates.

use crate::{Diagnosis, ServiceReport};

/// Fewer samples of a server prove nothing.
const MIN_SAMPLES: u64 = 50;
/// A slow server's median exceeds that of the others by this factor and by this time.
const FACTOR: i64 = 2;
const LEAST_US: i64 = 1_000;

/// Reports servers whose median latency is at least twice the median of the other servers' medians.
pub(crate) fn slow_servers(service: &ServiceReport) -> Vec<Diagnosis> {
    let servers = service.servers.iter().filter(|server| !server.removed);
    let known: Vec<(&str, i64)> = servers
        .filter_map(|server| {
            let latency = server.latency.filter(|it| it.samples >= MIN_SAMPLES)?;
            Some((server.address.as_str(), latency.p50_us))
        })
        .collect();
    let slow = known.iter().filter_map(|(address, p50_us)| {
        let mut others: Vec<i64> = known
            .iter()
            .filter(|(other, _)| other != address)
            .map(|(_, p50_us)| *p50_us)
            .collect();
        others.sort_unstable();
        let usual = *others.get(others.len() / 2)?;
        let is_slow = *p50_us >= usual * FACTOR && *p50_us >= usual + LEAST_US;
        let ms = |us: i64| us as f64 / 1_000.0;
        is_slow.then(|| {
            Diagnosis::new(
                format!(
                    "server {address} of {} is slow: half of its answers take longer than {:.1} ms, at the other \
                     servers {:.1} ms",
                    service.name,
                    ms(*p50_us),
                    ms(usual)
                ),
                "its clients wait longer; a scheduler other than least-time sends it as many flows as the others",
            )
        })
    });
    slow.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Latency, ServerReport};

    fn service(p50_us: &[i64], samples: u64) -> ServiceReport {
        let server = |(index, p50_us): (usize, &i64)| ServerReport {
            address: format!("10.0.0.{}", index + 1),
            latency: Some(Latency {
                p50_us: *p50_us,
                samples,
            }),
            ..ServerReport::default()
        };
        ServiceReport {
            name: "web".to_owned(),
            servers: p50_us.iter().enumerate().map(server).collect(),
            ..ServiceReport::default()
        }
    }

    #[test]
    fn only_the_slow_server_is_named() {
        let found = slow_servers(&service(&[2_000, 2_100, 9_000, 1_900], 200));
        assert_eq!(found.len(), 1);
        assert_eq!(
            found[0].observation,
            "server 10.0.0.3 of web is slow: half of its answers take longer than 9.0 ms, at the other servers 2.0 ms"
        );
    }

    #[test]
    fn small_differences_and_few_samples_are_no_finding() {
        assert!(slow_servers(&service(&[100, 100, 900], 200)).is_empty());
        assert!(slow_servers(&service(&[5_000, 5_000, 9_000], 200)).is_empty());
        assert!(slow_servers(&service(&[2_000, 2_000, 9_000], 10)).is_empty());
        assert!(slow_servers(&service(&[9_000], 200)).is_empty());
    }
}
