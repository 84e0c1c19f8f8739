//! Maps array maps into this process's memory, so that accesses need no system calls.
//!
//! The data plane accesses the same memory concurrently. Elements are therefore copied, never borrowed. A copy can mix
//! two updates; values that must be consistent are single aligned words (`store_u32`, `store_u64`).

#![allow(unsafe_code, reason = "mapped memory that the kernel shares")]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::path::Path;
use std::ptr::NonNull;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::error::{Context, Error, Result};
use crate::pod::Pod;
use crate::sys::{self, Access};

/// An mmapable array map of `T`.
#[derive(Debug)]
pub struct Mapped<T> {
    name: &'static str,
    map: OwnedFd,
    start: NonNull<T>,
    length: usize,
    entries: u32,
    writable: bool,
    marker: PhantomData<T>,
}

// SAFETY: the memory belongs to the map, not to a thread, and every access is a copy or an atomic.
unsafe impl<T: Pod> Send for Mapped<T> {}
// SAFETY: as above.
unsafe impl<T: Pod> Sync for Mapped<T> {}

impl<T: Pod> Mapped<T> {
    /// Maps the array map that is pinned in a directory under this name.
    ///
    /// The descriptor is always writable, because the kernel does not memory-map read-only descriptors. For read
    /// access, the mapping is read-only.
    ///
    /// # Errors
    /// Fails if the pin does not exist, the map's value is not a `T`, or the map cannot be memory-mapped.
    pub(crate) fn open(name: &'static str, directory: &Path, access: Access) -> Result<Self> {
        let path = directory.join(name);
        let map = sys::open_pin(&path, Access::Full).at(&path)?;
        Self::new(name, map, access == Access::Full)
    }

    fn new(name: &'static str, map: OwnedFd, writable: bool) -> Result<Self> {
        // The kernel aligns elements to eight bytes.
        const { assert!(size_of::<T>().is_multiple_of(8)) };
        let info =
            sys::map_info(map.as_fd()).during("read the properties of map", || name.to_owned())?;
        if info.value_size as usize != size_of::<T>() {
            return Err(Error::MapMismatch {
                name: name.to_owned(),
                attribute: "value size",
                expected: size_of::<T>() as u32,
                found: info.value_size,
            });
        }
        let length = size_of::<T>() * info.max_entries as usize;
        let protection = if writable {
            libc::PROT_READ | libc::PROT_WRITE
        } else {
            libc::PROT_READ
        };
        // SAFETY: a new mapping of a live descriptor; the kernel checks length, flags and protection.
        let start = unsafe {
            libc::mmap(
                std::ptr::null_mut(),
                length,
                protection,
                libc::MAP_SHARED,
                map.as_raw_fd(),
                0,
            )
        };
        let start = if start == libc::MAP_FAILED {
            Err(io::Error::last_os_error())
        } else {
            Ok(start)
        };
        let start = start.during("mmap", || name.to_owned())?;
        let Some(start) = NonNull::new(start.cast()) else {
            return Err(io::Error::from(io::ErrorKind::OutOfMemory))
                .during("mmap", || name.to_owned());
        };
        Ok(Self {
            name,
            map,
            start,
            length,
            entries: info.max_entries,
            writable,
            marker: PhantomData,
        })
    }

    /// Returns the number of elements.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns the map's descriptor.
    pub(crate) fn map(&self) -> &OwnedFd {
        &self.map
    }

    fn element(&self, index: u32) -> Result<*mut T> {
        if index >= self.entries {
            return Err(Error::Index {
                map: self.name,
                index,
                entries: self.entries,
            });
        }
        // SAFETY: the element is inside the mapping, which has `entries` elements.
        Ok(unsafe { self.start.as_ptr().add(index as usize) })
    }

    fn element_mut(&self, index: u32) -> Result<*mut T> {
        if self.writable {
            self.element(index)
        } else {
            Err(Error::ReadOnly)
        }
    }

    /// Returns a copy of an element.
    ///
    /// # Errors
    /// Fails if the index is outside the map.
    pub fn get(&self, index: u32) -> Result<T> {
        let element = self.element(index)?;
        // SAFETY: inside the mapping and aligned; volatile, because the data plane writes to it.
        Ok(unsafe { element.read_volatile() })
    }

