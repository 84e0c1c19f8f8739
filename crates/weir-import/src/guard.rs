//! Recognizes lines of haproxy.cfg and nginx.conf that restrict access.
//!
//! Losing such a line is a security problem, not just a missing feature.
//!
//! When in doubt, list a keyword: a superfluous entry only makes the operator check one more line, but a missing entry
//! can admit clients without a warning.

/// Actions of haproxy rules that restrict access, as in `http-request deny` and `tcp-request content reject`.
const ACTIONS: &[&str] = &[
    "deny",
    "tarpit",
    "block",
    "reject",
    "silent-drop",
    "auth",
    "wait-for-handshake",
];

/// Keywords of old haproxy versions that reject or allow requests or responses by themselves.
const LEGACY_RULES: &[&str] = &[
    "block",
    "reqdeny",
    "reqideny",
    "reqtarpit",
    "reqitarpit",
    "reqallow",
    "reqiallow",
    "rspdeny",
    "rspideny",
];

/// Options of `bind` and `server` that verify the peer's certificate.
pub(crate) const CERTIFICATE_OPTIONS: &[&str] = &["crl-file", "ca-verify-file", "verifyhost"];

/// Returns whether a line of haproxy.cfg restricts access, or selects a backend by a condition.
pub(crate) fn haproxy_line_restricts_access(words: &[String]) -> bool {
    let mut words = words.iter().map(String::as_str);
    let Some(keyword) = words.next() else {
        return false;
    };
    let arguments: Vec<&str> = words.collect();
    let condition = arguments
        .iter()
        .position(|word| matches!(*word, "if" | "unless"));
    let (action, condition) = arguments.split_at(condition.unwrap_or(arguments.len()));
    match keyword {
        "http-request"
        | "http-response"
        | "http-after-response"
        | "tcp-request"
        | "tcp-response" => {
            // In `tcp-request` and `tcp-response`, the processing stage precedes the action: connection, session,
            // content.
            let action_words = if keyword.starts_with("tcp-") { 2 } else { 1 };
            let is_action = |word: &&str| ACTIONS.contains(word);
            // A field that servers may trust, although clients can send it too.
            let changes_trusted_field = action.first() == Some(&"del-header")
                && keyword == "http-request"
                || action.iter().any(|word| word.contains("ssl_c_"));
            action.iter().take(action_words).any(is_action) || changes_trusted_field
        }
        "use_backend" => !condition.is_empty(),
        keyword => LEGACY_RULES.contains(&keyword),
    }
}

/// Directives of nginx that restrict access.
const DIRECTIVES: &[&str] = &[
    "deny",
    "allow",
    "satisfy",
    "limit_except",
    "limit_req",
    "limit_conn",
    "internal",
    "valid_referers",
    "secure_link",
    "secure_link_md5",
    "auth_basic",
    "auth_request",
    "auth_jwt",
    "access_by_lua",
    "access_by_lua_block",
    "access_by_lua_file",
    "js_access",
    "modsecurity",
    "SecRulesEnabled",
    "ssl_verify_client",
    "ssl_client_certificate",
    "ssl_trusted_certificate",
    "ssl_crl",
    "ssl_ocsp",
    "proxy_ssl_verify",
    "proxy_ssl_trusted_certificate",
    "proxy_ssl_crl",
];

/// Returns whether a directive of nginx.conf restricts access; `return` does so only with certain statuses.
pub(crate) fn nginx_directive_restricts_access(words: &[String]) -> bool {
    let word = |index: usize| words.get(index).map_or("", String::as_str);
    match word(0) {
        "return" => matches!(
            word(1),
            "401" | "403" | "404" | "405" | "410" | "429" | "444"
        ),
        keyword => DIRECTIVES.contains(&keyword) && word(1) != "off",
    }
}

