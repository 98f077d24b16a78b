//! What a stage remembers of its calls: how long they took, the slowest, what failed, and the last
//! ones one by one. Bounded whatever the run does.

use std::collections::VecDeque;
use std::time::Duration;

use hdrhistogram::Histogram;

use super::stats::{Failures, Service, Slow};
use crate::fault::Fault;
use crate::item::ItemId;

/// So many of the slowest calls are kept with their names.
const SLOWEST: usize = 8;
/// So many kinds of failure are told apart.
const FAILURES: usize = 16;
/// Each stage remembers so many of its last calls, unless a trace is kept.
pub(crate) const REMEMBERED: usize = 1024;

/// One call on one item. Times are nanoseconds since the run's start.
#[derive(Clone, Copy, Debug)]
pub(crate) struct CallRecord {
    pub(crate) id: ItemId,
    pub(crate) worker: u32,
    pub(crate) attempt: u32,
    pub(crate) from_ns: u64,
    pub(crate) ns: u64,
    pub(crate) bytes: u64,
    pub(crate) failed: bool,
}

impl CallRecord {
    pub(crate) fn until_ns(&self) -> u64 {
        self.from_ns + self.ns
    }
}

/// Something that a call waited for outside the process: an answer of a store.
#[derive(Clone, Debug)]
pub(crate) struct RequestRecord {
    pub(crate) what: String,
    pub(crate) worker: u32,
    pub(crate) from_ns: u64,
    pub(crate) ns: u64,
    pub(crate) bytes: u64,
}

/// An item that left a stage, or was received by one that makes no calls.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Passed {
    pub(crate) id: ItemId,
    pub(crate) at_ns: u64,
}

/// See the module.
#[derive(Debug)]
pub(crate) struct Log {
    histogram: Histogram<u64>,
    total_ns: u64,
    slowest: Vec<Slow>,
    failures: Vec<Failures>,
    /// How many of each are remembered.
    most: usize,
    pub(crate) calls: VecDeque<CallRecord>,
    pub(crate) requests: VecDeque<RequestRecord>,
    pub(crate) sent: VecDeque<Passed>,
    pub(crate) received: VecDeque<Passed>,
    /// Groups with their members, of stages that make groups.
    pub(crate) groups: VecDeque<(ItemId, Vec<ItemId>)>,
}

impl Log {
    pub(crate) fn new() -> Self {
        // An hour covers any call worth a percentile; longer ones count as an hour.
        let histogram = Histogram::new_with_bounds(1, 3_600_000_000_000, 2)
            .expect("the bounds and the precision are valid constants");
        Log {
            histogram,
            total_ns: 0,
            slowest: Vec::new(),
            failures: Vec::new(),
            most: REMEMBERED,
            calls: VecDeque::new(),
            requests: VecDeque::new(),
            sent: VecDeque::new(),
            received: VecDeque::new(),
            groups: VecDeque::new(),
        }
    }

    /// Remembers so many calls from now on.
    pub(crate) fn remember(&mut self, most: usize) {
        self.most = most.max(REMEMBERED);
    }

    /// Whether a trace is kept.
    pub(crate) fn is_long(&self) -> bool {
        self.most > REMEMBERED
    }

    /// Takes a burst of calls.
    pub(crate) fn served(&mut self, calls: &[CallRecord]) {
        for call in calls {
            self.total_ns += call.ns;
            self.histogram.saturating_record(call.ns.max(1));
        }
        let calls = &calls[calls.len().saturating_sub(self.most)..];
        let over = (self.calls.len() + calls.len()).saturating_sub(self.most);
        self.calls.drain(..over);
        self.calls.extend(calls);
    }

    /// How long a call must have taken to be among the slowest.
    pub(crate) fn slow_ns(&self) -> u64 {
        match self.slowest.len() {
            SLOWEST.. => self.slowest.last().map_or(0, |slow| slow.ns),
            _ => 0,
        }
    }

    /// A call that may be among the slowest.
    pub(crate) fn slow(&mut self, call: &CallRecord, name: Option<String>) {
        let CallRecord { ns, id, attempt, from_ns, .. } = *call;
        let item = id.to_string();
        let place = self.slowest.partition_point(|other| other.ns >= ns);
        if place < SLOWEST {
            self.slowest.insert(place, Slow { item, name, ns, attempt, at_ns: from_ns });
            self.slowest.truncate(SLOWEST);
        }
    }

    /// A call that failed. Failures that differ only in numbers count as one kind.
    pub(crate) fn failed(&mut self, fault: &Fault) {
        let error = fault.cause();
        let kind = without_numbers(&error);
        let known = self.failures.iter_mut().find(|f| without_numbers(&f.error) == kind);
        if let Some(known) = known {
            known.count += 1;
        } else if self.failures.len() < FAILURES {
            let item = fault.item().map_or_else(String::new, |item| item.to_string());
            let example = match fault.item_name() {
                Some(name) => format!("item {item} ({name})"),
                None => format!("item {item}"),
            };
            self.failures.push(Failures { error, count: 1, example });
        } else if let Some(last) = self.failures.last_mut() {
            "others".clone_into(&mut last.error);
            last.count += 1;
        }
    }

