//! Finds running processes by name, in a thread of normal priority.
//!
//! The helper has real-time priority and changes addresses, so it must not read the process list itself: with thousands
//! of processes this takes milliseconds, and reading the command line of a process waits for that process's memory
//! lock, which can take forever. A search for which no result arrives leaves the tracked object in its last state.

use std::collections::HashSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::sync::oneshot;
use tokio::time::timeout;

/// Timeout of a search.
const SEARCH_TIMEOUT: Duration = Duration::from_secs(5);

/// A handle to the thread, which is started with the first search.
#[derive(Debug, Default)]
pub(crate) struct ProcessFinder {
    queue: Arc<Queue>,
    is_started: bool,
}

#[derive(Debug, Default)]
struct Queue {
    searches: Mutex<Vec<Search>>,
    added: Condvar,
}

#[derive(Debug)]
struct Search {
    name: String,
    result: oneshot::Sender<bool>,
}

impl Queue {
    fn lock(&self) -> MutexGuard<'_, Vec<Search>> {
        self.searches.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn add(&self, search: Search) {
        let mut searches = self.lock();
        // A search that has timed out must not remain in the queue while the thread is blocked.
        searches.retain(|it| !it.result.is_closed());
        searches.push(search);
        self.added.notify_one();
    }

    /// Waits for searches, and returns all of them.
    fn take(&self) -> Vec<Search> {
        let mut searches = self.lock();
        while searches.is_empty() {
            let waited = self.added.wait(searches);
            searches = waited.unwrap_or_else(PoisonError::into_inner);
        }
        std::mem::take(&mut searches)
    }
}

impl ProcessFinder {
    /// Starts a search for a process with this name: the kernel's name (`comm`, proc_pid_comm(5)), or the file name of
    /// its first argument. The returned future yields whether such a process is running, or why this is unknown.
    pub(crate) fn find(
        &mut self,
        name: &str,
    ) -> impl Future<Output = Result<bool, String>> + Send + use<> {
        let is_started = self.start();
        let (result, receiver) = oneshot::channel();
        self.queue.add(Search {
            name: name.to_owned(),
            result,
        });
        async move {
            is_started?;
            match timeout(SEARCH_TIMEOUT, receiver).await {
                Ok(Ok(is_running)) => Ok(is_running),
                Ok(Err(_)) | Err(_) => {
                    let seconds = SEARCH_TIMEOUT.as_secs();
                    Err(format!("/proc could not be read within {seconds} s"))
                }
            }
        }
    }

    fn start(&mut self) -> Result<(), String> {
        if self.is_started {
            return Ok(());
        }
        let queue = Arc::clone(&self.queue);
        // The kernel resets the scheduling class of new threads (SCHED_RESET_ON_FORK).
        let thread = std::thread::Builder::new().name("processes".to_owned());
        let started = thread.spawn(move || {
            let mut is_hidden = false;
            loop {
                search(Path::new("/proc"), queue.take(), &mut is_hidden);
            }
        });
        started.map_err(|error| format!("failed to start a thread: {error}"))?;
        self.is_started = true;
        Ok(())
    }
}

/// Executes searches. The kernel's names are read first, because this never waits; searches that find their process in
/// this way get their results before the first command line is read. `is_hidden` stores whether the processes of other
/// users are hidden, so the log reports this only once.
fn search(proc: &Path, searches: Vec<Search>, is_hidden: &mut bool) {
    let was_hidden = std::mem::replace(is_hidden, fs::metadata(proc.join("1/comm")).is_err());
    if *is_hidden && !was_hidden {
        tracing::error!(
            "processes of other users are hidden, because /proc is mounted with `hidepid`: `process` in `track` may \
             report them as not running; mount /proc without `hidepid`, or track a `script`"
        );
    }
    let processes = processes(proc);
    let names: HashSet<String> = processes.iter().filter_map(|it| kernel_name(it)).collect();
    let mut missing = Vec::new();
    for search in searches {
        match names.contains(&search.name) {
            true => drop(search.result.send(true)),
            false => missing.push(search),
        }
    }
    for process in &processes {
        if missing.is_empty() {
            return;
        }
        let program = program_name(process);
        for found in missing.extract_if(.., |it| Some(&it.name) == program.as_ref()) {
            let _ = found.result.send(true);
        }
    }
    for search in missing {
        let _ = search.result.send(false);
    }
}

/// Returns the directories of all processes.
fn processes(proc: &Path) -> Vec<PathBuf> {
    let entries = fs::read_dir(proc).into_iter().flatten().flatten();
    let is_process = |name: &str| name.parse::<u32>().is_ok();
    entries
        .filter(|entry| entry.file_name().to_str().is_some_and(is_process))
        .map(|entry| entry.path())
        .collect()
}

fn kernel_name(process: &Path) -> Option<String> {
    let name = fs::read(process.join("comm")).ok()?;
    let name = String::from_utf8_lossy(&name);
    Some(name.trim_end_matches('\n').to_owned())
}

