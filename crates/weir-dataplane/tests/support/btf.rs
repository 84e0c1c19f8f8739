//! As much of an ELF file and its BTF (Documentation/bpf/btf.rst) as the layout of structs needs.

use std::collections::BTreeMap;

/// A struct of the object: size and (name, offset in bytes) of its members.
#[derive(Debug, PartialEq, Eq)]
pub(crate) struct Struct {
    pub(crate) size: usize,
    pub(crate) fields: Vec<(String, usize)>,
}

fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

fn short(bytes: &[u8], at: usize) -> usize {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()) as usize
}

fn long(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
}

fn text(bytes: &[u8], at: usize) -> String {
    let end = at + bytes[at..].iter().position(|byte| *byte == 0).unwrap();
    String::from_utf8(bytes[at..end].to_vec()).unwrap()
}

/// The contents of a section of a 64-bit little-endian ELF file.
fn section<'a>(elf: &'a [u8], name: &str) -> &'a [u8] {
    assert_eq!(
        &elf[..6],
        b"\x7fELF\x02\x01",
        "a 64-bit little-endian ELF file"
    );
    let (table, size, count, names) = (
        long(elf, 40),
        short(elf, 58),
        short(elf, 60),
        short(elf, 62),
    );
    let header = |index: usize| &elf[table + index * size..][..size];
    let body = |header: &[u8]| &elf[long(header, 24)..][..long(header, 32)];
    let names = body(header(names));
    let found = (0..count)
        .map(header)
        .find(|header| text(names, number(header, 0)) == name);
    let offset_and_size = found.unwrap_or_else(|| panic!("no section {name}"));
    &elf[long(offset_and_size, 24)..][..long(offset_and_size, 32)]
}

/// Every named struct of an object.
pub(crate) fn structs(elf: &[u8]) -> BTreeMap<String, Struct> {
    let btf = section(elf, ".BTF");
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
