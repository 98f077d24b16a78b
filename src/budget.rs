//! How much memory the items of a run may take together, while it runs.
//!
//! It counts items that wait in buffers or for their turn, what calls have in hand, and what they
//! are expected to yield: as much as the largest item that their stage has yielded so far. A call
//! starts only if that fits, with room left for one item of each stage after it, and for what those
//! without calls have kept at most, so that what is there can always be worked off first. Before it
//! is known what a stage yields, those before it take no more than half of what it may take.
//!
//! Such a bound can be too small for what a pipeline needs at once: a group that is not full yet, a
//! branch whose partner has not come. When nothing else can move and the consumer waits, an item is
//! therefore let in above the bound: the oldest of those for which the stage after them waits. That
//! is counted, and told at the end.

mod account;
mod held;

use std::cmp::Reverse;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering::Relaxed, Ordering::SeqCst};
use std::sync::{Arc, OnceLock, Weak};
use std::time::{Duration, Instant};

pub(crate) use account::{Account, Full, Want};
pub(crate) use held::Held;
use parking_lot::Mutex;

use crate::link::Core;
use crate::stage::Kind;
use crate::trace::MemoryStats;

/// Nothing must have moved for so long before an item is let in above the bound.
const QUIET: Duration = Duration::from_millis(10);

/// The memory that the items of one run may take.
#[derive(Debug)]
pub(crate) struct Budget {
    most: u64,
    held: AtomicU64,
    peak: AtomicU64,
    above: AtomicU64,
    /// Grows whenever something is taken or given back.
    moves: AtomicU64,
    consumer_waits: AtomicBool,
    last: OnceLock<Weak<Core>>,
    /// How many accounts wait.
    waiting: AtomicUsize,
    /// Those of the stages, in the order of the pipeline.
    accounts: Mutex<Accounts>,
}

#[derive(Debug, Default)]
struct Accounts {
    all: Vec<Arc<Account>>,
    /// Since when nothing has moved, and how much had until then.
    quiet: Option<(Instant, u64)>,
}

impl Budget {
    pub(crate) fn new(most: u64) -> Self {
        Budget {
            most,
            held: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            above: AtomicU64::new(0),
            moves: AtomicU64::new(0),
            consumer_waits: AtomicBool::new(false),
            last: OnceLock::new(),
            waiting: AtomicUsize::new(0),
            accounts: Mutex::default(),
        }
    }

    /// An account for the next stage of the pipeline. What one of the kind `kind` yields is known
    /// once it has made a call.
    pub(crate) fn open(&self, kind: Kind) -> Arc<Account> {
        let mut accounts = self.accounts.lock();
        let makes_calls = kind.makes_calls();
        let account = Arc::new(Account {
            place: accounts.all.len(),
            known: AtomicBool::new(!makes_calls),
            moving: AtomicBool::new(kind == Kind::Source),
            ..Account::default()
        });
        for earlier in &accounts.all {
            earlier.unknown_after.fetch_add(usize::from(makes_calls), Relaxed);
        }
        accounts.all.push(Arc::clone(&account));
        account
    }

    /// Counts `bytes` that are there, whether or not they fit.
    pub(crate) fn add(&self, bytes: u64) {
        let held = self.held.fetch_add(bytes, SeqCst) + bytes;
        self.peak.fetch_max(held, Relaxed);
        self.moves.fetch_add(1, Relaxed);
    }

    /// Gives `bytes` back.
    pub(crate) fn give(&self, bytes: u64) {
        self.held.fetch_sub(bytes, SeqCst);
        self.moves.fetch_add(1, Relaxed);
        self.tell();
    }

    /// The consumer begins or ceases to wait for an item.
    pub(crate) fn consumer(&self, waits: bool) {
        self.consumer_waits.store(waits, SeqCst);
        if waits {
            self.tell();
        }
    }

    /// The link from which the consumer receives.
    pub(crate) fn ends_in(&self, link: &Arc<Core>) {
        self.last.get_or_init(|| Arc::downgrade(link));
    }

    /// Whether the consumer waits and there is nothing for it: one that was cancelled in its wait may
    /// not know yet that there is.
    fn consumer_has_nothing(&self) -> bool {
        let has_some = || self.last.get().and_then(Weak::upgrade).is_some_and(|last| last.holds());
        self.consumer_waits.load(SeqCst) && !has_some()
    }

