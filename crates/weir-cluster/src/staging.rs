//! Stages other versions of the configuration: the servers of a version that this director does not use become the
//! second hop of services with GUE.
//!
//! In a rollout with a guard, the directors use two versions at the same time. If the first director dies, its new
//! connections arrive at directors that still wait, and are on servers of the next version. All directors therefore
//! stage the next version before the first one applies it. A director that has just started, or has missed versions,
//! stages the previous version, because it does not have the table before the last change.

use std::time::Duration;

use crate::chunk;
use crate::context::Context;
use crate::key::Key;
use crate::record::{MemberRecord, Pointer};
use crate::step::Step;

/// Maximum time for which a rollout waits until all directors have staged the configuration.
const STAGING_TIMEOUT: Duration = Duration::from_secs(5);

/// The versions that this director has staged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Staging {
    /// The newest version that this director has staged; 0 = none.
    staged: u64,
    /// The newest version that the daemon has been asked to stage before it is applied.
    requested: u64,
    /// The applied version whose previous version needs no further request; 0 = none.
    completed: u64,
    /// The version for which the rollout waits, and since when.
    waiting: Option<(u64, Duration)>,
    /// The version that this process used before it applied the present one; `None` = it has not applied any.
    replaced: Option<u64>,
    /// Whether the data plane has the tables of an earlier process of this director.
    has_tables: bool,
}

impl Staging {
    /// Creates the state for a new process.
    pub(crate) fn new(has_tables: bool) -> Self {
        Self {
            has_tables,
            ..Self::default()
        }
    }

    /// Returns whether a table from etcd is better than that of the data plane as the table before the last change. The
    /// data plane of an earlier process may have a newer table.
    pub(crate) const fn replaces(&self) -> bool {
        !self.has_tables || self.replaced.is_some()
    }

    /// Returns the newest version that this director has staged; 0 = none.
    pub(crate) const fn staged(&self) -> u64 {
        self.staged
    }

    /// Records that the daemon has staged a version, or cannot stage it.
    pub(crate) fn finish(&mut self, version: u64) {
        self.staged = self.staged.max(version);
    }

    /// Records that this director has applied another version than `replaced`.
    pub(crate) fn record_applied(&mut self, replaced: u64) {
        self.replaced = Some(replaced);
    }

    /// Returns the step that stages the next version, or that waits until all members have staged it; `None` = this
    /// director may take the turn. Without a guard, all directors apply the version almost at the same time.
    pub(crate) fn stage_next(&mut self, context: &Context<'_>, next: &Pointer) -> Option<Step> {
        if next.guard_ms == 0 {
            return None;
        }
        if context.stages_versions && self.requested < next.version {
            match read(context, next) {
                Some(Ok(text)) => {
                    self.requested = next.version;
                    return Some(Step::Stage {
                        version: next.version,
                        text,
                        replaces: true,
                    });
                }
                // The director that applies the configuration reports the error.
                Some(Err(_)) => {
                    self.requested = next.version;
                    self.finish(next.version);
                }
                None => {}
            }
        }
        let since = match self.waiting {
            Some((version, since)) if version == next.version => since,
            _ => context.now,
        };
        self.waiting = Some((next.version, since));
        let is_ready = |(name, member): &(String, MemberRecord)| {
            let staged = match name == context.own_name {
                true => context.stages_versions.then_some(self.staged),
                false => member.staged,
            };
            // Earlier versions of Weir, and directors without a second hop, stage nothing.
            staged.is_none_or(|staged| staged >= next.version || member.version >= next.version)
        };
        let is_overdue = context.now >= since + STAGING_TIMEOUT;
        (!is_overdue && !context.members().iter().all(is_ready)).then_some(Step::Nothing)
    }

    /// Returns the step that stages the version before the applied one, if this director does not know the table
    /// before the last change.
    pub(crate) fn stage_previous(
        &mut self,
        context: &Context<'_>,
        applied: &Pointer,
    ) -> Option<Step> {
        if !context.stages_versions || self.completed == applied.version {
            return None;
        }
        let previous = previous_pointer(context, applied)?;
        if self.replaced == Some(previous.version) {
            self.completed = applied.version;
            return None;
        }
        let text = read(context, &previous)?;
        self.completed = applied.version;
        Some(Step::Stage {
            version: previous.version,
            text: text.ok()?,
            replaces: self.replaces(),
        })
    }
}

/// Returns the pointer to the configuration that all members had before the applied one.
fn previous_pointer(context: &Context<'_>, applied: &Pointer) -> Option<Pointer> {
    let keys = [Key::Complete, Key::Previous].into_iter();
    let mut pointers = keys.filter_map(|key| context.read_pointer(&key));
    pointers.find(|it| it.version < applied.version && context.is_authentic(it))
}

/// Returns the text of a configuration; `None` = a chunk has not been reported yet.
fn read(context: &Context<'_>, pointer: &Pointer) -> Option<Result<String, String>> {
    let is_known = |digest: &String| {
        let name = context.keys.name(&Key::Chunk(digest.clone()));
        context.mirror.get(&name).is_some()
    };
    let is_complete = pointer.chunks.iter().all(is_known);
    is_complete.then(|| chunk::join(pointer, context.keys, context.mirror, context.key))
}
