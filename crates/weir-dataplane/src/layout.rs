//! Defines the sizes of the data plane, and reads and writes the pinned layout record.
//!
//! The record identifies the current state, flow table and programs. Replacing the record is the atomic step that
//! activates a new data plane. The record also contains the hash secret, on which the flow table depends.

#![allow(unsafe_code, reason = "the record is a map value")]

use std::os::fd::{AsFd, OwnedFd};
use std::path::Path;

use weir_abi::{
    ABI_FLOW_LAYOUT, ABI_FLOW_LAYOUT_OLDEST, ABI_HASH, ABI_VERSION, BUCKET_SLOTS, Bucket, DESTS_MAX,
};

use crate::error::{Context, Error, Result};
use crate::pins::PinDir;
use crate::pod::{self, Pod};
use crate::spec::ARRAY;
use crate::sys;

/// Sizes of the data plane's maps. The maps' memory is allocated when they are created, except that of hash maps with
/// `BPF_F_NO_PREALLOC`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
#[repr(C)]
pub struct Sizes {
    /// Number of service rows, including row 0.
    pub services: u32,
    /// Number of server rows, one per server in a service, including row 0; at most [`DESTS_MAX`].
    pub dests: u32,
    /// Number of rows with flow counts that all services of a pool share; they follow the server rows.
    pub pool_rows: u32,
    /// Number of 16-byte elements for lists, hash tables and ranges, including element 0.
    pub elements: u32,
    /// Number of flow entries; rounded up to whole buckets.
    pub flows: u32,
    /// Maximum number of service and SNAT addresses.
    pub vips: u32,
    /// Maximum number of exact listeners.
    pub listeners: u32,
    /// Maximum number of devices.
    pub devices: u32,
    /// Maximum number of fragmented datagrams that are tracked at the same time.
    pub fragments: u32,
}

impl Default for Sizes {
    fn default() -> Self {
        Self {
            services: 4_097,
            dests: 16_385,
            pool_rows: 16_385,
            elements: 450_638,
            flows: 1_048_576,
            vips: 16_384,
            listeners: 65_536,
            devices: 1_024,
            fragments: 8_192,
        }
    }
}

impl Sizes {
    /// Returns the number of buckets in the flow table.
    pub fn buckets(&self) -> u32 {
        self.flows.div_ceil(BUCKET_SLOTS)
    }

    /// Returns the number of rows with flow counts: the server rows and the pool rows.
    pub fn live_rows(&self) -> u32 {
        self.dests.saturating_add(self.pool_rows)
    }

    /// Checks that every size is in range.
    ///
    /// # Errors
    /// [`Error::Size`] for the first size that is out of range.
    pub fn check(&self) -> Result<()> {
        // The maxima limit every map to about 4 GiB.
        let limits = [
            ("services", self.services, 2, 1 << 20),
            ("dests", self.dests, 2, DESTS_MAX),
            ("pool_rows", self.pool_rows, 1, DESTS_MAX),
            ("elements", self.elements, 64, 1 << 27),
            ("flows", self.flows, BUCKET_SLOTS, 1 << 26),
            ("vips", self.vips, 1, 1 << 20),
            ("listeners", self.listeners, 1, 1 << 22),
            ("devices", self.devices, 1, 1 << 16),
            ("fragments", self.fragments, 16, 1 << 20),
        ];
        for (name, value, min, max) in limits {
            if !(min..=max).contains(&value) {
                return Err(Error::Size {
                    name,
                    value,
                    min,
                    max,
                });
            }
        }
        Ok(())
    }
}

/// Returns the number of home buckets in a flow table. The buckets after them are its stash.
pub(crate) fn home_bucket_count(layout: u32, buckets: u32) -> u32 {
    match layout {
        2 => buckets,
        _ => Bucket::home_count(buckets),
    }
}

/// Checks that this flow table layout is supported.
pub(crate) fn check_layout(layout: u32) -> Result<()> {
    if (ABI_FLOW_LAYOUT_OLDEST..=ABI_FLOW_LAYOUT).contains(&layout) {
        return Ok(());
    }
    Err(Error::Size {
        name: "flow_layout",
        value: layout,
        min: ABI_FLOW_LAYOUT_OLDEST,
        max: ABI_FLOW_LAYOUT,
    })
}

/// "WeirPins" in memory order.
const MAGIC: u64 = u64::from_le_bytes(*b"WeirPins");
/// Version of the record itself; new fields replace reserved zeros at the end.
const RECORD_VERSION: u32 = 1;

