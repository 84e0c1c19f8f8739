//! Moments as operators read them: RFC 3339 in UTC, whole seconds.

use std::time::{SystemTime, UNIX_EPOCH};

const SECONDS_PER_DAY: u64 = 86_400;

/// `2026-11-20T19:00:00Z`. A moment before 1970 is shown as its first second.
pub fn rfc3339(moment: SystemTime) -> String {
    let seconds = moment
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| since.as_secs());
    let (year, month, day) = civil(seconds / SECONDS_PER_DAY);
    let second = seconds % SECONDS_PER_DAY;
    format!(
        "{year:04}-{month:02}-{day:02}T{:02}:{:02}:{:02}Z",
        second / 3600,
        second / 60 % 60,
        second % 60
    )
}

/// Year, month and day of a number of days since 1970-01-01 in the Gregorian calendar.
///
/// Years are counted from March, which puts the leap day at the end of a year, and in eras of 400 years, which all have
/// the same length.
const fn civil(days_since_1970: u64) -> (u64, u64, u64) {
    const DAYS_PER_ERA: u64 = 146_097;
    const DAYS_FROM_0000_03_01: u64 = 719_468;
    let days = days_since_1970 + DAYS_FROM_0000_03_01;
    let era = days / DAYS_PER_ERA;
    let day_of_era = days % DAYS_PER_ERA;
    let year_of_era =
        (day_of_era - day_of_era / 1460 + day_of_era / 36_524 - day_of_era / 146_096) / 365;
    let day_of_year = day_of_era - (365 * year_of_era + year_of_era / 4 - year_of_era / 100);
    let month_from_march = (5 * day_of_year + 2) / 153;
    let day = day_of_year - (153 * month_from_march + 2) / 5 + 1;
    let month = if month_from_march < 10 {
        month_from_march + 3
    } else {
        month_from_march - 9
    };
    let year = year_of_era + era * 400 + (month <= 2) as u64;
    (year, month, day)
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    fn at(seconds: u64) -> String {
        rfc3339(UNIX_EPOCH + Duration::from_secs(seconds))
    }

    #[test]
    fn known_moments() {
        assert_eq!(at(0), "1970-01-01T00:00:00Z");
        assert_eq!(at(951_782_399), "2000-02-28T23:59:59Z");
        assert_eq!(at(951_782_400), "2000-02-29T00:00:00Z");
        assert_eq!(at(4_107_542_400), "2100-03-01T00:00:00Z");
        assert_eq!(at(1_795_201_200), "2026-11-20T19:00:00Z");
    }

    #[test]
    fn every_day_of_four_centuries_follows_the_one_before() {
        let mut before = civil(0);
        for day in 1..=146_097 {
            let now = civil(day);
            let next_day = now == (before.0, before.1, before.2 + 1);
            let next_month = now == (before.0, before.1 + 1, 1) && before.2 >= 28;
            let next_year = now == (before.0 + 1, 1, 1) && (before.1, before.2) == (12, 31);
            assert!(next_day || next_month || next_year, "{before:?} {now:?}");
            before = now;
        }
        assert_eq!(before, (2370, 1, 1));
    }
}
