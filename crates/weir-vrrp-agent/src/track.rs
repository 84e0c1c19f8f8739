//! Tracked objects: when to look at them, and how many results change a state.

use std::collections::HashMap;
use std::fs;
use std::time::Duration;

use weir_helper::TrackedOutcome;
use weir_model::{Track, TrackObject, VirtualRouter};
use weir_vrrp::{Effect, Tracked, TrackedState};

/// Interval of looking for processes and of reading files.
const INTERVAL: Duration = Duration::from_secs(1);

/// A tracked object of a virtual router.
#[derive(Debug)]
pub(crate) struct Watched {
    pub(crate) router: usize,
    pub(crate) object: usize,
    pub(crate) what: TrackObject,
    /// When it is due; `None` while a result is awaited, and for objects that others report.
    due: Option<Duration>,
    /// Consecutive results that contradict the state.
    against: u32,
    state: TrackedState,
}

pub(crate) const fn state_of(is_up: bool) -> TrackedState {
    if is_up {
        TrackedState::Up
    } else {
        TrackedState::Down
    }
}

/// The configuration of a tracked object for the machine.
pub(crate) fn tracked(track: &Track) -> Tracked {
    let name = match &track.object {
        TrackObject::Interface(name) => format!("interface {name}"),
        TrackObject::Process(name) => format!("process {name}"),
        TrackObject::File(path) => format!("file {path}"),
        TrackObject::Service(name) => format!("service {name}"),
        TrackObject::Pool(name) => format!("pool {name}"),
        TrackObject::DataPlane => "data plane".to_owned(),
        TrackObject::Script(script) => {
            format!(
                "script {}",
                script.command.first().map_or("", String::as_str)
            )
        }
    };
    let is_file = matches!(track.object, TrackObject::File(_));
    let identity = format!("{:?}", track.object);
    let effect = match (track.bonus, track.penalty) {
        (0, 0) if !is_file => Effect::Fault,
        (bonus, penalty) => Effect::Weight { bonus, penalty },
    };
    Tracked {
        name,
        identity,
        effect,
    }
}

/// All tracked objects.
pub(crate) fn watched(routers: &[VirtualRouter], now: Duration) -> Vec<Watched> {
    let mut all = Vec::new();
    for (router, settings) in routers.iter().enumerate() {
        for (object, track) in settings.track.iter().enumerate() {
            let is_read = matches!(
                track.object,
                TrackObject::Process(_) | TrackObject::File(_) | TrackObject::Script(_)
            );
            all.push(Watched {
                router,
                object,
                what: track.object.clone(),
                due: is_read.then_some(now),
                against: 0,
                state: TrackedState::Unknown,
            });
        }
    }
    all
}

impl Watched {
    /// When it is due.
    pub(crate) const fn due(&self) -> Option<Duration> {
        self.due
    }

    /// It has been requested.
    pub(crate) const fn start(&mut self) {
        self.due = None;
    }

    /// Applies a result; returns the state.
    pub(crate) fn finish(&mut self, outcome: TrackedOutcome, now: Duration) -> TrackedState {
        let (rise, fall) = match &self.what {
            TrackObject::Script(script) => {
                self.due = Some(now + script.interval);
                (script.rise, script.fall)
            }
            _ => {
                self.due = Some(now + INTERVAL);
                (1, 1)
            }
        };
        let (new, needed) = match outcome {
            TrackedOutcome::Up => (TrackedState::Up, rise),
            TrackedOutcome::Down => (TrackedState::Down, fall),
            TrackedOutcome::Number(number) => (TrackedState::Number(number), 1),
        };
        if new == self.state {
            self.against = 0;
            return self.state;
        }
        self.against += 1;
        // The first result decides at once.
        if self.state == TrackedState::Unknown || self.against >= needed {
            self.state = new;
            self.against = 0;
        }
        self.state
    }

    /// It could not be looked at.
    pub(crate) fn retry(&mut self, now: Duration) {
        self.due = Some(now + INTERVAL);
    }
}

/// Names of the running processes: of the program's file, and of its first argument.
pub(crate) fn processes() -> HashMap<String, usize> {
    let mut names = HashMap::new();
    let entries = fs::read_dir("/proc").into_iter().flatten().flatten();
    for entry in entries {
        let is_process = entry
            .file_name()
            .to_str()
            .is_some_and(|it| it.parse::<u32>().is_ok());
        if !is_process {
            continue;
        }
        let comm = fs::read_to_string(entry.path().join("comm")).unwrap_or_default();
        let line = fs::read(entry.path().join("cmdline")).unwrap_or_default();
        let first = line.split(|byte| *byte == 0).next().unwrap_or_default();
        let program = String::from_utf8_lossy(first);
        let program = program.rsplit('/').next().unwrap_or_default().to_owned();
        let comm = comm.trim_end().to_owned();
        if comm != program {
            *names.entry(program).or_default() += 1;
        }
        *names.entry(comm).or_default() += 1;
    }
    names
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::TrackScript;

    #[test]
    fn results_count_before_a_state_changes() {
        let script = TrackScript {
            command: vec!["/bin/true".to_owned()],
            interval: Duration::from_secs(2),
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
            user: "root".to_owned(),
        };
        let mut watched = Watched {
            router: 0,
            object: 0,
            what: TrackObject::Script(script),
            due: None,
            against: 0,
            state: TrackedState::Unknown,
        };
        let now = Duration::from_secs(10);
        let (up, down) = (TrackedOutcome::Up, TrackedOutcome::Down);
        let states: Vec<TrackedState> = [up, down, down, up, down, down, down, up, up]
            .into_iter()
            .map(|outcome| watched.finish(outcome, now))
            .collect();
        use TrackedState::{Down, Up};
        assert_eq!(states, [Up, Up, Up, Up, Up, Up, Down, Down, Up]);
        assert_eq!(watched.due(), Some(Duration::from_secs(12)));
    }

    #[test]
    fn own_process_is_found() {
        let own = fs::read_to_string("/proc/self/comm").unwrap();
        assert!(processes().contains_key(own.trim_end()));
    }
}
