//! Imports `vrrp_instance` and `vrrp_sync_group` as `[vrrp.NAME]`.

mod address;
mod complete;

use self::address::{OtherAddress, other_interfaces, read_addresses};
use super::Globals;
use super::field;
use super::track::{self, weight_entry};
use super::tree::{Node, parse_command};
use super::{authentication, routing};
use crate::document::{Entry, Item, Table, Value};
use crate::layer4::Writer;
use crate::note::{Notes, Position};
use crate::time;

/// Keywords of an instance without an equivalent key.
const UNSUPPORTED: &[&str] = &[
    "use_vmac_addr",
    "vmac_xmit_base",
    "use_ipvlan",
    "track_bfd",
    "track_src_ip",
    "mcast_dst_ip",
    "unicast_fault_no_peer",
    "garp_extra_if",
    "vmac_garp_intvl",
    "lower_prio_no_advert",
    "higher_prio_send_advert",
    "owner_ignore_adverts",
    "promote_secondaries",
    "notify_deleted",
    "notify_master_rx_lower_pri",
    "notify_priority_changes",
    "kernel_rx_buf_size",
    "linkbeat_use_polling",
    "debug",
    "vrf",
    "lvs_sync_daemon_interface",
    "lvs_sync_daemon_inteface",
];

/// Returns why a line of `instance` needs no key: Weir behaves the same without it.
fn unneeded_reason(node: &Node, instance: &Node) -> Option<&'static str> {
    const DEFAULT: &str = "this is keepalived's default";
    let argument = node.word(1).unwrap_or("");
    let has = |keyword: &str| instance.inner().iter().any(|it| it.keyword() == keyword);
    match (node.keyword(), argument) {
        (
            "lower_prio_no_advert"
            | "higher_prio_send_advert"
            | "owner_ignore_adverts"
            | "notify_priority_changes",
            "off" | "false" | "no",
        )
        | ("garp_extra_if", "0")
        | ("unicast_ttl", "255")
        | ("mcast_dst_ip", "224.0.0.18" | "ff02::12") => Some(DEFAULT),
        ("garp_lower_prio_repeat" | "garp_lower_prio_delay", _) => Some(LOWER_PRIORITY),
        ("owner_ignore_adverts", _) => {
            let is_owner = |it: &Node| it.keyword() == "priority" && it.word(1) == Some("255");
            let is_owner = instance.inner().iter().any(is_owner);
            (!is_owner).then_some("only an instance with priority 255 uses it")
        }
        ("strict_mode", _) => Some("Weir always follows the VRRP specification"),
        ("check_unicast_src", _) => Some("Weir always checks the source of unicast packets"),
        ("skip_check_adv_addr", _) => {
            Some("Weir accepts packets that list other addresses, and counts them")
        }
        ("timer_expired_backup" | "thread_timer_expired", _) => {
            Some("Weir always becomes a backup after a stall of that length")
        }
        ("unicast_fault_no_peer", _) if has("unicast_peer") => {
            Some("it has no effect, because the instance has peers")
        }
        ("old_unicast_checksum", _) => Some(
            "Weir accepts the checksum of old versions in unicast packets, and sends it when the peer does",
        ),
        ("unicast_ttl", _) if !has("unicast_peer") => Some("it only affects unicast packets"),
        ("vmac_xmit_base", _) if has("unicast_peer") || !has("use_vmac") => {
            Some("without a virtual MAC address, packets are sent from the interface itself")
        }
        ("native_ipv6", _) => Some("the addresses determine the address family"),
        ("no_virtual_ipaddress", _) => Some("Weir does not require addresses"),
        _ => None,
    }
}

/// Note about `garp_lower_prio_repeat` and `garp_lower_prio_delay`.
pub(super) const LOWER_PRIORITY: &str =
    "Weir announces its addresses again after packets with a lower priority";

fn is_off(node: &Node) -> bool {
    matches!(node.word(1), Some("off" | "false" | "no"))
}

