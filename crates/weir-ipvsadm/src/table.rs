//! Stores services and servers, and applies the kernel's rules for changes.
//!
//! This table rejects the edits that the kernel's control plane rejects, with the same checks in the same order and the
//! same errors (ip_vs_ctl.c, Linux 6.12). A rejected edit has no effect. New entries are inserted at the front, as in
//! the kernel's lists.

use std::net::IpAddr;

use serde::{Deserialize, Serialize};
use weir_model::SchedulerKind;

use crate::{Mask, Server, ServerEdit, ServerKey, Service, ServiceKey, SyncDaemon, Timeouts};

/// A change to the table, the timeouts or the daemons.
#[derive(Clone, Debug, PartialEq, Eq, Hash, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Edit {
    /// Adds a service (`-A`).
    AddService(Service),
    /// Changes a service (`-E`).
    EditService(Service),
    /// Deletes a service and its servers (`-D`).
    DeleteService(ServiceKey),
    /// Deletes all services (`-C`).
    Clear,
    /// Adds a server (`-a`).
    AddServer(ServiceKey, Server),
    /// Changes a server (`-e`).
    EditServer(ServiceKey, ServerEdit),
    /// Deletes a server (`-d`).
    DeleteServer(ServiceKey, ServerKey),
    /// Sets timeouts (`--set`).
    Timeouts(Timeouts),
    /// Resets the counters of one service, or of all services if `None` (`-Z`).
    Zero(Option<ServiceKey>),
    /// Starts a synchronization daemon (`--start-daemon`).
    StartDaemon(SyncDaemon),
    /// Stops a synchronization daemon (`--stop-daemon`).
    StopDaemon(SyncDaemon),
}

impl Edit {
    /// Returns the key of the service that the edit changes, or `None` if the edit does not apply to a single service.
    pub const fn key(&self) -> Option<ServiceKey> {
        match self {
            Self::AddService(service) | Self::EditService(service) => Some(service.key),
            Self::DeleteService(key)
            | Self::AddServer(key, _)
            | Self::EditServer(key, _)
            | Self::DeleteServer(key, _)
            | Self::Zero(Some(key)) => Some(*key),
            Self::Clear
            | Self::Timeouts(_)
            | Self::Zero(None)
            | Self::StartDaemon(_)
            | Self::StopDaemon(_) => None,
        }
    }
}

/// The kernel's errors for an edit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Errno {
    /// `EEXIST`.
    Exists,
    /// `ENOENT`: the scheduler, persistence engine or server does not exist.
    NoEntry,
    /// `ESRCH`: the service or daemon does not exist.
    NoService,
    /// `EINVAL`.
    Invalid,
    /// `ERANGE`.
    Range,
    /// `EOPNOTSUPP`.
    NotSupported,
    /// `EPERM`.
    Permission,
}

/// Why an edit was rejected.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EditError {
    /// An error that the kernel would return.
    Errno(Errno),
    /// A conflict with weir.toml. The caller prepends the file's name to the message.
    File {
        /// Line number in the file.
        line: u32,
        /// The definition in this line.
        #[serde(rename = "words")]
        definition: String,
    },
    /// An error specific to Weir, for example a limit.
    #[serde(rename = "words")]
    Message(String),
}

impl From<Errno> for EditError {
    fn from(errno: Errno) -> Self {
        Self::Errno(errno)
    }
}

impl EditError {
    /// Returns the message that ipvsadm prints (libipvs.c: ipvs_strerror).
    pub fn message(&self, edit: &Edit) -> &str {
        let errno = match self {
            Self::Message(message)
            | Self::File {
                definition: message,
                ..
            } => return message,
            Self::Errno(errno) => *errno,
        };
        let is_about_service = matches!(
            edit,
            Edit::AddService(_) | Edit::EditService(_) | Edit::DeleteService(_) | Edit::Zero(_)
        );
        match errno {
            Errno::Exists if is_about_service => "Service already exists",
            Errno::Exists => "Destination already exists",
            Errno::NoEntry if is_about_service => "Scheduler or persistence engine not found",
            Errno::NoEntry => "No such destination",
            Errno::NoService if matches!(edit, Edit::StopDaemon(_)) => "No daemon is running",
            Errno::NoService if is_about_service => "No such service",
            Errno::NoService => "Service not defined",
            Errno::Invalid => {
                "Invalid operation.  Possibly wrong module version, address not unicast, ..."
            }
            Errno::Range => "Numerical result out of range",
            Errno::NotSupported => "Operation not supported",
            Errno::Permission => "Permission denied (you must be root)",
        }
    }
}

/// A service with its servers.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct TableService {
    /// The service.
    pub service: Service,
    /// The servers of the service, the newest first.
    pub servers: Vec<Server>,
}

/// Services added by ipvsadm, the newest first.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Table {
    services: Vec<TableService>,
}

impl Table {
    /// Returns the services, the newest first.
    pub fn services(&self) -> &[TableService] {
        &self.services
    }

    /// Returns whether there are no services.
    pub fn is_empty(&self) -> bool {
        self.services.is_empty()
    }

    /// Returns the service with this key.
    pub fn get(&self, key: &ServiceKey) -> Option<&TableService> {
        self.services.iter().find(|entry| entry.service.key == *key)
    }