    /// `account` will, or won't, go on by itself.
    pub(crate) fn moves(&self, account: &Account, moving: bool) {
        if account.moving.load(Relaxed) != moving {
            account.moving.store(moving, SeqCst);
            if !moving {
                self.tell();
            }
        }
    }

    /// `account` has yielded an item of `bytes` bytes; 0 if a call yielded none.
    pub(crate) fn learn(&self, account: &Account, bytes: u64) {
        if account.known.load(Relaxed) && bytes <= account.largest.load(Relaxed) {
            return;
        }
        let accounts = self.accounts.lock();
        let more = bytes.saturating_sub(account.largest.fetch_max(bytes, Relaxed));
        let news = usize::from(!account.known.swap(true, Relaxed));
        for earlier in &accounts.all[..account.place] {
            earlier.after.fetch_add(more, Relaxed);
            earlier.unknown_after.fetch_sub(news, Relaxed);
        }
        drop(accounts);
        if news > 0 {
            self.tell();
        }
    }

    /// `account`, of a stage that makes no calls, keeps `now` bytes instead of `before`: as much is left
    /// free for it as it has kept at most.
    fn keeps(&self, account: &Account, before: u64, now: u64) {
        let accounts = self.accounts.lock();
        let free = || account.largest.load(Relaxed) - account.kept.load(Relaxed);
        let left = free();
        let kept = account.kept.load(Relaxed) + now - before;
        account.largest.fetch_max(kept, Relaxed);
        account.kept.store(kept, Relaxed);
        let leave = free();
        for earlier in &accounts.all[..account.place] {
            match leave.checked_sub(left) {
                Some(more) => earlier.after.fetch_add(more, Relaxed),
                None => earlier.after.fetch_sub(left - leave, Relaxed),
            };
        }
        drop(accounts);
        if leave < left {
            self.tell();
        }
    }

    /// Takes `bytes` for what `account` wants to go on with.
    ///
    /// # Errors
    /// They do not fit now: `account` is told when to ask again.
    pub(crate) fn take(&self, account: &Account, bytes: u64, want: Want) -> Result<(), Full> {
        if self.fits(account, bytes) {
            if self.waiting.load(Relaxed) > 0 {
                self.forget(account);
            }
            return Ok(());
        }
        let mut accounts = self.accounts.lock();
        {
            let mut wanted = account.wanted.lock();
            if wanted.is_none() {
                self.waiting.fetch_add(1, SeqCst);
            }
            *wanted = Some(wanted.map_or(want, |other| other.min(want)));
        }
        // Asked again: what was given back before it was known that we wait is told to nobody.
        if self.fits(account, bytes) {
            self.forget(account);
            return Ok(());
        }
        let all = &accounts.all;
        account.told.store(false, SeqCst);
        let moves = |a: &Arc<Account>| a.moving.load(SeqCst) || a.told.load(SeqCst);
        if !self.consumer_has_nothing() || all.iter().any(moves) {
            accounts.quiet = None;
            return Err(Full { again: None });
        }
        let (now, moves) = (Instant::now(), self.moves.load(Relaxed));
        let since = match accounts.quiet {
            Some((since, then)) if then == moves => since,
            _ => now,
        };
        let next = all.iter().filter_map(|a| Some(((*a.wanted.lock())?, a)));
        // Of one item in several branches, what is further on.
        let next = next.min_by_key(|(want, a)| (*want, Reverse(a.place)));
        let other = next.map(|(_, next)| next).filter(|next| next.place != account.place).cloned();
        accounts.quiet = Some((since, moves));
        // The stage after an early one has something, and is about to ask for itself; if it waits for
        // another branch, that one may have to take something first.
        let quiet = if want.is_early { 4 * QUIET } else { QUIET };
        if now - since < quiet || other.is_some() {
            if let Some(other) = other {
                other.freed.notify_one();
            }
            return Err(Full { again: Some(now + QUIET) });
        }
        accounts.quiet = None;
        self.forget(account);
        self.above.fetch_add(1, Relaxed);
        self.add(bytes);
        Ok(())
    }

    /// `account` no longer waits.
    pub(crate) fn forget(&self, account: &Account) {
        let mut wanted = account.wanted.lock();
        account.told.store(false, SeqCst);
        if wanted.take().is_some() {
            self.waiting.fetch_sub(1, SeqCst);
        }
    }

    /// Bytes that are free for `account`.
    pub(crate) fn room(&self, account: &Account) -> u64 {
        let taken = self.held.load(Relaxed).saturating_add(account.after.load(Relaxed));
        self.most.saturating_sub(taken)
    }

