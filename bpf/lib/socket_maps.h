/* SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause */
/* Maps and constants of the cgroup programs, in addition to those of the director. */
#ifndef WEIR_SOCKET_MAPS_H
#define WEIR_SOCKET_MAPS_H

#include "lib/maps.h"

/* Number assigned to the cgroup that this instance of the programs is attached to. */
const volatile __u32 weir_scope = 0;
/* Cookie of the network namespace whose connections are balanced, 0 = all. */
const volatile __u64 weir_netns = 0;

WEIR_HASH(weir_socket_listeners, BPF_MAP_TYPE_LPM_TRIE, struct weir_socket_listener, __u32, 65536, BPF_F_NO_PREALLOC);
WEIR_HASH(weir_sockets, BPF_MAP_TYPE_HASH, struct weir_socket_key, struct weir_socket, 1048576, BPF_F_NO_PREALLOC);
WEIR_HASH(weir_socket_clients, BPF_MAP_TYPE_LRU_HASH, struct weir_socket_client_key, struct weir_socket_client, 16384,
	  0);

#endif
