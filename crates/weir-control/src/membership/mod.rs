//! Pools whose servers others say: `servers_file`, `servers_dns`, and the API.
//!
//! What is in force is the configuration with these servers added. A list that cannot be read, is gone, or has lost more than
//! half of its servers at once is not believed: the last good one stays, over restarts too, and the status says so. Whoever
//! reloads the configuration vouches for a list that has become short.

mod added;
mod dns;
mod resolve;
mod watch;

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, OpenOptions};
use std::io::{self, Read};
use std::os::unix::fs::OpenOptionsExt;
use std::path::{Path, PathBuf};

use rustix::fs::OFlags;
use serde::{Deserialize, Serialize};
use weir_config::MAX_FILE_BYTES;
use weir_model::{Desired, Family, Pool, Server};
use weir_sys::replace_file;

use self::dns::{Answer, Names};
use self::watch::Watch;

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
    servers: Vec<Server>,
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
                take(Giver::File, Some(text_of(Path::new(file))));
            }
            if let Some(name) = &pool.servers_dns {
                take(Giver::Dns, names.answer(name));
            }
            let added = self.by_source.get(&(pool.name.clone(), Giver::Api));
            if let Some(added) = added.filter(|list| !list.servers.is_empty()) {
                take(Giver::Api, Some(Ok(added.text.clone())));
            }
        }
        Self { by_source: read }
    }

    fn of<'a>(&'a self, pool: &'a str) -> impl Iterator<Item = (Giver, &'a List)> {
        let givers = [Giver::File, Giver::Dns, Giver::Api].into_iter();
        givers.filter_map(|giver| Some((giver, self.by_source.get(&(pool.to_owned(), giver))?)))
    }

    /// The configuration with the lists' servers. One that the configuration lists itself is as it says there, and one of several
    /// lists as the first has it.
    pub fn added_to(&self, configured: &Desired) -> Desired {
        let mut desired = configured.clone();
        for pool in &mut desired.pools {
            let place = |server: &Server| (server.address, server.port);
            let mut places: BTreeSet<_> = pool.servers.iter().map(place).collect();
            for (_, list) in self.of(&pool.name) {
                let news = list
                    .servers
                    .iter()
                    .filter(|server| places.insert(place(server)));
                pool.servers.extend(news.cloned());
            }
        }
        desired
    }

    /// These of `configured`, for its coming back after `between`, in which `now` was said: what others said of a list that both
    /// have is the latest.
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

    fn servers(&self) -> BTreeMap<&Key, &Vec<Server>> {
        let lists = self.by_source.iter();
        lists.map(|(key, list)| (key, &list.servers)).collect()
    }
}

/// The list that somebody gives, or the former one with what is wrong about this one.
fn judge(configured: &Desired, pool: &Pool, given: Answer, former: List, vouched: bool) -> List {
    let judged = given.and_then(|text| {
        let servers = weir_config::members(&text)?;
        fits(configured, pool, &servers)?;
        let before = former.servers.len();
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
        ..former
    })
}

