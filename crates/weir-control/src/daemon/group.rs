//! `[cluster]`: connects the daemon to the machine of its group, and keeps on disk what it needs without etcd.
//!
//! The machine runs on a thread of its own, so etcd never delays the daemon. A record holds the last configuration of
//! the group and the shared overrides ([`record`]): a daemon that starts without etcd uses them, also after a reboot.

mod connection;
mod facts;
mod record;
mod settling;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::net::IpAddr;
use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use serde_json::Value;
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Mutex, oneshot};
use weir_cluster::{Input, Kind, SharedKey, SharedState, Verdicts};
use weir_etcd::{Driver, FromGroup};
use weir_health::{Standing, State};
use weir_model::{Cluster, Desired};
use weir_state::HealthEvent;

use crate::api::{Published, Refusal, Reloaded, Reply};
use crate::group_configuration::GroupConfiguration;
use crate::status::Group as GroupStatus;

pub use record::last_group_configuration;
use record::{Record, Store};
pub(super) use record::{prepare_state_directory, state_directory};
pub(super) use settling::Held;
use settling::Settling;

/// How long the description of this director stays as it is: it depends on all servers.
const RECORD_AGE: Duration = Duration::from_secs(1);

/// How long the success of a configuration is held back until the peers of `[sync]` know the flows that it has moved,
/// and how often that is checked.
const FLOWS_LIMIT: Duration = Duration::from_secs(2);
const FLOWS_PAUSE: Duration = Duration::from_millis(10);

/// What the daemon has to handle.
#[derive(Debug)]
pub(super) enum GroupEvent {
    /// An order of the machine.
    Order(FromGroup),
    /// Flows may have been sent, or replies were held back for too long.
    Settling,
    /// The reload that an order began has ended.
    Applied(Result<Reloaded, Refusal>),
}

#[derive(Debug, Default)]
struct Inbox {
    orders: Option<UnboundedReceiver<FromGroup>>,
    applying: Option<oneshot::Receiver<Result<Reloaded, Refusal>>>,
    /// A result that is held back until then.
    waiting: Option<(tokio::time::Instant, Result<Reloaded, Refusal>)>,
    /// Changes of the group to try again.
    retries: VecDeque<(SharedKey, Value)>,
}

/// The daemon's membership in a group; does nothing without `[cluster]`.
#[derive(Debug)]
pub(super) struct Group {
    store: Store,
    record: Record,
    config: Option<Cluster>,
    driver: Option<Driver>,
    /// Why there is no driver although there is a configuration.
    error: Option<String>,
    inbox: Mutex<Inbox>,
    settling: Settling,
    /// The configuration that is being applied.
    candidate: Option<Arc<GroupConfiguration>>,
    /// Since when its success is held back.
    waits_since: Option<Instant>,
    /// The active one.
    published: Option<Arc<GroupConfiguration>>,
    facts: weir_cluster::Facts,
    held: BTreeSet<IpAddr>,
    verdicts: Verdicts,
    /// Results of this director's own checks.
    standings: BTreeMap<(String, String), Standing>,
    /// Changes of the group that have no effect with the active configuration.
    unadopted: BTreeMap<SharedKey, Value>,
    record_at: Option<Instant>,
    replies: BTreeMap<u64, Reply<Published>>,
    requests: u64,
}

impl Group {
    pub(super) fn new(runtime_dir: &Path) -> Self {
        let record = Record::read(runtime_dir);
        Self {
            store: Store::new(runtime_dir),
            published: record.configuration.clone().map(Arc::new),
            record,
            config: None,
            driver: None,
            error: None,
            inbox: Mutex::default(),
            settling: Settling::default(),
            candidate: None,
            waits_since: None,
            facts: weir_cluster::Facts::default(),
            held: BTreeSet::new(),
            verdicts: Verdicts::new(),
            standings: BTreeMap::new(),
            unadopted: BTreeMap::new(),
            record_at: None,
            replies: BTreeMap::new(),
            requests: 0,
        }
    }

