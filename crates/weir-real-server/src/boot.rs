//! Reports settings made by `up` that are lost at the next boot.
//!
//! The kernel keeps VIPs, programs and sysctls only until the next boot. This module reads the commands
//! `weir real-server up` in systemd units and boot scripts, computes the VIPs that they restore, and compares them with
//! the current ones. It does not examine other programs that add addresses at boot.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::net::IpAddr;
use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};

use weir_doctor::Diagnosis;
use weir_doctor::boot_setting::{self, UNIT_DIRECTORIES};
use weir_model::Forward;

use crate::desired::DesiredState;
use crate::entry::{Entry, Role};
use crate::plan::Record;
use crate::request::{PrefixArgument, TunnelArgument, UpRequest};

/// The unit of the package; an instance is a VIP of a `direct` service, or the name of a file with arguments.
const TEMPLATE: &str = "weir-real-server@.service";

/// Files and directories with commands for the start of network interfaces.
const INTERFACES: [&str; 2] = ["etc/network/interfaces", "etc/network/interfaces.d"];

/// Files and directories of boot scripts. A script that is not executable does not run.
const SCRIPTS: [&str; 4] = [
    "etc/rc.local",
    "etc/rc.d/rc.local",
    "etc/init.d",
    "etc/local.d",
];

/// Reports settings of `up` that the next boot removes, in one finding. If only sysctls are lost, because Weir did not
/// add the VIPs and attached no programs, reports those that no file of sysctl.d(5) sets. `root` is `/` except in
/// tests.
pub(crate) fn settings_lost_at_boot(
    desired: &DesiredState,
    record: &Record,
    root: &Path,
) -> Vec<Diagnosis> {
    let Some(restored) = restored_state(root) else {
        return Vec::new();
    };
    let entries = lost_entries(desired, record, &restored);
    let mut sysctls = BTreeMap::new();
    let restored_vips = restored.loopback_vips();
    // The command that adds an IPv4 VIP also sets the sysctls.
    if !restored_vips.iter().any(IpAddr::is_ipv4) {
        let changed = record.sysctls.iter();
        sysctls.extend(changed.map(|(name, changed)| (name.clone(), changed.set.clone())));
    }
    if entries.is_empty() {
        let consequence = "if this machine boots with the VIP but without these settings, clients bypass the director \
                           or their packets are dropped";
        return boot_setting::settings_lost_at_boot(&sysctls, root, consequence);
    }
    let vips: BTreeSet<IpAddr> = entries.iter().map(|entry| entry.vip).collect();
    let addresses = vips.intersection(&record.addresses);
    let addresses = addresses.filter(|vip| !restored_vips.contains(*vip));
    let programs = entries.iter().filter(|entry| entry.role != Role::Direct);
    sysctls.retain(|name, value| {
        let setting = BTreeMap::from([(name.clone(), value.clone())]);
        !boot_setting::settings_lost_at_boot(&setting, root, "").is_empty()
    });
    let lost: Vec<String> = addresses
        .map(|vip| format!("{vip} on lo"))
        .chain(programs.map(|entry| format!("the programs for {entry}")))
        .chain(sysctls.into_keys())
        .collect();
    vec![
        Diagnosis::new(
            format!(
                "only until the next boot: {}; no unit or boot script restores them",
                lost.join(", ")
            ),
            "not the cause of a current fault; after the next boot, clients that are sent to this machine get no \
             response",
        )
        .fix(fix(&entries, desired, is_template_installed(root))),
    ]
}

/// Returns the VIPs whose programs, or addresses that `up` added, are not restored at boot.
fn lost_entries<'a>(
    desired: &'a DesiredState,
    record: &Record,
    restored: &DesiredState,
) -> Vec<&'a Entry> {
    let restored_vips = restored.loopback_vips();
    let is_lost = |entry: &&Entry| match entry.role {
        Role::Direct => {
            record.addresses.contains(&entry.vip) && !restored_vips.contains(&entry.vip)
        }
        _ => !restored.entries.iter().any(|it| it.covers(entry)),
    };
    desired.entries.iter().filter(is_lost).collect()
}

