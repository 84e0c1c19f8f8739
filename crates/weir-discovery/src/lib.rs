//! Pools whose servers others say: `servers_file`, `servers_dns`, and the API.
//!
//! What is in force is the configuration with these servers added. A list that cannot be read, is gone, or has lost
//! more than half of its servers at once is not believed: the last good one stays, over restarts too, and the status
//! says so. Whoever reloads the configuration vouches for a list that has become short.

mod added;
mod answer;
mod dns;
mod remembered;
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

/// The last good lists, in the runtime directory, as they were written.
const MEMORY: &str = "members.json";

/// Who gives a list.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "lowercase")]
pub enum Giver {
    /// Another program, by a file.
    File,
    /// The domain name system.
    Dns,
    /// Whoever uses the API.
    Api,
}

impl Giver {
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
    /// Who gives it.
    pub kind: Giver,
    /// The file, the name with its records, or the API.
    pub from: String,
    /// Servers that it gives.
    pub servers: usize,
    /// Why it is not believed as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct List {
    text: String,
    members: Vec<Member>,
    problem: Option<String>,
}

/// The lists of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    by_source: BTreeMap<Key, List>,
}

/// A pool and who gives it servers: the file before the name, the API last.
type Key = (String, Giver);

/// See the module.
#[derive(Debug)]
pub struct Membership {
    lists: Lists,
    memory: PathBuf,
    watch: Watch,
    names: Names,
}

impl Lists {
    /// Reads the lists of a configuration's pools. `vouched`: somebody asked for them as they are.
    fn read(&self, configured: &Desired, names: &Names, vouched: bool) -> Self {
        let mut read = BTreeMap::new();
        for pool in &configured.pools {
            let mut take = |giver, given: Option<Answer>| {
                let key = (pool.name.clone(), giver);
                let former = self.by_source.get(&key).cloned().unwrap_or_default();
                let list = match given {
                    Some(given) => judge(configured, pool, given, former, vouched),
                    None => former,
                };
                read.insert(key, list);
            };
            if let Some(file) = &pool.servers_file {
                let text = untrusted_file::read(Path::new(file), Owner::Expected, MAX_FILE_BYTES);
                take(Giver::File, Some(text));
            }
            if let Some(name) = &pool.servers_dns {
                take(Giver::Dns, names.answer(name));
            }
            let added = self.by_source.get(&(pool.name.clone(), Giver::Api));
            if let Some(added) = added.filter(|list| !list.members.is_empty()) {
                take(Giver::Api, Some(Ok(added.text.clone())));
            }
        }
        Self { by_source: read }
    }

    fn of<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = (Giver, &'a List)> {
        let givers = [Giver::File, Giver::Dns, Giver::Api].into_iter();
        givers.filter_map(|giver| Some((giver, self.by_source.get(&(pool.to_owned(), giver))?)))
    }

    /// The configuration with the lists' servers. One that the configuration lists itself is as it says there, and one
    /// of several lists as the first has it.
    pub fn added_to(&self, configured: &Desired) -> Desired {
        let mut desired = configured.clone();
        for pool in &mut desired.pools {
            let place = |server: &Server| (server.address, server.port);
            let mut places: BTreeSet<_> = pool.servers.iter().map(place).collect();
            for (_, list) in self.of(&pool.name) {
                let news = list.members.iter();
                let news = news.filter(|member| places.insert(place(&member.server)));
                let news = news.map(|member| checked(configured, member));
                pool.servers.extend(news);
            }
        }
        desired
    }

    /// These of `configured`, for its coming back after `between`, in which `now` was said: what others said of a list
    /// that both have is the latest.
    pub fn renewed(&self, configured: &Desired, now: &Self, between: &Desired) -> Self {
        let same = |(name, giver): &Key| {
            let pools = (configured.pool(name), between.pool(name));
            let (Some(pool), Some(other)) = pools else {
                return false;
            };
            match giver {
                Giver::File => pool.servers_file == other.servers_file,
                Giver::Dns => pool.servers_dns == other.servers_dns,
                Giver::Api => true,
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

    /// What a change of takes effect, for each list.
    fn servers(&self) -> BTreeMap<&Key, Vec<Essence<'_>>> {
        let lists = self.by_source.iter();
        let servers = lists.map(|(key, list)| (key, list.members.iter().map(essence).collect()));
        servers.collect()
    }
}

/// A member without its place in the list, which changes nothing about it.
type Essence<'a> = (&'a Server, Option<&'a [String]>);

fn essence(member: &Member) -> Essence<'_> {
    (&member.server, member.checks.as_deref())
}

/// A server with the checks that its list names. Where the configuration has lost one of them, the server has the
/// pool's: none would be a server that nothing watches.
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

/// The list that somebody gives, or the former one with what is wrong about this one.
fn judge(configured: &Desired, pool: &Pool, given: Answer, former: List, vouched: bool) -> List {
    let judged = given.and_then(|text| {
        let members = weir_config::members(&text).map_err(|error| error.to_string())?;
        fits(configured, pool, &members)?;
        let before = former.members.len();
        if !vouched && members.len() * 2 < before {
            let now = members.len();
            return Err(format!(
                "it shrank from {before} servers to {now} at once; `weir reload` takes it as it is"
            ));
        }
        Ok(List {
            text,
            members,
            problem: None,
        })
    });
    judged.unwrap_or_else(|problem| List {
        problem: Some(problem),
        ..former
    })
}

/// Whether services of layer 4 can send their clients to these servers, and their checks are there. The reason names a
/// place in the list, and nothing that is written there.
fn fits(configured: &Desired, pool: &Pool, members: &[Member]) -> Result<(), String> {
    for member in members {
        misfit(configured, pool, member).map_or(Ok(()), |reason| {
            let (line, column) = (member.at.line, member.at.column);
            Err(format!("line {line}, column {column}: {reason}"))
        })?;
    }
    Ok(())
}

/// Why a server cannot be in a pool.
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
            format!("`{forward}` of service {name} cannot take its clients to a server of this address family")
        })
    })
}

