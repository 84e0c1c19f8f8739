//! Rolls out the group's configuration director by director, and stops the rollout if a director fails.
//!
//! If etcd has lost the configuration, it is restored.
//!
//! A director takes the turn, applies the configuration under its guard, and releases the turn. Without a guard, the
//! other directors apply the configuration at the same time after the first one has applied it, except those with flow
//! synchronization; each of them writes a separate key instead of taking the turn. Neither the turn nor such a key is
//! attached to a lease. If the director dies, the others stop the rollout, because the configuration may be the cause.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::chunk;
use crate::context::Context;
use crate::key::Key;
use crate::record::{ApplyingMember, MemberRecord, Pointer, StoppedRollout, sanitize_line};
use crate::staging::{Change, MAX_ETCD_WAIT, Staging};
use crate::step::{GroupConfig, Step};
use crate::store::{Compare, Put, Txn, Write};

/// How long unused chunks are kept. A publication in progress writes its chunks before the pointer.
const GARBAGE_AGE: Duration = Duration::from_secs(60);
/// Time limit of a publication, for example if etcd does not respond.
const PUBLISH_TIMEOUT: Duration = Duration::from_secs(60);
/// Maximum number of deletions in one transaction.
const MAX_DELETIONS: usize = 50;

/// A publication in progress.
#[derive(Clone, Debug)]
struct Publication {
    /// Number of the request; `None` = this director writes its applied configuration again, because etcd has lost the
    /// configuration or the MAC of the pointer is invalid.
    request: Option<u64>,
    /// The record of the stopped rollout of this configuration, which etcd has lost too.
    stopped: Option<StoppedRollout>,
    pointer: Pointer,
    chunks: Vec<(String, Vec<u8>)>,
    /// Revision of the pointer to be replaced; 0 = there is none.
    base: i64,
    /// Time at which the publication fails if it is not complete.
    deadline: Duration,
}

/// The state of the rollout of the group's configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rollout {
    pub(crate) applied: GroupConfig,
    pub(crate) staging: Staging,
    /// Whether [`Self::finish_staging`] has returned true. The first configuration of a director ends this state.
    is_staging_finished: bool,
    /// The configuration that this director is applying.
    applying: Option<GroupConfig>,
    /// A configuration, and the result of applying it, until etcd contains the result.
    outcome: Option<(GroupConfig, Result<(), String>)>,
    /// The configuration that this director failed to apply.
    failed: Option<GroupConfig>,
    /// With a group key, the newest version that the store has contained. Its number is never used for another
    /// configuration, even if the pointer is removed.
    newest: u64,
    publication: Option<Publication>,
    /// The record of the stopped rollout, until the store loses its data.
    stopped: Option<StoppedRollout>,
    /// Directors that became absent while they applied the configuration, and when the absence was first observed.
    absent: BTreeMap<String, Duration>,
    /// When unused chunks were first observed, and the revision of the pointer at that time.
    garbage: Option<(Duration, i64)>,
}

impl Rollout {
    /// Creates the state for a director that has applied this configuration.
    pub(crate) fn new(applied: GroupConfig, staging: Staging) -> Self {
        Self {
            applied,
            staging,
            ..Self::default()
        }
    }

    /// Handles the result of [`Step::Apply`].
    pub(crate) fn finish(&mut self, result: Result<(), String>) {
        let Some(applied) = self.applying.take() else {
            return;
        };
        self.staging
            .record_result(applied.version, self.applied.version, result.is_ok());
        match &result {
            Ok(()) => {
                self.applied = applied.clone();
                self.failed = None;
            }
            Err(_) => {
                let text = String::new();
                self.failed = Some(GroupConfig {
                    text,
                    ..applied.clone()
                });
            }
        }
        self.outcome = Some((applied, result));
    }

