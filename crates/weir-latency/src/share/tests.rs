//! Tests shares for known latencies and weights.

use super::*;

fn shares_of(latency: &[LatencyEstimate]) -> Vec<u32> {
    let servers: Vec<Server> = latency
        .iter()
        .map(|latency| Server {
            weight: 1,
            latency: *latency,
        })
        .collect();
    shares(&servers)
}

const FLOOR: u32 = COST_SHARE_MAX.div_ceil(COST_EXPLORE);

#[test]
fn share_decreases_with_latency() {
    use LatencyEstimate::Fresh;
    let actual = shares_of(&[Fresh(4_000.0), Fresh(8_800.0), Fresh(17_600.0)]);
    // 2 and 4 times the limit of 4.4 ms: 65,535 / 2^1.5 and 65,535 / 4^1.5.
    assert_eq!(actual, [65_535, 23_170, 8_192]);
    // Noise in the estimate and differences that the network causes do not change the shares.
    let actual = shares_of(&[Fresh(1_000.0), Fresh(1_190.0), Fresh(1_240.0)]);
    assert_eq!(actual, [65_535; 3]);
    assert_eq!(shares_of(&[Fresh(-300.0), Fresh(40.0)]), [65_535; 2]);
    // The share does not jump at the limit.
    let at_limit = shares_of(&[Fresh(10_000.0), Fresh(11_010.0)]);
    assert!((65_400..65_500).contains(&at_limit[1]), "{at_limit:?}");
}

#[test]
fn share_has_a_minimum() {
    use LatencyEstimate::{Fresh, New, Stale};
    let actual = shares_of(&[Fresh(1_000.0), Fresh(1_000_000.0), Stale, New]);
    assert_eq!(actual[..3], [65_535, FLOOR, FLOOR]);
    assert_eq!(shares_of(&[Stale, New, Stale]), [65_535; 3]);
    assert_eq!(shares_of(&[Fresh(1_000.0), New]), [65_535; 2]);
    let actual = shares_of(&[Fresh(1_000.0), Fresh(4_000.0), New]);
    // The mean is 2.5 ms, 2 times the limit of 1.25 ms.
    assert_eq!(actual[2], 23_170);
    assert!(shares_of(&[]).is_empty());
}

#[test]
fn share_is_proportional_to_weight() {
    let server = |weight, us| Server {
        weight,
        latency: LatencyEstimate::Fresh(us),
    };
    let actual = shares(&[server(4, 1_000.0), server(1, 1_000.0), server(2, 2_500.0)]);
    assert_eq!(actual, [65_535, 16_384, 11_585]);
}