/// Returns whether a directive of a location may reject clients before nginx looks for content.
pub(crate) fn rejects_before_content(words: &[String]) -> bool {
    const REJECTING_DIRECTIVES: &[&str] = &[
        "deny",
        "internal",
        "limit_except",
        "satisfy",
        "auth_basic",
        "auth_request",
        "auth_jwt",
        "ssl_verify_client",
    ];
    nginx_directive_restricts_access(words)
        && words
            .first()
            .is_some_and(|keyword| REJECTING_DIRECTIVES.contains(&keyword.as_str()))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn words(line: &str) -> Vec<String> {
        line.split_whitespace().map(str::to_owned).collect()
    }

    #[test]
    fn every_action_and_keyword_of_haproxy_that_restricts_access_is_recognized() {
        let rules = [
            "http-request",
            "http-response",
            "http-after-response",
            "tcp-request content",
            "tcp-response content",
        ];
        for rule in rules {
            for action in ACTIONS {
                let line = format!("{rule} {action} if x");
                assert!(haproxy_line_restricts_access(&words(&line)), "{line}");
                // After `if`, the word is the name of an ACL.
                let line = format!("{rule} pass if {action}");
                assert!(!haproxy_line_restricts_access(&words(&line)), "{line}");
            }
        }
        for keyword in LEGACY_RULES {
            assert!(haproxy_line_restricts_access(&words(keyword)), "{keyword}");
        }
        for (line, expected) in [
            ("", false),
            ("deny", false),
            ("http-request pass deny", false),
            ("tcp-request inspect-delay deny-delay 5s", false),
            ("tcp-request connection accept deny", false),
            ("tcp-request connection del-header X", false),
            ("http-request replace-header A deny x", false),
            ("http-response set-header X %[ssl_c_sha1]", true),
            ("http-request set-header X a if { ssl_c_used }", false),
            ("use_backend admin", false),
            ("use_backend admin unless public", true),
            ("default_backend deny", false),
        ] {
            assert_eq!(
                haproxy_line_restricts_access(&words(line)),
                expected,
                "{line}"
            );
        }
    }

    #[test]
    fn every_directive_of_nginx_that_restricts_access_is_recognized() {
        for directive in DIRECTIVES {
            let line = format!("{directive} x");
            assert!(nginx_directive_restricts_access(&words(&line)), "{line}");
            let line = format!("{directive} off");
            assert!(!nginx_directive_restricts_access(&words(&line)), "{line}");
        }
        for status in ["401", "403", "404", "405", "410", "429", "444"] {
            let line = words(&format!("return {status} text"));
            assert!(nginx_directive_restricts_access(&line), "{status}");
        }
        for line in ["", "return", "return off", "return 400", "proxy_pass deny"] {
            assert!(!nginx_directive_restricts_access(&words(line)), "{line}");
        }
    }

    #[test]
    fn only_some_directives_reject_before_nginx_looks_for_content() {
        for (line, expected) in [
            ("deny all", true),
            ("internal", true),
            ("limit_except GET", true),
            ("satisfy any", true),
            ("auth_basic realm", true),
            ("auth_basic off", false),
            ("auth_request /auth", true),
            ("auth_request off", false),
            ("auth_jwt x", true),
            ("ssl_verify_client on", true),
            ("ssl_verify_client off", false),
            ("limit_req zone=a", false),
            ("allow all", false),
            ("return 403", false),
            ("root /srv", false),
            ("", false),
        ] {
            assert_eq!(rejects_before_content(&words(line)), expected, "{line}");
        }
    }

    #[test]
    fn lines_that_restrict_access_are_recognized() {
        for line in [
            "http-request deny if { path_beg /admin } !internal",
            "http-request deny deny_status 429",
            "http-request auth realm x unless ok",
            "http-request silent-drop if bad",
            "http-request del-header X-User",
            "http-request set-header X-Subject %{+Q}[ssl_c_s_dn]",
            "tcp-request connection reject if bad",
            "tcp-request content reject",
            "http-response deny if leak",
            "use_backend admin if internal",
            "reqideny ^x",
        ] {
            assert!(haproxy_line_restricts_access(&words(line)), "{line}");
        }
        for line in [
            "http-request set-header X-Deny auth",
            "http-response del-header Server",
            "use_backend %[req.hdr(host)]",
            "balance roundrobin",
        ] {
            assert!(!haproxy_line_restricts_access(&words(line)), "{line}");
        }
        for line in [
            "deny all",
            "auth_basic x",
            "internal",
            "return 403",
            "limit_req zone=a",
        ] {
            assert!(nginx_directive_restricts_access(&words(line)), "{line}");
        }
        for line in [
            "auth_basic off",
            "return 200 ok",
            "return 301 https://x",
            "root /srv",
        ] {
            assert!(!nginx_directive_restricts_access(&words(line)), "{line}");
        }
    }
}
