//! Lists configuration lines of other programs that do not affect clients or servers.
//!
//! The lines configure the program's process, logging, reporting and tuning. Losing such a line does not change
//! behavior; losing any other line does.
//!
//! The lists are deliberately short: if an entry is missing, the operator only has to check one more line.

/// Keywords without an equivalent in weir.toml, and the reason given in their note.
pub(crate) struct Unsupported {
    pub(crate) reason: &'static str,
    /// Losing these affects clients or servers.
    pub(crate) visible: &'static [&'static str],
    /// Losing these does not affect clients or servers.
    pub(crate) inert: &'static [&'static str],
}

/// Returns the entry of an unsupported keyword, or `None` if the table has none.
pub(crate) fn find_unsupported(
    table: &'static [Unsupported],
    keyword: &str,
) -> Option<&'static Unsupported> {
    let mut entries = table.iter();
    entries.find(|it| it.visible.contains(&keyword) || it.inert.contains(&keyword))
}

fn is_inert(table: &[Unsupported], keyword: &str) -> bool {
    table.iter().any(|it| it.inert.contains(&keyword))
}

/// keepalived keywords about processes, outside of `global_defs`.
const KEEPALIVED: &[&str] = &[
    "warmup",
    "debug",
    "kernel_rx_buf_size",
    "linkbeat_use_polling",
    "linkbeat_interfaces",
    "garp_group",
    "use_pid_dir",
    "child_wait_time",
    "log_all_failures",
];

/// Suffixes of keepalived keywords that set the scheduling and buffers of its processes.
const KEEPALIVED_SUFFIXES: &[&str] = &[
    "_priority",
    "_no_swap",
    "_rt_priority",
    "_cpu_affinity",
    "_rlimit_rttime",
    "_rlimit_rtime",
    "_rcv_bufs",
    "_rcv_bufs_force",
];

/// ldirectord directives about emails, logs, processes and comments.
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
    "callback",
];

/// haproxy keywords about processes, logs, statistics and tuning; settings that a backend takes from its frontends;
/// ACLs, because the rules that use them have notes.
const HAPROXY: &[&str] = &[
    "acl",
    "log",
    "log-tag",
    "log-send-hostname",
    "log-steps",
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
    "mailers",
    "mailer",
    "http-reuse",
    "fullconn",
    "backlog",
    "max-keep-alive-queue",
    "bind-process",
    "capture",
    "busy-polling",
    "clitcpka-cnt",
    "clitcpka-idle",
    "clitcpka-intvl",
    "srvtcpka-cnt",
    "srvtcpka-idle",
    "srvtcpka-intvl",
    "default-path",
    "declare",
    "enabled",
    "expose-experimental-directives",
    "expose-deprecated-directives",
    "external-check",
    "grace",
    "insecure-fork-wanted",
    "insecure-setuid-wanted",
    "issuers-chain-path",
    "load-server-state-from-file",
    "localpeer",
    "master-worker",
    "max-spread-checks",
    "maxpipes",
    "mworker-max-reloads",
    "mworker-prealloc",
    "no-memory-trimming",
    "noepoll",
    "noevports",
    "nogetaddrinfo",
    "nokqueue",
    "nopoll",
    "noreuseport",
    "nosplice",
    "numa-cpu-mapping",
    "presetenv",
    "quiet",
    "resetenv",
    "server-state-base",
    "server-state-file",
    "server-state-file-name",
    "set-dumpable",
    "setcap",
    "setenv",
    "spread-checks",
    "stats-file",
    "strict-limits",
    "ulimit-n",
    "unix-bind",
    "unsetenv",
    "zero-warning",
];

/// Prefixes of haproxy keywords about tuning, statistics and device detection.
const HAPROXY_PREFIXES: &[&str] = &[
    "tune.",
    "profiling.",
    "httpclient.",
    "51degrees-",
    "deviceatlas-",
    "wurfl-",
];

