//! Accesses hash maps and per-CPU arrays, in batches where possible, because every access is a system call.

#![allow(
    unsafe_code,
    reason = "the sizes that bpf(2) trusts are checked here once"
)]

use std::io;
use std::marker::PhantomData;
use std::os::fd::{AsFd, OwnedFd};
use std::thread::sleep;
use std::time::Duration;

use crate::error::{Context, Error, Result};
use crate::pod::{self, Pod};
use crate::sys;

/// Maximum number of retries of a write that failed with ENOMEM, and the pause before each retry.
const MAX_MEMORY_RETRIES: u32 = 100;
const MEMORY_PAUSE: Duration = Duration::from_millis(2);

/// Waits if a failed write can succeed a moment later. Returns whether to retry the write. For maps without
/// preallocated elements, new elements come from a small cache that the kernel refills in the background
/// (kernel/bpf/memalloc.c); many new elements in a row can exhaust the cache although memory is available. If the map
/// is full, the error is E2BIG.
fn wait_for_retry(error: &io::Error, retries: &mut u32) -> bool {
    if error.raw_os_error() != Some(libc::ENOMEM) || *retries == 0 {
        return false;
    }
    *retries -= 1;
    sleep(MEMORY_PAUSE);
    true
}

/// Retries a write that fails with ENOMEM.
fn retry_on_enomem(mut write: impl FnMut() -> io::Result<()>) -> io::Result<()> {
    let mut retries = MAX_MEMORY_RETRIES;
    loop {
        match write() {
            Err(error) if wait_for_retry(&error, &mut retries) => {}
            result => return result,
        }
    }
}

/// Compares the key and value sizes of a map with its Rust types. Returns the number of entries.
fn check_sizes(name: &'static str, map: &OwnedFd, key: usize, value: usize) -> Result<u32> {
    let info =
        sys::map_info(map.as_fd()).during("read the properties of map", || name.to_owned())?;
    for (attribute, expected, found) in [
        ("key size", key, info.key_size),
        ("value size", value, info.value_size),
    ] {
        if expected != found as usize {
            return Err(Error::MapMismatch {
                name: name.to_owned(),
                attribute,
                expected: expected as u32,
                found,
            });
        }
    }
    Ok(info.max_entries)
}

/// A hash map from `K` to `V`.
#[derive(Debug)]
pub struct Table<K, V> {
    name: &'static str,
    map: OwnedFd,
    entries: u32,
    marker: PhantomData<(K, V)>,
}

impl<K: Pod, V: Pod> Table<K, V> {
    pub(crate) fn new(name: &'static str, map: OwnedFd) -> Result<Self> {
        let entries = check_sizes(name, &map, size_of::<K>(), size_of::<V>())?;
        Ok(Self {
            name,
            map,
            entries,
            marker: PhantomData,
        })
    }

    /// Returns the maximum number of elements.
    pub fn capacity(&self) -> u32 {
        self.entries
    }

