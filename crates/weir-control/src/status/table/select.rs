//! Selects parts of a document: one pool, or servers that are down.

use super::super::{Report, Server};

/// The error if no service uses a pool with this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pool {name}: not found{}", suggestion(.name, .pools, .of_service.as_deref()))]
pub struct UnknownPool {
    name: String,
    pools: Vec<String>,
    /// The pool of the service named `name`; `None` = no service has this name.
    of_service: Option<String>,
}

fn suggestion(name: &str, pools: &[String], of_service: Option<&str>) -> String {
    if let Some(pool) = of_service {
        format!("; service {name} uses pool {pool}: run `weir status {pool}`")
    } else if pools.is_empty() {
        "; there are no services".to_owned()
    } else {
        format!("; pools in use: {}", pools.join(", "))
    }
}

/// Reduces the document to one pool (`pool`), to servers that are down or ejected (`down`), or both. Removes the packet
/// counters, and services without matching servers, except those of `pool` if `down` is false.
///
/// # Errors
/// Fails if no service uses the pool.
pub fn select(report: &mut Report, pool: Option<&str>, down: bool) -> Result<(), UnknownPool> {
    if pool.is_none() && !down {
        return Ok(());
    }
    let mut pools = Vec::new();
    let mut exists = pool.is_none();
    for service in &mut report.services {
        let service_pool = service.pool.clone();
        let pool_of = |server: &Server| server.pool.clone().unwrap_or_else(|| service_pool.clone());
        for name in service
            .servers
            .iter()
            .map(pool_of)
            .chain([service_pool.clone()])
        {
            exists |= pool == Some(&*name);
            if !pools.contains(&name) {
                pools.push(name);
            }
        }
        service.servers.retain(|server| {
            pool.is_none_or(|pool| *pool == pool_of(server))
                && (!down || server.state == "down" || server.ejected.is_some())
        });
    }
    if let Some(name) = pool.filter(|_| !exists) {
        let mut services = report.services.iter();
        let service = services.find(|service| service.name == name);
        return Err(UnknownPool {
            name: name.to_owned(),
            pools,
            of_service: service.map(|service| service.pool.clone()),
        });
    }
    report.services.retain(|service| {
        !service.servers.is_empty() || !down && pool == Some(service.pool.as_str())
    });
    report.reasons.clear();
    Ok(())
}