    /// Starts the publication of a configuration.
    ///
    /// # Errors
    /// Returns a one-line message if another publication is in progress, a director is applying a configuration, the
    /// version has reached its maximum, or the text cannot be published.
    pub(crate) fn publish(
        &mut self,
        context: &Context<'_>,
        request: u64,
        text: &str,
        guard_ms: u64,
    ) -> Result<(), String> {
        if self.publication.is_some() {
            return Err("another publication is in progress".to_owned());
        }
        if let Some((_, turn)) = context.holders().into_iter().next() {
            return Err(turn_message(&turn));
        }
        let newest_member_version = context.newest_member_version();
        let current = context
            .read_pointer(&Key::Current)
            .filter(|it| context.is_authentic(it));
        let newest_in_store = current.map_or(self.newest, |it| it.version.max(self.newest));
        let newest = newest_in_store
            .max(newest_member_version.unwrap_or(0))
            .max(self.applied.version);
        let version = context.unused_version(newest);
        let version = version.ok_or("the group's configuration has reached the maximum version")?;
        let publication = new_publication(context, Some(request), text, version, guard_ms)?;
        self.publication = Some(publication);
        Ok(())
    }

    /// Returns the last change of this director's version.
    pub(crate) fn last_change(&self) -> Change {
        match &self.applying {
            Some(applying) if applying.version != self.applied.version => Change {
                version: applying.version,
                replaced: Some(self.applied.version),
                is_applied: false,
            },
            _ => Change {
                version: self.applied.version,
                replaced: self.staging.replaced(),
                is_applied: true,
            },
        }
    }

    /// Returns true when [`crate::Output::PreviousStaged`] is due. `disconnected_for` = how long etcd has been
    /// unresponsive; `None` = it responds.
    pub(crate) fn finish_staging(
        &mut self,
        context: &Context<'_>,
        disconnected_for: Option<Duration>,
    ) -> bool {
        let is_due =
            !self.is_staging_finished && !self.may_lack_previous(context, disconnected_for);
        self.is_staging_finished |= is_due;
        is_due
    }

    /// Returns whether this director may still have to stage the previous version.
    fn may_lack_previous(&self, context: &Context<'_>, disconnected_for: Option<Duration>) -> bool {
        if let Some(duration) = disconnected_for {
            return duration < MAX_ETCD_WAIT;
        }
        let change = self.last_change();
        if change.version == 0 {
            return context.read_pointer(&Key::Current).is_some();
        }
        // While a version is being applied, the daemon may not yet have reported whether it has a second hop.
        let is_unknown = !change.is_applied && !context.stages_versions;
        is_unknown || self.staging.lacks_previous(context, &change)
    }

    /// Returns the next step of this director.
    pub(crate) fn next_step(&mut self, context: &Context<'_>) -> Step {
        if self.applying.is_some() {
            // The director forwards packets according to the new version, and may announce its VIPs, before the guard
            // ends.
            let change = self.last_change();
            let step = self.staging.stage_previous(context, &change);
            return step.unwrap_or(Step::Nothing);
        }
        if let Some(txn) = self.record_outcome(context) {
            return Step::Write(txn);
        }
        if let Some(txn) = self.next_publication_write(context) {
            return Step::Write(txn);
        }
        let current = context.read_pointer(&Key::Current);
        let is_authentic = current.as_ref().is_some_and(|it| context.is_authentic(it));
        if let Some(current) = current
            .as_ref()
            .filter(|_| is_authentic && context.key.is_some())
        {
            self.newest = self.newest.max(current.version);
        }
        match current {
            Some(current) if current.version >= self.applied.version => {
                self.stopped = context.read_stopped();
                if (current.version, &current.digest)
                    == (self.applied.version, &self.applied.digest)
                {
                    // An earlier version of Weir wrote the pointer, or another program changed it. Directors that
                    // rejected it have stopped the rollout.
                    if !is_authentic {
                        return self.rewrite(context, None);
                    }
                    return self.complete(context, &current);
                }
                self.adopt(context, &current)
            }
            // etcd has lost its data, or was restored from an older backup.
            _ => self.restore(context),
        }
    }

    /// Returns the transaction that records the result of the last configuration and releases the turn.
    fn record_outcome(&mut self, context: &Context<'_>) -> Option<Txn> {
        let (applied, result) = self.outcome.as_ref()?;
        let own_holder = context.holders().into_iter().find(|(_, turn)| {
            turn.member == context.own_name
                && turn.instance == context.instance
                && turn.version == applied.version
        });
        let Some((key, _)) = own_holder else {
            self.outcome = None;
            return None;
        };
        let mut writes = vec![context.delete(&key)];
        if let Err(reason) = result {
            let stopped = StoppedRollout {
                version: applied.version,
                member: context.own_name.to_owned(),
                reason: reason.clone(),
            };
            writes.push(context.put(&Key::Stopped, &stopped));
        }
        Some(Txn {
            compares: vec![context.unchanged(&key)],
            writes,
        })
    }

