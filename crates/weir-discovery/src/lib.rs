//! Obtains pool servers from sources other than the configuration: `servers_file`, `servers_dns`, and the API.
//!
//! The active configuration is the configuration file plus these servers. A list is rejected if it is missing, is
//! invalid or has lost more than half of its servers at once. In this case the last good list stays in use, even across
//! restarts, and the status reports the problem. A reload of the configuration accepts a shorter list. If a reload
//! changes the file or the DNS names of a pool, the previous servers stay in use until the new source provides servers.

mod api;
mod dns;
mod list;
mod persisted;
mod resolve;
mod response;
#[cfg(test)]
mod tests;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_config::{MAX_FILE_BYTES, Member};
use weir_model::{Desired, Family, Pool, Server};
use weir_sys::privileged;
use weir_sys::replace_file;
use weir_sys::untrusted_file::Owner;

use crate::dns::{Names, ServerList};
use crate::list::{Key, List};
use crate::watch::Watch;

pub use crate::list::ListSource;

/// Parses a message from a resolver, for weir-fuzz.
#[doc(hidden)]
pub fn parse_dns_response(message: &[u8]) {
    response::parse_as_each_type(message);
}

/// Name of the file in the runtime directory that stores the last good lists.
const FILE: &str = "members.json";
/// Name of the file that stores the origins of these lists. Earlier versions reject additional values in [`FILE`].
const ORIGINS_FILE: &str = "members-origins.json";

/// The status of a pool's server list.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The pool.
    pub pool: String,
    /// The kind of source.
    pub kind: ListSource,
    /// The file, the DNS names and record types, or the API.
    pub from: String,
    /// Number of servers in the list.
    pub servers: usize,
    /// Why the current content of the source was rejected.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

/// The server lists of the pools in a configuration.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    by_source: BTreeMap<Key, List>,
}

/// The active lists, and the watches on their sources.
#[derive(Debug)]
pub struct Membership {
    lists: Lists,
    file: PathBuf,
    watch: Watch,
    names: Names,
}

impl Lists {
    /// Reads the server lists of the pools in a configuration. `force` accepts lists that have lost more than half of
    /// their servers. The first list from a source that replaces another may have any number of servers except zero,
    /// because an empty file may be incomplete.
    fn read(&self, configured: &Desired, names: &Names, force: bool) -> Self {
        let mut lists = BTreeMap::new();
        for pool in &configured.pools {
            let mut update = |source, new: Option<ServerList>, problem: Option<String>| {
                let key = (pool.name.clone(), source);
                let previous = self.by_source.get(&key).cloned().unwrap_or_default();
                let origin = origin(pool, source);
                let mut list = match new {
                    Some(new) => validate_update(configured, pool, (&origin, new), previous, force),
                    None if previous.is_superseded_by(&origin) => List {
                        problem: Some("no response yet".to_owned()),
                        ..previous
                    },
                    None => previous,
                };
                list.problem = list.problem.or(problem);
                if list.is_superseded_by(&origin)
                    && let Some(problem) = &mut list.problem
                {
                    *problem += &format!(" (the servers are from {})", list.origin);
                }
                lists.insert(key, list);
            };
            if let Some(file) = &pool.servers_file {
                let text =
                    privileged::read_untrusted(Path::new(file), Owner::Expected, MAX_FILE_BYTES);
                update(ListSource::File, Some(text), None);
            }
            if !pool.servers_dns.is_empty() {
                let key = (pool.name.clone(), ListSource::Dns);
                let previous = self.by_source.get(&key);
                let is_partial_accepted = previous.is_none_or(|list| list.members.is_empty());
                let (list, problem) = names.list(&pool.servers_dns, is_partial_accepted).unzip();
                update(ListSource::Dns, list, problem.flatten());
            }
            let added = self.by_source.get(&(pool.name.clone(), ListSource::Api));
            if let Some(added) = added.filter(|list| !list.members.is_empty()) {
                update(ListSource::Api, Some(Ok(added.text.clone())), None);
            }
        }
        Self { by_source: lists }
    }

