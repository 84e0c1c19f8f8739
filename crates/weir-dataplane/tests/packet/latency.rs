//! The latency estimator: random sequences of clients' packets through the data plane and through the model of
//! weir-latency, which must emit the same samples and count the same reasons; and `least-time`, whose choices must be
//! those of weir-sched.
//!
//! `WEIR_LATENCY_PACKETS` sets how many packets (20 000 unless set; a million with `WEIR_SOAK`), `WEIR_SEED` repeats a
//! run.

use std::net::SocketAddr;

use weir_abi::{Cost, Forward, LATENCY_REASONS, LatencyReason};
use weir_dataplane::RingPositions;
use weir_flow::parse;
use weir_latency::{First, Method, Packet as Seen, Table};
use weir_model::SplitMix64;
use weir_sched::{Counts, Kind, Member, least_time};
use weir_wire::{FiveTuple, IpProtocol, Packet, TcpFlags};

use crate::bench::{Bench, CLIENT_MAC, DIRECTOR_MAC, NewServer};
use crate::wire::Shape;

const PACKETS: u64 = 20_000;
const SOAK_PACKETS: u64 = 1_000_000;
const ALL_FLOWS: u32 = 65_536;
const MS: u64 = 1_000_000;
const TIMESTAMPS: [u8; 4] = [1, 1, 8, 10];

/// A client's packet.
#[derive(Clone, Debug, Default)]
struct Segment {
    port: u16,
    seq: u32,
    ack: u32,
    ts_ecr: Option<u32>,
    flags: TcpFlags,
    payload: Vec<u8>,
}
