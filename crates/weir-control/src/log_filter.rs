//! The levels of the event log, which can be changed at run time.
//!
//! The program that starts the log registers how to change it; the API does so by `POST /v1/log`.

use std::sync::{Mutex, OnceLock, PoisonError};

use serde::{Deserialize, Serialize};

/// Changes the filter of the log.
type Change = Box<dyn Fn(&str) -> Result<(), String> + Send + Sync>;

/// The registered log.
struct Log {
    change: Change,
    filter: Mutex<String>,
}

static LOG: OnceLock<Log> = OnceLock::new();

/// The active filter: `GET /v1/log`, and the body of `POST /v1/log`.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Filter {
    /// `LEVEL`, or `LEVEL,TARGET=LEVEL` and more targets, where a target is a crate or one of its modules.
    pub filter: String,
}

/// Registers the log of this process and its first filter. A second registration has no effect.
pub fn register(filter: &str, change: impl Fn(&str) -> Result<(), String> + Send + Sync + 'static) {
    let log = Log {
        change: Box::new(change),
        filter: Mutex::new(filter.to_owned()),
    };
    drop(LOG.set(log));
}

/// The active filter; `None` = no log is registered.
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
/// The filter is invalid, in one line; nothing changed.
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
/// What is wrong, in one line.
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
                "`{part}`: a target is a crate or a module, such as weir_proxy"
            ));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::check;

    #[test]
    fn filter_is_a_list_of_levels_and_targets() {
        for right in [
            "info",
            "warn,weir_proxy=debug",
            "info,weir_control::daemon=trace,weir_engine=off",
        ] {
            assert_eq!(check(right), Ok(()), "{right}");
        }
        for wrong in [
            "",
            "loud",
            "info,",
            "info,=debug",
            "info,weir proxy=debug",
            "info,weir_proxy[x]=info",
        ] {
            assert!(check(wrong).is_err(), "{wrong}");
        }
    }
}
