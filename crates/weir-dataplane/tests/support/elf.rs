//! Reads sections, symbols and relocations of a 64-bit little-endian ELF file (System V gABI, "Object Files").

/// The entry size of a symbol table.
const SYMBOL_BYTES: usize = 24;
/// The entry size of a relocation table without addends.
const RELOCATION_BYTES: usize = 16;
/// `sh_type` of a relocation table without addends.
const SHT_REL: usize = 9;
/// The type of a symbol that names a function, in the low bits of `st_info`.
const STT_FUNC: u8 = 2;

pub(crate) struct Elf<'a> {
    bytes: &'a [u8],
    /// Section headers, in the order of the file.
    headers: Vec<&'a [u8]>,
}

/// A symbol, with its section and its offset in the section.
#[derive(Clone, Debug)]
pub(crate) struct Symbol {
    pub(crate) name: String,
    pub(crate) is_function: bool,
    pub(crate) section: usize,
    pub(crate) value: usize,
    pub(crate) size: usize,
}

pub(crate) fn read_u32(bytes: &[u8], offset: usize) -> usize {
    u32::from_le_bytes(bytes[offset..offset + 4].try_into().unwrap()) as usize
}

pub(crate) fn read_u16(bytes: &[u8], offset: usize) -> usize {
    u16::from_le_bytes(bytes[offset..offset + 2].try_into().unwrap()) as usize
}

fn read_u64(bytes: &[u8], offset: usize) -> usize {
    usize::try_from(u64::from_le_bytes(
        bytes[offset..offset + 8].try_into().unwrap(),
    ))
    .unwrap()
}

pub(crate) fn read_string(bytes: &[u8], offset: usize) -> String {
    let end = offset + bytes[offset..].iter().position(|byte| *byte == 0).unwrap();
    String::from_utf8(bytes[offset..end].to_vec()).unwrap()
}

impl<'a> Elf<'a> {
    pub(crate) fn new(bytes: &'a [u8]) -> Self {
        assert_eq!(
            &bytes[..6],
            b"\x7fELF\x02\x01",
            "not a 64-bit little-endian ELF file"
        );
        let (table, size, count) = (
            read_u64(bytes, 40),
            read_u16(bytes, 58),
            read_u16(bytes, 60),
        );
        let headers = (0..count)
            .map(|index| &bytes[table + index * size..][..size])
            .collect();
        Self { bytes, headers }
    }

    /// Returns the contents of a section.
    pub(crate) fn body(&self, section: usize) -> &'a [u8] {
        let header = self.headers[section];
        &self.bytes[read_u64(header, 24)..][..read_u64(header, 32)]
    }

    pub(crate) fn name(&self, section: usize) -> String {
        let names = self.body(read_u16(self.bytes, 62));
        read_string(names, read_u32(self.headers[section], 0))
    }

    /// Returns the contents of the section with this name.
    pub(crate) fn section(&self, name: &str) -> &'a [u8] {
        let found = (0..self.headers.len()).find(|section| self.name(*section) == name);
        self.body(found.unwrap_or_else(|| panic!("no section {name}")))
    }

    /// Returns all symbols, in index order.
    pub(crate) fn symbols(&self) -> Vec<Symbol> {
        let names = self.section(".strtab");
        self.section(".symtab")
            .chunks_exact(SYMBOL_BYTES)
            .map(|entry| Symbol {
                name: read_string(names, read_u32(entry, 0)),
                is_function: entry[4] & 0xf == STT_FUNC,
                section: read_u16(entry, 6),
                value: read_u64(entry, 8),
                size: read_u64(entry, 16),
            })
            .collect()
    }

    /// Returns the relocations of a section: the offset in the section, and the index of the symbol.
    pub(crate) fn relocations(&self, section: usize) -> Vec<(usize, usize)> {
        let tables = (0..self.headers.len()).filter(|table| {
            let header = self.headers[*table];
            read_u32(header, 4) == SHT_REL && read_u32(header, 44) == section
        });
        tables
            .flat_map(|table| self.body(table).chunks_exact(RELOCATION_BYTES))
            .map(|entry| (read_u64(entry, 0), read_u32(entry, 12)))
            .collect()
    }
}
