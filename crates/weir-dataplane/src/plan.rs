//! Plans how to open a pin directory: which maps to adopt or create, and whether to load programs.
//!
//! New objects are created in directories that no record refers to yet; [`crate::Dataplane`] activates them.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use weir_abi::{ABI_HASH, ABI_VERSION};

use crate::dataplane::{OpenOptions, OpenOutcome, XDP_PROGRAM};
use crate::error::{Context, Result};
use crate::layout::{self, LayoutRecord, Sizes};
use crate::loader::{self, Constant, MapSource, PRIVATE_MAPS, Programs};
use crate::pins::PinDir;
use crate::spec::{Group, MAPS, MapSpec};
use crate::sys::{self, Access};

/// The plan for opening a pin directory.
pub(crate) struct Plan {
    pub(crate) record: LayoutRecord,
    pub(crate) opened: OpenOutcome,
    pub(crate) load_programs: bool,
    /// Whether the state is new and can share its counts with the old state, which has the same ABI version.
    pub(crate) share_counts: bool,
}

impl Plan {
    pub(crate) fn fresh(options: &OpenOptions) -> Result<Self> {
        let secret = match options.secret {
            Some(secret) => secret,
            None => random_secret()?,
        };
        let record = LayoutRecord::new(
            options.sizes,
            secret,
            options.flow_layout,
            loader::director_hash(),
        );
        Ok(Self {
            record,
            opened: OpenOutcome::Fresh,
            load_programs: true,
            share_counts: false,
        })
    }

    /// Returns the plan for an existing record and these options. The record's layouts must be supported.
    pub(crate) fn for_record(
        pins: &PinDir,
        old: &LayoutRecord,
        options: &OpenOptions,
    ) -> Result<Self> {
        let (mut sizes, mut flow_layout) = (options.sizes, options.flow_layout);
        // During a migration, the current table is not replaced, so there are never three tables.
        if old.old_buckets > 0 {
            (sizes.flows, flow_layout) = (old.sizes.flows, old.flow_layout);
        }
        let same_abi = old.abi_version == ABI_VERSION;
        let state_fits = same_abi
            && maps_fit(&pins.state(old.state), &sizes, |group| {
                group != Group::Flows
            })?;
        let flows_fit = old.flow_layout == flow_layout
            && maps_fit(&flow_directory(pins, old), &sizes, |group| {
                group == Group::Flows
            })?;
        let old_buckets = if flows_fit {
            old.old_buckets
        } else {
            old.sizes.buckets()
        };
        let programs_fit = state_fits
            && flows_fit
            && old.program_old_buckets == old_buckets
            && old.sizes == sizes
            && old.object_hash == loader::director_hash()
            && pins.programs(old.programs).join(XDP_PROGRAM).exists();

        let mut record = LayoutRecord {
            sizes,
            abi_version: ABI_VERSION,
            abi_hash: ABI_HASH,
            ..*old
        };
        record.flow_layout = flow_layout;
        record.object_hash = loader::director_hash();
        if !state_fits {
            record.state = old.state.wrapping_add(1);
        }
        if !programs_fit {
            record.programs = old.programs.wrapping_add(1);
        }
        if !flows_fit {
            record.old_flow_layout = old.flow_layout;
        }
        record.old_buckets = old_buckets;
        record.program_old_buckets = old_buckets;
        let opened = if record.old_buckets > 0 {
            OpenOutcome::FlowsMigrating
        } else if state_fits {
            OpenOutcome::Adopted
        } else {
            OpenOutcome::Replaced
        };
        Ok(Self {
            record,
            opened,
            load_programs: !programs_fit,
            share_counts: same_abi && !state_fits,
        })
    }
}

pub(crate) fn flow_directory(pins: &PinDir, record: &LayoutRecord) -> PathBuf {
    pins.flows(record.flow_layout, record.sizes.buckets())
}

fn specs_where(is_included: impl Fn(Group) -> bool) -> impl Iterator<Item = &'static MapSpec> {
    MAPS.iter().filter(move |spec| is_included(spec.group))
}

/// Returns whether `directory` contains every map of these groups, with the properties that this build expects.
fn maps_fit(directory: &Path, sizes: &Sizes, is_included: impl Fn(Group) -> bool) -> Result<bool> {
    for spec in specs_where(is_included) {
        let path = directory.join(spec.name);
        let map = match sys::open_pin(&path, Access::Full) {
            Ok(map) => map,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(false),
            Err(error) => return Err(error).at(&path),
        };
        if spec
            .check(sizes, &sys::map_info(map.as_fd()).at(&path)?)
            .is_err()
        {
            return Ok(false);
        }
    }
    Ok(true)
}

