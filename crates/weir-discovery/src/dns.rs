//! Resolves names of servers, each in a task of its own that asks again when the time to live ends.
//!
//! A task returns the servers of its name as a list in the form of `servers_file`, sorted, because the order of answers
//! changes. Lists are validated by the caller.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use weir_model::ServersDns;

use crate::resolve::resolve;

/// The servers of a name as a list, or why they are not known.
pub(crate) type Answer = Result<String, String>;

/// How long a configuration waits for the first answers.
const FIRST_MAX: Duration = Duration::from_secs(3);
/// Bounds of a time to live: 0 would cause a busy loop, and a day would be too long after a server was removed.
const TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// Pause after a failed query.
const RETRY: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Resolution {
    answer: watch::Receiver<Option<Answer>>,
    task: JoinHandle<()>,
}

impl Drop for Resolution {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Names {
    resolutions: BTreeMap<ServersDns, Resolution>,
    changed: Arc<Notify>,
}

impl Names {
    /// `changed` is notified when an answer differs from the previous one.
    pub(crate) fn new(changed: Arc<Notify>) -> Self {
        Self {
            resolutions: BTreeMap::new(),
            changed,
        }
    }

    /// Starts to resolve new names, and waits for their first answers. Must be called inside a tokio runtime.
    pub(crate) async fn resolve_new(&mut self, wanted: impl Iterator<Item = &ServersDns>) {
        let mut first = Vec::new();
        for name in wanted {
            if self.resolutions.contains_key(name) {
                continue;
            }
            let (tell, answer) = watch::channel(None);
            let task = tokio::spawn(follow(name.clone(), tell, Arc::clone(&self.changed)));
            first.push(answer.clone());
            self.resolutions
                .insert(name.clone(), Resolution { answer, task });
        }
        let all = async {
            for mut answer in first {
                // The task lives as long as its name is wanted.
                let _ = answer.wait_for(Option::is_some).await;
            }
        };
        if tokio::time::timeout(FIRST_MAX, all).await.is_err() {
            tracing::warn!("DNS has not answered yet: starting without the servers of a name");
        }
    }

    /// Stops resolving the other names.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&ServersDns) -> bool) {
        self.resolutions.retain(|name, _| wanted(name));
    }

    /// The last answer for a name.
    pub(crate) fn answer(&self, name: &ServersDns) -> Option<Answer> {
        self.resolutions.get(name)?.answer.borrow().clone()
    }
}

async fn follow(wanted: ServersDns, tell: watch::Sender<Option<Answer>>, changed: Arc<Notify>) {
    loop {
        let (answer, pause) = match resolve(&wanted).await {
            Ok((list, ttl)) => (Ok(list), ttl.clamp(TTL.0, TTL.1)),
            Err(problem) => (Err(problem), RETRY),
        };
        let answer = Some(answer);
        let differs = tell.send_if_modified(|known| {
            let differs = *known != answer;
            *known = answer;
            differs
        });
        if differs {
            changed.notify_one();
        }
        tokio::time::sleep(pause).await;
    }
}
