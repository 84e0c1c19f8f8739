//! Runs map element commands, single and batched.

use std::io;
use std::os::fd::{AsRawFd, BorrowedFd};

use super::{Command, call};

#[repr(C)]
struct ElementAttr {
    descriptor: u32,
    pad: u32,
    key: u64,
    value: u64,
    flags: u64,
}

impl ElementAttr {
    fn new(map: BorrowedFd<'_>, key: u64, value: u64) -> Self {
        Self {
            descriptor: map.as_raw_fd() as u32,
            pad: 0,
            key,
            value,
            flags: 0,
        }
    }
}

fn absent_as_none(result: io::Result<i32>) -> io::Result<Option<()>> {
    match result {
        Ok(_) => Ok(Some(())),
        Err(error) if error.raw_os_error() == Some(libc::ENOENT) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Reads an element; `None` = the map does not contain the key.
///
/// # Safety
/// `key` has the map's key size, and `value` has its value size; for per-CPU maps, `value` has the value size rounded
/// up to eight bytes, times the number of possible CPUs.
pub(crate) unsafe fn lookup(
    map: BorrowedFd<'_>,
    key: &[u8],
    value: &mut [u8],
) -> io::Result<Option<()>> {
    let mut attr = ElementAttr::new(map, key.as_ptr() as u64, value.as_mut_ptr() as u64);
    // SAFETY: the caller guarantees the sizes; the references keep the memory valid.
    absent_as_none(unsafe { call(Command::MapLookup, &mut attr) })
}

/// Adds or replaces an element.
///
/// # Safety
/// See [`lookup`].
pub(crate) unsafe fn update(map: BorrowedFd<'_>, key: &[u8], value: &[u8]) -> io::Result<()> {
    let mut attr = ElementAttr::new(map, key.as_ptr() as u64, value.as_ptr() as u64);
    // SAFETY: the caller guarantees the sizes; the references keep the memory valid.
    unsafe { call(Command::MapUpdate, &mut attr) }.map(drop)
}

/// Removes an element; `None` = the map does not contain the key.
///
/// # Safety
/// `key` has the map's key size.
pub(crate) unsafe fn delete(map: BorrowedFd<'_>, key: &[u8]) -> io::Result<Option<()>> {
    let mut attr = ElementAttr::new(map, key.as_ptr() as u64, 0);
    // SAFETY: the caller guarantees the size; the reference keeps the memory valid.
    absent_as_none(unsafe { call(Command::MapDelete, &mut attr) })
}

/// Reads the key after `key`, or the first key; `None` = there are no more keys.
///
/// # Safety
/// Both keys have the map's key size.
pub(crate) unsafe fn next_key(
    map: BorrowedFd<'_>,
    key: Option<&[u8]>,
    next: &mut [u8],
) -> io::Result<Option<()>> {
    let key = key.map_or(0, |key| key.as_ptr() as u64);
    let mut attr = ElementAttr::new(map, key, next.as_mut_ptr() as u64);
    // SAFETY: the caller guarantees the sizes; the references keep the memory valid.
    absent_as_none(unsafe { call(Command::MapNextKey, &mut attr) })
}

#[repr(C)]
#[derive(Default)]
struct BatchAttr {
    in_batch: u64,
    out_batch: u64,
    keys: u64,
    values: u64,
    count: u32,
    descriptor: u32,
    element_flags: u64,
    flags: u64,
}

/// Writes `count` elements. Returns the number of elements written before an error.
///
/// # Safety
/// `keys` and `values` contain `count` keys and values of the map's sizes.
pub(crate) unsafe fn update_batch(
    map: BorrowedFd<'_>,
    keys: &[u8],
    values: &[u8],
    count: u32,
) -> (u32, io::Result<()>) {
    let mut attr = BatchAttr {
        keys: keys.as_ptr() as u64,
        values: values.as_ptr() as u64,
        count,
        descriptor: map.as_raw_fd() as u32,
        ..BatchAttr::default()
    };
    // SAFETY: the caller guarantees the sizes; the references keep the memory valid.
    let result = unsafe { call(Command::MapUpdateBatch, &mut attr) };
    (attr.count, result.map(drop))
}

/// Removes `count` keys. Returns the number of keys removed before an error.
///
/// # Safety
/// `keys` contains `count` keys of the map's size.
pub(crate) unsafe fn delete_batch(
    map: BorrowedFd<'_>,
    keys: &[u8],
    count: u32,
) -> (u32, io::Result<()>) {
    let mut attr = BatchAttr {
        keys: keys.as_ptr() as u64,
        count,
        descriptor: map.as_raw_fd() as u32,
        ..BatchAttr::default()
    };
    // SAFETY: the caller guarantees the sizes; the reference keeps the memory valid.
    let result = unsafe { call(Command::MapDeleteBatch, &mut attr) };
    (attr.count, result.map(drop))
}

/// Reads up to `count` elements after `position` (`None` = from the start), and advances `position`. Returns the number
/// of elements read and whether the end of the map was reached.
///
/// # Safety
/// `keys` and `values` have space for `count` elements; the map is an array or a hash map, whose positions are `u32`.
pub(crate) unsafe fn lookup_batch(
    map: BorrowedFd<'_>,
    position: &mut Option<u32>,
    keys: &mut [u8],
    values: &mut [u8],
    count: u32,
) -> io::Result<(u32, bool)> {
    let before = position.unwrap_or(0);
    let mut after = 0u32;
    let mut attr = BatchAttr {
        in_batch: if position.is_some() {
            std::ptr::from_ref(&before) as u64
        } else {
            0
        },
        out_batch: std::ptr::from_mut(&mut after) as u64,
        keys: keys.as_mut_ptr() as u64,
        values: values.as_mut_ptr() as u64,
        count,
        descriptor: map.as_raw_fd() as u32,
        ..BatchAttr::default()
    };
    // SAFETY: the caller guarantees the sizes; the references keep the memory valid; positions are 32 bits wide.
    let is_end = absent_as_none(unsafe { call(Command::MapLookupBatch, &mut attr) })?.is_none();
    *position = Some(after);
    Ok((attr.count, is_end))
}
