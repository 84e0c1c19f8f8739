//! Tests the average and the quantiles with known samples.

use super::*;

const MS: i64 = 1_000_000;

#[test]
fn quantiles_are_within_a_bucket() {
    let mut statistics = Statistics::new(Method::Timestamps);
    let samples: Vec<i64> = (1..=1_000).map(|n| n * MS / 10).collect();
    statistics.add(&samples, 1);
    let summary = statistics.summary().unwrap();
    for (value, expected) in [
        (summary.mean_ms, 50.05),
        (summary.p50_ms, 50.0),
        (summary.p90_ms, 90.0),
        (summary.p99_ms, 99.0),
    ] {
        assert!(
            (value / expected - 1.0).abs() < 0.05,
            "{value} instead of {expected}"
        );
    }
    assert_eq!(summary.samples, 1_000);
}

#[test]
fn negative_samples_are_included_in_mean() {
    let mut statistics = Statistics::new(Method::Timestamps);
    statistics.add(&[-MS, 2 * MS, -MS, 2 * MS], 1);
    let summary = statistics.summary().unwrap();
    assert!((summary.mean_ms - 0.5).abs() < 1e-9);
    assert_eq!(summary.p50_ms, 0.0);
}

#[test]
fn mean_of_summary_is_never_negative() {
    let mut statistics = Statistics::new(Method::Timestamps);
    statistics.add(&[-MS, -MS, MS], 1);
    assert_eq!(statistics.summary().unwrap().mean_ms, 0.0);
}

#[test]
fn average_adapts_to_slow_and_recovered_server_within_forty_samples() {
    let mut statistics = Statistics::new(Method::Timestamps);
    statistics.add(&[MS; 200], 1);
    statistics.add(&[20 * MS; 20], 2);
    assert!(statistics.average_us(2).unwrap() > 15_000.0);
    statistics.add(&[MS; 40], 3);
    assert!(statistics.average_us(3).unwrap() < 2_000.0);
}

#[test]
fn old_samples_are_excluded_from_average_and_histogram() {
    let mut statistics = Statistics::new(Method::Gaps);
    assert_eq!(statistics.summary(), None);
    statistics.add(&[5 * MS], 1);
    assert!(statistics.average_us(FRESH_NS).is_some());
    assert!(statistics.average_us(FRESH_NS + 1).is_none());
    statistics.add(&[MS], 10 * WINDOW_NS);
    let summary = statistics.summary().unwrap();
    assert!((summary.mean_ms - 1.0).abs() < 1e-9, "{summary:?}");
    assert_eq!(summary.samples, 2);
}
