//! Provides a server for the unit tests of this crate.

use std::net::IpAddr;

use weir_model::finalize_64;

use crate::{Load, Server};

/// The server at 10.0.0.`number`, port 80.
#[derive(Debug)]
pub(crate) struct TestServer {
    pub(crate) number: u8,
    pub(crate) load: Load,
}

impl Server for TestServer {
    fn load(&self) -> &Load {
        &self.load
    }

    fn hash_seed(&self) -> u64 {
        finalize_64(self.number.into())
    }

    fn address(&self) -> IpAddr {
        [10, 0, 0, self.number].into()
    }

    fn port(&self) -> Option<u16> {
        Some(80)
    }
}
