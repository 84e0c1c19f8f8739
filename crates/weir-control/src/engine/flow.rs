//! Where flows lie in a table of another size, so that a change of `max_flows` keeps them.

use weir_dataplane::migrate::Home;
use weir_flow::{FlowKey, Placement, Tuple};

use super::{Engine, Result};

impl Engine {
    /// Moves flows out of a former table; does nothing when there is none.
    pub(super) fn migrate(&mut self) -> Result<()> {
        let key = FlowKey::new(self.plane.secret());
        let buckets = self.plane.maps().flows.buckets();
        let moved = self.plane.migrate_flows(|cold| {
            let Placement { tag, home, second } =
                Placement::of(key.hash(&Tuple::of_cold(cold)), buckets);
            Home { tag, home, second }
        })?;
        if moved.moved + moved.lost > 0 {
            tracing::info!(
                moved = moved.moved,
                lost = moved.lost,
                "flows moved to a table of another size"
            );
        }
        Ok(())
    }
}