    /// Returns the lists of a pool, in order of precedence.
    fn for_pool<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = (ListSource, &'a List)> {
        let sources = [ListSource::File, ListSource::Dns, ListSource::Api].into_iter();
        sources.filter_map(|source| Some((source, self.by_source.get(&(pool.to_owned(), source))?)))
    }

    /// Returns the configuration plus the servers of the lists. If a server occurs more than once, its entry in the
    /// configuration is used, or else its entry in the first list. A listed sorry server is not added, as in a
    /// configuration file.
    pub fn added_to(&self, configured: &Desired) -> Desired {
        let mut desired = configured.clone();
        for pool in &mut desired.pools {
            let key = |server: &Server| (server.address, server.port);
            let configured_servers = pool.servers.iter().chain(&pool.sorry);
            let mut listed_keys: BTreeSet<_> = configured_servers.map(key).collect();
            for (_, list) in self.for_pool(&pool.name) {
                let added_members = list.members.iter();
                let added_members =
                    added_members.filter(|member| listed_keys.insert(key(&member.server)));
                let added_members = added_members.map(|member| with_checks(configured, member));
                pool.servers.extend(added_members);
            }
        }
        desired
    }

    /// Returns the lists for a rollback from the configuration `replaced`, which uses `current_lists`, to `configured`,
    /// which used `self`. A source that both configurations use keeps its list from `current_lists`.
    pub fn rolled_back(
        &self,
        configured: &Desired,
        current_lists: &Self,
        replaced: &Desired,
    ) -> Self {
        let is_common = |(name, source): &Key| {
            let pools = (configured.pool(name), replaced.pool(name));
            let (Some(pool), Some(other)) = pools else {
                return false;
            };
            match source {
                ListSource::File => pool.servers_file == other.servers_file,
                ListSource::Dns => pool.servers_dns == other.servers_dns,
                ListSource::Api => true,
            }
        };
        let restored = self.by_source.iter().filter(|(key, _)| !is_common(key));
        let common = current_lists
            .by_source
            .iter()
            .filter(|(key, _)| is_common(key));
        Self {
            by_source: restored
                .chain(common)
                .map(|(key, list)| (key.clone(), list.clone()))
                .collect(),
        }
    }

    /// Returns the origin of each list.
    fn origins(&self) -> Vec<(&String, ListSource, &String)> {
        let lists = self.by_source.iter();
        lists
            .map(|((pool, source), list)| (pool, *source, &list.origin))
            .collect()
    }

    /// Returns the content of each list, without the positions of entries.
    fn servers(&self) -> BTreeMap<&Key, Vec<Content<'_>>> {
        let lists = self.by_source.iter();
        let servers = lists.map(|(key, list)| (key, list.members.iter().map(content_of).collect()));
        servers.collect()
    }
}

/// A list entry without its position in the list, which does not affect the pool.
type Content<'a> = (&'a Server, Option<&'a [String]>);

fn content_of(member: &Member) -> Content<'_> {
    (&member.server, member.checks.as_deref())
}

/// Returns a server with the checks in its list entry. If one of these checks is no longer configured, the server uses
/// the pool's checks instead.
fn with_checks(configured: &Desired, member: &Member) -> Server {
    let checks = member.checks.as_ref().and_then(|names| {
        let checks = names.iter().map(|name| configured.check(name).cloned());
        checks.collect()
    });
    Server {
        checks,
        ..member.server.clone()
    }
}

/// Returns the new list, which is from `origin`, or the previous list with the reason why the new list was rejected.
fn validate_update(
    configured: &Desired,
    pool: &Pool,
    (origin, new): (&str, ServerList),
    previous: List,
    force: bool,
) -> List {
    let list = new.and_then(|text| {
        let members = weir_config::members(&text).map_err(|error| error.to_string())?;
        check_members(configured, pool, &members)?;
        let previous_count = previous.members.len();
        let has_shrunk = match previous.is_superseded_by(origin) {
            true => members.is_empty(),
            false => members.len() * 2 < previous_count,
        };
        if !force && has_shrunk {
            let count = members.len();
            return Err(format!(
                "the list shrank from {previous_count} to {count} servers at once; `weir reload` accepts it"
            ));
        }
        Ok(List {
            text,
            members,
            origin: origin.to_owned(),
            problem: None,
        })
    });
    list.unwrap_or_else(|problem| List {
        problem: Some(problem),
        ..previous
    })
}