    /// Applies a newer configuration, takes the turn for it, or waits.
    fn adopt(&mut self, context: &Context<'_>, current: &Pointer) -> Step {
        let complete = context.read_pointer(&Key::Complete);
        let is_current =
            |it: &Pointer| (it.version, &it.digest) == (current.version, &current.digest);
        if context.is_stopped(current) {
            return match complete {
                Some(complete)
                    if complete.version > self.applied.version
                        && (!is_current(&complete) || self.may_start_with(context, &complete)) =>
                {
                    self.apply(context, &complete, &Key::Complete)
                }
                _ => Step::Nothing,
            };
        }
        if complete.as_ref().is_some_and(is_current) {
            return self.apply(context, current, &Key::Current);
        }
        if self.has_failed(current) {
            return Step::Nothing;
        }
        let holders = context.holders();
        let is_own = |turn: &ApplyingMember| {
            turn.member == context.own_name && turn.instance == context.instance
        };
        if let Some((key, turn)) = holders.iter().find(|(_, turn)| is_own(turn)) {
            if turn.version == current.version {
                return self.apply(context, current, &Key::Current);
            }
            return Step::Write(Txn {
                compares: vec![context.unchanged(key)],
                writes: vec![context.delete(key)],
            });
        }
        if let Some(txn) = self.stop_for_absent(context, &holders) {
            return Step::Write(txn);
        }
        if let Some(step) = self.staging.stage_next(context, current) {
            return step;
        }
        let has_turn = |(key, _): &(Key, ApplyingMember)| *key == Key::Turn;
        let key = if may_apply_concurrently(context, current) {
            Key::Applying(context.own_name.to_owned())
        } else if holders.iter().any(has_turn) {
            return Step::Nothing;
        } else {
            Key::Turn
        };
        let turn = ApplyingMember {
            member: context.own_name.to_owned(),
            instance: context.instance,
            version: current.version,
        };
        Step::Write(Txn {
            compares: vec![
                context.unchanged(&key),
                context.unchanged(&Key::Current),
                context.unchanged(&Key::Stopped),
            ],
            writes: vec![context.put(&key, &turn)],
        })
    }

    /// Returns whether this director applies a configuration whose rollout was stopped but is recorded as complete. An
    /// earlier version of Weir recorded stopped rollouts as complete, so etcd contains no other configuration. A
    /// director without a configuration applies it if a present director uses it, because otherwise it would serve
    /// nothing. The director that failed to apply it does not try again.
    fn may_start_with(&self, context: &Context<'_>, pointer: &Pointer) -> bool {
        let stopped = context.read_stopped();
        self.applied.version == 0
            && stopped.is_some_and(|it| it.member != context.own_name)
            && is_applied_by_member(context, pointer)
    }

    /// Returns the transaction that stops the rollout if a director's process ended while applying the configuration.
    fn stop_for_absent(
        &mut self,
        context: &Context<'_>,
        holders: &[(Key, ApplyingMember)],
    ) -> Option<Txn> {
        let members = context.members();
        let is_present = |turn: &ApplyingMember| {
            let holder = members.iter().find(|(name, _)| *name == turn.member);
            holder.is_some_and(|(_, member)| member.instance == turn.instance)
        };
        let absent: Vec<_> = holders.iter().filter(|(_, it)| !is_present(it)).collect();
        self.absent
            .retain(|name, _| absent.iter().any(|(_, turn)| turn.member == *name));
        for (key, turn) in absent {
            let since = self.absent.entry(turn.member.clone());
            let since = *since.or_insert(context.now);
            // The holder's next process stops the rollout immediately. Others wait, because an absent director may
            // merely have lost its lease.
            if turn.member != context.own_name
                && (context.now < since + context.ttl || context.synced_for < context.ttl)
            {
                continue;
            }
            let stopped = StoppedRollout {
                version: turn.version,
                member: turn.member.clone(),
                reason: "the director exited while applying the configuration".to_owned(),
            };
            return Some(Txn {
                compares: vec![context.unchanged(key)],
                writes: vec![context.delete(key), context.put(&Key::Stopped, &stopped)],
            });
        }
        None
    }

