//! `weir doctor`: finds what would break balancing here and says how to mend it.

mod ailment;
mod director;

pub use ailment::Ailment;
pub use director::director;
