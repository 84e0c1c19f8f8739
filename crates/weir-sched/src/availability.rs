//! Policy for a hash that selects a server which accepts no new flow.
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

#[cfg(test)]
mod tests {
    use super::Availability::{Busy, Overloaded, Quiesced, Ready};
    use super::*;

    #[test]
    fn mode_decides_what_follows_an_unavailable_server() {
        // Availability of the servers 1, 2 and 3 in the order of probing, and the choice of each mode.
        for (found, strict, repair, fallback) in [
            ([Ready, Ready, Ready], Some(1), Some(1), Some(1)),
            ([Quiesced, Ready, Ready], None, Some(2), Some(2)),
            ([Overloaded, Ready, Ready], None, None, Some(2)),
            ([Quiesced, Overloaded, Ready], None, None, Some(3)),
            ([Quiesced, Quiesced, Quiesced], None, None, None),
            // A busy server is used if no other one is.
            ([Busy, Ready, Ready], Some(2), Some(2), Some(2)),
            ([Busy, Busy, Busy], Some(1), Some(1), Some(1)),
            ([Busy, Quiesced, Ready], Some(1), Some(3), Some(3)),
            ([Quiesced, Busy, Overloaded], None, Some(2), Some(2)),
        ] {
            let availability = |dest: u32| found[dest as usize - 1];
            let choose = |mode: Mode| mode.choose([1, 2, 3].into_iter(), &availability);
            let chosen = [
                choose(Mode::Strict),
                choose(Mode::Repair),
                choose(Mode::Fallback),
            ];
            assert_eq!(chosen, [strict, repair, fallback], "{found:?}");
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
