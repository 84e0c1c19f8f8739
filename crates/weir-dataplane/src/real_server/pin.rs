//! Attaches the real server's programs, with or without tcx, and manages their pins.
//!
//! `link-IFINDEX-DIRECTION` is a tcx link: the program is attached while the pin exists.
//! `filter-IFINDEX-DIRECTION-PRIORITY-HANDLE` is the program of a clsact filter: the qdisc keeps the filter attached,
//! so it must be removed by priority and handle.

use std::fs;
use std::io;
use std::path::{Path, PathBuf};

use aya::programs::links::{FdLink, PinnedLink};
use aya::programs::tc::{self, NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle};
use aya::programs::{LinkOrder, ProgramInfo, SchedClassifier};
use aya::util::KernelVersion;
use weir_sys::{Bpffs, MountView, bpffs_at, mount_bpffs};

use super::{Direction, Error, Hook, Result};

/// The pin of a hook's program.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Pin {
    Link {
        ifindex: u32,
        direction: Direction,
    },
    Filter {
        ifindex: u32,
        direction: Direction,
        priority: u16,
        handle: u32,
    },
}

impl Pin {
    pub(super) const fn ifindex(&self) -> u32 {
        match *self {
            Self::Link { ifindex, .. } | Self::Filter { ifindex, .. } => ifindex,
        }
    }

    pub(super) const fn direction(&self) -> Direction {
        match *self {
            Self::Link { direction, .. } | Self::Filter { direction, .. } => direction,
        }
    }

    fn is_for(&self, hook: &Hook) -> bool {
        self.ifindex() == hook.ifindex && self.direction() == hook.direction
    }

    fn name(&self) -> String {
        match *self {
            Self::Link { ifindex, direction } => format!("link-{ifindex}-{direction}"),
            Self::Filter {
                ifindex,
                direction,
                priority,
                handle,
            } => {
                format!("filter-{ifindex}-{direction}-{priority}-{handle}")
            }
        }
    }

    fn parse(name: &str) -> Option<Self> {
        let mut parts = name.split('-');
        let kind = parts.next()?;
        let ifindex = parts.next()?.parse().ok()?;
        let direction = match parts.next()? {
            "ingress" => Direction::Ingress,
            "egress" => Direction::Egress,
            _ => return None,
        };
        let pin = match kind {
            "link" => Self::Link { ifindex, direction },
            "filter" => Self::Filter {
                ifindex,
                direction,
                priority: parts.next()?.parse().ok()?,
                handle: parts.next()?.parse().ok()?,
            },
            _ => return None,
        };
        (parts.next().is_none()).then_some(pin)
    }
}

/// Returns whether the closest existing ancestor of `path` is on a bpffs.
fn nearest_is_bpffs(path: &Path) -> Result<bool> {
    let existing = path.ancestors().find(|path| path.exists());
    Ok(bpffs_at(existing.unwrap_or(Path::new("/")))? == Bpffs::Mounted)
}

/// The directory of the pins, and the names of the existing interfaces.
#[derive(Debug, Clone)]
pub(super) struct Pins {
    dir: PathBuf,
    interfaces: Vec<(u32, String)>,
}

impl Pins {
    /// Creates a `Pins`. `interfaces` contains the ifindex and name of each existing interface.
    pub(super) const fn new(dir: PathBuf, interfaces: Vec<(u32, String)>) -> Self {
        Self { dir, interfaces }
    }

    pub(super) fn interface(&self, ifindex: u32) -> Option<&str> {
        let entry = self.interfaces.iter().find(|(index, _)| *index == ifindex);
        entry.map(|(_, name)| name.as_str())
    }

    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn path(&self, pin: &Pin) -> PathBuf {
        self.dir.join(pin.name())
    }

