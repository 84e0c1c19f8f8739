/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/*
 * Balances local clients: selects a server when a socket connects or sends, and records it, so that addresses can be
 * translated back and the socket is counted until it is closed.
 *
 * These programs run in process context and can be preempted, so they keep no state in per-CPU maps. A socket's records
 * change only in calls on this socket, except for `state`.
 */
#ifndef WEIR_SOCKET_LIB_H
#define WEIR_SOCKET_LIB_H

#include "lib/extent.h"
#include "lib/latency_sample.h"
#include "lib/schedule.h"
#include "lib/socket_maps.h"

/* Errors that connect() and sendmsg() return. */
#define SOCKET_ECONNREFUSED (-111)
#define SOCKET_EHOSTUNREACH (-113)
#define SOCKET_ENOBUFS      (-105)

/* A client's destination, and the values that identify the client. */
struct socket_client {
	struct weir_addr addr;
	__be16 port;
	__u8 proto;
	__u8 family; /* family of addr */
	__u32 service;
	__u64 cookie;
	__u64 cgroup;
	__u32 uid;
	__u32 pad;
};

static __always_inline __u32 socket_service(const struct socket_client *client)
{
	struct weir_socket_listener key = {
		.prefix = WEIR_SOCKET_PREFIX_PORT,
		.scope = weir_scope,
		.addr = client->addr,
		.proto = client->proto,
		.port = client->port,
	};
	__u32 *service = bpf_map_lookup_elem(&weir_socket_listeners, &key);

	return service ? *service : 0;
}

static __always_inline __u64 mix(__u64 word)
{
	word = (word ^ word >> 32) * 0x9e3779b97f4a7c15ULL;
	word = (word ^ word >> 29) * 0xbf58476d1ce4e5b9ULL;
	return word ^ word >> 32;
}

/* ---- selection --------------------------------------------------------------------------------------------------- */

/*
 * Selects a server. The source address is unknown until the route is selected, so sh and mh use the cgroup in place of
 * the source address, and the socket in place of the source port.
 */
__noinline __u32 socket_schedule(struct socket_client *client)
{
	struct weir_service *service;
	struct weir_extent extent;
	struct packet p = {};
	__u64 hash;
	int missed = 0;
	__u32 dest;

	if (!client)
		return 0;
	service = WEIR_LOOKUP(weir_services, client->service);
	if (!service || !service->extent || !extent_copy(&extent, service->extent))
		return 0;
	p.src.lo = (__u64)bpf_htonl((__u32)mix(client->cgroup)) << 32 | V4_MAPPED;
	p.sport = (__be16)client->cookie;
	p.family = 4;
	p.proto = client->proto;
	hash = mix(client->cookie);
	dest = schedule(&p, client->service, &extent, hash, &missed);
	return missed ? schedule_spread(&extent, hash) : dest;
}

/* ---- persistence ------------------------------------------------------------------------------------------------- */

/* Fills the key of a persistent client. Returns the lifetime of its entry in ticks, 0 = no persistence. */
static __always_inline __u32 persistence_key(const struct socket_client *client, struct weir_socket_client_key *key)
{
	struct weir_service *service = WEIR_LOOKUP(weir_services, client->service);

	if (!service)
		return 0;
	key->client = service->template_scope == WEIR_SOCKET_CLIENT_UID ? client->uid : client->cgroup;
	key->service = client->service;
	key->generation = service->generation;
	return service->template_ticks;
}

/* Returns the server of a persistent client; 0 = none. */
__noinline __u32 persistence_find(struct socket_client *client)
{
	struct weir_socket_client_key key = {};
	struct weir_socket_client *entry;
	struct weir_dest *dest;
	__u32 ticks, now;

	if (!client)
		return 0;
	ticks = persistence_key(client, &key);
	if (!ticks)
		return 0;
	entry = bpf_map_lookup_elem(&weir_socket_clients, &key);
	now = weir_tick();
	if (!entry || (__s32)(now - entry->seen) > (__s32)ticks)
		return 0;
	dest = WEIR_LOOKUP(weir_dests, entry->dest);
	if (!dest || dest->generation != entry->dest_generation || !(dest->flags & WEIR_DEST_LIVE) ||
	    !(dest->policy & WEIR_POLICY_PERSISTENT))
		return 0;
	entry->seen = now;
	return entry->dest;
}

