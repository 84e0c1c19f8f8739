//! Checks HPACK field blocks (RFC 7541) field by field, and replaces malformed fields.
//!
//! The `h2` crate stops at a malformed field in the middle of a block. Its table then differs from the client's, so it
//! has to close the connection. This module therefore replaces such a field with one of the same table size, and
//! appends a field that h2 treats as a stream error (RFC 9113 section 8.1.1). Blocks without errors pass unchanged.
//!
//! Only the kind and size of each recent entry in the client's dynamic table are stored.

use super::huffman;

/// Upper bound for the number of entries in a table of 4096 bytes; each takes at least 33 bytes.
const MAX_ENTRIES: usize = 128;
/// First index of the dynamic table.
const DYNAMIC_START: usize = 62;
/// Size of a field list (RFC 9113 section 6.5.2) above which h2 closes the connection, regardless of the service's
/// limits: four times the largest `limits.head`, 64 KiB. A few bytes that refer to one large field are enough to exceed
/// it, so the rest of such a block is not read.
const MAX_LIST: usize = 4 * (64 << 10);
/// Size of a field in addition to its name and value, in bytes.
const ENTRY_OVERHEAD: usize = 32;
/// Maximum length of an encoded integer that h2 accepts, in bytes.
const MAX_INTEGER: usize = 5;

/// A field that is not allowed in HTTP/2, and that h2 treats as a stream error.
const INVALID_FIELD: &[u8] = b"\x00\x0aconnection\x01x";
/// Length of `:method` and `:status`.
const SHORT_PSEUDO_HEADER_LEN: usize = 7;

/// The kind of a field, which determines the allowed values.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    Field,
    Method,
    Path,
    /// `:authority`, `:scheme` or `:protocol`.
    Text,
    /// `:status`, which is not allowed in requests.
    Status,
    /// A malformed field that was replaced.
    Malformed,
}

impl Kind {
    const fn from_static_index(index: usize) -> Self {
        match index {
            1 | 6 | 7 => Self::Text,
            2 | 3 => Self::Method,
            4 | 5 => Self::Path,
            8..=14 => Self::Status,
            _ => Self::Field,
        }
    }

    fn from_name(name: &[u8]) -> Self {
        match name {
            b":authority" | b":scheme" | b":protocol" => Self::Text,
            b":method" => Self::Method,
            b":path" => Self::Path,
            b":status" => Self::Status,
            [] => Self::Malformed,
            _ if name
                .iter()
                .all(|byte| is_token_byte(*byte) && !byte.is_ascii_uppercase()) =>
            {
                Self::Field
            }
            _ => Self::Malformed,
        }
    }

    fn allows(self, value: &[u8]) -> bool {
        match self {
            // The loop has no early exit, so the compiler can vectorize it.
            Self::Field => value.iter().fold(true, |valid, byte| {
                valid & matches!(byte, b'\t' | b' '..=0x7e | 0x80..)
            }),
            Self::Method => !value.is_empty() && value.iter().all(|byte| is_token_byte(*byte)),
            // `h2` would remove a fragment from the path.
            Self::Path => !value.contains(&b'#') && std::str::from_utf8(value).is_ok(),
            Self::Text => std::str::from_utf8(value).is_ok(),
            Self::Status | Self::Malformed => false,
        }
    }

    const fn is_pseudo_header(self) -> bool {
        !matches!(self, Self::Field | Self::Malformed)
    }
}

const fn is_token_byte(byte: u8) -> bool {
    matches!(
        byte,
        b'0'..=b'9'
            | b'a'..=b'z'
            | b'A'..=b'Z'
            | b'!'
            | b'#'..=b'\''
            | b'*'
            | b'+'
            | b'-'
            | b'.'
            | b'^'..=b'`'
            | b'|'
            | b'~'
    )
}

/// The result of checking a block.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum BlockCheck {
    /// The block passes unchanged. This includes undecodable blocks, which `h2` rejects.
    Unchanged,
    /// The block is replaced with this one.
    Replaced(Vec<u8>),
    /// `h2` closes the connection because of the block's size.
    TooLarge,
}

/// Checks the field blocks on one connection.
#[derive(Debug)]
pub(super) struct BlockChecker {
    /// Kinds of the most recent entries in the client's table, by insertion number modulo [`MAX_ENTRIES`].
    kinds: [Kind; MAX_ENTRIES],
    /// Sizes of these entries, or lower bounds if the name was indexed. No size exceeds the table size, 4096 bytes.
    sizes: [u16; MAX_ENTRIES],
    inserted: usize,
    /// Lower bound of the size of the block's field list so far.
    list_size: usize,
    name: Vec<u8>,
    value: Vec<u8>,
}

