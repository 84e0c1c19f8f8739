//! Opens, activates, attaches and migrates a director's data plane.
//!
//! Opening does not affect packets. It adopts the pinned maps that fit, creates new directories to replace those that
//! do not, and loads programs if the pinned ones are from a different build or for different sizes.
//! [`Dataplane::activate`] makes the changes effective: it commits the record, replaces each device's program
//! atomically, and unpins the old objects. If the process dies before the commit, the next open removes the extra
//! directories; if it dies after the commit, the next activation replaces the old programs that devices still run.

use std::path::PathBuf;

use weir_abi::{ABI_FLOW_LAYOUT, SETTINGS_BEGIN_IN_OLD};

use crate::attach::{self, Attachment, Mode, TcRole, XdpChoice};
use crate::carry::{self, CarriedCounters};
use crate::error::{Error, Result};
use crate::layout::{self, LayoutRecord, Sizes};
use crate::loader::{self, Programs};
use crate::maps::{Maps, wait_for_packets};
use crate::migrate::{MOVE_PROGRAM, Migration, MigrationResult};
use crate::pins::{Hook, PinDir};
use crate::plan::{Plan, flow_directory, load_generation, share_counts, verify};
use crate::sys::Access;
use crate::testrun::{self, TestInput, TestRun};

/// Options for [`Dataplane::open`].
#[derive(Clone, Debug)]
pub struct OpenOptions {
    /// The pin directory, on a bpffs.
    pub pin_dir: PathBuf,
    /// Sizes of the maps.
    pub sizes: Sizes,
    /// Hash secret for a new flow table; `None` = random.
    pub secret: Option<[u64; 2]>,
    /// The flow table layout, from [`weir_abi::ABI_FLOW_LAYOUT_OLDEST`] to [`ABI_FLOW_LAYOUT`]. Older layouts are for
    /// downgrades and upgrade tests.
    pub flow_layout: u32,
    /// Whether to use clsact filters even if the kernel has tcx.
    pub clsact: bool,
    /// Whether to omit the programs that balance at tc. For tests that run the XDP program on packets, because such
    /// tests spend most of their time in the verifier.
    pub xdp_only: bool,
}

impl OpenOptions {
    /// Returns options with default sizes, a random secret, the current flow layout, and tcx if available.
    pub fn new(pin_dir: impl Into<PathBuf>) -> Self {
        Self {
            pin_dir: pin_dir.into(),
            sizes: Sizes::default(),
            secret: None,
            flow_layout: ABI_FLOW_LAYOUT,
            clsact: false,
            xdp_only: false,
        }
    }

    /// Returns the names of the objects to load.
    const fn objects(&self) -> &'static [&'static str] {
        match self.xdp_only {
            true => loader::DIRECTOR_WITHOUT_BALANCE,
            false => &loader::DIRECTOR,
        }
    }
}

/// The state that [`Dataplane::open`] found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum OpenOutcome {
    /// Nothing was pinned, so every map is new and empty.
    Fresh,
    /// The maps fit and were adopted with their contents. Programs of a different build are replaced on activation.
    Adopted,
    /// The maps had different sizes or were from a different build: they were recreated with the contents that could be
    /// copied. Write every row before activation. The flow table was adopted.
    Replaced,
    /// The flow table has a different size or layout: call [`Dataplane::migrate_flows`] after activation. Other maps
    /// may be new too: write every row before activation.
    FlowsMigrating,
}

/// Names of the programs that are attached to a device, and of the program that starts the sweep.
pub(crate) const XDP_PROGRAM: &str = "weir_xdp";
const INGRESS_PROGRAM: &str = "weir_tc_ingress";
const EGRESS_PROGRAM: &str = "weir_tc_egress";
const BALANCE_PROGRAM: &str = "weir_skb";
const SWEEP_PROGRAM: &str = "weir_sweep_start";

/// An open data plane. Dropping it does not affect packets: all objects stay pinned.
#[derive(Debug)]
pub struct Dataplane {
    pins: PinDir,
    record: LayoutRecord,
    clsact: bool,
    /// Names of the objects to load.
    objects: &'static [&'static str],
    active: bool,
    programs: Programs,
    maps: Maps,
    carried: Option<CarriedCounters>,
    migration: Option<Migration>,
}

