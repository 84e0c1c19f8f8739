//! Executes the requests of the API.

use std::time::SystemTime;

use super::Director;
use crate::api::{ApiError, Command};
use crate::plane::Plane;

impl<P: Plane> Director<P> {
    /// Executes a request, even if its client has disconnected. Upgrades are executed by `upgrade`, which responds to
    /// other requests in the meantime.
    pub async fn execute(&mut self, command: Command) {
        let Some(command) = self.respond_if_read_only(command) else {
            return;
        };
        match command {
            Command::Reload(request, caller, reply) => {
                self.execute_reload(&request, &caller, reply).await;
            }
            Command::Plan(request, caller, reply) => {
                let _ = reply.send(self.plan(&request, &caller).await);
            }
            Command::Server {
                pool,
                address,
                request,
                reply,
            } => self.change_server(&pool, &address, request, reply).await,
            Command::Member {
                pool,
                address,
                keys,
                reply,
            } => {
                self.request_member_change(&pool, &address, keys, reply)
                    .await
            }
            Command::Node(update, reply) => {
                let result = self.node.set_state(update, &self.configured);
                self.announce();
                let _ = reply.send(result.map(|()| update));
            }
            Command::Publish(request, reply) => self.publish(request, reply),
            Command::Ipvsadm(request, reply) => {
                let _ = reply.send(self.ipvsadm(&request).await);
            }
            Command::Upgrade(..)
            | Command::Status(_)
            | Command::History(..)
            | Command::ServerStatus { .. }
            | Command::Cluster(_)
            | Command::Explain(..)
            | Command::ExplainRequest(..) => {}
        }
    }

    /// Responds to a request that changes nothing. Returns any other request.
    pub(super) fn respond_if_read_only(&self, command: Command) -> Option<Command> {
        match command {
            Command::Status(reply) => {
                let _ = reply.send(self.status());
            }
            Command::History(service, reply) => {
                let now = SystemTime::UNIX_EPOCH.elapsed().unwrap_or_default();
                let _ = reply.send(Ok(self.history.report(service.as_deref(), now)));
            }
            Command::ServerStatus {
                pool,
                address,
                reply,
            } => {
                let _ = reply.send(self.server_status(&pool, &address));
            }
            Command::Cluster(reply) => {
                let group = self.group.status();
                let not_configured = || ApiError::new("[cluster] is not configured");
                let _ = reply.send(group.ok_or_else(not_configured));
            }
            Command::Explain(packet, reply) => {
                let _ = reply.send(self.explain(&packet));
            }
            Command::ExplainRequest(request, reply) => {
                let explanation = self
                    .status()
                    .map(|report| request.explain(&self.desired, Some(&report), &self.file));
                let _ = reply.send(explanation);
            }
            command @ (Command::Reload(..)
            | Command::Upgrade(..)
            | Command::Plan(..)
            | Command::Server { .. }
            | Command::Member { .. }
            | Command::Node(..)
            | Command::Publish(..)
            | Command::Ipvsadm(..)) => return Some(command),
        }
        None
    }
}
