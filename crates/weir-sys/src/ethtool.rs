//! Reads and changes device features with the ethtool ioctl.
//!
//! Generic XDP runs after GRO, and would therefore receive packets larger than the MTU. Weir disables GRO, LRO and
//! hardware GRO on devices with generic XDP, and restores them later. Interface names are resolved in the network
//! namespace of the calling thread. This module keeps no state: [`Features::set`] returns the previous values.
//! Structures and numbers are from `linux/ethtool.h`.

#![allow(unsafe_code, reason = "SIOCETHTOOL requires a pointer in ifreq")]

use std::collections::BTreeMap;
use std::os::fd::{AsRawFd, OwnedFd};

use rustix::net::{AddressFamily, SocketType, socket};

use crate::{Error, Result};

/// Generic receive offload: merges packets in software before generic XDP.
pub const GRO: &str = "rx-gro";
/// Large receive offload: merges packets in the driver; the original packets cannot be restored.
pub const LRO: &str = "rx-lro";
/// GRO in hardware.
pub const GRO_HW: &str = "rx-gro-hw";
/// Transmit checksum offload for any protocol (veth, virtio).
pub const TX_CHECKSUM: &str = "tx-checksum-ip-generic";

const ETHTOOL_GDRVINFO: u32 = 0x03;
/// Size of `struct ethtool_drvinfo`. The driver's name follows the command.
const DRIVER_INFO_BYTES: usize = 196;
const DRIVER_NAME_BYTES: usize = 32;
const ETHTOOL_GSTRINGS: u32 = 0x1b;
const ETHTOOL_GSSET_INFO: u32 = 0x37;
const ETHTOOL_GFEATURES: u32 = 0x3a;
const ETHTOOL_SFEATURES: u32 = 0x3b;
const ETH_SS_FEATURES: u32 = 4;
const ETH_GSTRING_BYTES: usize = 32;
/// Maximum number of features in a reply that is accepted as valid.
const MAX_FEATURES: usize = 4096;

/// The state of a device feature.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Feature {
    /// Whether the feature is active.
    pub active: bool,
    /// Whether the feature is requested. It is active only while the features that it depends on are active.
    pub requested: bool,
    /// Whether the driver allows changing the feature.
    pub changeable: bool,
}

/// A snapshot of a device's features, by the kernel's names (`net/ethtool/common.c`).
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Features {
    interface: String,
    /// Names in the order of the kernel's bit numbers.
    names: Vec<String>,
    states: BTreeMap<String, Feature>,
}

impl Features {
    /// Reads all features of `interface`.
    ///
    /// # Errors
    /// Fails if the interface does not exist in this namespace, or the kernel's reply has an unexpected format.
    pub fn read(interface: &str) -> Result<Self> {
        let device = Device::open(interface)?;
        let names = device.feature_names()?;
        let blocks = device.feature_blocks(names.len())?;
        let states = names
            .iter()
            .enumerate()
            .filter(|(_, name)| !name.is_empty())
            .map(|(bit, name)| (name.clone(), blocks[bit / 32].state(bit % 32)))
            .collect();
        Ok(Self {
            interface: interface.to_owned(),
            names,
            states,
        })
    }

    /// Returns the feature `name`, or `None` if this kernel does not have it.
    pub fn get(&self, name: &str) -> Option<Feature> {
        self.states.get(name).copied()
    }

    /// Returns whether `name` exists and is active.
    pub fn is_active(&self, name: &str) -> bool {
        self.get(name).is_some_and(|feature| feature.active)
    }

    /// Returns all features, sorted by name.
    pub fn iter(&self) -> impl Iterator<Item = (&str, Feature)> {
        self.states
            .iter()
            .map(|(name, state)| (name.as_str(), *state))
    }

