//! Finds machines that reply to ARP or NDP requests for Weir's VIPs, and decides when to announce the VIPs again.
//!
//! A client that received such a reply sends its packets to the other machine. As long as that machine responds, TCP
//! keeps confirming the client's neighbor entry, so the entry does not expire. It can still point to that machine after
//! it has lost the VIP, until the client probes the entry or the director announces the VIP. While the conflict lasts,
//! the VIP is defended at a limited rate (RFC 5227 section 2.4).
//!
//! The owner of the VIPs (the layer 4 engine, the VRRP agent) calls [`Defense::tick`] once per second and sends the
//! announcements. A conflict that begins and ends between two queries of a VIP is not detected.

mod conflict;
mod defense;
mod event;

pub use defense::{Defense, Interface, View};
pub use event::{Event, EventKind, SegmentAddress};