/// haproxy options about logs, connection reuse and tuning, enabled or not.
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
    "disable-h2-upgrade",
    "http-ignore-probes",
    "http-pretend-keepalive",
    "http-use-htx",
    "idle-close-on-response",
    "independent-streams",
    "nolinger",
    "socket-stats",
];

/// Actions of haproxy rules that only change logs, priorities, packet marks or retries.
const HAPROXY_ACTIONS: &[&str] = &[
    "capture",
    "disable-l7-retry",
    "set-log-level",
    "set-mark",
    "set-nice",
    "set-tos",
    "set-bc-mark",
    "set-bc-tos",
    "set-fc-mark",
    "set-fc-tos",
    "set-priority-class",
    "set-priority-offset",
    "do-log",
    "strict-mode",
];

/// nginx directives about processes, of the main and `events` contexts.
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
];

/// Returns whether a line of keepalived.conf is inert; `global_defs` are the keywords of that block.
pub(crate) fn is_inert_keepalived_line(words: &[String], global_defs: &[Unsupported]) -> bool {
    let keyword = words.first().map_or("", String::as_str);
    let has_suffix = KEEPALIVED_SUFFIXES
        .iter()
        .any(|suffix| keyword.ends_with(suffix));
    KEEPALIVED.contains(&keyword)
        || is_inert(global_defs, keyword)
        || has_suffix
        || keyword.contains("snmp")
}

/// Returns whether a directive of ldirectord.cf is inert.
pub(crate) fn is_inert_ldirectord_directive(name: &str) -> bool {
    LDIRECTORD.contains(&name)
}

/// Returns whether a line of haproxy.cfg is inert.
pub(crate) fn is_inert_haproxy_line(words: &[String]) -> bool {
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    match word(0) {
        "mode" => matches!(word(1), "http" | "tcp"),
        "option" => HAPROXY_OPTIONS.contains(&word(1)),
        "timeout" => word(1) == "mail",
        "no" => {
            let is_option = word(1) == "option" && HAPROXY_OPTIONS.contains(&word(2));
            is_option || word(1) == "log" || word(1) == "busy-polling"
        }
        "http-request" | "http-response" | "http-after-response" => {
            HAPROXY_ACTIONS.contains(&word(1))
        }
        "tcp-request" | "tcp-response" => HAPROXY_ACTIONS.contains(&word(2)),
        keyword => {
            let mut prefixes = HAPROXY_PREFIXES.iter();
            HAPROXY.contains(&keyword) || prefixes.any(|prefix| keyword.starts_with(prefix))
        }
    }
}