    /// The active configuration of the group.
    pub(super) fn published(&self) -> Option<&Arc<GroupConfiguration>> {
        self.published.as_ref()
    }

    pub(super) fn set_published(&mut self, published: Option<Arc<GroupConfiguration>>) {
        self.published = published;
    }

    /// Adopts `[cluster]`. The machine starts again only if it differs.
    pub(super) fn configure(&mut self, config: Option<&Cluster>) {
        if self.config.as_ref() == config && (self.driver.is_some() || config.is_none()) {
            // A server may exist now.
            let waiting = std::mem::take(&mut self.unadopted).into_iter();
            self.inbox.get_mut().retries.extend(waiting);
            return;
        }
        self.stop();
        self.record_at = None;
        self.config = config.cloned();
        self.error = None;
        let Some(config) = config else {
            return;
        };
        if self.record.group != config.name {
            self.record.group.clone_from(&config.name);
            self.record.shared = SharedState::default();
        }
        match self.start(config) {
            Ok((driver, orders)) => {
                driver.send(Input::Facts(self.facts.clone()));
                self.driver = Some(driver);
                self.inbox.get_mut().orders = Some(orders);
            }
            Err(error) => {
                tracing::error!(error, "this director is not a member of its group");
                self.error = Some(error);
            }
        }
    }

    fn start(
        &mut self,
        config: &Cluster,
    ) -> Result<(Driver, UnboundedReceiver<FromGroup>), String> {
        if self.record.identity == 0 {
            self.record.identity = connection::random()?;
            self.save();
        }
        let record = &self.record;
        let configuration = record.configuration.as_ref();
        let configuration = configuration.filter(|it| it.group == config.name);
        let settings = connection::settings(config, record.identity)?;
        Driver::start(weir_etcd::Settings {
            applied: configuration.map(|it| (it.version, it.text.clone())),
            shared: record.shared.clone(),
            ..settings
        })
        .map_err(|error| error.to_string())
    }

    fn stop(&mut self) {
        if let Some(driver) = self.driver.take() {
            driver.leave();
        }
        *self.inbox.get_mut() = Inbox::default();
        self.held.clear();
        self.verdicts.clear();
        for (_, reply) in std::mem::take(&mut self.replies) {
            let _ = reply.send(Err(Refusal::new("[cluster] has changed")));
        }
    }

    /// Leaves the group at the end of the daemon.
    pub(super) fn leave(&mut self) {
        self.stop();
    }

    /// Waits for an event. Cancel-safe.
    pub(super) async fn next(&self) -> GroupEvent {
        let mut inbox = self.inbox.lock().await;
        if let Some((key, value)) = inbox.retries.pop_front() {
            return GroupEvent::Order(FromGroup::Shared { key, value });
        }
        let Inbox {
            orders,
            applying,
            waiting,
            ..
        } = &mut *inbox;
        let order = async {
            match orders {
                Some(orders) => orders.recv().await,
                None => std::future::pending().await,
            }
        };
        let applied = async {
            match applying {
                Some(applying) => applying.await,
                None => std::future::pending().await,
            }
        };
        let waited = async {
            match waiting {
                Some((until, _)) => tokio::time::sleep_until(*until).await,
                None => std::future::pending().await,
            }
        };
        let settling = async {
            match self.settling.next_look() {
                Some(at) => tokio::time::sleep_until(at).await,
                None => std::future::pending().await,
            }
        };
        tokio::select! {
            () = settling => GroupEvent::Settling,
            result = applied => {
                *applying = None;
                GroupEvent::Applied(result.unwrap_or_else(|_| Err(Refusal::leaving())))
            }
            () = waited => match waiting.take() {
                Some((_, result)) => GroupEvent::Applied(result),
                None => std::future::pending().await,
            },
            order = order => match order {
                Some(order) => GroupEvent::Order(order),
                None => {
                    *orders = None;
                    std::future::pending().await
                }
            }
        }
    }

