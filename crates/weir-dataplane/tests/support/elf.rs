//! Reads sections, symbols and relocations of a 64-bit little-endian ELF file (System V gABI, "Object Files").

/// The entry size of a symbol table.
const SYMBOL_BYTES: usize = 24;
/// The entry size of a relocation table without addends.
const RELOCATION_BYTES: usize = 16;
/// `sh_type` of a relocation table without addends.
const SHT_REL: usize = 9;
/// The type, in the low bits of `st_info`, of a symbol that names a function.
const STT_FUNC: u8 = 2;

pub(crate) struct Elf<'a> {
    bytes: &'a [u8],
    /// Section headers, in the file's order.
    headers: Vec<&'a [u8]>,
}

/// A symbol: its section and its offset in the section.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) is_function: bool,
    pub(crate) section: usize,
    pub(crate) value: usize,
    pub(crate) size: usize,
}

pub(crate) fn number(bytes: &[u8], at: usize) -> usize {
    u32::from_le_bytes(bytes[at..at + 4].try_into().unwrap()) as usize
}

pub(crate) fn short(bytes: &[u8], at: usize) -> usize {
    u16::from_le_bytes(bytes[at..at + 2].try_into().unwrap()) as usize
}

fn long(bytes: &[u8], at: usize) -> usize {
    usize::try_from(u64::from_le_bytes(bytes[at..at + 8].try_into().unwrap())).unwrap()
}

pub(crate) fn text(bytes: &[u8], at: usize) -> String {
    let end = at + bytes[at..].iter().position(|byte| *byte == 0).unwrap();
    String::from_utf8(bytes[at..end].to_vec()).unwrap()
}

impl<'a> Elf<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        assert_eq!(
            &bytes[..6],
            b"\x7fELF\x02\x01",
            "a 64-bit little-endian ELF file"
        );
        let (table, size, count) = (long(bytes, 40), short(bytes, 58), short(bytes, 60));
        let headers = (0..count)
            .map(|index| &bytes[table + index * size..][..size])
            .collect();
        Self { bytes, headers }
    }

    /// Returns the contents of a section.
    pub(crate) fn body(&self, section: usize) -> &'a [u8] {
        let header = self.headers[section];
        &self.bytes[long(header, 24)..][..long(header, 32)]
    }

    pub(crate) fn name(&self, section: usize) -> String {
        let names = self.body(short(self.bytes, 62));
        text(names, number(self.headers[section], 0))
    }

    /// Returns the contents of the section with this name.
    pub(crate) fn section(&self, name: &str) -> &'a [u8] {
        let found = (0..self.headers.len()).find(|section| self.name(*section) == name);
        self.body(found.unwrap_or_else(|| panic!("no section {name}")))
    }

    /// Returns all symbols, in the order of their indexes.
    pub(crate) fn symbols(&self) -> Vec<Symbol> {
        let names = self.section(".strtab");
        self.section(".symtab")
            .chunks_exact(SYMBOL_BYTES)
            .map(|entry| Symbol {
                name: text(names, number(entry, 0)),
                is_function: entry[4] & 0xf == STT_FUNC,
                section: short(entry, 6),
                value: long(entry, 8),
                size: long(entry, 16),
            })
            .collect()
    }

    /// Returns the relocations of a section: offset in the section, and index of the symbol.
    pub(crate) fn relocations(&self, section: usize) -> Vec<(usize, usize)> {
        let tables = (0..self.headers.len()).filter(|table| {
            let header = self.headers[*table];
            number(header, 4) == SHT_REL && number(header, 44) == section
        });
        tables
            .flat_map(|table| self.body(table).chunks_exact(RELOCATION_BYTES))
            .map(|entry| (long(entry, 0), number(entry, 12)))
            .collect()
    }
}
