//! Coverage-guided fuzzing of every parser of bytes from outside.
//!
//! A [`Target`] is a parser under a name, as a function of bytes that must return: it must not panic, not hang, and not
//! take memory out of proportion. Where two properties of a parser can be compared (the same input in other portions, a
//! text that was accepted and is read again), the target compares them. `tools/fuzz.sh` runs the targets under
//! libFuzzer; what it keeps is in `corpus/`, one file a target, one input a line (see [`corpus`]). The tests of this
//! crate run every input of the corpora and every seed again, so an input that once failed fails again without a
//! fuzzer.
//!
//! The crate refuses to open sockets and files, except for the corpora.

pub mod command;
pub mod corpus;
mod target;

pub use target::{TARGETS, Target, find};
