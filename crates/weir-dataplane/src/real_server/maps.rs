//! Encodes the rules for the maps of the programs (`bpf/lib/real_server_abi.h`), and decodes them.
//!
//! The maps are filled before the programs are attached. Values are byte arrays with the sizes of the C structs; aya
//! rejects a map with different sizes.

use std::collections::BTreeSet;
use std::net::{IpAddr, Ipv6Addr};

use aya::Ebpf;
use aya::maps::lpm_trie::{Key, LpmTrie};
use aya::maps::{HashMap, Map, MapData, PerCpuArray};

use super::rules::MAX_RANGES;
use super::{COUNTS, Error, Mark, Ports, Prefix, Result, Rules, TunnelSet, TunnelVip};

type AddrBytes = [u8; 16];
type VipBytes = [u8; 8 + MAX_RANGES * 4];
type MarkBytes = [u8; 8 + MAX_RANGES * MARK_ENTRY_BYTES];
/// Size of a mark's entry, in bytes.
const MARK_ENTRY_BYTES: usize = 24;

fn encode_address(address: IpAddr) -> AddrBytes {
    match address {
        IpAddr::V4(v4) => v4.to_ipv6_mapped().octets(),
        IpAddr::V6(v6) => v6.octets(),
    }
}

fn decode_address(bytes: AddrBytes) -> IpAddr {
    Ipv6Addr::from(bytes).to_canonical()
}

/// Returns the prefix length and the address in IPv4-mapped form, with the host bits cleared.
fn encode_prefix(prefix: Prefix) -> (u32, AddrBytes) {
    let extra = if prefix.address.is_ipv4() { 96 } else { 0 };
    let len = (extra + u32::from(prefix.len)).min(128);
    let bits = u128::from_be_bytes(encode_address(prefix.address));
    let mask = u128::MAX.checked_shl(128 - len).unwrap_or(0);
    (len, (bits & mask).to_be_bytes())
}

/// Returns the same network with the host bits cleared.
pub(super) fn truncated(prefix: Prefix) -> Prefix {
    decode_prefix(encode_prefix(prefix))
}

/// Decodes a key. A prefix with fewer than the 96 bits that IPv4-mapped addresses share is IPv6.
fn decode_prefix((len, bytes): (u32, AddrBytes)) -> Prefix {
    match decode_address(bytes) {
        IpAddr::V4(v4) if len >= 96 => Prefix {
            address: v4.into(),
            len: (len - 96) as u8,
        },
        _ => Prefix {
            address: Ipv6Addr::from(bytes).into(),
            len: len.min(128) as u8,
        },
    }
}

fn write(bytes: &mut [u8], offset: usize, value: &[u8]) {
    if let Some(target) = bytes.get_mut(offset..offset + value.len()) {
        target.copy_from_slice(value);
    }
}

fn read<const N: usize>(bytes: &[u8], offset: usize) -> [u8; N] {
    bytes
        .get(offset..offset + N)
        .and_then(|part| part.try_into().ok())
        .unwrap_or([0; N])
}

fn read_u32(bytes: &[u8], offset: usize) -> u32 {
    u32::from_ne_bytes(read(bytes, offset))
}

fn write_ports(bytes: &mut [u8], offset: usize, ports: Ports) {
    write(bytes, offset, &ports.0.to_ne_bytes());
    write(bytes, offset + 2, &ports.1.to_ne_bytes());
}

fn read_ports(bytes: &[u8], offset: usize) -> Ports {
    (
        u16::from_ne_bytes(read(bytes, offset)),
        u16::from_ne_bytes(read(bytes, offset + 2)),
    )
}

fn encode_vip(vip: &TunnelVip) -> VipBytes {
    let mut bytes = [0; size_of::<VipBytes>()];
    write(&mut bytes, 0, &vip.tunnels.bits.to_ne_bytes());
    write(&mut bytes, 4, &(vip.ports.len() as u32).to_ne_bytes());
    for (index, ports) in vip.ports.iter().enumerate() {
        write_ports(&mut bytes, 8 + index * 4, *ports);
    }
    bytes
}

fn decode_vip(vip: AddrBytes, bytes: &VipBytes) -> TunnelVip {
    let len = (read_u32(bytes, 4) as usize).min(MAX_RANGES);
    TunnelVip {
        vip: decode_address(vip),
        tunnels: TunnelSet {
            bits: read_u32(bytes, 0),
        },
        ports: (0..len)
            .map(|index| read_ports(bytes, 8 + index * 4))
            .collect(),
    }
}