/// The value of the pinned one-element array `layout`.
#[repr(C)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct LayoutRecord {
    pub(crate) magic: u64,
    pub(crate) record_version: u32,
    pub(crate) abi_version: u32,
    pub(crate) abi_hash: u64,
    /// Hash of the objects that the programs were loaded from.
    pub(crate) object_hash: u64,
    /// Hash secret of the flow table.
    pub(crate) secret: [u64; 2],
    pub(crate) flow_layout: u32,
    /// The state's generation: the number in the name of the state directory.
    pub(crate) state: u32,
    /// The programs' generation: the number in the name of the program directory.
    pub(crate) programs: u32,
    /// Layout and number of buckets of the old flow table, whose entries must still be moved; 0 buckets = none.
    pub(crate) old_flow_layout: u32,
    pub(crate) old_buckets: u32,
    /// Number of buckets in the old table that the programs use; 0 = none.
    pub(crate) program_old_buckets: u32,
    pub(crate) sizes: Sizes,
    pub(crate) reserved_sizes: [u32; 23],
    pub(crate) reserved_words: [u64; 16],
}

// SAFETY: integers only; the assertion below shows that there is no padding.
unsafe impl Pod for LayoutRecord {}

const _: () = assert!(size_of::<LayoutRecord>() == 8 + 8 + 8 + 8 + 16 + 24 + 36 + 92 + 128);

impl LayoutRecord {
    /// Returns the record of a new data plane.
    pub(crate) fn new(sizes: Sizes, secret: [u64; 2], flow_layout: u32, object_hash: u64) -> Self {
        Self {
            magic: MAGIC,
            record_version: RECORD_VERSION,
            abi_version: ABI_VERSION,
            abi_hash: ABI_HASH,
            object_hash,
            secret,
            flow_layout,
            state: 1,
            programs: 1,
            old_flow_layout: 0,
            old_buckets: 0,
            program_old_buckets: 0,
            sizes,
            reserved_sizes: [0; 23],
            reserved_words: [0; 16],
        }
    }

    /// Reads the pinned record; `None` = not found.
    pub(crate) fn read(path: &Path) -> Result<Option<Self>> {
        let map = match sys::open_pin(path, sys::Access::Read) {
            Ok(map) => map,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(error) => return Err(error).at(path),
        };
        let foreign = |found: String| Error::ForeignLayout {
            path: path.to_owned(),
            found,
        };
        let info = sys::map_info(map.as_fd()).at(path)?;
        if (info.kind, info.key_size, info.value_size) != (ARRAY, 4, size_of::<Self>() as u32) {
            return Err(foreign(format!(
                "a map of type {} with {}-byte keys and {}-byte values",
                info.kind, info.key_size, info.value_size
            )));
        }
        let mut record = pod::zeroed::<Self>();
        let buffer = pod::slice_bytes_mut(std::slice::from_mut(&mut record));
        // SAFETY: the key is four bytes and the value is a record, as checked above.
        unsafe { sys::lookup(map.as_fd(), pod::bytes(&0u32), buffer) }.at(path)?;
        if record.magic != MAGIC {
            return Err(foreign(format!("magic {:#x}", record.magic)));
        }
        if record.record_version != RECORD_VERSION {
            return Err(foreign(format!("record version {}", record.record_version)));
        }
        Ok(Some(record))
    }

    /// Checks that the layouts of the record's flow tables are supported.
    pub(crate) fn check_layouts(&self, pins: &PinDir) -> Result<()> {
        let current = (self.flow_layout, self.sizes.buckets());
        let old = (self.old_flow_layout, self.old_buckets);
        let tables = [Some(current), Some(old).filter(|_| self.old_buckets > 0)];
        for (layout, buckets) in tables.into_iter().flatten() {
            if check_layout(layout).is_err() {
                return Err(Error::FlowLayout {
                    path: pins.flows(layout, buckets),
                    found: layout,
                    oldest: ABI_FLOW_LAYOUT_OLDEST,
                    newest: ABI_FLOW_LAYOUT,
                });
            }
        }
        Ok(())
    }

    /// Replaces the pinned record atomically: pins this record under a temporary name and renames the pin.
    pub(crate) fn commit(&self, path: &Path, staging: &Path) -> Result<()> {
        let map: OwnedFd = sys::create_record("weir_layout", size_of::<Self>() as u32)
            .during("create", || "the layout record".to_owned())?;
        // SAFETY: the key is four bytes and the value is a record: the map was created with these sizes.
        unsafe { sys::update(map.as_fd(), pod::bytes(&0u32), pod::bytes(self)) }.at(path)?;
        if let Err(error) = std::fs::remove_file(staging)
            && error.kind() != std::io::ErrorKind::NotFound
        {
            return Err(error).at(staging);
        }
        sys::pin(map.as_fd(), staging).at(staging)?;
        std::fs::rename(staging, path).at(path)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn flow_entries_are_rounded_up_to_buckets() {
        let sizes = Sizes {
            flows: 15,
            ..Sizes::default()
        };
        assert_eq!(sizes.buckets(), 3);
    }

    #[test]
    fn check_reports_size_out_of_range() {
        let sizes = Sizes {
            dests: DESTS_MAX + 1,
            ..Sizes::default()
        };
        assert!(matches!(
            sizes.check(),
            Err(Error::Size { name: "dests", .. })
        ));
        assert!(Sizes::default().check().is_ok());
    }
}
