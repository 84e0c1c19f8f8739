//! Servers of pools from other sources than the configuration: `servers_file`, `servers_dns`, and the API.
//!
//! The active configuration is the file's with these servers added. A list that cannot be read, was removed, or has
//! lost more than half of its servers at once is rejected: the last good one is kept, over restarts too, and the status
//! reports it. A reload of the configuration accepts a list that has become short.

mod added;
mod answer;
mod dns;
mod persisted;
mod resolve;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_config::{MAX_FILE_BYTES, Member};
use weir_model::{Desired, Family, Pool, Server};
use weir_sys::replace_file;
use weir_sys::untrusted_file::{self, Owner};

use crate::dns::{Answer, Names};
use crate::watch::Watch;

/// Reads a resolver's message, for weir-fuzz.
#[doc(hidden)]
pub fn read_answer(message: &[u8]) {
    answer::replay(message);
}

/// File of the last good lists in the runtime directory.
const FILE: &str = "members.json";

/// The source of a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum ListSource {
    /// A file that another program writes.
    File,
    /// The domain name system.
    Dns,
    /// The API.
    Api,
}

impl ListSource {
    /// For logs.
    pub(crate) const fn as_str(self) -> &'static str {
        match self {
            Self::File => "servers_file",
            Self::Dns => "servers_dns",
            Self::Api => "API",
        }
    }
}

/// A pool's list as the status shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The pool.
    pub pool: String,
    /// Its kind.
    pub kind: ListSource,
    /// The file, the name with its records, or the API.
    pub from: String,
    /// Number of servers in it.
    pub servers: usize,
    /// Why its present content is rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct List {
    text: String,
    members: Vec<Member>,
    problem: Option<String>,
}

/// The lists of a configuration's pools.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    by_source: BTreeMap<Key, List>,
}

/// A pool and a source; sources are ordered: file, DNS, API.
type Key = (String, ListSource);

/// See the module.
#[derive(Debug)]
pub struct Membership {
    lists: Lists,
    file: PathBuf,
    watch: Watch,
    names: Names,
}

impl Lists {
    /// Reads the lists of a configuration's pools. `force`: lists that have become short are accepted.
    fn read(&self, configured: &Desired, names: &Names, force: bool) -> Self {
        let mut read = BTreeMap::new();
        for pool in &configured.pools {
            let mut update = |source, new: Option<Answer>| {
                let key = (pool.name.clone(), source);
                let former = self.by_source.get(&key).cloned().unwrap_or_default();
                let list = match new {
                    Some(new) => validate_update(configured, pool, new, former, force),
                    None => former,
                };
                read.insert(key, list);
            };
            if let Some(file) = &pool.servers_file {
                let text = untrusted_file::read(Path::new(file), Owner::Expected, MAX_FILE_BYTES);
                update(ListSource::File, Some(text));
            }
            if let Some(name) = &pool.servers_dns {
                update(ListSource::Dns, names.answer(name));
            }
            let added = self.by_source.get(&(pool.name.clone(), ListSource::Api));
            if let Some(added) = added.filter(|list| !list.members.is_empty()) {
                update(ListSource::Api, Some(Ok(added.text.clone())));
            }
        }
        Self { by_source: read }
    }

    fn of<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = (ListSource, &'a List)> {
        let sources = [ListSource::File, ListSource::Dns, ListSource::Api].into_iter();
        sources.filter_map(|source| Some((source, self.by_source.get(&(pool.to_owned(), source))?)))
    }

    /// The configuration with the lists' servers. A server of the configuration itself is kept as it is there; a server
    /// of several lists is as in the first.
    pub fn added_to(&self, configured: &Desired) -> Desired {
        let mut desired = configured.clone();
        for pool in &mut desired.pools {
            let key = |server: &Server| (server.address, server.port);
            let mut known: BTreeSet<_> = pool.servers.iter().map(key).collect();
            for (_, list) in self.of(&pool.name) {
                let news = list.members.iter();
                let news = news.filter(|member| known.insert(key(&member.server)));
                let news = news.map(|member| checked(configured, member));
                pool.servers.extend(news);
            }
        }
        desired
    }

