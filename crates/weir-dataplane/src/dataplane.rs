//! The data plane of one director: opened, filled, activated, attached, watched.
//!
//! Opening changes nothing that packets meet. It adopts what fits, makes beside it what does not, and loads programs where
//! the pinned ones are of another build or size. [`Dataplane::activate`] puts all of it in force: the record first, then
//! each device's program in one step, then what is left of the old is unpinned. A death at any point leaves either the old
//! record with new directories beside it, which the next opening removes, or the new record with devices that still run the
//! old programs, which the next activation replaces.

use std::fs;
use std::os::fd::AsFd;
use std::path::{Path, PathBuf};

use weir_abi::{ABI_FLOW_LAYOUT, ABI_HASH, ABI_VERSION};

use crate::attach::{self, Attachment, Direction, XdpChoice, XdpMode};
use crate::carry::Carried;
use crate::error::{Context, Error, Result};
use crate::layout::{Group, LayoutRecord, MAPS, MapSpec, Sizes};
use crate::loader::{self, Constant, MapSource, OWN_MAPS, Programs};
use crate::maps::Maps;
use crate::migrate::Migration;
use crate::pins::{Hook, PinDir};
use crate::sys::{self, Access};
use crate::testrun::{self, TestInput, TestRun};

/// What opening needs to know.
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// Where to pin.
    pub pin_dir: PathBuf,
    /// How much to hold.
    pub sizes: Sizes,
    /// The fingerprint secret of a flow table that does not exist yet; `None` = drawn from the kernel.
    pub secret: Option<[u64; 2]>,
    /// Use clsact filters even where the kernel has tcx.
    pub clsact: bool,
}

impl OpenOptions {
    /// Default sizes, a secret from the kernel, tcx where it exists.
    pub fn new(pin_dir: impl Into<PathBuf>) -> Self {
        Self {
            pin_dir: pin_dir.into(),
            sizes: Sizes::default(),
            secret: None,
            clsact: false,
        }
    }
}

/// What was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Opened {
    /// Nothing: every map is new and empty.
    Fresh,
    /// Maps that fit, with all they hold. Programs of another build are replaced when the data plane is activated.
    Adopted,
    /// Maps of another size or build: they were made anew and hold what could be carried over. Write every row before
    /// activating. The flow table is the same.
    Replaced,
    /// The flow table has another size or layout: move its flows with [`Dataplane::migrate_flows`] before and after
    /// activating. Other maps may be new too: write every row before activating.
    FlowsMigrating,
}

/// The programs that a device's hooks run.
const XDP_PROGRAM: &str = "weir_xdp";
const INGRESS_PROGRAM: &str = "weir_tc_ingress";
const EGRESS_PROGRAM: &str = "weir_tc_egress";
const SWEEP_PROGRAM: &str = "weir_sweep_start";

/// An open data plane. Dropping it changes nothing: everything stays pinned.
#[derive(Debug)]
pub struct Dataplane {
    pins: PinDir,
    record: LayoutRecord,
    clsact: bool,
    active: bool,
    programs: Programs,
    maps: Maps,
    carried: Option<Carried>,
    migration: Option<Migration>,
}

impl Dataplane {
    /// Opens what is pinned in a directory, or makes it.
    ///
    /// # Errors
    /// A size is impossible, there is no bpffs, the record is another program's, or the kernel refuses a map or a program.
    /// What runs goes on as before.
    pub fn open(options: &OpenOptions) -> Result<(Self, Opened)> {
        options.sizes.check()?;
        let pins = PinDir::new(&options.pin_dir);
        pins.prepare()?;
        let previous = LayoutRecord::read(&pins.layout())?;
        pins.remove_leftovers(previous.as_ref())?;
        attach::forget_gone_devices(&pins)?;

        let plan = match &previous {
            None => Plan::fresh(options)?,
            Some(old) => Plan::over(&pins, old, options.sizes)?,
        };
        let record = plan.record;
        if let (Some(old), true) = (&previous, plan.share_counts) {
            share_counts(&pins, old, &record)?;
        }
        let programs = if plan.load_programs {
            load_generation(&pins, &record)?
        } else {
            loader::open_programs(&pins.programs(record.programs))?
        };
        verify(&pins, &record)?;
        let maps = Maps::open(
            &pins.state(record.state),
            &flow_directory(&pins, &record),
            Access::Full,
        )?;
        let carried = match &previous {
            Some(old) if plan.share_counts => {
                Carried::copy(&pins.state(old.state), &flow_directory(&pins, old), &maps)?
            }
            _ => None,
        };
        let migration = (record.old_buckets > 0)
            .then(|| {
                Migration::open(
                    &pins.flows(record.old_flow_layout, record.old_buckets),
                    record.old_flow_layout,
                )
            })
            .transpose()?;
        let dataplane = Self {
            pins,
            record,
            clsact: options.clsact,
            active: false,
            programs,
            maps,
            carried,
            migration,
        };
        Ok((dataplane, plan.opened))
    }