/// Reads a block, and builds its replacement if one is needed.
struct Reader<'a> {
    block: &'a [u8],
    offset: usize,
    out: Option<Vec<u8>>,
}

impl BlockChecker {
    pub(super) const fn new() -> Self {
        Self {
            kinds: [Kind::Malformed; MAX_ENTRIES],
            sizes: [0; MAX_ENTRIES],
            inserted: 0,
            list_size: 0,
            name: Vec::new(),
            value: Vec::new(),
        }
    }

    /// Checks a whole block. `trailers` is true if the block is not the first one of its request.
    pub(super) fn check(&mut self, block: &[u8], trailers: bool) -> BlockCheck {
        let mut reader = Reader {
            block,
            offset: 0,
            out: None,
        };
        let mut has_invalid_field = false;
        self.list_size = 0;
        while reader.offset < block.len() {
            if self.list_size > MAX_LIST {
                return BlockCheck::TooLarge;
            }
            match self.check_field(&mut reader, trailers) {
                Some(is_valid) => has_invalid_field |= !is_valid,
                None => return BlockCheck::Unchanged,
            }
        }
        if has_invalid_field {
            let out = reader.out.get_or_insert_with(|| block.to_vec());
            out.extend_from_slice(INVALID_FIELD);
        }
        reader
            .out
            .map_or(BlockCheck::Unchanged, BlockCheck::Replaced)
    }

    /// Reads a field or a table size update, and replaces a malformed field. Returns whether the field is allowed, or
    /// `None` if the block cannot be decoded.
    fn check_field(&mut self, reader: &mut Reader<'_>, trailers: bool) -> Option<bool> {
        let begin = reader.offset;
        let first = *reader.block.get(begin)?;
        if first & 0x80 != 0 {
            let index = reader.read_integer(7)?;
            let kind = self.kind(index)?;
            self.list_size += self.size(index);
            reader.copy(begin);
            return Some(kind != Kind::Malformed && !(trailers && kind.is_pseudo_header()));
        }
        if first & 0xe0 == 0x20 {
            // An update of the table size.
            reader.read_integer(5)?;
            reader.copy(begin);
            return Some(true);
        }
        let inserts = first & 0x40 != 0;
        let index = reader.read_integer(if inserts { 6 } else { 4 })?;
        self.name.clear();
        let kind = match index {
            0 => {
                reader.read_string(&mut self.name)?;
                Kind::from_name(&self.name)
            }
            _ => self.kind(index)?,
        };
        reader.read_string(&mut self.value)?;
        let is_valid = kind.allows(&self.value);
        let size = self.name.len() + self.value.len() + ENTRY_OVERHEAD;
        self.list_size += size;
        if !is_valid {
            self.replace(reader, begin, index, inserts, kind)?;
        } else {
            reader.copy(begin);
        }
        if inserts {
            self.kinds[self.inserted % MAX_ENTRIES] = if is_valid { kind } else { Kind::Malformed };
            self.sizes[self.inserted % MAX_ENTRIES] = u16::try_from(size).unwrap_or(0);
            self.inserted += 1;
        }
        Some(is_valid && !(trailers && kind.is_pseudo_header()))
    }

    /// Returns the kind of a table entry.
    fn kind(&self, index: usize) -> Option<Kind> {
        match index {
            0 => None,
            1..DYNAMIC_START => Some(Kind::from_static_index(index)),
            _ => {
                let age = index - DYNAMIC_START;
                let is_stored = age < MAX_ENTRIES.min(self.inserted);
                is_stored.then(|| self.kinds[(self.inserted - 1 - age) % MAX_ENTRIES])
            }
        }
    }

    /// Returns a lower bound of the size of a table entry.
    fn size(&self, index: usize) -> usize {
        match index {
            ..DYNAMIC_START => ENTRY_OVERHEAD,
            _ => {
                let age = index - DYNAMIC_START;
                usize::from(self.sizes[(self.inserted.wrapping_sub(1 + age)) % MAX_ENTRIES])
            }
        }
    }