/// Reads a `vrrp_sync_group`, whose members fail over together.
pub(super) fn read_sync_group(globals: &mut Globals, node: &Node, notes: &mut Notes) {
    let Some(name) = node.word(1) else {
        return field::reject(notes, node, "the name of the group");
    };
    let mut settings = SyncGroup::default();
    for inner in node.inner() {
        match inner.keyword() {
            "track_interface" | "track_script" | "track_process" | "track_file" => {
                settings.tracked.push(inner.clone());
            }
            "notify" => {
                let program = program_entry(inner, notes);
                settings.programs.extend(program.map(|mut entry| {
                    entry.key = "notify_group";
                    entry
                }));
            }
            "notify_master" | "notify_backup" | "notify_fault" | "notify_stop" => {
                settings.programs.extend(program_entry(inner, notes));
            }
            "global_tracking" | "sync_group_tracking_weight" => {
                settings.has_weights = true;
                notes.remark(
                    inner.position,
                    "in Weir, a tracked object's weight always applies to all members of a group",
                );
            }
            "group" => {
                let words = inner
                    .words
                    .iter()
                    .skip(1)
                    .map(|word| (word, inner.position));
                let lines = inner.inner().iter();
                let lines =
                    lines.flat_map(|line| line.words.iter().map(|word| (word, line.position)));
                for (member, position) in words.chain(lines) {
                    if settings.program_member.is_empty() && globals.instances.contains(member) {
                        settings.program_member.clone_from(member);
                    }
                    globals
                        .group_of_instance
                        .insert(member.clone(), (name.to_owned(), position));
                }
            }
            "smtp_alert" => inner.reject(
                notes,
                "`[notify]` reports servers and pools, not virtual routers",
            ),
            "notify_priority_changes" if is_off(inner) => {
                notes.remark(inner.position, "this is keepalived's default");
            }
            "track_bfd" => inner.reject(notes, "Weir does not support BFD"),
            "notify_priority_changes" => {
                inner.reject(notes, "Weir runs programs only for state changes");
            }
            _ => inner.ignore(
                notes,
                "keepalived has no such keyword in vrrp_sync_group, and ignores the line",
            ),
        }
    }
    globals.sync_groups.insert(name.to_owned(), settings);
}

/// Writes a `vrrp_instance` as `[vrrp.NAME]`.
pub(super) fn write(writer: &mut Writer, globals: &Globals, node: &Node, notes: &mut Notes) {
    let Some(name) = node.word(1) else {
        return field::reject(notes, node, "the name of the instance");
    };
    let unique_name = writer.names.claim(name);
    let mut table = Table::new(&["vrrp", &unique_name], node.position);
    if let Some(reason) = unusable_reason(node) {
        notes.remark(
            node.position,
            format!(
                "{reason}; it is imported with `enabled = false`: remove this key after setting the value"
            ),
        );
        table.push(Entry::implied("enabled", false));
    }
    let mut parts = Parts::default();
    for inner in node.inner() {
        if inner.keyword().starts_with("lvs_sync_daemon") && !globals.has_virtual_servers {
            notes.remark(inner.position, super::NOTHING_TO_SYNCHRONIZE);
            continue;
        }
        match unneeded_reason(inner, node) {
            Some(reason) => notes.remark(inner.position, reason),
            None => read_directive(&mut table, &mut parts, globals, (node, inner), notes),
        }
    }
    let Parts {
        mut track,
        other_addresses,
    } = parts;
    if let Some(entry) = other_interfaces(&other_addresses, &mut track) {
        table.push(entry);
    }
    set_version(&mut table, globals, node, notes);
    let group = globals.group_of_instance.get(name);
    let group = group.and_then(|(group, _)| globals.sync_groups.get(group));
    let ignores_weights = group.is_some_and(|group| !group.has_weights);
    complete::complete(&mut table, &mut track, (node, ignores_weights), notes);
    add_group(&mut table, &mut track, globals, name, notes);
    let is_strict = globals.strict || node.inner().iter().any(|it| it.keyword() == "strict_mode");
    if is_strict && !has(&table, "addresses") {
        note_missing_addresses(node, notes);
    }
    if table.entries.iter().any(|entry| is_program(entry.key))
        && let Some((user, position)) = &globals.script_user
    {
        table.push(Entry::new("notify_user", user.as_str(), *position));
    }
    if !track.is_empty() {
        table.push(Entry::implied("track", track));
    }
    table.dependent_lines = node.block_positions();
    writer.document.push(table);
}

