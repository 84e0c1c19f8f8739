//! Provides functions that the tests of all crates share: required privileges, free addresses, programs, statistics.
//!
//! A test whose requirement is not met is skipped on a developer's machine and fails in CI ([`REQUIRE`]), so CI passes
//! only if every test ran. This crate is not part of the product.

mod address;
mod program;
mod statistics;

pub use address::free_address;
pub use program::{output_with_input, successful_output};
pub use statistics::p_value;

/// The environment variable that makes a test fail instead of being skipped; `make test` sets it.
pub const REQUIRE: &str = "WEIR_TEST_REQUIRE_ROOT";

/// Returns `is_met`. If it is false, reports that the test is skipped.
///
/// # Panics
/// `is_met` is false and [`REQUIRE`] is set.
#[must_use]
pub fn require(requirement: &str, is_met: bool) -> bool {
    if !is_met {
        assert!(
            std::env::var_os(REQUIRE).is_none(),
            "this test needs {requirement}, and {REQUIRE} is set"
        );
        eprintln!("SKIPPED: needs {requirement}");
    }
    is_met
}

/// Returns whether the test runs as root. If it does not, reports that the test is skipped.
///
/// # Panics
/// See [`require`].
#[must_use]
pub fn require_root() -> bool {
    require("root", rustix::process::geteuid().is_root())
}
