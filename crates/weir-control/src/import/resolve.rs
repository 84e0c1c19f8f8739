//! Host names by the system's resolver, many at a time and within a deadline.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, ToSocketAddrs};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::thread;
use std::time::Instant;

/// Maximum number of concurrent lookups. The resolver blocks for the time that `resolv.conf` sets.
const AT_ONCE: usize = 64;

/// Returns the addresses of each name that was resolved before the deadline; the list is empty if a name does not
/// exist. Threads that are still waiting end after their lookup, or with the process.
pub(super) fn all(names: &BTreeSet<String>, deadline: Instant) -> BTreeMap<String, Vec<IpAddr>> {
    let queue = Arc::new(Mutex::new(names.clone()));
    let (answers, answered) = mpsc::channel();
    for _ in 0..names.len().min(AT_ONCE) {
        let (queue, answers) = (Arc::clone(&queue), answers.clone());
        let work = move || {
            loop {
                let next = queue
                    .lock()
                    .unwrap_or_else(PoisonError::into_inner)
                    .pop_first();
                let Some(name) = next else { return };
                if Instant::now() >= deadline || answers.send(resolve(name)).is_err() {
                    return;
                }
            }
        };
        // If a thread cannot be started, the others look up its names.
        let _ = thread::Builder::new().spawn(work);
    }
    drop(answers);
    let mut found = BTreeMap::new();
    while found.len() < names.len() {
        let left = deadline.saturating_duration_since(Instant::now());
        match answered.recv_timeout(left) {
            Ok((name, Some(addresses))) => drop(found.insert(name, addresses)),
            Ok((_, None)) => {}
            Err(_) => break,
        }
    }
    found
}

/// `None` = the name servers did not respond.
fn resolve(name: String) -> (String, Option<Vec<IpAddr>>) {
    let found = (name.as_str(), 0).to_socket_addrs();
    let addresses = match found {
        Ok(found) => Some(found.map(|address| address.ip()).collect()),
        // The standard library has no error kind for EAI_AGAIN, only this text (netdb.h).
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
    fn names_of_the_hosts_file_are_found_and_none_is_waited_for_after_the_deadline() {
        let names = BTreeSet::from(["localhost".to_owned()]);
        let found = all(&names, Instant::now() + Duration::from_secs(10));
        assert!(found["localhost"].iter().all(IpAddr::is_loopback));
        assert!(!found["localhost"].is_empty());
        let started = Instant::now();
        assert!(all(&names, started).is_empty());
        assert!(started.elapsed() < Duration::from_secs(5));
    }
}