    /// Puts this data plane in force on every device that runs an older one, starts the sweep and unpins what it replaces.
    /// Repeating it does no harm.
    ///
    /// # Errors
    /// The kernel refuses; devices that were not reached go on with the old programs, and activating again continues.
    pub fn activate(&mut self) -> Result<()> {
        self.record
            .commit(&self.pins.layout(), &self.pins.layout_staging())?;
        for attachment in attach::attachments(&self.pins)? {
            let (name, pin) = self.program_of(attachment.hook);
            attach::replace(
                &self.pins,
                attachment,
                loader::program(&self.programs, name)?,
                &pin,
            )?;
        }
        self.start_sweep()?;
        if let Some(carried) = self.carried.take() {
            crate::maps::wait_for_packets();
            carried.settle(&self.maps)?;
        }
        self.active = true;
        self.pins.remove_leftovers(Some(&self.record))
    }

    fn start_sweep(&self) -> Result<()> {
        if self.programs.contains_key(SWEEP_PROGRAM) {
            self.test_run(SWEEP_PROGRAM, &TestInput::xdp(&[0; 64]))?;
        }
        Ok(())
    }

    fn program_of(&self, hook: Hook) -> (&'static str, PathBuf) {
        let name = match hook {
            Hook::XdpNative | Hook::XdpGeneric => XDP_PROGRAM,
            Hook::Ingress | Hook::ClsactIngress => INGRESS_PROGRAM,
            Hook::Egress | Hook::ClsactEgress => EGRESS_PROGRAM,
        };
        (name, self.pins.programs(self.record.programs).join(name))
    }

    /// Attaches XDP to a device of the calling thread's network namespace; one that has it keeps it as it is.
    ///
    /// # Errors
    /// [`Error::NotActive`], [`Error::Busy`], [`Error::NoXdp`], or the kernel refuses.
    pub fn attach(&self, ifindex: u32, choice: XdpChoice) -> Result<XdpMode> {
        self.require_active()?;
        for attachment in self
            .attachments()?
            .iter()
            .filter(|attachment| attachment.ifindex == ifindex)
        {
            match attachment.hook {
                Hook::XdpNative => return Ok(XdpMode::Native),
                Hook::XdpGeneric => return Ok(XdpMode::Generic),
                _ => {}
            }
        }
        attach::attach_xdp(
            &self.pins,
            loader::program(&self.programs, XDP_PROGRAM)?,
            ifindex,
            choice,
        )
    }

    /// Attaches the tc program of one direction to a device; one that has it keeps it.
    ///
    /// # Errors
    /// [`Error::NotActive`], or the kernel refuses.
    pub fn attach_tc(&self, ifindex: u32, direction: Direction) -> Result<Hook> {
        self.require_active()?;
        let hooks = match direction {
            Direction::Ingress => [Hook::Ingress, Hook::ClsactIngress],
            Direction::Egress => [Hook::Egress, Hook::ClsactEgress],
        };
        let attachments = self.attachments()?;
        if let Some(there) = attachments
            .iter()
            .find(|there| there.ifindex == ifindex && hooks.contains(&there.hook))
        {
            return Ok(there.hook);
        }
        let (name, pin) = self.program_of(hooks[0]);
        let program = loader::program(&self.programs, name)?;
        attach::attach_tc(&self.pins, program, &pin, ifindex, direction, self.clsact)
    }

    /// Takes everything of Weir's off a device.
    ///
    /// # Errors
    /// The kernel refuses.
    pub fn detach(&self, ifindex: u32) -> Result<()> {
        for (_, hook, _) in self
            .pins
            .links()?
            .into_iter()
            .filter(|(device, _, _)| *device == ifindex)
        {
            attach::detach(&self.pins, ifindex, hook)?;
        }
        Ok(())
    }