    /// Replaces the field with a valid field of the same table size. Returns `None` if there is no such field, because
    /// name and value are empty.
    fn replace(
        &self,
        reader: &mut Reader<'_>,
        begin: usize,
        index: usize,
        inserts: bool,
        kind: Kind,
    ) -> Option<()> {
        let mut length = self.value.len();
        // An indexed name is kept if it always allows the substitute value.
        let name = match (index, kind) {
            (0, _) => Some(self.name.len()),
            (_, Kind::Method | Kind::Status) => Some(SHORT_PSEUDO_HEADER_LEN),
            _ => None,
        };
        let name = match name {
            // A name must not be empty, so an empty field has no replacement of the same size.
            Some(0) if length == 0 && inserts => return None,
            Some(0) => {
                length = length.saturating_sub(1);
                Some(vec![b'x'; 1])
            }
            Some(length) => Some(vec![b'x'; length]),
            None => None,
        };
        let out = reader.replacement(begin);
        let index = if name.is_some() { 0 } else { index };
        write_literal(inserts, index, name.as_deref(), out);
        write_string(length, std::iter::repeat_n(b'x', length), out);
        Some(())
    }
}

impl Reader<'_> {
    /// Reads an integer (RFC 7541 section 5.1).
    fn read_integer(&mut self, prefix: u32) -> Option<usize> {
        let mask = (1usize << prefix) - 1;
        let mut value = usize::from(*self.block.get(self.offset)?) & mask;
        self.offset += 1;
        if value < mask {
            return Some(value);
        }
        for nth in 0..MAX_INTEGER - 1 {
            let byte = *self.block.get(self.offset)?;
            self.offset += 1;
            value += usize::from(byte & 0x7f) << (7 * nth);
            if byte & 0x80 == 0 {
                return Some(value);
            }
        }
        None
    }

    /// Reads a string (RFC 7541 section 5.2).
    fn read_string(&mut self, out: &mut Vec<u8>) -> Option<()> {
        out.clear();
        let is_huffman = *self.block.get(self.offset)? & 0x80 != 0;
        let length = self.read_integer(7)?;
        let text = self
            .block
            .get(self.offset..self.offset.checked_add(length)?)?;
        self.offset += length;
        if is_huffman {
            return huffman::decode(text, out);
        }
        out.extend_from_slice(text);
        Some(())
    }

    /// Copies the bytes that were read since `begin` to the replacement, if there is one.
    fn copy(&mut self, begin: usize) {
        if let Some(out) = &mut self.out {
            out.extend_from_slice(&self.block[begin..self.offset]);
        }
    }

    /// Returns the replacement. The caller appends a substitute for the bytes that were read since `begin`.
    fn replacement(&mut self, begin: usize) -> &mut Vec<u8> {
        self.out.get_or_insert_with(|| self.block[..begin].to_vec())
    }
}

/// Writes the start of a literal field, with an index or a name.
fn write_literal(inserts: bool, index: usize, name: Option<&[u8]>, out: &mut Vec<u8>) {
    let (first, prefix) = if inserts { (0x40, 6) } else { (0, 4) };
    write_integer(first, prefix, index, out);
    if let Some(name) = name {
        write_string(name.len(), name.iter().copied(), out);
    }
}

fn write_string(length: usize, text: impl Iterator<Item = u8>, out: &mut Vec<u8>) {
    write_integer(0, 7, length, out);
    out.extend(text);
}

fn write_integer(first: u8, prefix: u32, value: usize, out: &mut Vec<u8>) {
    let mask = (1usize << prefix) - 1;
    if value < mask {
        return out.push(first | value as u8);
    }
    out.push(first | mask as u8);
    let mut remaining = value - mask;
    while remaining >= 0x80 {
        out.push((remaining & 0x7f) as u8 | 0x80);
        remaining >>= 7;
    }
    out.push(remaining as u8);
}

#[cfg(test)]
mod tests {
    use http::{HeaderName, HeaderValue, Method};

    use super::*;

    fn literal_field(name: &[u8], value: &[u8], inserts: bool) -> Vec<u8> {
        let mut out = Vec::new();
        write_literal(inserts, 0, Some(name), &mut out);
        write_string(value.len(), value.iter().copied(), &mut out);
        out
    }

    #[test]
    fn accepted_bytes_match_http_crate() {
        for byte in 0..=255u8 {
            let text = [b'a', byte];
            let is_field = Kind::from_name(&text) == Kind::Field;
            // The http crate also accepts a quotation mark, which a token must not contain (RFC 9110 section 5.6.2).
            let is_accepted = byte != b'"' && HeaderName::from_lowercase(&text).is_ok();
            assert_eq!(is_field, is_accepted, "{byte:x}");
            let value = Kind::Field.allows(&text);
            assert_eq!(value, HeaderValue::from_bytes(&text).is_ok(), "{byte:x}");
            let method = Kind::Method.allows(&text);
            assert_eq!(method, Method::from_bytes(&text).is_ok(), "{byte:x}");
        }
    }

