//! Normalizes paths before they are compared with routes: paths that servers treat as equal get the same spelling.
//!
//! [`normalize`] implements syntax-based normalization (RFC 3986 section 6.2.2): escapes of unreserved characters are
//! decoded, the digits of other escapes become upper case, characters that a URI must not contain are escaped, and dot
//! segments are removed (section 5.2.4), including escaped ones, and never above the root. Duplicate slashes are merged
//! first, as file systems, nginx and Go do: in `/a//../b` the dot segment removes `a`. Escapes of reserved characters
//! (`%3B`, `%40`), path parameters (`;`) and the query are kept.
//!
//! Like nginx and Envoy, this module rejects invalid escapes (`%zz`) and `%00`, because servers disagree on their
//! meaning.
//!
//! Nearly all paths are already normal. A single pass detects such a path and finds its end, and the path is not
//! copied.

use weir_model::{EncodedSlash, NormalizePath};

use crate::parse_error::ParseError;

/// The role of a byte in a path.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Class {
    /// Kept unchanged.
    Plain,
    Slash,
    Dot,
    Percent,
    /// Ends the path.
    Query,
    /// Not allowed in a URI (RFC 3986 appendix A).
    Excluded,
}

static CLASS: [Class; 256] = classes();

const fn classes() -> [Class; 256] {
    let mut table = [Class::Excluded; 256];
    let mut index = 0usize;
    while index < 256 {
        let byte = index as u8;
        table[index] = match byte {
            b'/' => Class::Slash,
            b'.' => Class::Dot,
            b'%' => Class::Percent,
            b'?' => Class::Query,
            b'-' | b'_' | b'~' | b'!' | b'$' | b'&' | b'\'' | b'(' | b')' | b'*' | b'+' | b','
            | b';' | b'=' | b':' | b'@' | b'[' | b']' => Class::Plain,
            _ if byte.is_ascii_alphanumeric() => Class::Plain,
            _ => Class::Excluded,
        };
        index += 1;
    }
    table
}

/// Request path and query as used by routes, hashes and limits.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct RequestPath<'a> {
    text: &'a [u8],
    /// Length of the path in bytes.
    path_len: usize,
    changed: bool,
    /// Whether a route rewrote the path: see [`Self::from_rewrite`].
    rewritten: bool,
    /// See [`Self::first_route`].
    first_route: u32,
}

impl<'a> RequestPath<'a> {
    /// Returns the path and query as received, without normalization.
    pub fn as_received(text: &'a [u8]) -> Self {
        let path_len = memchr::memchr(b'?', text).unwrap_or(text.len());
        Self {
            text,
            path_len,
            changed: false,
            rewritten: false,
            first_route: 0,
        }
    }

    /// Returns a path and query that a route has rewritten. `first_route` is the index of the first route to compare
    /// the path with.
    pub fn from_rewrite(text: &'a [u8], first_route: u32) -> Self {
        Self {
            changed: true,
            rewritten: true,
            first_route,
            ..Self::as_received(text)
        }
    }

    /// Returns the index of the first route to compare the path with. The routes before it have been applied.
    pub const fn first_route(&self) -> usize {
        self.first_route as usize
    }

    /// Returns the same path, to be compared with the routes starting at this index.
    #[must_use]
    pub const fn from_route(self, first_route: u32) -> Self {
        Self {
            first_route,
            ..self
        }
    }

    /// Returns whether a route rewrote the path. Servers receive a rewritten path instead of the path that the client
    /// sent.
    pub const fn is_rewritten(&self) -> bool {
        self.rewritten
    }

