//! Durations and sizes as people write them: a whole number and its unit, nothing left to guess.

use std::time::Duration;

const DURATIONS: [(&str, u64); 5] = [("ms", 1), ("s", 1_000), ("m", 60_000), ("h", 3_600_000), ("d", 86_400_000)];
const SIZES: [(&str, u64); 3] = [("KiB", 1 << 10), ("MiB", 1 << 20), ("B", 1)];

/// Reads `250ms`, `15s`, `2m`, `24h` or `90d`; `None` for anything else.
pub(super) fn duration(text: &str) -> Option<Duration> {
    measure(text, &DURATIONS).map(Duration::from_millis)
}

/// Reads `512B`, `64KiB` or `1MiB` as bytes; `None` for anything else.
pub(super) fn size(text: &str) -> Option<u64> {
    measure(text, &SIZES)
}

/// Writes a duration in the largest unit that needs no fraction, as a configuration has it.
pub fn show_duration(duration: Duration) -> String {
    let millis = u64::try_from(duration.as_millis()).unwrap_or(u64::MAX);
    let fits = |(_, factor): &&(&str, u64)| millis.is_multiple_of(*factor);
    match DURATIONS.iter().rev().find(fits) {
        Some((unit, factor)) if millis > 0 => format!("{}{unit}", millis / factor),
        _ => "0s".to_owned(),
    }
}

/// Writes a size as [`size`] reads it.
pub(super) fn show_size(bytes: u64) -> String {
    for (unit, factor) in [("MiB", 1 << 20), ("KiB", 1 << 10)] {
        if bytes > 0 && bytes.is_multiple_of(factor) {
            return format!("{}{unit}", bytes / factor);
        }
    }
    format!("{bytes}B")
}

fn measure(text: &str, units: &[(&str, u64)]) -> Option<u64> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let (_, factor) = units.iter().find(|(name, _)| *name == unit)?;
    number.parse::<u64>().ok()?.checked_mul(*factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_unit_is_read_and_written_back() {
        for (text, millis) in
            [("250ms", 250), ("15s", 15_000), ("2m", 120_000), ("24h", 86_400_000), ("90d", 7_776_000_000)]
        {
            assert_eq!(duration(text), Some(Duration::from_millis(millis)), "{text}");
        }
        for text in ["250ms", "15s", "2m", "25h", "90d", "0s"] {
            assert_eq!(duration(text).map(show_duration).as_deref(), Some(text));
        }
        assert_eq!(duration("120s").map(show_duration).as_deref(), Some("2m"));
        for (text, bytes) in [("512B", 512), ("64KiB", 65_536), ("1MiB", 1_048_576)] {
            assert_eq!(size(text), Some(bytes));
            assert_eq!(show_size(bytes), text);
        }
    }

    #[test]
    fn a_number_without_a_known_unit_is_refused() {
        for text in ["", "15", "s", "15 s", "1.5s", "-1s", "15sec", "15S", "1h30m", "١s", "99999999999999999999s"] {
            assert_eq!(duration(text), None, "{text:?}");
        }
        for text in ["", "1", "MiB", "1MB", "1mib", "1 MiB", "-1B", "18446744073709551615MiB"] {
            assert_eq!(size(text), None, "{text:?}");
        }
    }
}
