//! Holds the SYNs of new TCP connections while this process extends a deadline.
//!
//! A program at tc ingress intercepts SYNs before they reach the stack and passes them to this process through a ring
//! buffer; [`Hold::release`] injects a frame again. Nothing is pinned: on Linux 6.6 and later, the attachments are
//! removed when the process exits. On older kernels, a filter can outlive a killed process. The filter then passes all
//! packets, because its deadline has expired, and the next [`Hold`] removes it. The caller decides which connections to
//! hold, for how long, and how to handle frames from the loopback device.

use std::net::IpAddr;
use std::os::fd::AsFd;

use aya::maps::{Array, HashMap, Map, MapData, MapError, RingBuf};
use aya::programs::links::LinkOrder;
use aya::programs::tc::{
    NlOptions, SchedClassifierLink, TcAttachOptions, TcHandle, qdisc_add_clsact,
};
use aya::programs::{ProgramError, SchedClassifier, TcAttachType, Xdp};
use aya::{Ebpf, EbpfLoader};

use crate::error::{Error, Result};
use crate::testrun::{self, TestInput};
use crate::verify::load_until_verified;

static OBJECT: &[u8] = aya::include_bytes_aligned!(concat!(env!("OUT_DIR"), "/weir_hold.bpf.o"));

const NAME: &str = "weir_hold";
const INGRESS: &str = "weir_hold_ingress";
const RELEASE: &str = "weir_hold_release";

/// Priority and handle that identify a filter on kernels without tcx.
const CLSACT_PRIORITY: u16 = 0x58;
const CLSACT_HANDLE: TcHandle = TcHandle::new(0, 0x5768);

/// `struct hold_key`: address, port, family and padding.
type KeyBytes = [u8; 24];
type AddressBytes = [u8; 16];
/// Number of bytes before each frame in the ring: `ifindex` and `length`.
const RECORD_HEADER_BYTES: usize = 8;

/// A destination whose connections are held.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct HoldTarget {
    /// The address; the unspecified address = all addresses of this host in its family.
    pub address: IpAddr,
    /// The port, in host order.
    pub port: u16,
}

/// A held frame, with its Ethernet header.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct HeldFrame {
    /// The device that received it.
    pub ifindex: u32,
    /// The frame, starting with the destination MAC.
    pub bytes: Vec<u8>,
}

/// Packet counters since the programs were loaded.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct HoldCounts {
    /// Number of held packets.
    pub held: u64,
    /// Number of packets that were not held because the ring was full.
    pub missed: u64,
}

/// Holds new connections. When it is dropped, holding ends, and frames that were not released are lost.
pub struct Hold {
    object: Ebpf,
    ring: RingBuf<MapData>,
    deadline: Array<MapData, u64>,
    counts: Array<MapData, u64>,
}

impl Hold {
    /// Loads the programs. `host_addresses` replace unspecified addresses in `targets`. No packet is held before
    /// [`Self::set_deadline`] is called.
    ///
    /// # Errors
    /// Fails if the process lacks CAP_BPF or CAP_NET_ADMIN, the kernel rejects a map or a program, or there are more
    /// than 4096 targets or host addresses.
    pub fn open(targets: &[HoldTarget], host_addresses: &[IpAddr]) -> Result<Self> {
        let mut object = EbpfLoader::new()
            .load(OBJECT)
            .map_err(|error| load_error(&error))?;
        let mut target_map: HashMap<_, KeyBytes, u8> = map(&mut object, "weir_hold_to")?;
        for target in targets {
            target_map
                .insert(key(*target), 1, 0)
                .map_err(|error| load_error(&error))?;
        }
        let mut address_map: HashMap<_, AddressBytes, u8> = map(&mut object, "weir_hold_own")?;
        for address in host_addresses {
            address_map
                .insert(address_bytes(*address), 1, 0)
                .map_err(|error| load_error(&error))?;
        }
        let ring = object
            .take_map("weir_hold_ring")
            .ok_or(Error::NoObject { name: NAME })?;
        let ring = RingBuf::try_from(ring).map_err(|error| load_error(&error))?;
        let deadline = map(&mut object, "weir_hold_until")?;
        let counts = map(&mut object, "weir_hold_counts")?;
        let ingress: &mut SchedClassifier = program(&mut object, INGRESS)?;
        load_until_verified(|| ingress.load()).map_err(|error| load_error(&error))?;
        let release: &mut Xdp = program(&mut object, RELEASE)?;
        load_until_verified(|| release.load()).map_err(|error| load_error(&error))?;
        Ok(Self {
            object,
            ring,
            deadline,
            counts,
        })
    }

