//! Formats and parses timestamps in RFC 3339 format, in UTC and whole seconds.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use time::{Date, Month, UtcDateTime};

/// Formats a time as `2026-11-20T19:00:00Z`. Times before 1970 or after the year 9999 are clamped.
pub fn rfc3339(moment: SystemTime) -> String {
    let seconds = moment
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let seconds = i64::try_from(seconds).unwrap_or(i64::MAX);
    let date_time = UtcDateTime::from_unix_timestamp(seconds).unwrap_or(UtcDateTime::MAX);
    let (hour, minute, second) = date_time.as_hms();
    format!(
        "{:04}-{:02}-{:02}T{hour:02}:{minute:02}:{second:02}Z",
        date_time.year(),
        u8::from(date_time.month()),
        date_time.day()
    )
}

/// Parses the output of [`rfc3339`]. Returns the number of seconds since 1970.
pub(crate) fn parse_seconds(text: &str) -> Option<u64> {
    parse(text).map(|since| since.as_secs())
}

/// Parses the output of [`rfc3339`]. Returns the time since 1970.
pub(super) fn parse(text: &str) -> Option<Duration> {
    let number = |start: usize, end: usize| text.get(start..end)?.parse::<u8>().ok();
    let year = text.get(0..4)?.parse().ok()?;
    let month = Month::try_from(number(5, 7)?).ok()?;
    let date = Date::from_calendar_date(year, month, number(8, 10)?).ok()?;
    let date_time = date.with_hms(number(11, 13)?, number(14, 16)?, number(17, 19)?);
    let seconds = date_time.ok()?.assume_utc().unix_timestamp();
    Some(Duration::from_secs(u64::try_from(seconds).ok()?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn format(seconds: u64) -> String {
        rfc3339(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn timestamps_are_formatted_as_rfc3339_and_parsed() {
        assert_eq!(format(0), "1970-01-01T00:00:00Z");
        assert_eq!(format(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(format(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(format(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(format(1_795_201_200), "2026-11-20T19:00:00Z");
        for seconds in [0, 951_782_399, 951_782_400, 4_107_542_400] {
            assert_eq!(parse(&format(seconds)), Some(Duration::from_secs(seconds)));
        }
        assert_eq!(parse("2026-02-30T00:00:00Z"), None);
        assert_eq!(parse("now"), None);
    }
}