    /// Returns the value of a key.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn get(&self, key: &K) -> Result<Option<V>> {
        let mut value: V = pod::zeroed();
        let buffer = pod::slice_bytes_mut(std::slice::from_mut(&mut value));
        // SAFETY: `new` compared both sizes.
        let found = unsafe { sys::lookup(self.map.as_fd(), pod::bytes(key), buffer) };
        Ok(found
            .during("read map", || self.name.to_owned())?
            .map(|()| value))
    }

    /// Adds or replaces an element.
    ///
    /// # Errors
    /// Fails if the map is full (E2BIG), or the kernel rejects the request.
    pub fn set(&self, key: &K, value: &V) -> Result<()> {
        let (key, value) = (pod::bytes(key), pod::bytes(value));
        // SAFETY: `new` compared both sizes.
        let result = retry_on_enomem(|| unsafe { sys::update(self.map.as_fd(), key, value) });
        result.during("write to map", || self.name.to_owned())
    }

    /// Removes an element. Returns whether it existed.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn remove(&self, key: &K) -> Result<bool> {
        // SAFETY: `new` compared the size.
        let result = unsafe { sys::delete(self.map.as_fd(), pod::bytes(key)) };
        Ok(result
            .during("remove an element from map", || self.name.to_owned())?
            .is_some())
    }

    /// Adds or replaces many elements in batches.
    ///
    /// # Errors
    /// Fails if the map is full, or the kernel returns an error. The elements before the one that failed are written.
    pub fn set_many(&self, keys: &[K], values: &[V]) -> Result<()> {
        let count = keys.len().min(values.len());
        let (mut done, mut retries) = (0, MAX_MEMORY_RETRIES);
        while done < count {
            let (keys, values) = (&keys[done..count], &values[done..count]);
            let length = u32::try_from(keys.len()).unwrap_or(u32::MAX);
            // SAFETY: `new` compared both sizes; both slices hold `length` elements.
            let (written, result) = unsafe {
                sys::update_batch(
                    self.map.as_fd(),
                    pod::slice_bytes(keys),
                    pod::slice_bytes(values),
                    length,
                )
            };
            match result {
                Ok(()) => done += length as usize,
                // A signal ends a batch early; the next batch writes the remaining elements.
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    done += written as usize
                }
                Err(error) if wait_for_retry(&error, &mut retries) => done += written as usize,
                Err(error) => {
                    return Err(error).during("write a batch to map", || self.name.to_owned());
                }
            }
        }
        Ok(())
    }

    /// Removes many elements. Skips missing elements.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn remove_many(&self, keys: &[K]) -> Result<()> {
        let mut done = 0;
        while done < keys.len() {
            let rest = &keys[done..];
            let length = u32::try_from(rest.len()).unwrap_or(u32::MAX);
            // SAFETY: `new` compared the size; the slice holds `length` keys.
            let (removed, result) =
                unsafe { sys::delete_batch(self.map.as_fd(), pod::slice_bytes(rest), length) };
            match result {
                Ok(()) => done += length as usize,
                Err(error) if error.raw_os_error() == Some(libc::ENOENT) => {
                    done += removed as usize + 1
                }
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {
                    done += removed as usize
                }
                Err(error) => {
                    return Err(error).during("remove a batch from map", || self.name.to_owned());
                }
            }
        }
        Ok(())
    }

    /// Returns all keys. Keys that are added or removed concurrently may or may not be included.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn keys(&self) -> Result<Vec<K>> {
        let mut keys: Vec<K> = Vec::new();
        // If the current key is removed, the kernel restarts at the first key, so a limit guarantees termination.
        let limit = self.entries as usize * 2;
        while keys.len() < limit {
            let mut next: K = pod::zeroed();
            let buffer = pod::slice_bytes_mut(std::slice::from_mut(&mut next));
            // SAFETY: `new` compared the size.
            let found =
                unsafe { sys::next_key(self.map.as_fd(), keys.last().map(pod::bytes), buffer) };
            match found.during("read the keys of map", || self.name.to_owned())? {
                Some(()) => keys.push(next),
                None => break,
            }
        }
        Ok(keys)
    }

    /// Returns all elements. Elements that are added or removed concurrently may or may not be included.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn elements(&self) -> Result<Vec<(K, V)>> {
        let mut elements = Vec::new();
        for key in self.keys()? {
            if let Some(value) = self.get(&key)? {
                elements.push((key, value));
            }
        }
        Ok(elements)
    }

    /// Calls `visit` for every element, read in batches of whole buckets. Elements that are added or removed
    /// concurrently may or may not be included.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn for_each(&self, mut visit: impl FnMut(&K, &V)) -> Result<()> {
        let mut size = BATCH.min(self.entries.max(1));
        let mut position = None;
        loop {
            let mut keys = vec![pod::zeroed::<K>(); size as usize];
            let mut values = vec![pod::zeroed::<V>(); size as usize];
            // SAFETY: `new` compared both sizes; keys and values have space for `size` elements, and the position in a
            // hash map is a 32-bit bucket number.
            let result = unsafe {
                sys::lookup_batch(
                    self.map.as_fd(),
                    &mut position,
                    pod::slice_bytes_mut(&mut keys),
                    pod::slice_bytes_mut(&mut values),
                    size,
                )
            };
            let result = match result {
                // The batch is too small for a bucket: nothing was read.
                Err(error) if error.raw_os_error() == Some(libc::ENOSPC) && size < self.entries => {
                    size = size.saturating_mul(2).min(self.entries);
                    continue;
                }
                result => result,
            };
            let (count, ended) = result.during("read a batch of map", || self.name.to_owned())?;
            for (key, value) in keys.iter().zip(&values).take(count as usize) {
                visit(key, value);
            }
            if ended || count == 0 {
                return Ok(());
            }
        }
    }

    /// Removes all elements.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn clear(&self) -> Result<()> {
        self.remove_many(&self.keys()?)
    }
}

