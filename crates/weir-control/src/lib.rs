//! Desired state to plan to effect; status, API and metrics.
//!
//! [`engine`] brings kernel and network to a configuration, [`traffic`] that and the proxy; [`daemon`] runs it and
//! answers the [`api`], which [`client`] asks for the commands. [`real_server`] is the other side's preparation. What
//! is shown ([`status`], [`metrics`], [`plan`], [`explain`]) is made of plain values, above all the [`snapshot`].
//! Nothing here speaks to the kernel but through weir-dataplane, weir-netlink and weir-sys.

pub mod api;
pub mod client;
pub mod configuration;
pub mod daemon;
pub mod engine;
pub mod explain;
pub mod import;
pub mod ipvsadm;
pub mod keeper;
pub mod metrics;
pub mod plan;
pub mod snapshot;
pub mod status;
pub mod traffic;
mod vip;