    pub(crate) fn request(&mut self, request: RequestRecord) {
        if self.is_long() {
            push(&mut self.requests, request, self.most);
        }
    }

    /// Items left the stage.
    pub(crate) fn sent(&mut self, ids: impl Iterator<Item = ItemId>, at_ns: u64) {
        for id in ids {
            push(&mut self.sent, Passed { id, at_ns }, self.most);
        }
    }

    /// A stage that makes no calls received an item.
    pub(crate) fn received(&mut self, id: ItemId, at_ns: u64) {
        push(&mut self.received, Passed { id, at_ns }, self.most);
    }

    /// The item `id` is made of `members`.
    pub(crate) fn grouped(&mut self, id: ItemId, members: Vec<ItemId>) {
        push(&mut self.groups, (id, members), self.most / 8);
    }

    /// How long all calls took, and how many there were.
    pub(crate) fn served_so_far(&self) -> (Duration, u64) {
        (Duration::from_nanos(self.total_ns), self.histogram.len())
    }

    pub(crate) fn service(&self) -> Service {
        let count = self.histogram.len();
        Service {
            count,
            total_ns: self.total_ns,
            mean_ns: self.total_ns.checked_div(count).unwrap_or(0),
            p50_ns: self.histogram.value_at_quantile(0.5),
            p90_ns: self.histogram.value_at_quantile(0.9),
            p99_ns: self.histogram.value_at_quantile(0.99),
            max_ns: self.histogram.max(),
        }
    }

    /// How many calls took up to so many nanoseconds, in steps of a factor of 1.5.
    pub(crate) fn histogram(&self) -> Vec<(u64, u64)> {
        let steps = self.histogram.iter_log(1000, 1.5);
        let steps = steps.map(|step| (step.value_iterated_to(), step.count_since_last_iteration()));
        let steps: Vec<_> = steps.skip_while(|(_, count)| *count == 0).collect();
        let end = steps.iter().rposition(|(_, count)| *count > 0).map_or(0, |last| last + 1);
        steps[..end].to_vec()
    }

    pub(crate) fn slowest(&self) -> Vec<Slow> {
        self.slowest.clone()
    }

    pub(crate) fn failures(&self) -> Vec<Failures> {
        self.failures.clone()
    }
}

fn push<T>(queue: &mut VecDeque<T>, value: T, most: usize) {
    if queue.len() >= most {
        queue.pop_front();
    }
    queue.push_back(value);
}

/// The text with each run of digits as one `#`.
fn without_numbers(text: &str) -> String {
    let mut plain = String::with_capacity(text.len());
    for c in text.chars() {
        match c.is_ascii_digit() {
            true if plain.ends_with('#') => {}
            true => plain.push('#'),
            false => plain.push(c),
        }
    }
    plain
}

#[cfg(test)]
mod tests {
    use super::*;

    fn call(n: u64) -> CallRecord {
        let id = ItemId::source(n);
        CallRecord { id, worker: 0, attempt: 1, from_ns: n, ns: n * 1000, bytes: 0, failed: false }
    }

    #[test]
    fn what_is_remembered_is_bounded() {
        let mut log = Log::new();
        let calls: Vec<_> = (0..5000).map(call).collect();
        calls.chunks(37).for_each(|burst| log.served(burst));
        log.served(&calls);
        assert_eq!((log.calls.len(), log.calls[0].id.position()), (REMEMBERED, 5000 - 1024));
        assert_eq!(log.service().count, 10_000);
        let counted: u64 = log.histogram().iter().map(|(_, count)| count).sum();
        assert_eq!(counted, 10_000);
    }

    #[test]
    fn the_slowest_are_kept_in_order() {
        let mut log = Log::new();
        for n in [5, 9, 1, 7, 3, 12, 8, 2, 6, 4, 11, 10] {
            let call = call(n);
            if call.ns > log.slow_ns() {
                log.slow(&call, None);
            }
        }
        let items: Vec<_> = log.slowest().into_iter().map(|slow| slow.item).collect();
        assert_eq!(items, ["12", "11", "10", "9", "8", "7", "6", "5"]);
    }

    #[test]
    fn failures_that_differ_in_numbers_are_one_kind() {
        let mut log = Log::new();
        for n in 0..40 {
            let kind = if n % 4 == 0 { "no such key" } else { "refused after" };
            log.failed(&Fault::error(format!("{kind} {n}").into()));
        }
        let counts: Vec<_> = log.failures().into_iter().map(|f| (f.error, f.count)).collect();
        assert_eq!(counts, [("no such key 0".to_owned(), 10), ("refused after 1".to_owned(), 30)]);
        (0..40_u8).for_each(|n| log.failed(&Fault::error("x".repeat(n.into()).into())));
        assert_eq!(log.failures().len(), FAILURES);
        assert_eq!(log.failures().iter().map(|f| f.count).sum::<u64>(), 80);
    }
}
