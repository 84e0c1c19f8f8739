//! Determines the server for a flow if a hash selects a server that accepts no new flows.
//!
//! `dh`, `sh` and `mh` select a server by address, whether or not it is available, so each needs a rule for unavailable
//! servers. The rule is separate from the tables, because it is a property of the service and can change independently.

/// The availability of a server for a new flow.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Availability {
    /// The server accepts new flows.
    Ready,
    /// Effective weight 0: quiesced, drained or down.
    Quiesced,
    /// At its upper connection threshold.
    Overloaded,
    /// At its load bound, if the service has one. Skipped in every mode, but the first such server is used if the
    /// search finds no ready server.
    Busy,
}

/// The behavior of a hashing scheduler if a server is not [`Availability::Ready`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Mode {
    /// Rejects the flow, like the kernel without a fallback flag.
    Strict,
    /// Continues probing until a server is ready, like the kernel with `sh-fallback` and `mh-fallback`.
    Fallback,
    /// Weir's default without a flag: skips quiesced servers in the same order as `Fallback`, but rejects the flow if
    /// the first server that is not quiesced is overloaded, like `Strict`.
    Repair,
}

/// The decision about a probed server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Verdict {
    /// Select the server.
    Select,
    /// End the search.
    Reject,
    /// Continue the search.
    Skip,
    /// Continue the search, and select this server if the search finds no other.
    LastResort,
}

impl Mode {
    /// Returns the server selected from a sequence of probed servers, or `None` if the flow is rejected. The search
    /// ends at 0, which is an entry without an owner.
    pub(crate) fn choose(
        self,
        probes: impl Iterator<Item = u32>,
        availability: &dyn Fn(u32) -> Availability,
    ) -> Option<u32> {
        let mut fallback = None;
        for dest in probes {
            if dest == 0 {
                break;
            }
            match self.verdict(availability(dest)) {
                Verdict::Select => return Some(dest),
                Verdict::Reject => break,
                Verdict::LastResort => fallback = fallback.or(Some(dest)),
                Verdict::Skip => {}
            }
        }
        fallback
    }

    fn verdict(self, availability: Availability) -> Verdict {
        match (self, availability) {
            (_, Availability::Ready) => Verdict::Select,
            (_, Availability::Busy) => Verdict::LastResort,
            (Mode::Fallback, _) | (Mode::Repair, Availability::Quiesced) => Verdict::Skip,
            (Mode::Strict, _) | (Mode::Repair, Availability::Overloaded) => Verdict::Reject,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::Availability::{Busy, Overloaded, Quiesced, Ready};
    use super::*;

    #[test]
    fn mode_determines_what_follows_an_unavailable_server() {
        // Availability of servers 1, 2 and 3 in probing order, and the choice of each mode.
        for (availabilities, strict, repair, fallback) in [
            ([Ready, Ready, Ready], Some(1), Some(1), Some(1)),
            ([Quiesced, Ready, Ready], None, Some(2), Some(2)),
            ([Overloaded, Ready, Ready], None, None, Some(2)),
            ([Quiesced, Overloaded, Ready], None, None, Some(3)),
            ([Quiesced, Quiesced, Quiesced], None, None, None),
            // A busy server is used if no other server is ready.
            ([Busy, Ready, Ready], Some(2), Some(2), Some(2)),
            ([Busy, Busy, Busy], Some(1), Some(1), Some(1)),
            ([Busy, Quiesced, Ready], Some(1), Some(3), Some(3)),
            ([Quiesced, Busy, Overloaded], None, Some(2), Some(2)),
        ] {
            let availability = |dest: u32| availabilities[dest as usize - 1];
            let choose = |mode: Mode| mode.choose([1, 2, 3].into_iter(), &availability);
            let chosen = [
                choose(Mode::Strict),
                choose(Mode::Repair),
                choose(Mode::Fallback),
            ];
            assert_eq!(chosen, [strict, repair, fallback], "{availabilities:?}");
        }
    }

    #[test]
    fn entry_without_an_owner_ends_the_search() {
        for mode in [Mode::Strict, Mode::Repair, Mode::Fallback] {
            let choose = |probes: &[u32]| {
                mode.choose(probes.iter().copied(), &|dest| match dest {
                    1 => Ready,
                    _ => Busy,
                })
            };
            assert_eq!(choose(&[0, 1]), None);
            assert_eq!(choose(&[2, 0, 1]), Some(2));
            assert_eq!(choose(&[]), None);
        }
    }
}
