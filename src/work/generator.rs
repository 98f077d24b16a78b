//! A call that yields many items: they are made one by one, as there is room for them.

use std::collections::VecDeque;
use std::future::poll_fn;
use std::panic::AssertUnwindSafe;
use std::pin::pin;
use std::sync::Arc;
use std::time::Instant;

use futures::FutureExt as _;

use super::desk::{Desk, Return};
use super::floor::Done;
use super::kept::Kept;
use super::worker::{Hand, SHIFT, Wage};
use super::{Call, Work};
use crate::fault::Fault;
use crate::item::ItemId;
use crate::stage::Kind;
use crate::trace::{CallRecord, CallSpan};

/// A call that yields many items, between two of them.
pub(super) struct Generator<W: Work> {
    pub(super) seq: u64,
    pub(super) id: ItemId,
    pub(super) name: Option<String>,
    pub(super) made: u64,
    pub(super) rest: W::Rest,
}

/// Makes items as long as they are wanted.
pub(super) async fn run_generator<W: Work>(
    desk: &Arc<Desk<W>>,
    worker: usize,
    kept: &mut Option<Kept<W>>,
    mut generator: Generator<W>,
    mut done: Vec<(u64, Done<W::Out>)>,
) -> Return<W> {
    let call_of = (generator.seq, generator.id);
    let seq = generator.seq;
    let mut wage = Wage::default();
    let meter = &desk.site.meter;
    let mut calls = Vec::new();
    let mut made = VecDeque::new();
    let mut allowed = desk.offer(call_of, &mut made);
    let end = loop {
        if desk.is_closed() {
            break None;
        }
        if allowed == 0 {
            break Some(Err(()));
        }
        let from = Instant::now();
        let Generator { id, name, .. } = &generator;
        meter.under_way[worker].begin(seq, *id, 1, name.as_ref(), meter.since_start(from));
        let call = Call { worker: &desk.workers[worker], id: id.child(generator.made), attempt: 1 };
        let span = CallSpan::new(desk.site.span(), &call, name.as_deref());
        let state = kept.as_mut().and_then(|kept| kept.state.as_mut());
        let state = state.expect("the call that yields many made the state");
        let more = AssertUnwindSafe(desk.work.more(state, &mut generator.rest)).catch_unwind();
        let mut more = pin!(more);
        // What was made goes on before we wait for the next.
        let more = poll_fn(|context| {
            let poll = span.in_scope(|| more.as_mut().poll(context));
            if poll.is_pending() && !made.is_empty() {
                desk.offer(call_of, &mut made);
            }
            poll
        });
        let limit = desk.rules.timeout;
        let result = match limit {
            Some(limit) if desk.rules.kind == Kind::Io => {
                tokio::time::timeout(limit, more).await.ok()
            }
            _ => Some(more.await).filter(|_| limit.is_none_or(|limit| from.elapsed() <= limit)),
        };
        let ns = from.elapsed().as_nanos() as u64;
        let failed = !matches!(result, Some(Ok(Ok(_))));
        let call = CallRecord {
            id: generator.id.child(generator.made),
            worker: worker as u32,
            attempt: 1,
            from_ns: meter.since_start(from),
            ns,
            bytes: 0,
            failed,
        };
        meter.note_if_slow(&call);
        calls.push(call);
        wage.ns += ns;
        wage.calls += 1;
        let fault = match result {
            Some(Ok(Ok(Some(out)))) => {
                let id = generator.id.child(generator.made);
                generator.made += 1;
                let item = desk.weighed(id, out);
                wage.bytes += item.bytes;
                made.push_back(item);
                allowed -= 1;
                if allowed == 0 || wage.ns > SHIFT.as_nanos() as u64 {
                    allowed = desk.offer(call_of, &mut made);
                }
                continue;
            }
            Some(Ok(Ok(None))) => break Some(Ok(Done::Nothing)),
            Some(Ok(Err(error))) => Fault::error(error),
            Some(Err(panic)) => Fault::panic(panic),
            None => Fault::timeout(limit.unwrap_or_default()),
        };
        let fault = fault.on(generator.id, generator.name.clone(), 1);
        meter.failed(&fault);
        break Some(Ok(desk.judge_call(seq, fault, &span)));
    };
    meter.under_way[worker].end();
    if !made.is_empty() {
        desk.offer(call_of, &mut made);
    }
    meter.served(&calls);
    let mut rest = None;
    match end {
        Some(Ok(outcome)) => done.push((seq, outcome)),
        Some(Err(())) => rest = Some((Hand::More(generator), None)),
        None => {}
    }
    Return { done, back: VecDeque::new(), rest, wage }
}
