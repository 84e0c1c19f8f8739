//! Opens the layer 4 engine without a daemon, for edits from ipvsadm. Requires the runtime directory's lock.

use weir_ipvsadm::{Edit, EditError};
use weir_model::Desired;
use weir_state::ServerStates;

use super::Error;
use super::handover::Handover;
use super::layer4::Layer4;
use super::server_state::Planes;
use crate::override_file::OverrideStore;
use weir_engine::{Opening, Paths};

/// A layer 4 engine without a daemon.
#[derive(Debug)]
pub(crate) struct Offline {
    engine: Layer4,
    configured: Desired,
    states: ServerStates,
    override_store: OverrideStore,
}

impl Offline {
    /// Opens the engine and takes over the pinned data plane. Must be called inside a tokio runtime, with the runtime
    /// directory's lock held.
    ///
    /// # Errors
    /// Fails if the engine cannot be opened, or if the overrides cannot be written.
    pub(crate) async fn open(paths: &Paths, configured: &Desired) -> Result<Self, Error> {
        let (override_store, overrides) = OverrideStore::open(&paths.runtime_dir);
        let has_override_file = overrides.is_some();
        let overrides = overrides.unwrap_or_default();
        let mut states = Handover::default().states(overrides, |_| false);
        let (opening, saved) = Opening::begin(paths, configured).await?;
        if let Err(source) = override_store.adopt(&mut states, saved, has_override_file) {
            opening.cancel().await;
            let path = override_store.path().to_owned();
            return Err(Error::File { path, source });
        }
        let engine = opening.finish_for_edits(&states).await?;
        Ok(Self {
            engine: Layer4::Local(Box::new(engine)),
            configured: configured.clone(),
            states,
            override_store,
        })
    }

    /// Executes ipvsadm's edits.
    pub(crate) async fn edit_table(&mut self, edits: &[Edit]) -> Vec<Result<(), EditError>> {
        let mut planes = Planes {
            engine: Some(&mut self.engine),
            proxy: None,
            desired: &self.configured,
            override_store: &self.override_store,
        };
        planes.edit_table(&mut self.states, edits).await
    }
}
