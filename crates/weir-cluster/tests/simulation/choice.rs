//! Uses the planner to compute which servers a director selects.
//!
//! The tests compare the selection with that of a director without history.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;

use weir_cluster::SharedKey;
use weir_model::{
    Cluster, Desired, Forward, Indexed, Listener, Pool, Ports, Protocol, Scheduler, SchedulerKind,
    Server, Service,
};
use weir_planner::allocation::{Allocation, AllocationInput, PoolWeights, ServerWeight};
use weir_planner::extent::spread_table;
use weir_planner::rows::rule;
use weir_sched::Cursor;

use super::{BAD, GOOD, key};

const DEST_ROWS: u32 = 64;

/// The inputs that determine a director's choice.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Inputs {
    /// Text of the applied configuration: a word and a number, which determines the servers.
    pub(crate) text: String,
    /// Values of overrides.
    pub(crate) values: BTreeMap<SharedKey, u64>,
    /// Servers that are down for this director, as `POOL/ADDRESS`.
    pub(crate) down: BTreeSet<String>,
}

impl Inputs {
    /// Returns the servers. Their count, weights and order depend on the number in the text; overrides replace
    /// weights.
    fn servers(&self) -> Vec<Server> {
        let number = self.text.rsplit(' ').next();
        let number: u64 = number.and_then(|text| text.parse().ok()).expect("a number");
        let address = |name: &str| name.strip_prefix("web/").unwrap_or(name).to_owned();
        let mut servers = vec![(address(GOOD), 1), (address(BAD), 2)];
        for n in 0..=number % 3 {
            let key = key(n);
            let configured = 1 + (number + n) % 3;
            let weight = self.values.get(&key).map_or(configured, |value| value % 4);
            servers.push((key.server, weight));
        }
        if number.is_multiple_of(2) {
            servers.reverse();
        }
        let servers = servers.into_iter().map(|(name, weight)| Server {
            weight: u32::try_from(weight).expect("weight fits"),
            ..Server::new(&name, name.parse().expect("an address"), None)
        });
        servers.collect()
    }

    fn desired(&self) -> Indexed {
        let mut pool = Pool::new("web");
        pool.scheduler = Some(Scheduler::new(SchedulerKind::Maglev));
        pool.servers = self.servers();
        let mut service = Service::new("web", Forward::Direct, "web");
        service.listen.push(Listener {
            protocol: Protocol::Tcp,
            address: [192, 0, 2, 10].into(),
            ports: Ports::One(80),
        });
        let cluster = Cluster::new("edge");
        Indexed::from(Desired {
            cluster: Some(cluster),
            pools: vec![pool],
            services: vec![service],
            ..Desired::default()
        })
    }

    fn weights(&self, pool: &Pool) -> PoolWeights {
        let mut weights = PoolWeights::from_config(pool);
        for (server, weight) in pool.servers.iter().zip(&mut weights.servers) {
            if self.down.contains(&format!("web/{}", server.name)) {
                *weight = ServerWeight {
                    effective: 0,
                    removed: true,
                    down: true,
                    ..*weight
                };
            }
        }
        weights
    }

    /// Applies the inputs to a director's rows. Returns the server of each table entry.
    fn apply(&self, allocation: &mut Allocation) -> Vec<IpAddr> {
        let desired = self.desired();
        let input = AllocationInput {
            service_rows: 4,
            dest_rows: DEST_ROWS,
            now_ms: 1,
            cursor: &|_| Cursor::default(),
            weights: &|_, pool| self.weights(pool),
        };
        allocation
            .reconcile(&desired, ["web"], &input)
            .expect("the rows suffice");
        let slot = &allocation.services["web"];
        let service = desired.service("web").expect("the service exists");
        let table = spread_table(slot, &rule(&desired, service, DEST_ROWS));
        let address = |id: &u32| {
            let mut dests = slot.dests.iter();
            dests.find(|dest| dest.id == *id).expect("a row").address
        };
        table
            .expect("build the table")
            .iter()
            .map(address)
            .collect()
    }
}

/// Returns the table without the servers that are down: the next server that is up replaces each of their entries.
fn skip_down(agreed: &[IpAddr], down: &BTreeSet<String>) -> Vec<IpAddr> {
    let is_up = |address: &&IpAddr| !down.contains(&format!("web/{address}"));
    let owner_from = |first: usize| {
        let (head, tail) = agreed.split_at(first);
        tail.iter().chain(head).find(is_up).copied()
    };
    (0..agreed.len()).filter_map(owner_from).collect()
}

/// The choices of one director, with the rows of its earlier configurations.
#[derive(Default)]
pub(crate) struct Choices {
    allocation: Allocation,
    inputs: Inputs,
}

impl Choices {
    /// Returns whether the inputs are those of the last update. Called in each step, so it does not copy them.
    pub(crate) fn is_current(
        &self,
        text: &str,
        values: &BTreeMap<SharedKey, u64>,
        down: &BTreeSet<String>,
    ) -> bool {
        let Inputs {
            text: last_text,
            values: last_values,
            down: last_down,
        } = &self.inputs;
        last_text == text && last_values == values && last_down == down
    }

    /// Applies changed inputs. Asserts that the director selects the same servers as a director without history, except
    /// for the entries of servers that are down for this director. Returns the table without failures.
    pub(crate) fn update(&mut self, inputs: Inputs) -> Vec<IpAddr> {
        let table = inputs.apply(&mut self.allocation);
        let without_failures = Inputs {
            down: BTreeSet::new(),
            ..inputs.clone()
        };
        let agreed = without_failures.apply(&mut Allocation::default());
        assert!(
            table == skip_down(&agreed, &inputs.down),
            "{inputs:?} after {:?}",
            self.inputs
        );
        self.inputs = inputs;
        agreed
    }
}
