//! Converts the plain-old-data types of map keys and values to bytes and back.

#![allow(
    unsafe_code,
    reason = "structs of weir-abi are read and written as bytes"
)]

use weir_abi::{
    Addr, Budget, Client, Cost, Cursor, Dest, Device, Element, Extent, Filter, FlowCold, Fragment,
    FragmentKey, Hints, Hop, LatencyFlow, LatencyRing, Listener, Live, Locality, LocalityKey,
    MacRow, Marks, Member, Probe, ProbeKey, Range, Service, Settings, SweepPublic, Traffic, Vip,
};

/// A type for which every bit pattern is valid.
///
/// # Safety
/// The type must be `repr(C)` and contain only integers, without implicit padding or pointers.
pub unsafe trait Pod: Copy + 'static {}

macro_rules! pod {
    ($($type:ty),* $(,)?) => {
        $(
            // SAFETY: integers only; explicit padding, as weir_abi.h requires for shared structs.
            unsafe impl Pod for $type {}
        )*
    };
}

pod!(
    u32,
    u64,
    Addr,
    Budget,
    Client,
    Cost,
    Cursor,
    Dest,
    Device,
    Element,
    Extent,
    Filter,
    FlowCold,
    Fragment,
    FragmentKey,
    Hints,
    Locality,
    LocalityKey,
    Hop,
    LatencyFlow,
    LatencyRing,
    Listener,
    Live,
    MacRow,
    Marks,
    Member,
    Probe,
    ProbeKey,
    weir_abi::Socket,
    weir_abi::SocketClient,
    weir_abi::SocketClientKey,
    weir_abi::SocketKey,
    weir_abi::SocketListener,
    Range,
    Service,
    Settings,
    SweepPublic,
    Traffic,
    Vip,
    weir_abi::Bucket,
    weir_abi::Entry,
    weir_abi::Move,
    weir_abi::SyncFlow,
    weir_abi::SyncRing,
);

/// Returns the bytes of a value.
pub(crate) fn bytes<T: Pod>(value: &T) -> &[u8] {
    slice_bytes(std::slice::from_ref(value))
}

/// Returns the bytes of values.
pub(crate) fn slice_bytes<T: Pod>(values: &[T]) -> &[u8] {
    // SAFETY: a Pod has no padding, so all its bytes are initialized.
    unsafe { std::slice::from_raw_parts(values.as_ptr().cast(), size_of_val(values)) }
}

/// Returns the bytes of values, for writing.
pub(crate) fn slice_bytes_mut<T: Pod>(values: &mut [T]) -> &mut [u8] {
    // SAFETY: every bit pattern is a valid Pod.
    unsafe { std::slice::from_raw_parts_mut(values.as_mut_ptr().cast(), size_of_val(values)) }
}

/// Returns a value whose bytes are all zero.
pub(crate) fn zeroed<T: Pod>() -> T {
    // SAFETY: zero bytes are a valid Pod.
    unsafe { std::mem::zeroed() }
}

/// Returns the value at the start of `bytes`; `None` = too few bytes.
pub(crate) fn from_bytes<T: Pod>(bytes: &[u8]) -> Option<T> {
    if bytes.len() < size_of::<T>() {
        return None;
    }
    // SAFETY: the source is long enough and need not be aligned; every bit pattern is valid.
    Some(unsafe { bytes.as_ptr().cast::<T>().read_unaligned() })
}
