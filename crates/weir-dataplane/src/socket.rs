//! Attaches the programs that balance connections of clients on this machine to cgroups, through pinned links.
//!
//! Every cgroup has a number, its scope; the cgroup's programs use only listeners with this number. The programs share
//! services, servers and counts with the director's programs. Scope and cgroup are read from the pinned links, so that
//! a new process continues to use them. If the process dies between two steps of attaching, the next [`attach`]
//! completes them.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd};
use std::path::PathBuf;

use weir_abi::{Socket, SocketKey, SocketListener};

use crate::dataplane::Dataplane;
use crate::error::{Context, Result};
use crate::loader::{self, Constant, MapSource};
use crate::pins::{PinDir, entries, file_name, remove_file};
use crate::plan;
use crate::spec::SOCKET_MAPS;
use crate::sys::{self, Access, AttachType};
use crate::table::Table;

const OBJECT: &str = "weir_socket";

/// Maximum scope: it is one byte in a socket's record.
pub const MAX_SCOPE: u32 = 255;

/// A cgroup hook: the suffix of its pin, its program, and whether it selects servers.
struct Hook {
    name: &'static str,
    program: &'static str,
    kind: AttachType,
    selects: bool,
}

const fn hook(name: &'static str, program: &'static str, kind: AttachType, selects: bool) -> Hook {
    Hook {
        name,
        program,
        kind,
        selects,
    }
}

/// The hooks, in the order in which they are attached: a socket is counted only after the hook that observes its
/// release is attached.
const HOOKS: [Hook; 10] = [
    hook(
        "release",
        "weir_sock_release",
        AttachType::SockRelease,
        false,
    ),
    hook("recvmsg4", "weir_recvmsg4", AttachType::Recvmsg4, false),
    hook("recvmsg6", "weir_recvmsg6", AttachType::Recvmsg6, false),
    hook(
        "getpeername4",
        "weir_getpeername4",
        AttachType::Getpeername4,
        false,
    ),
    hook(
        "getpeername6",
        "weir_getpeername6",
        AttachType::Getpeername6,
        false,
    ),
    hook("sockops", "weir_sock_ops", AttachType::SockOps, true),
    hook("connect4", "weir_connect4", AttachType::Connect4, true),
    hook("connect6", "weir_connect6", AttachType::Connect6, true),
    hook("sendmsg4", "weir_sendmsg4", AttachType::Sendmsg4, true),
    hook("sendmsg6", "weir_sendmsg6", AttachType::Sendmsg6, true),
];

/// Returns a pinned link's scope and hook index.
pub(crate) fn parse_link(name: &str) -> Option<(u32, usize)> {
    let (scope, hook) = name.strip_prefix("link-")?.split_once('-')?;
    let hook = HOOKS.iter().position(|candidate| candidate.name == hook)?;
    Some((scope.parse().ok()?, hook))
}

fn link_path(pins: &PinDir, scope: u32, hook: &Hook) -> PathBuf {
    pins.sockets().join(format!("link-{scope}-{}", hook.name))
}

/// An attached scope.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Scope {
    /// ID of the cgroup; 0 = the cgroup was removed.
    pub cgroup: u64,
    /// Whether all hooks are attached. If not, usually only the hooks that open sockets still need are attached.
    pub complete: bool,
}

/// Returns the attached scopes.
///
/// # Errors
/// Fails if a pin cannot be read.
pub fn scopes(pins: &PinDir) -> Result<BTreeMap<u32, Scope>> {
    let mut scopes: BTreeMap<u32, (u64, usize)> = BTreeMap::new();
    for (scope, hook) in links(pins)? {
        let path = link_path(pins, scope, &HOOKS[hook]);
        let object = sys::open_pin(&path, Access::Full).at(&path)?;
        let info = sys::cgroup_link_info(object.as_fd()).at(&path)?;
        let found = scopes.entry(scope).or_insert((info.cgroup, 0));
        found.1 += 1;
        if info.cgroup == 0 {
            found.0 = 0;
        }
    }
    let scopes = scopes.into_iter();
    Ok(scopes
        .map(|(scope, (cgroup, hooks))| {
            let complete = hooks == HOOKS.len();
            (scope, Scope { cgroup, complete })
        })
        .collect())
}

/// Returns the scope and hook index of every pinned link.
fn links(pins: &PinDir) -> Result<Vec<(u32, usize)>> {
    let directory = pins.sockets();
    if !directory.exists() {
        return Ok(Vec::new());
    }
    let mut links: Vec<_> = entries(&directory)?
        .filter_map(|path| parse_link(file_name(&path)))
        .collect();
    links.sort_unstable();
    Ok(links)
}

/// The maps of the programs.
#[derive(Debug)]
pub struct Sockets {
    /// Service rows by listener and scope.
    pub listeners: Table<SocketListener, u32>,
    /// The servers that sockets are connected to.
    pub sockets: Table<SocketKey, Socket>,
}

