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
fn share_is_inverse_to_latency() {
    use LatencyEstimate::Fresh;
    let actual = shares_of(&[Fresh(1_000.0), Fresh(2_000.0), Fresh(4_000.0)]);
    assert_eq!(actual, [65_535, 32_768, 16_384]);
    // Noise in the estimate, and differences that the network causes.
    let actual = shares_of(&[Fresh(1_000.0), Fresh(1_190.0), Fresh(1_240.0)]);
    assert_eq!(actual, [65_535; 3]);
    assert_eq!(shares_of(&[Fresh(-300.0), Fresh(40.0)]), [65_535; 2]);
}

#[test]
fn share_has_a_minimum() {
    use LatencyEstimate::{Fresh, New, Stale};
    let actual = shares_of(&[Fresh(1_000.0), Fresh(1_000_000.0), Stale, New]);
    assert_eq!(actual[..3], [65_535, FLOOR, FLOOR]);
    assert_eq!(shares_of(&[Stale, New, Stale]), [65_535; 3]);
    assert_eq!(shares_of(&[Fresh(1_000.0), New]), [65_535; 2]);
    assert!(shares_of(&[]).is_empty());
}

#[test]
fn share_is_proportional_to_weight() {
    let server = |weight, us| Server {
        weight,
        latency: LatencyEstimate::Fresh(us),
    };
    let actual = shares(&[server(4, 1_000.0), server(1, 1_000.0), server(2, 2_000.0)]);
    assert_eq!(actual, [65_535, 16_384, 16_384]);
}
