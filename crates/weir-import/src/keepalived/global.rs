//! Converts `global_defs`.

use super::Globals;
use super::field;
use super::tree::Node;
use crate::document::Entry;
use crate::inert::{self, Unsupported};
use crate::mail;
use crate::note::Notes;

/// Keywords of `global_defs` without an equivalent in weir.toml.
pub(super) const UNSUPPORTED: &[Unsupported] = &[
    Unsupported {
        reason: "`[notify]` has no such setting for emails",
        visible: &[],
        inert: &[
            "notification_email",
            "notification_email_from",
            "smtp_server",
            "smtp_alert",
            "smtp_alert_checker",
            "smtp_helo_name",
            "smtp_connect_timeout",
            "smtp_alert_vrrp",
            "no_email_faults",
            "no_checker_emails",
        ],
    },
    Unsupported {
        reason: "Weir has no such notification; see a pool's `notify`, and `notify` and `notify_fifo` in [vrrp.NAME]",
        visible: &[
            "notify_fifo_script",
            "vrrp_notify_fifo_script",
            "lvs_notify_fifo",
            "lvs_notify_fifo_script",
            "vrrp_notify_priority_changes",
            "fifo_write_vrrp_states_on_reload",
            "rs_init_notifies",
        ],
        inert: &[],
    },
    Unsupported {
        reason: "it sets the host name in emails; Weir's emails contain the host name",
        visible: &[],
        inert: &["router_id"],
    },
    Unsupported {
        reason: "the systemd unit runs programs before and after the daemon",
        visible: &[
            "startup_script",
            "startup_script_timeout",
            "shutdown_script",
            "shutdown_script_timeout",
        ],
        inert: &[],
    },
    Unsupported {
        reason: "scripts run as the `user` of their check, without a shell",
        visible: &[],
        inert: &[
            "enable_script_security",
            "use_symlink_paths",
            "set_supplementary_groups",
        ],
    },
    Unsupported {
        reason: "Weir does not use IPVS, and its services stay in the kernel until `weir clean`",
        visible: &[],
        inert: &["lvs_flush", "lvs_flush_on_stop", "lvs_flush_onstop"],
    },
    Unsupported {
        reason: "`[sync]` synchronizes flows: it needs the addresses of the directors, and a key",
        visible: &["lvs_sync_daemon"],
        inert: &[],
    },
    Unsupported {
        reason: "a Weir service can have several addresses without a mark",
        visible: &[],
        inert: &[
            "nftables_ipvs",
            "nftables_ipvs_start_fwmark",
            "nftables_ipvs_priority",
        ],
    },
    Unsupported {
        reason: "it configures keepalived's own processes and files",
        visible: &[],
        inert: &[
            "process_names",
            "process_name",
            "vrrp_process_name",
            "checker_process_name",
            "lvs_process_name",
            "bfd_process_name",
            "umask",
            "data_use_instance",
            "random_seed",
            "config_save_dir",
            "tmp_config_directory",
            "json_version",
            "iproute_usr_dir",
            "iproute_etc_dir",
            "state_dump_file",
            "stats_dump_file",
            "json_dump_file",
            "state_dump_file_location",
            "stats_dump_file_location",
            "json_dump_file_location",
        ],
    },
    Unsupported {
        reason: "`weir reload` checks the whole file before anything changes",
        visible: &[],
        inert: &[
            "reload_check_config",
            "reload_time_file",
            "reload_repeat",
            "reload_file",
            "include_check",
        ],
    },
    Unsupported {
        reason: "packets do not wait for the daemon; the systemd unit can set its priority",
        visible: &[],
        inert: &[
            "min_auto_priority_delay",
            "vrrp_priority",
            "vrrp_no_swap",
            "vrrp_rt_priority",
            "vrrp_cpu_affinity",
            "vrrp_rlimit_rttime",
            "vrrp_rlimit_rtime",
            "checker_priority",
            "checker_no_swap",
            "checker_rt_priority",
            "checker_cpu_affinity",
            "checker_rlimit_rttime",
            "checker_rlimit_rtime",
            "bfd_priority",
            "bfd_no_swap",
            "bfd_rt_priority",
            "bfd_cpu_affinity",
            "bfd_rlimit_rttime",
            "bfd_rlimit_rtime",
            "max_auto_priority",
        ],
    },
    Unsupported {
        reason: "Weir chooses its socket buffer sizes itself",
        visible: &[],
        inert: &[
            "vrrp_rx_bufs_policy",
            "vrrp_rx_bufs_multiplier",
            "vrrp_netlink_cmd_rcv_bufs",
            "vrrp_netlink_cmd_rcv_bufs_force",
            "vrrp_netlink_monitor_rcv_bufs",
            "vrrp_netlink_monitor_rcv_bufs_force",
            "process_monitor_rcv_bufs",
            "process_monitor_rcv_bufs_force",
            "lvs_netlink_cmd_rcv_bufs",
            "lvs_netlink_cmd_rcv_bufs_force",
            "lvs_netlink_monitor_rcv_bufs",
            "lvs_netlink_monitor_rcv_bufs_force",
        ],
    },
    Unsupported {
        reason: "Weir does not support SNMP; `admin` in [node] enables /metrics",
        visible: &[],
        inert: &[
            "snmp_socket",
            "enable_traps",
            "enable_snmp_vrrp",
            "enable_snmp_keepalived",
            "enable_snmp_rfc",
            "enable_snmp_rfcv2",
            "enable_snmp_rfcv3",
            "enable_snmp_checker",
            "snmp_vs_stats_update_interval",
            "snmp_rs_stats_update_interval",
        ],
    },
    Unsupported {
        reason: "Weir has no D-Bus interface; its API is on a Unix socket",
        visible: &[],
        inert: &["enable_dbus", "dbus_service_name", "dbus_no_interface_name"],
    },
    Unsupported {
        reason: "`weir status` shows every failure",
        visible: &[],
        inert: &["checker_log_all_failures"],
    },
    Unsupported {
        reason: "[vrrp.NAME] has no such key",
        visible: &[
            "vrrp_mcast_group4",
            "vrrp_mcast_group6",
            "vrrp_garp_extra_if",
            "vrrp_vmac_garp_intvl",
            "vrrp_lower_prio_no_advert",
            "vrrp_higher_prio_send_advert",
            "vrrp_delay_after_boot",
            "vrrp_owner_ignore_adverts",
        ],
        // These keywords configure keepalived's enforcement of `no_accept`, which has its own note.
        inert: &[
            "nftables",
            "nftables_counters",
            "nftables_ifindex",
            "nftables_priority",
            "vrrp_ipsets",
            "vrrp_iptables",
        ],
    },
    Unsupported {
        reason: "Weir does not limit the rate of announcements",
        visible: &[],
        inert: &["vrrp_garp_interval", "vrrp_gna_interval"],
    },
    Unsupported {
        reason: "it only affects logs, names of interfaces, or IGMP messages",
        visible: &[],
        inert: &[
            "log_unknown_vrids",
            "vmac_prefix",
            "vmac_addr_prefix",
            "disable_local_igmp",
        ],
    },
    Unsupported {
        reason: "it is for static addresses and routes, which belong in the network configuration",
        visible: &[],
        inert: &["default_interface"],
    },
    Unsupported {
        reason: "it configures how keepalived itself runs",
        visible: &[
            "net_namespace",
            "net_namespace_ipvs",
            "namespace_with_ipsets",
            "instance",
        ],
        inert: &["linkbeat_use_polling", "use_pid_dir", "child_wait_time"],
    },
    Unsupported {
        reason: "keepalived has removed this keyword",
        visible: &[],
        inert: &["lvs_id"],
    },
];

