//! Records which routes the speakers may be announcing, and how the speakers are controlled, so that the next announcer
//! can withdraw the routes before the daemon reports to it.
//!
//! There are two files, because an earlier build that takes over reads `announced.json`, and accepts only a list of
//! addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use weir_model::Announce;
use weir_sys::{read_owned_file, replace_file};

/// File that stores the VIPs that the speaker may be announcing.
const VIPS_FILE: &str = "announced.json";
/// File that stores [`Speakers`].
const SPEAKERS_FILE: &str = "announced-speakers.json";

/// The settings of the speakers that may be announcing routes, and the times of the announcements. An earlier build
/// does not update them, so they may be older than the VIPs.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Speakers {
    /// The settings of the speaker that announces the VIPs; `None` = unknown.
    pub(crate) current: Option<Announce>,
    /// The speakers of earlier settings that may still be announcing routes.
    pub(crate) previous: Vec<PreviousRoutes>,
    /// Unix time at which each VIP was announced, in milliseconds. Earlier builds neither write nor read this.
    #[serde(default)]
    pub(crate) since: BTreeMap<IpAddr, u64>,
}

/// Routes that a speaker of earlier settings may still be announcing.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct PreviousRoutes {
    pub(crate) settings: Announce,
    pub(crate) vips: BTreeSet<IpAddr>,
}

/// The files, and their content.
#[derive(Debug)]
pub(crate) struct Record {
    directory: PathBuf,
    vips: BTreeSet<IpAddr>,
    speakers: Speakers,
}

impl Record {
    /// Reads the files of a runtime directory. A file that is missing or invalid, or that another user owns, counts as
    /// empty.
    pub(crate) fn read(directory: &Path) -> Self {
        // Read a file only if this process's user owns it, because an unprivileged daemon may be able to write to the
        // directory.
        let content = |name: &str| read_owned_file(&directory.join(name)).unwrap_or_default();
        Self {
            directory: directory.to_owned(),
            vips: serde_json::from_slice(&content(VIPS_FILE)).unwrap_or_default(),
            speakers: serde_json::from_slice(&content(SPEAKERS_FILE)).unwrap_or_default(),
        }
    }

    pub(crate) const fn vips(&self) -> &BTreeSet<IpAddr> {
        &self.vips
    }

    pub(crate) const fn speakers(&self) -> &Speakers {
        &self.speakers
    }

    /// Writes the VIPs that the speaker may be announcing, if they have changed. Logs errors.
    pub(crate) fn write_vips(&mut self, vips: BTreeSet<IpAddr>) {
        if vips != self.vips && self.write(VIPS_FILE, &vips) {
            self.vips = vips;
        }
    }

    /// Writes the settings of the speakers, if they have changed. Logs errors.
    pub(crate) fn write_speakers(&mut self, speakers: Speakers) {
        if speakers != self.speakers && self.write(SPEAKERS_FILE, &speakers) {
            self.speakers = speakers;
        }
    }

    /// Returns whether the file was written.
    fn write(&self, name: &str, content: &impl Serialize) -> bool {
        let encoded = serde_json::to_vec(content).map_err(Into::into);
        let result = encoded.and_then(|text| replace_file(&self.directory.join(name), &text));
        if let Err(error) = &result {
            tracing::warn!(%error, name, "failed to record the announced routes");
        }
        result.is_ok()
    }
}