__noinline int persistence_store(struct socket_client *client, __u32 dest_id)
{
	struct weir_socket_client value = { .dest = dest_id };
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);
	struct weir_socket_client_key key = {};

	if (!client || !dest_id || !dest || !persistence_key(client, &key))
		return 0;
	value.dest_generation = dest->generation;
	value.seen = weir_tick();
	bpf_map_update_elem(&weir_socket_clients, &key, &value, BPF_ANY);
	return 0;
}

/* ---- records ----------------------------------------------------------------------------------------------------- */

/* Stops counting a record. Only the caller that clears the flag changes the counts. */
static __always_inline void record_uncount(struct weir_socket *record)
{
	__u32 state = READ_ONCE(record->state);

	if (state & WEIR_SOCKET_COUNTED &&
	    __sync_val_compare_and_swap(&record->state, state, state & ~WEIR_SOCKET_COUNTED) == state)
		count(record->dest, 1, -1, COUNT_FLOW);
}

/* Deletes one record. Returns whether it existed. */
__noinline int record_delete(__u64 cookie, __u32 index)
{
	struct weir_socket_key key = { .cookie = cookie, .index = index };
	struct weir_socket *record = bpf_map_lookup_elem(&weir_sockets, &key);

	if (!record)
		return 0;
	record_uncount(record);
	bpf_map_delete_elem(&weir_sockets, &key);
	return 1;
}

/* Deletes all records of a socket. */
static __always_inline void socket_delete_records(__u64 cookie)
{
	for (__u32 index = 0; index < WEIR_SOCKET_SLOTS; index++)
		if (!record_delete(cookie, index))
			break;
}

static __always_inline int no_server_error(__u32 service_id)
{
	struct weir_service *service = WEIR_LOOKUP(weir_services, service_id);

	if (service && service->flags & WEIR_SERVICE_DROP_NO_SERVER) {
		weir_count(WEIR_DROP_NO_SERVER);
		return SOCKET_EHOSTUNREACH;
	}
	weir_count(WEIR_REJECT_NO_SERVER);
	return SOCKET_ECONNREFUSED;
}

/*
 * Records a socket's server and counts the socket. Replaces the client's destination with the server's address. Returns
 * 0, or the error that the system call returns.
 */
__noinline int record_insert(struct socket_client *client, __u32 dest_id, __u32 index, __u32 state)
{
	struct weir_dest *dest = WEIR_LOOKUP(weir_dests, dest_id);
	struct weir_live *live = WEIR_LOOKUP(weir_live, dest_id);
	struct weir_socket_key key = { .index = index };
	struct weir_socket record = { .state = state | WEIR_SOCKET_COUNTED, .dest = dest_id };

	if (!client)
		return SOCKET_ECONNREFUSED;
	if (!dest_id || !dest || !live || dest->family != client->family)
		return no_server_error(client->service);
	key.cookie = client->cookie;
	record.vip = client->addr;
	record.vip_port = client->port;
	record.server = dest->addr;
	record.server_port = dest->port ? dest->port : client->port;
	record.dest_generation = dest->generation;
	record.service = client->service;
	record.proto = client->proto;
	record.scope = weir_scope;
	if (bpf_map_update_elem(&weir_sockets, &key, &record, BPF_NOEXIST)) {
		weir_count(WEIR_COUNT_TABLE_FULL);
		return SOCKET_ENOBUFS;
	}
	__sync_fetch_and_add(&live->total, 1);
	count(dest_id, 1, 1, COUNT_FLOW);
	client->addr = record.server;
	client->port = record.server_port;
	return 0;
}

/* Selects a server and records it. Returns 0, or the error that the system call returns. */
static __always_inline int socket_assign(struct socket_client *client, __u32 index, __u32 state)
{
	__u32 dest = persistence_find(client);

	if (!dest) {
		dest = socket_schedule(client);
		persistence_store(client, dest);
	}
	return record_insert(client, dest, index, state);
}

/* ---- latency ----------------------------------------------------------------------------------------------------- */