    /// Returns the path, or `/` if it is empty.
    pub fn path(&self) -> &'a [u8] {
        match self.path_len {
            0 => b"/",
            end => &self.text[..end],
        }
    }

    /// Returns the query without its question mark.
    pub fn query(&self) -> &'a [u8] {
        self.text.get(self.path_len + 1..).unwrap_or_default()
    }

    /// Returns the query with its question mark; empty if there is no query.
    pub fn query_part(&self) -> &'a [u8] {
        &self.text[self.path_len..]
    }

    /// Returns the path and the query.
    pub const fn as_bytes(&self) -> &'a [u8] {
        self.text
    }

    /// Returns whether the path differs from the client's.
    pub const fn is_changed(&self) -> bool {
        self.changed
    }
}

/// Returns the path and query, with the path in normal form. `buffer` is not written if a quick check shows that the
/// path is already normal.
///
/// A target that is not a path (`*`) is returned unchanged.
///
/// # Errors
/// Fails if an escape is invalid or encodes NUL, or if the rules reject an encoded slash or a backslash.
pub fn normalize<'a>(
    text: &'a [u8],
    rules: &NormalizePath,
    buffer: &'a mut Vec<u8>,
) -> Result<RequestPath<'a>, ParseError> {
    if let Some(path_len) = normal_path_len(text, rules.merge_slashes) {
        return Ok(RequestPath {
            text,
            path_len,
            changed: false,
            rewritten: false,
            first_route: 0,
        });
    }
    let end = memchr::memchr(b'?', text).unwrap_or(text.len());
    buffer.clear();
    write_normal(&text[..end], rules, buffer)?;
    let path_len = buffer.len();
    buffer.extend_from_slice(&text[end..]);
    Ok(RequestPath {
        changed: buffer.as_slice() != text,
        text: buffer,
        path_len,
        rewritten: false,
        first_route: 0,
    })
}

/// Returns the path and query, with the path in the form that servers map to a file name: escapes of all characters
/// that a path may contain are decoded, including reserved characters and slashes, and slashes are merged. Returns
/// `None` if this does not change the path, or if an escape is invalid.
///
/// Different spellings of one file name can match different routes. The caller selects a route for both spellings, and
/// requires the same result.
pub fn decode_fully<'a>(
    target: &RequestPath<'_>,
    buffer: &'a mut Vec<u8>,
) -> Option<RequestPath<'a>> {
    let path = target.path();
    if memchr::memchr(b'%', path).is_none() && memchr::memmem::find(path, b"//").is_none() {
        return None;
    }
    buffer.clear();
    let mut rest = path;
    while let Some(byte) = rest.first() {
        let (byte, len) = match byte {
            b'%' => (decode_escape(rest)?, 3),
            byte => (*byte, 1),
        };
        rest = &rest[len..];
        match CLASS[usize::from(byte)] {
            Class::Slash if buffer.last() == Some(&b'/') => {}
            Class::Slash | Class::Plain | Class::Dot => buffer.push(byte),
            Class::Percent | Class::Query | Class::Excluded => escape(byte, buffer),
        }
    }
    if buffer.as_slice() == path {
        return None;
    }
    let path_len = buffer.len();
    buffer.extend_from_slice(target.query_part());
    Some(RequestPath {
        text: buffer,
        path_len,
        changed: true,
        rewritten: target.rewritten,
        first_route: target.first_route,
    })
}

/// Returns the length of the path in bytes if the path is already normal.
fn normal_path_len(text: &[u8], merge_slashes: bool) -> Option<usize> {
    match text.first() {
        Some(b'/') => {}
        None | Some(b'?') => return None,
        Some(_) => return Some(memchr::memchr(b'?', text).unwrap_or(text.len())),
    }
    let mut is_segment_start = false;
    for (index, byte) in text.iter().enumerate() {
        match CLASS[usize::from(*byte)] {
            Class::Plain => is_segment_start = false,
            Class::Slash if is_segment_start && merge_slashes => return None,
            Class::Slash => is_segment_start = true,
            Class::Dot if is_segment_start && is_dot_segment(&text[index..]) => return None,
            Class::Dot => is_segment_start = false,
            Class::Query => return Some(index),
            Class::Percent | Class::Excluded => return None,
        }
    }
    Some(text.len())
}

