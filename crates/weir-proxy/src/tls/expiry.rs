//! When the certificates of a service expire, for status and metrics.

use super::certificate::Certificate;

/// A certificate that expires in fewer days causes a warning: certbot renews 30 days ahead, so renewal has failed.
pub const EXPIRY_WARNING_DAYS: i64 = 14;

/// Maximum number of certificates that a service reports; those that expire first.
const REPORTED_MAX: usize = 1000;

pub(super) const DAY: i64 = 86_400;

/// A certificate in use.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CertificateExpiry {
    /// The file that it was read from.
    pub file: String,
    /// The first host name in it; empty if it has none.
    pub name: String,
    /// End of its validity, in seconds since 1970.
    pub not_after: i64,
}

impl CertificateExpiry {
    /// Full days until it expires; negative if it has expired.
    pub const fn days_left(&self, now: i64) -> i64 {
        self.not_after.saturating_sub(now).div_euclid(DAY)
    }
}

/// The certificates that expire first, in this order.
pub(super) fn first_to_expire(certificates: &[Certificate]) -> Vec<CertificateExpiry> {
    let mut found: Vec<CertificateExpiry> = certificates
        .iter()
        .map(|it| CertificateExpiry {
            file: it.path.display().to_string(),
            name: it.info.names.first().cloned().unwrap_or_default(),
            not_after: it.info.not_after,
        })
        .collect();
    found.sort_by(|a, b| (a.not_after, &a.file).cmp(&(b.not_after, &b.file)));
    found.truncate(REPORTED_MAX);
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
            not_after: 10 * DAY,
        };
        for (now, days) in [
            (0, 10),
            (1, 9),
            (9 * DAY, 1),
            (10 * DAY - 1, 0),
            (10 * DAY + 1, -1),
            (12 * DAY, -2),
        ] {
            assert_eq!(certificate.days_left(now), days, "{now}");
        }
    }
}
