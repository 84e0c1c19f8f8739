//! Maps schedulers to their numbers in the data plane and to the trees that they use.
//!
//! With a tree, a scheduler need not search a long list. weir-engine computes the nodes of trees from the counters in
//! the maps.

use weir_abi::{
    RULE_FO, RULE_LC, RULE_NQ, RULE_OVF, RULE_SED, RULE_SUM_ACTIVE, RULE_SUM_WEIGHT, RULE_WLC,
    Scheduler,
};
use weir_model::SchedulerKind;
use weir_sched::load::Rule;
use weir_sched::tournament::Tree;

/// Returns the data plane's number for a scheduler; `None` = only proxy services support it.
pub const fn number(kind: SchedulerKind) -> Option<Scheduler> {
    Some(match kind {
        SchedulerKind::Rr => Scheduler::Rr,
        SchedulerKind::Wrr => Scheduler::Wrr,
        SchedulerKind::Lc => Scheduler::Lc,
        SchedulerKind::Wlc => Scheduler::Wlc,
        SchedulerKind::Sed => Scheduler::Sed,
        SchedulerKind::Nq => Scheduler::Nq,
        SchedulerKind::Fo => Scheduler::Fo,
        SchedulerKind::Ovf => Scheduler::Ovf,
        SchedulerKind::Twos => Scheduler::Twos,
        SchedulerKind::Dh => Scheduler::Dh,
        SchedulerKind::Sh => Scheduler::Sh,
        SchedulerKind::Mh => Scheduler::Mh,
        SchedulerKind::Lblc => Scheduler::Lblc,
        SchedulerKind::Lblcr => Scheduler::Lblcr,
        SchedulerKind::Maglev => Scheduler::Maglev,
        SchedulerKind::P2c => Scheduler::P2c,
        SchedulerKind::LeastTime => Scheduler::LeastTime,
        SchedulerKind::Hash => return None,
    })
}

/// Returns the tree for a long list, and the `RULE_*` with which the data plane updates it; `None` for a scheduler
/// without a tree.
#[must_use]
pub const fn tree(scheduler: Scheduler, bounded: bool) -> Option<(Tree, u32)> {
    let (winner, rule) = match scheduler {
        Scheduler::Lc => (Rule::Lc, RULE_LC),
        Scheduler::Wlc | Scheduler::Lblc | Scheduler::Lblcr => (Rule::Wlc, RULE_WLC),
        Scheduler::Sed => (Rule::Sed, RULE_SED),
        Scheduler::Nq => (Rule::Nq, RULE_NQ),
        Scheduler::Ovf => (Rule::Ovf, RULE_OVF),
        // `wrr` and `rr` search for the next server below its threshold.
        Scheduler::Fo | Scheduler::Wrr | Scheduler::Rr => (Rule::Fo, RULE_FO),
        Scheduler::Twos | Scheduler::P2c => return Some((Tree::Weights, RULE_SUM_WEIGHT)),
        Scheduler::Dh | Scheduler::Sh | Scheduler::Mh | Scheduler::Maglev if bounded => {
            return Some((Tree::Active, RULE_SUM_ACTIVE));
        }
        Scheduler::None
        | Scheduler::Dh
        | Scheduler::Sh
        | Scheduler::Mh
        | Scheduler::Maglev
        // The costs of servers change too often for a tree.
        | Scheduler::LeastTime => return None,
    };
    Some((Tree::Winners(winner), rule))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_scheduler_has_its_tree() {
        let winners = |rule, number| Some((Tree::Winners(rule), number));
        let sums = Some((Tree::Weights, RULE_SUM_WEIGHT));
        let active = Some((Tree::Active, RULE_SUM_ACTIVE));
        for (scheduler, plain, bounded) in [
            (Scheduler::None, None, None),
            (
                Scheduler::Lc,
                winners(Rule::Lc, RULE_LC),
                winners(Rule::Lc, RULE_LC),
            ),
            (
                Scheduler::Wlc,
                winners(Rule::Wlc, RULE_WLC),
                winners(Rule::Wlc, RULE_WLC),
            ),
            (
                Scheduler::Lblc,
                winners(Rule::Wlc, RULE_WLC),
                winners(Rule::Wlc, RULE_WLC),
            ),
            (
                Scheduler::Lblcr,
                winners(Rule::Wlc, RULE_WLC),
                winners(Rule::Wlc, RULE_WLC),
            ),
            (
                Scheduler::Sed,
                winners(Rule::Sed, RULE_SED),
                winners(Rule::Sed, RULE_SED),
            ),
            (
                Scheduler::Nq,
                winners(Rule::Nq, RULE_NQ),
                winners(Rule::Nq, RULE_NQ),
            ),
            (
                Scheduler::Ovf,
                winners(Rule::Ovf, RULE_OVF),
                winners(Rule::Ovf, RULE_OVF),
            ),
            (
                Scheduler::Fo,
                winners(Rule::Fo, RULE_FO),
                winners(Rule::Fo, RULE_FO),
            ),
            (
                Scheduler::Rr,
                winners(Rule::Fo, RULE_FO),
                winners(Rule::Fo, RULE_FO),
            ),
            (
                Scheduler::Wrr,
                winners(Rule::Fo, RULE_FO),
                winners(Rule::Fo, RULE_FO),
            ),
            (Scheduler::Twos, sums, sums),
            (Scheduler::P2c, sums, sums),
            (Scheduler::Dh, None, active),
            (Scheduler::Sh, None, active),
            (Scheduler::Mh, None, active),
            (Scheduler::Maglev, None, active),
        ] {
            assert_eq!(
                (tree(scheduler, false), tree(scheduler, true)),
                (plain, bounded),
                "{scheduler:?}"
            );
        }
    }
}