/// Returns the commands that cause `lost` to be restored at boot.
fn fix(lost: &[&Entry], desired: &DesiredState, has_template: bool) -> String {
    let roles: BTreeSet<Role> = lost.iter().map(|entry| entry.role).collect();
    let commands: Vec<String> = roles
        .into_iter()
        .map(|role| {
            let (options, vips) = (up_options(role, desired), vip_options(role, desired));
            if !has_template {
                return format!("weir real-server up {options} {vips}");
            }
            if role == Role::Direct && desired.interfaces.is_empty() {
                let vips: BTreeSet<IpAddr> = lost
                    .iter()
                    .filter(|entry| entry.role == role)
                    .map(|entry| entry.vip)
                    .collect();
                let units = vips.iter().map(|vip| format!(" weir-real-server@{vip}"));
                return format!("systemctl enable{}", units.collect::<String>());
            }
            let name = role.to_string().replace([' ', ':'], "-");
            format!(
                "mkdir -p /etc/weir/real-server && printf 'UP=\"{options}\"\\nVIPS=\"{vips}\"\\n' > \
                 /etc/weir/real-server/{name}.conf && systemctl enable weir-real-server@{name}"
            )
        })
        .collect();
    let commands = commands.join(" && ");
    if has_template {
        commands
    } else {
        format!(
            "run at boot, in a systemd unit or an executable script such as /etc/rc.local: {commands}"
        )
    }
}

/// Returns the options of `up` for VIPs with this role, without the VIPs.
fn up_options(role: Role, desired: &DesiredState) -> String {
    let mut options = match role {
        Role::Direct => "--forward direct".to_owned(),
        Role::Tunnel { tunnel, port } => {
            let tunnel = TunnelArgument { kind: tunnel, port };
            format!("--forward tunnel --tunnel {tunnel}")
        }
        Role::L3dsr { dscp } => format!("--forward l3dsr --dscp {dscp}"),
    };
    if role == (Role::L3dsr { dscp: 0 }) {
        for (address, len) in desired.except.iter().copied() {
            options += &format!(" --except {}", PrefixArgument { address, len });
        }
    }
    for interface in &desired.interfaces {
        options += &format!(" --interface {interface}");
    }
    options
}

/// Returns the options of `up` that select the VIPs with this role.
fn vip_options(role: Role, desired: &DesiredState) -> String {
    let entries = desired.entries.iter().filter(|entry| entry.role == role);
    let options: Vec<String> = entries
        .map(|entry| format!("--vip {}", entry.argument()))
        .collect();
    options.join(" ")
}

/// Returns the state that results from the commands run at boot, or `None` if it is unknown because a script computes
/// the arguments. A command that `up` rejects restores nothing.
fn restored_state(root: &Path) -> Option<DesiredState> {
    let mut restored = DesiredState::default();
    for command in boot_commands(root) {
        let arguments = own_arguments(&command);
        if arguments.contains(['$', '`']) {
            return None;
        }
        let request = parse_arguments(&arguments);
        if let Some(Ok(state)) = request.map(|request| restored.with(&request)) {
            restored = state;
        }
    }
    Some(restored)
}

/// Returns the arguments of each `weir real-server up` in units and scripts. A template counts only if an instance of
/// it is enabled.
fn boot_commands(root: &Path) -> Vec<String> {
    let mut commands = Vec::new();
    let others = UNIT_DIRECTORIES.iter().chain(&INTERFACES);
    let others = others.flat_map(|path| files(&root.join(path)));
    let scripts = SCRIPTS.iter().flat_map(|path| files(&root.join(path)));
    for file in others.chain(scripts.filter(|file| is_executable(file))) {
        if !file_name(&file).contains("@.") {
            commands.extend(up_arguments(&read(&file), root));
        }
    }
    for link in enabled_units(root) {
        let name = file_name(&link);
        let Some((_, instance)) = name.split_once('@') else {
            continue;
        };
        let instance = instance.trim_end_matches(".service");
        let unit = read(&link_target(root, &link));
        let unit = unit.replace("%i", instance).replace("%I", instance);
        commands.extend(up_arguments(&unit, root));
    }
    commands
}

/// Returns the arguments of each `weir real-server up` in a unit or script. Expands the variables that a unit sets.
fn up_arguments(text: &str, root: &Path) -> Vec<String> {
    let text = text.replace("\\\n", " ");
    let (mut variables, mut commands) = (BTreeMap::new(), Vec::new());
    for line in text.lines().map(str::trim) {
        if line.starts_with(['#', ';']) {
            continue;
        }
        if let Some(assignments) = line.strip_prefix("Environment=") {
            for word in words(assignments) {
                variables.extend(assignment(&word));
            }
        } else if let Some(path) = line.strip_prefix("EnvironmentFile=") {
            let file = read(&root.join(path.trim_start_matches(['-', '/'])));
            variables.extend(file.lines().filter_map(assignment));
        } else {
            let commands_in_line = line.split("real-server up ").skip(1);
            commands.extend(commands_in_line.map(str::to_owned));
        }
    }
    for command in &mut commands {
        // In reverse order, a name precedes its own prefixes.
        for (name, value) in variables.iter().rev() {
            let forms = [format!("${{{name}}}"), format!("${name}")];
            for form in forms {
                *command = command.replace(&form, value);
            }
        }
    }
    commands
}

