//! The data plane of one director: opened, filled, activated, attached, watched.
//!
//! Opening changes nothing that packets meet. It adopts what fits, makes beside it what does not, and loads programs where
//! the pinned ones are of another build or size. [`Dataplane::activate`] puts all of it in force: the record first, then
//! each device's program in one step, then what is left of the old is unpinned. A death at any point leaves either the old
//! record with new directories beside it, which the next opening removes, or the new record with devices that still run the
//! old programs, which the next activation replaces.

use std::path::PathBuf;

use weir_abi::{ABI_FLOW_LAYOUT, SETTINGS_BEGIN_IN_OLD};

use crate::attach::{self, Attachment, Direction, Mode, XdpChoice};
use crate::carry::{self, Carried};
use crate::error::{Error, Result};
use crate::layout::{self, LayoutRecord, Sizes};
use crate::loader::{self, Programs};
use crate::maps::{Maps, wait_for_packets};
use crate::migrate::{MOVE_PROGRAM, Migration, Moved};
use crate::pins::{Hook, PinDir};
use crate::plan::{Plan, flow_directory, load_generation, share_counts, verify};
use crate::sys::Access;
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
    /// The flow layout that is wanted, from [`weir_abi::ABI_FLOW_LAYOUT_OLDEST`] to [`ABI_FLOW_LAYOUT`]: an older one is for
    /// going back to the release that spoke it, and for tests of coming from there.
    pub flow_layout: u32,
    /// Use clsact filters even where the kernel has tcx.
    pub clsact: bool,
}