/// Returns whether the segment at the start of `text` is `.` or `..`.
fn is_dot_segment(text: &[u8]) -> bool {
    let rest = text.strip_prefix(b"..").unwrap_or(&text[1..]);
    matches!(rest.first(), None | Some(b'/' | b'?'))
}

/// An element of a path in normal form.
enum Token {
    Slash,
    /// A literal byte.
    Byte(u8),
    /// A percent-encoded byte.
    Escaped(u8),
}

/// Appends the normal form of a path that is empty or begins with a slash.
fn write_normal(path: &[u8], rules: &NormalizePath, out: &mut Vec<u8>) -> Result<(), ParseError> {
    // Offset of the last segment of `out`, after its slash.
    let mut segment_start = 0;
    let mut rest = path;
    if path.is_empty() {
        out.push(b'/');
    }
    while let Some((token, len)) = next_token(rest, rules)? {
        rest = &rest[len..];
        match token {
            Token::Byte(byte) => out.push(byte),
            Token::Escaped(byte) => escape(byte, out),
            Token::Slash => {
                let is_removed = remove_dots(out, &mut segment_start);
                let is_duplicate =
                    rules.merge_slashes && segment_start > 0 && segment_start == out.len();
                if !is_removed && !is_duplicate {
                    out.push(b'/');
                    segment_start = out.len();
                }
            }
        }
    }
    remove_dots(out, &mut segment_start);
    Ok(())
}

/// Returns the first element of the path, and its length in the input in bytes.
fn next_token(path: &[u8], rules: &NormalizePath) -> Result<Option<(Token, usize)>, ParseError> {
    let Some(byte) = path.first().copied() else {
        return Ok(None);
    };
    Ok(Some(match CLASS[usize::from(byte)] {
        Class::Slash => (Token::Slash, 1),
        Class::Plain | Class::Dot => (Token::Byte(byte), 1),
        Class::Percent => {
            let value = decode_escape(path).filter(|value| *value != 0);
            match value.ok_or(ParseError::Escape)? {
                value if is_unreserved(value) => (Token::Byte(value), 3),
                value => (reserved_token(value, rules)?, 3),
            }
        }
        Class::Excluded | Class::Query => (reserved_token(byte, rules)?, 1),
    }))
}

fn reserved_token(byte: u8, rules: &NormalizePath) -> Result<Token, ParseError> {
    match (byte, rules.encoded_slash) {
        (b'/' | b'\\', EncodedSlash::Decode) => Ok(Token::Slash),
        (b'/' | b'\\', EncodedSlash::Reject) => Err(ParseError::EncodedSlash),
        _ => Ok(Token::Escaped(byte)),
    }
}

/// Removes the last segment of `out` if it is a dot segment; `..` also removes the preceding segment. Returns whether
/// it was a dot segment.
fn remove_dots(out: &mut Vec<u8>, segment_start: &mut usize) -> bool {
    match &out[*segment_start..] {
        b"." => out.truncate(*segment_start),
        b".." => {
            // Remove the parent with its slash, but keep the root's.
            let parent = &out[..segment_start.saturating_sub(1)];
            let slash = memchr::memrchr(b'/', parent);
            *segment_start = slash.map_or(1, |slash| slash + 1);
            out.truncate(*segment_start);
        }
        _ => return false,
    }
    true
}

/// Returns the byte that the escape at the start of `text` encodes.
fn decode_escape(text: &[u8]) -> Option<u8> {
    let digit = |index: usize| (*text.get(index)? as char).to_digit(16);
    u8::try_from(digit(1)? * 16 + digit(2)?).ok()
}

const fn is_unreserved(byte: u8) -> bool {
    byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b'~')
}

fn escape(byte: u8, out: &mut Vec<u8>) {
    const DIGITS: &[u8; 16] = b"0123456789ABCDEF";
    let digit = |value: u8| DIGITS[usize::from(value & 15)];
    out.extend_from_slice(&[b'%', digit(byte >> 4), digit(byte)]);
}

