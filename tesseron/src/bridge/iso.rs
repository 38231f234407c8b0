//! Wall-clock times in ISO 8601.

use alloc::format;
use alloc::string::String;

const DAY_MS: u64 = 24 * 60 * 60 * 1000;

/// A time in milliseconds since 1970, in ISO 8601 and UTC. `None` after the year 9999.
pub(super) fn iso_8601(epoch_ms: u64) -> Option<String> {
    let (mut days, ms_of_day) = (epoch_ms / DAY_MS, epoch_ms % DAY_MS);
    // Returns `true` if the day is one of the next `length` days; otherwise skips these days.
    let mut lies_within = |length: u64| match days.checked_sub(length) {
        Some(left) => {
            days = left;
            false
        }
        None => true,
    };
    let is_leap = |year: u64| year.is_multiple_of(4) && (!year.is_multiple_of(100) || year.is_multiple_of(400));
    let year = (1970..=9999).find(|year| lies_within(if is_leap(*year) { 366 } else { 365 }))?;
    let february = if is_leap(year) { 29 } else { 28 };
    let lengths = [31, february, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31];
    let (month, _) = (1..).zip(lengths).find(|(_, length)| lies_within(*length))?;
    let day = days.saturating_add(1);
    let (hour, minute, second, millis) = (ms_of_day / 3_600_000, ms_of_day / 60_000 % 60, ms_of_day / 1000 % 60, ms_of_day % 1000);
    Some(format!("{year}-{month:02}-{day:02}T{hour:02}:{minute:02}:{second:02}.{millis:03}Z"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_written_in_iso_8601_up_to_the_year_9999() {
        for (epoch_ms, iso) in [
            (0, "1970-01-01T00:00:00.000Z"),
            (DAY_MS - 1, "1970-01-01T23:59:59.999Z"),
            (951_782_400_000, "2000-02-29T00:00:00.000Z"),
            (951_868_800_000, "2000-03-01T00:00:00.000Z"),
            // Recorded from the reference implementation.
            (1_795_263_186_795, "2026-11-21T12:13:06.795Z"),
            (4_107_542_400_000, "2100-03-01T00:00:00.000Z"),
            (253_402_300_799_999, "9999-12-31T23:59:59.999Z"),
        ] {
            assert_eq!(iso_8601(epoch_ms).as_deref(), Some(iso));
        }
        assert_eq!((iso_8601(253_402_300_800_000), iso_8601(u64::MAX)), (None, None));
    }
}
