//! Stages other versions of the configuration, whose servers become the second hop of services with GUE.
//!
//! Only servers that this director's own version does not use are staged.
//!
//! In a rollout with a guard, the directors use two versions at the same time. If the first director dies, its new
//! connections, which use the servers of the next version, arrive at directors that are still waiting. All directors
//! therefore stage the next version before the first one applies it. A director that has just started, or has missed
//! versions, stages the previous version, because it does not have the table before the last change.

use std::time::Duration;

use crate::chunk;
use crate::context::Context;
use crate::key::Key;
use crate::record::{MemberRecord, Pointer};
use crate::step::Step;

/// Maximum time for which a rollout waits until all directors have staged the configuration.
const STAGING_TIMEOUT: Duration = Duration::from_secs(5);
/// How long a director that has just started waits for etcd before it continues without the previous version.
pub(crate) const MAX_ETCD_WAIT: Duration = Duration::from_secs(3);

/// The versions that this director has staged.
#[derive(Clone, Debug, Default)]
pub(crate) struct Staging {
    /// The newest version that this director has staged; 0 = none.
    staged: u64,
    /// The newest version that the daemon has been asked to stage before it is applied.
    requested: u64,
    /// The applied version whose previous version needs no further request; 0 = none.
    completed: u64,
    /// The same for the version that is being applied; 0 = none.
    completed_early: u64,
    /// The version for which the rollout waits, and the start of the wait.
    waiting: Option<(u64, Duration)>,
    /// The version that this process used before it applied the current one; `None` = it has not applied any.
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

    /// Returns whether a table from etcd replaces that of the data plane as the table before this change. The data
    /// plane's table may be newer if an earlier process of this director wrote it.
    pub(crate) const fn replaces(&self, change: &Change) -> bool {
        !self.has_tables || change.replaced.is_some()
    }

    /// Returns the newest version that this director has staged; 0 = none.
    pub(crate) const fn staged(&self) -> u64 {
        self.staged
    }

    /// Records that the daemon has staged a version, or cannot stage it.
    pub(crate) fn finish(&mut self, version: u64) {
        self.staged = self.staged.max(version);
    }

    /// Returns the version that this process used before it applied the current one; `None` = it has not applied any.
    pub(crate) const fn replaced(&self) -> Option<u64> {
        self.replaced
    }

    /// Records that this director has applied `version`, or has failed to do so. Until then, it used `replaced`.
    pub(crate) fn record_result(&mut self, version: u64, replaced: u64, is_applied: bool) {
        if is_applied {
            if version != replaced {
                self.replaced = Some(replaced);
            }
            if self.completed_early == version {
                self.completed = version;
            }
        }
        self.completed_early = 0;
    }

    /// Returns the step that stages the next version, or that waits until all members have staged it; `None` = this
    /// director may take its turn. Without a guard, directors do not stage the version: they apply it in quick
    /// succession.
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

    /// Returns the step that stages the version before this change, if this director does not know the table before the
    /// change.
    pub(crate) fn stage_previous(
        &mut self,
        context: &Context<'_>,
        change: &Change,
    ) -> Option<Step> {
        if !context.stages_versions || self.is_completed(change) {
            return None;
        }
        let previous = previous_pointer(context, change.version)?;
        let is_known = change.replaced == Some(previous.version);
        let text = match is_known {
            true => None,
            false => Some(read(context, &previous)?),
        };
        match change.is_applied {
            true => self.completed = change.version,
            false => self.completed_early = change.version,
        }
        Some(Step::Stage {
            version: previous.version,
            text: text?.ok()?,
            replaces: self.replaces(change),
        })
    }

    /// Returns whether the previous version is needed but [`Self::stage_previous`] has not staged it yet.
    pub(crate) fn lacks_previous(&self, context: &Context<'_>, change: &Change) -> bool {
        let previous = match context.stages_versions && !self.is_completed(change) {
            true => previous_pointer(context, change.version),
            false => None,
        };
        previous.is_some_and(|it| change.replaced != Some(it.version))
    }

    fn is_completed(&self, change: &Change) -> bool {
        [self.completed, self.completed_early].contains(&change.version)
    }
}

/// A change to a different version on this director.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Change {
    /// The version that this director has applied or is applying; 0 = none.
    pub(crate) version: u64,
    /// The version that this process used before; `None` = this process has started with `version`.
    pub(crate) replaced: Option<u64>,
    /// Whether the director has applied the version. With a guard, applying it takes at least as long as the guard.
    pub(crate) is_applied: bool,
}

/// Returns the pointer to the configuration that all members had before `version`.
fn previous_pointer(context: &Context<'_>, version: u64) -> Option<Pointer> {
    let keys = [Key::Complete, Key::Previous].into_iter();
    let mut pointers = keys.filter_map(|key| context.read_pointer(&key));
    pointers.find(|it| it.version < version && context.is_authentic(it))
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
