//! Describes the certificates of proxy services and of the API in the status document.

use std::fmt::Write as _;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};
use weir_proxy::{CertificateExpiry, EXPIRY_WARNING_DAYS};

use super::time::rfc3339;
use crate::count::format_count;
use crate::group_configuration::PUBLISHED_FILES;

/// Maximum number of certificate warnings per service in the text form.
const MAX_WARNED: usize = 5;

/// A certificate that is sent to clients.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Certificate {
    /// The file that the certificate was read from.
    pub file: String,
    /// The first host name in the certificate; absent if there is none.
    #[serde(default, skip_serializing_if = "String::is_empty")]
    pub name: String,
    /// End of validity, in RFC 3339 format.
    pub not_after: String,
    /// End of validity, in seconds since 1970.
    pub not_after_s: i64,
    /// Number of full days until the end of validity; negative if the certificate has expired.
    pub days_left: i64,
}

impl Certificate {
    /// Converts a certificate's expiry. `days_left` is relative to `now`.
    pub(crate) fn new(expiry: &CertificateExpiry, now: SystemTime) -> Self {
        let now = now.duration_since(UNIX_EPOCH).unwrap_or_default();
        let end = u64::try_from(expiry.not_after).unwrap_or(0);
        Self {
            file: expiry.file.clone(),
            name: expiry.name.clone(),
            not_after: rfc3339(UNIX_EPOCH + Duration::from_secs(end)),
            not_after_s: expiry.not_after,
            days_left: expiry.days_left(i64::try_from(now.as_secs()).unwrap_or(i64::MAX)),
        }
    }

    /// Returns whether the certificate should have been renewed.
    pub(super) const fn needs_attention(&self) -> bool {
        self.days_left < EXPIRY_WARNING_DAYS
    }

    /// Returns whether the group of directors has published the certificate.
    pub(super) fn is_published(&self) -> bool {
        let parent = std::path::Path::new(&self.file).parent();
        parent.is_some_and(|parent| parent.ends_with(PUBLISHED_FILES))
    }

    /// Returns the state as a sentence: `certificate /etc/weir/a.pem: expires in 9 days`.
    pub(super) fn to_sentence(&self) -> String {
        let days = self.days_left;
        let ending = match days {
            ..0 => format!("expired at {}", self.not_after),
            0 => format!("expires within a day, at {}", self.not_after),
            _ => format!("expires in {}", format_count(days.unsigned_abs(), "day")),
        };
        format!("certificate {}: {ending}", self.file)
    }
}

/// Writes a service's lines: the certificate that expires first, or warnings about certificates that should already
/// have been renewed.
pub(super) fn write_lines(out: &mut String, certificates: &[Certificate]) {
    let due: Vec<&Certificate> = certificates
        .iter()
        .filter(|certificate| certificate.needs_attention())
        .collect();
    for certificate in due.iter().take(MAX_WARNED) {
        let _ = writeln!(out, "  warning: {}", certificate.to_sentence());
    }
    if due.len() > MAX_WARNED {
        let more = due.len() - MAX_WARNED;
        let _ = writeln!(
            out,
            "  warning: {more} more have expired or expire within {EXPIRY_WARNING_DAYS} days"
        );
    }
    if let Some(first) = certificates.first().filter(|_| due.is_empty()) {
        let others = match certificates.len() - 1 {
            0 => String::new(),
            1 => "; 1 other expires later".to_owned(),
            others => format!("; {others} others expire later"),
        };
        let _ = writeln!(out, "  {}{others}", first.to_sentence());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn certificate(file: &str, days: i64) -> Certificate {
        let expiry = CertificateExpiry {
            file: file.to_owned(),
            name: String::new(),
            not_after: 1_795_201_200 + days * 86_400,
        };
        Certificate::new(&expiry, UNIX_EPOCH + Duration::from_secs(1_795_201_200))
    }

    fn lines(certificates: &[Certificate]) -> String {
        let mut out = String::new();
        write_lines(&mut out, certificates);
        out
    }

    #[test]
    fn certificates_due_for_renewal_cause_warnings() {
        assert_eq!(lines(&[]), "");
        assert_eq!(
            lines(&[certificate("/a.pem", 14), certificate("/b.pem", 60)]),
            "  certificate /a.pem: expires in 14 days; 1 other expires later\n"
        );
        assert_eq!(
            lines(&[
                certificate("/a.pem", 14),
                certificate("/b.pem", 60),
                certificate("/c.pem", 61)
            ]),
            "  certificate /a.pem: expires in 14 days; 2 others expire later\n"
        );
        assert_eq!(
            lines(&[
                certificate("/a.pem", -3),
                certificate("/b.pem", 0),
                certificate("/c.pem", 1),
                certificate("/d.pem", 13),
                certificate("/e.pem", 14)
            ]),
            "  warning: certificate /a.pem: expired at 2026-11-17T19:00:00Z\n\
             \x20 warning: certificate /b.pem: expires within a day, at 2026-11-20T19:00:00Z\n\
             \x20 warning: certificate /c.pem: expires in 1 day\n\
             \x20 warning: certificate /d.pem: expires in 13 days\n"
        );
        let many: Vec<Certificate> = (0..20).map(|_| certificate("/a.pem", 2)).collect();
        let text = lines(&many);
        assert_eq!(text.lines().count(), 6, "{text}");
        assert!(text.ends_with("  warning: 15 more have expired or expire within 14 days\n"));
    }
}
