//! The one task that owns the engine: takes orders in turn and answers them.
//!
//! It holds what is in force (configuration and its file) and knows neither sockets nor signals.

use std::path::{Path, PathBuf};

use weir_model::{Desired, diff};

use super::admin::Admin;
use super::plane::Plane;
use crate::api::{FileRequest, Order, Refusal, Reloaded, ServerRequest};
use crate::configuration::{self, Loaded, Rejected};
use crate::plan::{Plan, plan};
use crate::status::Report;

/// See the module.
#[derive(Debug)]
pub struct Director<P> {
    plane: P,
    desired: Desired,
    file: PathBuf,
    admin: Admin,
}

impl<P: Plane> Director<P> {
    /// Over an engine that has `desired`, which `file` holds, in force.
    pub fn new(plane: P, desired: Desired, file: PathBuf, admin: Admin) -> Self {
        Self {
            plane,
            desired,
            file,
            admin,
        }
    }

    /// The engine.
    pub fn plane(&mut self) -> &mut P {
        &mut self.plane
    }

    /// Carries an order out. A client that no longer waits changes nothing about it.
    pub async fn carry_out(&mut self, order: Order) {
        match order {
            Order::Status(reply) => {
                let _ = reply.send(self.status());
            }
            Order::Reload(request, reply) => {
                let _ = reply.send(self.reload(&request).await);
            }
            Order::Plan(request, reply) => {
                let _ = reply.send(self.plan(&request));
            }
            Order::Server {
                pool,
                address,
                request,
                reply,
            } => {
                let _ = reply.send(self.server(&pool, &address, request).await);
            }
            Order::Explain(packet, reply) => {
                let _ = reply.send(self.plane.explain(&packet).map_err(Refusal::new));
            }
        }
    }

    fn status(&self) -> Result<Report, Refusal> {
        let snapshot = self.plane.snapshot().map_err(Refusal::new)?;
        Ok(Report::from(&snapshot))
    }

    fn load(&self, request: &FileRequest) -> Result<(PathBuf, Loaded), Refusal> {
        let path: &Path = request.path.as_deref().unwrap_or(&self.file);
        if !path.is_absolute() {
            return Err(Refusal::new(format!(
                "{}: the path must be absolute",
                path.display()
            )));
        }
        let loaded = configuration::load(path, request.color).map_err(refused)?;
        Ok((path.to_owned(), loaded))
    }

    /// Brings a file into force, or leaves everything as it is.
    ///
    /// # Errors
    /// The file holds an error, or what it asks for cannot be had here.
    pub async fn reload(&mut self, request: &FileRequest) -> Result<Reloaded, Refusal> {
        let result = self.try_reload(request).await;
        match &result {
            Ok(reloaded) => tracing::info!(
                file = %self.file.display(),
                revision = reloaded.revision,
                changes = reloaded.changes.len(),
                "reloaded"
            ),
            Err(refusal) => tracing::error!(error = %refusal, "reload refused"),
        }
        result
    }

    async fn try_reload(&mut self, request: &FileRequest) -> Result<Reloaded, Refusal> {
        let (path, loaded) = self.load(request)?;
        let changes = diff(&self.desired, &loaded.desired);
        let admin = self.admin.prepare(loaded.desired.node.admin).await;
        let admin = admin.map_err(Refusal::new)?;
        self.plane
            .apply(&loaded.desired)
            .await
            .map_err(Refusal::new)?;
        self.admin.go(admin);
        self.desired = loaded.desired;
        self.file = path;
        Ok(Reloaded {
            revision: self.plane.snapshot().map_err(Refusal::new)?.revision,
            changes: changes.iter().map(ToString::to_string).collect(),
            findings: loaded.findings,
        })
    }

    fn plan(&self, request: &FileRequest) -> Result<Plan, Refusal> {
        let (_, loaded) = self.load(request)?;
        let live = |service: &str, server: Option<&str>| self.plane.live_flows(service, server);
        Ok(plan(&self.desired, &loaded.desired, &live))
    }

    async fn server(
        &mut self,
        pool: &str,
        address: &str,
        request: ServerRequest,
    ) -> Result<(), Refusal> {
        let Some(found) = self.desired.pool(pool) else {
            return Err(Refusal::new(format!("there is no pool {pool}")));
        };
        if found.server(address).is_none() {
            let known: Vec<&str> = found.servers.iter().map(|one| one.name.as_str()).collect();
            return Err(Refusal::new(format!(
                "pool {pool} has no server {address}; it has {}",
                known.join(", ")
            )));
        }
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
        tracing::info!(pool, address, ?request, "an operator's word");
        Ok(())
    }
}

fn refused(rejected: Rejected) -> Refusal {
    Refusal {
        error: rejected.summary,
        diagnostics: Some(rejected.diagnostics),
    }
}