    #[test]
    fn valid_fields_and_undecodable_blocks_pass_unchanged() {
        let mut blocks = BlockChecker::new();
        let mut block = vec![0x82, 0x86, 0x84, 0x41, 1, b'a', 0x3f, 0x45];
        block.extend(literal_field(b"x-a", b"b c\t\xff", true));
        block.push(0x80 | 62);
        let mut coded = vec![0x40, 0x80 | 3];
        coded.extend(huffman::tests::encode(b"x-ab"));
        coded.push(0);
        block.extend(coded);
        assert_eq!(blocks.check(&block, false), BlockCheck::Unchanged);
        // Table entries, and input that is not a block.
        assert_eq!(
            blocks.check(&[0xbe, 0xbf, 0xc0], false),
            BlockCheck::Unchanged
        );
        for invalid in [
            &[0xff, 0x80, 0x80, 0x80, 0x80, 0x80, 1][..],
            &[0x40, 9, b'a'],
            &[0x80],
            &[0xf0],
        ] {
            assert_eq!(blocks.check(invalid, false), BlockCheck::Unchanged);
        }
    }

    #[test]
    fn malformed_fields_are_replaced_with_fields_of_the_same_size() {
        for (name, value) in [
            (&b"x-a"[..], &b"b\r\nc: d"[..]),
            (b"x-a", b"\0"),
            (b"X-a", b"b"),
            (b"x a", b""),
            (b":unknown", b"b"),
            (b":method", b"GE T"),
            (b":status", b"200"),
            (b":path", b"/\xff"),
            (b"", b"b"),
        ] {
            let mut blocks = BlockChecker::new();
            let mut block = vec![0x82];
            block.extend(literal_field(name, value, true));
            block.push(0x84);
            let BlockCheck::Replaced(out) = blocks.check(&block, false) else {
                panic!("{name:?} passes");
            };
            assert!(out.starts_with(&[0x82]) && out.ends_with(&[&[0x84], INVALID_FIELD].concat()));
            let size = block.len() - 2;
            assert_eq!(out.len() - 2 - INVALID_FIELD.len(), size, "{name:?}");
            // Later blocks that refer to the malformed entry, or to its name, are malformed too.
            assert!(matches!(
                blocks.check(&[0xbe], false),
                BlockCheck::Replaced(_)
            ));
            assert!(matches!(
                blocks.check(&[0x7e, 1, b'a'], false),
                BlockCheck::Replaced(_)
            ));
            assert_eq!(blocks.check(&[0x82], false), BlockCheck::Unchanged);
        }
    }

    #[test]
    fn pseudo_header_fields_in_trailers_are_malformed() {
        let mut blocks = BlockChecker::new();
        assert_eq!(
            blocks.check(&literal_field(b":path", b"/a", true), false),
            BlockCheck::Unchanged
        );
        let others = [
            literal_field(b":path", b"/", false),
            vec![0x84],
            vec![0xbe],
            vec![0x41, 1, b'a'],
        ];
        for block in others {
            let expected = [&block[..], INVALID_FIELD].concat();
            assert_eq!(blocks.check(&block, true), BlockCheck::Replaced(expected));
        }
        assert_eq!(
            blocks.check(&literal_field(b"grpc-status", b"0", true), true),
            BlockCheck::Unchanged
        );
    }

    #[test]
    fn references_to_large_field_are_read_only_up_to_limit() {
        let mut blocks = BlockChecker::new();
        let mut block = literal_field(b"x", &[b'a'; 4000], true);
        let references_max = MAX_LIST / 4033 - 1;
        block.extend(std::iter::repeat_n(0xbe, references_max));
        assert_eq!(blocks.check(&block, false), BlockCheck::Unchanged);
        // Nothing is read after the limit is exceeded: the invalid reference at the end would be an error.
        block.extend([0xbe, 0xbe, 0xff, 0xff, 0x7f]);
        assert_eq!(blocks.check(&block, false), BlockCheck::TooLarge);
        // The limit applies to each block separately.
        assert_eq!(blocks.check(&[0xbe], false), BlockCheck::Unchanged);
    }

    #[test]
    fn paths_with_fragments_are_malformed() {
        let mut blocks = BlockChecker::new();
        let block = [0x44, 4, b'/', b'c', b'#', b'x'];
        let expected = [&[0x44, 4][..], b"xxxx", INVALID_FIELD].concat();
        assert_eq!(blocks.check(&block, false), BlockCheck::Replaced(expected));
    }
}
