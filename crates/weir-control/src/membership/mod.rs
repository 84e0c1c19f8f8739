//! Pools whose servers others write: `servers_file`.
//!
//! What is in force is the configuration with these servers added. A list that cannot be read, is gone, or has lost more than
//! half of its servers at once is not believed: the last good one stays, over restarts too, and the status says so. Whoever
//! reloads the configuration vouches for a list that has become short.

mod watch;

use std::collections::BTreeMap;
use std::fs::{self, File};
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_config::MAX_FILE_BYTES;
use weir_model::{Desired, Family, Pool, Server};

use self::watch::Watch;

/// The last good lists, in the runtime directory, as they were written.
const MEMORY: &str = "members.json";

/// A pool's list as the status shows it.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Source {
    /// The pool.
    pub pool: String,
    /// The file.
    pub file: String,
    /// Servers that it gives.
    pub servers: usize,
    /// Why it is not believed as it is now.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub problem: Option<String>,
}

#[derive(Clone, Debug, Default)]
struct List {
    text: String,
    servers: Vec<Server>,
    problem: Option<String>,
}

/// The lists of a configuration.
#[derive(Clone, Debug, Default)]
pub struct Lists {
    by_pool: BTreeMap<String, List>,
}

/// See the module.
#[derive(Debug)]
pub struct Membership {
    lists: Lists,
    memory: PathBuf,
    watch: Watch,
}

impl Lists {
    /// Reads the lists of a configuration's pools. `vouched`: somebody asked for them as they are.
    fn read(&self, configured: &Desired, vouched: bool) -> Self {
        let with_file = |pool: &'_ Pool| pool.servers_file.clone();
        let read = configured.pools.iter().filter_map(|pool| {
            let file = with_file(pool)?;
            let former = self.by_pool.get(&pool.name);
            Some((
                pool.name.clone(),
                read(configured, pool, Path::new(&file), former, vouched),
            ))
        });
        Self {
            by_pool: read.collect(),
        }
    }

    /// The configuration with the lists' servers. One that the configuration lists itself is as it says there.
    pub fn added_to(&self, configured: &Desired) -> Desired {
        let mut desired = configured.clone();
        for pool in &mut desired.pools {
            let Some(list) = self.by_pool.get(&pool.name) else {
                continue;
            };
            let own = std::mem::take(&mut pool.servers);
            let more = list.servers.iter().filter(|member| {
                let place = (member.address, member.port);
                !own.iter()
                    .any(|server| (server.address, server.port) == place)
            });
            let more: Vec<Server> = more.cloned().collect();
            pool.servers = own.into_iter().chain(more).collect();
        }
        desired
    }

    fn servers(&self) -> BTreeMap<&String, &Vec<Server>> {
        let lists = self.by_pool.iter();
        lists.map(|(pool, list)| (pool, &list.servers)).collect()
    }
}

fn read(
    configured: &Desired,
    pool: &Pool,
    file: &Path,
    former: Option<&List>,
    vouched: bool,
) -> List {
    let judged = text_of(file).and_then(|text| {
        let servers = weir_config::members(&text)?;
        fits(configured, pool, &servers)?;
        let before = former.map_or(0, |former| former.servers.len());
        if !vouched && servers.len() * 2 < before {
            let now = servers.len();
            return Err(format!(
                "it shrank from {before} servers to {now} at once; `weir reload` takes it as it is"
            ));
        }
        Ok(List {
            text,
            servers,
            problem: None,
        })
    });
    judged.unwrap_or_else(|problem| List {
        problem: Some(problem),
        ..former.cloned().unwrap_or_default()
    })
}

fn text_of(file: &Path) -> Result<String, String> {
    let mut text = String::new();
    let opened = File::open(file).map_err(|error| error.to_string())?;
    let read = opened.take(MAX_FILE_BYTES).read_to_string(&mut text);
    read.map_err(|error| error.to_string())?;
    Ok(text)
}

/// Whether services of layer 4 can send their clients to these servers.
fn fits(configured: &Desired, pool: &Pool, servers: &[Server]) -> Result<(), String> {
    for service in configured.services.iter().filter(|s| s.pool == pool.name) {
        for server in servers {
            let forward = server.forward.unwrap_or(service.forward);
            let other =
                |listener: &weir_model::Listener| listener.family() != Family::of(server.address);
            if forward.needs_same_family() && service.listen.iter().any(other) {
                let (name, server) = (&service.name, &server.name);
                return Err(format!(
                    "`{forward}` of service {name} cannot take its clients to {server}"
                ));
            }
        }
    }
    Ok(())
}

impl Membership {
    /// With what was remembered in a runtime directory.
    pub fn new(runtime_dir: &Path) -> Self {
        let memory = runtime_dir.join(MEMORY);
        let text = fs::read_to_string(&memory).unwrap_or_default();
        let remembered: BTreeMap<String, String> = serde_json::from_str(&text).unwrap_or_default();
        let lists = remembered.into_iter().filter_map(|(pool, text)| {
            let servers = weir_config::members(&text).ok()?;
            let list = List {
                text,
                servers,
                problem: None,
            };
            Some((pool, list))
        });
        Self {
            lists: Lists {
                by_pool: lists.collect(),
            },
            memory,
            watch: Watch::new(),
        }
    }

