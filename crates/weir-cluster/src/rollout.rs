//! The configuration of the group: rolled out director by director, stopped when one fails, restored when etcd has lost
//! it.
//!
//! A director takes the turn, applies the configuration under its guard, and passes the turn on. Without a guard, the
//! others apply it together once the first one has it: each has a key of its own instead of the turn. Neither the turn
//! nor that key has a lease: if the director dies, the others stop the rollout instead of passing on a configuration
//! that may have killed it.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use crate::chunk;
use crate::key::{Key, Keys};
use crate::record::{MemberRecord, Pointer, Stopped, Turn};
use crate::seal::GroupKey;
use crate::store::{Compare, Mirror, Put, Txn, Write};

/// How long unused chunks stay: a publication in progress writes its chunks before the pointer.
const GARBAGE_AGE: Duration = Duration::from_secs(60);
/// How long a publication is tried while etcd does not answer.
const PUBLISH_PATIENCE: Duration = Duration::from_secs(60);
/// Maximum number of deletions in one transaction.
const DELETIONS_MAX: usize = 50;

/// A configuration of the group that this director has applied.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Applied {
    /// 0 = none.
    pub(crate) version: u64,
    pub(crate) digest: String,
    pub(crate) text: String,
    pub(crate) guard_ms: u64,
    /// Of the pointer.
    pub(crate) mac: String,
}

/// What a decision depends on, in addition to the state of the rollout.
pub(crate) struct Context<'a> {
    pub(crate) keys: &'a Keys,
    pub(crate) mirror: &'a Mirror,
    pub(crate) me: &'a str,
    pub(crate) instance: u64,
    pub(crate) key: Option<&'a GroupKey>,
    pub(crate) now: Duration,
    /// How long the mirror has been complete, if it is.
    pub(crate) synced_for: Duration,
    /// Time to live of leases.
    pub(crate) ttl: Duration,
    /// See [`crate::Facts`].
    pub(crate) applies_with_others: bool,
}

impl Context<'_> {
    fn pointer(&self, key: &Key) -> Option<Pointer> {
        self.mirror.read(&self.keys.name(key))
    }

    fn same(&self, key: &Key) -> Compare {
        let name = self.keys.name(key);
        let revision = self.mirror.revision_of(&name);
        Compare::Revision(name, revision)
    }

    fn delete(&self, key: &Key) -> Write {
        Write::Delete(self.keys.name(key))
    }

    fn is_authentic(&self, pointer: &Pointer) -> bool {
        pointer.is_authentic(self.keys, self.key)
    }

    /// The newest version that a director of the group reports.
    fn newest_of_members(&self) -> Option<u64> {
        let members = self.members().into_iter();
        let known = members.filter(|(name, it)| it.is_authentic(self.keys, name, self.key));
        known.map(|(_, member)| member.version).max()
    }

    pub(crate) fn members(&self) -> Vec<(String, MemberRecord)> {
        let member = |(name, _): (&str, _)| match self.keys.parse(name) {
            Some(Key::Member(member)) => Some((member, self.mirror.read(name)?)),
            _ => None,
        };
        self.mirror.iter().filter_map(member).collect()
    }

    /// Who applies a configuration now, with the keys that report it: the one that has the turn, and those that apply
    /// it together.
    fn holders(&self) -> Vec<(Key, Turn)> {
        let turn = self.mirror.read(&self.keys.name(&Key::Turn));
        let turn = turn.map(|turn| (Key::Turn, turn)).into_iter();
        let together = self.mirror.iter().filter_map(|(name, _)| {
            let key = self.keys.parse(name)?;
            let Key::Applying(member) = &key else {
                return None;
            };
            // The key counts, whatever the value claims.
            let turn: Turn = self.mirror.read(name)?;
            let member = member.clone();
            Some((key, Turn { member, ..turn }))
        });
        turn.chain(together).collect()
    }

    fn stopped(&self) -> Option<Stopped> {
        self.mirror.read(&self.keys.name(&Key::Stopped))
    }

    fn put<T: serde::Serialize>(&self, key: &Key, value: &T) -> Write {
        Write::Put(Put {
            key: self.keys.name(key),
            value: serde_json::to_vec(value).unwrap_or_default(),
            leased: false,
        })
    }
}

/// The next step.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Step {
    Nothing,
    Write(Txn),
    /// Apply a configuration; the result is reported by [`Rollout::finish`].
    Apply(Applied),
}

