//! The layer 4 engine without a daemon, for edits of ipvsadm; requires the runtime directory's lock.

use weir_ipvsadm::{Edit, Refusal};
use weir_model::Desired;
use weir_state::ServerStates;

use super::Error;
use super::handover::Handover;
use super::order_file::OrderStore;
use super::server_state::Planes;
use weir_engine::{Engine, Paths};

/// See the module.
#[derive(Debug)]
pub(crate) struct Offline {
    engine: Engine,
    configured: Desired,
    states: ServerStates,
    orders: OrderStore,
}

impl Offline {
    /// Adopts the pinned data plane. Must be called inside a tokio runtime, with the runtime directory's lock held.
    ///
    /// # Errors
    /// The engine's.
    pub(crate) async fn open(paths: &Paths, configured: &Desired) -> Result<Self, Error> {
        let (orders, overrides) = OrderStore::open(&paths.runtime_dir);
        let has_orders = overrides.is_some();
        let overrides = overrides.unwrap_or_default();
        let mut states = Handover::default().states(overrides, |_| false);
        let mut restore = orders.restore(has_orders);
        let engine = Engine::open(paths, configured, &mut states, &mut restore).await?;
        drop(restore);
        Ok(Self {
            engine,
            configured: configured.clone(),
            states,
            orders,
        })
    }

    /// Executes ipvsadm's edits.
    pub(crate) async fn edit_table(&mut self, edits: &[Edit]) -> Vec<Result<(), Refusal>> {
        let mut planes = Planes {
            engine: Some(&mut self.engine),
            proxy: None,
            desired: &self.configured,
            orders: &self.orders,
        };
        planes.edit_table(&mut self.states, edits).await
    }
}
