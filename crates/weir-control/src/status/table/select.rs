//! Parts of a document: one pool, or servers that are down.

use super::super::{Report, Server};

/// No service uses a pool of this name.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("pool {name}: not found{}", others(.name, .pools, .of_service.as_deref()))]
pub struct UnknownPool {
    name: String,
    pools: Vec<String>,
    /// The pool of the service that has this name.
    of_service: Option<String>,
}

fn others(name: &str, pools: &[String], of_service: Option<&str>) -> String {
    if let Some(pool) = of_service {
        format!("; the service {name} uses pool {pool}: `weir status {pool}`")
    } else if pools.is_empty() {
        "; no service has a pool".to_owned()
    } else {
        format!("; services use {}", pools.join(", "))
    }
}

/// Reduces the document to one pool, and to servers that get no clients because they are down or ejected. Services
/// without such servers are removed, and so are the counts of packets.
///
/// # Errors
/// No service uses the pool.
pub fn select(report: &mut Report, pool: Option<&str>, down: bool) -> Result<(), UnknownPool> {
    if pool.is_none() && !down {
        return Ok(());
    }
    let mut pools = Vec::new();
    let mut is_known = pool.is_none();
    for service in &mut report.services {
        let own = service.pool.clone();
        let of = |server: &Server| server.pool.clone().unwrap_or_else(|| own.clone());
        for name in service.servers.iter().map(of).chain([own.clone()]) {
            is_known |= pool == Some(&*name);
            if !pools.contains(&name) {
                pools.push(name);
            }
        }
        service.servers.retain(|server| {
            pool.is_none_or(|pool| *pool == of(server))
                && (!down || server.state == "down" || server.ejected.is_some())
        });
    }
    if let Some(name) = pool.filter(|_| !is_known) {
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
