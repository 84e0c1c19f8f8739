//! Runs the daemon: applies configurations to the engine and the proxy, and serves the API, the status and the metrics.
//!
//! weir-engine applies a configuration to the kernel and the network, [`traffic`] adds the proxy, and [`daemon`] runs
//! both and serves the [`api`]. Commands call the API through [`client`]. The output modules ([`status`], [`metrics`],
//! [`plan`], [`explain`]) work on plain values, mainly the [`snapshot`]. The [`keeper`] restarts the daemon after a
//! crash. This crate uses the kernel only through weir-engine, weir-dataplane, weir-netlink and weir-sys.

mod announce;
pub mod api;
pub mod client;
pub mod configuration;
pub mod count;
pub mod daemon;
pub mod dashboard;
pub mod explain;
mod gre_tunnel;
mod group_configuration;
mod haproxy_commands;
mod hex;
mod history;
pub mod import;
pub mod ipvsadm;
mod ipvsadm_message;
pub mod keeper;
pub mod log_filter;
pub mod metrics;
mod override_file;
pub mod plan;
mod plane;
pub mod runtime_dir;
pub mod snapshot;
pub mod status;
mod trace_export;
pub mod traffic;
