//! Resolves names of servers. A task for each name repeats the query when the time to live expires.
//!
//! A task returns the servers of its name as a list in the format of `servers_file`. The list is sorted, because the
//! order of records changes between responses. The caller validates the list.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use weir_model::ServersDns;

use crate::resolve::resolve;

/// The servers of a name as a list, or an error message.
pub(crate) type ServerList = Result<String, String>;

/// Maximum time that a configuration waits for the first responses.
const FIRST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Allowed range of the time to live: 0 would cause a busy loop, and with a day a removed server would be used too
/// long.
const TTL_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// Delay after a failed query.
const RETRY_DELAY: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Resolution {
    list: watch::Receiver<Option<ServerList>>,
    task: JoinHandle<()>,
}

impl Drop for Resolution {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// The names that are resolved, and their servers.
#[derive(Debug)]
pub(crate) struct Names {
    resolutions: BTreeMap<ServersDns, Resolution>,
    changed: Arc<Notify>,
}

impl Names {
    /// `changed` is notified when a list changes.
    pub(crate) fn new(changed: Arc<Notify>) -> Self {
        Self {
            resolutions: BTreeMap::new(),
            changed,
        }
    }

    /// Starts to resolve new names, and waits for their first responses. Must be called inside a tokio runtime.
    pub(crate) async fn resolve_new(&mut self, wanted: impl Iterator<Item = &ServersDns>) {
        let mut first = Vec::new();
        for name in wanted {
            if self.resolutions.contains_key(name) {
                continue;
            }
            let (sender, list) = watch::channel(None);
            let task = tokio::spawn(follow(name.clone(), sender, Arc::clone(&self.changed)));
            first.push(list.clone());
            self.resolutions
                .insert(name.clone(), Resolution { list, task });
        }
        let all = async {
            for mut list in first {
                // The task runs as long as its name is configured.
                let _ = list.wait_for(Option::is_some).await;
            }
        };
        if tokio::time::timeout(FIRST_RESPONSE_TIMEOUT, all)
            .await
            .is_err()
        {
            tracing::warn!(
                "no DNS response yet: starting without the servers of at least one name"
            );
        }
    }

    /// Stops resolving names for which `wanted` returns false.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&ServersDns) -> bool) {
        self.resolutions.retain(|name, _| wanted(name));
    }

    /// Returns the latest list of a name.
    pub(crate) fn list(&self, name: &ServersDns) -> Option<ServerList> {
        self.resolutions.get(name)?.list.borrow().clone()
    }
}

async fn follow(
    wanted: ServersDns,
    sender: watch::Sender<Option<ServerList>>,
    changed: Arc<Notify>,
) {
    loop {
        let (list, delay) = match resolve(&wanted).await {
            Ok((list, ttl)) => (Ok(list), ttl.clamp(TTL_RANGE.0, TTL_RANGE.1)),
            Err(problem) => (Err(problem), RETRY_DELAY),
        };
        let list = Some(list);
        let differs = sender.send_if_modified(|known| {
            let differs = *known != list;
            *known = list;
            differs
        });
        if differs {
            changed.notify_one();
        }
        tokio::time::sleep(delay).await;
    }
}