    /// Returns whether this director failed to apply the configuration.
    fn has_failed(&self, pointer: &Pointer) -> bool {
        let failed = self.failed.as_ref();
        failed.is_some_and(|it| {
            (it.version, &it.digest, &it.mac) == (pointer.version, &pointer.digest, &pointer.mac)
        })
    }

    /// Applies the configuration to which a pointer refers. `key` is the key of the pointer.
    fn apply(&mut self, context: &Context<'_>, pointer: &Pointer, key: &Key) -> Step {
        // A transaction may have reported the pointer before the watch reports the chunks, which were written earlier.
        let is_reported =
            context.mirror.revision >= context.mirror.revision_of(&context.keys.name(key));
        let has_chunk = |digest: &String| {
            let name = context.keys.name(&Key::Chunk(digest.clone()));
            context.mirror.get(&name).is_some()
        };
        let must_wait = !is_reported && !pointer.chunks.iter().all(has_chunk);
        if must_wait || self.has_failed(pointer) {
            return Step::Nothing;
        }
        let mut configuration = GroupConfig {
            version: pointer.version,
            digest: pointer.digest.clone(),
            text: String::new(),
            guard_ms: pointer.guard_ms,
            mac: pointer.mac.clone(),
        };
        match chunk::join(pointer, context.keys, context.mirror, context.key) {
            Ok(text) => {
                configuration.text = text;
                self.is_staging_finished &= self.applied.version > 0;
                self.applying = Some(configuration.clone());
                Step::Apply(configuration)
            }
            Err(reason) => {
                self.applying = Some(configuration);
                self.finish(Err(reason));
                match self.record_outcome(context) {
                    Some(txn) => Step::Write(txn),
                    None => Step::Nothing,
                }
            }
        }
    }

    /// Continues the rollout after this director has applied the configuration: when all members have applied it,
    /// records its completion, and then removes unused chunks.
    fn complete(&mut self, context: &Context<'_>, current: &Pointer) -> Step {
        let holders = context.holders();
        // The key may belong to a former process of this director that applied the configuration.
        if let Some((key, _)) = holders
            .iter()
            .find(|(_, turn)| turn.member == context.own_name)
        {
            return Step::Write(Txn {
                compares: vec![context.unchanged(key)],
                writes: vec![context.delete(key)],
            });
        }
        if let Some(txn) = self.stop_for_absent(context, &holders) {
            return Step::Write(txn);
        }
        let change = self.last_change();
        if let Some(step) = self.staging.stage_previous(context, &change) {
            return step;
        }
        if !holders.is_empty() {
            return Step::Nothing;
        }
        let members = context.members();
        let has_applied = |(_, member): &(String, MemberRecord)| {
            (member.version, &member.digest) == (current.version, &current.digest)
        };
        let has_own_record = members
            .iter()
            .any(|it| it.0 == context.own_name && has_applied(it));
        let complete = context.read_pointer(&Key::Complete);
        let is_complete = complete.as_ref() == Some(current);
        // Directors that failed to apply the configuration, or crashed while doing so, may be absent. They must not
        // apply it when they return.
        if has_own_record
            && !is_complete
            && !context.is_stopped(current)
            && members.iter().all(has_applied)
            && context.synced_for >= context.ttl / 4
        {
            let replaced = complete.filter(|it| it.version < current.version);
            let previous = replaced.map(|it| context.put(&Key::Previous, &it));
            let writes = [context.put(&Key::Complete, current)].into_iter();
            return Step::Write(Txn {
                compares: vec![
                    context.unchanged(&Key::Current),
                    context.unchanged(&Key::Complete),
                    context.unchanged(&Key::Stopped),
                    context.unchanged(&Key::Turn),
                ],
                writes: writes.chain(previous).collect(),
            });
        }
        // Only one member removes chunks.
        let is_first = members
            .first()
            .is_some_and(|(name, _)| name == context.own_name);
        if is_first && is_complete {
            return self.remove_chunks(context, current);
        }
        Step::Nothing
    }

