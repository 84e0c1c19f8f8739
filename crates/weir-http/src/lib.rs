//! HTTP/1 as a proxy needs it: strict heads, framing, hygiene, and one exchange as a machine without I/O.
//!
//! [`head`] reads requests and responses and refuses whatever two readers could understand differently; [`rewrite`] passes
//! heads on by copying ranges; [`chunk`] follows the chunked coding; [`exchange`] ties a request to its response and says
//! when it ends and what becomes of the connections; [`hello`] reads the name
//! that a TLS client asks for; [`answer`] writes what Weir says itself, [`path`] brings paths into one form, [`route`] says where a
//! request leads.
//!
//! The crate refuses to own a buffer, a socket, a clock or a header map. Names and values are places in the caller's input.

pub mod access;
pub mod answer;
pub mod chunk;
pub mod cookie;
pub mod encoding;
pub mod exchange;
pub mod field;
pub mod head;
pub mod hello;
mod octet;
pub mod path;
pub mod preamble;
mod refusal;
pub mod rewrite;
pub mod route;

pub use answer::Answer;
pub use exchange::{Exchange, ServerEnd, Step, Upload};
pub use field::{Field, Name};
pub use head::{Framing, HeadLimits, Method, Request, Response};
pub use path::RequestPath;
pub use preamble::Preamble;
pub use refusal::Refusal;
pub use rewrite::{Client, CookieTouch, Encoding, RequestEdit, ResponseTouch, write_request};
