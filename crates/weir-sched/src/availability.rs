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
    /// Above its share of the pool's flows, where the service bounds it: probed past in every mode, and taken when nobody
    /// better is found.
    Busy,
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
enum Verdict {
    Take,
    Refuse,
    Skip,
    Spare,
}

impl Mode {
    /// The server that a row of probed ones leads to: 0 among them is a place without an owner, which refuses.
    pub(crate) fn choose(
        self,
        probes: impl Iterator<Item = u32>,
        availability: &dyn Fn(u32) -> Availability,
    ) -> Option<u32> {
        let mut spare = None;
        for dest in probes {
            if dest == 0 {
                break;
            }
            match self.judge(availability(dest)) {
                Verdict::Take => return Some(dest),
                Verdict::Refuse => break,
                Verdict::Spare => spare = spare.or(Some(dest)),
                Verdict::Skip => {}
            }
        }
        spare
    }

    fn judge(self, found: Availability) -> Verdict {
        match (self, found) {
            (_, Availability::Ready) => Verdict::Take,
            (_, Availability::Busy) => Verdict::Spare,
            (Mode::Fallback, _) | (Mode::Repair, Availability::Quiesced) => Verdict::Skip,
            (Mode::Strict, _) | (Mode::Repair, Availability::Overloaded) => Verdict::Refuse,
        }
    }
}
