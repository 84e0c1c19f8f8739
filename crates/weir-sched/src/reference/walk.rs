//! Implements `rr` and `wrr` on the linked list, with the kernel's variable names (`cl cw mw di`).

use super::{HEAD, List, Node};

/// `svc->sched_data` of `rr`: the last chosen server, or the head.
#[derive(Clone, Debug)]
pub(super) struct Rr {
    last: usize,
}

impl Rr {
    pub(super) fn new() -> Self {
        Self { last: HEAD }
    }

    /// Handles the removal of a server. Its successor already points to the new predecessor.
    pub(super) fn dest_deleted(&mut self, list: &List, node: usize) {
        if self.last == node {
            self.last = list.nodes[list.next(node)].prev;
        }
    }

    pub(super) fn schedule(&mut self, list: &List) -> Option<usize> {
        let mut dest = self.last;
        for _pass in 0..2 {
            loop {
                dest = list.next(dest);
                if dest == HEAD {
                    break;
                }
                let Node {
                    overloaded, weight, ..
                } = list.nodes[dest];
                if !overloaded && weight > 0 {
                    self.last = dest;
                    return Some(dest);
                }
                if dest == self.last {
                    return None;
                }
            }
            if self.last == HEAD {
                break;
            }
        }
        None
    }
}

/// `struct ip_vs_wrr_mark`.
#[derive(Clone, Debug)]
pub(super) struct Wrr {
    cl: usize,
    cw: i64,
    mw: i64,
    di: i64,
}

impl Wrr {
    pub(super) fn new(list: &List) -> Self {
        let di = gcd_weight(list);
        let mw = max_weight(list) - (di - 1);
        Self {
            cl: HEAD,
            cw: mw,
            mw,
            di,
        }
    }

    pub(super) fn dest_changed(&mut self, list: &List) {
        self.cl = HEAD;
        self.di = gcd_weight(list);
        self.mw = max_weight(list) - (self.di - 1);
        if self.cw > self.mw || self.cw == 0 {
            self.cw = self.mw;
        } else if self.di > 1 {
            self.cw = (self.cw / self.di) * self.di + 1;
        }
    }

    pub(super) fn schedule(&mut self, list: &List) -> Option<usize> {
        if self.mw == 0 {
            return None;
        }
        let last = self.cl;
        let mut dest = last;
        let mut stop = None;
        let (mut last_pass, mut restarted) = (false, false);
        loop {
            loop {
                dest = list.next(dest);
                if dest == HEAD {
                    break;
                }
                let Node {
                    overloaded, weight, ..
                } = list.nodes[dest];
                if !overloaded && weight >= self.cw {
                    self.cl = dest;
                    return Some(dest);
                }
                if Some(dest) == stop {
                    self.cl = dest;
                    return None;
                }
            }
            self.cw -= self.di;
            if self.cw <= 0 {
                self.cw = self.mw;
                if last_pass || last == HEAD {
                    self.cl = HEAD;
                    return None;
                }
                restarted = true;
            }
            last_pass = self.cw <= self.di;
            if last_pass && restarted && last != HEAD {
                stop = Some(last);
            }
        }
    }
}

fn gcd_weight(list: &List) -> i64 {
    let mut divisor = 0;
    for Node { weight, .. } in list.servers().filter(|node| node.weight > 0) {
        let (mut a, mut b) = (*weight, divisor);
        while b != 0 {
            (a, b) = (b, a % b);
        }
        divisor = a;
    }
    if divisor == 0 { 1 } else { divisor }
}

fn max_weight(list: &List) -> i64 {
    list.servers().map(|node| node.weight).fold(0, i64::max)
}
