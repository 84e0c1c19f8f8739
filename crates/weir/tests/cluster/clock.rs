//! Tests a group with a director whose clock jumps, and one with a director that is suspended.

use std::collections::BTreeSet;
use std::process::Command;
use std::time::Instant;

use rustix::process::{Pid, Signal, kill_process};

use super::*;

/// A library that adds the number in a file to the seconds of the wall clock and leaves other clocks unchanged.
const SHIFTED_CLOCK: &str = r#"
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdint.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile int64_t *shift;

__attribute__((constructor)) static void open_shift(void)
{
	const char *path = getenv("CLOCK_SHIFT");
	int fd = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
	void *mapped;

	if (fd < 0)
		return;
	mapped = mmap(NULL, sizeof(*shift), PROT_READ, MAP_SHARED, fd, 0);
	if (mapped != MAP_FAILED)
		shift = mapped;
	close(fd);
}

int clock_gettime(clockid_t clock, struct timespec *now)
{
	long result = syscall(SYS_clock_gettime, clock, now);

	if (!result && shift && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE))
		now->tv_sec += *shift;
	return (int)result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone)
{
	struct timespec precise;

	(void)zone;
	clock_gettime(CLOCK_REALTIME, &precise);
	now->tv_sec = precise.tv_sec;
	now->tv_usec = precise.tv_nsec / 1000;
	return 0;
}

time_t time(time_t *result)
{
	struct timespec now;

	clock_gettime(CLOCK_REALTIME, &now);
	if (result)
		*result = now.tv_sec;
	return now.tv_sec;
}
"#;

const DAY_S: i64 = 86_400;

impl Group {
    /// Makes daemons that start afterwards use the shifted clock.
    fn use_shifted_clock(&mut self) {
        let (source, library) = (self.world.path("clock.c"), self.world.path("clock.so"));
        fs::write(&source, SHIFTED_CLOCK).expect("write the file");
        let output = Command::new("cc")
            .args(["-shared", "-fPIC", "-O1", "-o"])
            .arg(&library)
            .arg(&source)
            .output()
            .expect("run cc");
        assert!(output.status.success(), "{output:?}");
        self.shift_clock(0);
        let shift = self.world.path("clock");
        self.environment = vec![("LD_PRELOAD", library), ("CLOCK_SHIFT", shift)];
    }

    /// Sets the offset of the daemons' clock from the machine's clock, in seconds.
    fn shift_clock(&self, seconds: i64) {
        use std::os::unix::fs::FileExt;
        // The daemons map the file, so it must not be replaced.
        let file = fs::OpenOptions::new()
            .create(true)
            .write(true)
            .truncate(false)
            .open(self.world.path("clock"));
        let file = file.expect("open the file");
        file.write_all_at(&seconds.to_ne_bytes(), 0)
            .expect("write the file");
    }

    /// Returns the dates in a director's log.
    fn log_dates(&self, n: usize) -> BTreeSet<String> {
        let log = fs::read_to_string(self.world.path(&format!("{}.log", DIRECTORS[n])));
        let log = log.expect("read the log");
        let dates = log.lines().filter_map(|line| line.split_once('T'));
        let dates = dates.map(|(date, _)| date.to_owned());
        dates.filter(|it| it.len() == "2026-11-27".len()).collect()
    }

    /// Asserts for `duration` that the directors reach each other, etcd and all servers.
    fn assert_stable(&self, duration: Duration) {
        let end = Instant::now() + duration;
        while Instant::now() < end {
            for n in 0..2 {
                let status = self.group(n);
                assert_eq!(self.present_members(n), 2, "director {n}: {status}");
                assert_eq!(status["etcd"], "connected", "director {n}: {status}");
                for server in SERVERS {
                    assert_eq!(self.state(n, server), "up", "director {n}");
                }
            }
            std::thread::sleep(Duration::from_millis(200));
        }
    }

    /// Sends a signal to all processes of a director.
    fn signal(&self, n: usize, signal: Signal) {
        let keeper = self.directors[n]
            .as_ref()
            .expect("director is not running")
            .id();
        let children = fs::read_to_string(format!("/proc/{keeper}/task/{keeper}/children"));
        let children = children.expect("read the children");
        let pids = children.split_whitespace().map(str::to_owned);
        for pid in pids.chain([keeper.to_string()]) {
            let pid = Pid::from_raw(pid.parse().expect("parse the number"));
            kill_process(pid.expect("invalid process ID"), signal).expect("send a signal");
        }
    }
}

/// etcd measures leases with the monotonic clock, and directors measure durations with it.
#[test]
fn clock_jumps_do_not_affect_group() {
    if !privileged() {
        return;
    }
    let mut group = Group::new(1, 2);
    group.use_shifted_clock();
    group.start(1);
    // Only the second director's clock jumps.
    group.environment.clear();
    group.start(0);
    wait_for("all members", TIMEOUT, || group.present_members(0) == 2);
    let output = group.publish(0, &config(8080, &SERVERS), "0s");
    assert!(output.status.success(), "{output:?}");
    for n in 0..2 {
        wait_for("the servers", TIMEOUT, || {
            SERVERS.iter().all(|it| group.state(n, it) == "up")
        });
    }
    let load = Load::start(&group);
    for (round, seconds) in (2..).zip([DAY_S, -2 * DAY_S, 20 * 365 * DAY_S, 0]) {
        group.shift_clock(seconds);
        // Wait longer than a lease.
        group.assert_stable(Duration::from_secs(3));
        let weight = round.to_string();
        group.run_weir(1, &["server", "web/10.71.0.20:80", "weight", &weight]);
        wait_for("the weight", TIMEOUT, || {
            group.servers(0)[0]["effective_weight"] == round
        });
        let output = group.publish(1, &config(8080, &SERVERS), "1s");
        assert!(output.status.success(), "{output:?}");
        for n in 0..2 {
            assert_eq!(group.group(n)["version"], round, "director {n}");
        }
    }
    load.assert_nothing_failed();
    let dates = group.log_dates(1);
    assert!(dates.len() >= 4, "the clock did not jump: {dates:?}");
}

/// A suspended director loses its lease. When it resumes, it adopts the newer state and does not overwrite it.
#[test]
fn suspended_director_adopts_newer_state() {
    if !privileged() {
        return;
    }
    let mut group = Group::new(1, 2);
    group.start_all();
    let output = group.publish(0, &config(8080, &SERVERS), "0s");
    assert!(output.status.success(), "{output:?}");
    group.run_weir(1, &["server", "web/10.71.0.20:80", "weight", "5"]);
    wait_for("the weight", TIMEOUT, || {
        group.servers(0)[0]["effective_weight"] == 5
    });
    group.signal(1, Signal::STOP);
    wait_for("the lease to expire", TIMEOUT, || {
        group.present_members(0) == 1
    });
    group.run_weir(0, &["server", "web/10.71.0.20:80", "weight", "9"]);
    let output = group.publish(0, &config(8081, &SERVERS), "0s");
    assert!(output.status.success(), "{output:?}");
    group.signal(1, Signal::CONT);
    for n in 0..2 {
        wait_for("the members", TIMEOUT, || group.present_members(n) == 2);
        wait_for("the version", TIMEOUT, || group.group(n)["version"] == 2);
        wait_for("the weight", TIMEOUT, || {
            group.servers(n)[0]["effective_weight"] == 9
        });
    }
    assert!(group.serves(1, 8081) && !group.serves(1, 8080));
    assert_eq!(group.group(0)["published"], 2);
    assert_eq!(group.servers(0)[0]["effective_weight"], 9);
}