    /// Applies an edit. Edits to timeouts, counters and daemons do not change the table.
    ///
    /// # Errors
    /// Returns the kernel's error; the table is unchanged.
    pub fn apply(&mut self, edit: &Edit) -> Result<(), Errno> {
        match edit {
            Edit::AddService(service) => self.add_service(service),
            Edit::EditService(service) => self.edit_service(service),
            Edit::DeleteService(key) => {
                let index = self.position(key)?;
                self.services.remove(index);
                Ok(())
            }
            Edit::Clear => {
                self.services.clear();
                Ok(())
            }
            Edit::AddServer(key, server) => self.add_server(key, server),
            Edit::EditServer(key, edit) => self.edit_server(key, &edit.server),
            Edit::DeleteServer(key, server) => {
                let entry = self.position(key).map(|index| &mut self.services[index])?;
                let index = entry.position(server)?;
                entry.servers.remove(index);
                Ok(())
            }
            Edit::Zero(Some(key)) => self.position(key).map(drop),
            Edit::Zero(None) | Edit::Timeouts(_) => Ok(()),
            Edit::StartDaemon(_) => Err(Errno::NotSupported),
            Edit::StopDaemon(_) => Err(Errno::NoService),
        }
    }

    fn position(&self, key: &ServiceKey) -> Result<usize, Errno> {
        let position = self
            .services
            .iter()
            .position(|entry| entry.service.key == *key);
        position.ok_or(Errno::NoService)
    }

    fn add_service(&mut self, service: &Service) -> Result<(), Errno> {
        if self.position(&service.key).is_ok() {
            return Err(Errno::Exists);
        }
        check_service(service)?;
        let entry = TableService {
            service: service.clone(),
            servers: Vec::new(),
        };
        self.services.insert(0, entry);
        Ok(())
    }

    fn edit_service(&mut self, service: &Service) -> Result<(), Errno> {
        let index = self.position(&service.key)?;
        check_service(service)?;
        self.services[index].service = service.clone();
        Ok(())
    }

    fn add_server(&mut self, key: &ServiceKey, server: &Server) -> Result<(), Errno> {
        let index = self.position(key)?;
        let entry = &mut self.services[index];
        check_server(server)?;
        if entry.position(&server.key).is_ok() {
            return Err(Errno::Exists);
        }
        if !is_unicast(server.key.address) {
            return Err(Errno::Invalid);
        }
        entry.servers.insert(0, *server);
        Ok(())
    }

    fn edit_server(&mut self, key: &ServiceKey, server: &Server) -> Result<(), Errno> {
        let entry = self.position(key).map(|index| &mut self.services[index])?;
        check_server(server)?;
        let index = entry.position(&server.key)?;
        entry.servers[index] = *server;
        Ok(())
    }
}

impl TableService {
    fn position(&self, key: &ServerKey) -> Result<usize, Errno> {
        let position = self.servers.iter().position(|server| server.key == *key);
        position.ok_or(Errno::NoEntry)
    }
}

/// The scheduler name that means no scheduler. A service without a scheduler rejects new connections.
pub(crate) const NO_SCHEDULER: &str = "none";

/// Returns the IPVS scheduler with this name, if this build includes it.
pub(crate) fn scheduler(name: &str) -> Option<SchedulerKind> {
    let kind: SchedulerKind = name.parse().ok()?;
    (kind.is_ipvs() && kind.works_at_layer4()).then_some(kind)
}

fn check_service(service: &Service) -> Result<(), Errno> {
    let is_valid = service.scheduler == NO_SCHEDULER || scheduler(&service.scheduler).is_some();
    if !is_valid || !service.engine.is_empty() {
        return Err(Errno::NoEntry);
    }
    match service.persistence.map(|persistence| persistence.mask) {
        // The kernel accepts non-contiguous masks, but Weir's templates support only prefixes.
        Some(Mask::V4(mask)) if mask == 0 || mask.leading_ones() != mask.count_ones() => {
            Err(Errno::Invalid)
        }
        Some(Mask::V6(0)) => Err(Errno::Invalid),
        Some(Mask::V6(length)) if length > 128 => Err(Errno::Invalid),
        _ => Ok(()),
    }
}

fn check_server(server: &Server) -> Result<(), Errno> {
    if server.lower > server.upper {
        return Err(Errno::Range);
    }
    Ok(())
}

/// Returns whether an address is unicast. Broadcast addresses of the host's networks also count as unicast.
fn is_unicast(address: IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => v4.octets()[0] != 0 && v4.octets()[0] < 224,
        IpAddr::V6(v6) => !v6.is_multicast() && !v6.is_unspecified(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Persistence, Protocol};

    #[test]
    fn only_ipvs_schedulers_are_found_by_name() {
        assert_eq!(scheduler("wlc"), Some(SchedulerKind::Wlc));
        for name in ["maglev", "p2c", "hash", "none", "x"] {
            assert_eq!(scheduler(name), None, "{name}");
        }
    }

    #[test]
    fn persistence_mask_is_a_prefix_of_at_least_one_bit() {
        for (mask, expected) in [
            (Mask::V4(0xffff_ff00), Ok(())),
            (Mask::V4(u32::MAX), Ok(())),
            (Mask::V4(0), Err(Errno::Invalid)),
            (Mask::V4(0xff00_ff00), Err(Errno::Invalid)),
            (Mask::V6(1), Ok(())),
            (Mask::V6(128), Ok(())),
            (Mask::V6(0), Err(Errno::Invalid)),
            (Mask::V6(129), Err(Errno::Invalid)),
        ] {
            let service = Service {
                key: ServiceKey::Address {
                    protocol: Protocol::Tcp,
                    address: IpAddr::from([10, 0, 0, 1]),
                    port: 80,
                },
                scheduler: "rr".to_owned(),
                flags: 0,
                persistence: Some(Persistence {
                    timeout_s: 300,
                    mask,
                }),
                engine: String::new(),
                one_packet: false,
            };
            let mut table = Table::default();
            assert_eq!(
                table.apply(&Edit::AddService(service)),
                expected,
                "{mask:?}"
            );
            assert_eq!(table.is_empty(), expected.is_err());
        }
    }
}
