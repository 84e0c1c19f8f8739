//! Finds, opens and reads static files (a route's `files`), and determines the range and the response fields.
//!
//! These functions run on separate threads ([`crate::job`]). Files are opened with openat2(2) relative to the root
//! directory, so that neither `..` nor a symbolic link can leave the directory. Names that start with `.` are hidden,
//! except `.well-known` at the top level (RFC 8615).

use std::fs::File;
use std::io;
use std::os::fd::OwnedFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use rustix::fs::{Mode, OFlags, ResolveFlags};
use rustix::io::Errno;
use weir_model::StaticFiles;

/// Maximum number of bytes per read.
pub(crate) const MAX_PART: usize = 256 << 10;

/// The parts of a request that select a file.
#[derive(Debug)]
pub(crate) struct Query {
    pub(crate) files: Arc<StaticFiles>,
    /// Path without query, still percent-encoded.
    pub(crate) path: Vec<u8>,
    /// Whether the request is a HEAD request, whose response has no content.
    pub(crate) to_head: bool,
    pub(crate) if_match: Option<String>,
    pub(crate) if_none_match: Option<String>,
    pub(crate) if_modified_since: Option<String>,
    pub(crate) if_unmodified_since: Option<String>,
    pub(crate) range: Option<String>,
    pub(crate) if_range: Option<String>,
}

/// The result of a query.
#[derive(Debug)]
pub(crate) enum QueryResult {
    /// A response: status, fields and content.
    Response(Response),
    /// The request is for a directory, but its path has no trailing `/`.
    Directory,
    /// No file matches the path, or the path is hidden or malformed.
    Missing,
    /// The directory has no index file.
    Unlisted,
    /// The daemon has no permission to read the file.
    Forbidden,
    /// Another error occurred.
    Error(io::Error),
}

/// A response to a query.
#[derive(Debug)]
pub(crate) struct Response {
    /// Path of the file below the root, with a leading slash.
    pub(crate) name: String,
    pub(crate) status: u16,
    pub(crate) fields: Vec<(&'static str, String)>,
    pub(crate) file: Arc<File>,
    /// Offset in the file after `first_bytes`.
    pub(crate) next_offset: u64,
    /// Number of bytes to send, starting at `next_offset`.
    pub(crate) remaining: u64,
    /// The first bytes of the content.
    pub(crate) first_bytes: Vec<u8>,
}

/// Finds the file for a query, and prepares the response.
pub(crate) fn find(query: &Query) -> QueryResult {
    search(query).unwrap_or_else(|error| match error {
        Errno::ACCESS | Errno::PERM => QueryResult::Forbidden,
        error => QueryResult::Error(error.into()),
    })
}

fn search(query: &Query) -> Result<QueryResult, Errno> {
    let files = &query.files;
    let Some(path) = strip_prefix_decoded(&query.path, &files.strip) else {
        return Ok(QueryResult::Missing);
    };
    let root = open_root(&files.root)?;
    let mut result = QueryResult::Missing;
    for attempt in &files.attempts {
        let uses_path = attempt.contains(StaticFiles::PATH);
        let candidate = attempt.replace(StaticFiles::PATH, &path);
        // A request path with a trailing slash does not name a file.
        if candidate.ends_with('/') && !attempt.ends_with('/') {
            continue;
        }
        let Some(relative) = visible_path(&candidate) else {
            continue;
        };
        if !candidate.ends_with('/') {
            if let Some(file) = open(&root, &relative)? {
                return respond(query, file, &relative);
            }
            continue;
        }
        if !is_directory(&root, &relative)? {
            continue;
        }
        if uses_path && !path.ends_with('/') {
            return Ok(QueryResult::Directory);
        }
        for index in &files.index {
            let name = [relative.as_str(), index].join("/");
            if let Some(file) = open(&root, &name)? {
                return respond(query, file, &name);
            }
        }
        result = QueryResult::Unlisted;
    }
    Ok(result)
}

/// Opens the directory that contains a route's files.
///
/// # Errors
/// Returns the kernel's error.
pub(crate) fn open_root(root: &str) -> Result<OwnedFd, Errno> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    rustix::fs::open(root, flags, Mode::empty())
}

