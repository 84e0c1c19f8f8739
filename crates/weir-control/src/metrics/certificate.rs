//! Writes the expiry times of certificates.

use super::text::Text;
use crate::status::Report;

/// Writes the metric family even if it has no series, because an alerting rule may use it.
pub(super) fn write_certificates(text: &mut Text, report: &Report) {
    let name = "weir_certificate_not_after_timestamp_seconds";
    let help =
        "Expiry time of a certificate, since the Unix epoch; at most the first 1000 of a service.";
    text.write_family(name, "gauge", help);
    for (service, certificate) in report.certificates() {
        let labels = [("service", service), ("certificate", &certificate.file)];
        text.write_sample(name, &labels, certificate.not_after_s);
    }
}