    /// These lists, for a rollback to `configured` from `between`, whose lists are `now`: of a source that both have,
    /// the latest list is kept.
    pub fn rolled_back(&self, configured: &Desired, now: &Self, between: &Desired) -> Self {
        let same = |(name, source): &Key| {
            let pools = (configured.pool(name), between.pool(name));
            let (Some(pool), Some(other)) = pools else {
                return false;
            };
            match source {
                ListSource::File => pool.servers_file == other.servers_file,
                ListSource::Dns => pool.servers_dns == other.servers_dns,
                ListSource::Api => true,
            }
        };
        let former = self.by_source.iter().filter(|(key, _)| !same(key));
        let latest = now.by_source.iter().filter(|(key, _)| same(key));
        let both = former.chain(latest);
        Self {
            by_source: both
                .map(|(key, list)| (key.clone(), list.clone()))
                .collect(),
        }
    }

    /// The effective content of each list.
    fn servers(&self) -> BTreeMap<&Key, Vec<Content<'_>>> {
        let lists = self.by_source.iter();
        let servers = lists.map(|(key, list)| (key, list.members.iter().map(content).collect()));
        servers.collect()
    }
}

/// A member without its position in the list, which has no effect.
type Content<'a> = (&'a Server, Option<&'a [String]>);

fn content(member: &Member) -> Content<'_> {
    (&member.server, member.checks.as_deref())
}

/// A server with the checks that its list names. If the configuration no longer has one of them, the server gets the
/// pool's checks, so that it is never unchecked.
fn checked(configured: &Desired, member: &Member) -> Server {
    let named = member.checks.as_ref().and_then(|names| {
        let checks = names.iter().map(|name| configured.check(name).cloned());
        checks.collect()
    });
    Server {
        checks: named,
        ..member.server.clone()
    }
}

/// The new list, or the previous one annotated with the reason why the new one was rejected.
fn validate_update(
    configured: &Desired,
    pool: &Pool,
    new: Answer,
    former: List,
    force: bool,
) -> List {
    let list = new.and_then(|text| {
        let members = weir_config::members(&text).map_err(|error| error.to_string())?;
        fits(configured, pool, &members)?;
        let before = former.members.len();
        if !force && members.len() * 2 < before {
            let now = members.len();
            return Err(format!(
                "it shrank from {before} servers to {now} at once; `weir reload` accepts it"
            ));
        }
        Ok(List {
            text,
            members,
            problem: None,
        })
    });
    list.unwrap_or_else(|problem| List {
        problem: Some(problem),
        ..former
    })
}

/// Checks that layer 4 services can use these servers, and that their checks exist. The error names a position in the
/// list, but none of its content.
fn fits(configured: &Desired, pool: &Pool, members: &[Member]) -> Result<(), String> {
    for member in members {
        misfit(configured, pool, member).map_or(Ok(()), |reason| {
            let (line, column) = (member.at.line, member.at.column);
            Err(format!("line {line}, column {column}: {reason}"))
        })?;
    }
    Ok(())
}

/// The reason why a server cannot be in a pool.
fn misfit(configured: &Desired, pool: &Pool, member: &Member) -> Option<String> {
    let server = &member.server;
    let names = member.checks.iter().flatten();
    if names
        .into_iter()
        .any(|name| configured.check(name).is_none())
    {
        return Some("`check` names no [check.NAME] of the configuration".to_owned());
    }
    let mut services = configured.services.iter().filter(|s| s.pool == pool.name);
    services.find_map(|service| {
        let forward = service.forward;
        let family = Family::of(server.address);
        let other = |listener: &weir_model::Listener| listener.family() != family;
        let fits = !forward.needs_same_family() || !service.listen.iter().any(other);
        (!fits).then(|| {
            let name = &service.name;
            format!(
                "`{forward}` of service {name} cannot forward to a server of this address family"
            )
        })
    })
}

impl Membership {
    /// With the lists persisted in a runtime directory.
    pub fn new(runtime_dir: &Path) -> Self {
        let file = runtime_dir.join(FILE);
        let by_source = persisted::read(&file);
        let watch = Watch::new();
        let names = Names::new(watch.notify());
        Self {
            lists: Lists { by_source },
            file,
            watch,
            names,
        }
    }

