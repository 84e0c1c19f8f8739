//! Installs the real server's programs, which decapsulate packets, restore VIPs and rewrite replies.
//!
//! [`RealServer`] installs one set of [`Rules`] on a set of [`Hook`]s and returns the installed state. Every change
//! loads the programs again, with filled maps, and switches each hook with one atomic link update. Each packet is
//! therefore processed by either the old rules or the new rules, and a newer build never uses maps with an older
//! layout. Only links are pinned (`PIN_DIR/real-server/link-IFINDEX-DIRECTION`): programs and maps are found through
//! the links and freed with them, so the state is consistent even if the process is killed. Kernels before Linux 6.6
//! have no tcx links; on these, a clsact filter and a pinned program (`filter-…`) are used instead.
//!
//! The caller chooses rules and interfaces and manages addresses and sysctls. This module works in the calling thread's
//! network namespace.

mod error;
mod hook;
mod maps;
mod pin;
mod rules;

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use aya::EbpfLoader;
use aya::maps::{Map, MapData, PerCpuArray, PerCpuValues};
use aya::programs::SchedClassifier;

pub use error::{Error, Result};
pub use hook::{Direction, Hook};
pub use rules::{Mark, Ports, Prefix, Rules, TunnelSet, TunnelVip};

use maps::{ReadMaps, write_maps};
use pin::Pins;

use crate::verify::load_until_verified;

static OBJECT: &[u8] =
    aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/weir_real_server.bpf.o"));

/// The counts, in the order of `enum rs_count` in `bpf/lib/real_server_abi.h`: label and meaning.
pub const COUNTS: [(&str, &str); 12] = [
    ("decapsulated", "tunnel packets decapsulated for a VIP"),
    (
        "turned-back",
        "marked packets whose destination was set to the VIP",
    ),
    ("reply-rewritten", "replies whose source was set to the VIP"),
    (
        "error-translated",
        "ICMP errors translated, in either direction",
    ),
    (
        "pass-not-vip",
        "tunnel packets whose inner destination is not a VIP of that tunnel",
    ),
    (
        "pass-fragment",
        "fragments of tunnel packets, and later fragments whose first fragment was not seen",
    ),
    (
        "pass-headers",
        "unsupported tunnel options or extension headers",
    ),
    ("pass-except", "replies to a client in `--except`"),
    (
        "drop-malformed",
        "tunnel packets that are too short or contain no IP packet",
    ),
    (
        "drop-ecn",
        "tunnel packets marked CE (congestion experienced) although their flow does not support ECN",
    ),
    ("drop-failed", "the kernel failed to modify the packet"),
    (
        "second-hop",
        "packets of unknown connections, sent to the second hop that the director specified",
    ),
];

/// Returns an FNV-1a hash of the object, which identifies this build's programs.
pub fn object_id() -> u64 {
    OBJECT.iter().fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3)
    })
}

/// The installed state of one pin directory.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct InstalledState {
    /// The active rules; `None` if nothing is attached, the rules of the hooks differ, or the maps are from a different
    /// build.
    pub rules: Option<Rules>,
    /// The hooks to which the programs are attached.
    pub hooks: Vec<Hook>,
    /// Pins whose program is no longer attached: the interface was removed, or another process detached the program.
    pub stale: usize,
    /// Totals over all CPUs, in the order of [`COUNTS`]; preserved when the rules change.
    pub counts: [u64; COUNTS.len()],
}

/// Returns the IDs of all tcx programs, including those of other software, in one direction of an interface.
///
/// # Errors
/// Fails if the interface does not exist, `CAP_NET_ADMIN` is missing, or the kernel has no tcx.
pub fn programs_at(interface: &str, direction: Direction) -> Result<Vec<u32>> {
    let found = SchedClassifier::query_tcx(interface, direction.tc());
    let (_, programs) = found.map_err(|source| Error::program("query", source))?;
    Ok(programs
        .iter()
        .map(aya::programs::ProgramInfo::id)
        .collect())
}

/// The programs of one pin directory.
#[derive(Debug, Clone)]
pub struct RealServer {
    pins: Pins,
}

