//! Resolves server names: a task for each name repeats the query whenever the time to live (TTL) expires.
//!
//! Each task provides the servers of its name as a list in the format of `servers_file`. The list is sorted, because
//! the order of records changes between responses. The caller validates the list.
//!
//! If a query fails, the name keeps its last servers, so that changes to the other names of a pool are still applied.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use weir_model::ServersDns;

use crate::resolve::resolve;

/// The servers of a name in list format, or an error message.
pub(crate) type ServerList = Result<String, String>;

/// Maximum time to wait for the first responses before a configuration is applied.
const FIRST_RESPONSE_TIMEOUT: Duration = Duration::from_secs(3);
/// Minimum and maximum delay before the next query. Without a minimum, a TTL of 0 would cause queries without a pause.
/// Without a maximum, a removed server would remain in use for as long as a long TTL.
const TTL_RANGE: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// Delay after a failed query.
const RETRY_DELAY: Duration = Duration::from_secs(2);

/// The responses for a name.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Responses {
    /// The servers in the last successful response.
    servers: Option<String>,
    /// Why the latest query failed; `None` = it succeeded.
    problem: Option<String>,
}

/// A name that is being resolved.
#[derive(Debug)]
struct Resolution {
    latest: watch::Receiver<Option<Responses>>,
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
    /// Creates an empty set of names. `changed` is notified when the servers or the problem of a name change.
    pub(crate) fn new(changed: Arc<Notify>) -> Self {
        Self {
            resolutions: BTreeMap::new(),
            changed,
        }
    }

    /// Starts resolving new names, and waits for their first responses for at most [`FIRST_RESPONSE_TIMEOUT`]. Must be
    /// called inside a tokio runtime.
    pub(crate) async fn resolve_new(&mut self, names: impl Iterator<Item = &ServersDns>) {
        let mut new_resolutions = Vec::new();
        for name in names {
            if self.resolutions.contains_key(name) {
                continue;
            }
            let (sender, latest) = watch::channel(None);
            let task = tokio::spawn(query_repeatedly(
                name.clone(),
                sender,
                Arc::clone(&self.changed),
            ));
            new_resolutions.push(latest.clone());
            self.resolutions
                .insert(name.clone(), Resolution { latest, task });
        }
        let first_responses = async {
            for mut latest in new_resolutions {
                // The task runs as long as its name is configured.
                let _ = latest.wait_for(Option::is_some).await;
            }
        };
        if tokio::time::timeout(FIRST_RESPONSE_TIMEOUT, first_responses)
            .await
            .is_err()
        {
            tracing::warn!(
                "no DNS response in time: continuing without the servers of at least one name"
            );
        }
    }

    /// Stops resolving names for which `is_wanted` returns false.
    pub(crate) fn retain(&mut self, is_wanted: impl Fn(&ServersDns) -> bool) {
        self.resolutions.retain(|name, _| is_wanted(name));
    }

    /// Returns the servers of a pool's names as one list, and the reason if the last query for a name failed. Returns
    /// `None` if no name has a response yet. A name that can no longer be resolved keeps its last servers. If a name
    /// has no servers yet, returns an error instead of the list, unless `is_partial_accepted` is set and another name
    /// has servers.
    pub(crate) fn list(
        &self,
        names: &[ServersDns],
        is_partial_accepted: bool,
    ) -> Option<(ServerList, Option<String>)> {
        let latest_of = |name| self.resolutions.get(name)?.latest.borrow().clone();
        let responses_by_name: Vec<Option<Responses>> = names.iter().map(latest_of).collect();
        let responses = || responses_by_name.iter().flatten();
        responses().next()?;
        let problem = responses().find_map(|it| it.problem.clone());
        let lists: Vec<&str> = responses().filter_map(|it| it.servers.as_deref()).collect();
        if lists.is_empty() || (lists.len() < responses_by_name.len() && !is_partial_accepted) {
            let reason =
                problem.unwrap_or_else(|| "no DNS response for at least one name yet".to_owned());
            return Some((Err(reason), None));
        }
        Some((Ok(join_lists(&lists)), problem))
    }
}

/// Joins lists. A server in several lists is listed once, because a list must not contain an address twice.
fn join_lists(lists: &[&str]) -> String {
    let mut listed_addresses = BTreeSet::new();
    let lines = lists.iter().flat_map(|list| list.lines());
    lines
        .filter(|line| listed_addresses.insert(line.split(' ').next()))
        .fold(String::new(), |text, line| text + line + "\n")
}

/// Repeats the query for a name, and sends its servers and problem whenever they change.
async fn query_repeatedly(
    name: ServersDns,
    sender: watch::Sender<Option<Responses>>,
    changed: Arc<Notify>,
) {
    loop {
        let previous = sender.borrow().clone().unwrap_or_default();
        let (servers, problem, delay) = match resolve(&name).await {
            Ok((list, ttl)) => (Some(list), None, ttl.clamp(TTL_RANGE.0, TTL_RANGE.1)),
            Err(problem) => (previous.servers, Some(problem), RETRY_DELAY),
        };
        let latest = Some(Responses { servers, problem });
        let has_changed = sender.send_if_modified(|current| {
            let has_changed = *current != latest;
            *current = latest;
            has_changed
        });
        if has_changed {
            changed.notify_one();
        }
        tokio::time::sleep(delay).await;
    }
}
