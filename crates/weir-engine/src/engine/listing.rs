//! The engine's data for `ipvsadm -L`.

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

    /// Services of both origins as ipvsadm lists them.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn listing(&self) -> Result<Listing> {
        self.view().listing()
    }

    /// Every flow.
    ///
    /// # Errors
    /// A map cannot be read.
    pub fn connections(&self) -> Result<Vec<Connection>> {
        self.view().connections()
    }

    /// The active timeouts.
    pub fn timeouts(&self) -> Timeouts {
        self.view().timeouts()
    }
}
