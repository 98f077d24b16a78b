//! How often a store is asked again for what failed: a share of its requests at most, so that one that
//! fails is not stormed by all who ask it. Requests to a store that wants to be asked less are not
//! counted: those go at the pace that it bears.

use std::cell::RefCell;
use std::collections::HashSet;
use std::fmt;

use parking_lot::Mutex;

use super::Store;
use super::error::StoreError;
use crate::trace;

/// So many retries are made whatever the share, so that the first requests can be tried again, too.
const FREE: u64 = 64;
/// Retries in a hundred requests, unless the option `retry_budget` says otherwise.
pub(super) const SHARE: u64 = 10;
/// Keys that are remembered because they failed.
const FAILED_MAX: usize = 1 << 16;

/// The retries that a store is worth.
#[derive(Debug)]
pub(super) struct Retries {
    percent: u64,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    requests: u64,
    retries: u64,
    refused: u64,
    /// What failed when it was last asked for: to ask for it is a retry, whoever does.
    failed: HashSet<String>,
}

impl Retries {
    pub(super) fn new(percent: u64) -> Self {
        Retries { percent, state: Mutex::default() }
    }

    /// The share that an option gives: `10%`.
    pub(super) fn percent(text: &str) -> Option<u64> {
        let percent = text.trim().strip_suffix('%')?.trim_end().parse().ok()?;
        (percent <= 100).then_some(percent)
    }

    /// Retries that were made, and those that were not because the budget was spent.
    pub(super) fn counts(&self) -> (u64, u64) {
        let state = self.state.lock();
        (state.retries, state.refused)
    }

    /// Whether the object at `key` may be asked for.
    fn begin(&self, key: &str) -> bool {
        let mut state = self.state.lock();
        if state.failed.contains(key) {
            return self.again(&mut state);
        }
        state.requests += 1;
        true
    }

    fn may_retry(&self) -> bool {
        self.again(&mut self.state.lock())
    }

    fn again(&self, state: &mut State) -> bool {
        let may = state.retries < FREE + state.requests * self.percent / 100;
        if may {
            state.retries += 1;
        } else {
            state.refused += 1;
            trace::retry_refused();
        }
        may
    }

    fn end(&self, key: &str, failed: bool) {
        let mut state = self.state.lock();
        if !failed {
            state.failed.remove(key);
        } else if state.failed.len() < FAILED_MAX {
            state.failed.insert(key.to_owned());
        }
    }
}

/// What happened so far to one request that its client may make several times.
#[derive(Debug, Default)]
struct Tries {
    /// Where it was sent. A client may ask for credentials before, which is no retry.
    sent: Vec<String>,
    /// What came of the last try, if it went wrong.
    wrong: Option<String>,
    /// Whether the last answer was to ask less.
    throttled: bool,
    refused: bool,
}

tokio::task_local! {
    static TRIES: RefCell<Tries>;
}

/// Whether one more request may be sent to `to`, for the request at hand.
pub(super) fn may_send(retries: &Retries, to: impl FnOnce() -> String) -> Result<(), Refused> {
    let may = TRIES.try_with(|tries| {
        let mut tries = tries.borrow_mut();
        let to = to();
        if !tries.sent.contains(&to) {
            tries.sent.push(to);
            return true;
        }
        let may = std::mem::take(&mut tries.throttled) || retries.may_retry();
        tries.refused |= !may;
        may
    });
    if may.unwrap_or(true) { Ok(()) } else { Err(Refused) }
}

/// Notes what came of a try that went wrong; `throttled` says whether it was to ask less.
pub(super) fn went_wrong(why: impl fmt::Display, throttled: bool) {
    // Nobody counts what is written.
    let _outside = TRIES.try_with(|tries| {
        let mut tries = tries.borrow_mut();
        tries.wrong = Some(why.to_string());
        tries.throttled = throttled;
    });
}

/// No more requests for what failed.
#[derive(Clone, Copy, Debug, thiserror::Error)]
#[error("the retry budget is spent")]
pub(super) struct Refused;

impl Store {
    /// Asks for the object at `key`, within the budget of retries.
    pub(super) async fn within_budget<T>(
        &self,
        key: &str,
        ask: impl Future<Output = Result<T, StoreError>>,
    ) -> Result<T, StoreError> {
        let retries = &self.0.retries;
        if !retries.begin(key) {
            return Err(self.spent(key, "it failed before"));
        }
        let tries = RefCell::new(Tries::default());
        let (result, tries) = TRIES
            .scope(tries, async {
                let result = ask.await;
                (result, TRIES.with(RefCell::take))
            })
            .await;
        let again = result.as_ref().is_err_and(StoreError::is_transient);
        retries.end(key, again && !tries.throttled);
        match result {
            Err(_) if tries.refused => {
                Err(self.spent(key, &tries.wrong.unwrap_or_else(|| "the answer broke off".into())))
            }
            result => result,
        }
    }

    fn spent(&self, key: &str, why: &str) -> StoreError {
        let state = self.0.retries.state.lock();
        StoreError::RetriesSpent {
            store: self.0.url.clone(),
            key: key.to_owned(),
            why: why.to_owned(),
            retries: state.retries,
            requests: state.requests,
            percent: self.0.retries.percent,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn retries_are_a_share_of_requests_and_the_first_few_are_free() {
        let retries = Retries::new(10);
        let granted = |n: u64| (0..n).filter(|_| retries.may_retry()).count() as u64;
        assert_eq!(granted(100), FREE);
        assert!((0..100).all(|i| retries.begin(&i.to_string())));
        assert_eq!(granted(100), 10);
        assert_eq!(retries.counts(), (FREE + 10, 36 + 90));
    }

    #[test]
    fn what_failed_before_is_a_retry_until_it_is_there() {
        let retries = Retries::new(0);
        (0..FREE).for_each(|_| assert!(retries.may_retry()));
        assert!(retries.begin("a"));
        retries.end("a", true);
        assert!(!retries.begin("a") && retries.begin("b"));
        retries.end("a", false);
        assert!(retries.begin("a"));
    }

    #[test]
    fn a_share_is_written_in_percent() {
        assert_eq!(Retries::percent("25%"), Some(25));
        for wrong in ["", "25", "-1%", "101%", "ten %"] {
            assert_eq!(Retries::percent(wrong), None, "{wrong}");
        }
    }
}
