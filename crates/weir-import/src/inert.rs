//! Which lines of other programs change nothing that clients or servers see: how the program itself runs, logs, reports and
//! is tuned. Losing one of them is no change of behaviour; losing any other is.
//!
//! The lists are short on purpose: a line that is missing from them costs a look.

/// keepalived's own processes, its mails, SNMP, D-Bus and logs.
const KEEPALIVED: &[&str] = &[
    "notification_email",
    "notification_email_from",
    "smtp_server",
    "smtp_helo_name",
    "smtp_connect_timeout",
    "smtp_alert",
    "smtp_alert_vrrp",
    "smtp_alert_checker",
    "no_email_faults",
    "no_checker_emails",
    "router_id",
    "enable_script_security",
    "use_symlink_paths",
    "set_supplementary_groups",
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
    "reload_check_config",
    "reload_time_file",
    "reload_repeat",
    "reload_file",
    "include_check",
    "snmp_socket",
    "enable_traps",
    "dbus_service_name",
    "dbus_no_interface_name",
    "enable_dbus",
    "checker_log_all_failures",
    "use_pid_dir",
    "child_wait_time",
    "linkbeat_use_polling",
    "lvs_id",
    "warmup",
];

/// Ends of keywords of keepalived that set how its processes are scheduled and how large their buffers are.
const KEEPALIVED_ENDS: &[&str] = &[
    "_priority",
    "_no_swap",
    "_rt_priority",
    "_cpu_affinity",
    "_rlimit_rttime",
    "_rlimit_rtime",
    "_rcv_bufs",
    "_rcv_bufs_force",
];

/// ldirectord's mails, log, processes and remarks.
const LDIRECTORD: &[&str] = &[
    "emailalert",
    "emailalertfreq",
    "emailalertstatus",
    "emailalertfrom",
    "smtp",
    "monitorfile",
    "autoreload",
    "logfile",
    "fork",
    "supervised",
    "checkcount",
    "load",
    "comment",
    "servicename",
];

/// haproxy's processes, logs, statistics and tuning; what a backend has from the frontends that use it; conditions, of which the rules
/// that need them are noted.
const HAPROXY: &[&str] = &[
    "mode",
    "acl",
    "log",
    "log-tag",
    "log-send-hostname",
    "log-format",
    "log-format-sd",
    "error-log-format",
    "nbthread",
    "nbproc",
    "cpu-map",
    "cpu-policy",
    "thread-groups",
    "user",
    "group",
    "uid",
    "gid",
    "chroot",
    "daemon",
    "pidfile",
    "node",
    "description",
    "id",
    "guid",
    "stats",
    "email-alert",
    "http-reuse",
    "fullconn",
    "backlog",
    "max-keep-alive-queue",
];

/// Its options of the same kind, set or not.
const HAPROXY_OPTIONS: &[&str] = &[
    "httplog",
    "tcplog",
    "httpslog",
    "dontlognull",
    "dontlog-normal",
    "logasap",
    "log-health-checks",
    "log-separate-errors",
    "redispatch",
    "http-keep-alive",
    "prefer-last-server",
    "tcp-smart-connect",
    "tcp-smart-accept",
    "clitcpka",
    "srvtcpka",
    "tcpka",
    "splice-auto",
    "splice-request",
    "splice-response",
    "contstats",
    "http-no-delay",
];

/// nginx's processes, logs, statistics, buffers and tables.
const NGINX: &[&str] = &[
    "user",
    "pid",
    "daemon",
    "master_process",
    "working_directory",
    "lock_file",
    "worker_processes",
    "worker_cpu_affinity",
    "worker_priority",
    "worker_rlimit_nofile",
    "worker_rlimit_core",
    "worker_connections",
    "thread_pool",
    "pcre_jit",
    "timer_resolution",
    "events",
    "use",
    "multi_accept",
    "accept_mutex",
    "error_log",
    "access_log",
    "log_format",
    "log_not_found",
    "rewrite_log",
    "stub_status",
    "status_zone",
    "proxy_http_version",
    "proxy_buffering",
    "proxy_buffers",
    "proxy_buffer_size",
    "proxy_busy_buffers_size",
    "proxy_max_temp_file_size",
    "proxy_socket_keepalive",
    "proxy_headers_hash_max_size",
    "proxy_headers_hash_bucket_size",
    "client_body_buffer_size",
    "client_body_temp_path",
    "client_header_buffer_size",
    "proxy_temp_path",
    "sendfile",
    "tcp_nopush",
    "tcp_nodelay",
    "server_names_hash_bucket_size",
    "server_names_hash_max_size",
    "variables_hash_max_size",
    "map_hash_bucket_size",
    "types_hash_max_size",
];

/// Whether a line of keepalived.conf is one.
pub(crate) fn keepalived(words: &[String]) -> bool {
    let keyword = words.first().map_or("", String::as_str);
    let by_end = KEEPALIVED_ENDS.iter().any(|end| keyword.ends_with(end));
    KEEPALIVED.contains(&keyword) || by_end || keyword.contains("snmp")
}

/// Whether a directive of ldirectord.cf is one.
pub(crate) fn ldirectord(name: &str) -> bool {
    LDIRECTORD.contains(&name)
}

/// Whether a line of haproxy.cfg is one.
pub(crate) fn haproxy(words: &[String]) -> bool {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    match word(0) {
        "option" => HAPROXY_OPTIONS.contains(&word(1)),
        "no" => word(1) == "option" && HAPROXY_OPTIONS.contains(&word(2)),
        keyword => HAPROXY.contains(&keyword) || keyword.starts_with("tune."),
    }
}

/// Whether a directive of nginx.conf is one; also a field that a proxy service sends to servers by itself.
pub(crate) fn nginx(words: &[String]) -> bool {
    let word = |at: usize| words.get(at).map_or("", String::as_str);
    match word(0) {
        "proxy_set_header" => {
            let name = word(1).to_ascii_lowercase();
            match (name.as_str(), word(2)) {
                ("host", value) => matches!(value, "$host" | "$http_host"),
                ("x-forwarded-for", value) => value == "$proxy_add_x_forwarded_for",
                ("x-forwarded-proto", value) => value == "$scheme",
                ("upgrade", value) => value == "$http_upgrade",
                ("connection", value) => matches!(value, "" | "upgrade" | "Upgrade"),
                _ => false,
            }
        }
        keyword => NGINX.contains(&keyword),
    }
}