    /// Enables or disables features of this device in one request. Returns the changed features with their previous
    /// requested values, which can be passed to `set` to restore them.
    ///
    /// # Errors
    /// [`Error::UnknownFeature`], [`Error::FixedFeature`]: nothing was changed. [`Error::Call`]: the kernel rejected
    /// the request, for example because `CAP_NET_ADMIN` is missing or the device was removed.
    pub fn set<N: AsRef<str>>(&self, changes: &[(N, bool)]) -> Result<Vec<(String, bool)>> {
        let mut valid = vec![0_u32; self.names.len().div_ceil(32)];
        let mut requested = valid.clone();
        let mut previous = Vec::new();
        for (name, on) in changes {
            let (name, on) = (name.as_ref(), *on);
            let position = self.names.iter().position(|feature| feature == name);
            let (Some(bit), Some(state)) = (position, self.get(name)) else {
                return Err(Error::UnknownFeature {
                    interface: self.interface.clone(),
                    feature: name.to_owned(),
                });
            };
            if state.requested == on && state.active == on {
                continue;
            }
            if !state.changeable {
                return Err(Error::FixedFeature {
                    interface: self.interface.clone(),
                    feature: name.to_owned(),
                    on,
                });
            }
            valid[bit / 32] |= 1 << (bit % 32);
            requested[bit / 32] |= u32::from(on) << (bit % 32);
            previous.push((name.to_owned(), state.requested));
        }
        if !previous.is_empty() {
            Device::open(&self.interface)?.set_features(&valid, &requested)?;
        }
        Ok(previous)
    }
}

/// Disables the offloads that merge received packets on `interface` (GRO, LRO, hardware GRO), if this kernel and driver
/// have them. Returns the changes, which can be passed to [`Features::set`] after generic XDP is detached.
///
/// # Errors
/// Fails if one of these offloads is enabled and cannot be disabled ([`Error::FixedFeature`]): generic XDP must not be
/// used on this interface. All other errors are those of [`Features::read`] and [`Features::set`].
pub fn disable_receive_offloads(interface: &str) -> Result<Vec<(String, bool)>> {
    let features = Features::read(interface)?;
    let existing: Vec<_> = [GRO, LRO, GRO_HW]
        .into_iter()
        .filter(|name| features.get(name).is_some())
        .map(|name| (name, false))
        .collect();
    features.set(&existing)
}

/// Returns the driver name of `interface`, as `ethtool -i` prints it; empty if the driver does not report one.
///
/// # Errors
/// Fails if the interface does not exist in this namespace, or its driver does not support the request.
pub fn driver(interface: &str) -> Result<String> {
    let device = Device::open(interface)?;
    let mut words = [0_u32; DRIVER_INFO_BYTES / 4];
    words[0] = ETHTOOL_GDRVINFO;
    // SAFETY: `words` has 196 bytes, the size of struct ethtool_drvinfo in every kernel.
    unsafe { device.ioctl("ETHTOOL_GDRVINFO", &mut words) }?;
    Ok(parse_text(&bytes_of(&words[1..1 + DRIVER_NAME_BYTES / 4])))
}

/// `struct ethtool_get_features_block`.
#[derive(Clone, Copy)]
struct Block {
    available: u32,
    requested: u32,
    active: u32,
    never_changed: u32,
}

impl Block {
    fn state(self, bit: usize) -> Feature {
        let is_set = |mask: u32| mask >> bit & 1 == 1;
        Feature {
            active: is_set(self.active),
            requested: is_set(self.requested),
            changeable: is_set(self.available) && !is_set(self.never_changed),
        }
    }
}

/// An interface in the network namespace of the socket.
struct Device {
    socket: OwnedFd,
    interface: String,
}

impl Device {
    fn open(interface: &str) -> Result<Self> {
        let is_valid = !interface.is_empty()
            && interface.len() < libc::IFNAMSIZ
            && !interface.contains(|c: char| c == '/' || c == '\0' || c.is_whitespace());
        if !is_valid {
            return Err(Error::InterfaceName {
                name: interface.to_owned(),
            });
        }
        let socket = socket(AddressFamily::INET, SocketType::DGRAM, None)
            .map_err(|error| Error::call("socket", interface, error))?;
        Ok(Self {
            socket,
            interface: interface.to_owned(),
        })
    }

