//! Provides an engine with the server states that determine its weights, without a proxy or an override file.

#![allow(dead_code, reason = "each test program uses a part")]

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use weir_engine::snapshot::Layer4Snapshot;
use weir_engine::{ApplyOutcome, Engine, Error, Opening, Paths, Result};
use weir_engine::{Explanation, Packet};
use weir_model::Desired;
use weir_state::{Driver, Override, OverrideError, OverrideRecord, Overrides, ServerStates};

pub(crate) struct Director {
    engine: Engine,
    states: ServerStates,
}

impl Director {
    pub(crate) async fn open(paths: &Paths, desired: &Desired) -> Result<Self> {
        let mut states = ServerStates::default();
        let (opening, saved) = Opening::begin(paths, desired).await?;
        states.adopt(saved, false);
        let engine = opening.finish(&states).await?;
        Ok(Self { engine, states })
    }

    pub(crate) fn engine(&mut self) -> &mut Engine {
        &mut self.engine
    }

    pub(crate) async fn apply(&mut self, desired: &Desired) -> Result<ApplyOutcome> {
        self.engine.apply(desired, &self.states).await
    }

    pub(crate) async fn tick(&mut self) -> Result<()> {
        self.engine.tick(&self.states).await
    }

    pub(crate) fn snapshot(&self) -> Result<Layer4Snapshot> {
        self.engine.snapshot(&self.states)
    }

    pub(crate) fn explain_packet(&self, packet: &Packet) -> Result<Explanation> {
        self.engine.explain_packet(packet, &self.states)
    }

    pub(crate) fn live_flows(&self, service: &str, server: Option<&str>) -> u64 {
        self.engine.live_flows(service, server)
    }

    pub(crate) fn set_override(
        &mut self,
        pool: &str,
        server: &str,
        new_override: Override,
    ) -> Result<()> {
        struct Layer4<'a>(&'a mut Engine);
        impl Driver for Layer4<'_> {
            type Error = Error;

            fn record(&mut self, _: &Overrides) -> Result<()> {
                Ok(())
            }

            fn apply(&mut self, pool: &str, states: &mut ServerStates) -> Result<()> {
                self.0.apply_weights(&[pool], states)
            }

            fn copy(&mut self, record: &OverrideRecord) {
                self.0
                    .copy_override(record)
                    .expect("write the copy of the override");
            }
        }
        let now: Duration = SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .unwrap_or_default();
        let mut driver = Layer4(&mut self.engine);
        let result =
            self.states
                .change_override((pool, server), Some(new_override), now, &mut driver);
        match result {
            Ok(_) => Ok(()),
            Err(OverrideError::Record(error) | OverrideError::Apply(error)) => Err(error),
            Err(OverrideError::RollbackFailed { cause, .. }) => Err(cause),
        }
    }
}