    /// Starts to apply a configuration. Returns where its result goes.
    pub(super) fn apply(
        &mut self,
        version: u64,
        text: String,
    ) -> (Arc<GroupConfiguration>, Reply<Reloaded>) {
        let candidate = Arc::new(GroupConfiguration {
            group: self.record.group.clone(),
            version,
            text,
        });
        self.candidate = Some(Arc::clone(&candidate));
        let (reply, result) = oneshot::channel();
        self.inbox.get_mut().applying = Some(result);
        (candidate, reply)
    }

    /// Whether a success may still be held back.
    pub(super) fn may_wait(&self) -> bool {
        self.waits_since
            .is_none_or(|since| since.elapsed() < FLOWS_LIMIT)
    }

    /// Holds a success back for a moment.
    pub(super) fn wait(&mut self, result: Result<Reloaded, Refusal>) {
        self.waits_since.get_or_insert_with(Instant::now);
        let until = tokio::time::Instant::now() + FLOWS_PAUSE;
        self.inbox.get_mut().waiting = Some((until, result));
    }

    /// The result: it is on disk before others learn it.
    pub(super) fn applied(&mut self, result: Result<Reloaded, Refusal>) {
        self.waits_since = None;
        let candidate = self.candidate.take();
        let result = result.map(drop).map_err(|refusal| refusal.error);
        if let (Ok(()), Some(candidate)) = (&result, candidate) {
            tracing::info!(
                version = candidate.version,
                "applied the configuration of the group"
            );
            self.record.configuration = Some((*candidate).clone());
            self.save();
        }
        self.send(Input::Applied(result));
    }

    /// A publication by an operator.
    pub(super) fn publish(&mut self, text: String, guard_ms: u64, reply: Reply<Published>) {
        if self.driver.is_none() {
            let why = self.error.clone();
            let why = why.unwrap_or_else(|| "[cluster] is not configured".to_owned());
            let _ = reply.send(Err(Refusal::new(why)));
            return;
        }
        self.requests += 1;
        let request = self.requests;
        self.replies.insert(request, reply);
        self.send(Input::Publish {
            request,
            text,
            guard_ms,
        });
    }

    pub(super) fn published_as(&mut self, request: u64, result: Result<u64, String>) {
        if let Some(reply) = self.replies.remove(&request) {
            let result = result.map(|version| Published { version });
            let _ = reply.send(result.map_err(Refusal::new));
        }
    }

    /// An operator of this director has changed an override or an added server.
    pub(super) fn share(&self, kind: Kind, pool: &str, server: &str, value: serde_json::Value) {
        // Services of ipvsadm belong to one machine.
        if weir_engine::is_from_ipvsadm(pool) {
            return;
        }
        let key = SharedKey {
            kind,
            pool: pool.to_owned(),
            server: server.to_owned(),
        };
        self.send(Input::Changed { key, value });
    }

    /// The machine asks when the flows that changes of servers have moved are sent.
    pub(super) fn settle(&mut self, revision: i64) {
        self.settling.begin(revision, tokio::time::Instant::now());
    }

    /// Answers it, if they are. Also returns replies that were held back for too long.
    pub(super) fn look_at_flows(&mut self, is_moving: bool) -> Vec<(SharedKey, Held)> {
        let now = tokio::time::Instant::now();
        if let Some(revision) = self.settling.end(is_moving, now) {
            self.send(Input::Settled(revision));
        }
        self.settling.take(None, now)
    }

    /// The replies for a change that is settled.
    pub(super) fn settled(&mut self, key: &SharedKey) -> Vec<(SharedKey, Held)> {
        self.settling.take(Some(key), tokio::time::Instant::now())
    }

    /// Holds a reply back until the change is settled. Returns it if that cannot be waited for.
    pub(super) fn hold(&mut self, key: SharedKey, held: Held) -> Option<Held> {
        let status = self.driver.as_ref().and_then(Driver::status);
        let is_member = status.is_some_and(|(status, _)| {
            status.link == weir_cluster::Link::Connected && status.refused.is_none()
        });
        if !is_member || weir_engine::is_from_ipvsadm(&key.pool) {
            return Some(held);
        }
        self.settling.hold(key, held, tokio::time::Instant::now());
        None
    }

