//! Lowers `track` of `[vrrp.NAME]`.

use std::time::Duration;

use weir_model::{Track, TrackObject, TrackScript};

use super::{KnownObjects, command, single_line};
use crate::catalog::VRRP_TRACK;
use crate::code::Code;
use crate::diagnostic::Diagnostic;
use crate::key::Kind;
use crate::tree::{Item, Table, Value};
use crate::view::{Sink, View, wrong_type};

/// Returns the tracked objects of a virtual router.
pub(super) fn tracks(
    sink: &mut Sink<'_>,
    view: &View<'_, '_>,
    known: &KnownObjects<'_>,
) -> Vec<Track> {
    let mut tracks = Vec::new();
    // A director that cannot forward packets must not have the addresses, unless an entry sets `data_plane`.
    let mut tracks_data_plane = known.has_layer_4_services;
    for item in view.list(sink, "track").unwrap_or_default() {
        match &item.value {
            Value::Table(table) => {
                tracks_data_plane &= !table.entries.iter().any(|it| it.key == "data_plane");
                tracks.extend(track(sink, item, table, known));
            }
            _ => sink.push(wrong_type(item, &Kind::Table(&VRRP_TRACK))),
        }
    }
    if tracks_data_plane {
        tracks.push(Track {
            object: TrackObject::DataPlane,
            penalty: 0,
            bonus: 0,
            fault: false,
        });
    }
    tracks
}

fn track(
    sink: &mut Sink<'_>,
    item: &Item<'_>,
    table: &Table<'_>,
    known: &KnownObjects<'_>,
) -> Option<Track> {
    let view = View::open(sink, &VRRP_TRACK, table, &item.span);
    let interface = view
        .text(sink, "interface")
        .and_then(|(name, span)| crate::lower::present::check_interface(sink, name, span))
        .map(str::to_owned);
    let mut line_of = |key| {
        let (name, span) = view.text(sink, key)?;
        single_line(sink, name, span)
    };
    let (process, file) = (line_of("process"), line_of("file"));
    let (service, pool) = (line_of("service"), line_of("pool"));
    for (key, name, names) in [
        ("service", &service, &known.services),
        ("pool", &pool, &known.pools),
    ] {
        let unknown = name.as_deref().filter(|name| !names.contains(name));
        if let (Some(name), Some((entry, _))) = (unknown, view.get(key)) {
            let message = format!("{key} `{name}` does not exist");
            sink.push(Diagnostic::new(
                Code::UnknownValue,
                &entry.item.span,
                message,
            ));
        }
    }
    let data_plane = view.flag(sink, "data_plane") == Some(true);
    let script = script(sink, &view);
    let byte_or_zero =
        |number: Option<u32>| number.and_then(|it| u8::try_from(it).ok()).unwrap_or(0);
    let (penalty, bonus) = (
        byte_or_zero(view.integer(sink, "penalty")),
        byte_or_zero(view.integer(sink, "bonus")),
    );
    let keys = [
        "interface",
        "script",
        "process",
        "file",
        "service",
        "pool",
        "data_plane",
    ];
    if keys.iter().filter(|key| view.get(key).is_some()).count() != 1 {
        let message = "each entry in `track` must specify exactly one object";
        let fix = "use one of `interface`, `script`, `process`, `file`, `service`, `pool` and `data_plane`";
        sink.push(Diagnostic::new(Code::Contradiction, &item.span, message).fix(fix));
        return None;
    }
    let object = interface
        .map(TrackObject::Interface)
        .or(process.map(TrackObject::Process))
        .or(file.map(TrackObject::File))
        .or(service.map(TrackObject::Service))
        .or(pool.map(TrackObject::Pool))
        .or(data_plane.then_some(TrackObject::DataPlane))
        .or(script.map(TrackObject::Script))?;
    let track = Track {
        object,
        penalty,
        bonus,
        fault: view.flag(sink, "fault") == Some(true),
    };
    check_effect(sink, item, &track);
    Some(track)
}

/// Reports combinations of `penalty`, `bonus` and `fault` that are contradictory or have no effect.
fn check_effect(sink: &mut Sink<'_>, item: &Item<'_>, track: &Track) {
    let is_file = matches!(track.object, TrackObject::File(_));
    let factors = usize::from(track.penalty > 0) + usize::from(track.bonus > 0);
    let (code, message) = match (is_file, track.fault, factors) {
        (false, true, _) => (Code::NoEffect, "`fault` has no effect without `file`"),
        (true, true, 1..) => (
            Code::Contradiction,
            "`fault` cannot be combined with `penalty` or `bonus`: the number does not change the priority",
        ),
        (true, false, 2..) => (
            Code::Contradiction,
            "`file` cannot have both `penalty` and `bonus`: its number is multiplied by one of them",
        ),
        _ => return,
    };
    sink.push(Diagnostic::new(code, &item.span, message));
}

fn script(sink: &mut Sink<'_>, view: &View<'_, '_>) -> Option<TrackScript> {
    let command = command(sink, view, "script");
    let interval = view
        .duration(sink, "interval")
        .unwrap_or(Duration::from_secs(1));
    let script = TrackScript {
        command,
        interval,
        timeout: view.duration(sink, "timeout").unwrap_or(interval),
        rise: view.integer(sink, "rise").unwrap_or(1),
        fall: view.integer(sink, "fall").unwrap_or(1),
        user: view
            .text(sink, "user")
            .and_then(|(name, span)| single_line(sink, name, span))
            .unwrap_or_else(|| crate::lower::SCRIPT_USER.to_owned()),
    };
    (!script.command.is_empty()).then_some(script)
}
