//! Serves the dashboard (`GET /`), a single page without external resources.
//!
//! Its data comes from the API, mainly from `/v1/status`.
//!
//! The page contains no confidential data, so it requires no token. Its Content Security Policy allows only its own
//! script and style, identified by their hashes, and connections to this server.

use std::sync::OnceLock;

use aws_lc_rs::digest::{SHA256, digest};
use axum::http::header::{self, HeaderName};

const PAGE: &str = include_str!("index.html");
const STYLE: &str = include_str!("style.css");
const SCRIPT: &str = include_str!("app.js");

/// The dashboard page and its response headers.
#[derive(Debug)]
pub struct Dashboard {
    /// The HTML text.
    pub page: String,
    /// The headers, including the Content Security Policy.
    pub headers: [(HeaderName, String); 6],
}

/// Returns the dashboard.
pub fn dashboard() -> &'static Dashboard {
    static DASHBOARD: OnceLock<Dashboard> = OnceLock::new();
    DASHBOARD.get_or_init(|| {
        let policy = format!(
            "default-src 'none'; script-src 'sha256-{}'; style-src 'sha256-{}'; connect-src 'self'; base-uri 'none'; \
             form-action 'none'; frame-ancestors 'none'",
            hash(SCRIPT),
            hash(STYLE)
        );
        Dashboard {
            page: PAGE
                .replace("/*STYLE*/", STYLE)
                .replace("/*SCRIPT*/", SCRIPT),
            headers: [
                (header::CONTENT_TYPE, "text/html; charset=utf-8".to_owned()),
                (header::CONTENT_SECURITY_POLICY, policy),
                (header::X_CONTENT_TYPE_OPTIONS, "nosniff".to_owned()),
                (header::X_FRAME_OPTIONS, "DENY".to_owned()),
                (header::REFERRER_POLICY, "no-referrer".to_owned()),
                (header::CACHE_CONTROL, "no-cache".to_owned()),
            ],
        }
    })
}

/// Returns the SHA-256 hash in base64 (RFC 4648), the form used in a Content Security Policy.
fn hash(text: &str) -> String {
    const ALPHABET: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    let digest = digest(&SHA256, text.as_bytes());
    let mut out = String::new();
    for chunk in digest.as_ref().chunks(3) {
        let bits = (0..3).fold(0_u32, |bits, index| {
            bits << 8 | u32::from(chunk.get(index).copied().unwrap_or(0))
        });
        for index in 0..4 {
            let symbol = ALPHABET[(bits >> (18 - 6 * index)) as usize & 63];
            out.push(if index <= chunk.len() {
                symbol.into()
            } else {
                '='
            });
        }
    }
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn hash_equals_examples_in_recommendation() {
        // The hashes of the empty text and of an example in Content Security Policy Level 3, section 8.3.
        assert_eq!(hash(""), "47DEQpj8HBSa+/TImW+5JCeuQeRkm5NMpJWZG3hSuFU=");
        assert_eq!(
            hash("alert('Hello, world.');"),
            "qznLcsROx4GACP2dm0UCKCzCG+HiZ1guq6ZZDob/Tng="
        );
    }

    #[test]
    fn page_has_no_external_resources() {
        let page = &dashboard().page;
        assert!(page.contains(STYLE) && page.contains(SCRIPT));
        for external in ["http://", "https://", "src=", "@import", "url(", "href=\"/"] {
            assert!(!page.contains(external), "{external}");
        }
        // The policy forbids inline handlers and style attributes, and the script never inserts text as markup.
        for inline in [
            " onclick",
            " style=",
            "innerHTML",
            "insertAdjacent",
            "eval(",
        ] {
            assert!(!page.contains(inline), "{inline}");
        }
    }

    #[test]
    fn script_has_histogram_bounds_of_the_proxy() {
        let bounds = weir_proxy::times::BOUNDS_US.map(|bound| bound.to_string());
        let line = format!("const BOUNDS_US = [{}];", bounds.join(", "));
        assert!(SCRIPT.contains(&line), "{line}");
    }

    #[test]
    fn every_element_that_the_script_uses_exists() {
        for part in SCRIPT.split("at(\"").skip(1) {
            let id = part.split('"').next().unwrap_or_default();
            assert!(PAGE.contains(&format!("id=\"{id}\"")), "{id}");
        }
        for part in SCRIPT.split("table(\"").skip(1) {
            let id = part.split('"').next().unwrap_or_default();
            assert!(PAGE.contains(&format!("<table id=\"{id}\"")), "{id}");
        }
    }
}
