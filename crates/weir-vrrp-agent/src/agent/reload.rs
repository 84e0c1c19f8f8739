//! Adopts a list of virtual routers.

use weir_model::VirtualRouter;
use weir_vrrp::{Config, Version};

use super::{Agent, Error, Port, now, track};

impl Agent {
    /// Replaces the virtual routers. Those that remain continue without a missed advertisement.
    pub(super) fn apply(&mut self, settings: Vec<VirtualRouter>) -> Result<(), Error> {
        let configs: Vec<Config> = settings.iter().map(config).collect();
        for index in self.router.departing(&configs) {
            self.router.stop(index, now());
        }
        self.flush()?;
        let mut former: Vec<(String, Port)> = self
            .settings
            .iter()
            .map(|settings| settings.name.clone())
            .zip(std::mem::take(&mut self.ports))
            .collect();
        let continues = self.router.handle_configs(configs, now());
        for (settings, continues) in settings.iter().zip(continues) {
            let at = former
                .iter()
                .position(|(name, _)| continues && *name == settings.name);
            let port = at.map(|at| former.swap_remove(at).1);
            self.ports.push(port.unwrap_or_default());
        }
        self.watched = track::watched(&settings, now());
        self.awaited
            .retain(|_, awaited| !matches!(awaited, super::Awaited::Track(_)));
        self.settings = settings;
        tracing::info!(
            routers = self.settings.len(),
            "virtual routers are configured"
        );
        Ok(())
    }
}

fn config(router: &VirtualRouter) -> Config {
    Config {
        name: router.name.clone(),
        version: if router.version == 2 {
            Version::V2
        } else {
            Version::V3
        },
        vrid: router.router_id,
        priority: router.priority,
        interval: router.advert_interval,
        addresses: router.addresses.iter().map(|it| it.address).collect(),
        preempt: router.preempt,
        preempt_delay: router.preempt_delay,
        password: None,
        group: router.group.clone(),
        tracked: router.track.iter().map(track::tracked).collect(),
    }
}