fn has(table: &Table, key: &str) -> bool {
    table.entries.iter().any(|entry| entry.key == key)
}

/// Adds the version of an instance and the defaults of `global_defs`, and removes keys that this version does not use.
fn set_version(table: &mut Table, globals: &Globals, node: &Node, notes: &mut Notes) {
    if is_ipv6(node) {
        // keepalived uses version 3 for IPv6, regardless of the configuration.
        table.replace(Entry::new("version", 3_u32, node.position));
    } else if !table.entries.iter().any(|entry| entry.key == "version")
        && let Some((version, position)) = globals.vrrp_version
    {
        table.push(Entry::new("version", version, position));
    }
    for entry in &globals.vrrp {
        if !has(table, entry.key) {
            table.push(entry.clone());
        }
    }
    let is_version_3 = table
        .entries
        .iter()
        .any(|entry| entry.key == "version" && matches!(entry.item.value, Value::Integer(3)));
    if !is_version_3 || is_ipv6(node) {
        table.entries.retain(|entry| entry.key != "checksum");
    } else if !has(table, "checksum") {
        // keepalived's default differs from the RFC, and keepalived drops packets with any other checksum.
        table.push(checksum_entry(false, None));
    }
    if is_version_3 && has(table, "password") {
        // keepalived ignores passwords in version 3.
        table.entries.retain(|entry| entry.key != "password");
        notes.remark(
            node.position,
            "auth_pass is not imported: VRRP version 3 has no passwords",
        );
    }
}

/// Keys of an instance to which several lines contribute.
#[derive(Default)]
struct Parts {
    track: Vec<Item>,
    other_addresses: Vec<OtherAddress>,
}

/// Returns whether a key sets a program that is run for state changes.
fn is_program(key: &str) -> bool {
    key.starts_with("notify") && key != "notify_fifo"
}

/// Returns why keepalived does not start an instance, or `None` if it does.
fn unusable_reason(node: &Node) -> Option<&'static str> {
    let lines = |keyword: &'static str| {
        node.inner()
            .iter()
            .filter(move |it| it.keyword() == keyword)
    };
    let is_id = |line: &Node| {
        let id = line
            .word(1)
            .and_then(|word| field::parse_unsigned(word, 1, 255));
        id.is_some()
    };
    if !lines("virtual_router_id").any(is_id) {
        return Some("keepalived does not start an instance without a valid virtual_router_id");
    }
    // keepalived determines the interface for unicast packets itself.
    let is_unicast = lines("unicast_peer").next().is_some() && lines("interface").next().is_none();
    let is_address = |line: &Node| {
        line.word(1)
            .is_some_and(|it| it.parse::<std::net::IpAddr>().is_ok())
    };
    let has_source = lines("unicast_src_ip")
        .chain(lines("mcast_src_ip"))
        .any(is_address);
    let has_interface =
        lines("interface").any(|line| line.word(1).is_some_and(field::is_interface));
    (!has_interface && !is_unicast && !has_source)
        .then_some("keepalived does not start an instance without an interface")
}

/// Adds a note about a strict instance without a valid address, which keepalived does not start. The other lines of
/// the instance are imported.
fn note_missing_addresses(node: &Node, notes: &mut Notes) {
    let mut lines = node.inner().iter();
    let block = lines.find(|it| it.keyword() == "virtual_ipaddress");
    let position = block.map_or(node.position, |block| block.position);
    notes.add(
        position,
        "the instance has no valid address; keepalived does not start such an instance if it is strict",
    );
}

fn is_ipv6(node: &Node) -> bool {
    let mut blocks = node.inner().iter();
    let addresses = blocks.find(|inner| inner.keyword() == "virtual_ipaddress");
    let first = addresses.and_then(|block| block.inner().first());
    first.is_some_and(|line| line.keyword().contains(':'))
}

