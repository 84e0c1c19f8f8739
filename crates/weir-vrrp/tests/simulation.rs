//! Simulates virtual routers and groups of them in virtual time, on unreliable networks.
//!
//! The networks lose and delay packets and become partitioned.
//!
//! `WEIR_VRRP_SCHEDULES` sets the number of schedules, `WEIR_VRRP_SEED` the first seed. A failed test prints the seed.

#[path = "simulation/group.rs"]
mod group;
#[path = "simulation/network.rs"]
mod network;
#[path = "simulation/router.rs"]
mod router;
