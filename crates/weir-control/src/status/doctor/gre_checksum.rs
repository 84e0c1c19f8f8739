//! Reports packets that were dropped because their GRE tunnel has checksums.

use weir_doctor::Diagnosis;
use weir_model::Desired;

use super::super::Report;
use crate::gre_tunnel::services_with_gre_checksum;

/// The counter of dropped packets of many segments whose tunnel requires a checksum per segment.
const REASON: &str = "drop_gso_tunnel";

impl Report {
    /// Returns the problem of services with GRE checksums if such packets were dropped. The counter alone is not a
    /// problem: it keeps its value after the configuration was corrected.
    pub(super) fn gre_checksum_finding(&self, desired: &Desired) -> Option<Diagnosis> {
        let reason = self.reasons.iter().find(|it| it.reason == REASON)?;
        let service = services_with_gre_checksum(desired).next()?;
        let (packets, name) = (reason.packets, &service.name);
        if packets == 0 {
            return None;
        }
        let problem = format!(
            "{packets} packets of many segments were dropped ({REASON}): the GRE tunnels of service {name} have \
             checksums"
        );
        let effect = "uploads stall: the kernel cannot compute the GRE checksum of each segment";
        let fix =
            "remove `checksum` from `tunnel` here and on the servers, or use `type = \"gue\"`";
        Some(Diagnosis::new(problem, effect).fix(fix))
    }
}

#[cfg(test)]
mod tests {
    use super::super::super::Reason;
    use super::*;

    fn finding_text(packets: u64, tunnel: &str) -> Option<String> {
        let text = format!(
            "[pool.p]\nservers = [\"10.0.0.5\"]\n[service.web]\nforward = \"tunnel\"\ntunnel = {tunnel}\npool = \
             \"p\"\nlisten = [\"192.0.2.1:80\"]\n"
        );
        let desired = weir_config::parse(&text, &weir_config::Host::default());
        let reason = Reason {
            reason: REASON.to_owned(),
            description: String::new(),
            packets,
        };
        let report = Report {
            reasons: vec![reason],
            ..Report::default()
        };
        let findings = report.director_findings(
            &desired.expect("parse the configuration").desired,
            &weir_doctor::Disconnected::default(),
        );
        assert!(findings.len() < 2, "{findings:?}");
        findings.first().map(ToString::to_string)
    }

    #[test]
    fn packets_dropped_because_of_gre_checksums_are_reported() {
        let checksum = "{ type = \"gre\", checksum = \"full\" }";
        let text = finding_text(7, checksum).expect("a finding");
        for part in ["7 packets", "service web", "uploads stall", "fix:  remove"] {
            assert!(text.contains(part), "{text}");
        }
        assert_eq!(finding_text(0, checksum), None, "nothing was dropped");
        assert_eq!(
            finding_text(7, "\"gre\""),
            None,
            "the configuration is corrected"
        );
    }
}