    /// Creates the directory on a bpffs. Mounts the bpffs on the pin directory's parent if necessary.
    pub(super) fn prepare(&self) -> Result<()> {
        let pin_dir = self.dir.parent().unwrap_or(&self.dir);
        let parent = pin_dir.parent().unwrap_or(pin_dir);
        let no_bpffs = |reason| Error::NoBpffs {
            path: parent.to_owned(),
            reason,
        };
        match bpffs_at(parent)? {
            Bpffs::Mounted => {}
            // If the path is on a bpffs, create the directories. Otherwise, mount a bpffs, like the director.
            Bpffs::Missing if nearest_is_bpffs(parent)? => {}
            Bpffs::Missing => {
                fs::create_dir_all(parent).map_err(|source| Error::pin(parent, source))?;
                mount_bpffs(parent)?;
            }
            Bpffs::NotMounted { .. } if bpffs_at(pin_dir)? == Bpffs::Mounted => {}
            Bpffs::NotMounted { .. } => {
                if MountView::current()?.resembles_ip_netns_exec() && parent.starts_with("/sys") {
                    return Err(no_bpffs(
                        "no bpffs in this mount namespace (`ip netns exec` creates a mount namespace that ends with \
                         its command); enter only the network namespace: nsenter --net=/run/netns/NAME",
                    ));
                }
                mount_bpffs(parent)?;
            }
        }
        fs::create_dir_all(&self.dir).map_err(|source| Error::pin(&self.dir, source))
    }

    /// Returns the pins in the directory. Ignores other files.
    pub(super) fn list(&self) -> Result<Vec<Pin>> {
        let entries = match fs::read_dir(&self.dir) {
            Ok(entries) => entries,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(Error::pin(&self.dir, source)),
        };
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        Ok(names.filter_map(|name| Pin::parse(&name)).collect())
    }

    /// Returns the program that `pin` attaches to `interface`; `None` = the link's program is no longer attached. For a
    /// clsact filter, this is not checked.
    pub(super) fn program(&self, pin: &Pin, interface: &str) -> Result<Option<ProgramInfo>> {
        let path = self.path(pin);
        if let Pin::Filter { .. } = pin {
            return ProgramInfo::from_pin(&path)
                .map(Some)
                .map_err(|source| Error::program("open", source));
        }
        let link: FdLink = PinnedLink::from_pin(&path)
            .map_err(|source| Error::link(&path, source))?
            .into();
        let id = link
            .info()
            .map_err(|source| Error::link(&path, source))?
            .program_id();
        let (_, programs) = SchedClassifier::query_tcx(interface, pin.direction().tc())
            .map_err(|source| Error::program("query", source))?;
        Ok(programs.into_iter().find(|program| program.id() == id))
    }

    /// Attaches `program` to `hook`, and replaces the previous program.
    pub(super) fn attach(&self, program: &mut SchedClassifier, hook: &Hook) -> Result<()> {
        let pin = Pin::Link {
            ifindex: hook.ifindex,
            direction: hook.direction,
        };
        let path = self.path(&pin);
        if path.exists() {
            let link: FdLink = PinnedLink::from_pin(&path)
                .map_err(|source| Error::link(&path, source))?
                .into();
            let replaced = SchedClassifierLink::try_from(link)
                .map_err(|source| Error::link(&path, source))
                .and_then(|link| {
                    program
                        .attach_to_link(link)
                        .map_err(|source| Error::program("replace", source))
                });
            if replaced.is_ok() && self.program(&pin, &hook.interface)?.is_some() {
                return Ok(());
            }
            // The link is detached: replace its pin with a new link.
            fs::remove_file(&path).map_err(|source| Error::pin(&path, source))?;
        }
        if !has_tcx() {
            return self.attach_filter(program, hook);
        }
        let order = TcAttachOptions::TcxOrder(LinkOrder::default());
        let link = program
            .attach_with_options(&hook.interface, hook.direction.tc(), order)
            .and_then(|id| program.take_link(id))
            .map_err(|source| Error::program("attach", source))?;
        let link: FdLink = link
            .try_into()
            .map_err(|source| Error::link(&path, source))?;
        link.pin(&path)
            .map_err(|source| Error::pin(&path, io::Error::other(source)))?;
        Ok(())
    }

