//! Tests the data plane with single packets. A case consists of map rows, a packet, and the expected verdict, output
//! packet and counters.
//!
//! Each packet is also passed to the reference model, and the results are compared. The tests need root.

#[path = "../support/mod.rs"]
mod support;

mod bench;
mod consistency;
mod outcome;
mod reference;
mod route;
mod wire;

mod differential;
mod drop_entry;
mod firewall_mark;
mod flow_sync;
mod forward;
mod latency;
mod lifetime;
mod long_list;
mod malformed;
mod moved_on_two_cpus;
mod persistent;
mod persistent_resized;
mod reject;
mod removed_server;
mod reply;
mod resize;
mod scheduler;
mod sequences;
mod service;
mod shares;
mod sysctl;
mod table;
mod transmit;
mod tunnel;
mod two_cpus;