/// Also pins the old state's [`Group::Counts`] maps in the new state, if they fit.
pub(crate) fn share_counts(pins: &PinDir, old: &LayoutRecord, new: &LayoutRecord) -> Result<()> {
    let directory = pins.state(new.state);
    fs::create_dir_all(&directory).at(&directory)?;
    for spec in specs_where(|group| group == Group::Counts) {
        let old_pin = pins.state(old.state).join(spec.name);
        let Ok(map) = sys::open_pin(&old_pin, Access::Full) else {
            continue;
        };
        if spec
            .check(&new.sizes, &sys::map_info(map.as_fd()).at(&old_pin)?)
            .is_ok()
        {
            let new_pin = directory.join(spec.name);
            sys::pin(map.as_fd(), &new_pin).at(&new_pin)?;
        }
    }
    Ok(())
}

pub(crate) fn sources(pins: &PinDir, record: &LayoutRecord) -> Vec<MapSource> {
    let state = pins.state(record.state);
    let flows = flow_directory(pins, record);
    let programs = pins.programs(record.programs);
    let shared = MAPS.iter().map(|spec| {
        let directory = if spec.group == Group::Flows {
            &flows
        } else {
            &state
        };
        MapSource {
            name: spec.name,
            pin: directory.join(spec.name),
            entries: Some(spec.entries(&record.sizes)),
        }
    });
    let private = PRIVATE_MAPS.iter().map(|name| MapSource {
        name,
        pin: programs.join(name),
        entries: None,
    });
    shared
        .chain(old_table(pins, record))
        .chain(private)
        .collect()
}

/// Returns the maps of the old flow table, under the names that the programs use. If there is no old table, each object
/// creates its own unused maps with these names.
fn old_table(pins: &PinDir, record: &LayoutRecord) -> impl Iterator<Item = MapSource> {
    let directory = (record.program_old_buckets > 0)
        .then(|| pins.flows(record.old_flow_layout, record.program_old_buckets));
    let names = [
        ("weir_flows_old", "weir_flows"),
        ("weir_flows_old_cold", "weir_flows_cold"),
    ];
    directory.into_iter().flat_map(move |directory| {
        names.map(|(name, pin_name)| MapSource {
            name,
            pin: directory.join(pin_name),
            entries: None,
        })
    })
}

pub(crate) fn constants(record: &LayoutRecord) -> Vec<Constant> {
    let sizes = &record.sizes;
    let word = |name, value: u32| Constant {
        name,
        bytes: value.to_ne_bytes().to_vec(),
    };
    let [secret0, secret1] = record.secret;
    let (buckets, old) = (sizes.buckets(), record.program_old_buckets);
    let homes = layout::home_bucket_count(record.flow_layout, buckets);
    let old_homes = layout::home_bucket_count(record.old_flow_layout, old);
    vec![
        Constant {
            name: "weir_secret0",
            bytes: secret0.to_ne_bytes().to_vec(),
        },
        Constant {
            name: "weir_secret1",
            bytes: secret1.to_ne_bytes().to_vec(),
        },
        word("weir_bucket_count", homes),
        word("weir_stash_count", buckets - homes),
        word("weir_dest_count", sizes.dests),
        word("weir_service_count", sizes.services),
        word("weir_table_count", sizes.elements),
        word("weir_live_count", sizes.live_rows()),
        word("weir_old_bucket_count", old_homes),
        word("weir_old_stash_count", old - old_homes),
        word("weir_flow_layout", record.flow_layout),
        word("weir_old_flow_layout", record.old_flow_layout),
    ]
}

pub(crate) fn load_generation(
    pins: &PinDir,
    record: &LayoutRecord,
    objects: &[&'static str],
) -> Result<Programs> {
    let directory = pins.programs(record.programs);
    for path in [
        &directory,
        &pins.state(record.state),
        &flow_directory(pins, record),
    ] {
        fs::create_dir_all(path).at(path)?;
    }
    let (sources, constants) = (sources(pins, record), constants(record));
    loader::load_all(objects, &sources, &constants, &directory)
}

/// Checks that every shared map has the properties that this build expects: aya does not check the pins that it opens.
pub(crate) fn verify(pins: &PinDir, record: &LayoutRecord) -> Result<()> {
    for (spec, source) in MAPS.iter().zip(sources(pins, record)) {
        let map = sys::open_pin(&source.pin, Access::Full).at(&source.pin)?;
        spec.check(&record.sizes, &sys::map_info(map.as_fd()).at(&source.pin)?)?;
    }
    Ok(())
}

#[allow(unsafe_code, reason = "getrandom(2) fills a buffer")]
fn random_secret() -> Result<[u64; 2]> {
    let mut secret = [0u64; 2];
    // SAFETY: the buffer is sixteen bytes of integers.
    let length = unsafe { libc::getrandom(secret.as_mut_ptr().cast(), size_of_val(&secret), 0) };
    let result = if length == size_of_val(&secret) as isize {
        Ok(secret)
    } else {
        Err(std::io::Error::last_os_error())
    };
    result.during("generate", || "the hash secret".to_owned())
}
