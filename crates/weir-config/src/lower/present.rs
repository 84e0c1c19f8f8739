//! Adds notes about interfaces and programs that do not exist on this machine.
//!
//! They may exist on the director that the file is written for, or be created later: a virtual router waits for its
//! interface.

use std::ops::Range;

use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::view::Sink;

/// Checks an interface name, and adds a note if the interface does not exist.
pub(super) fn check_interface<'a>(
    sink: &mut Sink<'_>,
    name: &'a str,
    span: &Range<usize>,
) -> Option<&'a str> {
    let name = super::node::interface(sink, name, span)?;
    let is_missing = |machine: &dyn crate::Machine| machine.has_interface(name) == Some(false);
    if sink.machine.is_some_and(is_missing) {
        let message = format!("interface `{}` does not exist", name.escape_debug());
        sink.push(
            Diagnostic::new(Code::MissingRouterInterface, span, message)
                .cause("the virtual router is in the fault state until the interface exists")
                .fix("correct the name (`ip -brief link` lists the interfaces), or create the interface"),
        );
    }
    Some(name)
}

/// Adds a note if a program does not exist, or is not executable.
pub(super) fn check_program(sink: &mut Sink<'_>, path: &str, span: &Range<usize>) {
    let is_missing = |machine: &dyn crate::Machine| machine.has_program(path) == Some(false);
    if path.starts_with('/') && sink.machine.is_some_and(is_missing) {
        let message = format!(
            "`{}` does not exist or is not executable",
            path.escape_debug()
        );
        sink.push(
            Diagnostic::new(Code::MissingProgram, span, message)
                .cause(
                    "Weir cannot start the program: its checks fail, and its notifications are not sent",
                )
                .fix("install the program, make it executable, or correct the path"),
        );
    }
}