    /// Attaches `program` with clsact. For a moment, the old and the new filter are both attached, and the second one
    /// has no effect on packets. If the process is killed before it pins the new program, a filter without a pin
    /// remains.
    fn attach_filter(&self, program: &mut SchedClassifier, hook: &Hook) -> Result<()> {
        // The qdisc may already exist. If the call fails for another reason, attaching the filter fails too.
        let _already_exists = tc::qdisc_add_clsact(&hook.interface);
        let old_pins: Vec<Pin> = self
            .list()?
            .into_iter()
            .filter(|pin| pin.is_for(hook))
            .collect();
        let link = program
            .attach_with_options(
                &hook.interface,
                hook.direction.tc(),
                TcAttachOptions::Netlink(NlOptions::default()),
            )
            .and_then(|id| program.take_link(id))
            .map_err(|source| Error::program("attach", source))?;
        let numbers = link
            .priority()
            .and_then(|priority| Ok((priority, link.handle()?)));
        let (priority, handle) = numbers.map_err(|source| Error::program("attach", source))?;
        let pin = Pin::Filter {
            ifindex: hook.ifindex,
            direction: hook.direction,
            priority,
            handle: handle.into(),
        };
        let path = self.path(&pin);
        program
            .pin(&path)
            .map_err(|source| Error::pin(&path, io::Error::other(source)))?;
        // The qdisc keeps the filter; dropping this handle would remove it.
        std::mem::forget(link);
        old_pins.iter().try_for_each(|old| self.remove(old))
    }

    /// Removes all programs except for those at `hooks`.
    pub(super) fn remove_all_except(&self, hooks: &[Hook]) -> Result<()> {
        let unwanted = |pin: &Pin| !hooks.iter().any(|hook| pin.is_for(hook));
        self.list()?
            .iter()
            .filter(|pin| unwanted(pin))
            .try_for_each(|pin| self.remove(pin))
    }

    fn remove(&self, pin: &Pin) -> Result<()> {
        let path = self.path(pin);
        if let Pin::Filter {
            ifindex,
            direction,
            priority,
            handle,
        } = *pin
            && let Some(interface) = self.interface(ifindex)
        {
            // Dropping a filter's handle removes the filter, unless it is already removed.
            drop(SchedClassifierLink::attached(
                interface,
                direction.tc(),
                priority,
                TcHandle::from(handle),
                None,
            ));
        }
        fs::remove_file(&path).map_err(|source| Error::pin(&path, source))
    }

    /// Removes the directories if they are empty.
    pub(super) fn remove_dir(&self) {
        if fs::remove_dir(&self.dir).is_ok()
            && let Some(pin_dir) = self.dir.parent()
        {
            let _in_use = fs::remove_dir(pin_dir);
        }
    }
}

/// Returns whether the kernel has tcx (Linux 6.6 and later). A version that cannot be parsed is assumed to be a newer
/// one.
fn has_tcx() -> bool {
    KernelVersion::current().map_or(true, |version| version >= KernelVersion::new(6, 6, 0))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pin_names_round_trip_and_others_are_rejected() {
        let (ifindex, direction) = (7, Direction::Egress);
        for pin in [
            Pin::Link { ifindex, direction },
            Pin::Filter {
                ifindex,
                direction,
                priority: 49152,
                handle: 1,
            },
        ] {
            assert_eq!(Pin::parse(&pin.name()), Some(pin));
        }
        for name in [
            "link-7",
            "link-7-up",
            "link--egress",
            "link-7-egress-1",
            "filter-7-egress",
            "prog-7-egress-1-1",
        ] {
            assert_eq!(Pin::parse(name), None, "{name}");
        }
    }
}