/// Returns the file name of the first argument.
fn program_name(process: &Path) -> Option<String> {
    let command_line = fs::read(process.join("cmdline")).ok()?;
    let path = command_line.split(|byte| *byte == 0).next()?;
    let name = path.rsplit(|byte| *byte == b'/').next()?;
    Some(String::from_utf8_lossy(name).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A directory that resembles `/proc`.
    struct Proc(PathBuf);

    impl Proc {
        fn new(test: &str) -> Self {
            let name = format!("weir-process-{test}-{}", std::process::id());
            let path = std::env::temp_dir().join(name);
            let _ = fs::remove_dir_all(&path);
            let proc = Self(path);
            proc.add(1, "init", "/sbin/init\0");
            proc
        }

        fn add(&self, process: u32, name: &str, command_line: &str) -> PathBuf {
            let directory = self.0.join(process.to_string());
            fs::create_dir_all(&directory).unwrap();
            fs::write(directory.join("comm"), format!("{name}\n")).unwrap();
            fs::write(directory.join("cmdline"), command_line).unwrap();
            directory
        }
    }

    impl Drop for Proc {
        fn drop(&mut self) {
            let _ = fs::remove_dir_all(&self.0);
        }
    }

    fn searches(names: &[&str]) -> (Vec<Search>, Vec<oneshot::Receiver<bool>>) {
        let channels = names.iter().map(|name| {
            let (result, receiver) = oneshot::channel();
            let name = (*name).to_owned();
            (Search { name, result }, receiver)
        });
        channels.unzip()
    }

    #[test]
    fn process_is_found_by_kernel_name_and_by_program() {
        let proc = Proc::new("names");
        proc.add(17, "nginx", "nginx: master process /usr/sbin/nginx\0");
        proc.add(
            18,
            "a-program-with-a",
            "/opt/bin/a-program-with-a-long-name\0-x\0",
        );
        fs::create_dir(proc.0.join("self")).unwrap();
        let names = [
            "nginx",
            "a-program-with-a-long-name",
            "init",
            "haproxy",
            "-x",
        ];
        let (searches, receivers) = searches(&names);
        search(&proc.0, searches, &mut false);
        let found = receivers.into_iter().map(|it| it.blocking_recv().unwrap());
        assert_eq!(found.collect::<Vec<_>>(), [true, true, true, false, false]);
    }

    /// Reading the command line of a process can block. A FIFO without a writer does the same.
    #[test]
    fn process_that_blocks_readers_delays_only_searches_that_need_it() {
        let proc = Proc::new("blocked");
        let blocked = proc.add(17, "blocked", "").join("cmdline");
        proc.add(18, "haproxy", "/usr/sbin/haproxy\0");
        fs::remove_file(&blocked).unwrap();
        let mode = rustix::fs::Mode::RUSR | rustix::fs::Mode::WUSR;
        let fifo = rustix::fs::FileType::Fifo;
        rustix::fs::mknodat(rustix::fs::CWD, &blocked, fifo, mode, 0).unwrap();
        let (searches, mut receivers) = searches(&["haproxy", "blocked", "absent"]);
        let directory = proc.0.clone();
        let thread = std::thread::spawn(move || search(&directory, searches, &mut false));
        let absent = receivers.pop().unwrap();
        for found in receivers {
            assert!(found.blocking_recv().unwrap());
        }
        // The reader receives an end of file.
        drop(fs::OpenOptions::new().write(true).open(&blocked).unwrap());
        assert!(!absent.blocking_recv().unwrap());
        thread.join().unwrap();
    }

    #[test]
    fn abandoned_searches_leave_the_queue() {
        let queue = Queue::default();
        let add = |name: &str| {
            let (result, receiver) = oneshot::channel();
            let name = name.to_owned();
            queue.add(Search { name, result });
            receiver
        };
        drop(add("timed out"));
        let _waiting = add("waiting");
        let names = queue.take().into_iter().map(|it| it.name);
        assert_eq!(names.collect::<Vec<_>>(), ["waiting"]);
    }

    #[test]
    fn hidden_processes_are_detected() {
        let proc = Proc::new("hidden");
        let mut is_hidden = false;
        search(&proc.0, Vec::new(), &mut is_hidden);
        assert!(!is_hidden);
        fs::remove_dir_all(proc.0.join("1")).unwrap();
        search(&proc.0, Vec::new(), &mut is_hidden);
        assert!(is_hidden);
    }

    #[tokio::test]
    async fn running_process_is_found_through_the_thread() {
        let name = fs::read_to_string("/proc/self/comm").unwrap();
        let mut finder = ProcessFinder::default();
        assert_eq!(finder.find(name.trim_end()).await, Ok(true));
        assert_eq!(finder.find("no such process").await, Ok(false));
    }
}
