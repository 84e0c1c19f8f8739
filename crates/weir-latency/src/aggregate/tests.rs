//! Tests the average and the quantiles with known samples.

use super::*;

const MS: i64 = 1_000_000;

#[test]
fn quantiles_are_accurate_to_one_bucket() {
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

/// Asserts that a value in milliseconds or microseconds is the expected one, apart from rounding.
fn assert_near(value: f64, expected: f64) {
    assert!((value - expected).abs() < 1e-6, "{value}, not {expected}");
}

#[test]
fn average_gives_the_first_samples_equal_weights_and_later_samples_a_fixed_weight() {
    let mut statistics = Statistics::new(Method::Timestamps);
    assert_eq!((statistics.total(), statistics.last_ns()), (0, 0));
    assert_eq!(statistics.average_us(0), None);
    statistics.add(&[MS, 3 * MS], 5);
    assert_near(statistics.average_us(5).unwrap(), 2_000.0);
    statistics.add(&[], 6);
    assert_eq!((statistics.total(), statistics.last_ns()), (2, 5));
    let mut statistics = Statistics::new(Method::Timestamps);
    statistics.add(&[MS; 200], 1);
    statistics.add(&[2 * MS], 1);
    assert_near(statistics.average_us(1).unwrap(), 1_000.0 + 1_000.0 / 64.0);
}

/// The expected values were computed with an independent implementation.
#[test]
fn average_follows_recent_samples_only_if_they_differ_by_more_than_noise() {
    let steady = |us: i64| vec![us * 1_000; 200];
    let noisy: Vec<i64> = [0, 2 * MS].repeat(250);
    for (earlier, last_us, expected) in [
        // The threshold is half of the average.
        (steady(1_000), 5_900, 1_076.562_5),
        (steady(1_000), 6_000, 1_625.0),
        // The difference is exactly at the threshold: the averages are 1400 us and 2100 us.
        (steady(1_300), 7_700, 1_400.0),
        // The threshold is 500 us.
        (steady(100), 4_600, 170.312_5),
        (steady(100), 4_750, 681.25),
        // The threshold is 1.5 times the mean deviation, which is 1.1 ms.
        (noisy.clone(), 14_000, 1_210.867_905),
        (noisy, 18_000, 3_183.333_333),
    ] {
        let mut statistics = Statistics::new(Method::Timestamps);
        statistics.add(&earlier, 1);
        statistics.add(&[last_us * 1_000], 1);
        let average_us = statistics.average_us(1).unwrap();
        assert!(
            (average_us - expected).abs() < 1e-5,
            "{last_us}: {average_us}"
        );
    }
}

#[test]
fn histogram_contains_one_to_two_windows() {
    let mut statistics = Statistics::new(Method::Gaps);
    let mean_after = |statistics: &mut Statistics, sample_ms: i64, now_ns: u64| {
        statistics.add(&[sample_ms * MS], now_ns);
        statistics.summary().unwrap().mean_ms
    };
    let start = 7;
    assert_near(mean_after(&mut statistics, 1, start), 1.0);
    // The window ends after 30 s.
    assert_near(mean_after(&mut statistics, 3, start + WINDOW_NS - 1), 2.0);
    assert_near(mean_after(&mut statistics, 8, start + WINDOW_NS), 4.0);
    let summary = statistics.summary().unwrap();
    assert!((2.8..3.2).contains(&summary.p50_ms), "{summary:?}");
    assert!((7.6..8.4).contains(&summary.p99_ms), "{summary:?}");
    assert_near(mean_after(&mut statistics, 10, start + 2 * WINDOW_NS), 9.0);
    // The previous window is discarded after another 30 s.
    assert_near(
        mean_after(&mut statistics, 20, start + 4 * WINDOW_NS - 1),
        15.0,
    );
    let last = start + 4 * WINDOW_NS - 1 + 2 * WINDOW_NS;
    assert_near(mean_after(&mut statistics, 5, last), 5.0);
    assert_eq!(statistics.summary().unwrap().samples, 6);
}

#[test]
fn quantiles_include_samples_outside_the_range_of_the_histogram() {
    let mut statistics = Statistics::new(Method::Connect);
    statistics.add(&[-MS, 15_999], 1);
    statistics.add(&[16_000, MS], 1 + WINDOW_NS);
    // Half of the samples are below the range.
    let quantile = |quantile| statistics.quantile_us(quantile);
    assert_eq!((quantile(0.25), quantile(0.5)), (0.0, 0.0));
    assert!((16.0..17.0).contains(&quantile(0.75)), "{}", quantile(0.75));
    assert!(
        (950.0..1_050.0).contains(&quantile(1.0)),
        "{}",
        quantile(1.0)
    );
    let mut slow = Statistics::new(Method::Connect);
    slow.add(&[100_000 * MS; 2], 1);
    let limit_us = 16.0 * 22_f64.exp2();
    assert!((0.95 * limit_us..=limit_us).contains(&slow.quantile_us(0.99)));
}

#[test]
fn methods_have_the_names_that_the_status_shows() {
    let names = [Method::Timestamps, Method::Gaps, Method::Connect].map(Method::as_str);
    assert_eq!(names, ["timestamps", "gaps", "measured"]);
}
