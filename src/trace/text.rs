//! Numbers as people read them.

/// A time given in nanoseconds: `301 ms`, `1.41 s`.
pub(crate) fn duration(ns: u64) -> String {
    let ns = ns as f64;
    let (value, unit) = match ns {
        ..1e3 => (ns, "ns"),
        1e3..1e6 => (ns / 1e3, "µs"),
        1e6..1e9 => (ns / 1e6, "ms"),
        1e9..120e9 => (ns / 1e9, "s"),
        120e9..7200e9 => (ns / 60e9, "min"),
        _ => (ns / 3600e9, "h"),
    };
    format!("{} {unit}", digits(value))
}

/// Bytes: `4.15 MB`, in powers of 1000 as disks and networks count.
pub(crate) fn bytes(n: f64) -> String {
    let (value, unit) = match n {
        ..1e3 => (n, "B"),
        1e3..1e6 => (n / 1e3, "kB"),
        1e6..1e9 => (n / 1e6, "MB"),
        1e9..1e12 => (n / 1e9, "GB"),
        _ => (n / 1e12, "TB"),
    };
    format!("{} {unit}", digits(value))
}

/// A number with its thousands apart: `1,048,576`.
pub(crate) fn count(n: u64) -> String {
    let digits = n.to_string();
    let mut text = String::new();
    for (i, digit) in digits.chars().enumerate() {
        if i > 0 && (digits.len() - i).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A share of 1: `91 %`.
pub(crate) fn percent(share: f64) -> String {
    format!("{:.0} %", share * 100.0)
}

/// A rate: `180`, `8.8`, `1.2M`.
pub(crate) fn rate(per_s: f64) -> String {
    match per_s {
        r if !r.is_finite() => "–".to_owned(),
        r if r >= 1e7 => format!("{:.0}M", r / 1e6),
        r if r >= 1e6 => format!("{:.1}M", r / 1e6),
        r if r >= 1e5 => format!("{:.0}k", r / 1e3),
        r => digits(r),
    }
}

/// Three digits at least, and no more after the point than they need.
fn digits(value: f64) -> String {
    match value {
        v if v == 0.0 || v >= 99.95 => format!("{v:.0}"),
        v if v >= 9.995 => format!("{v:.1}"),
        v => format!("{v:.2}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn three_digits_are_shown() {
        assert_eq!(duration(301_200_000), "301 ms");
        assert_eq!(duration(1_412_000_000), "1.41 s");
        assert_eq!(duration(28_500), "28.5 µs");
        assert_eq!(bytes(4_152_960.0), "4.15 MB");
        assert_eq!([count(7), count(1000), count(1_048_576)], ["7", "1,000", "1,048,576"]);
        assert_eq!(rate(0.5), "0.50");
        assert_eq!(rate(f64::INFINITY), "–");
    }
}