/// Result of checking a route's pattern: whether a normalized path can match it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Pattern {
    /// The pattern is normal as written.
    Normal,
    /// The normal spelling of the pattern.
    Normalized(String),
    /// No normal path matches the pattern. The value is the pattern that was probably intended, if there is one.
    Unmatchable(Option<String>),
}

/// Checks a route's pattern, in which `*` matches any bytes. Only escapes are normalized: a pattern with dot segments
/// or duplicate slashes can never match, because requests are normalized before the comparison.
pub fn check_pattern(pattern: &str, rules: &NormalizePath) -> Pattern {
    let Some(normalized) = normalize_escapes(pattern.as_bytes(), rules) else {
        return Pattern::Unmatchable(None);
    };
    let pieces: Vec<&[u8]> = normalized.split(|byte| *byte == b'*').collect();
    let last = pieces.len() - 1;
    let has_dots_or_slashes = |(index, piece): (usize, &&[u8])| {
        let ends_with_dots = index == last
            && piece
                .rsplit(|byte| *byte == b'/')
                .next()
                .is_some_and(is_dots);
        let has_dots = piece.contains(&b'/') && (ends_with_dots || has_inner_dots(piece));
        has_dots || (rules.merge_slashes && memchr::memmem::find(piece, b"//").is_some())
    };
    let mut defects = pieces
        .iter()
        .enumerate()
        .filter(|piece| has_dots_or_slashes(*piece));
    let text = |bytes: Vec<u8>| String::from_utf8(bytes).ok();
    match (defects.next(), defects.next()) {
        (None, _) if normalized == pattern.as_bytes() => Pattern::Normal,
        (None, _) => text(normalized).map_or(Pattern::Unmatchable(None), Pattern::Normalized),
        // The segment that a dot segment after a star removes is unknown.
        (Some((0, _)), None) if normalized.starts_with(b"/") => {
            let piece_len = pieces[0].len();
            let prefix_len = if last == 0 {
                piece_len
            } else {
                memchr::memrchr(b'/', pieces[0]).map_or(0, |slash| slash + 1)
            };
            let mut out = Vec::new();
            let normal = write_normal(&normalized[..prefix_len], rules, &mut out);
            out.extend_from_slice(&normalized[prefix_len..]);
            Pattern::Unmatchable(normal.ok().and_then(|()| text(out)))
        }
        _ => Pattern::Unmatchable(None),
    }
}

fn is_dots(segment: &[u8]) -> bool {
    matches!(segment, b"." | b"..")
}

/// Returns whether there is a dot segment between two slashes.
fn has_inner_dots(piece: &[u8]) -> bool {
    let count = piece.iter().filter(|byte| **byte == b'/').count();
    let mut segments = piece.split(|byte| *byte == b'/');
    // The first and the last segment may continue in the bytes that a star matches.
    segments.next();
    segments.take(count.saturating_sub(1)).any(is_dots)
}

/// Returns the pattern with normalized escapes, or `None` if it has an escape that no normal path contains.
fn normalize_escapes(pattern: &[u8], rules: &NormalizePath) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(pattern.len());
    let mut rest = pattern;
    while let Some(byte) = rest.first().copied() {
        // An escape that a star cuts off is kept, because paths can match it as written.
        let is_cut = rest[..rest.len().min(3)].contains(&b'*');
        if byte == b'%' && is_cut {
            out.push(byte);
            rest = &rest[1..];
            continue;
        }
        let (token, len) = next_token(rest, rules).ok()??;
        match token {
            Token::Slash => out.push(b'/'),
            Token::Byte(byte) => out.push(byte),
            Token::Escaped(byte) => escape(byte, &mut out),
        }
        rest = &rest[len..];
    }
    Some(out)
}

#[cfg(test)]
mod tests;
