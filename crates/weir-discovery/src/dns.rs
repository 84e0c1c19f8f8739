//! Names that stand for servers: asked again when what is known has had its time, by a task for each.
//!
//! A task knows one name and gives its servers as a list in the form of `servers_file`, in a fixed order, because the
//! answers' own order changes from one to the next. It judges nothing: whether a list is believed is the membership's.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use tokio::sync::{Notify, watch};
use tokio::task::JoinHandle;
use weir_model::ServersDns;

use crate::resolve::resolve;

/// What a name stands for, as a list, or why that is not known.
pub(crate) type Answer = Result<String, String>;

/// A configuration waits so long for what it asks for the first time.
const FIRST_MAX: Duration = Duration::from_secs(3);
/// Bounds of a time to live: one of none would ask without end, and nobody waits a day for a server that is gone.
const TTL: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(3600));
/// After an answer that did not come, or none that helps.
const RETRY: Duration = Duration::from_secs(2);

#[derive(Debug)]
struct Asked {
    answer: watch::Receiver<Option<Answer>>,
    task: JoinHandle<()>,
}

impl Drop for Asked {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Names {
    asked: BTreeMap<ServersDns, Asked>,
    changed: Arc<Notify>,
}

impl Names {
    /// Says by `changed` that an answer differs from the one before.
    pub(crate) fn new(changed: Arc<Notify>) -> Self {
        Self {
            asked: BTreeMap::new(),
            changed,
        }
    }

    /// Asks for those that are not asked for yet, and waits for their first answers. Must be called inside a tokio
    /// runtime.
    pub(crate) async fn ask(&mut self, wanted: impl Iterator<Item = &ServersDns>) {
        let mut first = Vec::new();
        for name in wanted {
            if self.asked.contains_key(name) {
                continue;
            }
            let (tell, answer) = watch::channel(None);
            let task = tokio::spawn(follow(name.clone(), tell, Arc::clone(&self.changed)));
            first.push(answer.clone());
            self.asked.insert(name.clone(), Asked { answer, task });
        }
        let all = async {
            for mut answer in first {
                // The task lives as long as it is asked for.
                let _ = answer.wait_for(Option::is_some).await;
            }
        };
        if tokio::time::timeout(FIRST_MAX, all).await.is_err() {
            tracing::warn!("a name's servers are not known yet");
        }
    }

    /// Forgets the others.
    pub(crate) fn retain(&mut self, wanted: impl Fn(&ServersDns) -> bool) {
        self.asked.retain(|name, _| wanted(name));
    }

    /// The last answer.
    pub(crate) fn answer(&self, name: &ServersDns) -> Option<Answer> {
        self.asked.get(name)?.answer.borrow().clone()
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