impl OpenOptions {
    /// Default sizes, a secret from the kernel, the present flow layout, tcx where it exists.
    pub fn new(pin_dir: impl Into<PathBuf>) -> Self {
        Self {
            pin_dir: pin_dir.into(),
            sizes: Sizes::default(),
            secret: None,
            flow_layout: ABI_FLOW_LAYOUT,
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
    /// The flow table has another size or layout: move its flows with [`Dataplane::migrate_flows`] after activating. Other maps may be
    /// new too: write every row before activating.
    FlowsMigrating,
}

/// The programs that a device's hooks run.
pub(crate) const XDP_PROGRAM: &str = "weir_xdp";
const INGRESS_PROGRAM: &str = "weir_tc_ingress";
const EGRESS_PROGRAM: &str = "weir_tc_egress";
const BALANCE_PROGRAM: &str = "weir_skb";
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
        layout::check_layout(options.flow_layout)?;
        let pins = PinDir::new(&options.pin_dir);
        pins.prepare()?;
        let previous = LayoutRecord::read(&pins.layout())?;
        if let Some(record) = &previous {
            record.check_layouts(&pins)?;
        }
        pins.remove_leftovers(previous.as_ref())?;
        attach::forget_gone_devices(&pins)?;

        let plan = match &previous {
            None => Plan::fresh(options)?,
            Some(old) => Plan::over(&pins, old, options)?,
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
            Some(old) if plan.share_counts => Some(Carried::copy(&pins.state(old.state), &maps)?),
            _ => None,
        };
        let migration = (record.old_buckets > 0)
            .then(|| Migration::open(&pins.flows(record.old_flow_layout, record.old_buckets)))
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
        if self.migration.is_some() {
            self.begin_in_old_table(true)?;
        }
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
            wait_for_packets();
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
            Hook::Balance | Hook::ClsactBalance => BALANCE_PROGRAM,
        };
        (name, self.pins.programs(self.record.programs).join(name))
    }

    /// Whether no other program has put a data plane of its own in this one's place.
    ///
    /// # Errors
    /// The record cannot be read, or is not understood.
    pub fn is_in_force(&self) -> Result<bool> {
        Ok(LayoutRecord::read(&self.pins.layout())? == Some(self.record))
    }

    /// Gives this data plane's counts to the one that another program has put in its place, where that program began with none:
    /// one of an older build may not know how to carry them over. Answers whether it was so.
    ///
    /// # Errors
    /// What is pinned cannot be read or written.
    pub fn lend_counts(&self) -> Result<bool> {
        match LayoutRecord::read(&self.pins.layout())? {
            Some(now) if now.state != self.record.state => {
                wait_for_packets();
                carry::lend(&self.maps, &self.pins.state(now.state), now.sizes.dests)
            }
            _ => Ok(false),
        }
    }

    /// Takes the path at tc off devices where a program that took this one's place runs XDP. One of an older build does not know
    /// that hook, and would leave it with tables that no daemon keeps. Returns how many there were.
    ///
    /// # Errors
    /// The pin directory cannot be read, or the kernel refuses.
    pub fn leave_tc(&self) -> Result<usize> {
        let mut left = 0;
        for attachment in self.attachments()? {
            let there = self.path_hooks(attachment.ifindex)?;
            let xdp = there.iter().any(|(_, mode)| *mode != Mode::Tc);
            if xdp && Mode::of(attachment.hook) == Some(Mode::Tc) {
                attach::detach(&self.pins, attachment.ifindex, attachment.hook)?;
                left += 1;
            }
        }
        Ok(left)
    }

    /// Attaches XDP to a device of the calling thread's network namespace; one that has it keeps it as it is. Where the path
    /// ran at tc, it ends there: packets meet both for a moment, XDP first.
    ///
    /// # Errors
    /// [`Error::NotActive`], [`Error::Busy`], [`Error::NoXdp`], or the kernel refuses.
    pub fn attach(&self, ifindex: u32, choice: XdpChoice) -> Result<Mode> {
        self.require_active()?;
        let there = self.path_hooks(ifindex)?;
        let xdp = there.iter().find(|(_, mode)| *mode != Mode::Tc);
        let mode = match xdp {
            Some((_, mode)) => *mode,
            None => attach::attach_xdp(
                &self.pins,
                loader::program(&self.programs, XDP_PROGRAM)?,
                ifindex,
                choice,
            )?,
        };
        for (hook, _) in there.iter().filter(|(_, mode)| *mode == Mode::Tc) {
            attach::detach(&self.pins, ifindex, *hook)?;
        }
        Ok(mode)
    }

    /// Attaches the path at tc ingress; takes XDP off where that ran, after it.
    ///
    /// # Errors
    /// [`Error::NotActive`], or the kernel refuses.
    pub fn attach_at_tc(&self, ifindex: u32) -> Result<Mode> {
        let there = self.path_hooks(ifindex)?;
        self.attach_tc(ifindex, Direction::Balance)?;
        for (hook, _) in there.iter().filter(|(_, mode)| *mode != Mode::Tc) {
            attach::detach(&self.pins, ifindex, *hook)?;
        }
        Ok(Mode::Tc)
    }

    /// Where the path is attached on a device.
    fn path_hooks(&self, ifindex: u32) -> Result<Vec<(Hook, Mode)>> {
        let there = self.attachments()?.into_iter();
        let there = there.filter(|attachment| attachment.ifindex == ifindex);
        Ok(there
            .filter_map(|attachment| Some((attachment.hook, Mode::of(attachment.hook)?)))
            .collect())
    }

    /// Attaches the tc program of one direction to a device; one that has it keeps it.
    ///
    /// # Errors
    /// [`Error::NotActive`], or the kernel refuses.
    pub fn attach_tc(&self, ifindex: u32, direction: Direction) -> Result<Hook> {
        self.require_active()?;
        let hooks = direction.hooks();
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

    /// Gives attachments their programs back where somebody replaced these; answers the devices where that was so.
    ///
    /// # Errors
    /// [`Error::NotActive`], or the kernel refuses.
    pub fn mend_attachments(&self) -> Result<Vec<u32>> {
        self.require_active()?;
        let mut mended = Vec::new();
        for attachment in self.attachments()? {
            let (name, pin) = self.program_of(attachment.hook);
            let program = loader::program(&self.programs, name)?;
            if attach::replace(&self.pins, attachment, program, &pin)? {
                mended.push(attachment.ifindex);
            }
        }
        Ok(mended)
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

    /// Moves flows out of a table of another size or layout, see [`crate::migrate`], and unpins it. Does nothing when there is none.
    ///
    /// # Errors
    /// [`Error::NotActive`], or the kernel refuses: packets go on finding their flows in either table, and calling again
    /// continues.
    pub fn migrate_flows(&mut self) -> Result<Moved> {
        let Some(migration) = &self.migration else {
            return Ok(Moved::default());
        };
        self.require_active()?;
        // No older program is under way after the first wait; after the second, every packet has seen the setting.
        wait_for_packets();
        self.begin_in_old_table(false)?;
        wait_for_packets();
        let moved = migration.move_all(|order| self.test_run(MOVE_PROGRAM, order))?;
        self.forget_old_table()?;
        Ok(moved)
    }

    /// Where flows begin while two tables are known.
    fn begin_in_old_table(&self, old: bool) -> Result<()> {
        let mut settings = self.maps.settings()?;
        settings.flags &= !SETTINGS_BEGIN_IN_OLD;
        settings.flags |= if old { SETTINGS_BEGIN_IN_OLD } else { 0 };
        self.maps.set_settings(&settings)
    }

    /// Replaces the programs by such as know one table.
    fn forget_old_table(&mut self) -> Result<()> {
        let record = LayoutRecord {
            old_flow_layout: 0,
            old_buckets: 0,
            program_old_buckets: 0,
            programs: self.record.programs.wrapping_add(1),
            ..self.record
        };
        self.programs = load_generation(&self.pins, &record)?;
        self.record = record;
        self.migration = None;
        self.activate()
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