/// Splits text at white space outside quotes, and removes the quotes.
fn words(text: &str) -> Vec<String> {
    let (mut words, mut quote) = (vec![String::new()], None);
    for char in text.chars() {
        match quote {
            Some(open) if char == open => quote = None,
            None if matches!(char, '"' | '\'') => quote = Some(char),
            None if char.is_whitespace() => words.push(String::new()),
            _ => {
                if let Some(word) = words.last_mut() {
                    word.push(char);
                }
            }
        }
    }
    words
}

/// Splits `NAME=VALUE`. The value can be in quotes.
fn assignment(text: &str) -> Option<(String, String)> {
    let (name, value) = text.split_once('=')?;
    let value = value.trim().trim_matches(['"', '\'']);
    Some((name.trim().to_owned(), value.to_owned()))
}

/// Returns the arguments of `up`, separated by spaces, without the redirections and commands that follow in a script.
fn own_arguments(text: &str) -> String {
    let text = text.replace(['"', '\'', '=', ')'], " ");
    let text = text.replace(';', " ; ");
    let is_argument = |word: &&str| !word.contains([';', '|', '&', '<', '>', '#']);
    let arguments = text.split_whitespace().take_while(is_argument);
    arguments.collect::<Vec<_>>().join(" ")
}

/// Parses the arguments of `up`. Ignores unknown options.
fn parse_arguments(arguments: &str) -> Option<UpRequest> {
    let mut request = UpRequest {
        // `up` rejects `nat`, so a command without `--forward` restores nothing.
        forward: Forward::Nat,
        vips: Vec::new(),
        tunnel: None,
        dscp: None,
        except: Vec::new(),
        interfaces: Vec::new(),
    };
    let mut option = "";
    for word in arguments.split_whitespace() {
        match option {
            _ if word.starts_with("--") => option = word,
            "--forward" => {
                let mut methods = Forward::ALL.into_iter();
                request.forward = methods.find(|method| method.as_str() == word)?;
            }
            "--vip" => request.vips.push(word.parse().ok()?),
            "--tunnel" => request.tunnel = Some(word.parse().ok()?),
            "--dscp" => request.dscp = Some(word.parse().ok()?),
            "--except" => request.except.push(word.parse().ok()?),
            "--interface" => request.interfaces.push(word.to_owned()),
            _ => {}
        }
    }
    Some(request)
}

fn is_template_installed(root: &Path) -> bool {
    let mut directories = UNIT_DIRECTORIES.iter();
    directories.any(|directory| root.join(directory).join(TEMPLATE).is_file())
}

/// Returns the links that enable units, including instances of templates.
fn enabled_units(root: &Path) -> impl Iterator<Item = PathBuf> {
    let directories = files(&root.join(UNIT_DIRECTORIES[0])).into_iter();
    let wants = directories.filter(|path| {
        let name = file_name(path);
        name.ends_with(".wants") || name.ends_with(".requires")
    });
    wants.flat_map(|directory| files(&directory))
}

/// Returns the target of a link. An absolute target is relative to `root`.
fn link_target(root: &Path, link: &Path) -> PathBuf {
    match fs::read_link(link) {
        Ok(target) if target.is_absolute() => {
            root.join(target.strip_prefix("/").unwrap_or(&target))
        }
        Ok(target) => link.with_file_name(target),
        Err(_) => link.to_owned(),
    }
}

/// Returns the path itself if it is a file, or the content of the directory.
fn files(path: &Path) -> Vec<PathBuf> {
    if path.is_file() {
        return vec![path.to_owned()];
    }
    let entries = fs::read_dir(path).into_iter().flatten().flatten();
    entries.map(|entry| entry.path()).collect()
}

fn is_executable(path: &Path) -> bool {
    fs::metadata(path).is_ok_and(|metadata| metadata.permissions().mode() & 0o111 != 0)
}

fn file_name(path: &Path) -> String {
    let name = path.file_name().unwrap_or_default();
    name.to_string_lossy().into_owned()
}

/// Reads a text file. Files that cannot be read contain no commands.
fn read(path: &Path) -> String {
    fs::read_to_string(path).unwrap_or_default()
}

#[cfg(test)]
mod tests;
