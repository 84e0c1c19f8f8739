/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * A server as the schedulers over live counts compare it, a fraction cost / share; and the tree that spares long lists the
 * walk. Its leaves are the list's positions. In a tree of winners a node names the better of its two halves, the root the
 * choice; in one of sums a node is what its halves have together, of weights or of active flows.
 *
 * Nodes change without a lock. Whoever changes a count climbs from that server's leaf: compute, exchange, compute again. Of
 * two who meet at a node, the last to write sees what the other had counted before.
 */
#ifndef WEIR_CANDIDATE_H
#define WEIR_CANDIDATE_H

#include "lib/maps.h"

#define TREE_NONE   0xffffffffu
#define TREE_LEVELS 20

/* Reads that another CPU may change under us: whole, once. */
#define READ_ONCE(x)     (*(const volatile typeof(x) *)&(x))
#define WRITE_ONCE(x, v) (*(volatile typeof(x) *)&(x) = (v))

/* ---- fractions ------------------------------------------------------------------------------------------------------------ */

struct candidate {
	__u64 cost;
	__u64 share; /* 0 = takes no flow */
};

/* At its upper threshold: set and cleared where its counts change, long before any list does. */
static __always_inline int live_overloaded(__u32 row)
{
	struct weir_live *live = WEIR_LOOKUP(weir_live, row);

	return live && READ_ONCE(live->overloaded);
}

/* As the kernel's ip_vs_dest_conn_overhead: an active connection weighs as much as 256 inactive ones. */
static __always_inline __u64 live_overhead(const struct weir_live *live)
{
	return (live->active << 8) + live->inactive;
}

/* How a scheduler makes the fraction of a server: read once, so that a comparison has no choice of its own to make. */
struct rule {
	__u16 per_active;
	__u8 per_inactive;
	__u8 fixed;
	__u8 any_weight; /* all share alike */
	__u8 idle_first;
	__u8 only_room; /* active ≤ weight */
	__u8 sums;      /* nothing is compared: nodes are sums */
};

/* Packed into a word, which a tree keeps as its node 0: read from there, it is one unknown to the verifier and not five cases. */
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

static __always_inline __u32 rule_word(__u32 scheduler)
{
	switch (scheduler) {
	case WEIR_SCHED_LC:
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

static __always_inline void candidate_read(struct candidate *c, const struct rule *rule, const struct weir_member *member)
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
	/* Cost 0 beats every server that has something to do, and ties with every other idle one. */
	if (rule->idle_first && !active)
		return;
	c->cost = active * rule->per_active + live->inactive * rule->per_inactive + rule->fixed;
}

static __always_inline int candidate_better(const struct candidate *c, const struct candidate *than)
{
	if (c->share == 0)
		return 0;
	return than->share == 0 || than->cost * c->share > c->cost * than->share;
}

/* ---- the tree ------------------------------------------------------------------------------------------------------------- */

struct tree {
	struct rule rule;
	__u32 list_at;
	__u32 list_len;
	__u32 at;    /* element of weir_tables with the first nodes; node 0 is unused, node 1 the root */
	__u32 width; /* leaves: the least power of two that holds the list, 0 = no tree */
};

static __always_inline __u32 *tree_node(const struct tree *tree, __u32 node)
{
	struct weir_element *element = WEIR_LOOKUP(weir_tables, tree->at + (node >> 2));

	return element ? &element->word[node & 3] : 0;
}

static __always_inline struct weir_member *tree_member(const struct tree *tree, __u32 position)
{
	return position < tree->list_len ? WEIR_LOOKUP(weir_tables, tree->list_at + position) : 0;
}

/* The winner of a subtree: a leaf's is itself. */
static __always_inline __u32 tree_winner(const struct tree *tree, __u32 node)
{
	__u32 *word;

	if (node >= tree->width)
		return node - tree->width;
	word = tree_node(tree, node);
	return word ? READ_ONCE(*word) : TREE_NONE;
}

/* The better of a node's halves; of equals the left one, which comes first in the list. */
static __always_inline __u32 tree_better(const struct tree *tree, struct candidate *a, struct candidate *b, __u32 node)
{
	__u32 left = tree_winner(tree, 2 * node), right = tree_winner(tree, 2 * node + 1);
	struct weir_member *one = tree_member(tree, left), *other = tree_member(tree, right);

	a->share = b->share = 0;
	if (one)
		candidate_read(a, &tree->rule, one);
	if (other)
		candidate_read(b, &tree->rule, other);
	if (candidate_better(b, a))
		return right;
	return a->share ? left : TREE_NONE;
}

/* What a subtree's leaves have together. */
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

/* The tree of the service that a server row belongs to; 0 when there is none or its place in the list is being changed. */
static __always_inline int tree_of(struct tree *tree, __u32 dest_id, const struct weir_dest *dest)
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
	/* struct weir_extent, four words an element. */
	tree->rule = rule_unpack(nodes->word[0]);
	tree->list_at = first->word[3];
	tree->list_len = second->word[0];
	tree->at = last->word[2];
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
	__u32 settled; /* the node was right already */
	__u32 round;   /* two a node */
	__u32 always;
	/* Rows round the ring: the one whose counts changed, the first after it, the next one. */
	__u32 own;
	__u32 first;
	__u32 next;
};

