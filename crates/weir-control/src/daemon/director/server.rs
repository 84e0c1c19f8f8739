//! Servers at run time: what operators change, and what becomes of their connections.

use weir_model::Pool;

use super::Director;
use crate::api::{Refusal, ServerNow, ServerRequest};
use crate::daemon::plane::Plane;
use crate::engine;
use crate::snapshot::ServerState;

impl<P: Plane> Director<P> {
    /// Changes a server at run time.
    pub(super) async fn server(
        &mut self,
        pool: &str,
        address: &str,
        request: ServerRequest,
    ) -> Result<ServerNow, Refusal> {
        self.find(pool, address)?;
        if let ServerRequest::Weight(weight) = request
            && weight > weir_model::MAX_WEIGHT
        {
            let most = weir_model::MAX_WEIGHT;
            return Err(Refusal::new(format!("weight {weight} is above {most}")));
        }
        self.plane
            .order_server(pool, address, request)
            .await
            .map_err(Refusal::new)?;
        self.check();
        self.tell_turns();
        let (state, weight) = match request {
            ServerRequest::State(state) => (Some(state.as_str()), None),
            ServerRequest::Weight(weight) => (None, Some(weight)),
        };
        tracing::info!(
            pool,
            address,
            state,
            weight,
            "server changed by an operator"
        );
        self.server_now(pool, address)
    }

    /// A server as it is now, over all services that use its pool.
    pub(super) fn server_now(&self, pool: &str, address: &str) -> Result<ServerNow, Refusal> {
        self.find(pool, address)?;
        let snapshot = self.plane.snapshot().map_err(Refusal::new)?;
        let (open, closed) = self
            .plane
            .connections(pool, address)
            .map_err(Refusal::new)?;
        let now = ServerNow {
            pool: pool.to_owned(),
            address: address.to_owned(),
            open_connections: open,
            closed_connections: closed,
            ..ServerNow::default()
        };
        let layer_4 = snapshot.services.iter().filter(|it| it.pool == pool);
        let layer_4 = layer_4.flat_map(|service| &service.servers);
        let in_services = layer_4.filter(|it| it.name == address && !it.removed);
        // A path that is broken in one service does not take the server down.
        if let Some(server) = in_services.min_by_key(|it| it.state == ServerState::Down) {
            return Ok(ServerNow {
                state: server.state.as_str().to_owned(),
                reason: server.reason.clone(),
                weight: server.weight,
                effective_weight: server.effective_weight,
                overridden: server.overridden.clone(),
                ..now
            });
        }
        let proxied = snapshot.proxies.iter().flat_map(|proxy| &proxy.servers);
        let mut proxied = proxied.filter(|it| it.numbers.pool == pool);
        if let Some(server) = proxied.find(|it| it.numbers.name == address) {
            return Ok(ServerNow {
                state: server.state.as_str().to_owned(),
                reason: server.reason.clone(),
                weight: server.weight,
                effective_weight: server.numbers.effective_weight,
                overridden: server.overridden.clone(),
                ..now
            });
        }
        // No service uses its pool.
        let weight = self
            .desired
            .pool(pool)
            .and_then(|pool| pool.server(address));
        Ok(ServerNow {
            state: "unused".to_owned(),
            weight: weight.map_or(0, |server| server.weight),
            ..now
        })
    }

    fn find(&self, pool: &str, address: &str) -> Result<(), Refusal> {
        match self.desired.pool(pool) {
            // The plane knows what ipvsadm made, and refuses what it does not.
            None if engine::is_made(pool) => Ok(()),
            None => Err(Refusal::new(format!("there is no pool {pool}"))),
            Some(found) if found.server(address).is_none() => Err(Refusal::new(format!(
                "pool {pool} has no server {address}; it has {}",
                named(found)
            ))),
            Some(_) => Ok(()),
        }
    }
}

/// The servers of a pool, as far as a line holds them.
fn named(pool: &Pool) -> String {
    const SHOWN: usize = 8;
    let names = pool.servers.iter().map(|server| server.name.as_str());
    let mut text = names.take(SHOWN).collect::<Vec<_>>().join(", ");
    if let Some(more) = pool.servers.len().checked_sub(SHOWN + 1) {
        text += &format!(" and {} more", more + 1);
    }
    text
}
