//! Tests single packets through the data plane: {rows, packet in → verdict, packet out, counters}. Each is also
//! compared with the reference model. Needs root.

#[path = "../support/mod.rs"]
mod support;

mod bench;
mod consistency;
mod outcome;
mod reference;
mod route;
mod wire;

mod defended;
mod differential;
mod forward;
mod latency;
mod life;
mod long_list;
mod malformed;
mod marked;
mod moved_on_two_cpus;
mod persistent;
mod persistent_resized;
mod refuse;
mod removed;
mod reply;
mod resize;
mod scheduler;
mod sequences;
mod service;
mod shares;
mod synchronized;
mod sysctl;
mod table;
mod transmit;
mod tunnel;
mod two_cpus;
