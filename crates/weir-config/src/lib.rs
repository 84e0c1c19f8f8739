//! `weir.toml`: text to spans to diagnostics to model.
//!
//! [`load`] makes text of bytes, [`parse()`] a [`Desired`] of text, or every mistake in it at once, and [`render()`] shows
//! these. The same schema is read as JSON by [`parse_json`]. The language itself (names, types, ranges, defaults) is
//! written down in one place, from which unknown keys are told, and [`schema()`] and [`cards`] are made.
//!
//! The crate refuses to open files, to look at the machine (what it should know of it is an argument, [`Host`]), and to
//! accept what this build cannot do: such a key or value is an error at its place.
//!
//! ```
//! let text = "[pool.web]\nservers = [\"10.0.0.5\"]\n\n[service.web]\nlisten = [\"192.0.2.10:80\"]\nforward = \"direct\"\npool = \"web\"\n";
//! let parsed = weir_config::parse(text, &weir_config::Host::default()).unwrap();
//! assert_eq!(parsed.desired.services[0].name, "web");
//! ```

mod address;
mod card;
mod catalog;
mod code;
mod diagnostic;
mod duration;
mod file;
mod json;
mod key;
mod lower;
mod mask;
mod members;
mod parse;
mod privilege;
mod render;
mod schema;
mod size;
mod spelling;
mod suggest;
mod tree;
mod unit;
mod verify;
mod view;

pub use card::{cards, codes};
pub use code::{Code, Explanation, Severity};
pub use diagnostic::{Diagnostic, Further, Related};
pub use duration::{parse as duration, show as show_duration};
pub use file::{FileError, MAX_FILE_BYTES, load};
pub use members::{
    Former, MEMBER_KEYS, Member, MemberError, MemberReason, former_members, members,
};
pub use parse::{Parsed, parse, parse_json};
pub use privilege::privileged_changes;
pub use render::{render, render_file_error};
pub use schema::schema;
pub use spelling::{header, string};
pub use verify::{Host, Machine, SecretValue};
pub use weir_model::Desired;