    /// Attaches the ingress program to an Ethernet device or the loopback device in the calling thread's network
    /// namespace.
    ///
    /// # Errors
    /// Fails if the device does not exist, or the kernel rejects the request.
    pub fn attach(&mut self, interface: &str) -> Result<()> {
        let ingress: &mut SchedClassifier = program(&mut self.object, INGRESS)?;
        let first = TcAttachOptions::TcxOrder(LinkOrder::first());
        match ingress.attach_with_options(interface, TcAttachType::Ingress, first) {
            Ok(_) => return Ok(()),
            // Kernels before 6.6 lack the attach type.
            Err(error) if errno(&error) == Some(libc::EINVAL) => {}
            Err(error) => return Err(load_error(&error)),
        }
        // The qdisc may already exist. If the call fails for another reason, adding the filter fails too.
        let _ = qdisc_add_clsact(interface);
        let kind = TcAttachType::Ingress;
        let stale_filter =
            SchedClassifierLink::attached(interface, kind, CLSACT_PRIORITY, CLSACT_HANDLE, None);
        if let Ok(stale_filter) = stale_filter {
            // Remove the filter of a killed process.
            let _ = aya::programs::links::Link::detach(stale_filter);
        }
        let options = TcAttachOptions::Netlink(NlOptions {
            priority: CLSACT_PRIORITY,
            handle: CLSACT_HANDLE,
            classid: None,
        });
        ingress
            .attach_with_options(interface, kind, options)
            .map(drop)
            .map_err(|error| load_error(&error))
    }

    /// Sets the time until which packets are held, `CLOCK_MONOTONIC` in nanoseconds; 0 = stop.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn set_deadline(&mut self, deadline_ns: u64) -> Result<()> {
        self.deadline
            .set(0, deadline_ns, 0)
            .map_err(|error| load_error(&error))
    }

    /// Returns the next held frame; `None` = there is none.
    pub fn next_frame(&mut self) -> Option<HeldFrame> {
        loop {
            let record = self.ring.next()?;
            let (header, frame) = record.split_at_checked(RECORD_HEADER_BYTES)?;
            let word = |offset: usize| {
                let bytes = header
                    .get(offset..offset + 4)
                    .and_then(|bytes| bytes.try_into().ok());
                bytes.map_or(0, u32::from_ne_bytes)
            };
            if let Some(bytes) = frame.get(..word(4) as usize) {
                return Some(HeldFrame {
                    ifindex: word(0),
                    bytes: bytes.to_vec(),
                });
            }
        }
    }

    /// Injects a frame: the stack receives it from its device. This is not possible for the loopback device, because
    /// its packets have a route attached.
    ///
    /// # Errors
    /// Fails if the device does not exist, or the kernel rejects the request.
    pub fn release(&self, frame: &HeldFrame) -> Result<()> {
        let missing = || Error::NoProgram {
            name: RELEASE.to_owned(),
        };
        let program: &Xdp = self
            .object
            .program(RELEASE)
            .ok_or_else(missing)?
            .try_into()
            .map_err(|_: ProgramError| missing())?;
        let input = TestInput {
            ingress_ifindex: frame.ifindex,
            live_frames: true,
            ..TestInput::xdp(&frame.bytes)
        };
        let descriptor = program.fd().map_err(|error| load_error(&error))?;
        testrun::run(descriptor.as_fd(), &input).map(drop)
    }

    /// Returns the packet counters.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
    pub fn counts(&self) -> Result<HoldCounts> {
        let read = |index| {
            self.counts
                .get(&index, 0)
                .map_err(|error| load_error(&error))
        };
        Ok(HoldCounts {
            held: read(0)?,
            missed: read(1)?,
        })
    }
}

impl std::fmt::Debug for Hold {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Hold").finish_non_exhaustive()
    }
}

fn address_bytes(address: IpAddr) -> AddressBytes {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn key(target: HoldTarget) -> KeyBytes {
    let mut key = [0; 24];
    if !target.address.is_unspecified() {
        key[..16].copy_from_slice(&address_bytes(target.address));
    }
    key[16..18].copy_from_slice(&target.port.to_be_bytes());
    key[18] = if target.address.is_ipv4() { 4 } else { 6 };
    key
}

fn map<M: TryFrom<Map, Error = MapError>>(object: &mut Ebpf, name: &'static str) -> Result<M> {
    let map = object.take_map(name).ok_or(Error::NoObject { name })?;
    M::try_from(map).map_err(|error| load_error(&error))
}

fn program<'a, P>(object: &'a mut Ebpf, name: &'static str) -> Result<&'a mut P>
where
    &'a mut P: TryFrom<&'a mut aya::programs::Program>,
{
    let program = object.program_mut(name).and_then(|p| p.try_into().ok());
    program.ok_or_else(|| Error::NoProgram {
        name: name.to_owned(),
    })
}

fn load_error(error: &dyn std::error::Error) -> Error {
    Error::Load {
        object: NAME,
        message: crate::loader::with_causes(error),
    }
}

/// Returns the errno of the first OS error in an error's chain of sources.
fn errno(error: &(dyn std::error::Error + 'static)) -> Option<i32> {
    let errno_of_error = error
        .downcast_ref::<std::io::Error>()
        .and_then(std::io::Error::raw_os_error);
    errno_of_error.or_else(|| errno(error.source()?))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn unspecified_address_keeps_its_family() {
        let key_of = |text: &str| {
            let socket: std::net::SocketAddr = text.parse().unwrap();
            key(HoldTarget {
                address: socket.ip(),
                port: socket.port(),
            })
        };
        let (any_v4, any_v6, specific) = (
            key_of("0.0.0.0:80"),
            key_of("[::]:80"),
            key_of("10.0.0.1:80"),
        );
        assert_eq!(any_v4[..16], [0; 16]);
        assert_eq!((any_v4[18], any_v6[18], specific[18]), (4, 6, 4));
        assert_eq!(specific[10..18], [0xff, 0xff, 10, 0, 0, 1, 0, 80]);
    }
}