    /// The lists that a configuration would have; whoever asks vouches for them.
    pub fn lists_of(&self, configured: &Desired) -> Lists {
        self.lists.read(configured, true)
    }

    /// The lists in force.
    pub fn lists(&self) -> Lists {
        self.lists.clone()
    }

    /// The lists as files have them now, if that makes a difference to `configured`.
    pub fn news(&mut self, configured: &Desired) -> Option<Lists> {
        let now = self.lists.read(configured, false);
        for (pool, list) in &now.by_pool {
            let former = self.lists.by_pool.get(pool);
            let known = former.and_then(|former| former.problem.as_ref());
            if let Some(problem) = list.problem.as_ref().filter(|it| Some(*it) != known) {
                tracing::warn!(
                    pool,
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
        let texts: BTreeMap<&String, &String> = self
            .lists
            .by_pool
            .iter()
            .map(|(pool, list)| (pool, &list.text))
            .collect();
        if texts.is_empty() && !self.memory.exists() {
            return;
        }
        let made = self.memory.with_extension("new");
        let written = serde_json::to_vec(&texts).map_err(std::io::Error::from);
        let written = written
            .and_then(|text| fs::write(&made, text))
            .and_then(|()| fs::rename(&made, &self.memory));
        if let Err(error) = written {
            tracing::warn!(%error, "the lists of servers are not remembered over a restart");
        }
    }

    /// Why these could not be put into force; the ones before stay.
    pub fn refuse(&mut self, lists: &Lists, problem: &str) {
        for (pool, list) in &mut self.lists.by_pool {
            let other = lists.by_pool.get(pool).map(|new| &new.servers);
            if other != Some(&list.servers) {
                list.problem = Some(problem.to_owned());
            }
        }
    }

    /// Waits until a list may have changed. Dropping the future loses nothing.
    pub async fn changed(&self) {
        self.watch.changed().await;
    }

    /// Once a second: directories that were not there may be now.
    pub fn look(&mut self) -> bool {
        self.watch.retry()
    }

    /// For the status.
    pub fn sources(&self, configured: &Desired) -> Vec<Source> {
        let source = |pool: &Pool| {
            let list = self.lists.by_pool.get(&pool.name)?;
            Some(Source {
                pool: pool.name.clone(),
                file: pool.servers_file.clone()?,
                servers: list.servers.len(),
                problem: list.problem.clone(),
            })
        };
        configured.pools.iter().filter_map(source).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn desired(file: &Path) -> Desired {
        let text = format!(
            "[pool.p]\nservers = [\"10.0.0.1\"]\nservers_file = \"{}\"\n[service.s]\nlisten = [\"192.0.2.1:80\"]\nforward = \
             \"direct\"\npool = \"p\"\n",
            file.display()
        );
        weir_config::parse(&text, &weir_config::Host::default())
            .unwrap()
            .desired
    }

    fn names(desired: &Desired) -> Vec<&str> {
        let servers = desired.pools[0].servers.iter();
        servers.map(|server| server.name.as_str()).collect()
    }

    #[tokio::test]
    async fn the_last_good_list_stays() {
        let directory = std::env::temp_dir().join(format!("weir-members-{}", std::process::id()));
        fs::create_dir_all(&directory).unwrap();
        let file = directory.join("list");
        let configured = desired(&file);
        let mut membership = Membership::new(&directory);
        let none = membership.lists_of(&configured);
        assert_eq!(names(&none.added_to(&configured)), ["10.0.0.1"]);
        membership.keep(&configured, none);
        assert!(membership.sources(&configured)[0].problem.is_some());

        fs::write(&file, "10.0.0.2\n10.0.0.3\n10.0.0.4\n10.0.0.1 weight=7\n").unwrap();
        membership.changed().await;
        let four = membership.news(&configured).unwrap();
        let all = ["10.0.0.1", "10.0.0.2", "10.0.0.3", "10.0.0.4"];
        assert_eq!(names(&four.added_to(&configured)), all);
        assert_eq!(four.added_to(&configured).pools[0].servers[0].weight, 1);
        membership.keep(&configured, four);

        for bad in [
            "10.0.0.2",
            "",
            "no list at all",
            "2001:db8::1\n10.0.0.2\n10.0.0.3",
        ] {
            fs::write(&file, bad).unwrap();
            assert!(membership.news(&configured).is_none(), "{bad}");
            let sources = membership.sources(&configured);
            assert!(
                sources[0].problem.is_some() && sources[0].servers == 4,
                "{bad}: {sources:?}"
            );
        }
        fs::remove_file(&file).unwrap();
        let mut again = Membership::new(&directory);
        let remembered = again.lists_of(&configured);
        assert_eq!(names(&remembered.added_to(&configured)), all);
        again.keep(&configured, remembered);

        fs::write(&file, "10.0.0.9").unwrap();
        assert!(again.news(&configured).is_none());
        let vouched = again.lists_of(&configured);
        assert_eq!(
            names(&vouched.added_to(&configured)),
            ["10.0.0.1", "10.0.0.9"]
        );
        fs::remove_dir_all(&directory).unwrap();
    }
}
