//! Parses `weir.toml`: converts the text to a tree with spans, and the tree to the model and diagnostics.
//!
//! [`load`] checks the bytes of a file, [`parse()`] returns a [`Desired`] or all problems in the text, and [`render()`]
//! formats the problems. [`parse_json`] accepts the same schema as JSON. The schema (names, types, ranges, defaults) is
//! defined in one place. It is used to detect unknown keys, and to generate [`schema()`] and [`cards`].
//!
//! The crate does not open files or query the machine; the caller passes the required information as an argument
//! ([`Machine`]). Settings that are not implemented are errors.
//!
//! ```
//! let text = "[pool.web]\nservers = [\"10.0.0.5\"]\n\n\
//!             [service.web]\nlisten = [\"192.0.2.10:80\"]\nforward = \"direct\"\npool = \"web\"\n";
//! let parsed = weir_config::parse(text, &weir_config::Host::default()).unwrap();
//! assert_eq!(parsed.desired.services[0].name, "web");
//! ```

mod address;
mod bundle_file;
mod canonical;
mod card;
mod catalog;
mod code;
mod defaults;
mod diagnostic;
mod directive;
mod duration;
mod environment;
mod file;
mod include;
mod json;
mod key;
mod lower;
mod mask;
mod members;
mod parse;
mod privilege;
mod published;
mod render;
mod schema;
mod size;
mod spelling;
mod suggest;
mod tree;
mod unit;
mod verify;
mod view;
mod when;

pub use canonical::canonical;
pub use card::{cards, codes};
pub use code::{Code, Explanation, Severity};
pub use diagnostic::{Diagnostic, Occurrence, RelatedSpan};
pub use duration::parse as duration;
pub use file::{FileError, MAX_FILE_BYTES, load};
pub use include::{Bundle, Files, bundle, files};
pub use members::{
    MEMBER_KEYS, Member, MemberError, MemberReason, MigratedMembers, members, migrate_members,
};
pub use parse::{ParsedConfig, parse, parse_json};
pub use privilege::{FileUse, NamedFile, named_files, privileged_changes};
pub use published::{
    group_of, is_publishable, own_part, published_findings, published_part, with_published,
};
pub use render::{render, render_file_error};
pub use schema::schema;
pub use spelling::{header, string};
pub use verify::{Host, MAX_LIST_BYTES, Machine, SecretValue};

/// Returns the address of a server as written in a configuration, `ADDRESS` or `ADDRESS:PORT`; `None` if the text is
/// neither.
pub fn server_address(text: &str) -> Option<std::net::IpAddr> {
    address::parse_server(text).ok().map(|(address, _)| address)
}

pub use weir_model::Desired;
pub use weir_model::format_duration as show_duration;
