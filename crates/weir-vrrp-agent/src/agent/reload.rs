//! Applies a new list of virtual routers.

use weir_model::{RouterAnnouncements, RouterHmac, RouterHmacMode, RouterKey, VirtualRouter};
use weir_vrrp::{
    Announcements, ChecksumForm, Config, HmacConfig, HmacKey, HmacMode, Version,
    max_listed_addresses,
};

use super::{Agent, Error, TrackedObject, now, track};

impl Agent {
    /// Replaces the virtual routers. Those with the same name, version, ID and addresses continue without missing an
    /// advertisement.
    pub(super) fn apply(&mut self, settings: Vec<VirtualRouter>) -> Result<(), Error> {
        let configs: Vec<Config> = settings.iter().map(config).collect();
        self.flush()?;
        self.is_reconfiguring = true;
        for index in self.router.removed_by(&configs) {
            self.router.stop(index, now());
        }
        self.end_elections()?;
        self.flush()?;
        self.is_reconfiguring = false;
        let mut ports = std::mem::take(&mut self.ports);
        let mut tracked = std::mem::take(&mut self.tracked);
        let continues = self.router.handle_configs(configs, now());
        for (router, (settings, continues)) in settings.iter().zip(continues).enumerate() {
            let is_same = |it: &VirtualRouter| continues && it.name == settings.name;
            let former = self.settings.iter().position(is_same);
            let port = former.map(|index| std::mem::take(&mut ports[index]));
            self.ports.push(port.unwrap_or_default());
            let is_former = |it: &mut TrackedObject| Some(it.router) == former;
            let former_objects = tracked.extract_if(.., is_former).collect();
            let objects = track::tracked_objects(router, &settings.track, former_objects, now());
            self.tracked.extend(objects);
        }
        // The indices in these requests are no longer valid, and a new helper does not reply to them.
        self.pending
            .retain(|_, purpose| !matches!(purpose, super::Purpose::Track(_)));
        self.settings = settings;
        tracing::info!(
            routers = self.settings.len(),
            "virtual routers are configured"
        );
        Ok(())
    }
}

fn config(router: &VirtualRouter) -> Config {
    let RouterAnnouncements {
        repeat,
        second_announcement_delay,
        refresh,
        refresh_repeat,
    } = router.announcements;
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
        addresses: router
            .addresses
            .iter()
            .map(|it| it.address)
            .take(max_listed_addresses(
                router.is_ipv4(),
                router.hmac.is_some(),
            ))
            .collect(),
        preempt: router.preempt,
        preempt_delay: router.preempt_delay,
        start_delay: router.start_delay,
        down_adverts: router.down_adverts,
        unicast_min_ttl: router.unicast_min_ttl.unwrap_or(match router.is_ipv4() {
            true => u8::MAX,
            // keepalived does not set the hop limit; the kernel's default is 64.
            false => 1,
        }),
        checksum: if router.pseudo_header {
            ChecksumForm::PseudoHeader
        } else {
            ChecksumForm::Plain
        },
        announcements: Announcements {
            repeat,
            second_announcement_delay,
            refresh,
            refresh_repeat,
        },
        password: router.password.as_ref().map(password),
        hmac: router.hmac.as_ref().map(hmac),
        group: router.group.clone(),
        tracked: router.track.iter().map(track::settings).collect(),
    }
}

/// Returns the password, padded with zeros to 8 bytes.
fn password(key: &RouterKey) -> [u8; 8] {
    let mut padded = [0; 8];
    for (padded, byte) in padded.iter_mut().zip(&key.0) {
        *padded = *byte;
    }
    padded
}

fn hmac(hmac: &RouterHmac) -> HmacConfig {
    let keys = hmac.keys.iter();
    HmacConfig {
        keys: keys
            .map(|(id, key)| HmacKey {
                id: *id,
                bytes: key.0.clone(),
            })
            .collect(),
        signing_key_id: hmac.active,
        mode: match hmac.mode {
            RouterHmacMode::Enforce => HmacMode::Enforce,
            RouterHmacMode::Permissive => HmacMode::Permissive,
            RouterHmacMode::ReceiveOnly => HmacMode::ReceiveOnly,
        },
        window: hmac.window,
    }
}
