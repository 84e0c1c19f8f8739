//! Passes the engine's state to [`crate::listing`], which builds the data for `ipvsadm -L`.

use weir_ipvsadm::{Connection, Listing, Timeouts};

use super::Engine;
use crate::error::Result;
use crate::listing::View;

impl Engine {
    fn view(&self) -> View<'_> {
        View {
            desired: &self.desired,
            memory: &self.memory,
            maps: self.plane.maps(),
            rates: Some(&self.rate_estimates),
        }
    }

    /// Returns the services of both origins, as ipvsadm lists them.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn listing(&self) -> Result<Listing> {
        self.view().listing()
    }

    /// Returns all flows.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn connections(&self) -> Result<Vec<Connection>> {
        self.view().connections()
    }

    /// Returns the active timeouts.
    pub fn timeouts(&self) -> Timeouts {
        self.view().timeouts()
    }
}
