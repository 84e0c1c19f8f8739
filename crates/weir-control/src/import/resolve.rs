//! Resolves host names with the system's resolver, concurrently and with a deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

/// Maximum number of concurrent lookups. Each lookup can block for as long as `resolv.conf` specifies.
const MAX_CONCURRENT_LOOKUPS: usize = 64;

/// Returns the addresses of each name that was resolved before the deadline; the list is empty if a name does not
/// exist. Threads that are still waiting at the deadline end after their lookup, or with the process.
pub(super) fn resolve_all(
    names: &BTreeSet<String>,
    deadline: Instant,
) -> BTreeMap<String, Vec<IpAddr>> {
    let queue = Arc::new(Mutex::new(names.clone()));
    let (results, receiver) = mpsc::channel();
    for _ in 0..names.len().min(MAX_CONCURRENT_LOOKUPS) {
        let (queue, results) = (Arc::clone(&queue), results.clone());
        let lookup = move || {
            loop {
                let next = queue
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop_first();
                let Some(name) = next else { return };
                if Instant::now() >= deadline || results.send(resolve(name)).is_err() {
                    return;
                }
            }
        };
        // If a thread cannot be started, the other threads look up its names.
        let _ = thread::Builder::new().spawn(lookup);
    }
    drop(results);
    let mut resolved = BTreeMap::new();
    while resolved.len() < names.len() {
        let remaining = deadline.saturating_duration_since(Instant::now());
        match receiver.recv_timeout(remaining) {
            Ok((name, Some(addresses))) => drop(resolved.insert(name, addresses)),
            Ok((_, None)) => {}
            Err(_) => break,
        }
    }
    resolved
}

/// Resolves a name; `None` = the name servers did not respond.
fn resolve(name: String) -> (String, Option<Vec<IpAddr>>) {
    let resolved = (name.as_str(), 0).to_socket_addrs();
    let addresses = match resolved {
        Ok(resolved) => Some(resolved.map(|address| address.ip()).collect()),
        // The standard library has no error kind for EAI_AGAIN (netdb.h), so the message must be compared.
        Err(error) if error.to_string().contains("emporary failure") => None,
        Err(_) => Some(Vec::new()),
    };
    (name, addresses)
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    #[test]
    fn names_from_hosts_file_are_resolved_and_deadline_is_respected() {
        let names = BTreeSet::from(["localhost".to_owned()]);
        let resolved = resolve_all(&names, Instant::now() + Duration::from_secs(10));
        assert!(resolved["localhost"].iter().all(IpAddr::is_loopback));
        assert!(!resolved["localhost"].is_empty());
        let start = Instant::now();
        assert!(resolve_all(&names, start).is_empty());
        assert!(start.elapsed() < Duration::from_secs(5));
    }
}