    /// Starts to resolve names of a configuration that are new, and waits a few seconds at most for the first answers.
    pub async fn resolve_new(&mut self, configured: &Desired) {
        let names = configured.pools.iter();
        let names = names.filter_map(|pool| pool.servers_dns.as_ref());
        self.names.resolve_new(names).await;
    }

    /// The lists that a configuration would have after a reload; lists that have become short are accepted.
    pub fn lists_of(&self, configured: &Desired) -> Lists {
        self.lists.read(configured, &self.names, true)
    }

    /// The lists at the start of the daemon; lists that have become short are rejected.
    pub fn first_lists(&self, configured: &Desired) -> Lists {
        self.lists.read(configured, &self.names, false)
    }

    /// The active lists.
    pub fn lists(&self) -> Lists {
        self.lists.clone()
    }

    /// The present lists, if they change `configured`.
    pub fn news(&mut self, configured: &Desired) -> Option<Lists> {
        let now = self.lists.read(configured, &self.names, false);
        for (key, list) in &now.by_source {
            let former = self.lists.by_source.get(key);
            let (pool, source) = key;
            let known = former.and_then(|former| former.problem.as_ref());
            if let Some(problem) = list.problem.as_ref().filter(|it| Some(*it) != known) {
                tracing::warn!(
                    pool,
                    source = source.as_str(),
                    problem,
                    "rejected a list of servers; the last good one is kept"
                );
            }
        }
        let changed = now.servers() != self.lists.servers();
        if !changed {
            // Only problems have changed.
            self.lists = now;
            return None;
        }
        Some(now)
    }

    /// Makes these lists active and persists them.
    pub fn commit(&mut self, configured: &Desired, lists: Lists) {
        self.lists = lists;
        let files = configured.pools.iter();
        let files = files.filter_map(|pool| pool.servers_file.as_ref().map(PathBuf::from));
        self.watch.follow(files.collect());
        self.names.retain(|name| {
            let mut pools = configured.pools.iter();
            pools.any(|pool| pool.servers_dns.as_ref() == Some(name))
        });
        let lists = self.lists.by_source.iter();
        let texts: Vec<(&String, ListSource, &String)> = lists
            .map(|((pool, source), list)| (pool, *source, &list.text))
            .collect();
        if texts.is_empty() && !self.file.exists() {
            return;
        }
        let written = serde_json::to_vec(&texts).map_err(std::io::Error::from);
        let written = written.and_then(|text| replace_file(&self.file, &text));
        if let Err(error) = written {
            tracing::warn!(%error, "could not persist the lists of servers");
        }
    }

    /// Records why these lists could not be applied; the previous ones are kept.
    pub fn reject(&mut self, lists: &Lists, problem: &str) {
        for (key, list) in &mut self.lists.by_source {
            let other = lists.by_source.get(key);
            let same = |new: &List| {
                new.members
                    .iter()
                    .map(content)
                    .eq(list.members.iter().map(content))
            };
            if !other.is_some_and(same) {
                list.problem = Some(problem.to_owned());
            }
        }
    }

    /// Waits until a list may have changed. Dropping the future loses nothing.
    pub async fn changed(&self) {
        self.watch.changed().await;
    }

    /// To be called once a second: returns whether files may be in other directories than before.
    pub fn check_directories(&mut self) -> bool {
        self.watch.check_directories()
    }

    /// The lists, for the status.
    pub fn sources(&self, configured: &Desired) -> Vec<Source> {
        let of_pool = |pool: &'_ Pool| {
            let source = |(source, list): (ListSource, &List)| Source {
                pool: pool.name.clone(),
                kind: source,
                from: match (source, &pool.servers_file, &pool.servers_dns) {
                    (ListSource::File, Some(file), _) => file.clone(),
                    (ListSource::Dns, _, Some(dns)) => {
                        format!("{} {}", dns.name, dns.record.as_str())
                    }
                    _ => "the API".to_owned(),
                },
                servers: list.members.len(),
                problem: list.problem.clone(),
            };
            self.lists.of(&pool.name).map(source).collect::<Vec<_>>()
        };
        configured.pools.iter().flat_map(of_pool).collect()
    }
}