    /// The same as figures.
    pub(crate) fn stats(&self) -> MemoryStats {
        MemoryStats {
            most: self.most,
            held: self.held.load(Relaxed),
            peak: self.peak.load(Relaxed),
            above: self.above.load(Relaxed),
        }
    }

    /// Takes `bytes` if they fit. The first item always does.
    pub(crate) fn fits(&self, account: &Account, bytes: u64) -> bool {
        let after = account.after.load(Relaxed);
        let most = self.most >> account.unknown_after.load(Relaxed).min(16);
        let fitting = |held: u64| {
            let then = held.checked_add(bytes)?;
            (held == 0 || then.checked_add(after)? <= most).then_some(then)
        };
        let taken = self.held.fetch_update(SeqCst, SeqCst, fitting);
        if let Ok(before) = taken {
            self.peak.fetch_max(before + bytes, Relaxed);
            self.moves.fetch_add(1, Relaxed);
        }
        taken.is_ok()
    }

    /// Tells those who wait to ask again; those further on first.
    fn tell(&self) {
        if self.waiting.load(SeqCst) == 0 {
            return;
        }
        let accounts = self.accounts.lock();
        for account in accounts.all.iter().rev() {
            let wanted = account.wanted.lock();
            // Said while it is known that it waits, so that one who no longer does is not waited for.
            if wanted.is_some() {
                account.told.store(true, SeqCst);
                account.freed.notify_one();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::item::ItemId;

    fn id(position: u64) -> Want {
        Want { is_early: false, id: ItemId::source(position) }
    }

    #[test]
    fn a_call_leaves_room_for_one_item_of_each_stage_after_it() {
        let budget = Budget::new(100);
        let (first, second) = (budget.open(Kind::Io), budget.open(Kind::Io));
        budget.learn(&first, 20);
        budget.learn(&second, 30);
        assert_eq!(budget.take(&first, 20, id(0)), Ok(()));
        assert_eq!(budget.take(&first, 20, id(1)), Ok(()));
        assert_eq!(budget.take(&first, 20, id(2)), Ok(()));
        // 60 are held, and 30 must be left.
        assert!(budget.take(&first, 20, id(3)).is_err());
        assert_eq!(budget.take(&second, 30, id(0)), Ok(()));
        assert_eq!(budget.stats().held, 90);
        budget.give(60);
        assert_eq!(budget.take(&first, 20, id(3)), Ok(()));
    }

    #[test]
    fn one_item_always_fits() {
        let budget = Budget::new(10);
        let account = budget.open(Kind::Io);
        assert_eq!(budget.take(&account, 1_000, id(0)), Ok(()));
        assert!(budget.take(&account, 1, id(1)).is_err());
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "time must pass in which nothing moves")]
    fn only_the_oldest_is_let_in_above_it_and_only_when_nothing_else_moves() {
        let budget = Budget::new(10);
        let (older, newer) = (budget.open(Kind::Io), budget.open(Kind::Io));
        budget.add(10);
        budget.consumer(true);
        let ask = |account: &Account, position| {
            (0..3).any(|_| {
                std::thread::sleep(QUIET);
                budget.take(account, 5, id(position)).is_ok()
            })
        };
        budget.moves(&newer, true);
        assert!(!ask(&older, 1), "the other stage goes on");
        budget.moves(&newer, false);
        assert!(!ask(&older, 1) || budget.stats().above == 1);
        budget.give(budget.stats().held - 10);
        let above = budget.stats().above;
        assert!(budget.take(&older, 5, id(1)).is_err());
        assert!(!ask(&newer, 2), "the other item is older");
        assert!(ask(&older, 1));
        assert_eq!(budget.stats().above, above + 1);
        budget.consumer(false);
        assert!(!ask(&newer, 2), "the consumer does not wait");
    }

    #[test]
    fn those_who_wait_are_told_when_something_is_given_back() {
        let budget = Budget::new(10);
        let account = budget.open(Kind::Io);
        budget.add(10);
        assert_eq!(budget.take(&account, 5, id(0)), Err(Full { again: None }));
        budget.give(10);
        let told = futures::FutureExt::now_or_never(account.freed.notified());
        assert_eq!(told, Some(()));
        assert_eq!(budget.take(&account, 5, id(0)), Ok(()));
        assert_eq!(budget.waiting.load(Relaxed), 0);
    }
}