impl RealServer {
    /// Creates a `RealServer` for `pin_dir`/real-server without accessing the directory. `interfaces` contains the
    /// ifindex and name of each existing interface.
    pub fn new(pin_dir: impl AsRef<Path>, interfaces: Vec<(u32, String)>) -> Self {
        Self {
            pins: Pins::new(pin_dir.as_ref().join("real-server"), interfaces),
        }
    }

    /// Returns the directory of the pins.
    pub fn pin_dir(&self) -> PathBuf {
        self.pins.dir().to_owned()
    }

    /// Returns the installed state.
    ///
    /// # Errors
    /// Fails if pins cannot be read, usually because `CAP_BPF` is missing.
    pub fn observe(&self) -> Result<InstalledState> {
        let mut observed = InstalledState::default();
        let mut map_ids = BTreeSet::new();
        for pin in self.pins.list()? {
            let Some(interface) = self.pins.interface(pin.ifindex()) else {
                observed.stale += 1;
                continue;
            };
            let Some(program) = self.pins.program(&pin, interface)? else {
                observed.stale += 1;
                continue;
            };
            let hook = Hook {
                ifindex: pin.ifindex(),
                interface: interface.to_owned(),
                direction: pin.direction(),
            };
            observed.hooks.push(hook);
            map_ids.extend(
                program
                    .map_ids()
                    .map_err(|source| Error::program("inspect", source))?
                    .unwrap_or_default(),
            );
        }
        observed.hooks.sort();
        if !map_ids.is_empty() {
            let maps = ReadMaps::open(&map_ids)?;
            observed.counts = maps.counts()?;
            observed.rules = maps.rules();
        }
        Ok(observed)
    }

    /// Installs `rules` on exactly `hooks`.
    ///
    /// # Errors
    /// Fails if the rules exceed a limit of the maps, or loading, attaching or pinning fails. In this case, each
    /// existing hook has either the old or the new rules.
    pub fn install(&self, rules: &Rules, hooks: &[Hook]) -> Result<()> {
        rules.check()?;
        self.pins.prepare()?;
        let counts = self.observe()?.counts;
        let mut object = EbpfLoader::new().load(OBJECT).map_err(Error::load)?;
        write_maps(&mut object, rules)?;
        seed_counts(object.map_mut("weir_rs_counts"), counts)?;
        for direction in [Direction::Ingress, Direction::Egress] {
            let hooks_of_direction: Vec<_> = hooks
                .iter()
                .filter(|hook| hook.direction == direction)
                .collect();
            if hooks_of_direction.is_empty() {
                continue;
            }
            let program: &mut SchedClassifier = object
                .program_mut(direction.program())
                .ok_or(Error::Object {
                    missing: direction.program(),
                })?
                .try_into()
                .map_err(|source| Error::program("find", source))?;
            load_until_verified(|| program.load())
                .map_err(|source| Error::program("load", source))?;
            for hook in hooks_of_direction {
                self.pins.attach(program, hook)?;
            }
        }
        self.pins.remove_all_except(hooks)
    }

    /// Removes every program and pin.
    ///
    /// # Errors
    /// Fails if a pin cannot be removed.
    pub fn remove(&self) -> Result<()> {
        self.pins.remove_all_except(&[])?;
        self.pins.remove_dir();
        Ok(())
    }
}

/// Initializes the counts of the new generation with those of the old generation. Packets that the old generation
/// counts after this, until it is replaced, are missing from the new counts.
fn seed_counts(map: Option<&mut Map>, counts: [u64; COUNTS.len()]) -> Result<()> {
    let map = map.ok_or(Error::Object {
        missing: "weir_rs_counts",
    })?;
    let mut array: PerCpuArray<&mut MapData, u64> =
        PerCpuArray::try_from(map).map_err(|source| Error::map("weir_rs_counts", source))?;
    let cpus = aya::util::nr_cpus().map_err(|(subject, source)| Error::Cpus { subject, source })?;
    for (index, count) in counts
        .into_iter()
        .enumerate()
        .filter(|(_, count)| *count != 0)
    {
        let mut values = vec![0; cpus];
        if let Some(first) = values.first_mut() {
            *first = count;
        }
        let values = PerCpuValues::try_from(values).map_err(|source| Error::Cpus {
            subject: "counts",
            source,
        })?;
        array
            .set(index as u32, values, 0)
            .map_err(|source| Error::map("weir_rs_counts", source))?;
    }
    Ok(())
}
