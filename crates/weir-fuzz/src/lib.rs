//! Fuzzes every parser of external input, guided by coverage.
//!
//! A [`Target`] is a named function that passes bytes to a parser. For every input it must return without a panic, in
//! bounded time and with bounded memory. Where possible, a target also compares two results: those of the same input
//! split into pieces of different sizes, or those of an accepted text before and after a round trip. `tools/fuzz.sh`
//! runs the targets with libFuzzer and stores the inputs that reach new code in `corpus/`, in one file per target with
//! one input per line (see [`corpus`]). The tests of this crate run all stored inputs and all seeds, so an input that
//! once failed is tested again even without the fuzzer.
//!
//! The crate opens no sockets, and no files except those of the corpora.

pub mod command;
pub mod corpus;
mod target;

pub use target::{TARGETS, Target, find};
