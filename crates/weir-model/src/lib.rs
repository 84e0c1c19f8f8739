//! What the operator wants: services, pools, servers, weights and limits, and the difference of two such wishes.
//!
//! The types here hold a configuration whose every value is already checked; where it came from (TOML, JSON, ipvsadm)
//! no longer matters, apart from [`Source`], which lets a message name the line. The crate refuses to parse text (only
//! a [`Pattern`] is compiled here, once for all who carry it), to know what is in the kernel, and to hold anything that
//! changes at run time (states, counters, overrides).
//!
//! It sits at the bottom: every other crate may depend on it, it depends on none.

mod access;
mod admin;
mod body;
mod check;
mod desired;
mod diff;
mod discovery;
mod failover;
mod forward;
mod hash;
mod indexed;
mod ipvs;
mod listener;
mod manners;
mod path;
mod pattern;
mod proxy;
mod retry;
mod route;
mod scheduler;
mod secret;
mod sticky;
mod tls;

pub use access::{AccessLog, LogFormat};
pub use admin::Admin;
pub use body::{Digest, Pattern};
pub use check::{
    Aim, Check, CheckTls, DnsRecord, Health, Http, OnFailure, Probe, ProxyHeader, Require, Script,
    Start, Timing, Via, Way,
};
pub use desired::{
    Attach, Desired, MAX_WEIGHT, NoServer, Node, OnRemove, Persistence, Pool, Server, Service,
    SocketMode, Source, Timeouts,
};
pub use diff::{Change, Edit, diff};
pub use discovery::{ServersDns, ServersRecord};
pub use failover::EndsAtFailover;
pub use forward::{Forward, Snat, Tunnel, TunnelChecksum, TunnelKind};
pub use hash::HashKey;
pub use indexed::{Indexed, Sharing};
pub use ipvs::Ipvs;
pub use listener::{Family, Listener, Mark, Ports, Protocol};
pub use manners::{Coding, Compression, ErrorPage, Forwarded, Underscores};
pub use path::{EncodedSlash, ForwardedPath, NormalizePath};
pub use pattern::{PathRegex, PatternError};
pub use proxy::{Network, Proxy, ProxyLimits, ProxyProtocol, ProxyTimeouts};
pub use retry::{RetryCondition, RetryOn};
pub use route::{HostPattern, Route, RouteAction, RouteEdits};
pub use scheduler::{Scheduler, SchedulerFlags, SchedulerKind, UnknownScheduler};
pub use secret::{Secret, SecretSource};
pub use sticky::{Sticky, StickyMode};
pub use tls::{ClientAuth, ServerTls, ServiceTls, SniHost, TlsVersion};
