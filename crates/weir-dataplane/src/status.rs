//! Opens a pinned data plane for reading while no daemon is running.

use weir_abi::ABI_VERSION;

use crate::attach::{Attachment, attachments};
use crate::error::{Error, Result};
use crate::layout::{LayoutRecord, Sizes};
use crate::maps::Maps;
use crate::pins::PinDir;
use crate::sys::Access;

/// A pinned data plane, open for reading.
#[derive(Debug)]
pub struct PinnedPlane {
    /// The maps, which are read-only.
    pub maps: Maps,
    /// Sizes of the maps.
    pub sizes: Sizes,
    /// The attachments of the programs.
    pub attachments: Vec<Attachment>,
}

/// Opens a pinned data plane read-only, for `weir status` while no daemon is running.
///
/// # Errors
/// [`Error::Absent`] if nothing is pinned, [`Error::ForeignLayout`] if its ABI version is different,
/// [`Error::FlowLayout`] if this build does not support its flow table. Also fails if a pin cannot be opened.
pub fn open_readonly(pins: &PinDir) -> Result<PinnedPlane> {
    let Some(record) = LayoutRecord::read(&pins.layout())? else {
        return Err(Error::Absent {
            path: pins.path().to_owned(),
        });
    };
    if record.abi_version != ABI_VERSION {
        let found = format!("ABI version {}", record.abi_version);
        return Err(Error::ForeignLayout {
            path: pins.layout(),
            found,
        });
    }
    record.check_layouts(pins)?;
    let flows = pins.flows(record.flow_layout, record.sizes.buckets());
    Ok(PinnedPlane {
        maps: Maps::open(&pins.state(record.state), &flows, Access::Read)?,
        sizes: record.sizes,
        attachments: attachments(pins)?,
    })
}

/// Returns the name of a loaded program; `None` = there is no program with this id, it has no name, or the programs
/// cannot be listed.
pub fn program_name(id: u32) -> Option<String> {
    let mut programs = aya::programs::loaded_programs().flatten();
    let program = programs.find(|program| program.id() == id)?;
    let name = program.name_as_str()?;
    (!name.is_empty()).then(|| name.to_owned())
}

/// Returns the sizes of a pinned data plane from any build; `None` = nothing is pinned.
///
/// # Errors
/// [`Error::ForeignLayout`] if the record cannot be parsed.
pub fn pinned_sizes(pins: &PinDir) -> Result<Option<Sizes>> {
    Ok(LayoutRecord::read(&pins.layout())?.map(|record| record.sizes))
}