    fn feature_names(&self) -> Result<Vec<String>> {
        // The fields are: cmd, reserved, a 64-bit mask of string sets, and a count for each requested set.
        let mask = (1_u64 << ETH_SS_FEATURES).to_ne_bytes();
        let word = |offset: usize| {
            u32::from_ne_bytes([
                mask[offset],
                mask[offset + 1],
                mask[offset + 2],
                mask[offset + 3],
            ])
        };
        let mut words = [ETHTOOL_GSSET_INFO, 0, word(0), word(4), 0];
        // SAFETY: one bit of the mask is set, so one count follows the 16-byte header.
        unsafe { self.ioctl("ETHTOOL_GSSET_INFO", &mut words) }?;
        let count = words[4] as usize;
        if count == 0 || count > MAX_FEATURES {
            return Err(self.format_error("a plausible number of features", count));
        }
        let mut words = vec![0_u32; 3 + count * ETH_GSTRING_BYTES / 4];
        words[..3].copy_from_slice(&[ETHTOOL_GSTRINGS, ETH_SS_FEATURES, count as u32]);
        // SAFETY: after the 12-byte header, the kernel writes `count` strings of 32 bytes. The count was read above and
        // is fixed for a running kernel.
        unsafe { self.ioctl("ETHTOOL_GSTRINGS", &mut words) }?;
        let bytes = bytes_of(&words[3..]);
        Ok(bytes
            .chunks_exact(ETH_GSTRING_BYTES)
            .map(parse_text)
            .collect())
    }

    fn feature_blocks(&self, features: usize) -> Result<Vec<Block>> {
        let count = features.div_ceil(32);
        let mut words = vec![0_u32; 2 + count * 4];
        words[..2].copy_from_slice(&[ETHTOOL_GFEATURES, count as u32]);
        // SAFETY: the kernel writes at most as many 16-byte blocks as the second word states, and `words` has space for
        // them.
        unsafe { self.ioctl("ETHTOOL_GFEATURES", &mut words) }?;
        if words[1] as usize != count {
            return Err(self.format_error("as many feature blocks as names", words[1] as usize));
        }
        Ok(words[2..]
            .chunks_exact(4)
            .map(|block| Block {
                available: block[0],
                requested: block[1],
                active: block[2],
                never_changed: block[3],
            })
            .collect())
    }

    fn set_features(&self, valid: &[u32], requested: &[u32]) -> Result<()> {
        let mut words = vec![ETHTOOL_SFEATURES, valid.len() as u32];
        for (valid, requested) in valid.iter().zip(requested) {
            words.extend([valid, requested]);
        }
        // SAFETY: the kernel only reads the stated number of 8-byte blocks.
        unsafe { self.ioctl("ETHTOOL_SFEATURES", &mut words) }
    }

    fn format_error(&self, expected: &'static str, found: usize) -> Error {
        Error::Format {
            subject: self.interface.clone(),
            expected,
            found: found.to_string(),
        }
    }

    /// Executes the command in the first word of `words`.
    ///
    /// # Safety
    /// `words` must contain the complete structure that the command in its first word reads and writes. The counts in
    /// the structure must not exceed the length of `words`.
    unsafe fn ioctl(&self, call: &'static str, words: &mut [u32]) -> Result<()> {
        // SAFETY: all-zero is a valid ifreq: integers and null pointers.
        let mut request: libc::ifreq = unsafe { std::mem::zeroed() };
        for (target, byte) in request.ifr_name.iter_mut().zip(self.interface.bytes()) {
            *target = byte as libc::c_char;
        }
        request.ifr_ifru.ifru_data = words.as_mut_ptr().cast();
        // SAFETY: `request` is a live ifreq, its data pointer is valid as the caller guarantees, and the socket is
        // open.
        let status = unsafe {
            libc::ioctl(
                self.socket.as_raw_fd(),
                // glibc and musl declare the request number with different types.
                libc::SIOCETHTOOL as libc::Ioctl,
                &raw mut request,
            )
        };
        if status < 0 {
            let cause = std::io::Error::last_os_error();
            return Err(Error::call(call, self.interface.as_str(), cause));
        }
        Ok(())
    }
}

