//! Reads files with one entry per line: networks, hosts, users, map entries.

use std::ops::Range;

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::view::Sink;

/// Returns the content of a list file; empty if files are not read. `noun` names its entries in messages. A file that
/// cannot be read is an error, because without the list, the wrong requests would match; `None` = the error was
/// reported.
pub(super) fn read(
    sink: &mut Sink<'_>,
    path: &str,
    span: &Range<usize>,
    noun: &str,
) -> Option<String> {
    if !path.starts_with('/') || path.contains('\0') {
        sink.push(
            Diagnostic::new(Code::BadText, span, "`file` must be an absolute path")
                .cause("the daemon's working directory is not defined")
                .fix(format!(
                    "write an absolute path, as in \"/etc/weir/{noun}\""
                )),
        );
        return None;
    }
    match sink.machine.and_then(|machine| machine.list_file(path)) {
        None => Some(String::new()),
        Some(Ok(content)) => Some(content),
        Some(Err(reason)) => {
            let message = format!("cannot read the {noun}: {path}: {reason}");
            sink.push(
                Diagnostic::new(Code::BadListFile, span, message)
                    .cause("without the list, the wrong requests would match")
                    .fix("create the file, or remove the reference to it"),
            );
            None
        }
    }
}

/// Returns the lines with an entry: number, from 1, and text. Comments occupy whole lines and are skipped.
pub(super) fn lines(content: &str) -> impl Iterator<Item = (usize, &str)> {
    let lines = (1..).zip(content.lines().map(str::trim));
    lines.filter(|(_, line)| !line.is_empty() && !line.starts_with('#'))
}