/// Decodes the path and removes the prefix `strip`. Returns an empty path, or one that starts with `/`. Returns `None`
/// if the path is malformed or has a different prefix.
fn strip_prefix_decoded(path: &[u8], strip: &str) -> Option<String> {
    let decoded = String::from_utf8(percent_decode(path)?).ok()?;
    let rest = decoded.strip_prefix(strip)?;
    match rest {
        "" => Some(String::new()),
        rest if rest.starts_with('/') => Some(rest.to_owned()),
        _ => None,
    }
}

fn percent_decode(path: &[u8]) -> Option<Vec<u8>> {
    let mut out = Vec::with_capacity(path.len());
    let mut rest = path;
    while let Some((byte, tail)) = rest.split_first() {
        rest = tail;
        if *byte == b'%' {
            let digits = rest
                .get(..2)
                .and_then(|digits| std::str::from_utf8(digits).ok())?;
            if !digits.bytes().all(|digit| digit.is_ascii_hexdigit()) {
                return None;
            }
            out.push(u8::from_str_radix(digits, 16).ok()?);
            rest = &rest[2..];
        } else {
            out.push(*byte);
        }
    }
    (!out.contains(&0)).then_some(out)
}

/// Returns the path relative to the root, or `None` if a part of it is hidden.
fn visible_path(path: &str) -> Option<String> {
    let parts: Vec<&str> = path.split('/').filter(|part| !part.is_empty()).collect();
    let mut numbered_parts = parts.iter().enumerate();
    let is_hidden = |(index, part): (usize, &&str)| {
        part.starts_with('.') && !(index == 0 && *part == ".well-known")
    };
    match numbered_parts.any(is_hidden) {
        true => None,
        false if parts.is_empty() => Some(".".to_owned()),
        false => Some(parts.join("/")),
    }
}

