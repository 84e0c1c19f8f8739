// SPDX-License-Identifier: GPL-2.0 OR BSD-2-Clause
/* Declares a global of every shared struct, so that the object file contains their BTF. This object is never loaded. */
#include <linux/bpf.h>
#include <bpf/bpf_helpers.h>
#include "lib/maps.h"

struct weir_vip vip;
struct weir_range range;
struct weir_listener listener;
struct weir_service service;
struct weir_extent extent;
struct weir_member member;
struct weir_cursor cursor;
struct weir_element element;
struct weir_dest dest;
struct weir_live live;
struct weir_traffic traffic;
struct weir_hop hop;
struct weir_device device;
struct weir_mac_row mac_row;
struct weir_meta meta;
struct weir_client client;
struct weir_entry entry;
struct weir_bucket bucket;
struct weir_bucket_2 bucket_2;
struct weir_flow_cold flow_cold;
struct weir_move move;
struct weir_fragment_key fragment_key;
struct weir_fragment fragment;
struct weir_settings settings;
struct weir_budget budget;
struct weir_sweep_public sweep_public;
struct weir_filter filter;
struct weir_socket_listener socket_listener;
struct weir_socket_key socket_key;
struct weir_socket socket;
struct weir_socket_client_key socket_client_key;
struct weir_socket_client socket_client;
struct weir_cost cost;
struct weir_latency_flow latency_flow;
struct weir_latency_sample latency_sample;
struct weir_latency_ring latency_ring;