/* Too large for the stack of a call chain; per CPU, because a softirq counts one flow at a time there. */
struct {
	__uint(type, BPF_MAP_TYPE_PERCPU_ARRAY);
	__uint(max_entries, 1);
	__type(key, __u32);
	__type(value, struct climb);
} weir_climb_scratch SEC(".maps");

/* Takes up a row of the ring: its tree, if that depends on what changed, and who comes next. */
static __always_inline void climb_begin(struct climb *climb, __u32 dest_id, const struct weir_dest *dest)
{
	struct tree *tree = &climb->tree;

	climb->next = dest->sibling;
	climb->round = 0;
	tree->width = 0;
	if (!dest->place || !tree_of(tree, dest_id, dest)) {
		tree->width = 0;
		return;
	}
	/* Greatest weights do not change with counts. */
	if (!climb->always && !tree->rule.per_active && !tree->rule.only_room)
		tree->width = 0;
	climb->position = dest->place - 1;
	climb->leaf = tree->width + climb->position;
}

/* The next row of the ring; 1 when it has been gone round. */
static __always_inline long climb_next(struct climb *climb)
{
	__u32 dest_id = climb->next;
	struct weir_dest *dest = dest_id ? WEIR_LOOKUP(weir_dests, dest_id) : 0;

	/* A removed server's row leads into the ring and not back. */
	if (!dest || dest_id == climb->own || dest_id == climb->first)
		return 1;
	if (!climb->first)
		climb->first = dest_id;
	climb_begin(climb, dest_id, dest);
	return 0;
}

/*
 * Two rounds a node: compute and exchange, then compute again. All that it goes by lies in the scratch row, so that to the
 * verifier all rounds are one.
 */
static long climb_step(__u32 index, void *context)
{
	struct climb *climb = *(struct climb **)context;
	__u32 round, node, winner, *word;

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
		winner = tree_sum(&climb->tree, node);
	else
		winner = tree_better(&climb->tree, &climb->left, &climb->right, node);
	climb->settled = winner == READ_ONCE(*word);
	/* A full barrier: what is read after it is no older than what another CPU wrote before its own. */
	if (!climb->settled)
		__sync_lock_test_and_set(word, winner);
	/* A node that named another server and still does says the same to those above; a sum that is as before too. */
	if (!(round & 1) && climb->settled && (climb->tree.rule.sums || winner != climb->position)) {
		climb->tree.width = 0;
		return !climb->next;
	}
	return 0;
}

/* `always`: not a count changed, but whether the server takes flows at all. */
static __always_inline void tree_climb(__u32 dest_id, const struct weir_dest *dest, int always)
{
	struct climb *climb;

	if (!dest->place && !dest->sibling)
		return;
	climb = WEIR_LOOKUP(weir_climb_scratch, 0);
	if (!climb)
		return;
	climb->always = always;
	climb->own = dest_id;
	climb->first = 0;
	climb_begin(climb, dest_id, dest);
	if (climb->tree.width || climb->next)
		bpf_loop((2 * TREE_LEVELS + 2) * WEIR_SIBLINGS_MAX, climb_step, &climb, 0);
}

#endif
