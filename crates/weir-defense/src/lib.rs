//! Finds machines that reply to ARP or NDP requests for Weir's VIPs, and decides when to announce the VIPs again.
//!
//! A client that received such a reply sends its packets to the other machine, and TCP confirms the client's neighbor
//! entry for as long as that machine responds. The entry therefore remains after the other machine has lost the VIP,
//! until the director announces the VIP. While the conflict lasts, the VIP is defended at a limited rate (RFC 5227
//! section 2.4).
//!
//! The owner of the VIPs (the layer 4 engine, the VRRP agent) calls [`Defense::tick`] once per second and sends the
//! announcements. A conflict that begins and ends between two queries of a VIP is not detected.

mod conflict;
mod defense;
mod event;

pub use defense::{Defense, Interface, View};
pub use event::{Event, EventKind, SegmentAddress};