/// Returns whether a directive of nginx.conf is inert, or sets a value that a proxy service uses anyway.
/// `http` are the keywords of `http` and its blocks.
pub(crate) fn is_inert_nginx_directive(words: &[String], http: &[Unsupported]) -> bool {
    let word = |index: usize| words.get(index).map_or("", String::as_str);
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
        // Weir sends the same type for files without a known extension.
        "default_type" => word(1) == "application/octet-stream",
        keyword => NGINX.contains(&keyword) || is_inert(http, keyword),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TABLE: &[Unsupported] = &[
        Unsupported {
            reason: "one",
            visible: &["a"],
            inert: &["b", "c"],
        },
        Unsupported {
            reason: "two",
            visible: &["d"],
            inert: &[],
        },
    ];

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn unsupported_keyword_is_found_in_both_lists() {
        for (keyword, reason, expected) in [
            ("a", Some("one"), false),
            ("b", Some("one"), true),
            ("c", Some("one"), true),
            ("d", Some("two"), false),
            ("e", None, false),
        ] {
            let found = find_unsupported(TABLE, keyword).map(|it| it.reason);
            assert_eq!(found, reason, "{keyword}");
            assert_eq!(is_inert(TABLE, keyword), expected, "{keyword}");
        }
    }

    #[test]
    fn lines_of_keepalived_about_its_processes_are_inert() {
        for (line, expected) in [
            ("debug 3", true),
            ("b", true),
            ("vrrp_priority -5", true),
            ("checker_rt_priority 3", true),
            ("bfd_no_swap", true),
            ("enable_snmp_rfc", true),
            ("snmp_socket unix:/x", true),
            ("priority 100", false),
            ("a", false),
            ("virtual_ipaddress debug", false),
            ("", false),
        ] {
            assert_eq!(
                is_inert_keepalived_line(&words(line), TABLE),
                expected,
                "{line}"
            );
        }
        assert!(!is_inert_keepalived_line(&words("b"), &[]));
    }

    #[test]
    fn directives_of_ldirectord_about_its_process_are_inert() {
        for name in LDIRECTORD {
            assert!(is_inert_ldirectord_directive(name), "{name}");
        }
        for name in ["", "real", "quiescent", "execute", "fallback"] {
            assert!(!is_inert_ldirectord_directive(name), "{name}");
        }
    }

    #[test]
    fn lines_of_haproxy_without_effect_on_clients_are_inert() {
        for (line, expected) in [
            ("mode http", true),
            ("mode tcp", true),
            ("mode health", false),
            ("mode", false),
            ("option httplog", true),
            ("option forwardfor", false),
            ("option", false),
            ("timeout mail 3s", true),
            ("timeout client 3s", false),
            ("no option httplog", true),
            ("no option forwardfor", false),
            ("no httplog", false),
            ("no enable httplog", false),
            ("no log", true),
            ("no busy-polling", true),
            ("no quic", false),
            ("no", false),
            ("http-request set-log-level err", true),
            ("http-response set-nice 1", true),
            ("http-after-response capture x", true),
            ("http-request deny", false),
            ("http-request x capture", false),
            ("tcp-request content capture x", true),
            ("tcp-response content set-mark 1", true),
            ("tcp-request capture content", false),
            ("tcp-request content reject", false),
            ("log global", true),
            ("nbthread 4", true),
            ("tune.bufsize 1", true),
            ("profiling.tasks on", true),
            ("httpclient.ssl.verify none", true),
            ("51degrees-data-file x", true),
            ("deviceatlas-json-file x", true),
            ("wurfl-data-file x", true),
            ("server a 10.0.0.5", false),
            ("bind :80", false),
            ("balance log", false),
            ("", false),
        ] {
            assert_eq!(is_inert_haproxy_line(&words(line)), expected, "{line}");
        }
        for option in HAPROXY_OPTIONS {
            assert!(
                is_inert_haproxy_line(&words(&format!("option {option}"))),
                "{option}"
            );
            assert!(
                is_inert_haproxy_line(&words(&format!("no option {option}"))),
                "{option}"
            );
        }
    }

    #[test]
    fn nginx_directives_for_values_that_weir_uses_anyway_are_inert() {
        for (line, expected) in [
            ("proxy_set_header Host $host", true),
            ("proxy_set_header host $http_host", true),
            ("proxy_set_header Host a.example", false),
            (
                "proxy_set_header X-Forwarded-For $proxy_add_x_forwarded_for",
                true,
            ),
            ("proxy_set_header X-Forwarded-For $remote_addr", false),
            ("proxy_set_header X-Forwarded-Proto $scheme", true),
            ("proxy_set_header X-Forwarded-Proto https", false),
            ("proxy_set_header Upgrade $http_upgrade", true),
            ("proxy_set_header Upgrade websocket", false),
            ("proxy_set_header Connection", true),
            ("proxy_set_header Connection upgrade", true),
            ("proxy_set_header Connection Upgrade", true),
            ("proxy_set_header Connection close", false),
            ("proxy_set_header X-Real-IP $remote_addr", false),
            ("default_type application/octet-stream", true),
            ("default_type text/html", false),
            ("worker_processes 4", true),
            ("b on", true),
            ("a on", false),
            ("listen 80", false),
            ("", false),
        ] {
            assert_eq!(
                is_inert_nginx_directive(&words(line), TABLE),
                expected,
                "{line}"
            );
        }
        assert!(!is_inert_nginx_directive(&words("b"), &[]));
    }
}