impl Dataplane {
    /// Opens the data plane pinned in a directory, or creates it.
    ///
    /// # Errors
    /// Fails if a size or a flow layout is out of range, there is no bpffs, the record is not Weir's, or the kernel
    /// rejects a map or a program. The running data plane is not affected.
    pub fn open(options: &OpenOptions) -> Result<(Self, OpenOutcome)> {
        options.sizes.check()?;
        layout::check_layout(options.flow_layout)?;
        let pins = PinDir::new(&options.pin_dir);
        pins.prepare()?;
        let previous = LayoutRecord::read(&pins.layout())?;
        if let Some(record) = &previous {
            record.check_layouts(&pins)?;
        }
        pins.remove_leftovers(previous.as_ref())?;
        attach::unpin_removed_devices(&pins)?;

        let plan = match &previous {
            None => Plan::fresh(options)?,
            Some(old) => Plan::for_record(&pins, old, options)?,
        };
        let record = plan.record;
        if let (Some(old), true) = (&previous, plan.share_counts) {
            share_counts(&pins, old, &record)?;
        }
        let programs = if plan.load_programs {
            load_generation(&pins, &record, options.objects())?
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
                Some(CarriedCounters::copy(&pins.state(old.state), &maps)?)
            }
            _ => None,
        };
        let migration = (record.old_buckets > 0)
            .then(|| Migration::open(&pins.flows(record.old_flow_layout, record.old_buckets)))
            .transpose()?;
        let dataplane = Self {
            pins,
            record,
            clsact: options.clsact,
            objects: options.objects(),
            active: false,
            programs,
            maps,
            carried,
            migration,
        };
        Ok((dataplane, plan.opened))
    }

    /// Makes this data plane effective on every device that runs an older data plane, starts the sweep, and unpins
    /// replaced objects. This function is idempotent.
    ///
    /// # Errors
    /// Fails if the kernel returns an error; the remaining devices keep the old programs, and a second call continues.
    pub fn activate(&mut self) -> Result<()> {
        if self.migration.is_some() {
            self.select_table_for_new_flows(true)?;
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
            carried.add_difference(&self.maps)?;
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

    /// Returns whether this data plane is still pinned and no other process has replaced it.
    ///
    /// # Errors
    /// Fails if the record cannot be read or parsed.
    pub fn is_current(&self) -> Result<bool> {
        Ok(LayoutRecord::read(&self.pins.layout())? == Some(self.record))
    }

    /// Adds this data plane's counts to the data plane that has replaced it, if the new data plane started with zero
    /// counts because an older build opened it and did not copy them. Returns whether counts were added.
    ///
    /// # Errors
    /// Fails if a pinned map cannot be read or written.
    pub fn transfer_counts(&self) -> Result<bool> {
        match LayoutRecord::read(&self.pins.layout())? {
            Some(current) if current.state != self.record.state => {
                wait_for_packets();
                carry::transfer(
                    &self.maps,
                    &self.pins.state(current.state),
                    current.sizes.dests,
                )
            }
            _ => Ok(false),
        }
    }

    /// Detaches the packet path at tc from devices on which a replacing data plane runs XDP. An older build does not
    /// support this hook, and would leave the program attached with maps that are no longer updated. Returns the number
    /// of devices.
    ///
    /// # Errors
    /// Fails if the pin directory cannot be read, or the kernel returns an error.
    pub fn detach_tc(&self) -> Result<usize> {
        let mut detached = 0;
        for attachment in self.attachments()? {
            let packet_path_hooks = self.packet_path_hooks(attachment.ifindex)?;
            let xdp = packet_path_hooks.iter().any(|(_, mode)| *mode != Mode::Tc);
            if xdp && Mode::from_hook(attachment.hook) == Some(Mode::Tc) {
                attach::detach(&self.pins, attachment.ifindex, attachment.hook)?;
                detached += 1;
            }
        }
        Ok(detached)
    }

    /// Attaches XDP to a device in the calling thread's network namespace, unless it is already attached. Then detaches
    /// the packet path at tc. For a moment, packets pass through both hooks, XDP first.
    ///
    /// # Errors
    /// [`Error::NotActive`], [`Error::Busy`], [`Error::NoXdp`], or the kernel rejects the request.
    pub fn attach(&self, ifindex: u32, choice: XdpChoice) -> Result<Mode> {
        self.require_active()?;
        let packet_path_hooks = self.packet_path_hooks(ifindex)?;
        let xdp = packet_path_hooks.iter().find(|(_, mode)| *mode != Mode::Tc);
        let mode = match xdp {
            Some((_, mode)) => *mode,
            None => attach::attach_xdp(
                &self.pins,
                loader::program(&self.programs, XDP_PROGRAM)?,
                ifindex,
                choice,
            )?,
        };
        for (hook, _) in packet_path_hooks
            .iter()
            .filter(|(_, mode)| *mode == Mode::Tc)
        {
            attach::detach(&self.pins, ifindex, *hook)?;
        }
        Ok(mode)
    }

    /// Attaches the packet path at tc ingress, then detaches XDP.
    ///
    /// # Errors
    /// [`Error::NotActive`], or the kernel rejects the request.
    pub fn attach_at_tc(&self, ifindex: u32) -> Result<Mode> {
        let packet_path_hooks = self.packet_path_hooks(ifindex)?;
        self.attach_tc(ifindex, TcRole::Balance)?;
        for (hook, _) in packet_path_hooks
            .iter()
            .filter(|(_, mode)| *mode != Mode::Tc)
        {
            attach::detach(&self.pins, ifindex, *hook)?;
        }
        Ok(Mode::Tc)
    }

    /// Returns the hooks of a device to which the packet path is attached.
    fn packet_path_hooks(&self, ifindex: u32) -> Result<Vec<(Hook, Mode)>> {
        let attachments = self.attachments()?.into_iter();
        let attachments = attachments.filter(|attachment| attachment.ifindex == ifindex);
        Ok(attachments
            .filter_map(|attachment| Some((attachment.hook, Mode::from_hook(attachment.hook)?)))
            .collect())
    }

    /// Attaches the tc program with a role to a device, unless it is already attached. Returns the hook.
    ///
    /// # Errors
    /// [`Error::NotActive`], or the kernel rejects the request.
    pub fn attach_tc(&self, ifindex: u32, role: TcRole) -> Result<Hook> {
        self.require_active()?;
        let hooks = role.hooks();
        let attachments = self.attachments()?;
        if let Some(attachment) = attachments
            .iter()
            .find(|attachment| attachment.ifindex == ifindex && hooks.contains(&attachment.hook))
        {
            return Ok(attachment.hook);
        }
        let (name, pin) = self.program_of(hooks[0]);
        let program = loader::program(&self.programs, name)?;
        attach::attach_tc(&self.pins, program, &pin, ifindex, role, self.clsact)
    }

    /// Restores the program of every attachment that another process changed. Returns the affected devices.
    ///
    /// # Errors
    /// [`Error::NotActive`], or the kernel rejects the request.
    pub fn restore_attachments(&self) -> Result<Vec<u32>> {
        self.require_active()?;
        let mut restored = Vec::new();
        for attachment in self.attachments()? {
            let (name, pin) = self.program_of(attachment.hook);
            let program = loader::program(&self.programs, name)?;
            if attach::replace(&self.pins, attachment, program, &pin)? {
                restored.push(attachment.ifindex);
            }
        }
        Ok(restored)
    }

    /// Detaches all of Weir's programs from a device.
    ///
    /// # Errors
    /// Fails if the kernel rejects the request.
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

    /// Returns the attachments of the programs.
    ///
    /// # Errors
    /// Fails if the pin directory cannot be read.
    pub fn attachments(&self) -> Result<Vec<Attachment>> {
        attach::attachments(&self.pins)
    }

    /// Returns the shared maps.
    pub fn maps(&self) -> &Maps {
        &self.maps
    }

    /// Returns the sizes of the maps.
    pub fn sizes(&self) -> &Sizes {
        &self.record.sizes
    }

    pub(crate) fn record(&self) -> &LayoutRecord {
        &self.record
    }

    /// Returns the hash secret of the flow table.
    pub fn secret(&self) -> [u64; 2] {
        self.record.secret
    }

    /// Returns the pin directory.
    pub fn pins(&self) -> &PinDir {
        &self.pins
    }

    /// Runs one of the programs on a packet.
    ///
    /// # Errors
    /// Fails if the program does not exist, or the kernel rejects the input.
    pub fn test_run(&self, program: &str, input: &TestInput<'_>) -> Result<TestRun> {
        testrun::run(loader::program(&self.programs, program)?, input)
    }

    /// If there is an old flow table with a different size or layout, moves its flows and unpins the table; see
    /// [`crate::migrate`].
    ///
    /// # Errors
    /// [`Error::NotActive`], or the kernel returns an error. Packets still find their flows in both tables, and a
    /// second call continues the migration.
    pub fn migrate_flows(&mut self) -> Result<MigrationResult> {
        let Some(migration) = &self.migration else {
            return Ok(MigrationResult::default());
        };
        self.require_active()?;
        // After the first wait, no older program is running. After the second wait, every packet uses the new setting.
        wait_for_packets();
        self.select_table_for_new_flows(false)?;
        wait_for_packets();
        let moved = migration.move_all(|request| self.test_run(MOVE_PROGRAM, request))?;
        self.drop_old_table()?;
        Ok(moved)
    }

    /// Selects the table for new flows while there are two tables: the old one or the current one.
    fn select_table_for_new_flows(&self, old: bool) -> Result<()> {
        let mut settings = self.maps.settings()?;
        settings.flags &= !SETTINGS_BEGIN_IN_OLD;
        settings.flags |= if old { SETTINGS_BEGIN_IN_OLD } else { 0 };
        self.maps.set_settings(&settings)
    }

    /// Replaces the programs with programs that use only the current table.
    fn drop_old_table(&mut self) -> Result<()> {
        let record = LayoutRecord {
            old_flow_layout: 0,
            old_buckets: 0,
            program_old_buckets: 0,
            programs: self.record.programs.wrapping_add(1),
            ..self.record
        };
        self.programs = load_generation(&self.pins, &record, self.objects)?;
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

/// Removes all of Weir's pins and attachments in a directory. Returns whether there were any.
///
/// # Errors
/// Fails if an object cannot be detached or unpinned; the record is removed last, so a second call can continue.
pub fn clean(pins: &PinDir) -> Result<bool> {
    if !pins.path().exists() {
        return Ok(false);
    }
    let had_objects = !pins.list()?.is_empty();
    for (ifindex, hook, _) in pins.links()? {
        attach::detach(pins, ifindex, hook)?;
    }
    crate::socket::detach_all(pins)?;
    pins.remove_all()?;
    Ok(had_objects)
}