    /// A change of another director, adopted or not.
    pub(super) fn adopted(&mut self, key: SharedKey, value: Value, is_adopted: bool) {
        if is_adopted {
            self.unadopted.remove(&key);
        } else {
            self.unadopted.insert(key, value);
        }
    }

    pub(super) fn keep(&mut self, shared: SharedState) {
        self.record.shared = shared;
        self.save();
    }

    pub(super) fn set_held(&mut self, held: BTreeSet<IpAddr>) {
        self.held = held;
    }

    /// Whether the VIP must stay announced although its services cannot serve.
    pub(super) fn holds(&self, vip: IpAddr) -> bool {
        self.held.contains(&vip)
    }

    /// Adds what the group has agreed on to the results of this director's checks.
    pub(super) fn agree(&mut self, news: Vec<HealthEvent>) -> Vec<HealthEvent> {
        if self.config.is_none() {
            return news;
        }
        for event in &news {
            let key = (event.pool.clone(), event.server.clone());
            match &event.standing {
                Some(standing) => self.standings.insert(key, standing.clone()),
                None => self.standings.remove(&key),
            };
        }
        news.into_iter().map(|event| self.judged(event)).collect()
    }

    /// Adopts other verdicts. Returns the servers that they change.
    pub(super) fn set_verdicts(&mut self, verdicts: Verdicts) -> Vec<HealthEvent> {
        let former = std::mem::replace(&mut self.verdicts, verdicts);
        let concerned = self.standings.iter().filter(|((pool, server), _)| {
            let name = format!("{pool}/{server}");
            former.get(&name) != self.verdicts.get(&name)
        });
        concerned
            .map(|((pool, server), standing)| {
                self.judged(HealthEvent {
                    pool: pool.clone(),
                    server: server.clone(),
                    standing: Some(standing.clone()),
                })
            })
            .collect()
    }

    fn judged(&self, mut event: HealthEvent) -> HealthEvent {
        let verdict = self
            .verdicts
            .get(&format!("{}/{}", event.pool, event.server));
        if let (Some(reason), Some(standing)) = (verdict, &mut event.standing)
            && standing.state == State::Up
        {
            standing.state = State::Down;
            standing.reason.clone_from(reason);
            standing.paths.clear();
        }
        event
    }

    /// Reports local facts to the machine, if they have changed.
    pub(super) fn report(&mut self, desired: &Desired, vips: BTreeMap<IpAddr, bool>) {
        let Some(config) = &self.config else {
            return;
        };
        let pools: BTreeSet<&str> = desired.pools.iter().map(|it| it.name.as_str()).collect();
        self.standings
            .retain(|(pool, _), _| pools.contains(pool.as_str()));
        let is_due = self.record_at.is_none_or(|at| at.elapsed() >= RECORD_AGE);
        let record = match is_due {
            true => facts::record(config, desired),
            false => self.facts.record.clone(),
        };
        if is_due {
            self.record_at = Some(Instant::now());
        }
        let facts = facts::of(record, &self.standings, vips, desired.sync.is_none());
        if facts == self.facts {
            return;
        }
        // A VIP stays until the machine has decided.
        for (vip, serves) in &facts.vips {
            if !serves && self.facts.vips.get(vip) == Some(&true) {
                self.held.insert(*vip);
            }
        }
        self.held.retain(|vip| facts.vips.contains_key(vip));
        self.facts = facts.clone();
        self.send(Input::Facts(facts));
    }

    /// For the status document; `None` = there is no `[cluster]`.
    pub(super) fn status(&self) -> Option<GroupStatus> {
        let config = self.config.as_ref()?;
        Some(match &self.driver {
            Some(driver) => GroupStatus::of(config, driver),
            None => GroupStatus::failed(config, self.error.as_deref()),
        })
    }

    fn send(&self, input: Input) {
        if let Some(driver) = &self.driver {
            driver.send(input);
        }
    }

    fn save(&mut self) {
        self.store.save(&self.record);
    }
}