/// Maximum of `ipvsadm --set`: 31 days.
const MAX_SECONDS: u64 = 31 * 86_400;

/// Reads `global_defs` into `globals`.
pub(super) fn read(globals: &mut Globals, node: &Node, notes: &mut Notes) {
    if node.word(1).is_some() {
        notes.add(
            node.position,
            "the arguments are not imported: global_defs takes none",
        );
    }
    for inner in node.inner() {
        if let Some(reason) = unneeded_reason(inner) {
            notes.remark(inner.position, reason);
            continue;
        }
        match inner.keyword() {
            "vrrp_strict" => {
                globals.strict = true;
                notes.remark(inner.position, "Weir always follows the VRRP specification");
            }
            "lvs_timeouts" => read_timeouts(globals, inner, notes),
            "script_user" => globals.script_user = field::parse_word(notes, inner, "a user"),
            "vrrp_version" => globals.vrrp_version = field::parse_number(notes, inner, 2, 3),
            "lvs_sync_daemon" if !globals.has_virtual_servers => {
                notes.remark(inner.position, super::NOTHING_TO_SYNCHRONIZE);
            }
            _ if read_mail(globals, inner, notes) => {}
            _ if read_vrrp_default(globals, inner, notes) => {}
            keyword => match inert::find_unsupported(UNSUPPORTED, keyword) {
                Some(found) => inner.reject(notes, found.reason),
                None => inner.ignore(
                    notes,
                    "keepalived has no such keyword here, and ignores the line",
                ),
            },
        }
    }
}

/// Returns why a line needs no key: Weir behaves the same without it.
fn unneeded_reason(node: &Node) -> Option<&'static str> {
    const DEFAULT: &str = "this is keepalived's default";
    let argument = node.word(1).unwrap_or("");
    match (node.keyword(), argument) {
        (
            "vrrp_lower_prio_no_advert"
            | "vrrp_higher_prio_send_advert"
            | "vrrp_owner_ignore_adverts"
            | "vrrp_notify_priority_changes"
            | "fifo_write_vrrp_states_on_reload",
            "off" | "false" | "no",
        )
        | ("vrrp_garp_interval" | "vrrp_gna_interval" | "vrrp_garp_extra_if", "0")
        | ("vrrp_mcast_group4", "224.0.0.18")
        | ("vrrp_mcast_group6", "ff02::12") => Some(DEFAULT),
        ("vrrp_garp_lower_prio_delay" | "vrrp_garp_lower_prio_repeat", _) => {
            Some(super::vrrp::LOWER_PRIORITY)
        }
        ("dynamic_interfaces", _) => Some("Weir waits for an interface that does not exist yet"),
        ("vrrp_check_unicast_src", _) => Some("Weir always checks the source of unicast packets"),
        ("vrrp_skip_check_adv_addr", _) => {
            Some("Weir accepts packets that list other addresses, and counts them")
        }
        _ => None,
    }
}

