//! Describes a foreign program that blocks an interface: an XDP program, or another director's tc program.

use std::fs;

use weir_dataplane::{program_name, tcx_ingress_programs};

use super::Engine;
use crate::error::{Error, Result};

/// Names of the packet path programs of a director.
const PACKET_PATH_PROGRAMS: [&str; 2] = ["weir_xdp", "weir_skb"];

/// Maximum number of processes that an error message lists.
const MAX_SHOWN_PROCESSES: usize = 3;

/// Known program name prefixes and their owners.
const KNOWN_PREFIXES: [(&str, &str); 7] = [
    ("weir_", "another Weir"),
    ("xdp_dispatcher", "libxdp (xdp-loader)"),
    ("cil_", "Cilium"),
    ("balancer_ingress", "katran"),
    ("calico_", "Calico"),
    ("xdp_md_", "libxdp (xdp-loader)"),
    ("suricata", "Suricata"),
];

impl Engine {
    /// If the interface is busy, returns an error that names the interface and the other program.
    pub(super) async fn explain_attach_error(&self, error: Error) -> Error {
        let Error::Dataplane(weir_dataplane::Error::Busy { ifindex }) = error else {
            return error;
        };
        let program = self.network.netlink().xdp_program(ifindex).await;
        self.foreign_program_error(ifindex, "XDP", program.ok().flatten())
    }

    /// Rejects an interface that another director uses. With two packet paths, the second one would not receive its
    /// packets, or would receive them already rewritten. The kernel would accept both programs at tc.
    pub(super) async fn reject_other_director(&self, ifindex: u32) -> Result<()> {
        let attachments = self.plane.attachments()?;
        let is_own = |id: &u32| attachments.iter().any(|it| it.program_id == *id);
        let xdp = self.network.netlink().xdp_program(ifindex).await?;
        let xdp = xdp.into_iter().map(|id| ("XDP", id));
        let at_tc = tcx_ingress_programs(ifindex)?
            .into_iter()
            .map(|id| ("tc", id));
        let mut others = xdp.chain(at_tc).filter(|(_, id)| !is_own(id));
        let found = others.find(|(_, id)| {
            program_name(*id).is_some_and(|name| PACKET_PATH_PROGRAMS.contains(&name.as_str()))
        });
        found.map_or(Ok(()), |(hook, id)| {
            Err(self.foreign_program_error(ifindex, hook, Some(id)))
        })
    }

    fn foreign_program_error(
        &self,
        ifindex: u32,
        hook: &'static str,
        program: Option<u32>,
    ) -> Error {
        let name = self.network.name_of(ifindex);
        let interface = name.map_or_else(|| format!("number {ifindex}"), str::to_owned);
        let title = program.and_then(program_name);
        let identity = title.as_deref().and_then(identify);
        let fix = match identity {
            Some((true, _)) => {
                "stop the other Weir, and run `weir clean` with its --runtime-dir and --pin-dir"
                    .to_owned()
            }
            _ => format!(
                "stop the other program, or detach it with `ip link set dev {interface} xdp off`, or set \
                 `interfaces` to other interfaces"
            ),
        };
        Error::ForeignProgram {
            holder: describe(program, title.as_deref(), identity.map(|(_, owner)| owner)),
            interface,
            hook,
            fix,
        }
    }
}

/// Returns whether the program belongs to another Weir instance, and its owner.
fn identify(title: &str) -> Option<(bool, &'static str)> {
    let mut owners = KNOWN_PREFIXES.iter();
    let (prefix, owner) = owners.find(|(prefix, _)| title.starts_with(prefix))?;
    Some((*prefix == "weir_", owner))
}

/// Describes a program: `weir_xdp (program 57), of another Weir, held by weir (process 1234)`.
fn describe(program: Option<u32>, title: Option<&str>, owner: Option<&str>) -> String {
    let Some(id) = program else {
        return "the kernel does not report which one".to_owned();
    };
    let mut text = match title {
        Some(title) => format!("{title} (program {id})"),
        None => format!("program {id}, which has no name"),
    };
    if let Some(owner) = owner {
        text += &format!(", of {owner}");
    }
    let holders = holders(id);
    if !holders.is_empty() {
        text += &format!(", held by {}", holders.join(", "));
    }
    text
}

/// Returns the processes that hold the program or its link, at most [`MAX_SHOWN_PROCESSES`].
fn holders(id: u32) -> Vec<String> {
    let line = format!("prog_id:\t{id}");
    let processes = fs::read_dir("/proc").into_iter().flatten().flatten();
    let pids = processes.filter_map(|entry| entry.file_name().to_str()?.parse::<u32>().ok());
    let holds = |pid: &u32| {
        let files = fs::read_dir(format!("/proc/{pid}/fdinfo"));
        let mut files = files.into_iter().flatten().flatten();
        files.any(|file| {
            let text = fs::read_to_string(file.path()).unwrap_or_default();
            text.lines().any(|text_line| text_line == line)
        })
    };
    let found = pids.filter(|pid| *pid != std::process::id()).filter(holds);
    let named = found.map(|pid| {
        let name = fs::read_to_string(format!("/proc/{pid}/comm")).unwrap_or_default();
        format!("{} (process {pid})", name.trim())
    });
    named.take(MAX_SHOWN_PROCESSES).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn description_includes_name_and_owner_if_known() {
        let unused_id = u32::MAX;
        assert_eq!(
            describe(None, None, None),
            "the kernel does not report which one"
        );
        assert_eq!(
            describe(Some(unused_id), None, None),
            format!("program {unused_id}, which has no name")
        );
        assert_eq!(
            describe(Some(unused_id), Some("cil_xdp_entry"), Some("Cilium")),
            format!("cil_xdp_entry (program {unused_id}), of Cilium")
        );
        assert_eq!(identify("weir_xdp"), Some((true, "another Weir")));
        assert_eq!(identify("my_filter"), None);
    }
}
