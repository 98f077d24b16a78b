//! What can go wrong with a store. No text here ever holds a credential.

use std::ops::Range;

/// A store that cannot be opened or read.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum StoreError {
    /// The URL or an option is wrong.
    #[error("cannot open the store `{url}`: {why}")]
    Open {
        /// The URL, without credentials.
        url: String,
        /// What is wrong and what to write instead.
        why: String,
    },
    /// There is no such object.
    #[error("`{key}` is not in the store `{store}`")]
    NotFound {
        /// The store's URL.
        store: String,
        /// The object's key.
        key: String,
    },
    /// An object is larger than what it holds can be.
    #[error("`{key}` in the store `{store}` has {bytes} bytes, but at most {most} make sense")]
    TooLarge {
        /// The store's URL.
        store: String,
        /// The object's key.
        key: String,
        /// The size that the store tells.
        bytes: u64,
        /// The size that it can have.
        most: u64,
    },
    /// A response ended early.
    #[error("`{key}` in the store `{store}` ended after {got} of {expected} bytes")]
    Truncated {
        /// The store's URL.
        store: String,
        /// The object's key.
        key: String,
        /// Bytes received.
        got: u64,
        /// Bytes announced.
        expected: u64,
    },
    /// A request failed.
    #[error("reading `{key}` from the store `{store}` failed: {why}")]
    Failed {
        /// The store's URL.
        store: String,
        /// The object's key.
        key: String,
        /// What the store said.
        why: String,
        /// Whether the same request may succeed later.
        transient: bool,
    },
    /// A request failed and is not made again: too many of them are.
    #[error(
        "reading `{key}` from the store `{store}` failed: {why}; it is not tried again, as the retry \
         budget is spent: {retries} of {requests} requests were made again, and {percent} % may be \
         (option `retry_budget`)"
    )]
    RetriesSpent {
        /// The store's URL.
        store: String,
        /// The object's key.
        key: String,
        /// What the store said last.
        why: String,
        /// Retries so far.
        retries: u64,
        /// Requests so far, without those.
        requests: u64,
        /// How many retries in a hundred requests there may be.
        percent: u64,
    },
    /// An object could not be written; nothing of it is there.
    #[error("writing `{key}` to the store `{store}` failed: {why}")]
    NotWritten {
        /// The store's URL.
        store: String,
        /// The object's key.
        key: String,
        /// What the store said.
        why: String,
        /// Whether the same request may succeed later.
        transient: bool,
    },
}

impl StoreError {
    /// Whether the same request may succeed later: overload, a lost connection, a short response.
    pub fn is_transient(&self) -> bool {
        match self {
            StoreError::Failed { transient, .. } | StoreError::NotWritten { transient, .. } => {
                *transient
            }
            StoreError::Truncated { .. } => true,
            _ => false,
        }
    }
}

/// Whether `error` or one of its causes is a store's passing failure; for
/// [`RetryOn::When`](crate::options::RetryOn::When).
pub fn is_transient(error: &(dyn std::error::Error + 'static)) -> bool {
    let mut next = Some(error);
    while let Some(error) = next {
        if let Some(error) = error.downcast_ref::<StoreError>() {
            return error.is_transient();
        }
        next = error.source();
    }
    false
}

/// `text` without what URLs in it may tell: user and password, and everything behind a `?`.
pub(crate) fn redacted(text: &str) -> String {
    let (mut out, mut from) = (String::with_capacity(text.len()), 0);
    for secret in secrets(text) {
        out.push_str(&text[from..secret.start]);
        from = secret.end;
    }
    out + &text[from..]
}

/// `text` with stars for that, so that nothing moves from its place.
pub(crate) fn starred(text: &str) -> String {
    let mut out = text.to_owned();
    for secret in secrets(text) {
        let stars = "*".repeat(secret.len());
        out.replace_range(secret, &stars);
    }
    out
}

/// Where in `text` URLs have secrets, one behind the other.
fn secrets(text: &str) -> Vec<Range<usize>> {
    let (mut found, mut from) = (Vec::new(), 0);
    while let Some(at) = text[from..].find("://") {
        let start = from + at + 3;
        let is_end = |c: char| c.is_whitespace() || "\"'`)>,".contains(c);
        let end = text[start..].find(is_end).map_or(text.len(), |end| start + end);
        let url = &text[start..end];
        let host_end = url.find(['/', '?', '#']).unwrap_or(url.len());
        let path = start + host_end;
        found.extend(url[..host_end].rfind('@').map(|at| start..start + at + 1));
        found.extend(text[path..end].find('?').map(|at| path + at..end));
        from = end;
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_urls_are_left_out() {
        let text = "error for url (https://me:pw@host/a/b?sig=abc&x=1): \"s3://k:s@b/c\" timed out";
        assert_eq!(redacted(text), "error for url (https://host/a/b): \"s3://b/c\" timed out");
    }

    #[test]
    fn stars_stand_where_secrets_were() {
        let text = "store: \"https://me:pw@host/a?sig=abc\", b: 1 # s3://k:s@b";
        assert_eq!(starred(text), "store: \"https://******host/a********\", b: 1 # s3://****b");
        assert_eq!(starred("a://b?, c: d"), "a://b*, c: d");
    }
}
