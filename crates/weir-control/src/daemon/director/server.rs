//! Changes servers at run time, and reports their state.

use std::net::SocketAddr;

use weir_cluster::{Kind, SharedKey};
use weir_model::{Desired, Pool, Server};

use super::Director;
use crate::api::{ApiError, Override, Reply, ServerStatus, ServerUpdate};
use crate::daemon::group::PendingReply;
use crate::plane::Plane;
use crate::snapshot::ServerState;

impl<P: Plane> Director<P> {
    /// Changes a server at run time. With `[sync]` in a group, the reply is delayed until the group has settled the
    /// change.
    pub(super) async fn change_server(
        &mut self,
        pool: &str,
        address: &str,
        update: ServerUpdate,
        reply: Reply<ServerStatus>,
    ) {
        let server = match self.update_server(pool, address, update).await {
            Ok(server) => server,
            Err(error) => return drop(reply.send(Err(error))),
        };
        if let Ok(value) = serde_json::to_value(update) {
            self.group.share(Kind::Override, pool, &server, value);
        }
        let key = SharedKey {
            kind: Kind::Override,
            pool: pool.to_owned(),
            server,
        };
        self.reply_when_settled(key, PendingReply::Server(reply));
    }

    /// Sets or removes an override, as requested on this director or on another director of the group. Returns the
    /// server's name in the file.
    pub(super) async fn update_server(
        &mut self,
        pool: &str,
        address: &str,
        update: ServerUpdate,
    ) -> Result<String, ApiError> {
        let name = self.find(pool, address)?;
        let address = name.as_str();
        if let Some(Override::Weight(weight)) = update.0
            && weight > weir_model::MAX_WEIGHT
        {
            let max = weir_model::MAX_WEIGHT;
            return Err(ApiError::new(format!(
                "weight {weight} is above the maximum {max}"
            )));
        }
        self.plane
            .update_server(pool, address, update)
            .await
            .map_err(ApiError::new)?;
        self.configure_checks();
        self.notify_pool_changes();
        let (state, weight) = match update.0 {
            Some(Override::Drain) => (Some("drain"), None),
            Some(Override::Maint) => (Some("maint"), None),
            None => (Some("ready"), None),
            Some(Override::Weight(weight)) => (None, Some(weight)),
        };
        tracing::info!(pool, address, state, weight, "an operator changed a server");
        Ok(name)
    }

    /// Returns a server's current state across all services that use its pool.
    pub(super) fn server_status(
        &self,
        pool: &str,
        address: &str,
    ) -> Result<ServerStatus, ApiError> {
        let name = self.find(pool, address)?;
        let address = name.as_str();
        let snapshot = self.plane.snapshot().map_err(ApiError::new)?;
        let (open, closed) = self
            .plane
            .connections(pool, address)
            .map_err(ApiError::new)?;
        let unused = ServerStatus {
            pool: pool.to_owned(),
            address: address.to_owned(),
            open_connections: open + self.runtime_dir.draining_connections(pool, address),
            closed_connections: closed,
            ..ServerStatus::default()
        };
        let layer_4 = snapshot
            .services
            .iter()
            .filter(|service| service.pool == pool);
        let layer_4 = layer_4.flat_map(|service| &service.servers);
        let matching_servers = layer_4.filter(|server| server.name == address && !server.removed);
        // If a server is down only in some services, because of their paths, do not report it as down.
        if let Some(server) =
            matching_servers.min_by_key(|server| server.state == ServerState::Down)
        {
            return Ok(ServerStatus {
                state: server.state.as_str().to_owned(),
                reason: server.reason.clone(),
                weight: server.weight,
                effective_weight: server.effective_weight,
                overridden: server.overridden.clone(),
                ..unused
            });
        }
        let proxied = snapshot.proxies.iter().flat_map(|proxy| &proxy.servers);
        let mut proxied = proxied.filter(|server| server.numbers.pool == pool);
        if let Some(server) = proxied.find(|server| server.numbers.name == address) {
            return Ok(ServerStatus {
                state: server.state.as_str().to_owned(),
                reason: server.reason.clone(),
                weight: server.weight,
                effective_weight: server.numbers.effective_weight,
                overridden: server.overridden.clone(),
                ..unused
            });
        }
        // No service uses the pool.
        let weight = self
            .desired
            .pool(pool)
            .and_then(|pool| pool.server(address));
        Ok(ServerStatus {
            state: "unused".to_owned(),
            weight: weight.map_or(0, |server| server.weight),
            ..unused
        })
    }

    /// Returns the server's name in the file.
    pub(super) fn find(&self, pool: &str, address: &str) -> Result<String, ApiError> {
        match self.desired.pool(pool) {
            // The configuration does not contain servers created with ipvsadm. The plane rejects unknown ones.
            None if weir_engine::is_from_ipvsadm(pool) => Ok(address.to_owned()),
            None => Err(unknown_pool(&self.desired, pool)),
            Some(configured_pool) => match find_server(&self.desired, configured_pool, address) {
                Some(server) => Ok(server.name.clone()),
                None => Err(ApiError::new(format!(
                    "pool {pool} has no server {address}; it has {}",
                    server_names(configured_pool)
                ))),
            },
        }
    }
}

