/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Compares servers by the fraction cost / share for the schedulers that use live counts, and implements the tree that
 * replaces a pass over a long list. The leaves of the tree are the positions in the list. In a winner tree, a node
 * contains the better of its two children, and the root contains the choice; in a sum tree, a node contains the sum of
 * its children's weights or active flows.
 *
 * Nodes are updated without a lock. The CPU that changes a count updates the path from that server's leaf to the root:
 * at each node, it computes the value, exchanges it, and computes it again. If two CPUs update the same node, the later
 * one reads the count of the earlier one.
 */
#ifndef WEIR_CANDIDATE_H
#define WEIR_CANDIDATE_H

#include "lib/maps.h"

#define TREE_NONE   0xffffffffu
#define TREE_LEVELS 20

/* Single accesses, without tearing, to memory that other CPUs change. */
#define READ_ONCE(x)     (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))

/* ---- fractions --------------------------------------------------------------------------------------------------- */

struct candidate {
	__u64 cost;
	__u64 share; /* 0 = takes no flows */
};

/*
 * Returns whether the server has reached its upper threshold and is not yet below its lower one. The flag changes with
 * the counts, before any list changes.
 */
static __always_inline int live_overloaded(__u32 row)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, row);

	return live && READ_ONCE(live->overloaded);
}

/*
 * Returns a server's load like the kernel's ip_vs_dest_conn_overhead: an active connection counts as 256 inactive
 * connections.
 */
static __always_inline __u64 live_overhead(const struct weir_live *live)
{
	return (live->active << 8) + live->inactive;
}

/* A scheduler's rule for a server's fraction. */
struct rule {
	__u16 per_active;
	__u8 per_inactive;
	__u8 fixed;
	__u8 any_weight; /* weights are ignored */
	__u8 idle_first;
	__u8 only_room; /* servers with active > weight take no flows */
	__u8 sums;      /* sum tree: nothing is compared */
};

/*
 * Unpacks a rule from the word that a tree stores as node 0. With one word, the verifier sees one unknown value instead
 * of one case per rule.
 */
static __always_inline struct rule rule_unpack(__u32 word)
{
	struct rule rule = {
		.per_active = word & 0x1ff,
		.per_inactive = word >> 9 & 1,
		.fixed = word >> 10 & 1,
		.any_weight = word >> 11 & 1,
		.idle_first = word >> 12 & 1,
		.only_room = word >> 13 & 1,
		.sums = word >> 14 & 1,
	};

	return rule;
}

static __always_inline __u32 rule_of_scheduler(__u32 scheduler)
{
	switch (scheduler) {
	case WEIR_SCHED_LC:
	case WEIR_SCHED_LEAST_TIME: /* if there are no costs */
		return WEIR_RULE_LC;
	case WEIR_SCHED_SED:
		return WEIR_RULE_SED;
	case WEIR_SCHED_NQ:
		return WEIR_RULE_NQ;
	case WEIR_SCHED_FO:
		return WEIR_RULE_FO;
	case WEIR_SCHED_OVF:
		return WEIR_RULE_OVF;
	}
	return WEIR_RULE_WLC;
}

static __always_inline void candidate_read(struct candidate *c, const struct rule *rule,
					   const struct weir_member *member)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, member->live);
	__u64 active;

	c->cost = 0;
	c->share = 0;
	if (!live || READ_ONCE(live->overloaded))
		return;
	active = live->active;
	if (rule->only_room && active > member->weight)
		return;
	c->share = rule->any_weight ? 1 : member->weight;
	/* Cost 0 beats every busy server and ties with every idle server. */
	if (rule->idle_first && !active)
		return;
	c->cost = active * rule->per_active + live->inactive * rule->per_inactive + rule->fixed;
}

static __always_inline int candidate_better(const struct candidate *c, const struct candidate *other)
{
	if (c->share == 0)
		return 0;
	return other->share == 0 || other->cost * c->share > c->cost * other->share;
}

