//! Defines the desired state (services, pools, servers, limits), and computes the difference between two states.
//!
//! The types represent a validated configuration. Except for [`Source`], the position for messages, they do not depend
//! on its origin (TOML, JSON, ipvsadm). The crate does not parse files, only single values such as regular expressions
//! ([`Pattern`], [`TextRegex`]), texts with variables ([`Template`]) and URLs. It does not query the kernel, and
//! contains no run-time state (health, counters, overrides).
//!
//! Every other crate in the workspace may depend on this crate, which depends on none of them.

// Code must handle a new scheduler, forwarding method or kind of check everywhere. A wildcard would hide the places
// where it does not.
#![cfg_attr(not(test), warn(clippy::wildcard_enum_match_arm))]

#[macro_use]
mod named;

mod access;
mod admin;
mod announce;
mod basic_auth;
mod body;
mod check;
mod cluster;
mod desired;
mod diff;
mod discovery;
mod duration;
mod etcd;
mod failover;
mod forward;
mod hash;
mod host_pattern;
mod host_set;
mod http_receiver;
mod indexed;
mod ipvs;
mod listener;
mod message;
mod network;
mod network_set;
mod notifier;
mod other_version;
mod path;
mod path_failure;
mod pattern;
mod proxy;
mod publish;
mod random;
mod retry;
mod route;
mod scheduler;
mod secret;
mod static_files;
mod sticky;
mod sync;
mod template;
mod tls;
mod tls_suite;
mod trace;
pub mod unix_socket;
mod value_map;
mod vrrp;

pub use access::{AccessLog, LogFormat, LogTarget, SyslogFormat};
pub use admin::Admin;
pub use announce::{Announce, Community, RequiredServices, Speaker};
pub use basic_auth::{BasicAuth, PasswordHashFormat};
pub use body::{Digest, Pattern};
pub use check::{
    Check, CheckAuthority, CheckTls, DatagramProbe, DirectorProbe, DnsRecord, ExchangeStep, Health,
    Http, Medium, OnFailure, Probe, ProbeKind, ProbePath, ProbeTarget, ProxyHeader, Require,
    Script, Start, Timing, Via,
};
pub use cluster::Cluster;
pub use desired::{
    Adapt, Attach, Desired, LocalClient, MAX_WEIGHT, Metrics, NoServer, Node, OnRemove,
    OtherVersion, Persistence, Pool, Server, Service, SocketMode, Source, Timeouts,
};
pub use diff::{Change, Edit, diff};
pub use discovery::{ServersDns, ServersRecord};
pub use duration::{DURATION_UNITS, format_duration};
pub use etcd::{EtcdEndpoint, InvalidEndpoint};
pub use failover::FailoverLoss;
pub use forward::{Forward, Snat, Tunnel, TunnelChecksum, TunnelKind};
pub use hash::HashKey;
pub use host_pattern::HostPattern;
pub use host_set::HostSet;
pub use http_receiver::HttpReceiver;
pub use indexed::{Indexed, Sharing};
pub use ipvs::Ipvs;
pub use listener::{Family, Listener, Mark, Ports, Protocol};
pub use message::{
    ClientField, ClientFields, Coding, Compression, ErrorPage, ErrorResponse, FieldRule, Forwarded,
    RouteClientFields, Underscores,
};
pub use network::Network;
pub use network_set::NetworkSet;
pub use notifier::{Mail, Notifier};
pub use path::{EncodedSlash, ForwardedPath, NormalizePath};
pub use path_failure::{NO_REPLY_LIFETIME, NO_RESPONSE_PREFIX, PATH_BROKEN_PREFIX, PathFailure};
pub use pattern::{PatternError, RegexSet, TextRegex};
pub use proxy::{Proxy, ProxyLimits, ProxyProtocol, ProxyTimeouts};
pub use publish::Publish;
pub use random::{GOLDEN_64, SplitMix64, finalize_64, mix_64};
pub use retry::{RetryCondition, RetryOn};
pub use route::{
    ConditionKey, Conditions, ForwardAuth, HeaderEdit, HeaderEdits, HeaderReplacement, Mirror,
    NamedCondition, PathRewrite, RequestPart, RestartAt, Route, RouteAction, RouteEdits,
    RouteLimits, RouteOptions, RouteTimeouts, Scheme, Split, ValuePattern,
};
pub use scheduler::{Scheduler, SchedulerFlags, SchedulerKind, UnknownScheduler};
pub use secret::{Secret, SecretSource};
pub use static_files::StaticFiles;
pub use sticky::{Sticky, StickyMode};
pub use sync::FlowSync;
pub use template::{MapRef, Part, Template, UnknownVariable, ValueMap, Variable};
pub use tls::{ClientAuth, ServerTls, ServiceTls, SniHost, TlsVersion};
pub use tls_suite::{CipherSuite, TlsGroup};
pub use trace::{ParentTrace, Tracing};
pub use value_map::{MapEntries, MapError, MapKind};
pub use vrrp::{
    Accept, AcceptedPorts, AddressInterface, Notify, RouterAnnouncements, RouterHmac,
    RouterHmacMode, RouterKey, Track, TrackObject, TrackScript, VirtualRoute, VirtualRouter,
    VirtualRule,
};