/// Checks that the servers can be in a pool. The error contains a position in the list, but does not quote the
/// list.
fn check_members(configured: &Desired, pool: &Pool, members: &[Member]) -> Result<(), String> {
    for member in members {
        find_incompatibility(configured, pool, member).map_or(Ok(()), |reason| {
            let (line, column) = (member.at.line, member.at.column);
            Err(format!("line {line}, column {column}: {reason}"))
        })?;
    }
    Ok(())
}

/// Returns the reason if a server cannot be in a pool: a check is not configured, the group is not allowed to
/// publish the address, or a layer 4 service cannot use the address family.
fn find_incompatibility(configured: &Desired, pool: &Pool, member: &Member) -> Option<String> {
    let server = &member.server;
    let names = member.checks.iter().flatten();
    if names
        .into_iter()
        .any(|name| configured.check(name).is_none())
    {
        return Some("`check` does not name a [check.NAME] in the configuration".to_owned());
    }
    if let Some(reason) = configured.unpublishable_reason(pool, server.address) {
        return Some(reason);
    }
    let mut services = configured.services.iter().filter(|s| s.pool == pool.name);
    services.find_map(|service| {
        let forward = service.forward;
        let family = Family::of(server.address);
        let has_other_family = |listener: &weir_model::Listener| listener.family() != family;
        let is_compatible =
            !forward.needs_same_family() || !service.listen.iter().any(has_other_family);
        (!is_compatible).then(|| {
            let name = &service.name;
            format!(
                "service {name} (`{forward}`) cannot forward to a server of this address family"
            )
        })
    })
}

impl Membership {
    /// Creates the state from the lists persisted in a runtime directory.
    pub fn new(runtime_dir: &Path) -> Self {
        let file = runtime_dir.join(FILE);
        let by_source = persisted::read(&file, &runtime_dir.join(ORIGINS_FILE));
        let watch = Watch::new();
        let names = Names::new(watch.notify());
        Self {
            lists: Lists { by_source },
            file,
            watch,
            names,
        }
    }

    /// Starts resolving the new names of a configuration, and waits for their first responses for at most 3 seconds.
    pub async fn resolve_new(&mut self, configured: &Desired) {
        let names = configured.pools.iter();
        let names = names.flat_map(|pool| &pool.servers_dns);
        self.names.resolve_new(names).await;
    }

    /// Reads the lists of a configuration for a reload. Accepts lists that have lost more than half of their servers.
    pub fn read_for_reload(&self, configured: &Desired) -> Lists {
        self.lists.read(configured, &self.names, true)
    }

    /// Reads the lists of a configuration when the daemon starts. Rejects lists that have lost more than half of their
    /// servers.
    pub fn read_for_start(&self, configured: &Desired) -> Lists {
        self.lists.read(configured, &self.names, false)
    }

    /// Returns the active lists.
    pub fn lists(&self) -> Lists {
        self.lists.clone()
    }

    /// Reads the lists again. Returns the lists if their servers have changed. If not, logs each list that is now
    /// rejected for a new reason.
    pub fn read_changes(&mut self, configured: &Desired) -> Option<Lists> {
        let lists = self.lists.read(configured, &self.names, false);
        if lists.servers() == self.lists.servers() {
            // Only the problems or the origins may have changed.
            log_new_problems(&self.lists, &lists);
            let must_persist = lists.origins() != self.lists.origins();
            self.lists = lists;
            if must_persist {
                self.persist();
            }
            return None;
        }
        Some(lists)
    }