/* ---- the tree ---------------------------------------------------------------------------------------------------- */

struct tree {
	struct rule rule;
	__u32 list_at;
	__u32 list_len;
	__u32 nodes_at; /* element of weir_tables with the first nodes; node 0 is the rule, node 1 the root */
	__u32 width;    /* number of leaves: the smallest power of two that fits the list, 0 = no tree */
};

static __always_inline __u32 *tree_node(const struct tree *tree, __u32 node)
{
	struct weir_element *element = WEIR_LOOKUP(weir_tables, tree->nodes_at + (node >> 2));

	return element ? &element->word[node & 3] : 0;
}

static __always_inline struct weir_member *tree_member(const struct tree *tree, __u32 position)
{
	return position < tree->list_len ? WEIR_LOOKUP(weir_tables, tree->list_at + position) : 0;
}

/* Returns the winner of a subtree; a leaf is its own winner. */
static __always_inline __u32 tree_winner(const struct tree *tree, __u32 node)
{
	__u32 *word;

	if (node >= tree->width)
		return node - tree->width;
	word = tree_node(tree, node);
	return word ? READ_ONCE(*word) : TREE_NONE;
}

/* Returns the better of a node's children; on a tie, the left child, which is earlier in the list. */
static __always_inline __u32 tree_better(const struct tree *tree, struct candidate *a, struct candidate *b, __u32 node)
{
	__u32 left = tree_winner(tree, 2 * node), right = tree_winner(tree, 2 * node + 1);
	struct weir_member *left_member = tree_member(tree, left), *right_member = tree_member(tree, right);

	a->share = b->share = 0;
	if (left_member)
		candidate_read(a, &tree->rule, left_member);
	if (right_member)
		candidate_read(b, &tree->rule, right_member);
	if (candidate_better(b, a))
		return right;
	return a->share ? left : TREE_NONE;
}

/* Returns the sum over a subtree's leaves. */
static __always_inline __u32 tree_value(const struct tree *tree, __u32 node)
{
	struct weir_member *member;
	struct weir_live *live;
	__u32 *word;

	if (node < tree->width) {
		word = tree_node(tree, node);
		return word ? READ_ONCE(*word) : 0;
	}
	member = tree_member(tree, node - tree->width);
	live = member ? WEIR_LOOKUP(weir_live, member->live) : 0;
	if (!live)
		return 0;
	if (tree->rule.per_active)
		return live->active < 0xffffffff ? live->active : 0xffffffff;
	return READ_ONCE(live->overloaded) ? 0 : member->weight;
}

static __always_inline __u32 tree_sum(const struct tree *tree, __u32 node)
{
	__u64 sum = (__u64)tree_value(tree, 2 * node) + tree_value(tree, 2 * node + 1);

	return sum < 0xffffffff ? sum : 0xffffffff;
}

/*
 * Reads the tree of a server row's service. Returns 0 if there is none or the server's position in the list is being
 * changed.
 */
static __always_inline int tree_read_by_dest(struct tree *tree, __u32 dest_id, const struct weir_dest *dest)
{
	struct weir_service *service = WEIR_LOOKUP(weir_services, dest->service);
	struct weir_element *first, *second, *last, *nodes;
	struct weir_member *member;

	if (!service)
		return 0;
	first = WEIR_LOOKUP(weir_tables, service->extent);
	second = WEIR_LOOKUP(weir_tables, service->extent + 1);
	last = WEIR_LOOKUP(weir_tables, service->extent + 3);
	if (!first || !second || !last || !last->word[3])
		return 0;
	nodes = WEIR_LOOKUP(weir_tables, last->word[2]);
	if (!nodes)
		return 0;
	/* Reads struct weir_extent, four words per element. */
	tree->rule = rule_unpack(nodes->word[0]);
	tree->list_at = first->word[3];
	tree->list_len = second->word[0];
	tree->nodes_at = last->word[2];
	tree->width = last->word[3];
	member = tree_member(tree, dest->place - 1);
	return member && member->dest == dest_id;
}