    /// Deletes unused chunks after [`GARBAGE_AGE`]. The previous version is kept for directors that start.
    fn remove_chunks(&mut self, context: &Context<'_>, current: &Pointer) -> Step {
        let previous = context.read_pointer(&Key::Previous);
        let previous = previous.iter().flat_map(|it| &it.chunks);
        let used: BTreeSet<&String> = current.chunks.iter().chain(previous).collect();
        let unused = context.mirror.iter().filter_map(|(name, _)| {
            let parsed = context.keys.parse(name);
            let is_unused = matches!(&parsed, Some(Key::Chunk(it)) if !used.contains(it));
            is_unused.then(|| Write::Delete(name.to_owned()))
        });
        let writes: Vec<Write> = unused.take(MAX_DELETIONS).collect();
        let revision = context
            .mirror
            .revision_of(&context.keys.name(&Key::Current));
        if writes.is_empty() {
            self.garbage = None;
            return Step::Nothing;
        }
        match self.garbage {
            Some((since, found_at))
                if found_at == revision && context.now >= since + GARBAGE_AGE =>
            {
                Step::Write(Txn {
                    compares: vec![context.unchanged(&Key::Current)],
                    writes,
                })
            }
            Some((_, found_at)) if found_at == revision => Step::Nothing,
            _ => {
                self.garbage = Some((context.now, revision));
                Step::Nothing
            }
        }
    }

    /// Writes the applied configuration if etcd has no configuration or an older one. First waits for the other
    /// members, because one of them may have a newer configuration. The rollout continues where it was: the other
    /// directors take turns, and a stopped rollout remains stopped.
    fn restore(&mut self, context: &Context<'_>) -> Step {
        if self.applied.version == 0 || context.synced_for < context.ttl {
            return Step::Nothing;
        }
        if context
            .newest_member_version()
            .is_some_and(|newest| newest > self.applied.version)
        {
            return Step::Nothing;
        }
        let stopped = self.stopped.clone();
        self.rewrite(
            context,
            stopped.filter(|it| it.version == self.applied.version),
        )
    }

    /// Writes the applied configuration again, with the same version.
    fn rewrite(&mut self, context: &Context<'_>, stopped: Option<StoppedRollout>) -> Step {
        let GroupConfig {
            version,
            text,
            guard_ms,
            ..
        } = self.applied.clone();
        if let Ok(publication) = new_publication(context, None, &text, version, guard_ms) {
            self.publication = Some(Publication {
                stopped,
                ..publication
            });
        }
        match self.next_publication_write(context) {
            Some(txn) => Step::Write(txn),
            None => Step::Nothing,
        }
    }

    /// Returns the next write of the publication in progress: a missing chunk, or at the end the pointer.
    fn next_publication_write(&self, context: &Context<'_>) -> Option<Txn> {
        let publication = self.publication.as_ref()?;
        let chunk_key = |digest: &str| Key::Chunk(digest.to_owned());
        let mut chunks = publication.chunks.iter();
        let is_missing = |(digest, _): &&(String, Vec<u8>)| {
            context
                .mirror
                .get(&context.keys.name(&chunk_key(digest)))
                .is_none()
        };
        if let Some((digest, bytes)) = chunks.find(is_missing) {
            return Some(Txn {
                compares: Vec::new(),
                writes: vec![Write::Put(Put {
                    key: context.keys.name(&chunk_key(digest)),
                    value: bytes.clone(),
                    leased: false,
                })],
            });
        }
        let current = context.keys.name(&Key::Current);
        let mut compares = vec![
            Compare::Revision(current, publication.base),
            context.unchanged(&Key::Turn),
        ];
        let chunks = publication.chunks.iter();
        compares.extend(
            chunks.map(|(digest, _)| Compare::Exists(context.keys.name(&chunk_key(digest)))),
        );
        let writes = vec![
            context.put(&Key::Current, &publication.pointer),
            match &publication.stopped {
                Some(stopped) => context.put(&Key::Stopped, stopped),
                None => context.delete(&Key::Stopped),
            },
        ];
        Some(Txn { compares, writes })
    }