pub(super) fn mark_key(mark: &Mark) -> [u8; 4] {
    [if mark.vip.is_ipv4() { 4 } else { 6 }, mark.dscp, 0, 0]
}

pub(super) fn mark_keys(marks: &[Mark]) -> Vec<[u8; 4]> {
    let mut keys: Vec<_> = marks.iter().map(mark_key).collect();
    keys.sort_unstable();
    keys.dedup();
    keys
}

fn encode_marks<'a>(marks: impl Iterator<Item = &'a Mark>) -> MarkBytes {
    let mut bytes = [0; size_of::<MarkBytes>()];
    let mut len = 0u32;
    for mark in marks {
        let offset = 8 + len as usize * MARK_ENTRY_BYTES;
        write(&mut bytes, offset, &encode_address(mark.vip));
        write_ports(&mut bytes, offset + 16, mark.ports);
        len += 1;
    }
    write(&mut bytes, 0, &len.to_ne_bytes());
    bytes
}

fn decode_marks(key: [u8; 4], bytes: &MarkBytes) -> Vec<Mark> {
    let len = (read_u32(bytes, 0) as usize).min(MAX_RANGES);
    let entry = |index: usize| Mark {
        dscp: key[1],
        vip: decode_address(read(bytes, 8 + index * MARK_ENTRY_BYTES)),
        ports: read_ports(bytes, 8 + index * MARK_ENTRY_BYTES + 16),
    };
    (0..len).map(entry).collect()
}

/// Fills the maps of an object whose programs are not attached yet.
pub(super) fn write_maps(object: &mut Ebpf, rules: &Rules) -> Result<()> {
    let mut host_addresses: HashMap<_, AddrBytes, u8> = open(object, "weir_rs_own")?;
    for address in &rules.host_addresses {
        host_addresses
            .insert(encode_address(*address), 1, 0)
            .map_err(|source| Error::map("weir_rs_own", source))?;
    }
    let mut vips: HashMap<_, AddrBytes, VipBytes> = open(object, "weir_rs_vips")?;
    for vip in &rules.tunnels {
        vips.insert(encode_address(vip.vip), encode_vip(vip), 0)
            .map_err(|source| Error::map("weir_rs_vips", source))?;
    }
    let mut gue: HashMap<_, [u8; 2], u8> = open(object, "weir_rs_gue")?;
    for port in &rules.gue_ports {
        gue.insert(port.to_be_bytes(), 1, 0)
            .map_err(|source| Error::map("weir_rs_gue", source))?;
    }
    let mut marks: HashMap<_, [u8; 4], MarkBytes> = open(object, "weir_rs_marks")?;
    for key in mark_keys(&rules.marks) {
        let value = encode_marks(rules.marks_of(key));
        marks
            .insert(key, value, 0)
            .map_err(|source| Error::map("weir_rs_marks", source))?;
    }
    let mut except: LpmTrie<_, AddrBytes, u8> = open(object, "weir_rs_except")?;
    for prefix in &rules.except {
        let (len, bytes) = encode_prefix(*prefix);
        except
            .insert(&Key::new(len, bytes), 1, 0)
            .map_err(|source| Error::map("weir_rs_except", source))?;
    }
    Ok(())
}

fn open<'a, T>(object: &'a mut Ebpf, name: &'static str) -> Result<T>
where
    T: TryFrom<&'a mut Map, Error = aya::maps::MapError>,
{
    let map = object
        .map_mut(name)
        .ok_or(Error::Object { missing: name })?;
    T::try_from(map).map_err(|source| Error::map(name, source))
}

/// The maps of attached programs, opened by id.
pub(super) struct ReadMaps {
    maps: Vec<(String, Map)>,
}

impl ReadMaps {
    pub(super) fn open(ids: &BTreeSet<u32>) -> Result<Self> {
        let mut maps = Vec::new();
        for id in ids {
            let data =
                MapData::from_id(*id).map_err(|source| Error::map("of a program", source))?;
            let info = data
                .info()
                .map_err(|source| Error::map("of a program", source))?;
            let name = info.name_as_str().unwrap_or_default().to_owned();
            // A map with an unknown type is from a different build.
            if let Ok(map) = Map::from_map_data(data) {
                maps.push((name, map));
            }
        }
        Ok(Self { maps })
    }