    /// Prefetches an element that will be read soon. An index outside the map has no effect.
    pub fn prefetch(&self, index: u32) {
        let Ok(element) = self.element(index) else {
            return;
        };
        for offset in (0..size_of::<T>()).step_by(CACHE_LINE_BYTES) {
            prefetch(element.cast::<u8>().wrapping_add(offset));
        }
    }

    /// Writes an element. The write is not atomic.
    ///
    /// # Errors
    /// Fails if the index is outside the map, or the map was opened read-only.
    pub fn set(&self, index: u32, value: &T) -> Result<()> {
        let element = self.element_mut(index)?;
        // SAFETY: inside the writable mapping and aligned; volatile, because the data plane reads from it.
        unsafe { element.write_volatile(*value) };
        Ok(())
    }

    /// Writes consecutive elements.
    ///
    /// # Errors
    /// Fails, without writing an element, if the elements do not all fit, or the map was opened read-only.
    pub(crate) fn set_all(&self, first: u32, values: &[T]) -> Result<()> {
        let Some(last) = values.len().checked_sub(1) else {
            return Ok(());
        };
        let last = u32::try_from(last)
            .ok()
            .and_then(|last| first.checked_add(last))
            .unwrap_or(u32::MAX);
        self.element_mut(last)?;
        for (index, value) in (first..).zip(values) {
            self.set(index, value)?;
        }
        Ok(())
    }

    /// Returns copies of consecutive elements.
    ///
    /// # Errors
    /// Fails if some elements are outside the map.
    pub fn get_all(&self, first: u32, count: u32) -> Result<Vec<T>> {
        if count > 0 {
            self.element(first.saturating_add(count - 1))?;
        }
        (first..first.saturating_add(count))
            .map(|index| self.get(index))
            .collect()
    }

    fn word<W>(&self, index: u32, offset: usize, element: *mut T) -> Result<*mut W> {
        if !offset.is_multiple_of(align_of::<W>()) || offset + size_of::<W>() > size_of::<T>() {
            return Err(Error::Index {
                map: self.name,
                index,
                entries: self.entries,
            });
        }
        // SAFETY: inside the element.
        Ok(unsafe { element.cast::<u8>().add(offset).cast() })
    }

    /// Returns the atomic word at `offset` bytes in an element.
    pub(crate) fn atomic_u32(&self, index: u32, offset: usize) -> Result<&AtomicU32> {
        let word = self.word(index, offset, self.element_mut(index)?)?;
        // SAFETY: aligned, inside the writable mapping, which lives as long as self.
        Ok(unsafe { AtomicU32::from_ptr(word) })
    }

    /// Returns the atomic word at `offset` bytes in an element.
    pub(crate) fn atomic_u64(&self, index: u32, offset: usize) -> Result<&AtomicU64> {
        let word = self.word(index, offset, self.element_mut(index)?)?;
        // SAFETY: aligned, inside the writable mapping, which lives as long as self.
        Ok(unsafe { AtomicU64::from_ptr(word) })
    }

    /// Stores an aligned 32-bit word atomically, with release ordering.
    ///
    /// # Errors
    /// See [`Self::set`].
    pub fn store_u32(&self, index: u32, offset: usize, value: u32) -> Result<()> {
        self.atomic_u32(index, offset)?
            .store(value, Ordering::Release);
        Ok(())
    }

    /// Stores an aligned 64-bit word atomically, with release ordering.
    ///
    /// # Errors
    /// See [`Self::set`].
    pub(crate) fn store_u64(&self, index: u32, offset: usize, value: u64) -> Result<()> {
        self.atomic_u64(index, offset)?
            .store(value, Ordering::Release);
        Ok(())
    }
}

/// Size of a CPU's cache line, in bytes.
const CACHE_LINE_BYTES: usize = 64;

#[cfg(target_arch = "x86_64")]
fn prefetch(address: *const u8) {
    use std::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
    // SAFETY: the instruction is a hint; it does not fault, whatever the address.
    unsafe { _mm_prefetch(address.cast(), _MM_HINT_T0) };
}

/// Does nothing: the intrinsics of other architectures are not stable.
#[cfg(not(target_arch = "x86_64"))]
fn prefetch(_address: *const u8) {}

impl<T> Drop for Mapped<T> {
    fn drop(&mut self) {
        // SAFETY: the mapping belongs to this value and has this length; no borrow of it outlives self.
        unsafe { libc::munmap(self.start.as_ptr().cast(), self.length) };
    }
}
