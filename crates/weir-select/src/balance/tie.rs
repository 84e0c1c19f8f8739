//! Implements `lc`, `wlc`, `sed` and `nq` for the proxy, so that equally loaded servers take turns.
//!
//! weir-sched's rules return the first of several servers with the least load, as IPVS does, so an idle service would
//! use only one server. Here such servers take turns by smooth weighted round robin, as with nginx's `least_conn`.

use weir_sched::load::{self, Rule};
use weir_sched::{Counts, Member};

/// Round-robin state for the equally loaded servers of one pool.
#[derive(Debug, Default)]
pub(super) struct TieBreaker {
    /// Credits by position in the list of members. The server with the most credit is next.
    credits: Vec<i64>,
    /// Positions of the servers with the least load. Kept between calls to reuse the allocation.
    tied: Vec<usize>,
}

impl TieBreaker {
    /// Returns the position of the server for the next request, or `None` if no server is available.
    pub(super) fn pick(
        &mut self,
        rule: Rule,
        members: &[Member],
        counts: &dyn Fn(u32) -> Counts,
    ) -> Option<usize> {
        load::pick_tied(rule, members, counts, &mut self.tied);
        if let [only] = self.tied[..] {
            return Some(only);
        }
        self.credits.resize(members.len(), 0);
        let mut total = 0;
        let mut next = *self.tied.first()?;
        for &position in &self.tied {
            let share = match rule {
                Rule::Lc => 1,
                Rule::Wlc | Rule::Sed | Rule::Nq | Rule::Fo | Rule::Ovf => {
                    i64::from(members[position].weight)
                }
            };
            total += share;
            self.credits[position] += share;
            if self.credits[position] > self.credits[next] {
                next = position;
            }
        }
        self.credits[next] -= total;
        Some(next)
    }

    /// Handles changed weights or a changed list of servers. The credits are kept, so the rotation continues even if
    /// weights change often, as during a slow start. Each credit is limited to plus or minus the sum of the new
    /// weights.
    pub(super) fn handle_new_members(&mut self, members: &[Member]) {
        self.credits.resize(members.len(), 0);
        let total: i64 = members.iter().map(|member| i64::from(member.weight)).sum();
        for credit in &mut self.credits {
            *credit = (*credit).clamp(-total, total);
        }
    }
}
