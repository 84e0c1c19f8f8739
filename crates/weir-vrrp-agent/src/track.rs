//! Schedules the checks of tracked objects, and determines their states from the results.

use std::time::Duration;

use weir_helper::TrackedOutcome;
use weir_model::{Track, TrackObject};
use weir_vrrp::{Effect, TrackConfig, TrackedState};

/// Interval between process and file checks, and delay before a check is retried.
const CHECK_INTERVAL: Duration = Duration::from_secs(1);

/// A tracked object of a virtual router.
#[derive(Debug)]
pub(crate) struct TrackedObject {
    /// Index of the virtual router.
    pub(crate) router: usize,
    /// Index among the virtual router's tracked objects.
    pub(crate) object: usize,
    pub(crate) kind: TrackObject,
    /// When to check the object; `None` while a result is pending, and for objects whose state the daemon or netlink
    /// reports.
    due: Option<Duration>,
    /// Number of consecutive results that contradict the state.
    contradictions: u32,
    state: TrackedState,
}

pub(crate) const fn up_or_down(is_up: bool) -> TrackedState {
    if is_up {
        TrackedState::Up
    } else {
        TrackedState::Down
    }
}

/// Returns the settings of a tracked object for the state machine.
pub(crate) fn settings(track: &Track) -> TrackConfig {
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
    let identity = format!("{:?}", track.object);
    let effect = match (&track.object, track.bonus, track.penalty) {
        (TrackObject::File(_), 0, 0) => Effect::Factor(i16::from(!track.fault)),
        (TrackObject::File(_), bonus, penalty) => {
            Effect::Factor(i16::from(bonus) - i16::from(penalty))
        }
        (_, 0, 0) => Effect::Fault,
        (_, bonus, penalty) => Effect::Weight { bonus, penalty },
    };
    TrackConfig {
        name,
        identity,
        effect,
    }
}

/// Returns the tracked objects of a virtual router. Objects that are in `previous`, the list before a reload, keep
/// their states and schedules. A check whose result was pending is repeated.
pub(crate) fn tracked_objects(
    router: usize,
    track: &[Track],
    mut previous: Vec<TrackedObject>,
    now: Duration,
) -> Vec<TrackedObject> {
    let mut objects = Vec::new();
    for (object, track) in track.iter().enumerate() {
        let is_polled = matches!(
            track.object,
            TrackObject::Process(_) | TrackObject::File(_) | TrackObject::Script(_)
        );
        let index = previous.iter().position(|it| it.kind == track.object);
        let previous_object = index.map(|index| previous.swap_remove(index));
        let due = previous_object
            .as_ref()
            .and_then(TrackedObject::due)
            .unwrap_or(now);
        objects.push(TrackedObject {
            router,
            object,
            kind: track.object.clone(),
            due: is_polled.then_some(due),
            contradictions: previous_object.as_ref().map_or(0, |it| it.contradictions),
            state: previous_object.map(|it| it.state).unwrap_or_default(),
        });
    }
    objects
}

impl TrackedObject {
    /// Returns when the next check is due, or `None` if no check is scheduled.
    pub(crate) const fn due(&self) -> Option<Duration> {
        self.due
    }

    /// Records that a check has started.
    pub(crate) const fn start(&mut self) {
        self.due = None;
    }

    /// Applies the result of a check and returns the new state.
    pub(crate) fn finish(&mut self, outcome: TrackedOutcome, now: Duration) -> TrackedState {
        let (rise, fall) = match &self.kind {
            TrackObject::Script(script) => {
                self.due = Some(now + script.interval);
                (script.rise, script.fall)
            }
            _ => {
                self.due = Some(now + CHECK_INTERVAL);
                (1, 1)
            }
        };
        let (new_state, results_needed) = match outcome {
            TrackedOutcome::Up => (TrackedState::Up, rise),
            TrackedOutcome::Down => (TrackedState::Down, fall),
            TrackedOutcome::Number(number) => (TrackedState::Number(number), 1),
        };
        if new_state == self.state {
            self.contradictions = 0;
            return self.state;
        }
        self.contradictions += 1;
        // The first result sets the state immediately.
        if self.state == TrackedState::Unknown || self.contradictions >= results_needed {
            self.state = new_state;
            self.contradictions = 0;
        }
        self.state
    }