/// Reads an email setting. Returns false for any other line.
fn read_mail(globals: &mut Globals, node: &Node, notes: &mut Notes) -> bool {
    match node.keyword() {
        "notification_email" => {
            for inner in node.inner() {
                let words = inner.words.iter();
                let addresses = words.map(|word| (word.clone(), inner.position));
                globals.mail.to.extend(addresses);
            }
        }
        "notification_email_from" => {
            globals.mail.from = field::parse_word(notes, node, "an address")
        }
        "smtp_server" => match node.word(1) {
            Some(host) => {
                let server = mail::server_address(host, node.word(2));
                globals.mail.server = Some((server, node.position));
            }
            None => field::reject(notes, node, "a mail server"),
        },
        "smtp_alert" | "smtp_alert_checker" => {
            let alerts = field::parse_flag(notes, node);
            // The more specific line takes precedence.
            if node.keyword() == "smtp_alert_checker" || globals.alerts.is_none() {
                globals.alerts = alerts.or(globals.alerts);
            }
        }
        _ => return false,
    }
    true
}

/// Reads a default for all VRRP instances. Returns false for any other line.
fn read_vrrp_default(globals: &mut Globals, node: &Node, notes: &mut Notes) -> bool {
    let count = |key, notes: &mut Notes| {
        let (count, position) = field::parse_number(notes, node, 1, 100)?;
        Some(Entry::new(key, count, position))
    };
    let delay = |key, notes: &mut Notes| {
        let (millis, position) = field::parse_seconds(notes, node, true)?;
        Some(Entry::new(
            key,
            crate::time::format_millis(millis),
            position,
        ))
    };
    let entry = match node.keyword() {
        "vrrp_startup_delay" => delay("start_delay", notes),
        "vrrp_garp_master_delay" => delay("garp_delay", notes),
        "vrrp_garp_master_refresh" => delay("garp_refresh", notes),
        "vrrp_garp_master_repeat" => count("garp_repeat", notes),
        "vrrp_garp_master_refresh_repeat" => count("garp_refresh_repeat", notes),
        "vrrp_down_timer_adverts" => count("down_adverts", notes),
        // keepalived sends one announcement after a takeover, and no further ones.
        "vrrp_min_garp" => {
            let flag = field::parse_flag(notes, node).filter(|(is_on, _)| *is_on);
            if let Some((_, position)) = flag {
                globals.vrrp.push(Entry::new("garp_delay", "0s", position));
            }
            flag.map(|(_, position)| Entry::new("garp_repeat", 1_u32, position))
        }
        "v3_checksum_as_v2" => field::parse_flag(notes, node).map(|(is_plain, position)| {
            let form = if is_plain { "plain" } else { "pseudo-header" };
            Entry::new("checksum", form, position)
        }),
        "notify_fifo" | "vrrp_notify_fifo" => {
            let word = field::parse_word(notes, node, "a path");
            word.map(|(path, position)| Entry::new("notify_fifo", path, position))
        }
        _ => return false,
    };
    globals.vrrp.extend(entry);
    true
}

/// Reads `lvs_timeouts tcp 7200 tcpfin 30 udp 300`.
fn read_timeouts(globals: &mut Globals, node: &Node, notes: &mut Notes) {
    let mut words = node.words.iter().skip(1);
    if node.words.len() < 3 {
        return field::reject(notes, node, "a protocol with a timeout in seconds");
    }
    while let Some(name) = words.next() {
        let key = match name.as_str() {
            "tcp" => "tcp",
            "tcpfin" => "tcp_fin",
            "udp" => "udp",
            other => {
                notes.add(
                    node.position,
                    format!("{other} is not imported: keepalived has no such timeout"),
                );
                continue;
            }
        };
        let seconds = words
            .next()
            .and_then(|word| field::parse_unsigned(word, 1, MAX_SECONDS));
        match seconds {
            Some(seconds) => {
                globals.timeouts.retain(|entry| entry.key != key);
                let value = crate::time::format_millis(seconds * 1000);
                globals.timeouts.push(Entry::new(key, value, node.position));
            }
            None => {
                let reason = format!(
                    "{name} is not imported: its value must be from 1 to {MAX_SECONDS} seconds"
                );
                notes.add(node.position, reason);
            }
        }
    }
    for inner in node.inner() {
        inner.reject(notes, "the directive does not take a block");
    }
}