/// A publication in progress.
#[derive(Clone, Debug)]
struct Publication {
    /// `None` = etcd has lost the configuration, or has it without a code, and it is written again.
    request: Option<u64>,
    /// Whether all members had it.
    completes: bool,
    pointer: Pointer,
    chunks: Vec<(String, Vec<u8>)>,
    /// Revision of the pointer that it replaces.
    base: i64,
    /// When it fails if it has not been executed.
    deadline: Duration,
}

/// The state of the rollout of the group's configuration.
#[derive(Clone, Debug, Default)]
pub(crate) struct Rollout {
    pub(crate) applied: Applied,
    applying: Option<Applied>,
    /// A result that is not yet recorded.
    outcome: Option<(Applied, Result<(), String>)>,
    /// A configuration that failed here.
    failed: Option<Applied>,
    /// With a group key: the newest version that the store had. Another configuration never gets its number, even if
    /// the pointer is removed.
    newest: u64,
    publication: Option<Publication>,
    /// Directors that ended while they applied the configuration, and since when they are absent.
    absent: BTreeMap<String, Duration>,
    /// Since when there are unused chunks, at this revision of the pointer.
    garbage: Option<(Duration, i64)>,
}

impl Rollout {
    /// With what this director has applied before.
    pub(crate) fn new(applied: Applied) -> Self {
        Self {
            applied,
            ..Self::default()
        }
    }

    /// The result of [`Step::Apply`].
    pub(crate) fn finish(&mut self, result: Result<(), String>) {
        let Some(applied) = self.applying.take() else {
            return;
        };
        match &result {
            Ok(()) => {
                self.applied = applied.clone();
                self.failed = None;
            }
            Err(_) => {
                let text = String::new();
                self.failed = Some(Applied {
                    text,
                    ..applied.clone()
                });
            }
        }
        self.outcome = Some((applied, result));
    }

