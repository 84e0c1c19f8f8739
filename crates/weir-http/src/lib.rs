//! Parses, checks and rewrites HTTP/1 messages for a proxy, and tracks exchanges, without I/O.
//!
//! [`head`] parses requests and responses and rejects messages that two parsers could interpret differently;
//! [`rewrite`] forwards heads by copying ranges; [`chunk`] parses the chunked coding; [`exchange`] pairs a request with
//! its response and decides when the exchange ends and whether the connections persist; [`hello`] reads the server name
//! in a TLS ClientHello; [`local_response`] writes Weir's own responses; [`path`] normalizes paths; [`route`] selects a
//! route.
//!
//! The crate owns no buffer, socket, clock or header map. Names and values are ranges in the caller's input.

pub mod access;
mod byte_class;
pub mod chunk;
pub mod cookie;
mod decimal;
pub mod encoding;
pub mod exchange;
pub mod field;
pub mod head;
pub mod hello;
pub mod local_response;
mod parse_error;
pub mod path;
pub mod preamble;
pub mod rewrite;
pub mod route;
pub mod trace_context;
pub mod trailer;

pub use exchange::{Exchange, RequestStep, ResponseStep, ServerEnd};
pub use field::{Field, Name, mark_untrusted};
pub use head::{Framing, HeadLimits, Method, Request, Response};
pub use local_response::{LocalResponse, reason_phrase};
pub use parse_error::ParseError;
pub use path::RequestPath;
pub use preamble::Preamble;
pub use rewrite::{
    Client, ClientEdit, ConditionalLine, CookieEdit, Encoding, RequestEdit, ResponseEdit,
    write_request,
};
pub use trace_context::TraceContext;
pub use trailer::TrailerFilter;