/// Returns the server with that name, or the only server with that address and port. A server without a configured port
/// also matches the ports of its services' listeners, as shown by `weir status`, the ipvsadm listing and the logs.
fn find_server<'a>(desired: &Desired, pool: &'a Pool, name_or_address: &str) -> Option<&'a Server> {
    if let Some(server) = pool.server(name_or_address) {
        return Some(server);
    }
    let with_port = name_or_address.parse::<SocketAddr>();
    let (address, port) = match with_port {
        Ok(endpoint) => (endpoint.ip(), Some(endpoint.port())),
        Err(_) => {
            let bracketed = name_or_address
                .strip_prefix('[')
                .and_then(|text| text.strip_suffix(']'));
            (bracketed.unwrap_or(name_or_address).parse().ok()?, None)
        }
    };
    let has_port = |server: &&Server| match (port, server.port) {
        (None, _) => true,
        (Some(port), Some(own)) => port == own,
        (Some(port), None) => listens(desired, &pool.name, port),
    };
    let with_same_address = pool
        .servers
        .iter()
        .filter(|server| server.address == address);
    let mut candidates = with_same_address.filter(has_port);
    let server = candidates.next()?;
    candidates.next().is_none().then_some(server)
}

/// Returns whether any service that uses the pool listens on the port.
fn listens(desired: &Desired, pool: &str, port: u16) -> bool {
    let layer_4 = desired
        .services
        .iter()
        .filter(|service| service.pool == pool);
    let mut listeners = layer_4.flat_map(|service| &service.listen);
    let proxies = desired.proxies.iter();
    let proxies = proxies.filter(|proxy| proxy.pools().contains(&pool));
    listeners.any(|listener| listener.ports.contains(port))
        || proxies
            .flat_map(|proxy| &proxy.listen)
            .any(|listen| listen.port() == port)
}

/// Returns the names of a pool's servers, for an error message.
fn server_names(pool: &Pool) -> String {
    if pool.servers.is_empty() {
        return "no servers".to_owned();
    }
    list_names(pool.servers.iter().map(|server| server.name.as_str()))
}

/// Returns the error for a pool that is not configured.
pub(super) fn unknown_pool(desired: &Desired, pool: &str) -> ApiError {
    if desired.pools.is_empty() {
        return ApiError::new(format!("there is no pool {pool}; no pools are configured"));
    }
    let names = list_names(desired.pools.iter().map(|pool| pool.name.as_str()));
    ApiError::new(format!("there is no pool {pool}; the pools are {names}"))
}

fn list_names<'a>(names: impl ExactSizeIterator<Item = &'a str>) -> String {
    const MAX_SHOWN: usize = 8;
    let more = names.len().saturating_sub(MAX_SHOWN);
    let mut text = names.take(MAX_SHOWN).collect::<Vec<_>>().join(", ");
    if more > 0 {
        text += &format!(" and {more} more");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_config::{Host, parse};

    #[test]
    fn error_for_unknown_pool_lists_the_pools() {
        let text: String = (0..10)
            .map(|pool| format!("[pool.p{pool}]\nservers = [\"10.0.0.5\"]\n"))
            .collect();
        let desired = parse(&text, &Host::default()).unwrap().desired;
        assert_eq!(
            unknown_pool(&desired, "q").error,
            "there is no pool q; the pools are p0, p1, p2, p3, p4, p5, p6, p7 and 2 more"
        );
        assert_eq!(
            unknown_pool(&Desired::default(), "q").error,
            "there is no pool q; no pools are configured"
        );
    }

    #[test]
    fn server_is_found_by_address_and_listener_port() {
        let text = "[pool.web]\nservers = [\"10.0.0.5\", \"10.0.0.6:8080\", \"10.0.0.7:80\", \"10.0.0.7:81\"]\n\
            [service.web]\nlisten = [\"192.0.2.10:80\", \"192.0.2.10:90-95\"]\nforward = \"nat\"\npool = \"web\"\n\
            [service.www]\nlisten = [\"192.0.2.10:8000\"]\nforward = \"proxy\"\nprotocol = \"http\"\npool = \"web\"\n";
        let desired = parse(text, &Host::default()).unwrap().desired;
        let pool = desired.pool("web").unwrap();
        let name = |text| find_server(&desired, pool, text).map(|server| server.name.as_str());
        for (text, server) in [
            ("10.0.0.5", Some("10.0.0.5")),
            ("10.0.0.5:80", Some("10.0.0.5")),
            ("10.0.0.5:93", Some("10.0.0.5")),
            ("10.0.0.5:8000", Some("10.0.0.5")),
            ("10.0.0.5:443", None),
            ("10.0.0.6:8080", Some("10.0.0.6:8080")),
            ("10.0.0.6", Some("10.0.0.6:8080")),
            ("10.0.0.6:80", None),
            ("10.0.0.7:81", Some("10.0.0.7:81")),
            // Two servers have this address.
            ("10.0.0.7", None),
            ("10.0.0.8:80", None),
            ("web1", None),
        ] {
            assert_eq!(name(text), server, "{text}");
        }
    }

    #[test]
    fn brackets_around_ipv6_address_are_optional() {
        let text = "[pool.six]\nservers = [\"fd00::5\", \"[fd00::6]\"]\n";
        let desired = parse(text, &Host::default()).unwrap().desired;
        let pool = desired.pool("six").unwrap();
        for (text, server) in [
            ("fd00::5", "fd00::5"),
            ("[fd00::5]", "fd00::5"),
            ("fd00::6", "[fd00::6]"),
            ("[fd00::6]", "[fd00::6]"),
        ] {
            let result = find_server(&desired, pool, text);
            assert_eq!(
                result.map(|server| server.name.as_str()),
                Some(server),
                "{text}"
            );
        }
    }
}
