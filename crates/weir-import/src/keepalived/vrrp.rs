//! Imports `vrrp_instance` and `vrrp_sync_group` as `[vrrp.NAME]`.

use super::Globals;
use super::field;
use super::track::{self, weight_entries};
use super::tree::{Node, command};
use super::{authentication, routing};
use crate::document::{Entry, Item, Table, Value};
use crate::layer4::Writer;
use crate::note::{Notes, Position};
use crate::time;

/// Keywords without an equivalent key.
const UNSUPPORTED: &[&str] = &[
    "use_vmac_addr",
    "vmac_xmit_base",
    "use_ipvlan",
    "native_ipv6",
    "dont_track_primary",
    "track_bfd",
    "track_src_ip",
    "mcast_dst_ip",
    "unicast_ttl",
    "check_unicast_src",
    "unicast_fault_no_peer",
    "old_unicast_checksum",
    "garp_lower_prio_repeat",
    "garp_lower_prio_delay",
    "garp_extra_if",
    "vmac_garp_intvl",
    "lower_prio_no_advert",
    "higher_prio_send_advert",
    "timer_expired_backup",
    "thread_timer_expired",
    "owner_ignore_adverts",
    "strict_mode",
    "skip_check_adv_addr",
    "promote_secondaries",
    "no_virtual_ipaddress",
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

/// `vrrp_sync_group`: its members fail over together.
pub(super) fn sync_group(globals: &mut Globals, node: &Node, notes: &mut Notes) {
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
                let program = program(inner, notes);
                settings.programs.extend(program.map(|mut entry| {
                    entry.key = "notify_group";
                    entry
                }));
            }
            "notify_master" | "notify_backup" | "notify_fault" | "notify_stop" => {
                settings.programs.extend(program(inner, notes));
            }
            "global_tracking" | "sync_group_tracking_weight" => {
                notes.remark(inner.position, "members of a group of Weir track together");
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
                    if settings.first.is_empty() {
                        settings.first.clone_from(member);
                    }
                    globals
                        .sync
                        .insert(member.clone(), (name.to_owned(), position));
                }
            }
            "smtp_alert" => inner.reject(
                notes,
                "`[notify]` reports servers and pools, not virtual routers",
            ),
            _ => inner.reject(
                notes,
                "[vrrp.NAME] has no such key; set this in each instance of the group",
            ),
        }
    }
    globals.sync_groups.insert(name.to_owned(), settings);
}

pub(super) fn write(writer: &mut Writer, globals: &Globals, node: &Node, notes: &mut Notes) {
    let Some(name) = node.word(1) else {
        return field::reject(notes, node, "the name of the instance");
    };
    let unique = writer.names.take(name);
    let mut table = Table::new(&["vrrp", &unique], node.position);
    let mut track: Vec<Item> = Vec::new();
    for inner in node.inner() {
        directive(&mut table, &mut track, globals, inner, notes);
    }
    if is_ipv6(node) {
        // keepalived uses version 3 for IPv6, whatever is configured.
        table.replace(Entry::new("version", 3_u32, node.position));
    } else if !table.entries.iter().any(|entry| entry.key == "version")
        && let Some((version, position)) = globals.vrrp_version
    {
        table.push(Entry::new("version", version, position));
    }
    let has = |table: &Table, key: &str| table.entries.iter().any(|entry| entry.key == key);
    for entry in &globals.vrrp {
        if !has(&table, entry.key) {
            table.push(entry.clone());
        }
    }
    let is_version_3 = table
        .entries
        .iter()
        .any(|entry| entry.key == "version" && matches!(entry.item.value, Value::Integer(3)));
    if !is_version_3 || is_ipv6(node) {
        table.entries.retain(|entry| entry.key != "checksum");
    } else if !has(&table, "checksum") {
        // keepalived's default differs from the RFC, and it drops packets with the other one.
        table.push(checksum(false, None));
    }
    if is_version_3 && has(&table, "password") {
        // keepalived ignores it.
        table.entries.retain(|entry| entry.key != "password");
        notes.remark(
            node.position,
            "auth_pass was not imported: version 3 has no passwords",
        );
    }
    of_group(&mut table, &mut track, globals, name, notes);
    let is_strict = globals.strict || node.inner().iter().any(|it| it.keyword() == "strict_mode");
    if is_strict && !has(&table, "addresses") {
        return node.ignore(
            notes,
            "keepalived disables a strict instance without addresses",
        );
    }
    if !track.is_empty() {
        table.push(Entry::implied("track", track));
    }
    table.covers = node.lines();
    writer.document.push(table);
}

fn is_ipv6(node: &Node) -> bool {
    let mut blocks = node.inner().iter();
    let addresses = blocks.find(|inner| inner.keyword() == "virtual_ipaddress");
    let first = addresses.and_then(|block| block.inner().first());
    first.is_some_and(|line| line.keyword().contains(':'))
}

/// Settings of a sync group: programs are called for one member, because all members change together.
#[derive(Debug, Default)]
pub(super) struct SyncGroup {
    /// The member that has the programs.
    pub(super) first: String,
    pub(super) programs: Vec<Entry>,
    /// Blocks that each member tracks.
    pub(super) tracked: Vec<Node>,
}

