//! Variables of the environment: read in one way, and what is wrong with one is an error that names it.
//!
//! What the values do does not belong here.

use std::ffi::OsString;
use std::time::Duration;

use crate::error::Error;

/// What `value` of `variable` says, none if it is not set. `parse` has nothing for a value that is wrong; `expected` says what is allowed.
pub(crate) fn value<T>(
    variable: &'static str,
    value: Option<OsString>,
    expected: &'static str,
    parse: impl FnOnce(&str) -> Option<T>,
) -> Result<Option<T>, Error> {
    let Some(value) = value else { return Ok(None) };
    let wrong = || Error::Environment { variable, value: value.to_string_lossy().into(), expected };
    value.to_str().and_then(|text| parse(text.trim())).map(Some).ok_or_else(wrong)
}

/// `0` or `1`.
pub(crate) fn switch(text: &str) -> Option<bool> {
    match text {
        "0" => Some(false),
        "1" => Some(true),
        _ => None,
    }
}

/// A whole number, one or more.
pub(crate) fn count(text: &str) -> Option<u32> {
    text.parse().ok().filter(|&count| count > 0)
}

/// `67108864`, `64MiB`, `1 GiB`: bytes, one or more.
pub(crate) fn bytes(text: &str) -> Option<usize> {
    let digits = text.bytes().take_while(u8::is_ascii_digit).count();
    let (number, unit) = text.split_at(digits);
    let shift = match unit.trim_start() {
        "" => 0,
        "KiB" => 10,
        "MiB" => 20,
        "GiB" => 30,
        _ => return None,
    };
    number.parse::<usize>().ok()?.checked_mul(1 << shift).filter(|&bytes| bytes > 0)
}

/// Seconds above 0, such as `10` or `0.5`.
pub(crate) fn seconds(text: &str) -> Option<Duration> {
    text.parse().ok().and_then(|seconds| Duration::try_from_secs_f64(seconds).ok()).filter(|duration| !duration.is_zero())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_are_read_whole() {
        assert_eq!(["64MiB", "1 GiB", "3KiB", "12"].map(bytes), [Some(64 << 20), Some(1 << 30), Some(3 << 10), Some(12)]);
        assert_eq!(["", "MiB", "0", "4MB", "-1", "1.5MiB", "99999999999GiB"].map(bytes), [None; 7]);
        assert_eq!(["1", "132"].map(count), [Some(1), Some(132)]);
        assert_eq!(["0", "", "-3", "2.0", "many"].map(count), [None; 5]);
        assert_eq!(["10", "0.5"].map(seconds), [Some(Duration::from_secs(10)), Some(Duration::from_millis(500))]);
        assert_eq!(["0", "-1", "inf", "NaN", "soon", "1e-300"].map(seconds), [None; 6]);
        assert_eq!(["0", "1", "yes", ""].map(switch), [Some(false), Some(true), None, None]);
    }

    #[test]
    fn errors_name_variable_value_and_what_is_allowed() {
        assert_eq!(value("MACO_DEBUG", None, "0 or 1", switch).unwrap(), None);
        assert_eq!(value("MACO_DEBUG", Some(" 1 ".into()), "0 or 1", switch).unwrap(), Some(true));
        let error = value("MACO_DEBUG", Some("yes".into()), "0 or 1", switch).unwrap_err();
        assert_eq!((error.code(), &*error.to_string()), (58, "MACO0058: MACO_DEBUG is `yes`, expected 0 or 1\nhelp: correct or unset it"));
    }
}