    /// Handles the result of a transaction that [`Rollout::next_step`] returned. If the transaction ends a requested
    /// publication, returns its number and result.
    pub(crate) fn handle_txn_result(
        &mut self,
        context: &Context<'_>,
        txn: &Txn,
        is_done: bool,
    ) -> Option<(u64, Result<u64, String>)> {
        let changes_key = |key: &Key| {
            let name = context.keys.name(key);
            txn.writes.iter().any(|write| match write {
                Write::Put(put) => put.key == name,
                Write::Delete(deleted) => *deleted == name,
            })
        };
        let own_key = Key::Applying(context.own_name.to_owned());
        if is_done && (changes_key(&Key::Turn) || changes_key(&own_key)) {
            self.outcome = None;
        }
        let publication = self.publication.as_ref()?;
        if !changes_key(&Key::Current) {
            return None;
        }
        let name = context.keys.name(&Key::Current);
        let mut reason = "another configuration was published in the meantime".to_owned();
        if !is_done && context.mirror.revision_of(&name) == publication.base {
            let turn: Option<ApplyingMember> = context.mirror.read(&context.keys.name(&Key::Turn));
            // If no director has the turn, a chunk was removed. The next step writes it again.
            reason = turn_message(&turn?);
        }
        let publication = self.publication.take()?;
        let request = publication.request?;
        Some(match is_done {
            true => (request, Ok(publication.pointer.version)),
            false => (request, Err(reason)),
        })
    }

    /// Handles a new listing of the keys. Returns the number and result of a requested publication that has ended: etcd
    /// executed it but the response was lost, or another configuration was published in the meantime. Abandons a
    /// restoration; the next step determines whether it is still necessary.
    pub(crate) fn resume(&mut self, context: &Context<'_>) -> Option<(u64, Result<u64, String>)> {
        let publication = self.publication.as_mut()?;
        let Some(request) = publication.request else {
            self.publication = None;
            return None;
        };
        let current = context.read_pointer(&Key::Current);
        let result = match current {
            Some(current) if current == publication.pointer => Ok(current.version),
            Some(_) => {
                let name = context.keys.name(&Key::Current);
                if context.mirror.revision_of(&name) == publication.base {
                    return None;
                }
                Err("another configuration was published in the meantime".to_owned())
            }
            // etcd has lost its data.
            None => {
                publication.base = 0;
                return None;
            }
        };
        self.publication = None;
        Some((request, result))
    }

    /// Abandons a publication whose deadline has passed. Returns the number and result of a requested publication.
    pub(crate) fn expire(
        &mut self,
        now: Duration,
        reason: &str,
    ) -> Option<(u64, Result<u64, String>)> {
        let publication = self.publication.as_ref()?;
        if now < publication.deadline {
            return None;
        }
        let request = self.publication.take()?.request?;
        let message = format!(
            "etcd has not confirmed the publication within {} s: {reason}; `weir cluster status` shows whether it was \
             published",
            PUBLISH_TIMEOUT.as_secs()
        );
        Some((request, Err(message)))
    }
}

/// Returns whether this director may apply the configuration at the same time as others. This requires that the
/// configuration has no guard, and that a director has already applied it.
fn may_apply_concurrently(context: &Context<'_>, current: &Pointer) -> bool {
    context.applies_with_others && current.guard_ms == 0 && is_applied_by_member(context, current)
}

/// Returns whether a present member has applied the configuration to which a pointer refers.
fn is_applied_by_member(context: &Context<'_>, pointer: &Pointer) -> bool {
    let has_applied = |(_, member): &(String, MemberRecord)| {
        (member.version, &member.digest) == (pointer.version, &pointer.digest)
    };
    context.members().iter().any(has_applied)
}

/// Returns the error message for a publication while a director is applying a configuration.
fn turn_message(turn: &ApplyingMember) -> String {
    format!(
        "{} is applying version {}; wait until it has finished",
        sanitize_line(&turn.member),
        turn.version
    )
}

/// Prepares a publication.
///
/// # Errors
/// Returns a one-line message if the text is too large or cannot be sealed.
fn new_publication(
    context: &Context<'_>,
    request: Option<u64>,
    text: &str,
    version: u64,
    guard_ms: u64,
) -> Result<Publication, String> {
    let chunks = chunk::split(text, context.key)?;
    let base = context
        .mirror
        .revision_of(&context.keys.name(&Key::Current));
    let pointer = Pointer {
        version,
        digest: chunk::text_digest(text, context.key),
        bytes: text.len() as u64,
        chunks: chunks.iter().map(|(digest, _)| digest.clone()).collect(),
        sealed: context.key.is_some(),
        by: context.own_name.to_owned(),
        guard_ms,
        mac: String::new(),
    };
    Ok(Publication {
        request,
        stopped: None,
        pointer: pointer.sign(context.keys, context.key),
        chunks,
        base,
        deadline: context.now + PUBLISH_TIMEOUT,
    })
}