fn text_of(file: &Path) -> Result<String, String> {
    let words = |error: io::Error| error.to_string();
    // To open a pipe would wait for whoever writes into it.
    let mut options = OpenOptions::new();
    let flags = OFlags::NONBLOCK.bits().cast_signed();
    let opened = options.read(true).custom_flags(flags).open(file);
    let opened = opened.map_err(words)?;
    if !opened.metadata().map_err(words)?.is_file() {
        return Err("it is no file".to_owned());
    }
    let mut text = String::new();
    let read = opened.take(MAX_FILE_BYTES + 1).read_to_string(&mut text);
    // What is cut off would not be missed, and the last line would be another server.
    if read.map_err(words)? as u64 > MAX_FILE_BYTES {
        return Err(format!("it has more than {MAX_FILE_BYTES} bytes"));
    }
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
        let remembered: Vec<(String, Giver, String)> =
            serde_json::from_str(&text).unwrap_or_default();
        let lists = remembered.into_iter().filter_map(|(pool, giver, text)| {
            let servers = weir_config::members(&text).ok()?;
            let list = List {
                text,
                servers,
                problem: None,
            };
            Some(((pool, giver), list))
        });
        let watch = Watch::new();
        let names = Names::new(watch.notify());
        Self {
            lists: Lists {
                by_source: lists.collect(),
            },
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
                    ?giver,
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
            let other = lists.by_source.get(key).map(|new| &new.servers);
            if other != Some(&list.servers) {
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
                servers: list.servers.len(),
                problem: list.problem.clone(),
            };
            self.lists.of(&pool.name).map(source).collect::<Vec<_>>()
        };
        configured.pools.iter().flat_map(of_pool).collect()
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

    /// What became of the list in a directory of its own, until `done`: by the watch, or by the look once a second.
    async fn follow(
        membership: &mut Membership,
        configured: &Desired,
        done: impl Fn(&Membership) -> bool,
    ) {
        let begun = std::time::Instant::now();
        while !done(membership) {
            assert!(begun.elapsed().as_secs() < 10, "{membership:?}");
            let second = std::time::Duration::from_millis(100);
            if tokio::time::timeout(second, membership.changed())
                .await
                .is_err()
                && !membership.look()
            {
                continue;
            }
            if let Some(lists) = membership.news(configured) {
                membership.keep(configured, lists);
            }
        }
    }

    fn servers(count: usize) -> impl Fn(&Membership) -> bool {
        move |membership| {
            let lists = membership.lists.by_source.values();
            lists.map(|list| list.servers.len()).sum::<usize>() == count
        }
    }

    fn in_doubt(word: &'static str) -> impl Fn(&Membership) -> bool {
        move |membership| {
            let mut lists = membership.lists.by_source.values();
            lists.any(|list| list.problem.as_ref().is_some_and(|it| it.contains(word)))
        }
    }

    #[tokio::test]
    async fn files_are_followed_wherever_they_are() {
        let root = std::env::temp_dir().join(format!("weir-followed-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        let (seen, other) = (root.join("seen"), root.join("other"));
        fs::create_dir_all(&seen).unwrap();
        fs::create_dir_all(&other).unwrap();
        let file = seen.join("list");
        fs::write(other.join("list"), "10.0.0.2").unwrap();
        std::os::unix::fs::symlink(other.join("list"), &file).unwrap();
        let configured = desired(&file);
        let mut membership = Membership::new(&root);
        let lists = membership.first_lists(&configured);
        membership.keep(&configured, lists);
        assert!(servers(1)(&membership));

        // A link's target changes, in a directory of its own.
        fs::write(other.join("list"), "10.0.0.2\n10.0.0.3").unwrap();
        follow(&mut membership, &configured, servers(2)).await;
        // The file is gone, and there again.
        fs::remove_file(&file).unwrap();
        follow(&mut membership, &configured, in_doubt("No such file")).await;
        assert!(servers(2)(&membership));
        fs::write(&file, "10.0.0.2\n10.0.0.3\n10.0.0.4").unwrap();
        follow(&mut membership, &configured, servers(3)).await;
        assert!(!in_doubt("")(&membership));
        // The directory is another one, and is still watched then.
        fs::remove_dir_all(&seen).unwrap();
        follow(&mut membership, &configured, in_doubt("No such file")).await;
        fs::create_dir(&seen).unwrap();
        fs::write(&file, "10.0.0.2\n10.0.0.3").unwrap();
        follow(&mut membership, &configured, servers(2)).await;
        fs::write(&file, "10.0.0.2\n10.0.0.3\n10.0.0.4").unwrap();
        follow(&mut membership, &configured, servers(3)).await;
        // As deployments do: one link for all.
        fs::write(other.join("list"), "10.0.0.7\n10.0.0.8").unwrap();
        fs::rename(&seen, root.join("away")).unwrap();
        std::os::unix::fs::symlink(&other, &seen).unwrap();
        follow(&mut membership, &configured, servers(2)).await;
        assert!(membership.watch.count() <= 2, "{membership:?}");
        fs::remove_dir_all(&root).unwrap();
    }

    #[tokio::test]
    async fn what_is_no_list_of_reasonable_size_is_told_at_once() {
        let root = std::env::temp_dir().join(format!("weir-unfit-{}", std::process::id()));
        let _ = fs::remove_dir_all(&root);
        fs::create_dir_all(&root).unwrap();
        let (pipe, large) = (root.join("pipe"), root.join("large"));
        let made = std::process::Command::new("mkfifo").arg(&pipe).status();
        assert!(made.unwrap().success());
        let comment = "#".repeat(usize::try_from(MAX_FILE_BYTES).unwrap());
        fs::write(&large, format!("10.0.0.2\n{comment}")).unwrap();
        for (file, word) in [
            (&pipe, "no file"),
            (&root, "no file"),
            (&large, "more than"),
        ] {
            let why = text_of(file).unwrap_err();
            assert!(why.contains(word), "{why}");
        }
        fs::remove_dir_all(&root).unwrap();
    }

    #[tokio::test]
    async fn a_restart_vouches_for_nothing() {
        let root = std::env::temp_dir().join(format!("weir-unvouched-{}", std::process::id()));
        fs::create_dir_all(&root).unwrap();
        let file = root.join("list");
        let configured = desired(&file);
        fs::write(&file, "10.0.0.2\n10.0.0.3\n10.0.0.4").unwrap();
        let mut membership = Membership::new(&root);
        let lists = membership.first_lists(&configured);
        membership.keep(&configured, lists);
        fs::write(&file, "10.0.0.2").unwrap();
        let mut again = Membership::new(&root);
        let lists = again.first_lists(&configured);
        again.keep(&configured, lists);
        assert!(servers(3)(&again) && in_doubt("it shrank")(&again));
        fs::remove_dir_all(&root).unwrap();
    }
}
