//! Shared by the tests of all crates: required rights, free addresses, programs, statistics.
//!
//! A test whose requirement is not met is skipped on a developer's machine and fails in CI ([`REQUIRE`]), so that CI
//! passes only if every test ran. Not part of the product.

mod address;
mod program;
mod statistics;

pub use address::free_address;
pub use program::{output_with_input, successful_output};
pub use statistics::p_value;

/// The environment variable that forbids to skip a test; `make test` sets it.
pub const REQUIRE: &str = "WEIR_TEST_REQUIRE_ROOT";

/// Returns `is_met`, and reports that the test is skipped if it is false.
///
/// # Panics
/// If it is false and [`REQUIRE`] is set.
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

/// Returns whether root runs the test, as [`require`] does.
///
/// # Panics
/// As [`require`].
#[must_use]
pub fn require_root() -> bool {
    require("root", rustix::process::geteuid().is_root())
}
