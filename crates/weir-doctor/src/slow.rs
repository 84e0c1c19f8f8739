//! Reports servers that are slower than the other servers in their service, by the latency that the daemon measures.

use crate::{Diagnosis, ServiceReport};

/// Minimum number of samples for a server to be compared.
const MIN_SAMPLES: u64 = 50;
/// Minimum ratio of a slow server's median to the median of the other servers.
const MIN_RATIO: i64 = 2;
/// Minimum difference between a slow server's median and the median of the other servers.
const MIN_DIFFERENCE_US: i64 = 1_000;

/// Reports servers whose median latency is at least twice the median of the other servers' medians, and at least
/// [`MIN_DIFFERENCE_US`] longer.
pub(crate) fn slow_servers(service: &ServiceReport) -> Vec<Diagnosis> {
    let servers = service.servers.iter().filter(|server| !server.removed);
    let medians: Vec<(&str, i64)> = servers
        .filter_map(|server| {
            let latency = server
                .latency
                .filter(|latency| latency.samples >= MIN_SAMPLES)?;
            Some((server.address.as_str(), latency.p50_us))
        })
        .collect();
    let slow = medians.iter().filter_map(|(address, p50_us)| {
        let mut others: Vec<i64> = medians
            .iter()
            .filter(|(other, _)| other != address)
            .map(|(_, p50_us)| *p50_us)
            .collect();
        others.sort_unstable();
        let typical_us = *others.get(others.len() / 2)?;
        let is_slow =
            *p50_us >= typical_us * MIN_RATIO && *p50_us >= typical_us + MIN_DIFFERENCE_US;
        let ms = |us: i64| us as f64 / 1_000.0;
        is_slow.then(|| {
            Diagnosis::new(
                format!(
                    "server {address} of {} is slow: half of its responses take longer than {:.1} ms, compared with \
                     {:.1} ms for the other servers",
                    service.name,
                    ms(*p50_us),
                    ms(typical_us)
                ),
                "its clients wait longer; schedulers other than least-time send it as many flows as the other servers",
            )
            .fix("find the cause on that server; until then, reduce its weight, or use scheduler = \"least-time\"")
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
    fn only_the_slow_server_is_reported() {
        let findings = slow_servers(&service(&[2_000, 2_100, 9_000, 1_900], 200));
        assert_eq!(findings.len(), 1);
        assert_eq!(
            findings[0].observation,
            "server 10.0.0.3 of web is slow: half of its responses take longer than 9.0 ms, compared with 2.0 ms for \
             the other servers"
        );
    }

    #[test]
    fn small_differences_and_few_samples_are_not_reported() {
        assert!(slow_servers(&service(&[100, 100, 900], 200)).is_empty());
        assert!(slow_servers(&service(&[5_000, 5_000, 9_000], 200)).is_empty());
        assert!(slow_servers(&service(&[2_000, 2_000, 9_000], 10)).is_empty());
        assert!(slow_servers(&service(&[9_000], 200)).is_empty());
    }
}
