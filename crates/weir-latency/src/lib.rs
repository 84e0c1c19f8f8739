//! Computes server statistics, shares for `least-time` and adjusted weights from latency samples.
//!
//! The samples are computed from client packets, so replies can bypass the director. [`flow`] is the model of the
//! estimator in the data plane (bpf/lib/latency.h): it computes samples from the packets that a client sends.
//! [`aggregate`] computes a server's statistics from samples, and [`share`] converts the statistics of a service's
//! servers to the shares that `least-time` uses to select servers at random. [`adapt`] converts latencies to weights
//! for the other schedulers. The crate does no I/O; times are arguments.

pub mod adapt;
pub mod aggregate;
pub mod flow;
pub mod share;

pub use aggregate::{Method, QUANTILE_MIN_US, Statistics, Summary};
pub use flow::{FirstPayload, Packet, Sample, Table};