fn open_beneath(root: &OwnedFd, path: &str, flags: OFlags) -> Result<Option<OwnedFd>, Errno> {
    let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_MAGICLINKS;
    match rustix::fs::openat2(root, path, flags | OFlags::CLOEXEC, Mode::empty(), resolve) {
        Ok(fd) => Ok(Some(fd)),
        // XDEV and LOOP: a link leads out of the directory, or links form a loop.
        Err(
            Errno::NOENT
            | Errno::NOTDIR
            | Errno::ISDIR
            | Errno::NAMETOOLONG
            | Errno::XDEV
            | Errno::LOOP
            | Errno::NXIO
            | Errno::INVAL,
        ) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Opens a regular file. Returns `None` if there is none.
fn open(root: &OwnedFd, path: &str) -> Result<Option<File>, Errno> {
    // NONBLOCK: without it, opening a named pipe would block until there is a writer.
    let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOCTTY;
    let Some(fd) = open_beneath(root, path, flags)? else {
        return Ok(None);
    };
    let file = File::from(fd);
    let is_file = file.metadata().is_ok_and(|metadata| metadata.is_file());
    Ok(is_file.then_some(file))
}

fn is_directory(root: &OwnedFd, path: &str) -> Result<bool, Errno> {
    let flags = OFlags::PATH | OFlags::DIRECTORY;
    Ok(open_beneath(root, path, flags)?.is_some())
}

fn respond(query: &Query, file: File, name: &str) -> Result<QueryResult, Errno> {
    let metadata = file
        .metadata()
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    let modified = metadata.modified().unwrap_or(UNIX_EPOCH);
    let since = modified.duration_since(UNIX_EPOCH).unwrap_or_default();
    let size = metadata.len();
    let tag = format!("\"{:x}-{size:x}\"", since.as_nanos());
    // Dates in header fields have a resolution of one second.
    let modified = UNIX_EPOCH + Duration::from_secs(since.as_secs());
    let mut fields = vec![
        ("Date", httpdate::fmt_http_date(SystemTime::now())),
        ("Last-Modified", httpdate::fmt_http_date(modified)),
        ("ETag", tag.clone()),
    ];
    let (status, start, length) = match condition(query, &tag, modified) {
        Some(status) => (status, 0, 0),
        None => match range(query, &tag, modified, size) {
            Some(ByteRange::Range(start, length)) => (206, start, length),
            Some(ByteRange::Unsatisfiable) => (416, 0, 0),
            None => (200, 0, size),
        },
    };
    match status {
        200 | 206 => {
            let kind = mime_guess::from_path(name).first_raw();
            let kind = kind.unwrap_or("application/octet-stream");
            fields.push(("Content-Type", kind.to_owned()));
            fields.push(("Accept-Ranges", "bytes".to_owned()));
            fields.push(("Content-Length", length.to_string()));
        }
        304 => {}
        _ => fields.push(("Content-Length", "0".to_owned())),
    }
    match status {
        206 => {
            let last = start + length - 1;
            fields.push(("Content-Range", format!("bytes {start}-{last}/{size}")));
        }
        416 => fields.push(("Content-Range", format!("bytes */{size}"))),
        _ => {}
    }
    let content_length = if query.to_head { 0 } else { length };
    let first = usize::try_from(content_length)
        .unwrap_or(MAX_PART)
        .min(MAX_PART);
    let first = read_at(&file, start, first)
        .map_err(|error| Errno::from_io_error(&error).unwrap_or(Errno::IO))?;
    Ok(QueryResult::Response(Response {
        name: format!("/{}", name.trim_start_matches("./")),
        status,
        fields,
        next_offset: start + first.len() as u64,
        remaining: content_length - first.len() as u64,
        first_bytes: first,
        file: Arc::new(file),
    }))
}

/// Reads `size` bytes of a file, starting at `offset`. Returns fewer if the file is shorter.
pub(crate) fn read_at(file: &File, offset: u64, size: usize) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; size];
    let mut filled = 0;
    while filled < size {
        match file.read_at(&mut bytes[filled..], offset + filled as u64) {
            Ok(0) => break,
            Ok(read) => filled += read,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled);
    Ok(bytes)
}

/// Evaluates a request's conditions (RFC 9110 section 13.2.2). Returns 304, 412, or `None` for a normal response.
fn condition(query: &Query, tag: &str, modified: SystemTime) -> Option<u16> {
    let date = |text: &Option<String>| httpdate::parse_http_date(text.as_deref()?).ok();
    if let Some(tags) = &query.if_match {
        if !contains_tag(tags, tag, false) {
            return Some(412);
        }
    } else if date(&query.if_unmodified_since).is_some_and(|date| modified > date) {
        return Some(412);
    }
    let is_same = match &query.if_none_match {
        Some(tags) => contains_tag(tags, tag, true),
        None => date(&query.if_modified_since).is_some_and(|date| modified <= date),
    };
    is_same.then_some(304)
}

/// Returns whether a list of entity tags contains `tag`, by weak or strong comparison (RFC 9110 section 8.8.3.2).
fn contains_tag(list: &str, tag: &str, weak: bool) -> bool {
    list.trim() == "*"
        || list.split(',').map(str::trim).any(|listed| match weak {
            true => listed.strip_prefix("W/").unwrap_or(listed) == tag,
            false => listed == tag,
        })
}

/// A requested range of a file.
#[derive(Debug, PartialEq, Eq)]
enum ByteRange {
    /// First byte and length, at least 1.
    Range(u64, u64),
    /// The file contains none of the requested bytes.
    Unsatisfiable,
}

/// Returns the requested range (RFC 9110 section 14.2); `None` = the whole file. Multiple ranges, other units and
/// invalid ranges are ignored, as the RFC allows.
fn range(query: &Query, tag: &str, modified: SystemTime, size: u64) -> Option<ByteRange> {
    let requested = query.range.as_deref()?;
    let is_current = query
        .if_range
        .as_deref()
        .is_none_or(|value| match value.trim() {
            value if value.starts_with(['"', 'W']) => value == tag,
            date => httpdate::parse_http_date(date).is_ok_and(|date| date == modified),
        });
    if !is_current {
        return None;
    }
    let (unit, range) = requested.split_once('=')?;
    if !unit.trim().eq_ignore_ascii_case("bytes") || range.contains(',') {
        return None;
    }
    let (first, last) = range.trim().split_once('-')?;
    let parse_number = |text: &str| -> Option<u64> {
        let digits = !text.is_empty() && text.bytes().all(|byte| byte.is_ascii_digit());
        digits.then(|| text.parse().unwrap_or(u64::MAX))
    };
    if first.is_empty() {
        let length = parse_number(last)?.min(size);
        return Some(match length {
            0 => ByteRange::Unsatisfiable,
            length => ByteRange::Range(size - length, length),
        });
    }
    let first = parse_number(first)?;
    let last = match last {
        "" => u64::MAX,
        last => parse_number(last)?,
    };
    if last < first {
        return None;
    }
    if first >= size {
        return Some(ByteRange::Unsatisfiable);
    }
    Some(ByteRange::Range(first, last.min(size - 1) - first + 1))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn query(path: &str) -> Query {
        Query {
            files: Arc::new(StaticFiles::new("/")),
            path: path.as_bytes().to_vec(),
            to_head: false,
            if_match: None,
            if_none_match: None,
            if_modified_since: None,
            if_unmodified_since: None,
            range: None,
            if_range: None,
        }
    }

    #[test]
    fn ranges_follow_rfc_9110() {
        let range_of = |text: &str, size| {
            let mut query = query("/");
            query.range = Some(text.to_owned());
            range(&query, "\"t\"", UNIX_EPOCH, size)
        };
        assert_eq!(range_of("bytes=0-0", 10), Some(ByteRange::Range(0, 1)));
        assert_eq!(range_of("bytes=2-", 10), Some(ByteRange::Range(2, 8)));
        assert_eq!(
            range_of("bytes=2-99999999999999999999999", 10),
            Some(ByteRange::Range(2, 8))
        );
        assert_eq!(range_of("bytes=-3", 10), Some(ByteRange::Range(7, 3)));
        assert_eq!(range_of("bytes=-30", 10), Some(ByteRange::Range(0, 10)));
        assert_eq!(range_of("bytes=10-", 10), Some(ByteRange::Unsatisfiable));
        assert_eq!(range_of("bytes=-0", 10), Some(ByteRange::Unsatisfiable));
        assert_eq!(range_of("bytes=0-", 0), Some(ByteRange::Unsatisfiable));
        for ignored in [
            "bytes=5-2",
            "bytes=0-1,3-4",
            "lines=0-1",
            "bytes=a-",
            "bytes=-",
            "bytes",
            "bytes=+1-2",
        ] {
            assert_eq!(range_of(ignored, 10), None, "{ignored}");
        }
    }

    #[test]
    fn entity_tags_take_precedence_over_dates() {
        let modified = UNIX_EPOCH + Duration::from_secs(1_000_000);
        let date = |seconds: u64| {
            Some(httpdate::fmt_http_date(
                UNIX_EPOCH + Duration::from_secs(seconds),
            ))
        };
        let mut query = query("/");
        query.if_modified_since = date(1_000_000);
        assert_eq!(condition(&query, "\"t\"", modified), Some(304));
        query.if_modified_since = date(999_999);
        assert_eq!(condition(&query, "\"t\"", modified), None);
        query.if_none_match = Some("\"x\", W/\"t\"".to_owned());
        assert_eq!(condition(&query, "\"t\"", modified), Some(304));
        query.if_match = Some("W/\"t\"".to_owned());
        assert_eq!(condition(&query, "\"t\"", modified), Some(412));
        query.if_match = Some("*".to_owned());
        query.if_none_match = Some("\"x\"".to_owned());
        query.if_modified_since = date(1_000_000);
        assert_eq!(condition(&query, "\"t\"", modified), None);
    }

    #[test]
    fn paths_are_decoded_and_hidden_names_rejected() {
        let stripped = |path: &str, strip: &str| strip_prefix_decoded(path.as_bytes(), strip);
        assert_eq!(stripped("/a%20b", "").as_deref(), Some("/a b"));
        assert_eq!(stripped("/s/a", "/s").as_deref(), Some("/a"));
        assert_eq!(stripped("/s", "/s").as_deref(), Some(""));
        for malformed in ["/sx", "/x", "/s/%zz", "/s/%", "/s/%00", "/s/%ff"] {
            assert_eq!(stripped(malformed, "/s"), None, "{malformed}");
        }
        assert_eq!(visible_path("/").as_deref(), Some("."));
        assert_eq!(visible_path("//a///b/").as_deref(), Some("a/b"));
        assert_eq!(
            visible_path("/.well-known/x").as_deref(),
            Some(".well-known/x")
        );
        for hidden in [
            "/.git/config",
            "/a/../b",
            "/a/.well-known",
            "/./a",
            "/.well-known/.x",
        ] {
            assert_eq!(visible_path(hidden), None, "{hidden}");
        }
    }
}
