//! What happens if a hash selects a server that accepts no new flow.
//!
//! `dh`, `sh` and `mh` find a server by address without searching for a free one, so each needs a rule for servers that
//! are unavailable. It is separate from the tables because it is a property of the service and may change
//! independently.

/// Whether a server accepts a new flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// It does.
    Ready,
    /// Effective weight 0: quiesced, drained or down.
    Quiesced,
    /// At its upper connection threshold.
    Overloaded,
    /// Above its share of the pool's flows, if the service has a load bound: skipped in every mode, but used if no
    /// better server is found.
    Busy,
}

/// What a hashing scheduler does with a server that is not [`Availability::Ready`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Refuses the flow, as the kernel does without a fallback flag.
    Strict,
    /// Continues probing until a server is ready, as the kernel does with `sh-fallback` and `mh-fallback`.
    Fallback,
    /// Weir's default without a flag: skips quiesced servers in the order of `Fallback`, but refuses the flow if the
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
    /// The server selected from a sequence of probed ones; 0 in the sequence is an entry without an owner and refuses.
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
            match self.verdict(availability(dest)) {
                Verdict::Take => return Some(dest),
                Verdict::Refuse => break,
                Verdict::Spare => spare = spare.or(Some(dest)),
                Verdict::Skip => {}
            }
        }
        spare
    }

    fn verdict(self, found: Availability) -> Verdict {
        match (self, found) {
            (_, Availability::Ready) => Verdict::Take,
            (_, Availability::Busy) => Verdict::Spare,
            (Mode::Fallback, _) | (Mode::Repair, Availability::Quiesced) => Verdict::Skip,
            (Mode::Strict, _) | (Mode::Repair, Availability::Overloaded) => Verdict::Refuse,
        }
    }
}