    /// Schedules another check after a check that produced no result.
    pub(crate) fn retry(&mut self, now: Duration) {
        self.due = Some(now + CHECK_INTERVAL);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use weir_model::TrackScript;

    fn track(object: TrackObject) -> Track {
        Track {
            object,
            penalty: 0,
            bonus: 0,
            fault: false,
        }
    }

    fn script(interval: Duration) -> Track {
        track(TrackObject::Script(TrackScript {
            command: vec!["/bin/true".to_owned()],
            interval,
            timeout: Duration::from_secs(1),
            rise: 2,
            fall: 3,
            user: "root".to_owned(),
        }))
    }

    #[test]
    fn state_changes_after_rise_and_fall_results() {
        let now = Duration::from_secs(10);
        let script = script(Duration::from_secs(2));
        let mut objects = tracked_objects(0, &[script], Vec::new(), now);
        let tracked = &mut objects[0];
        let (up, down) = (TrackedOutcome::Up, TrackedOutcome::Down);
        let states: Vec<TrackedState> = [up, down, down, up, down, down, down, up, up]
            .into_iter()
            .map(|outcome| tracked.finish(outcome, now))
            .collect();
        use TrackedState::{Down, Up};
        assert_eq!(states, [Up, Up, Up, Up, Up, Up, Down, Down, Up]);
        assert_eq!(tracked.due(), Some(Duration::from_secs(12)));
    }

    #[test]
    fn unchanged_objects_keep_state_and_schedule_after_reload() {
        let second = Duration::from_secs;
        let (script, changed) = (script(second(2)), script(second(5)));
        let interface = track(TrackObject::Interface("eth1".to_owned()));
        let mut objects = tracked_objects(0, std::slice::from_ref(&script), Vec::new(), second(10));
        assert_eq!(objects[0].due(), Some(second(10)));
        objects[0].finish(TrackedOutcome::Up, second(10));
        objects[0].finish(TrackedOutcome::Down, second(12));

        let mut objects = tracked_objects(1, &[interface, script.clone()], objects, second(13));
        let (interface, object) = (&objects[0], &objects[1]);
        assert_eq!(
            (interface.state, interface.due()),
            (TrackedState::Unknown, None)
        );
        assert_eq!((object.router, object.object), (1, 1));
        assert_eq!(
            (object.state, object.due()),
            (TrackedState::Up, Some(second(14)))
        );
        objects[1].finish(TrackedOutcome::Down, second(14));
        // A pending check is repeated. Three failures are required in total.
        objects[1].start();
        let mut objects = tracked_objects(0, &[script], objects, second(15));
        assert_eq!(objects[0].due(), Some(second(15)));
        assert_eq!(objects[0].state, TrackedState::Up);
        let state = objects[0].finish(TrackedOutcome::Down, second(15));
        assert_eq!(state, TrackedState::Down);

        let objects = tracked_objects(0, &[changed], objects, second(16));
        let object = &objects[0];
        assert_eq!(
            (object.state, object.due()),
            (TrackedState::Unknown, Some(second(16)))
        );
    }

    #[test]
    fn keys_of_a_file_determine_its_factor() {
        let effect = |penalty, bonus, fault| {
            let object = TrackObject::File("/run/weight".to_owned());
            let track = Track {
                object,
                penalty,
                bonus,
                fault,
            };
            settings(&track).effect
        };
        assert_eq!(effect(0, 0, false), Effect::Factor(1));
        assert_eq!(effect(0, 9, false), Effect::Factor(9));
        assert_eq!(effect(254, 0, false), Effect::Factor(-254));
        assert_eq!(effect(0, 0, true), Effect::Factor(0));
        let process = settings(&track(TrackObject::Process("nginx".to_owned())));
        assert_eq!(process.effect, Effect::Fault);
    }
}