fn bytes_of(words: &[u32]) -> Vec<u8> {
    words.iter().flat_map(|word| word.to_ne_bytes()).collect()
}

/// Converts a NUL-padded kernel string.
fn parse_text(bytes: &[u8]) -> String {
    let end = bytes
        .iter()
        .position(|byte| *byte == 0)
        .unwrap_or(bytes.len());
    String::from_utf8_lossy(&bytes[..end]).into_owned()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::NetNs;

    #[test]
    fn loopback_features_are_read() {
        let features = Features::read("lo").unwrap();
        assert!(features.get(GRO).is_some() && features.get(LRO).is_some());
        assert!(features.is_active(TX_CHECKSUM));
        assert_eq!(features.get("rx-teleport"), None);
        assert!(features.iter().count() > 30);
    }

    #[test]
    fn driver_query_for_missing_device_fails() {
        let error = driver("weir-none").unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV));
    }

    #[test]
    fn invalid_interface_name_is_rejected() {
        for name in ["", "a b", "a/b", "sixteen-bytes-xx", "nul\0"] {
            let error = Features::read(name).unwrap_err();
            assert!(matches!(error, Error::InterfaceName { .. }), "{name:?}");
        }
        let error = Features::read("weir-none").unwrap_err();
        assert_eq!(error.errno(), Some(libc::ENODEV));
    }

    #[test]
    fn invalid_request_changes_nothing() {
        let features = Features::read("lo").unwrap();
        let error = features
            .set(&[(GRO, false), ("rx-teleport", true)])
            .unwrap_err();
        assert!(matches!(error, Error::UnknownFeature { .. }));
        let error = features.set(&[(GRO, false), (LRO, true)]).unwrap_err();
        assert!(matches!(error, Error::FixedFeature { .. }), "{error}");
        assert_eq!(Features::read("lo").unwrap(), features);
    }

    #[test]
    fn change_is_visible_and_reverted() {
        if !weir_testing::require_root() {
            return;
        }
        let namespace = NetNs::create().unwrap();
        namespace
            .run(|| {
                let before = Features::read("lo").unwrap();
                let previous = before.set(&[(GRO, !before.is_active(GRO))]).unwrap();
                assert_eq!(previous, [(GRO.to_owned(), before.is_active(GRO))]);
                let changed_features = Features::read("lo").unwrap();
                assert_ne!(changed_features.is_active(GRO), before.is_active(GRO));
                changed_features.set(&previous).unwrap();
                assert_eq!(Features::read("lo").unwrap(), before);

                let gro_was_active = before.is_active(GRO);
                let previous = disable_receive_offloads("lo").unwrap();
                assert!(!Features::read("lo").unwrap().is_active(GRO));
                assert_eq!(previous.contains(&(GRO.to_owned(), true)), gro_was_active);
                assert!(disable_receive_offloads("lo").unwrap().is_empty());
            })
            .unwrap();
    }

    #[test]
    fn block_bits_become_feature_states() {
        let block = Block {
            available: 0b011,
            requested: 0b101,
            active: 0b100,
            never_changed: 0b010,
        };
        let states: Vec<_> = (0..3)
            .map(|bit| block.state(bit))
            .map(|state| (state.changeable, state.requested, state.active))
            .collect();
        assert_eq!(
            states,
            [
                (true, true, false),
                (false, false, false),
                (false, true, true)
            ]
        );
    }
}
