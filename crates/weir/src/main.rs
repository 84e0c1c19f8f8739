//! Arguments and wiring of the weir program.
fn main() {}