    fn map<'a, T>(&'a self, name: &str) -> Option<T>
    where
        T: TryFrom<&'a Map>,
    {
        let (_, map) = self.maps.iter().find(|(map_name, _)| map_name == name)?;
        T::try_from(map).ok()
    }

    /// Returns the rules; `None` if there are no maps, if they cannot be read, or if they are from a different build or
    /// from two generations, because a process died between the updates of two hooks.
    pub(super) fn rules(&self) -> Option<Rules> {
        if self
            .maps
            .iter()
            .filter(|(name, _)| name == "weir_rs_own")
            .count()
            != 1
        {
            return None;
        }
        let host_addresses: HashMap<_, AddrBytes, u8> = self.map("weir_rs_own")?;
        let vips: HashMap<_, AddrBytes, VipBytes> = self.map("weir_rs_vips")?;
        let gue: HashMap<_, [u8; 2], u8> = self.map("weir_rs_gue")?;
        let marks: HashMap<_, [u8; 4], MarkBytes> = self.map("weir_rs_marks")?;
        let mut rules = Rules {
            host_addresses: host_addresses
                .keys()
                .map(|key| key.map(decode_address))
                .collect::<std::result::Result<_, _>>()
                .ok()?,
            gue_ports: gue
                .keys()
                .map(|key| key.map(u16::from_be_bytes))
                .collect::<std::result::Result<_, _>>()
                .ok()?,
            ..Rules::default()
        };
        for entry in vips.iter() {
            let (vip, bytes) = entry.ok()?;
            rules.tunnels.push(decode_vip(vip, &bytes));
        }
        for entry in marks.iter() {
            let (key, bytes) = entry.ok()?;
            rules.marks.extend(decode_marks(key, &bytes));
        }
        // Only the egress program uses this map.
        if let Some(except) = self.map::<LpmTrie<_, AddrBytes, u8>>("weir_rs_except") {
            for key in except.keys() {
                let key = key.ok()?;
                rules
                    .except
                    .push(decode_prefix((key.prefix_len(), key.data())));
            }
        }
        rules.sort();
        Some(rules)
    }

    /// Returns the counts; zeros if the map is from a different build.
    pub(super) fn counts(&self) -> Result<[u64; COUNTS.len()]> {
        let mut counts = [0; COUNTS.len()];
        let Some(array) = self.map::<PerCpuArray<_, u64>>("weir_rs_counts") else {
            return Ok(counts);
        };
        for (index, count) in counts.iter_mut().enumerate().take(array.len() as usize) {
            let values = array
                .get(&(index as u32), 0)
                .map_err(|source| Error::map("weir_rs_counts", source))?;
            *count = values.iter().sum();
        }
        Ok(counts)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn prefix(text: &str, len: u8) -> Prefix {
        Prefix {
            address: text.parse().unwrap(),
            len,
        }
    }

    #[test]
    fn prefix_round_trip_clears_host_bits_and_keeps_family() {
        for (input, expected) in [
            (prefix("10.1.2.3", 8), prefix("10.0.0.0", 8)),
            (prefix("10.1.2.3", 0), prefix("0.0.0.0", 0)),
            (prefix("10.1.2.3", 32), prefix("10.1.2.3", 32)),
            (prefix("2001:db8::1", 32), prefix("2001:db8::", 32)),
            (prefix("::", 0), prefix("::", 0)),
            (prefix("2001:db8::1", 128), prefix("2001:db8::1", 128)),
        ] {
            assert_eq!(decode_prefix(encode_prefix(input)), expected, "{input:?}");
        }
    }

    #[test]
    fn vips_and_marks_round_trip() {
        let vip = TunnelVip {
            vip: "2001:db8::10".parse().unwrap(),
            tunnels: TunnelSet::GUE.with(TunnelSet::GRE),
            ports: vec![(80, 80), (8000, 8999)],
        };
        assert_eq!(decode_vip(encode_address(vip.vip), &encode_vip(&vip)), vip);
        let marks = vec![
            Mark {
                dscp: 7,
                vip: "192.0.2.1".parse().unwrap(),
                ports: (80, 80),
            },
            Mark {
                dscp: 7,
                vip: "192.0.2.2".parse().unwrap(),
                ports: (443, 500),
            },
        ];
        let key = mark_key(&marks[0]);
        assert_eq!(decode_marks(key, &encode_marks(marks.iter())), marks);
    }
}
