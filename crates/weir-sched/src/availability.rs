//! What happens when a hash leads to a server that takes no new flow.
//!
//! `dh`, `sh` and `mh` find a server by address, not by looking for a free one, so each needs a rule for the case that the
//! one it found is out. Kept apart from the tables because the rule is a property of the service and may change without one.

/// Why a server may or may not take a new flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// It may.
    Ready,
    /// Effective weight 0: quiesced, drained or down.
    Quiesced,
    /// At its upper connection threshold.
    Overloaded,
}

/// What a hashing scheduler does about a server that is not [`Availability::Ready`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Refuses the flow, as the kernel does without a fallback flag.
    Strict,
    /// Probes on until a server is ready, as the kernel does with `sh-fallback` and `mh-fallback`.
    Fallback,
    /// Weir's default without a flag: probes past quiesced servers in the order of `Fallback`, yet refuses the flow when the
    /// first other server is overloaded, as `Strict` does.
    Repair,
}

/// What to do with one probed server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    Take,
    Refuse,
    Skip,
}

impl Mode {
    pub(crate) fn judge(self, found: Availability) -> Verdict {
        match (self, found) {
            (_, Availability::Ready) => Verdict::Take,
            (Mode::Fallback, _) | (Mode::Repair, Availability::Quiesced) => Verdict::Skip,
            (Mode::Strict, _) | (Mode::Repair, Availability::Overloaded) => Verdict::Refuse,
        }
    }
}
