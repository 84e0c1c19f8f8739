//! Implements `rr` and `wrr` like the kernel: with a circular linked list, a pointer into it, and step-by-step loops.
//!
//! This is an executable form of net/netfilter/ipvs/ip_vs_rr.c and ip_vs_wrr.c. It has their structure and is not
//! optimized, so that it can be compared with them line by line. Production code uses [`table`](mod@crate::table), and
//! tests check that both always agree. This module is only for tests: a choice with `wrr` can take one iteration per
//! unit of weight.
//!
//! The module omits locks, reference counts, and concurrent readers of a changing list.

mod walk;

use walk::{Rr, Wrr};

/// The list's head, which is not a server.
const HEAD: usize = 0;

/// The scheduler of a [`Service`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Walk {
    /// `rr`
    Rr,
    /// `wrr`
    Wrr,
}

#[derive(Clone, Debug)]
struct Node {
    prev: usize,
    next: usize,
    is_linked: bool,
    weight: i64,
    overloaded: bool,
}

/// The list of a service's servers, `svc->destinations`. Nodes are never freed, so a removed node still has its
/// successor, as with RCU. They are numbered from 1, in the order in which they were added.
#[derive(Clone, Debug)]
struct List {
    nodes: Vec<Node>,
}

impl List {
    fn next(&self, node: usize) -> usize {
        self.nodes[node].next
    }

    fn servers(&self) -> impl Iterator<Item = &Node> {
        let mut node = HEAD;
        std::iter::from_fn(move || {
            node = self.next(node);
            (node != HEAD).then(|| &self.nodes[node])
        })
    }

    fn insert_at_head(&mut self, weight: u32) -> usize {
        let node = self.nodes.len();
        let next = self.next(HEAD);
        self.nodes.push(Node {
            prev: HEAD,
            next,
            is_linked: true,
            weight: i64::from(weight),
            overloaded: false,
        });
        self.nodes[HEAD].next = node;
        self.nodes[next].prev = node;
        node
    }

    fn unlink(&mut self, node: usize) {
        let Node { prev, next, .. } = self.nodes[node];
        self.nodes[prev].next = next;
        self.nodes[next].prev = prev;
        self.nodes[node].is_linked = false;
    }
}

/// A service with its servers and the state of its scheduler.
#[derive(Clone, Debug)]
pub struct Service {
    list: List,
    state: State,
}

#[derive(Clone, Debug)]
enum State {
    Rr(Rr),
    Wrr(Wrr),
}

impl Service {
    /// Creates a service without servers.
    #[must_use]
    pub fn new(walk: Walk) -> Self {
        let list = List {
            nodes: vec![Node {
                prev: HEAD,
                next: HEAD,
                is_linked: true,
                weight: 0,
                overloaded: false,
            }],
        };
        let state = match walk {
            Walk::Rr => State::Rr(Rr::new()),
            Walk::Wrr => State::Wrr(Wrr::new(&list)),
        };
        Self { list, state }
    }

    /// Adds a server at the head of the list. Returns its number; the first server is number 1.
    pub fn add(&mut self, weight: u32) -> u32 {
        let node = self.list.insert_at_head(weight);
        if let State::Wrr(wrr) = &mut self.state {
            wrr.dest_changed(&self.list);
        }
        node as u32
    }

    /// Removes a server. An unknown number is ignored.
    pub fn remove(&mut self, server: u32) {
        let Some(node) = self.find(server) else {
            return;
        };
        self.list.unlink(node);
        match &mut self.state {
            State::Rr(rr) => rr.dest_deleted(&self.list, node),
            State::Wrr(wrr) => wrr.dest_changed(&self.list),
        }
    }

    /// Changes a server's weight. An unknown number is ignored.
    pub fn edit(&mut self, server: u32, weight: u32) {
        let Some(node) = self.find(server) else {
            return;
        };
        self.list.nodes[node].weight = i64::from(weight);
        if let State::Wrr(wrr) = &mut self.state {
            wrr.dest_changed(&self.list);
        }
    }

    /// Sets whether a server is at its threshold. Schedulers receive no notification. An unknown number is ignored.
    pub fn set_overloaded(&mut self, server: u32, overloaded: bool) {
        if let Some(node) = self.find(server) {
            self.list.nodes[node].overloaded = overloaded;
        }
    }

    /// Returns the number of the server for the next flow.
    pub fn pick(&mut self) -> Option<u32> {
        match &mut self.state {
            State::Rr(rr) => rr.schedule(&self.list),
            State::Wrr(wrr) => wrr.schedule(&self.list),
        }
        .map(|node| node as u32)
    }

    fn find(&self, server: u32) -> Option<usize> {
        let node = usize::try_from(server).ok()?;
        (node != HEAD && self.list.nodes.get(node)?.is_linked).then_some(node)
    }
}