    /// Where the programs are attached.
    ///
    /// # Errors
    /// The pin directory cannot be read.
    pub fn attachments(&self) -> Result<Vec<Attachment>> {
        attach::attachments(&self.pins)
    }

    /// The shared maps.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// How much the maps hold.
    pub fn sizes(&self) -> &Sizes {
        &self.record.sizes
    }

    /// The key of the flow table's fingerprints.
    pub fn secret(&self) -> [u64; 2] {
        self.record.secret
    }

    /// Where everything is pinned.
    pub fn pins(&self) -> &PinDir {
        &self.pins
    }

    /// Runs one of the programs over a packet.
    ///
    /// # Errors
    /// No such program, or the kernel refuses the input.
    pub fn test_run(&self, program: &str, input: &TestInput<'_>) -> Result<TestRun> {
        testrun::run(loader::program(&self.programs, program)?, input)
    }

    /// Moves flows out of a table of another size; see [`crate::migrate`]. Does nothing when there is none. Call it before
    /// activating, so that the new programs find the flows, and after it, for what changed meanwhile: the second call ends
    /// the migration and unpins the old table.
    ///
    /// # Errors
    /// The kernel refuses; the old table stays pinned, and calling again continues.
    pub fn migrate_flows(
        &mut self,
        places: impl Fn(&weir_abi::FlowCold) -> crate::migrate::Home,
    ) -> Result<crate::migrate::Moved> {
        let Some(migration) = &mut self.migration else {
            return Ok(crate::migrate::Moved::default());
        };
        let moved = if self.active {
            crate::maps::wait_for_packets();
            migration.finish(&self.maps, places)?
        } else {
            migration.copy(&self.maps.flows, places)?
        };
        if self.active {
            self.migration = None;
            self.record.old_buckets = 0;
            self.record
                .commit(&self.pins.layout(), &self.pins.layout_staging())?;
            self.pins.remove_leftovers(Some(&self.record))?;
        }
        Ok(moved)
    }

    fn require_active(&self) -> Result<()> {
        if self.active {
            Ok(())
        } else {
            Err(Error::NotActive)
        }
    }
}

/// Removes everything that Weir pinned or attached in a directory. Answers whether there was anything.
///
/// # Errors
/// Something cannot be detached or unpinned; the record is removed last, so that a second try knows what is left.
pub fn clean(pins: &PinDir) -> Result<bool> {
    if !pins.path().exists() {
        return Ok(false);
    }
    let found = !pins.list()?.is_empty();
    for (ifindex, hook, _) in pins.links()? {
        attach::detach(pins, ifindex, hook)?;
    }
    pins.remove_all()?;
    Ok(found)
}

/// What opening will do.
struct Plan {
    record: LayoutRecord,
    opened: Opened,
    load_programs: bool,
    /// The state is new and the old one is of the same ABI version.
    share_counts: bool,
}

impl Plan {
    fn fresh(options: &OpenOptions) -> Result<Self> {
        let secret = match options.secret {
            Some(secret) => secret,
            None => random_secret()?,
        };
        let record = LayoutRecord::new(options.sizes, secret, loader::director_hash());
        Ok(Self {
            record,
            opened: Opened::Fresh,
            load_programs: true,
            share_counts: false,
        })
    }

    fn over(pins: &PinDir, old: &LayoutRecord, mut sizes: Sizes) -> Result<Self> {
        // While an older table is still being emptied, the present one keeps its size: there is never a third.
        if old.old_buckets > 0 {
            sizes.flows = old.sizes.flows;
        }
        let same_abi = old.abi_version == ABI_VERSION;
        let state_fits = same_abi
            && fits(&pins.state(old.state), &sizes, |group| {
                group != Group::Flows
            })?;
        let flows_fit = old.flow_layout == ABI_FLOW_LAYOUT
            && fits(&flow_directory(pins, old), &sizes, |group| {
                group == Group::Flows
            })?;
        let programs_fit = state_fits
            && flows_fit
            && old.sizes == sizes
            && old.object_hash == loader::director_hash()
            && pins.programs(old.programs).join(XDP_PROGRAM).exists();

        let mut record = LayoutRecord {
            sizes,
            abi_version: ABI_VERSION,
            abi_hash: ABI_HASH,
            ..*old
        };
        record.flow_layout = ABI_FLOW_LAYOUT;
        record.object_hash = loader::director_hash();
        if !state_fits {
            record.state = old.state.wrapping_add(1);
        }
        if !programs_fit {
            record.programs = old.programs.wrapping_add(1);
        }
        if !flows_fit {
            record.old_flow_layout = old.flow_layout;
            record.old_buckets = old.sizes.buckets();
        }
        let opened = if record.old_buckets > 0 {
            Opened::FlowsMigrating
        } else if state_fits {
            Opened::Adopted
        } else {
            Opened::Replaced
        };
        Ok(Self {
            record,
            opened,
            load_programs: !programs_fit,
            share_counts: same_abi && !state_fits,
        })
    }
}