/// Settings of a sync group. Its programs are run for one member, because all members change state together.
#[derive(Debug, Default)]
pub(super) struct SyncGroup {
    /// The first member that is an instance, for which the programs are run; empty = there is none.
    pub(super) program_member: String,
    pub(super) programs: Vec<Entry>,
    /// The `track_…` blocks, which apply to each member.
    pub(super) tracked: Vec<Node>,
    /// Whether keepalived uses the weights of the members' own tracked objects.
    pub(super) has_weights: bool,
}

/// Adds the settings of the instance's group.
fn add_group(
    table: &mut Table,
    track: &mut Vec<Item>,
    globals: &Globals,
    name: &str,
    notes: &mut Notes,
) {
    let Some((group, position)) = globals.group_of_instance.get(name) else {
        return;
    };
    table.push(Entry::new("group", group.as_str(), *position));
    let Some(settings) = globals.sync_groups.get(group) else {
        return;
    };
    for block in &settings.tracked {
        match block.keyword() {
            "track_interface" => track_interfaces(track, block, notes),
            _ => track_objects(track, globals, block, notes),
        }
    }
    if settings.program_member != name {
        return;
    }
    for program in &settings.programs {
        let is_set = table.entries.iter().any(|entry| entry.key == program.key);
        match program.item.position {
            Some(position) if is_set => notes.add(
                position,
                format!("not imported: {name} has its own program for this state change"),
            ),
            _ => table.push(program.clone()),
        }
    }
}

/// Reads a directive of an instance.
fn read_directive(
    table: &mut Table,
    parts: &mut Parts,
    globals: &Globals,
    (instance, node): (&Node, &Node),
    notes: &mut Notes,
) {
    let mut set = |entry: Option<Entry>| entry.into_iter().for_each(|entry| table.replace(entry));
    match node.keyword() {
        "interface" if node.word(1) == Some("lo") => {
            node.reject(notes, "keepalived rejects a loopback interface");
        }
        "interface" => {
            let word = field::parse_word(notes, node, "an interface");
            let is_name = |(word, position): &(String, Position)| {
                let is_name = field::is_interface(word);
                if !is_name {
                    let reason = format!("not imported: {word} is not a valid interface name");
                    notes.remark(*position, reason);
                }
                is_name
            };
            set(word
                .filter(is_name)
                .map(|(word, position)| Entry::new("interface", word, position)));
        }
        "virtual_router_id" => {
            let id = field::parse_number(notes, node, 1, 255);
            set(id.map(|(id, position)| Entry::new("virtual_router_id", id, position)));
        }
        "priority" => {
            let priority = field::parse_number(notes, node, 1, 255);
            set(priority.map(|(priority, position)| Entry::new("priority", priority, position)));
        }
        "version" => {
            let version = field::parse_number(notes, node, 2, 3);
            set(version.map(|(version, position)| Entry::new("version", version, position)));
        }
        "advert_int" => {
            let time = field::parse_seconds(notes, node, false);
            set(time.map(|(millis, position)| {
                Entry::new("advert_interval", time::format_millis(millis), position)
            }));
        }
        "preempt_delay" => {
            let time = field::parse_seconds(notes, node, true);
            set(time.map(|(millis, position)| {
                Entry::new("preempt_delay", time::format_millis(millis), position)
            }));
        }
        _ => read_other_directive(table, parts, globals, (instance, node), notes),
    }
}

