//! Loads objects into the kernel: pinned maps, constants, programs and tail-call stages.
//!
//! aya parses, relocates and loads the objects. It receives maps and constants by name, so objects need no annotations.

use std::collections::BTreeMap;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::{Path, PathBuf};

use aya::maps::{Map, ProgramArray};
use aya::programs::{Program, ProgramFd};
use aya::util::KernelVersion;
use aya::{Ebpf, EbpfLoader};

use crate::error::{Context, Error, Result};
use crate::sys;
use crate::verify::load_until_verified;

include!(concat!(env!("OUT_DIR"), "/objects.rs"));

/// Names of the director's objects; the first object is required.
pub(crate) const DIRECTOR: [&str; 3] = ["weir_xdp", "weir_tc", "weir_skb"];

/// The objects that are needed if no device is balanced at tc.
pub(crate) const DIRECTOR_WITHOUT_BALANCE: &[&str] = &["weir_xdp", "weir_tc"];

/// The oldest supported kernel (docs/manual/kernels.md).
const OLDEST_KERNEL: KernelVersion = KernelVersion::new(6, 1, 0);

const STAGES_MAP: &str = "weir_stages";
const SKB_STAGES_MAP: &str = "weir_skb_stages";

/// Maps of one program generation. They are pinned with the programs, because the kernel clears a program array that
/// has no other references.
pub(crate) const PRIVATE_MAPS: &[&str] = &[STAGES_MAP, SKB_STAGES_MAP];

/// Tail-called programs: map, program and index in the map (enum weir_stage, bpf/lib/stage.h).
const STAGES: &[(&str, &str, u32)] = &[
    (STAGES_MAP, "weir_stage_icmp", 0),
    (STAGES_MAP, "weir_stage_fragment", 1),
    (STAGES_MAP, "weir_stage_reject", 2),
    (SKB_STAGES_MAP, "weir_skb_icmp", 0),
    (SKB_STAGES_MAP, "weir_skb_fragment", 1),
    (SKB_STAGES_MAP, "weir_skb_reject", 2),
    (SKB_STAGES_MAP, "weir_skb", 3),
];

/// Specifies how to open or create a map.
#[derive(Clone, Debug)]
pub(crate) struct MapSource {
    /// The map's name in the object.
    pub(crate) name: &'static str,
    /// Path of the map's pin: opened if it exists, otherwise created.
    pub(crate) pin: PathBuf,
    /// Replaces the object's number of entries when the map is created.
    pub(crate) entries: Option<u32>,
}

/// A constant in the object's read-only data.
#[derive(Clone, Debug)]
pub(crate) struct Constant {
    /// The variable's name.
    pub(crate) name: &'static str,
    /// Its value, of the variable's size.
    pub(crate) bytes: Vec<u8>,
}

/// Loaded programs by name.
pub(crate) type Programs = BTreeMap<String, OwnedFd>;

/// Returns the embedded object with this name.
pub(crate) fn object(name: &'static str) -> Result<&'static [u8]> {
    let found = OBJECTS.iter().find(|(object, _)| *object == name);
    found
        .map(|(_, bytes)| *bytes)
        .ok_or(Error::NoObject { name })
}

/// Returns an FNV-1a hash of the director's objects. Programs that were loaded from different objects are replaced.
pub(crate) fn director_hash() -> u64 {
    let bytes = OBJECTS
        .iter()
        .filter(|(name, _)| DIRECTOR.contains(name))
        .flat_map(|(_, bytes)| bytes.iter());
    bytes.fold(0xcbf2_9ce4_8422_2325, |hash, byte| {
        (hash ^ u64::from(*byte)).wrapping_mul(0x100_0000_01b3)
    })
}

/// Loads all programs of embedded objects, and pins each under its name in `directory`. Programs are verified in
/// parallel, after the maps of all objects have been created. Objects that are not part of this build are skipped,
/// except for the first one.
///
/// # Errors
/// Fails if the first object is not part of this build, or the kernel rejects a map or a program. Nothing is attached.
pub(crate) fn load_all(
    names: &[&'static str],
    maps: &[MapSource],
    constants: &[Constant],
    directory: &Path,
) -> Result<Programs> {
    let mut objects = Vec::new();
    for name in names {
        match prepare(name, maps, constants) {
            Ok(object) => objects.push((*name, object)),
            Err(Error::NoObject { .. }) if !objects.is_empty() => {}
            Err(error) => return Err(error),
        }
    }
    let loaded_objects = objects.iter_mut().map(|(_, object)| object);
    load_programs(loaded_objects)
        .map_err(|message| load_error("the director's programs", &message))?;
    let mut programs = Programs::new();
    for (name, object) in objects {
        programs.extend(pin_programs(name, object, directory)?);
    }
    Ok(programs)
}

/// Loads the programs of one object without pinning them.
///
/// # Errors
/// See [`load_all`].
pub(crate) fn load(
    name: &'static str,
    maps: &[MapSource],
    constants: &[Constant],
) -> Result<Programs> {
    let mut object = prepare(name, maps, constants)?;
    load_programs([&mut object]).map_err(|message| load_error(name, &message))?;
    let mut programs = Programs::new();
    for (program_name, program) in object.programs() {
        let descriptor = program_fd(program).map_err(|message| load_error(name, &message))?;
        programs.insert(program_name.to_owned(), descriptor);
    }
    Ok(programs)
}

fn load_error(object: &'static str, message: &str) -> Error {
    Error::Load {
        object,
        message: format!(
            "{}{message}",
            old_kernel_hint(KernelVersion::current().ok())
        ),
    }
}

/// Creates an object's maps without loading its programs.
pub(crate) fn prepare(
    name: &'static str,
    maps: &[MapSource],
    constants: &[Constant],
) -> Result<Ebpf> {
    let bytes = object(name)?;
    let mut loader = EbpfLoader::new();
    for map in maps {
        loader.map_pin_path(map.name, &map.pin);
        if let Some(entries) = map.entries {
            loader.map_max_entries(map.name, entries);
        }
    }
    for constant in constants {
        loader.override_global(constant.name, constant.bytes.as_slice(), false);
    }
    loader
        .load(bytes)
        .map_err(|error| load_error(name, &with_causes(&error)))
}

/// Fills the program arrays, and pins each program under its name in `directory`.
fn pin_programs(name: &'static str, mut object: Ebpf, directory: &Path) -> Result<Programs> {
    let load_error = |message: String| load_error(name, &message);
    fill_stages(&mut object).map_err(load_error)?;

    let mut programs = Programs::new();
    for (program_name, program) in object.programs() {
        let descriptor = program_fd(program).map_err(load_error)?;
        let path = directory.join(program_name);
        sys::pin(descriptor.as_fd(), &path).at(&path)?;
        programs.insert(program_name.to_owned(), descriptor);
    }
    Ok(programs)
}

/// Returns a hint for the error message if the kernel is older than the oldest supported version.
fn old_kernel_hint(kernel: Option<KernelVersion>) -> &'static str {
    match kernel {
        Some(kernel) if kernel < OLDEST_KERNEL => {
            "this kernel is too old: layer 4 services need Linux 6.1 or newer (proxy services do not); "
        }
        _ => "",
    }
}

/// Loads programs in parallel: verification takes most of the startup time and uses one CPU per program.
fn load_programs<'a>(
    objects: impl IntoIterator<Item = &'a mut Ebpf>,
) -> std::result::Result<(), String> {
    std::thread::scope(|scope| {
        let programs = objects.into_iter().flat_map(|object| object.programs_mut());
        let threads: Vec<_> = programs
            .map(|(name, program)| scope.spawn(move || load_program(name, program)))
            .collect();
        threads.into_iter().try_for_each(|program| {
            let panicked = |_| Err("the thread that loaded a program panicked".to_owned());
            program.join().unwrap_or_else(panicked)
        })
    })
}