/* Stores a latency sample for the server that a socket has connected to. Does nothing if estimation is off. */
static __always_inline void socket_store_latency(__u64 cookie, __s64 ns)
{
	struct weir_settings *settings = WEIR_LOOKUP(weir_settings, 0);
	struct weir_socket_key key = { .cookie = cookie };
	struct weir_socket *record;

	if (!settings || !settings->latency_sample)
		return;
	record = bpf_map_lookup_elem(&weir_sockets, &key);
	if (record && record->state & WEIR_SOCKET_CONNECTED && record->scope == weir_scope)
		latency_store(record->dest, ns, WEIR_LATENCY_METHOD_CONNECT);
}

/* ---- system calls ------------------------------------------------------------------------------------------------ */

/* Returns whether the socket has just been connected to this server by the programs of another cgroup. */
__noinline int socket_already_connected(struct socket_client *client)
{
	struct weir_socket_key key = {};
	struct weir_socket *record;

	if (!client)
		return 0;
	key.cookie = client->cookie;
	record = bpf_map_lookup_elem(&weir_sockets, &key);
	return record && record->state & WEIR_SOCKET_CONNECTED && record->proto == client->proto &&
	       record->server_port == client->port && addr_equal(&record->server, &client->addr);
}

#define SOCKET_PASS 1 /* not a service: the address is not changed */

static __always_inline int socket_connect(struct socket_client *client)
{
	client->service = socket_service(client);
	if (!client->service) {
		if (!socket_already_connected(client))
			socket_delete_records(client->cookie);
		return SOCKET_PASS;
	}
	socket_delete_records(client->cookie);
	return socket_assign(client, 0, WEIR_SOCKET_CONNECTED);
}

#define RECORD_FOUND (-1)

/*
 * Finds the record of an unconnected socket for a VIP. Returns RECORD_FOUND and replaces the client's destination, or
 * returns the index for a new record; if all indexes are in use, deletes an arbitrary record. A server that no longer
 * accepts flows gets no further datagrams; its record is still used to translate replies.
 */
__noinline int record_find(struct socket_client *client)
{
	struct weir_socket_key key = {};
	struct weir_socket *record;
	struct weir_dest *dest;
	__u32 index;

	if (!client)
		return 0;
	key.cookie = client->cookie;
	for (index = 0; index < WEIR_SOCKET_SLOTS; index++) {
		key.index = index;
		record = bpf_map_lookup_elem(&weir_sockets, &key);
		if (!record)
			return index;
		if (!(record->state & WEIR_SOCKET_COUNTED) || record->service != client->service ||
		    record->vip_port != client->port || !addr_equal(&record->vip, &client->addr))
			continue;
		dest = WEIR_LOOKUP(weir_dests, record->dest);
		if (dest && dest->generation == record->dest_generation && dest->flags & WEIR_DEST_LIVE &&
		    (dest->flags & WEIR_DEST_USABLE || dest->policy & WEIR_POLICY_PERSISTENT)) {
			client->addr = record->server;
			client->port = record->server_port;
			return RECORD_FOUND;
		}
		record_uncount(record);
	}
	index = bpf_get_prandom_u32() % WEIR_SOCKET_SLOTS;
	record_delete(client->cookie, index);
	return index;
}

static __always_inline int socket_send(struct socket_client *client)
{
	int index;

	client->service = socket_service(client);
	if (!client->service)
		return SOCKET_PASS;
	index = record_find(client);
	return index == RECORD_FOUND ? 0 : socket_assign(client, index, 0);
}

/* Replaces a server's address with the VIP that the socket used. Returns whether a VIP was found. */
__noinline int socket_restore(struct socket_client *client)
{
	struct weir_socket_key key = {};
	struct weir_socket *record;

	if (!client)
		return 0;
	key.cookie = client->cookie;
	for (__u32 index = 0; index < WEIR_SOCKET_SLOTS; index++) {
		key.index = index;
		record = bpf_map_lookup_elem(&weir_sockets, &key);
		if (!record)
			return 0;
		if (record->server_port != client->port || !addr_equal(&record->server, &client->addr))
			continue;
		client->addr = record->vip;
		client->port = record->vip_port;
		return 1;
	}
	return 0;
}

#endif
