//! What can go wrong with a store. No text here ever holds a credential.

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
    let mut out = String::with_capacity(text.len());
    let mut rest = text;
    while let Some(at) = rest.find("://") {
        let (before, after) = rest.split_at(at + 3);
        out.push_str(before);
        let end =
            after.find(|c: char| c.is_whitespace() || "\"'`)>,".contains(c)).unwrap_or(after.len());
        let (url, behind) = after.split_at(end);
        let host_end = url.find(['/', '?', '#']).unwrap_or(url.len());
        let (host, path) = url.split_at(host_end);
        out.push_str(host.rsplit_once('@').map_or(host, |(_, host)| host));
        out.push_str(path.split_once('?').map_or(path, |(path, _)| path));
        rest = behind;
    }
    out.push_str(rest);
    out
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn secrets_in_urls_are_left_out() {
        let text = "error for url (https://me:pw@host/a/b?sig=abc&x=1): \"s3://k:s@b/c\" timed out";
        assert_eq!(redacted(text), "error for url (https://host/a/b): \"s3://b/c\" timed out");
    }
}
