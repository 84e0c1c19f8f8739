//! Stores the event log filter, which can be changed at run time.
//!
//! The program that starts the log registers a function that changes the filter. `POST /v1/log` calls this function.

use std::sync::{Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

/// A function that changes the log filter.
type Change = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The registered log.
struct Log {
    change: Change,
    filter: Mutex<String>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// The active filter: the response to `GET /v1/log`, and the body of `POST /v1/log`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// `LEVEL`, or `LEVEL,TARGET=LEVEL,…`, where each target is a crate or a module.
    pub filter: String,
}

/// Registers this process's log and its initial filter. A second registration has no effect.
pub fn register(filter: &str, change: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) {
    let log = Log {
        change: Box::new(change),
        filter: Mutex::new(filter.to_owned()),
    };
    drop(LOG.set(log));
}

/// Returns the active filter; `None` = no log is registered.
pub fn active() -> Option<Filter> {
    let filter = &LOG.get()?.filter;
    let filter = filter.lock().unwrap_or_else(PoisonError::into_inner);
    Some(Filter {
        filter: filter.clone(),
    })
}

/// Changes the filter until the process ends.
///
/// # Errors
/// Returns a one-line message if the filter is invalid or no log is registered. Nothing changes then.
pub fn change(new: &Filter) -> Result<(), String> {
    let log = LOG.get().ok_or("this process has no log")?;
    check(&new.filter)?;
    let mut filter = log.filter.lock().unwrap_or_else(PoisonError::into_inner);
    (log.change)(&new.filter)?;
    let (from, to) = (filter.as_str(), new.filter.as_str());
    tracing::info!(from, to, "changed the log levels");
    filter.clone_from(&new.filter);
    Ok(())
}

/// Checks a filter.
///
/// # Errors
/// Returns a one-line message if the filter is invalid.
pub fn check(filter: &str) -> Result<(), String> {
    const LEVELS: [&str; 6] = ["off", "error", "warn", "info", "debug", "trace"];
    for part in filter.split(',') {
        let (target, level) = match part.split_once('=') {
            Some((target, level)) => (Some(target), level),
            None => (None, part),
        };
        if !LEVELS.contains(&level) {
            let levels = LEVELS.join(", ");
            return Err(format!("unknown level `{level}`; use one of {levels}"));
        }
        let is_path = |byte: u8| byte.is_ascii_alphanumeric() || b"_:".contains(&byte);
        if target.is_some_and(|target| target.is_empty() || !target.bytes().all(is_path)) {
            return Err(format!(
                "`{part}`: the target must be a crate or a module, such as weir_proxy"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn filter_must_be_a_list_of_levels_and_targets() {
        for valid in [
            "info",
            "warn,weir_proxy=debug",
            "info,weir_control::daemon=trace,weir_engine=off",
        ] {
            assert_eq!(check(valid), Ok(()), "{valid}");
        }
        for invalid in [
            "",
            "loud",
            "info,",
            "info,=debug",
            "info,weir proxy=debug",
            "info,weir_proxy[x]=info",
        ] {
            assert!(check(invalid).is_err(), "{invalid}");
        }
    }
}
