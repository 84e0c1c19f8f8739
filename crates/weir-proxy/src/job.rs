//! Runs jobs that would block a worker (password verification, file reads) on other threads.
//!
//! A job's result is sent to the session that submitted it. Threads are started on demand, when jobs are submitted. The
//! queue is bounded, so a job can be rejected, which the caller must handle.

use std::collections::VecDeque;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;

use crate::job_result::{JobResult, Ticket};
use crate::queue::{Inbox, Notification};
use crate::slab::Key;

/// Verifies passwords. There are only a few threads, because each can saturate a CPU.
pub(crate) static PASSWORDS: JobPool = JobPool::new("weir-password", 2, 256);
/// Opens and reads files.
pub(crate) static FILES: JobPool = JobPool::new("weir-file", 4, 4096);

type Work = Box<dyn FnOnce() -> JobResult + Send>;

struct Job {
    key: Key,
    ticket: Ticket,
    inbox: Arc<Inbox>,
    work: Work,
}

/// A thread pool with a bounded queue of jobs.
pub(crate) struct JobPool {
    name: &'static str,
    max_threads: usize,
    max_queued: usize,
    state: Mutex<State>,
    ready: Condvar,
}

struct State {
    queue: VecDeque<Job>,
    threads: usize,
    idle: usize,
}

impl JobPool {
    const fn new(name: &'static str, max_threads: usize, max_queued: usize) -> Self {
        Self {
            name,
            max_threads,
            max_queued,
            state: Mutex::new(State {
                queue: VecDeque::new(),
                threads: 0,
                idle: 0,
            }),
            ready: Condvar::new(),
        }
    }

    /// Submits a job. Its result is sent through `inbox` to the session `key`. Returns false if the job was rejected,
    /// because the queue is full or no thread could be started.
    pub(crate) fn submit(
        &'static self,
        key: Key,
        ticket: Ticket,
        inbox: &Arc<Inbox>,
        work: impl FnOnce() -> JobResult + Send + 'static,
    ) -> bool {
        let mut state = lock(&self.state);
        if state.queue.len() >= self.max_queued {
            return false;
        }
        if state.idle <= state.queue.len() && state.threads < self.max_threads {
            let result = thread::Builder::new()
                .name(self.name.to_owned())
                .spawn(move || self.run());
            match result {
                Ok(_) => state.threads += 1,
                Err(error) => {
                    tracing::error!(%error, "failed to start a {} thread", self.name);
                    if state.threads == 0 {
                        return false;
                    }
                }
            }
        }
        state.queue.push_back(Job {
            key,
            ticket,
            inbox: Arc::clone(inbox),
            work: Box::new(work),
        });
        drop(state);
        self.ready.notify_one();
        true
    }

    fn run(&self) {
        loop {
            let job = self.next_job();
            let result = catch_unwind(AssertUnwindSafe(job.work));
            let result = result.unwrap_or_else(|_| {
                tracing::error!("a job panicked on a {} thread", self.name);
                JobResult::Failed
            });
            job.inbox
                .put(job.key, Notification::Done(job.ticket, result));
        }
    }

    fn next_job(&self) -> Job {
        let mut state = lock(&self.state);
        loop {
            if let Some(job) = state.queue.pop_front() {
                return job;
            }
            state.idle += 1;
            state = self
                .ready
                .wait(state)
                .unwrap_or_else(PoisonError::into_inner);
            state.idle -= 1;
        }
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