fn flow_directory(pins: &PinDir, record: &LayoutRecord) -> PathBuf {
    pins.flows(record.flow_layout, record.sizes.buckets())
}

fn in_group(wanted: impl Fn(Group) -> bool) -> impl Iterator<Item = &'static MapSpec> {
    MAPS.iter().filter(move |spec| wanted(spec.group))
}

/// Whether every map of some groups is pinned in a directory as this build wants it.
fn fits(directory: &Path, sizes: &Sizes, wanted: impl Fn(Group) -> bool) -> Result<bool> {
    for spec in in_group(wanted) {
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

/// Pins the old state's counts in the new state too, where they fit.
fn share_counts(pins: &PinDir, old: &LayoutRecord, new: &LayoutRecord) -> Result<()> {
    let directory = pins.state(new.state);
    fs::create_dir_all(&directory).at(&directory)?;
    for spec in in_group(|group| group == Group::Counts) {
        let from = pins.state(old.state).join(spec.name);
        let Ok(map) = sys::open_pin(&from, Access::Full) else {
            continue;
        };
        if spec
            .check(&new.sizes, &sys::map_info(map.as_fd()).at(&from)?)
            .is_ok()
        {
            let to = directory.join(spec.name);
            sys::pin(map.as_fd(), &to).at(&to)?;
        }
    }
    Ok(())
}

fn sources(pins: &PinDir, record: &LayoutRecord) -> Vec<MapSource> {
    let state = pins.state(record.state);
    let flows = flow_directory(pins, record);
    let own = pins.programs(record.programs);
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
    let own = OWN_MAPS.iter().map(|name| MapSource {
        name,
        pin: own.join(name),
        entries: None,
    });
    shared.chain(own).collect()
}

fn constants(record: &LayoutRecord) -> Vec<Constant> {
    let sizes = &record.sizes;
    let word = |name, value: u32| Constant {
        name,
        bytes: value.to_ne_bytes().to_vec(),
    };
    let [secret0, secret1] = record.secret;
    vec![
        Constant {
            name: "weir_secret0",
            bytes: secret0.to_ne_bytes().to_vec(),
        },
        Constant {
            name: "weir_secret1",
            bytes: secret1.to_ne_bytes().to_vec(),
        },
        word("weir_bucket_count", sizes.buckets()),
        word("weir_dest_count", sizes.dests),
        word("weir_service_count", sizes.services),
        word("weir_table_count", sizes.elements),
        word("weir_live_count", sizes.live_rows()),
    ]
}

fn load_generation(pins: &PinDir, record: &LayoutRecord) -> Result<Programs> {
    let directory = pins.programs(record.programs);
    for path in [
        &directory,
        &pins.state(record.state),
        &flow_directory(pins, record),
    ] {
        fs::create_dir_all(path).at(path)?;
    }
    let (sources, constants) = (sources(pins, record), constants(record));
    let mut programs = Programs::new();
    for name in loader::DIRECTOR {
        match loader::load(name, &sources, &constants, Some(&directory)) {
            Ok(loaded) => programs.extend(loaded),
            Err(Error::NoObject { .. }) if !programs.is_empty() => {}
            Err(error) => return Err(error),
        }
    }
    Ok(programs)
}

/// Compares every shared map with what this build works with: a pin that aya opened instead of making is not checked there.
fn verify(pins: &PinDir, record: &LayoutRecord) -> Result<()> {
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
    let answer = if length == size_of_val(&secret) as isize {
        Ok(secret)
    } else {
        Err(std::io::Error::last_os_error())
    };
    answer.during("drawing", || "the fingerprint secret".to_owned())
}