    /// Begins a publication; a former one must have ended.
    ///
    /// # Errors
    /// The text is too large, or a director applies another configuration; in one line.
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
            return Err(format!(
                "{} is applying version {}; wait until it has finished",
                turn.member, turn.version
            ));
        }
        let known = context.newest_of_members();
        let current = context.pointer(&Key::Current);
        let current = current.filter(|it| context.is_authentic(it));
        let current = current.map_or(self.newest, |it| it.version.max(self.newest));
        let newest = current.max(known.unwrap_or(0)).max(self.applied.version);
        let version = newest.checked_add(1);
        let version = version.ok_or("the group has a configuration with the highest version")?;
        let publication = publication(context, Some(request), text, version, guard_ms)?;
        self.publication = Some(publication);
        Ok(())
    }

    /// The next step of this director.
    pub(crate) fn next(&mut self, context: &Context<'_>) -> Step {
        if self.applying.is_some() {
            return Step::Nothing;
        }
        if let Some(txn) = self.record_outcome(context) {
            return Step::Write(txn);
        }
        if let Some(txn) = self.next_of_publication(context) {
            return Step::Write(txn);
        }
        let current = context.pointer(&Key::Current);
        let is_authentic = current.as_ref().is_some_and(|it| context.is_authentic(it));
        if let Some(current) = current
            .as_ref()
            .filter(|_| is_authentic && context.key.is_some())
        {
            self.newest = self.newest.max(current.version);
        }
        match current {
            Some(current) if current.version >= self.applied.version => {
                if (current.version, &current.digest)
                    == (self.applied.version, &self.applied.digest)
                {
                    // An earlier version has written it, or someone has changed it.
                    if !is_authentic {
                        return self.rewrite(context, false);
                    }
                    return self.complete(context, &current);
                }
                self.adopt(context, &current)
            }
            // Lost, or an older copy of the data.
            _ => self.restore(context),
        }
    }

    /// Records the result of the last configuration, and passes the turn on.
    fn record_outcome(&mut self, context: &Context<'_>) -> Option<Txn> {
        let (applied, result) = self.outcome.as_ref()?;
        let mine = context.holders().into_iter().find(|(_, turn)| {
            turn.member == context.me
                && turn.instance == context.instance
                && turn.version == applied.version
        });
        let Some((key, _)) = mine else {
            self.outcome = None;
            return None;
        };
        let mut writes = vec![context.delete(&key)];
        if let Err(reason) = result {
            let stopped = Stopped {
                version: applied.version,
                member: context.me.to_owned(),
                reason: reason.clone(),
            };
            writes.push(context.put(&Key::Stopped, &stopped));
        }
        Some(Txn {
            compares: vec![context.same(&key)],
            writes,
        })
    }

    /// Applies the configuration, takes the turn, or waits.
    fn adopt(&mut self, context: &Context<'_>, current: &Pointer) -> Step {
        let complete = context.pointer(&Key::Complete);
        let is_complete = |of: &Pointer| {
            let same = |it: &Pointer| (it.version, &it.digest) == (of.version, &of.digest);
            complete.as_ref().is_some_and(same)
        };
        if is_complete(current) {
            return self.apply(context, current, &Key::Current);
        }
        let stopped = context.stopped();
        if stopped.is_some_and(|it| it.version == current.version) {
            return match complete {
                Some(complete) if complete.version > self.applied.version => {
                    self.apply(context, &complete, &Key::Complete)
                }
                _ => Step::Nothing,
            };
        }
        if self.has_failed(current) {
            return Step::Nothing;
        }
        let holders = context.holders();
        let is_mine = |turn: &Turn| turn.member == context.me && turn.instance == context.instance;
        if let Some((key, turn)) = holders.iter().find(|(_, turn)| is_mine(turn)) {
            if turn.version == current.version {
                return self.apply(context, current, &Key::Current);
            }
            return Step::Write(Txn {
                compares: vec![context.same(key)],
                writes: vec![context.delete(key)],
            });
        }
        if let Some(txn) = self.stop_for_absent(context, &holders) {
            return Step::Write(txn);
        }
        let has_turn = |(key, _): &(Key, Turn)| *key == Key::Turn;
        let key = if may_join(context, current) {
            Key::Applying(context.me.to_owned())
        } else if holders.iter().any(has_turn) {
            return Step::Nothing;
        } else {
            Key::Turn
        };
        let turn = Turn {
            member: context.me.to_owned(),
            instance: context.instance,
            version: current.version,
        };
        Step::Write(Txn {
            compares: vec![
                context.same(&key),
                context.same(&Key::Current),
                context.same(&Key::Stopped),
            ],
            writes: vec![context.put(&key, &turn)],
        })
    }

    /// Stops the rollout if a director has ended that applied the configuration.
    fn stop_for_absent(&mut self, context: &Context<'_>, holders: &[(Key, Turn)]) -> Option<Txn> {
        let members = context.members();
        let is_there = |turn: &Turn| {
            let holder = members.iter().find(|(name, _)| *name == turn.member);
            holder.is_some_and(|(_, member)| member.instance == turn.instance)
        };
        let absent: Vec<_> = holders.iter().filter(|(_, it)| !is_there(it)).collect();
        self.absent
            .retain(|name, _| absent.iter().any(|(_, turn)| turn.member == *name));
        for (key, turn) in absent {
            let since = self.absent.entry(turn.member.clone());
            let since = *since.or_insert(context.now);
            // A new process of the holder reports it at once; an absent one may only have lost its lease.
            if turn.member != context.me
                && (context.now < since + context.ttl || context.synced_for < context.ttl)
            {
                continue;
            }
            let stopped = Stopped {
                version: turn.version,
                member: turn.member.clone(),
                reason: "the director ended while it applied the configuration".to_owned(),
            };
            return Some(Txn {
                compares: vec![context.same(key)],
                writes: vec![context.delete(key), context.put(&Key::Stopped, &stopped)],
            });
        }
        None
    }

    fn has_failed(&self, pointer: &Pointer) -> bool {
        let failed = self.failed.as_ref();
        failed.is_some_and(|it| {
            (it.version, &it.digest, &it.mac) == (pointer.version, &pointer.digest, &pointer.mac)
        })
    }

    /// `of` is the key of the pointer.
    fn apply(&mut self, context: &Context<'_>, pointer: &Pointer, of: &Key) -> Step {
        // A transaction may have reported the pointer before the watch reports the chunks, which were written earlier.
        let is_reported =
            context.mirror.revision >= context.mirror.revision_of(&context.keys.name(of));
        let is_known = |digest: &String| {
            let name = context.keys.name(&Key::Chunk(digest.clone()));
            context.mirror.get(&name).is_some()
        };
        let waits = !is_reported && !pointer.chunks.iter().all(is_known);
        if waits || self.has_failed(pointer) {
            return Step::Nothing;
        }
        let mut wanted = Applied {
            version: pointer.version,
            digest: pointer.digest.clone(),
            text: String::new(),
            guard_ms: pointer.guard_ms,
            mac: pointer.mac.clone(),
        };
        match chunk::join(pointer, context.keys, context.mirror, context.key) {
            Ok(text) => {
                wanted.text = text;
                self.applying = Some(wanted.clone());
                Step::Apply(wanted)
            }
            Err(reason) => {
                self.applying = Some(wanted);
                self.finish(Err(reason));
                match self.record_outcome(context) {
                    Some(txn) => Step::Write(txn),
                    None => Step::Nothing,
                }
            }
        }
    }

    /// This director has the configuration: ends the rollout if all have, and removes unused chunks.
    fn complete(&mut self, context: &Context<'_>, current: &Pointer) -> Step {
        let holders = context.holders();
        // Also of a former process, which had recorded its success.
        if let Some((key, _)) = holders.iter().find(|(_, turn)| turn.member == context.me) {
            return Step::Write(Txn {
                compares: vec![context.same(key)],
                writes: vec![context.delete(key)],
            });
        }
        if let Some(txn) = self.stop_for_absent(context, &holders) {
            return Step::Write(txn);
        }
        if !holders.is_empty() {
            return Step::Nothing;
        }
        let members = context.members();
        let has = |(_, member): &(String, MemberRecord)| {
            (member.version, &member.digest) == (current.version, &current.digest)
        };
        let is_mine = members.iter().any(|it| it.0 == context.me && has(it));
        let complete = context.pointer(&Key::Complete);
        let is_complete = complete.as_ref() == Some(current);
        if is_mine
            && !is_complete
            && members.iter().all(has)
            && context.synced_for >= context.ttl / 4
        {
            return Step::Write(Txn {
                compares: vec![context.same(&Key::Current), context.same(&Key::Complete)],
                writes: vec![context.put(&Key::Complete, current)],
            });
        }
        // One member is enough to remove chunks.
        let is_first = members.first().is_some_and(|(name, _)| name == context.me);
        if is_first && is_complete {
            return self.remove_chunks(context, current);
        }
        Step::Nothing
    }

    fn remove_chunks(&mut self, context: &Context<'_>, current: &Pointer) -> Step {
        let used: BTreeSet<&String> = current.chunks.iter().collect();
        let unused = context.mirror.iter().filter_map(|(name, _)| {
            let parsed = context.keys.parse(name);
            let is_unused = matches!(&parsed, Some(Key::Chunk(it)) if !used.contains(it));
            is_unused.then(|| Write::Delete(name.to_owned()))
        });
        let writes: Vec<Write> = unused.take(DELETIONS_MAX).collect();
        let revision = context
            .mirror
            .revision_of(&context.keys.name(&Key::Current));
        if writes.is_empty() {
            self.garbage = None;
            return Step::Nothing;
        }
        match self.garbage {
            Some((since, at)) if at == revision && context.now >= since + GARBAGE_AGE => {
                Step::Write(Txn {
                    compares: vec![context.same(&Key::Current)],
                    writes,
                })
            }
            Some((_, at)) if at == revision => Step::Nothing,
            _ => {
                self.garbage = Some((context.now, revision));
                Step::Nothing
            }
        }
    }

    /// Writes the applied configuration to an etcd that does not have it. Waits until the other members are there:
    /// one of them may have a newer one.
    fn restore(&mut self, context: &Context<'_>) -> Step {
        if self.applied.version == 0 || context.synced_for < context.ttl {
            return Step::Nothing;
        }
        if context
            .newest_of_members()
            .is_some_and(|newest| newest > self.applied.version)
        {
            return Step::Nothing;
        }
        self.rewrite(context, true)
    }

    /// Writes the applied configuration, with its version.
    fn rewrite(&mut self, context: &Context<'_>, completes: bool) -> Step {
        let Applied {
            version,
            text,
            guard_ms,
            ..
        } = self.applied.clone();
        if let Ok(publication) = publication(context, None, &text, version, guard_ms) {
            self.publication = Some(Publication {
                completes,
                ..publication
            });
        }
        match self.next_of_publication(context) {
            Some(txn) => Step::Write(txn),
            None => Step::Nothing,
        }
    }

    /// Chunks first, then the pointer.
    fn next_of_publication(&self, context: &Context<'_>) -> Option<Txn> {
        let publication = self.publication.as_ref()?;
        let key = |digest: &str| Key::Chunk(digest.to_owned());
        let mut chunks = publication.chunks.iter();
        let is_missing = |(digest, _): &&(String, Vec<u8>)| {
            context
                .mirror
                .get(&context.keys.name(&key(digest)))
                .is_none()
        };
        if let Some((digest, bytes)) = chunks.find(is_missing) {
            return Some(Txn {
                compares: Vec::new(),
                writes: vec![Write::Put(Put {
                    key: context.keys.name(&key(digest)),
                    value: bytes.clone(),
                    leased: false,
                })],
            });
        }
        let current = context.keys.name(&Key::Current);
        let mut compares = vec![
            Compare::Revision(current, publication.base),
            context.same(&Key::Turn),
        ];
        let chunks = publication.chunks.iter();
        compares.extend(chunks.map(|(digest, _)| Compare::Exists(context.keys.name(&key(digest)))));
        let mut writes = vec![
            context.put(&Key::Current, &publication.pointer),
            context.delete(&Key::Stopped),
        ];
        if publication.completes {
            writes.push(context.put(&Key::Complete, &publication.pointer));
        }
        Some(Txn { compares, writes })
    }

    /// The result of a transaction of [`Rollout::next`]. Returns the end of a publication that was requested.
    pub(crate) fn wrote(
        &mut self,
        context: &Context<'_>,
        txn: &Txn,
        is_done: bool,
    ) -> Option<(u64, Result<u64, String>)> {
        let writes = |key: &Key| {
            let name = context.keys.name(key);
            txn.writes.iter().any(|write| match write {
                Write::Put(put) => put.key == name,
                Write::Delete(deleted) => *deleted == name,
            })
        };
        let own = Key::Applying(context.me.to_owned());
        if is_done && (writes(&Key::Turn) || writes(&own)) {
            self.outcome = None;
        }
        let publication = self.publication.as_ref()?;
        if !writes(&Key::Current) {
            return None;
        }
        let name = context.keys.name(&Key::Current);
        if !is_done && context.mirror.revision_of(&name) == publication.base {
            let turn: Option<Turn> = context.mirror.read(&context.keys.name(&Key::Turn));
            // Without a turn, a chunk was removed meanwhile.
            turn.as_ref()?;
        }
        let publication = self.publication.take()?;
        let request = publication.request?;
        Some(match is_done {
            true => (request, Ok(publication.pointer.version)),
            false => {
                let why = "another configuration was published meanwhile".to_owned();
                (request, Err(why))
            }
        })
    }

    /// The keys were read again. Returns the end of a publication that was requested: it was executed and the answer
    /// was lost, or another one was executed meanwhile. A restoration is decided again.
    pub(crate) fn resume(&mut self, context: &Context<'_>) -> Option<(u64, Result<u64, String>)> {
        let publication = self.publication.as_mut()?;
        let Some(request) = publication.request else {
            self.publication = None;
            return None;
        };
        let current = context.pointer(&Key::Current);
        let result = match current {
            Some(current) if current == publication.pointer => Ok(current.version),
            Some(_) => {
                let name = context.keys.name(&Key::Current);
                if context.mirror.revision_of(&name) == publication.base {
                    return None;
                }
                Err("another configuration was published meanwhile".to_owned())
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

    /// The end of a requested publication whose deadline has passed. A restoration is decided again.
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
        let why = format!(
            "not published within {} s: {reason}; `weir cluster status` shows whether it was published",
            PUBLISH_PATIENCE.as_secs()
        );
        Some((request, Err(why)))
    }
}

/// Whether this director may apply the configuration together with others: it has no guard, and one director has it.
fn may_join(context: &Context<'_>, current: &Pointer) -> bool {
    let has = |(_, member): &(String, MemberRecord)| {
        (member.version, &member.digest) == (current.version, &current.digest)
    };
    context.applies_with_others && current.guard_ms == 0 && context.members().iter().any(has)
}

fn publication(
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
        digest: chunk::of_text(text, context.key),
        bytes: text.len() as u64,
        chunks: chunks.iter().map(|(digest, _)| digest.clone()).collect(),
        sealed: context.key.is_some(),
        by: context.me.to_owned(),
        guard_ms,
        mac: String::new(),
    };
    Ok(Publication {
        request,
        completes: false,
        pointer: pointer.sign(context.keys, context.key),
        chunks,
        base,
        deadline: context.now + PUBLISH_PATIENCE,
    })
}