impl Sockets {
    /// Opens the pinned maps, or creates them.
    ///
    /// # Errors
    /// Fails if a pinned map does not have the properties that this build expects, or the kernel rejects the request.
    pub fn open(plane: &Dataplane) -> Result<Self> {
        let directory = plane.pins().sockets();
        let is_map_missing = SOCKET_MAPS
            .iter()
            .any(|spec| !directory.join(spec.name).exists());
        if is_map_missing {
            std::fs::create_dir_all(&directory).at(&directory)?;
            drop(loader::prepare(OBJECT, &sources(plane), &[])?);
        }
        Self::open_pinned(plane.pins(), Access::Full)
    }

    /// Opens the pinned maps for reading; `None` = there are none.
    ///
    /// # Errors
    /// See [`Self::open`].
    pub fn read(pins: &PinDir) -> Result<Option<Self>> {
        if !pins.sockets().join(SOCKET_MAPS[0].name).exists() {
            return Ok(None);
        }
        Self::open_pinned(pins, Access::Read).map(Some)
    }

    fn open_pinned(pins: &PinDir, access: Access) -> Result<Self> {
        let directory = pins.sockets();
        let sizes = crate::layout::Sizes::default();
        for spec in SOCKET_MAPS {
            let path = directory.join(spec.name);
            let map = sys::open_pin(&path, access).at(&path)?;
            spec.check(&sizes, &sys::map_info(map.as_fd()).at(&path)?)?;
        }
        let open = |name: &str| {
            let path = directory.join(name);
            sys::open_pin(&path, access).at(&path)
        };
        Ok(Self {
            listeners: Table::new("weir_socket_listeners", open("weir_socket_listeners")?)?,
            sockets: Table::new("weir_sockets", open("weir_sockets")?)?,
        })
    }
}

/// Attaches the programs to a cgroup, or replaces the attached programs. `netns` limits them to clients in that network
/// namespace.
///
/// # Errors
/// Fails if the kernel rejects a program or an attachment; earlier attachments remain.
pub fn attach(
    plane: &Dataplane,
    scope: u32,
    cgroup: BorrowedFd<'_>,
    netns: Option<u64>,
) -> Result<()> {
    let mut constants = plan::constants(plane.record());
    constants.push(Constant {
        name: "weir_scope",
        bytes: scope.to_ne_bytes().to_vec(),
    });
    constants.push(Constant {
        name: "weir_netns",
        bytes: netns.unwrap_or(0).to_ne_bytes().to_vec(),
    });
    let programs = loader::load(OBJECT, &sources(plane), &constants)?;
    for hook in &HOOKS {
        let program = loader::program(&programs, hook.program)?;
        let path = link_path(plane.pins(), scope, hook);
        match sys::open_pin(&path, Access::Full) {
            Ok(link) => sys::link_update(link.as_fd(), program)
                .during("replace the program of", || path.display().to_string())?,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {
                let link = sys::cgroup_link_create(program, cgroup, hook.kind)
                    .during("attach", || format!("{} to the cgroup", hook.name))?;
                sys::pin(link.as_fd(), &path).at(&path)?;
            }
            Err(error) => return Err(error).at(&path),
        }
    }
    Ok(())
}

/// Detaches the hooks that select servers. The other hooks stay attached for the scope's open sockets.
///
/// # Errors
/// Fails if the kernel rejects the request.
pub fn stop_balancing(pins: &PinDir, scope: u32) -> Result<()> {
    HOOKS
        .iter()
        .rev()
        .filter(|hook| hook.selects)
        .try_for_each(|hook| detach_hook(pins, scope, hook))
}

/// Detaches all hooks of a scope.
///
/// # Errors
/// Fails if the kernel rejects the request.
pub fn detach(pins: &PinDir, scope: u32) -> Result<()> {
    HOOKS
        .iter()
        .rev()
        .try_for_each(|hook| detach_hook(pins, scope, hook))
}

/// Detaches all scopes.
pub(crate) fn detach_all(pins: &PinDir) -> Result<()> {
    let mut scopes: Vec<u32> = links(pins)?.into_iter().map(|(scope, _)| scope).collect();
    scopes.dedup();
    scopes.into_iter().try_for_each(|scope| detach(pins, scope))
}

fn detach_hook(pins: &PinDir, scope: u32, hook: &Hook) -> Result<()> {
    let path = link_path(pins, scope, hook);
    let link = match sys::open_pin(&path, Access::Full) {
        Ok(link) => link,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
        Err(error) => return Err(error).at(&path),
    };
    sys::link_detach(link.as_fd()).during("detach", || path.display().to_string())?;
    remove_file(&path)
}

fn sources(plane: &Dataplane) -> Vec<MapSource> {
    let mut sources = plan::sources(plane.pins(), plane.record());
    sources.retain(|source| !loader::PRIVATE_MAPS.contains(&source.name));
    let directory = plane.pins().sockets();
    let socket_maps = SOCKET_MAPS.iter().map(|spec| MapSource {
        name: spec.name,
        pin: directory.join(spec.name),
        entries: Some(spec.entries(plane.sizes())),
    });
    sources.extend(socket_maps);
    sources
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn link_names_round_trip() {
        let pins = PinDir::new("/pins");
        for (index, hook) in HOOKS.iter().enumerate() {
            let path = link_path(&pins, 7, hook);
            assert_eq!(parse_link(file_name(&path)), Some((7, index)));
        }
        assert_eq!(parse_link("link-x-connect4"), None);
        assert_eq!(parse_link("weir_sockets"), None);
    }
}