fn load_program(name: &str, program: &mut Program) -> std::result::Result<(), String> {
    let result = match program {
        Program::Xdp(program) => load_until_verified(|| program.load()),
        Program::SchedClassifier(program) => load_until_verified(|| program.load()),
        Program::CgroupSockAddr(program) => load_until_verified(|| program.load()),
        Program::CgroupSock(program) => load_until_verified(|| program.load()),
        Program::SockOps(program) => load_until_verified(|| program.load()),
        _ => {
            return Err(format!("program {name} has an unsupported type"));
        }
    };
    result.map_err(|error| format!("program {name}: {}", with_causes(&error)))
}

fn fill_stages(object: &mut Ebpf) -> std::result::Result<(), String> {
    for (map_name, name, index) in STAGES {
        let Some(program) = object.program(name) else {
            continue;
        };
        let program = raw_fd(program)?
            .try_clone()
            .map_err(|error| error.to_string())?;
        let Some(Map::ProgramArray(map)) = object.map_mut(map_name) else {
            return Err(format!("stage {name} has no program array {map_name}"));
        };
        ProgramArray::try_from(Map::ProgramArray(reopen(map)?))
            .and_then(|mut array| array.set(*index, &program, 0))
            .map_err(|error| with_causes(&error))?;
    }
    Ok(())
}

fn reopen(map: &aya::maps::MapData) -> std::result::Result<aya::maps::MapData, String> {
    let copy = map
        .fd()
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| error.to_string())?;
    aya::maps::MapData::from_fd(copy).map_err(|error| with_causes(&error))
}

fn raw_fd(program: &Program) -> std::result::Result<&ProgramFd, String> {
    program.fd().map_err(|error| with_causes(&error))
}

fn program_fd(program: &Program) -> std::result::Result<OwnedFd, String> {
    raw_fd(program)?
        .as_fd()
        .try_clone_to_owned()
        .map_err(|error| error.to_string())
}

/// Formats an error with all its causes, including the verifier's log.
pub(crate) fn with_causes(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut cause = error.source();
    while let Some(inner) = cause {
        let message = inner.to_string();
        if !text.contains(&message) {
            text.push_str(": ");
            text.push_str(&message);
        }
        cause = inner.source();
    }
    text
}

/// Opens the programs pinned in a directory.
pub(crate) fn open_programs(directory: &Path) -> Result<Programs> {
    let mut programs = Programs::new();
    let entries = std::fs::read_dir(directory).at(directory)?;
    for entry in entries {
        let entry = entry.at(directory)?;
        let name = entry.file_name().to_string_lossy().into_owned();
        if PRIVATE_MAPS.contains(&name.as_str()) {
            continue;
        }
        let path = entry.path();
        programs.insert(name, sys::open_pin(&path, sys::Access::Full).at(&path)?);
    }
    Ok(programs)
}

/// Returns the program with this name.
pub(crate) fn program<'a>(programs: &'a Programs, name: &str) -> Result<BorrowedFd<'a>> {
    programs
        .get(name)
        .map(AsFd::as_fd)
        .ok_or_else(|| Error::NoProgram {
            name: name.to_owned(),
        })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn old_kernel_hint_is_only_for_unsupported_kernels() {
        assert!(old_kernel_hint(Some(KernelVersion::new(5, 10, 0))).contains("Linux 6.1"));
        for other in [
            Some(OLDEST_KERNEL),
            Some(KernelVersion::new(6, 18, 3)),
            None,
        ] {
            assert_eq!(old_kernel_hint(other), "");
        }
    }
}