impl Membership {
    /// With what was remembered in a runtime directory.
    pub fn new(runtime_dir: &Path) -> Self {
        let memory = runtime_dir.join(MEMORY);
        let by_source = remembered::read(&memory);
        let watch = Watch::new();
        let names = Names::new(watch.notify());
        Self {
            lists: Lists { by_source },
            memory,
            watch,
            names,
        }
    }

    /// Asks for what a configuration names and nobody asked for yet, and waits for the answers, a few seconds at most.
    pub async fn ask(&mut self, configured: &Desired) {
        let names = configured.pools.iter();
        let names = names.filter_map(|pool| pool.servers_dns.as_ref());
        self.names.ask(names).await;
    }

    /// The lists that a configuration would have; whoever asks vouches for them.
    pub fn lists_of(&self, configured: &Desired) -> Lists {
        self.lists.read(configured, &self.names, true)
    }

    /// The lists that a configuration begins with: nobody vouches for what has changed while nobody was there.
    pub fn first_lists(&self, configured: &Desired) -> Lists {
        self.lists.read(configured, &self.names, false)
    }

    /// The lists in force.
    pub fn lists(&self) -> Lists {
        self.lists.clone()
    }

    /// The lists as files have them now, if that makes a difference to `configured`.
    pub fn news(&mut self, configured: &Desired) -> Option<Lists> {
        let now = self.lists.read(configured, &self.names, false);
        for (key, list) in &now.by_source {
            let former = self.lists.by_source.get(key);
            let (pool, giver) = key;
            let known = former.and_then(|former| former.problem.as_ref());
            if let Some(problem) = list.problem.as_ref().filter(|it| Some(*it) != known) {
                tracing::warn!(
                    pool,
                    source = giver.as_str(),
                    problem,
                    "the list of servers is not believed; the last good one stays"
                );
            }
        }
        let changed = now.servers() != self.lists.servers();
        if !changed {
            // Problems come and go without effect.
            self.lists = now;
            return None;
        }
        Some(now)
    }

    /// These are in force from now on.
    pub fn keep(&mut self, configured: &Desired, lists: Lists) {
        self.lists = lists;
        let files = configured.pools.iter();
        let files = files.filter_map(|pool| pool.servers_file.as_ref().map(PathBuf::from));
        self.watch.follow(files.collect());
        self.names.retain(|name| {
            let mut pools = configured.pools.iter();
            pools.any(|pool| pool.servers_dns.as_ref() == Some(name))
        });
        let lists = self.lists.by_source.iter();
        let texts: Vec<(&String, Giver, &String)> = lists
            .map(|((pool, giver), list)| (pool, *giver, &list.text))
            .collect();
        if texts.is_empty() && !self.memory.exists() {
            return;
        }
        let written = serde_json::to_vec(&texts).map_err(std::io::Error::from);
        let written = written.and_then(|text| replace_file(&self.memory, &text));
        if let Err(error) = written {
            tracing::warn!(%error, "the lists of servers are not remembered over a restart");
        }
    }

    /// Why these could not be put into force; the ones before stay.
    pub fn refuse(&mut self, lists: &Lists, problem: &str) {
        for (key, list) in &mut self.lists.by_source {
            let other = lists.by_source.get(key);
            let same = |new: &List| {
                new.members
                    .iter()
                    .map(essence)
                    .eq(list.members.iter().map(essence))
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

    /// Once a second: whether the files may be in other directories than before.
    pub fn look(&mut self) -> bool {
        self.watch.look()
    }

    /// For the status.
    pub fn sources(&self, configured: &Desired) -> Vec<Source> {
        let of_pool = |pool: &'_ Pool| {
            let source = |(giver, list): (Giver, &List)| Source {
                pool: pool.name.clone(),
                kind: giver,
                from: match (giver, &pool.servers_file, &pool.servers_dns) {
                    (Giver::File, Some(file), _) => file.clone(),
                    (Giver::Dns, _, Some(dns)) => {
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
