//! Effective weights for the planner, from overrides and health.

use weir_model::Pool;
use weir_planner::allocation::{PoolWeights, ServerWeight};

use super::overrides::{Override, Overrides};
use super::standing::Standings;

/// The weights of a pool's servers in a service.
pub(super) fn weights(
    service: &str,
    pool: &Pool,
    overrides: &Overrides,
    standings: &Standings,
) -> PoolWeights {
    let base = overrides.base(pool);
    let (weighed, _) = standings.weigh(pool, Some(service), &base);
    let servers = pool.servers.iter().zip(weighed);
    let servers = servers.map(|(server, weighed)| ServerWeight {
        effective: weighed.effective,
        removed: weighed.remove,
        quiesced: match overrides.get(&pool.name, &server.name) {
            None | Some(Override::Weight(_)) => base(server) == 0,
            Some(Override::Drain | Override::Maint) => false,
        },
        down: weighed.effective == 0 && standings.is_down(&pool.name, &server.name, Some(service)),
    });
    let servers = servers.collect();
    let sorry = pool.sorry.as_ref();
    let sorry = sorry.filter(|_| standings.sorry_serves(pool, Some(service)));
    PoolWeights {
        servers,
        sorry: sorry.map_or(0, |server| base(server).max(1)),
    }
}

#[cfg(test)]
mod tests {
    use weir_model::Server;

    use super::*;

    #[test]
    fn override_replaces_configured_weight_and_only_weight_zero_is_quiesced() {
        let mut pool = Pool::new("pool");
        let server = |name: &str, weight| Server {
            weight,
            ..Server::new(name, name.parse().unwrap(), None)
        };
        pool.servers = vec![server("10.0.0.1", 3)];
        pool.sorry = Some(server("10.0.0.9", 0));
        let cases = [
            (None, (3, false)),
            (Some(Override::Weight(7)), (7, false)),
            (Some(Override::Weight(0)), (0, true)),
            (Some(Override::Drain), (0, false)),
            (Some(Override::Maint), (0, false)),
        ];
        for (change, (effective, quiesced)) in cases {
            let mut overrides = Overrides::default();
            overrides.set("pool", "10.0.0.1", change);
            let weights = weights("one", &pool, &overrides, &Standings::default());
            let expected = ServerWeight {
                effective,
                quiesced,
                ..ServerWeight::default()
            };
            assert_eq!(weights.servers, [expected], "{change:?}");
            assert_eq!(weights.sorry, 1);
        }
    }
}