/// A per-CPU array of `V`; callers usually sum an element's values over the CPUs.
#[derive(Debug)]
pub struct PerCpu<V> {
    name: &'static str,
    map: OwnedFd,
    entries: u32,
    cpus: usize,
    marker: PhantomData<V>,
}

/// Number of elements per batch.
const BATCH: u32 = 4096;

impl<V: Pod> PerCpu<V> {
    pub(crate) fn new(name: &'static str, map: OwnedFd) -> Result<Self> {
        // The kernel aligns each CPU's value to eight bytes.
        const { assert!(size_of::<V>().is_multiple_of(8)) };
        let entries = check_sizes(name, &map, size_of::<u32>(), size_of::<V>())?;
        let cpus = weir_sys::possible_cpus()?;
        Ok(Self {
            name,
            map,
            entries,
            cpus,
            marker: PhantomData,
        })
    }

    /// Returns the number of elements.
    pub fn entries(&self) -> u32 {
        self.entries
    }

    /// Returns an element's values, one per possible CPU.
    ///
    /// # Errors
    /// Fails if the index is outside the map.
    pub fn get(&self, index: u32) -> Result<Vec<V>> {
        let mut values = vec![pod::zeroed::<V>(); self.cpus];
        // SAFETY: `new` compared both sizes; there is a value for each possible CPU.
        let found = unsafe {
            sys::lookup(
                self.map.as_fd(),
                pod::bytes(&index),
                pod::slice_bytes_mut(&mut values),
            )
        };
        match found.during("read map", || self.name.to_owned())? {
            Some(()) => Ok(values),
            None => Err(Error::Index {
                map: self.name,
                index,
                entries: self.entries,
            }),
        }
    }

    /// Replaces an element's values on every CPU; concurrent updates are lost.
    ///
    /// # Errors
    /// Fails if the index is outside the map, or `values` does not have one value per possible CPU.
    pub fn set(&self, index: u32, values: &[V]) -> Result<()> {
        if values.len() != self.cpus {
            return Err(Error::MapMismatch {
                name: self.name.to_owned(),
                attribute: "CPU count",
                expected: self.cpus as u32,
                found: values.len() as u32,
            });
        }
        // SAFETY: `new` compared both sizes; there is a value for each possible CPU.
        let result = unsafe {
            sys::update(
                self.map.as_fd(),
                pod::bytes(&index),
                pod::slice_bytes(values),
            )
        };
        result.during("write to map", || self.name.to_owned())
    }

    /// Sets an element to zero on every CPU.
    ///
    /// # Errors
    /// See [`Self::set`].
    pub fn reset(&self, index: u32) -> Result<()> {
        self.set(index, &vec![pod::zeroed(); self.cpus])
    }

    /// Calls `visit` for every element's values, read in batches.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn for_each(&self, mut visit: impl FnMut(u32, &[V])) -> Result<()> {
        let size = BATCH.min(self.entries.max(1));
        let mut keys = vec![0u32; size as usize];
        let mut values = vec![pod::zeroed::<V>(); size as usize * self.cpus];
        let mut position = None;
        loop {
            // SAFETY: `new` compared both sizes; keys and values have space for `size` elements of an array.
            let result = unsafe {
                sys::lookup_batch(
                    self.map.as_fd(),
                    &mut position,
                    pod::slice_bytes_mut(&mut keys),
                    pod::slice_bytes_mut(&mut values),
                    size,
                )
            };
            let (count, ended) = result.during("read a batch of map", || self.name.to_owned())?;
            for (key, values) in keys
                .iter()
                .zip(values.chunks_exact(self.cpus))
                .take(count as usize)
            {
                visit(*key, values);
            }
            if ended || count == 0 {
                return Ok(());
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_enomem_is_retried() {
        let run = |error: i32, failures: u32| {
            let mut calls = 0;
            let result = retry_on_enomem(|| {
                calls += 1;
                match calls <= failures {
                    true => Err(io::Error::from_raw_os_error(error)),
                    false => Ok(()),
                }
            });
            (calls, result.map_err(|error| error.raw_os_error()))
        };
        assert_eq!(run(libc::ENOMEM, 3), (4, Ok(())));
        assert_eq!(run(libc::E2BIG, 3), (1, Err(Some(libc::E2BIG))));
        let calls = MAX_MEMORY_RETRIES + 1;
        assert_eq!(
            run(libc::ENOMEM, u32::MAX),
            (calls, Err(Some(libc::ENOMEM)))
        );
    }
}