/// Adds the settings of the group of this instance.
fn of_group(
    table: &mut Table,
    track: &mut Vec<Item>,
    globals: &Globals,
    name: &str,
    notes: &mut Notes,
) {
    let Some((group, position)) = globals.sync.get(name) else {
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
    if settings.first != name {
        return;
    }
    for program in &settings.programs {
        let is_taken = table.entries.iter().any(|entry| entry.key == program.key);
        match program.item.from {
            Some(position) if is_taken => notes.add(
                position,
                format!("not imported: {name} has a program of its own for this"),
            ),
            _ => table.push(program.clone()),
        }
    }
}

fn directive(
    table: &mut Table,
    track: &mut Vec<Item>,
    globals: &Globals,
    node: &Node,
    notes: &mut Notes,
) {
    let mut put = |entry: Option<Entry>| entry.into_iter().for_each(|entry| table.replace(entry));
    match node.keyword() {
        "interface" if node.word(1) == Some("lo") => {
            node.reject(notes, "keepalived rejects a loopback interface");
        }
        "interface" => {
            let word = field::word(notes, node, "an interface");
            put(word.map(|(word, position)| Entry::new("interface", word, position)));
        }
        "virtual_router_id" => {
            let id = field::number(notes, node, 1, 255);
            put(id.map(|(id, position)| Entry::new("virtual_router_id", id, position)));
        }
        "priority" => {
            let priority = field::number(notes, node, 1, 255);
            put(priority.map(|(priority, position)| Entry::new("priority", priority, position)));
        }
        "version" => {
            let version = field::number(notes, node, 2, 3);
            put(version.map(|(version, position)| Entry::new("version", version, position)));
        }
        "advert_int" => {
            let time = field::timer(notes, node, false);
            put(time.map(|(millis, position)| {
                Entry::new("advert_interval", time::format_millis(millis), position)
            }));
        }
        "preempt_delay" => {
            let time = field::timer(notes, node, true);
            put(time.map(|(millis, position)| {
                Entry::new("preempt_delay", time::format_millis(millis), position)
            }));
        }
        _ => other_directive(table, track, globals, node, notes),
    }
}

/// Flags, lists, programs and unsupported keywords.
fn other_directive(
    table: &mut Table,
    track: &mut Vec<Item>,
    globals: &Globals,
    node: &Node,
    notes: &mut Notes,
) {
    let interface = interface(table);
    let mut put = |entry: Option<Entry>| entry.into_iter().for_each(|entry| table.replace(entry));
    match node.keyword() {
        keyword @ ("preempt" | "nopreempt" | "accept" | "no_accept") => {
            field::note_extra(notes, node, 0);
            let key = if keyword.ends_with("preempt") {
                "preempt"
            } else {
                "accept"
            };
            put(Some(Entry::new(
                key,
                !keyword.starts_with("no"),
                node.position,
            )));
        }
        "mcast_src_ip" | "unicast_src_ip" => {
            let source = field::address(notes, node);
            put(source.map(|(source, position)| Entry::new("source", source.to_string(), position)));
        }
        "unicast_peer" => put(peers(node, notes)),
        "virtual_ipaddress" => put(addresses("addresses", node, &interface, notes)),
        "virtual_ipaddress_excluded" => {
            put(addresses("excluded_addresses", node, &interface, notes));
        }
        "track_interface" => track_interfaces(track, node, notes),
        "track_script" | "track_process" | "track_file" => {
            track_objects(track, globals, node, notes)
        }
        "notify" | "notify_master" | "notify_backup" | "notify_fault" | "notify_stop" => {
            put(program(node, notes));
        }
        "state" => match node.word(1) {
            Some("MASTER" | "BACKUP") => {
                notes.remark(
                    node.position,
                    "the priority decides which director is active; this sets only the state at the start",
                );
            }
            _ => field::reject(notes, node, "MASTER or BACKUP"),
        },
        "down_timer_adverts" => put(count("down_adverts", node, 1, notes)),
        "garp_master_repeat" => put(count("garp_repeat", node, 1, notes)),
        "garp_master_refresh_repeat" => put(count("garp_refresh_repeat", node, 1, notes)),
        "garp_master_delay" => put(pause("garp_delay", node, notes)),
        "garp_master_refresh" => put(pause("garp_refresh", node, notes)),
        "v3_checksum_as_v2" => {
            let flag = field::flag(notes, node);
            put(flag.map(|(plain, position)| checksum(plain, Some(position))));
        }
        "use_vmac" => {
            field::note_extra(notes, node, 0);
            put(Some(Entry::new("virtual_mac", true, node.position)));
        }
        "virtual_routes" => put(routing::routes(node, notes)),
        "virtual_rules" => put(routing::rules(node, notes)),
        "authentication" => put(authentication::password(node, notes)),
        "auth_hmac" => put(authentication::hmac(node, notes)),
        "smtp_alert" => node.reject(
            notes,
            "`[notify]` reports servers and pools, not virtual routers",
        ),
        keyword if UNSUPPORTED.contains(&keyword) => {
            node.reject(notes, "[vrrp.NAME] has no equivalent key")
        }
        _ => node.reject(notes, "unknown keyword in vrrp_instance"),
    }
}

fn count(key: &'static str, node: &Node, min: u64, notes: &mut Notes) -> Option<Entry> {
    let (count, position) = field::number(notes, node, min, 100)?;
    Some(Entry::new(key, count, position))
}

fn pause(key: &'static str, node: &Node, notes: &mut Notes) -> Option<Entry> {
    let (millis, position) = field::timer(notes, node, true)?;
    Some(Entry::new(key, time::format_millis(millis), position))
}

fn checksum(plain: bool, position: Option<Position>) -> Entry {
    let form = if plain { "plain" } else { "pseudo-header" };
    match position {
        Some(position) => Entry::new("checksum", form, position),
        None => Entry::implied("checksum", form),
    }
}

/// A notification program; the key has the same name as the keyword.
fn program(node: &Node, notes: &mut Notes) -> Option<Entry> {
    let key = match node.keyword() {
        "notify" => "notify",
        "notify_master" => "notify_master",
        "notify_backup" => "notify_backup",
        "notify_fault" => "notify_fault",
        _ => "notify_stop",
    };
    let words = command(&node.rest).filter(|words| !words.is_empty());
    if words.is_none() {
        field::reject(notes, node, "a program");
    }
    Some(Entry::new(key, words?, node.position))
}

/// Imports the address from each line of a block.
fn peers(node: &Node, notes: &mut Notes) -> Option<Entry> {
    let mut peers = Vec::new();
    for line in node.inner() {
        match line.keyword().parse::<std::net::IpAddr>() {
            Ok(address) => {
                peers.push(Item::new(address.to_string(), Some(line.position)));
                field::note_extra(notes, line, 0);
            }
            Err(_) => line.reject(notes, "not an address"),
        }
    }
    (!peers.is_empty()).then(|| Entry::new("unicast_peers", peers, node.position))
}

/// Imports the address from each line `IP[/M] dev IF label L …`.
fn addresses(key: &'static str, node: &Node, interface: &str, notes: &mut Notes) -> Option<Entry> {
    let mut addresses = Vec::new();
    for line in node.inner() {
        let (address, length) = line
            .keyword()
            .split_once('/')
            .unwrap_or((line.keyword(), ""));
        let Ok(parsed) = address.parse::<std::net::IpAddr>() else {
            let why = "not an address, and keepalived skips the line";
            line.ignore(notes, why);
            continue;
        };
        let bits = if parsed.is_ipv4() { 32 } else { 128 };
        let length = if length.is_empty() {
            Some(bits)
        } else {
            field::within(length, 0, bits)
        };
        if length.is_none() {
            let why =
                format!("the prefix length is invalid and was set to {bits}, as keepalived does");
            notes.remark(line.position, why);
        }
        let text = format!("{parsed}/{}", length.unwrap_or(bits));
        addresses.push(Item::new(text, Some(line.position)));
        address_options(line, interface, notes);
    }
    (!addresses.is_empty()).then(|| Entry::new(key, addresses, node.position))
}

/// Returns the interface of the instance, which its other lines follow.
fn interface(table: &Table) -> String {
    table.text("interface").unwrap_or_default().to_owned()
}

/// Options after an address. The default device is that of the instance; only listings show a label and the broadcast
/// address.
fn address_options(line: &Node, interface: &str, notes: &mut Notes) {
    let mut words = line.words.iter().skip(1).map(String::as_str);
    let (mut lost, mut shown) = (Vec::new(), Vec::new());
    while let Some(word) = words.next() {
        let value = words.next().unwrap_or("");
        match word {
            "dev" if value == interface => {}
            "label" | "brd" | "broadcast" => shown.push(word),
            _ => lost.push(format!("{word} {value}")),
        }
    }
    if !lost.is_empty() {
        let lost = lost.join(" ");
        let why = format!(
            "not imported: {lost}; Weir adds the address to the instance's interface, {interface}"
        );
        notes.add(line.position, why);
    } else if !shown.is_empty() {
        let shown = shown.join(", ");
        let why = format!("{shown} is not imported: only listings of addresses show it");
        notes.remark(line.position, why);
    }
}

fn track_interfaces(track: &mut Vec<Item>, node: &Node, notes: &mut Notes) {
    for line in node.inner() {
        let mut entries = vec![Entry::new("interface", line.keyword(), line.position).essential()];
        if line.word(1) == Some("weight") {
            entries.extend(weight_entries(track::weight(line, 2, notes)));
        } else {
            field::note_extra(notes, line, 0);
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
            Some("weight") => track::weight(line, 2, notes),
            _ => {
                field::note_extra(notes, line, 0);
                object.weight
            }
        };
        let mut entries = object.entries.clone();
        entries.extend(weight_entries(weight));
        track.push(Item::new(entries, Some(object.position)));
    }
}
