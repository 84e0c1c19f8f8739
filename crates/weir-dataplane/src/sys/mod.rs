//! Calls bpf(2), with one function per command. Callers guarantee buffer sizes, which the kernel cannot check.
//!
//! aya parses and loads the objects. This module implements the commands that aya lacks (batches, test runs with a
//! context, map information) or wraps in types that detach on drop (links).

#![allow(unsafe_code, reason = "bpf(2) has no safe wrapper")]

mod element;
mod program;

use std::ffi::CString;
use std::io;
use std::os::fd::{AsRawFd, BorrowedFd, FromRawFd, OwnedFd};
use std::os::unix::ffi::OsStrExt;
use std::path::Path;

pub(crate) use element::{
    delete, delete_batch, lookup, lookup_batch, next_key, update, update_batch,
};
pub(crate) use program::{
    AttachType, TestRunAttr, cgroup_link_create, cgroup_link_info, link_create, link_detach,
    link_info, link_update, program_info, programs_at, test_run,
};

/// Commands of enum bpf_cmd (include/uapi/linux/bpf.h).
#[derive(Clone, Copy)]
#[repr(u32)]
pub(super) enum Command {
    MapCreate = 0,
    MapLookup = 1,
    MapUpdate = 2,
    MapDelete = 3,
    MapNextKey = 4,
    ObjectPin = 6,
    ObjectGet = 7,
    TestRun = 10,
    ObjectInfo = 15,
    ProgramQuery = 16,
    MapLookupBatch = 24,
    MapUpdateBatch = 26,
    MapDeleteBatch = 27,
    LinkCreate = 28,
    LinkUpdate = 29,
    LinkDetach = 34,
}

/// Runs a command. The attribute is a prefix of `union bpf_attr`; the kernel assumes zero for the rest.
///
/// # Safety
/// `attr` is the `repr(C)` layout of the command without implicit padding, and its pointers are valid for what the
/// kernel reads and writes through them.
pub(super) unsafe fn call<T>(command: Command, attr: &mut T) -> io::Result<i32> {
    // SAFETY: the caller guarantees the layout of the attribute and the validity of its pointers; the size is that of
    // `T`.
    let result = unsafe {
        libc::syscall(
            libc::SYS_bpf,
            command as u32,
            std::ptr::from_mut(attr),
            size_of::<T>(),
        )
    };
    if result < 0 {
        Err(io::Error::last_os_error())
    } else {
        Ok(result as i32)
    }
}

/// Takes ownership of a new descriptor.
fn take_ownership(descriptor: i32) -> OwnedFd {
    // SAFETY: the kernel returned a new descriptor that has no other owner.
    unsafe { OwnedFd::from_raw_fd(descriptor) }
}

fn c_path(path: &Path) -> io::Result<CString> {
    CString::new(path.as_os_str().as_bytes())
        .map_err(|_| io::Error::from(io::ErrorKind::InvalidInput))
}

#[repr(C)]
#[derive(Default)]
struct ObjectAttr {
    path: u64,
    descriptor: u32,
    flags: u32,
}

/// Pins an object under a new name.
pub(crate) fn pin(object: BorrowedFd<'_>, path: &Path) -> io::Result<()> {
    let path = c_path(path)?;
    let mut attr = ObjectAttr {
        path: path.as_ptr() as u64,
        descriptor: object.as_raw_fd() as u32,
        flags: 0,
    };
    // SAFETY: the path is a live NUL-terminated string.
    unsafe { call(Command::ObjectPin, &mut attr) }.map(drop)
}

/// Access mode of a pinned object.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Access {
    /// Full access, which programs and links require.
    Full,
    /// Read elements, and memory-map them read-only; only for maps.
    Read,
}

/// Opens a pinned object.
pub(crate) fn open_pin(path: &Path, access: Access) -> io::Result<OwnedFd> {
    const RDONLY: u32 = 1 << 3;
    let path = c_path(path)?;
    let flags = if access == Access::Read { RDONLY } else { 0 };
    let mut attr = ObjectAttr {
        path: path.as_ptr() as u64,
        descriptor: 0,
        flags,
    };
    // SAFETY: the path is a live NUL-terminated string.
    unsafe { call(Command::ObjectGet, &mut attr) }.map(take_ownership)
}

#[repr(C)]
#[derive(Default)]
struct CreateAttr {
    kind: u32,
    key_size: u32,
    value_size: u32,
    max_entries: u32,
    flags: u32,
    inner: u32,
    numa_node: u32,
    name: [u8; 16],
}

/// Creates an array map with one element, for records.
pub(crate) fn create_record(name: &str, value_size: u32) -> io::Result<OwnedFd> {
    const ARRAY: u32 = 2;
    let mut attr = CreateAttr {
        kind: ARRAY,
        key_size: 4,
        value_size,
        max_entries: 1,
        ..CreateAttr::default()
    };
    for (target, byte) in attr.name.iter_mut().take(15).zip(name.bytes()) {
        *target = byte;
    }
    // SAFETY: no pointers.
    unsafe { call(Command::MapCreate, &mut attr) }.map(take_ownership)
}

/// The first fields of `struct bpf_map_info`.
#[repr(C)]
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct MapInfo {
    pub(crate) kind: u32,
    pub(crate) id: u32,
    pub(crate) key_size: u32,
    pub(crate) value_size: u32,
    pub(crate) max_entries: u32,
    pub(crate) flags: u32,
}

#[repr(C)]
struct InfoAttr {
    descriptor: u32,
    length: u32,
    info: u64,
}

/// Returns information about an object; the kernel writes at most the size of `T`.
///
/// # Safety
/// `T` is a `repr(C)` prefix of the info struct for the object's kind and contains only integers; its pointers are
/// null.
unsafe fn object_info<T: Default>(object: BorrowedFd<'_>) -> io::Result<T> {
    let mut info = T::default();
    let mut attr = InfoAttr {
        descriptor: object.as_raw_fd() as u32,
        length: size_of::<T>() as u32,
        info: std::ptr::from_mut(&mut info) as u64,
    };
    // SAFETY: the kernel writes at most `length` bytes of integers into `info`.
    unsafe { call(Command::ObjectInfo, &mut attr) }?;
    Ok(info)
}

/// Returns information about a map.
pub(crate) fn map_info(map: BorrowedFd<'_>) -> io::Result<MapInfo> {
    // SAFETY: MapInfo is the head of struct bpf_map_info.
    unsafe { object_info(map) }
}
