//! Implements the proxy (`forward = "proxy"`): TCP, HTTP/1 and HTTP/2 services, with one worker thread per CPU.
//!
//! Each worker has its own listeners (`SO_REUSEPORT`), epoll set, clients, server connections and timers. An ordinary
//! request takes no lock and allocates nothing. Workers read an immutable plan once per wake-up ([`Proxy::prepare`],
//! [`Proxy::commit`]). Server weights and loads are shared atomics. weir-http parses messages; weir-select decides
//! which server receives a request, and what happens after a failure.
//!
//! The crate does not read the configuration, does not check servers' health, and does not access the kernel's data
//! plane. It needs privileges only to bind its ports.

mod context;
mod descriptor;

mod encoder;
mod error;
mod file_root;
#[doc(hidden)]
pub mod fuzzing;
mod h2;
mod handover;
mod idle_pool;
mod job;
mod job_result;
mod log;
mod misdirect;
mod page;
mod password;
mod pipe;
mod plan;
mod proxy;
mod queue;
mod session;
mod slab;
mod socket;
mod static_file;
mod status;

pub mod times;
mod tls;
pub mod trace;
mod transport;
mod verdict;
mod wheel;
mod worker;

use std::collections::BTreeSet;
use std::net::SocketAddr;

use rustix::io::Errno;

pub use descriptor::Descriptors;
pub use error::{Error, Result};
pub use handover::{HandedOverConnection, HandoverReceiver, MAX_HANDOVER_BUFFER, Tunnel};
pub use log::{reopen_logs, tap};
pub use plan::Detail;
pub use proxy::{PreparedPlan, Proxy};
pub use status::{OutcomeCounters, ServerStatus, ServiceStatus};
pub use tls::{
    CertificateError, CertificateExpiry, EXPIRY_WARNING_DAYS, ErrorOrigin,
    NoCertificateVerification, Problem, ServiceTickets, TicketKey, TlsFile,
    certificate_fingerprint, describe_error, describe_io_error, file_fingerprint, inspect_checks,
    listener_tls, read_certificate_files, read_tls_file, server_verifier,
};

/// Returns the problems with the files and limits that `desired` needs, at the time `now`.
pub fn inspect(desired: &weir_model::Desired, now: std::time::SystemTime) -> Vec<Problem> {
    let mut problems = tls::inspect(desired, now);
    problems.extend(page::problems(desired));
    problems.extend(file_root::problems(desired));
    problems.extend(log::problems(desired));
    problems.extend(descriptor::problems(desired));
    problems
}

/// Returns a problem for each address of the API or a proxy service of `desired` that cannot be bound. Binds each
/// address for a moment, without listening. Skips addresses in `held`. If `privileged` is false, missing permissions
/// are not reported.
pub fn inspect_listeners(
    desired: &weir_model::Desired,
    held: &BTreeSet<SocketAddr>,
    privileged: bool,
) -> Vec<Problem> {
    let proxies = desired.proxies.iter().flat_map(|proxy| {
        let name = format!("service {}", proxy.name);
        let listen = proxy.listen.iter();
        listen.map(move |listen| (name.clone(), *listen, proxy.source))
    });
    let admin = desired.node.admin.iter();
    let admin = admin.map(|admin| ("[node] admin".to_owned(), admin.listen, admin.source));
    let all = proxies.chain(admin);
    let problems = all.filter_map(|(owner, listen, source)| {
        if held.contains(&listen) {
            return None;
        }
        let error = socket::bind(listen).err()?;
        let denied = matches!(error, Errno::ACCESS | Errno::PERM);
        (privileged || !denied).then(|| Problem {
            fatal: true,
            message: format!("{owner}: {listen}: {error}"),
            cause: "the daemon cannot start or reload with this configuration".to_owned(),
            fix: error::listen_advice(listen, error),
            source,
        })
    });
    problems.collect()
}
