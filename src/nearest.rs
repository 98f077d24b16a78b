//! The name that was probably meant.

/// The one of `known` that is spelled most like `name`, if one is close enough to be meant.
pub(crate) fn nearest<'a>(name: &str, known: &[&'a str]) -> Option<&'a str> {
    let close = known.iter().map(|other| (strsim::damerau_levenshtein(name, other), *other));
    let close = close.filter(|(distance, other)| *distance <= 1 + name.len().min(other.len()) / 3);
    close.min().map(|(_, other)| other)
}
