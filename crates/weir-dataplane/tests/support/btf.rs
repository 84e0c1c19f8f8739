//! Reads the layout of structs from an object's BTF (Documentation/bpf/btf.rst).

use std::collections::BTreeMap;

use crate::elf::{Elf, number, short, text};

/// A struct of the object: size and (name, offset in bytes) of its members.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Struct {
    pub(crate) size: usize,
    pub(crate) fields: Vec<(String, usize)>,
}

/// Returns every named struct of an object.
pub(crate) fn structs(elf: &[u8]) -> BTreeMap<String, Struct> {
    let btf = Elf::new(elf).section(".BTF");
    assert_eq!(short(btf, 0), 0xeb9f, "BTF's magic");
    let start = number(btf, 4);
    let types = &btf[start + number(btf, 8)..][..number(btf, 12)];
    let strings = &btf[start + number(btf, 16)..][..number(btf, 20)];
    let mut found = BTreeMap::new();
    let mut at = 0;
    while at < types.len() {
        let (name, info, size) = (
            number(types, at),
            number(types, at + 4),
            number(types, at + 8),
        );
        let (kind, members, bitfields) = (info >> 24 & 0x1f, info & 0xffff, info >> 31 == 1);
        at += 12;
        if kind == 4 && name != 0 {
            let fields = (0..members).map(|member| {
                let at = at + member * 12;
                let bits = number(types, at + 8) & if bitfields { 0xff_ffff } else { usize::MAX };
                (text(strings, number(types, at)), bits / 8)
            });
            found.insert(
                text(strings, name),
                Struct {
                    size,
                    fields: fields.collect(),
                },
            );
        }
        at += match kind {
            1 | 14 | 17 => 4,
            3 => 12,
            4 | 5 | 15 | 19 => members * 12,
            6 | 13 => members * 8,
            2 | 7..=12 | 16 | 18 => 0,
            other => panic!("BTF kind {other} is not known here"),
        };
    }
    found
}