/// Reads flags, lists and programs, and adds notes about unsupported keywords.
fn read_other_directive(
    table: &mut Table,
    parts: &mut Parts,
    globals: &Globals,
    (instance, node): (&Node, &Node),
    notes: &mut Notes,
) {
    let mut set = |entry: Option<Entry>| entry.into_iter().for_each(|entry| table.replace(entry));
    match node.keyword() {
        "dont_track_primary" => {
            field::note_extra_arguments(notes, node, 0);
            set(Some(Entry::new("track_interface", false, node.position)));
        }
        word @ ("preempt" | "nopreempt" | "accept" | "no_accept") => {
            field::note_extra_arguments(notes, node, 0);
            let key = if word.ends_with("preempt") {
                "preempt"
            } else {
                "accept"
            };
            let entry = Entry::new(key, !word.starts_with("no"), node.position);
            set(Some(entry));
        }
        "mcast_src_ip" | "unicast_src_ip" => {
            let source = field::parse_address(notes, node);
            set(source.map(|(source, position)| Entry::new("source", source.to_string(), position)));
        }
        "unicast_peer" => {
            for entry in peer_entries(node, notes) {
                set(Some(entry));
            }
        }
        "unicast_ttl" => {
            let ttl = field::parse_number(notes, node, 1, 255);
            set(ttl.map(|(ttl, position)| Entry::new("unicast_ttl", ttl, position)));
        }
        "virtual_ipaddress" | "virtual_ipaddress_excluded" => {
            set(read_addresses(
                instance,
                node,
                &mut parts.other_addresses,
                notes,
            ));
        }
        "track_interface" => track_interfaces(&mut parts.track, node, notes),
        "track_script" | "track_process" | "track_file" => {
            track_objects(&mut parts.track, globals, node, notes)
        }
        "notify" | "notify_master" | "notify_backup" | "notify_fault" | "notify_stop" => {
            set(program_entry(node, notes));
        }
        "state" => match node.word(1) {
            Some("MASTER" | "BACKUP") => {
                notes.remark(
                    node.position,
                    "the priority determines which director is active; `state` only sets the initial state",
                );
            }
            _ => field::reject(notes, node, "MASTER or BACKUP"),
        },
        "use_vmac" => {
            field::note_extra_arguments(notes, node, 0);
            set(Some(Entry::new("virtual_mac", true, node.position)));
        }
        "virtual_routes" => set(routing::routes(node, notes)),
        "virtual_rules" => set(routing::rules(node, notes)),
        "authentication" => set(authentication::password_entry(node, notes)),
        "auth_hmac" => set(authentication::hmac_entry(node, notes)),
        "smtp_alert" => node.reject(
            notes,
            "`[notify]` reports servers and pools, not virtual routers",
        ),
        keyword if UNSUPPORTED.contains(&keyword) => {
            node.reject(notes, "[vrrp.NAME] has no equivalent key")
        }
        _ => read_announcement(table, node, notes),
    }
}

/// Reads lines about announcements and checksums, and adds remarks about unknown keywords.
fn read_announcement(table: &mut Table, node: &Node, notes: &mut Notes) {
    let entry = match node.keyword() {
        "down_timer_adverts" => count_entry("down_adverts", node, 1, notes),
        "garp_master_repeat" => count_entry("garp_repeat", node, 1, notes),
        "garp_master_refresh_repeat" => count_entry("garp_refresh_repeat", node, 1, notes),
        "garp_master_delay" => delay_entry("garp_delay", node, notes),
        "garp_master_refresh" => delay_entry("garp_refresh", node, notes),
        "v3_checksum_as_v2" => {
            let flag = field::parse_flag(notes, node);
            flag.map(|(is_plain, position)| checksum_entry(is_plain, Some(position)))
        }
        _ => {
            return node.ignore(
                notes,
                "keepalived has no such keyword in vrrp_instance, and ignores the line",
            );
        }
    };
    if let Some(entry) = entry {
        table.replace(entry);
    }
}

fn count_entry(key: &'static str, node: &Node, min: u64, notes: &mut Notes) -> Option<Entry> {
    let (count, position) = field::parse_number(notes, node, min, 100)?;
    Some(Entry::new(key, count, position))
}

fn delay_entry(key: &'static str, node: &Node, notes: &mut Notes) -> Option<Entry> {
    let (millis, position) = field::parse_seconds(notes, node, true)?;
    Some(Entry::new(key, time::format_millis(millis), position))
}

