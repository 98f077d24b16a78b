//! Sizes, times, rates and shares, with their units.

use std::time::Duration;

/// A time: `30s`, `200ms`, `1.5h`.
pub(crate) fn duration(text: &str) -> Result<Duration, String> {
    let (number, unit) = split(text);
    let seconds = match unit {
        "ns" => 1e-9,
        "us" | "µs" => 1e-6,
        "ms" => 1e-3,
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        "" => return Err(format!("`{text}` has no unit: write `{text}s` or `{text}ms`")),
        _ if number.is_err() => return Err(format!("`{text}` is no time: write `30s` or `200ms`")),
        _ => return Err(format!("`{unit}` is no unit of time: write ns, us, ms, s, min or h")),
    };
    let number = number.map_err(|()| format!("`{text}` is no time: write `30s` or `200ms`"))?;
    Duration::try_from_secs_f64(number * seconds).map_err(|_| format!("`{text}` is no time"))
}

/// Two times: `200ms..20s`.
pub(crate) fn durations(text: &str) -> Result<(Duration, Duration), String> {
    let Some((from, to)) = text.split_once("..") else {
        return Err(format!("`{text}` is no range: write the shortest and longest, `200ms..20s`"));
    };
    let (from, to) = (duration(from.trim())?, duration(to.trim())?);
    if from > to {
        return Err(format!("`{text}` ends before it begins"));
    }
    Ok((from, to))
}

/// A size: `2GiB`, `400MB`, `64kB`.
pub(crate) fn bytes(text: &str) -> Result<u64, String> {
    let (number, unit) = split(text);
    let Some(factor) = byte_unit(unit) else {
        return Err(match unit {
            "" => format!("`{text}` has no unit: write `{text}B`, `{text}MiB` or `{text}GB`"),
            _ if number.is_err() => format!("`{text}` is no size: write `400MB` or `2GiB`"),
            _ => format!("`{unit}` is no unit of size: write B, kB, MB, GB, KiB, MiB or GiB"),
        });
    };
    let number = number.map_err(|()| format!("`{text}` is no size: write `400MB` or `2GiB`"))?;
    let bytes = number * factor;
    if bytes > u64::MAX as f64 { Err(format!("`{text}` is too large")) } else { Ok(bytes as u64) }
}

fn byte_unit(unit: &str) -> Option<f64> {
    Some(match unit {
        "B" => 1.0,
        "kB" | "KB" => 1e3,
        "MB" => 1e6,
        "GB" => 1e9,
        "TB" => 1e12,
        "KiB" => 1024.0,
        "MiB" => 1024.0 * 1024.0,
        "GiB" => 1024.0 * 1024.0 * 1024.0,
        "TiB" => 1024.0 * 1024.0 * 1024.0 * 1024.0,
        _ => return None,
    })
}

/// How many, or how many bytes, in a second.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum PerSecond {
    Calls(f64),
    Bytes(f64),
}

/// A rate: `300/s`, `20/min`, `400MB/s`.
pub(crate) fn rate(text: &str) -> Result<PerSecond, String> {
    let help = || format!("`{text}` is no rate: write `300/s` or `400MB/s`");
    let (amount, time) = text.split_once('/').ok_or_else(help)?;
    let seconds = match time.trim() {
        "s" => 1.0,
        "m" | "min" => 60.0,
        "h" => 3600.0,
        _ => return Err(help()),
    };
    let (number, unit) = split(amount.trim());
    let number = number.map_err(|()| help())?;
    match (unit, byte_unit(unit)) {
        ("", _) => Ok(PerSecond::Calls(number / seconds)),
        (_, Some(factor)) => Ok(PerSecond::Bytes(number * factor / seconds)),
        _ => Err(help()),
    }
}

/// A link: bytes per second and the latency of a request: `10Gbit,30ms`, `400MB/s,5ms`.
pub(crate) fn link_speed(text: &str) -> Result<(f64, Duration), String> {
    let help = || format!("`{text}` is no link: write bandwidth and latency, `10Gbit,30ms`");
    let (speed, latency) = text.split_once(',').ok_or_else(help)?;
    let (number, unit) = split(speed.trim().trim_end_matches("/s"));
    let number = number.map_err(|()| help())?;
    let factor = match unit {
        "Mbit" => 1e6 / 8.0,
        "Gbit" => 1e9 / 8.0,
        "Tbit" => 1e12 / 8.0,
        _ => byte_unit(unit).ok_or_else(help)?,
    };
    if number <= 0.0 {
        return Err(help());
    }
    Ok((number * factor, duration(latency.trim())?))
}

/// A share as a number from 0 to 1: `50%`, `0.1%`.
pub(crate) fn share(text: &str) -> Option<Result<f64, String>> {
    let number = text.strip_suffix('%')?.trim();
    Some(match number.parse::<f64>() {
        Ok(percent) if percent.is_finite() && (0.0..=100.0).contains(&percent) => {
            Ok(percent / 100.0)
        }
        _ => Err(format!("`{text}` is no share: write 0% to 100%")),
    })
}

/// The number in front, not negative, and what follows it.
fn split(text: &str) -> (Result<f64, ()>, &str) {
    let text = text.trim();
    let end = text.find(|c: char| !(c.is_ascii_digit() || c == '.')).unwrap_or(text.len());
    let (number, unit) = text.split_at(end);
    (number.parse().map_err(|_| ()), unit.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn units_are_understood() {
        assert_eq!(duration("30s"), Ok(Duration::from_secs(30)));
        assert_eq!(duration("1.5 min"), Ok(Duration::from_secs(90)));
        let range = (Duration::from_millis(200), Duration::from_secs(20));
        assert_eq!(durations("200ms..20s"), Ok(range));
        assert_eq!(bytes("2GiB"), Ok(2 << 30));
        assert_eq!(rate("300/s"), Ok(PerSecond::Calls(300.0)));
        assert_eq!(rate("6MB/min"), Ok(PerSecond::Bytes(1e5)));
        assert_eq!(share("0.1%"), Some(Ok(0.001)));
        assert_eq!(share("5"), None);
    }

    #[test]
    fn what_is_wrong_is_told_with_what_to_write() {
        assert_eq!(duration("30"), Err("`30` has no unit: write `30s` or `30ms`".to_owned()));
        for wrong in ["", "s", "-1s", "3x", "nans", "1e300h", "infs"] {
            assert!(duration(wrong).is_err(), "{wrong}");
        }
        for wrong in ["", "2 gigs", "99999999999TiB", "-1GB", "5"] {
            assert!(bytes(wrong).is_err(), "{wrong}");
        }
        for wrong in ["300", "300/x", "x/s", "3 apples/s"] {
            assert!(rate(wrong).is_err(), "{wrong}");
        }
        assert!(share("101%").is_some_and(|share| share.is_err()));
        assert!(durations("20s..1s").is_err());
    }
}
