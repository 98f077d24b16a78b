//! How many items a stage and its buffer hold at most, and how much memory of the host and of a device
//! they take.

use super::flow::Flow;
use crate::device::UNDER_WAY;
use crate::limits;
use crate::options::{Options, Ordered};
use crate::stage::Kind;

/// What a stage holds at most.
pub(super) struct Holds {
    /// Items in memory of the kind that those have which come in, or go out where that is the same.
    pub(super) items: u64,
    /// Bytes of memory of the host, if they are known.
    pub(super) host: Option<u64>,
    /// Bytes of memory of a device, if they are known.
    pub(super) device: Option<u64>,
}

impl Holds {
    /// What the stage itself keeps: `bytes` bytes.
    pub(super) fn own(bytes: u64) -> Self {
        Holds { items: 0, host: Some(bytes), device: Some(0) }
    }

    /// What a stage of these options holds beside, of items `before` it and `after` it.
    pub(super) fn with(
        mut self,
        kind: Kind,
        options: &Options,
        cores: usize,
        before: &Flow,
        after: &Flow,
    ) -> Self {
        let out = after.bytes;
        let all = after.items.unwrap_or(u64::MAX);
        let buffer = options.buffer.unwrap_or_default();
        // As many as there is room for in bytes; one always fits.
        let fit = |items: u64| match out {
            Some(out) => items.min(all).min((buffer.bytes / out.max(1)).max(1)),
            None => items.min(all),
        };
        let waiting = out.map(|out| limits::buffered(options, out, after.items));
        let buffered = fit(buffer.items as u64);
        self.add(after, waiting);
        if !kind.makes_calls() {
            self.add(after, out);
            self.items = buffered.saturating_add(1);
            return self;
        }
        let workers = limits::workers(kind, options, cores) as u64;
        let calls = workers.min(all);
        let turn = match options.ordered.unwrap_or(Ordered::Window(None)) {
            Ordered::No => 0,
            ordered => limits::window(ordered, workers as usize).unwrap_or(0).saturating_sub(1),
        };
        let times = |bytes: Option<u64>, items: u64| bytes.map(|bytes| bytes.saturating_mul(items));
        self.add(before, times(before.bytes, calls));
        self.add(after, times(out, calls));
        let in_turn = times(out, turn.min(all));
        self.add(after, in_turn.zip(out).map(|(all, out)| all.min(buffer.bytes.max(out))));
        let uploads = after.on_device && !before.on_device;
        let behind = if uploads {
            // What its lanes have in hand, and what the device still reads.
            let read = (UNDER_WAY as u64).saturating_mul(workers);
            self.add(
                before,
                times(before.bytes, fit(turn).saturating_add(read).min(all.saturating_sub(calls))),
            );
            read
        } else {
            buffered
        };
        self.items = [calls, fit(turn), behind].into_iter().fold(0, u64::saturating_add);
        self
    }

    /// Adds `bytes` to the memory that the items of `flow` are in.
    fn add(&mut self, flow: &Flow, bytes: Option<u64>) {
        let memory = if flow.on_device { &mut self.device } else { &mut self.host };
        *memory = memory.zip(bytes).map(|(sum, bytes)| sum.saturating_add(bytes));
    }
}