fn checksum_entry(is_plain: bool, position: Option<Position>) -> Entry {
    let method = if is_plain { "plain" } else { "pseudo-header" };
    match position {
        Some(position) => Entry::new("checksum", method, position),
        None => Entry::implied("checksum", method),
    }
}

/// Converts a notification program; the key has the same name as the keyword.
fn program_entry(node: &Node, notes: &mut Notes) -> Option<Entry> {
    let key = match node.keyword() {
        "notify" => "notify",
        "notify_master" => "notify_master",
        "notify_backup" => "notify_backup",
        "notify_fault" => "notify_fault",
        _ => "notify_stop",
    };
    let words = parse_command(&node.arguments).filter(|words| !words.is_empty());
    if words.is_none() {
        field::reject(notes, node, "a program");
    }
    Some(Entry::new(key, words?, node.position))
}

/// Returns `unicast_peers` with the address in each line of a block, and `unicast_min_ttl` if it is not the default.
fn peer_entries(node: &Node, notes: &mut Notes) -> Vec<Entry> {
    let mut peers = Vec::new();
    // keepalived accepts any TTL, unless a range is configured.
    let mut lowest_ttl = u64::from(u8::MAX);
    let mut is_v4 = false;
    for line in node.inner() {
        let Ok(address) = line.keyword().parse::<std::net::IpAddr>() else {
            line.ignore(notes, "it is not an address, and keepalived skips the line");
            continue;
        };
        peers.push(Item::new(address.to_string(), Some(line.position)));
        is_v4 |= address.is_ipv4();
        lowest_ttl = lowest_ttl.min(min_ttl(line, notes).max(1));
    }
    if peers.is_empty() {
        return Vec::new();
    }
    let mut entries = vec![Entry::new("unicast_peers", peers, node.position)];
    // Weir's default is 255 for IPv4, and any TTL for IPv6.
    if lowest_ttl != if is_v4 { 255 } else { 1 } {
        entries.push(Entry::new("unicast_min_ttl", lowest_ttl, node.position));
    }
    entries
}

/// Returns `min_ttl` of a peer, or 0 if it is not set.
fn min_ttl(line: &Node, notes: &mut Notes) -> u64 {
    let mut min_ttl = 0;
    let mut index = 1;
    while let Some(word) = line.word(index) {
        let number = line
            .word(index + 1)
            .and_then(|it| field::parse_unsigned(it, 0, 255));
        match (word, number) {
            ("min_ttl", Some(number)) => min_ttl = number,
            ("max_ttl", Some(255)) => {}
            ("max_ttl", Some(_)) => {
                notes.add(
                    line.position,
                    "max_ttl is not imported: Weir has no maximum TTL",
                );
            }
            _ => notes.add(
                line.position,
                format!("option \"{word}\" is not imported: it is invalid"),
            ),
        }
        index += 2;
    }
    min_ttl
}

fn track_interfaces(track: &mut Vec<Item>, node: &Node, notes: &mut Notes) {
    for line in node.inner() {
        let mut entries = vec![Entry::new("interface", line.keyword(), line.position).essential()];
        if line.word(1) == Some("weight") {
            entries.extend(weight_entry(track::parse_weight(line, 2, notes)));
        } else {
            field::note_extra_arguments(notes, line, 0);
        }
        track.push(Item::new(entries, Some(line.position)));
    }
}

fn track_objects(track: &mut Vec<Item>, globals: &Globals, node: &Node, notes: &mut Notes) {
    for line in node.inner() {
        let Some(object) = globals.tracked.get(line.keyword()) else {
            line.reject(
                notes,
                "no script, process or file with this name is defined",
            );
            continue;
        };
        let weight = match line.word(1) {
            Some("weight") => track::parse_weight(line, 2, notes),
            _ => {
                field::note_extra_arguments(notes, line, 0);
                object.weight
            }
        };
        let mut entries = object.entries.clone();
        match entries.iter().any(|entry| entry.key == "file") {
            true => entries.push(track::file_weight_entry(weight)),
            false => entries.extend(weight_entry(weight)),
        }
        track.push(Item::new(entries, Some(object.position)));
    }
}
