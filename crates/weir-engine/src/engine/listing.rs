//! Passes the engine's state to [`crate::listing`], which builds the data for `ipvsadm -L`.

use weir_ipvsadm::{Connection, Listing, Timeouts};

use super::Engine;
use crate::error::Result;
use crate::listing::ListingInput;

impl Engine {
    fn listing_input(&self) -> ListingInput<'_> {
        ListingInput {
            desired: &self.desired,
            state: &self.state,
            maps: self.plane.maps(),
            rates: Some(&self.rate_estimates),
        }
    }

    /// Returns the services in the file and those of ipvsadm, as ipvsadm lists them.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub fn listing(&self) -> Result<Listing> {
        self.listing_input().listing()
    }

    /// Returns all flows.
    ///
    /// # Errors
    /// Fails if a map cannot be read.
    pub fn connections(&self) -> Result<Vec<Connection>> {
        self.listing_input().connections()
    }

    /// Returns the active timeouts.
    pub fn timeouts(&self) -> Timeouts {
        self.listing_input().timeouts()
    }
}