    /// Activates these lists and persists them. Logs each list that is now rejected for a new reason.
    pub fn commit(&mut self, configured: &Desired, lists: Lists) {
        log_new_problems(&self.lists, &lists);
        self.lists = lists;
        let files = configured.pools.iter();
        let files = files.filter_map(|pool| pool.servers_file.as_ref().map(PathBuf::from));
        self.watch.set_files(files.collect());
        self.names.retain(|name| {
            let mut pools = configured.pools.iter();
            pools.any(|pool| pool.servers_dns.contains(name))
        });
        self.persist();
    }

    /// Writes the lists to the runtime directory.
    fn persist(&self) {
        let lists = self.lists.by_source.iter();
        let texts: Vec<(&String, ListSource, &String)> = lists
            .map(|((pool, source), list)| (pool, *source, &list.text))
            .collect();
        if texts.is_empty() && !self.file.exists() {
            return;
        }
        let write = |path: &Path, values: &[(&String, ListSource, &String)]| {
            let text = serde_json::to_vec(values).map_err(std::io::Error::from);
            text.and_then(|text| replace_file(path, &text))
        };
        let origins_file = self.file.with_file_name(ORIGINS_FILE);
        let result = write(&origins_file, &self.lists.origins());
        if let Err(error) = result.and_then(|()| write(&self.file, &texts)) {
            tracing::warn!(%error, "failed to persist the server lists");
        }
    }

    /// Records why these lists could not be applied, for each source whose new list differs from the active list.
    pub fn reject(&mut self, lists: &Lists, problem: &str) {
        for (key, list) in &mut self.lists.by_source {
            let rejected = lists.by_source.get(key);
            let is_active = |new: &List| {
                new.members
                    .iter()
                    .map(content_of)
                    .eq(list.members.iter().map(content_of))
            };
            if !rejected.is_some_and(is_active) {
                list.problem = Some(problem.to_owned());
            }
        }
    }

    /// Waits until a list may have changed. The future is cancel-safe.
    pub async fn changed(&self) {
        self.watch.changed().await;
    }

    /// Updates the set of watched directories. Must be called once per second. Returns whether the set has changed.
    pub fn check_directories(&mut self) -> bool {
        self.watch.check_directories()
    }

    /// Returns the status of each list of a configuration.
    pub fn sources(&self, configured: &Desired) -> Vec<Source> {
        let sources = |pool: &'_ Pool| {
            let source = |(source, list): (ListSource, &List)| Source {
                pool: pool.name.clone(),
                kind: source,
                from: origin(pool, source),
                servers: list.members.len(),
                problem: list.problem.clone(),
            };
            self.lists
                .for_pool(&pool.name)
                .map(source)
                .collect::<Vec<_>>()
        };
        configured.pools.iter().flat_map(sources).collect()
    }
}

/// Logs each list that is now rejected, and was not rejected before for the same reason.
fn log_new_problems(previous: &Lists, lists: &Lists) {
    for (key, list) in &lists.by_source {
        let previous = previous.by_source.get(key);
        let previous_problem = previous.and_then(|previous| previous.problem.as_ref());
        let is_new = |problem: &&String| Some(*problem) != previous_problem;
        let Some(problem) = list.problem.as_ref().filter(is_new) else {
            continue;
        };
        let (pool, source) = (&key.0, key.1.as_str());
        if list.members.is_empty() {
            tracing::warn!(
                pool,
                source,
                problem,
                "rejected a server list; it adds no servers"
            );
        } else {
            tracing::warn!(
                pool,
                source,
                problem,
                "rejected a server list; the last good list is kept"
            );
        }
    }
}

/// Returns the origin of a list: the file, the DNS names and record types, or the API.
fn origin(pool: &Pool, source: ListSource) -> String {
    match (source, &pool.servers_file) {
        (ListSource::File, Some(file)) => file.clone(),
        (ListSource::Dns, _) => describe_names(&pool.servers_dns),
        (ListSource::File | ListSource::Api, _) => "the API".to_owned(),
    }
}

/// Describes names and record types for the status.
fn describe_names(names: &[weir_model::ServersDns]) -> String {
    let describe = |dns: &weir_model::ServersDns| format!("{} {}", dns.name, dns.record.as_str());
    names.iter().map(describe).collect::<Vec<_>>().join(", ")
}
