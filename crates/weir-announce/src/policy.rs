//! Restricts an unprivileged daemon's announcements to the VIPs and the speaker in root's configuration file.
//!
//! Within these limits, the daemon only reports which VIPs have services that can serve.

use std::collections::BTreeSet;
use std::net::IpAddr;
use std::path::Path;

use serde::{Deserialize, Serialize};
use weir_helper::{Environment, RootSection};
use weir_model::{Announce, Network};

use crate::message::DaemonReport;

/// File that stores the active [`PermittedAnnounce`] for the next announcer.
const RECORD_FILE: &str = "announce-configuration";

/// `[announce]` of a configuration, with the VIPs that it covers.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
struct PermittedAnnounce {
    settings: Option<Announce>,
    vips: BTreeSet<IpAddr>,
    /// Networks with the VIPs for which a group may publish services.
    #[serde(default)]
    published: Vec<Network>,
}

impl PermittedAnnounce {
    /// Parses the text of a configuration.
    fn parse(text: &str) -> Result<Self, String> {
        let desired = weir_helper::parse(text, &Environment)?;
        let Some(settings) = desired.announce else {
            return Ok(Self::default());
        };
        let is_covered = |name: &str| match &settings.services {
            Some(names) => names.iter().any(|it| it == name),
            None => true,
        };
        let services = desired.services.iter().filter(|it| is_covered(&it.name));
        let mut vips: BTreeSet<IpAddr> = services
            .flat_map(|service| service.listen.iter().map(|it| it.address))
            .collect();
        let proxies = desired.proxies.iter().filter(|it| is_covered(&it.name));
        vips.extend(proxies.flat_map(|proxy| proxy.listen.iter().map(|it| it.ip())));
        // The text does not contain published services, so any VIP for which the group may publish services is
        // permitted.
        let publish = desired.cluster.and_then(|cluster| cluster.publish);
        let published = match (&settings.services, publish) {
            (None, Some(publish)) => publish.vips,
            _ => Vec::new(),
        };
        Ok(Self {
            settings: Some(settings),
            vips,
            published,
        })
    }

    /// Returns whether the report contains the permitted settings and only permitted VIPs.
    fn covers(&self, daemon_report: &DaemonReport) -> bool {
        let mut vips = daemon_report.vips.iter().map(|state| state.vip);
        let is_permitted = |vip| {
            let mut published = self.published.iter();
            self.vips.contains(&vip) || published.any(|network| network.contains(vip))
        };
        self.settings.as_ref() == Some(&daemon_report.settings) && vips.all(is_permitted)
    }
}

/// The settings and VIPs of root's configuration file, which limit an unprivileged daemon.
#[derive(Debug)]
pub(crate) struct Policy(RootSection<PermittedAnnounce>);

impl Policy {
    /// Creates the policy from the configuration file of `weir run`.
    pub(crate) fn new(configuration: &Path, runtime_dir: &Path) -> Self {
        let record = runtime_dir.join(RECORD_FILE);
        Self(RootSection::new(
            "[announce]",
            configuration,
            record,
            PermittedAnnounce::parse,
        ))
    }

    /// Checks the report of an unprivileged daemon. Rereads the file only if the active configuration does not cover
    /// the report.
    ///
    /// # Errors
    /// Returns a message if root's configuration file does not permit the report or cannot be used.
    pub(crate) fn check(&mut self, daemon_report: &DaemonReport) -> Result<(), String> {
        if self
            .0
            .active()
            .is_some_and(|active| active.covers(daemon_report))
        {
            return Ok(());
        }
        let accepted = self
            .0
            .accept("", |permitted| permitted.covers(daemon_report));
        accepted.map(drop).map_err(|error| error.to_string())
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;

    use weir_model::Speaker;

    use super::*;
    use crate::message::VipState;

    const TEXT: &str = r#"
[announce]
speaker = "bird"
socket = "/run/bird/bird.ctl"
include = "/etc/bird/weir.conf"
services = ["a"]
[pool.p]
servers = ["10.0.0.1:80"]
[service.a]
listen = ["10.0.0.9:80"]
forward = "nat"
pool = "p"
[service.b]
listen = ["10.0.0.8:80"]
forward = "nat"
pool = "p"
"#;

    #[test]
    fn only_covered_vips_and_the_configured_speaker_are_permitted() {
        let permitted = PermittedAnnounce::parse(TEXT).unwrap();
        let daemon_report = |vip: &str, settings: Announce| DaemonReport {
            settings,
            vips: vec![VipState {
                vip: vip.parse().unwrap(),
                serves: true,
                reason: String::new(),
                settling: false,
            }],
            is_draining: false,
        };
        let file_settings = permitted.settings.clone().unwrap();
        assert!(permitted.covers(&daemon_report("10.0.0.9", file_settings.clone())));
        assert!(
            !permitted.covers(&daemon_report("10.0.0.8", file_settings.clone())),
            "service b is not announced"
        );
        assert!(
            !permitted.covers(&daemon_report("192.0.2.1", file_settings.clone())),
            "no service has this VIP"
        );
        let other_speaker = Announce {
            speaker: Speaker::Bird {
                socket: PathBuf::from("/run/bird/bird.ctl"),
                include: PathBuf::from("/etc/passwd"),
            },
            ..file_settings
        };
        assert!(!permitted.covers(&daemon_report("10.0.0.9", other_speaker)));
        // The group may publish services for any VIP in the networks that root's configuration file permits.
        const CLUSTER: &str = "[cluster]\netcd = [\"http://10.0.0.1:2379\"]\nname = \"edge\"\n[cluster.publish]\n\
            vips = [\"192.0.2.0/24\"]\nservers = [\"10.0.0.0/8\"]\n";
        let text = format!("{TEXT}{CLUSTER}").replace("forward = \"nat\"", "forward = \"socket\"");
        let with_services = PermittedAnnounce::parse(&text).unwrap();
        let settings = with_services.settings.clone().unwrap();
        assert!(
            !with_services.covers(&daemon_report("192.0.2.1", settings)),
            "`services` does not include published services"
        );
        let without_services =
            PermittedAnnounce::parse(&text.replace("services = [\"a\"]", "")).unwrap();
        let settings = without_services.settings.clone().unwrap();
        assert!(without_services.covers(&daemon_report("192.0.2.1", settings.clone())));
        assert!(without_services.covers(&daemon_report("10.0.0.8", settings.clone())));
        assert!(!without_services.covers(&daemon_report("198.51.100.1", settings)));
        let without_announce = PermittedAnnounce::parse("[node]\n").unwrap();
        let settings = permitted.settings.unwrap();
        assert!(!without_announce.covers(&daemon_report("10.0.0.9", settings)));
    }
}
