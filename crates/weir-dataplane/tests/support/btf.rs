//! Reads the layout of structs from an object's BTF (Documentation/bpf/btf.rst).

use std::collections::BTreeMap;

use crate::elf::{Elf, read_string, read_u16, read_u32};

/// A struct of the object: its size, and the (name, offset in bytes) of each member.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Struct {
    pub(crate) size: usize,
    pub(crate) fields: Vec<(String, usize)>,
}

/// Returns every named struct of an object.
pub(crate) fn structs(elf: &[u8]) -> BTreeMap<String, Struct> {
    let btf = Elf::new(elf).section(".BTF");
    assert_eq!(read_u16(btf, 0), 0xeb9f, "BTF magic number");
    let start = read_u32(btf, 4);
    let types = &btf[start + read_u32(btf, 8)..][..read_u32(btf, 12)];
    let strings = &btf[start + read_u32(btf, 16)..][..read_u32(btf, 20)];
    let mut structs_by_name = BTreeMap::new();
    let mut offset = 0;
    while offset < types.len() {
        let (name, info, size) = (
            read_u32(types, offset),
            read_u32(types, offset + 4),
            read_u32(types, offset + 8),
        );
        let (kind, members, bitfields) = (info >> 24 & 0x1f, info & 0xffff, info >> 31 == 1);
        offset += 12;
        if kind == 4 && name != 0 {
            let fields = (0..members).map(|member| {
                let member_offset = offset + member * 12;
                let bits = read_u32(types, member_offset + 8)
                    & if bitfields { 0xff_ffff } else { usize::MAX };
                (
                    read_string(strings, read_u32(types, member_offset)),
                    bits / 8,
                )
            });
            structs_by_name.insert(
                read_string(strings, name),
                Struct {
                    size,
                    fields: fields.collect(),
                },
            );
        }
        offset += match kind {
            1 | 14 | 17 => 4,
            3 => 12,
            4 | 5 | 15 | 19 => members * 12,
            6 | 13 => members * 8,
            2 | 7..=12 | 16 | 18 => 0,
            other => panic!("unknown BTF kind {other}"),
        };
    }
    structs_by_name
}
