//! Lists a service's certificates in order of expiry, for status and metrics.

use super::certificate::Certificate;

/// A certificate that expires in fewer than this many days causes a warning. certbot renews certificates 30 days before
/// they expire, so renewal has failed by then.
pub const EXPIRY_WARNING_DAYS: i64 = 14;

/// Maximum number of certificates that are reported for a service: those that expire first.
const MAX_REPORTED: usize = 1000;

/// Seconds per day.
pub(super) const DAY_S: i64 = 86_400;

/// A certificate in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateExpiry {
    /// Path to the file that contains the certificate.
    pub file: String,
    /// The first host name in the certificate; empty = none.
    pub name: String,
    /// End of the certificate's validity, in seconds since 1970.
    pub not_after: i64,
}

impl CertificateExpiry {
    /// Returns the full days until the certificate expires; negative if it has expired. `now` is in seconds since 1970.
    pub const fn days_left(&self, now: i64) -> i64 {
        self.not_after.saturating_sub(now).div_euclid(DAY_S)
    }
}

/// Returns the certificates that expire first, in order of expiry.
pub(super) fn first_to_expire(certificates: &[Certificate]) -> Vec<CertificateExpiry> {
    let mut found: Vec<CertificateExpiry> = certificates
        .iter()
        .map(|certificate| CertificateExpiry {
            file: certificate.path.display().to_string(),
            name: certificate.info.names.first().cloned().unwrap_or_default(),
            not_after: certificate.info.not_after,
        })
        .collect();
    found.sort_by(|a, b| (a.not_after, &a.file).cmp(&(b.not_after, &b.file)));
    found.truncate(MAX_REPORTED);
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn days_left_are_full_days_and_negative_after_the_end() {
        let certificate = CertificateExpiry {
            file: String::new(),
            name: String::new(),
            not_after: 10 * DAY_S,
        };
        for (now, days) in [
            (0, 10),
            (1, 9),
            (9 * DAY_S, 1),
            (10 * DAY_S - 1, 0),
            (10 * DAY_S + 1, -1),
            (12 * DAY_S, -2),
        ] {
            assert_eq!(certificate.days_left(now), days, "{now}");
        }
    }
}