struct climb {
	struct tree tree; /* width 0: between two trees */
	struct candidate left;
	struct candidate right;
	__u32 leaf;
	__u32 position;
	__u32 settled; /* the node was already up to date */
	__u32 round;   /* two per node */
	__u32 always;
	/* Dest rows of the sibling ring: the row whose counts changed, the first row after it, the next row. */
	__u32 changed;
	__u32 first;
	__u32 next;
};

/*
 * The state is too large for the stack. There is one row per CPU, because each CPU counts one flow at a time, in a
 * softirq.
 */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct climb);
} weir_climb_scratch SEC(".maps");

/* Starts on a row of the ring: selects the row's tree, if the tree depends on the change, and the next row. */
static __always_inline void climb_start(struct climb *climb, __u32 dest_id, const struct weir_dest *dest)
{
	struct tree *tree = &climb->tree;

	climb->next = dest->sibling;
	climb->round = 0;
	tree->width = 0;
	if (!dest->place || !tree_read_by_dest(tree, dest_id, dest)) {
		tree->width = 0;
		return;
	}
	/* A tree that contains only weights does not depend on counts. */
	if (!climb->always && !tree->rule.per_active && !tree->rule.only_room)
		tree->width = 0;
	climb->position = dest->place - 1;
	climb->leaf = tree->width + climb->position;
}

/* Continues with the next row of the ring; returns 1 at the end. */
static __always_inline long climb_next(struct climb *climb)
{
	__u32 dest_id = climb->next;
	struct weir_dest *dest = dest_id ? WEIR_LOOKUP(weir_dests, dest_id) : 0;

	/* A removed server's row points into the ring but is not part of it. */
	if (!dest || dest_id == climb->changed || dest_id == climb->first)
		return 1;
	if (!climb->first)
		climb->first = dest_id;
	climb_start(climb, dest_id, dest);
	return 0;
}

/*
 * Performs one of the two rounds per node: compute and exchange, then compute again. All state is in the scratch row,
 * so that the verifier sees identical rounds.
 */
static long climb_step(__u32 index, void *context)
{
	struct climb *climb = *(struct climb **)context;
	__u32 round, node, value, *word;

	if (!climb->tree.width)
		return climb_next(climb);
	round = climb->round++;
	if (round & 1 && climb->settled)
		return 0;
	node = climb->leaf >> ((round / 2 + 1) & 31);
	word = node ? tree_node(&climb->tree, node) : 0;
	if (!word) {
		climb->tree.width = 0;
		return !climb->next;
	}
	if (climb->tree.rule.sums)
		value = tree_sum(&climb->tree, node);
	else
		value = tree_better(&climb->tree, &climb->left, &climb->right, node);
	climb->settled = value == READ_ONCE(*word);
	/* A full barrier: later reads include everything that another CPU wrote before its own exchange. */
	if (!climb->settled)
		__sync_lock_test_and_set(word, value);
	/*
	 * If the node still contains a different server, or the sum is unchanged, the nodes above do not change either.
	 */
	if (!(round & 1) && climb->settled && (climb->tree.rule.sums || value != climb->position)) {
		climb->tree.width = 0;
		return !climb->next;
	}
	return 0;
}

/* Updates the trees that contain a server. `always`: the server's availability changed, not only a count. */
static __always_inline void tree_climb(__u32 dest_id, const struct weir_dest *dest, int always)
{
	struct climb *climb;

	if (!dest->place && !dest->sibling)
		return;
	climb = WEIR_LOOKUP(weir_climb_scratch, 0);
	if (!climb)
		return;
	climb->always = always;
	climb->changed = dest_id;
	climb->first = 0;
	climb_start(climb, dest_id, dest);
	if (climb->tree.width || climb->next)
		bpf_loop((2 * TREE_LEVELS + 2) * WEIR_SIBLINGS_MAX, climb_step, &climb, 0);
}

#endif
