//! Formats the output of `weir real-server show`.

use std::collections::BTreeMap;
use std::fmt;

use serde::Serialize;
use weir_dataplane::real_server::COUNTS;

use crate::desired::DesiredState;
use crate::entry::Entry;
use crate::plan::{ActualState, ChangedSysctl, Record, Step};

/// The report: `Display` formats it as text, `Serialize` as JSON.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Report {
    /// The VIPs and their roles.
    pub vips: Vec<Entry>,
    /// The client networks of `--except`: replies to them are not rewritten.
    pub except: Vec<String>,
    /// Sysctls that Weir changed.
    pub sysctls: Vec<SysctlReport>,
    /// VIPs that Weir added to `lo`.
    pub added: Vec<String>,
    /// Interfaces and directions that the programs are attached to.
    pub programs: Vec<String>,
    /// Packets by outcome, since the programs were first attached.
    pub counts: BTreeMap<&'static str, u64>,
    /// Steps that `up` would take to undo changes made by other programs; empty = there are none.
    pub drift: Vec<String>,
}

/// The values of a sysctl that Weir changed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct SysctlReport {
    /// The name.
    pub name: String,
    /// The value before the change.
    pub was: String,
    /// The value that Weir set.
    pub set: String,
    /// The current value; `None` = the interface no longer exists.
    pub now: Option<String>,
}

impl Report {
    pub(crate) fn new(
        desired: &DesiredState,
        record: &Record,
        actual: &ActualState,
        drift: &[Step],
    ) -> Self {
        let sysctl = |(name, changed): (&String, &ChangedSysctl)| SysctlReport {
            name: name.clone(),
            was: changed.previous.clone(),
            set: changed.set.clone(),
            now: actual.sysctls.get(name).cloned(),
        };
        let labels = COUNTS.iter().map(|(label, _)| *label);
        Self {
            vips: desired.entries.iter().copied().collect(),
            except: desired
                .except
                .iter()
                .map(|(address, len)| format!("{address}/{len}"))
                .collect(),
            sysctls: record.sysctls.iter().map(sysctl).collect(),
            added: record.addresses.iter().map(ToString::to_string).collect(),
            programs: actual
                .programs
                .hooks
                .iter()
                .map(ToString::to_string)
                .collect(),
            counts: labels.zip(actual.programs.counts).collect(),
            drift: drift.iter().map(ToString::to_string).collect(),
        }
    }
}

impl fmt::Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.vips.is_empty()
            && self.sysctls.is_empty()
            && self.added.is_empty()
            && self.programs.is_empty()
        {
            return f.write_str("no VIP is configured on this machine");
        }
        for entry in &self.vips {
            writeln!(f, "vip       {entry}")?;
        }
        for client in &self.except {
            writeln!(f, "except    {client}")?;
        }
        for vip in &self.added {
            writeln!(f, "address   {vip} on lo")?;
        }
        for sysctl in &self.sysctls {
            let now = sysctl.now.as_deref().unwrap_or("missing");
            writeln!(
                f,
                "sysctl    {} {now} (previously {}, set to {})",
                sysctl.name, sysctl.was, sysctl.set
            )?;
        }
        for hook in &self.programs {
            writeln!(f, "programs  {hook}")?;
        }
        for (label, count) in self.counts.iter().filter(|(_, count)| **count != 0) {
            writeln!(f, "packets   {label} {count}")?;
        }
        if self.drift.is_empty() {
            return f.write_str("all settings are in place");
        }
        f.write_str("settings have changed; `weir real-server up` would:")?;
        self.drift
            .iter()
            .try_for_each(|step| write!(f, "\n  {step}"))
    }
}
