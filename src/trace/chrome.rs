//! The last seconds of a run as a trace in Chrome's JSON format, which Perfetto opens: a track for
//! each worker with a slice for each call, requests, arrows that follow an item through the stages,
//! counters for the buffers, and a track for the consumer's waits.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::io::{self, Write};

use serde_json::{Value as Json, json};

use super::log::{CallRecord, Log};
use super::{Meter, Series};
use crate::item::ItemId;

/// Workers of a stage have numbers from this times the stage's place on.
const STAGE: usize = 100_000;

/// What a trace is made of.
pub(crate) struct Traced<'a> {
    pub(crate) name: &'a str,
    /// The stages in order, the consumer last.
    pub(crate) stages: &'a [&'a Meter],
    /// Figures over time of all stages but the consumer.
    pub(crate) series: &'a Series,
    /// What ended earlier is left out, in nanoseconds from the run's start.
    pub(crate) from_ns: u64,
}

/// Writes the trace.
pub(crate) fn chrome(traced: &Traced<'_>, to: &mut impl Write) -> io::Result<()> {
    let mut events = Events { to, any: false };
    write!(events.to, "{{\"displayTimeUnit\":\"ms\",\"traceEvents\":[")?;
    let process = json!({ "name": traced.name });
    events.put(&json!({ "ph": "M", "pid": 1, "name": "process_name", "args": process }))?;
    let mut before = Before::default();
    let mut flows = 0;
    for (place, meter) in traced.stages.iter().enumerate() {
        let log = meter.log.lock();
        let track = |worker: u32| (place + 1) * STAGE + worker as usize;
        let calls: Vec<_> =
            log.calls.iter().filter(|c| c.until_ns() >= traced.from_ns).copied().collect();
        events.tracks(meter, &calls, track)?;
        for call in &calls {
            events.call(meter, call, track(call.worker))?;
            for from in before.of(call.id) {
                flows += 1;
                events.arrow(flows, &from, call, track(call.worker))?;
            }
        }
        for (n, request) in log.requests.iter().enumerate() {
            if request.from_ns + request.ns >= traced.from_ns {
                let id = format!("{place}.{n}");
                let ends = [("b", request.from_ns), ("e", request.from_ns + request.ns)];
                for (ph, at) in ends {
                    let args = json!({ "bytes": request.bytes });
                    let tid = track(request.worker);
                    events.put(&json!({
                        "ph": ph, "cat": "request", "name": request.what, "id": id, "pid": 1,
                        "tid": tid, "ts": us(at), "args": args,
                    }))?;
                }
            }
        }
        before.pass(&log, &calls, track);
    }
    counters(traced, &mut events)?;
    writeln!(events.to, "\n]}}")
}

struct Events<'a, W> {
    to: &'a mut W,
    any: bool,
}

impl<W: Write> Events<'_, W> {
    fn put(&mut self, event: &Json) -> io::Result<()> {
        self.to.write_all(if self.any { b",\n" } else { b"\n" })?;
        self.any = true;
        serde_json::to_writer(&mut *self.to, event).map_err(io::Error::from)
    }

    /// Names the tracks of the workers that made calls.
    fn tracks(
        &mut self,
        meter: &Meter,
        calls: &[CallRecord],
        track: impl Fn(u32) -> usize,
    ) -> io::Result<()> {
        let workers: BTreeSet<u32> = calls.iter().map(|call| call.worker).collect();
        let alone = workers.len() == 1 && meter.workers() == 1;
        for worker in workers {
            let tid = track(worker);
            let name = match alone {
                true => meter.id.clone(),
                false => format!("{} {worker}", meter.id),
            };
            let args = json!({ "name": name });
            self.put(&json!({
                "ph": "M", "pid": 1, "tid": tid, "name": "thread_name", "args": args
            }))?;
            let args = json!({ "sort_index": tid });
            self.put(&json!({
                "ph": "M", "pid": 1, "tid": tid, "name": "thread_sort_index", "args": args
            }))?;
        }
        Ok(())
    }

    fn call(&mut self, meter: &Meter, call: &CallRecord, tid: usize) -> io::Result<()> {
        let CallRecord { id, attempt, bytes, failed, from_ns, ns, .. } = *call;
        let (name, item) = (format!("{} {id}", meter.id), id.to_string());
        let args = json!({ "item": item, "attempt": attempt, "bytes": bytes, "failed": failed });
        self.put(&json!({
            "ph": "X", "cat": meter.kind.to_string(), "name": name, "pid": 1, "tid": tid,
            "ts": us(from_ns), "dur": us(ns), "args": args,
        }))
    }

    /// An arrow from the end of one call to the beginning of another.
    fn arrow(&mut self, n: u64, from: &Origin, to: &CallRecord, tid: usize) -> io::Result<()> {
        let end = from.call.until_ns().saturating_sub(1).max(from.call.from_ns);
        // The consumer's waits begin before what is waited for is done: there, the end.
        let begin = match to.from_ns >= end {
            true => to.from_ns,
            false => to.until_ns().saturating_sub(1).max(end),
        };
        self.put(&json!({
            "ph": "s", "cat": "item", "name": "item", "id": n, "pid": 1, "tid": from.tid,
            "ts": us(end),
        }))?;
        self.put(&json!({
            "ph": "f", "bp": "e", "cat": "item", "name": "item", "id": n, "pid": 1, "tid": tid,
            "ts": us(begin),
        }))
    }
}

/// The last call on an item, and the track that it is on.
#[derive(Clone, Copy)]
struct Origin {
    call: CallRecord,
    tid: usize,
}

/// What the last stage that makes calls did: where arrows begin.
#[derive(Default)]
struct Before {
    calls: HashMap<ItemId, Origin>,
    by_position: BTreeMap<u64, Origin>,
    groups: HashMap<ItemId, Vec<ItemId>>,
}

impl Before {
    /// The calls that an item, or what it is made of, comes from.
    fn of(&self, id: ItemId) -> Vec<Origin> {
        let members = self.groups.get(&id).map_or(std::slice::from_ref(&id), Vec::as_slice);
        let of_one = |id: &ItemId| {
            // What a stage made of an item has an id of its own.
            self.calls.get(id).or_else(|| self.by_position.get(&id.position())).copied()
        };
        members.iter().filter_map(of_one).collect()
    }

    /// A stage has been seen.
    fn pass(&mut self, log: &Log, calls: &[CallRecord], track: impl Fn(u32) -> usize) {
        if !calls.is_empty() {
            let origins = calls.iter().map(|call| Origin { call: *call, tid: track(call.worker) });
            self.calls = origins.clone().map(|origin| (origin.call.id, origin)).collect();
            self.by_position = origins.map(|o| (o.call.id.position(), o)).collect();
            self.groups.clear();
        }
        self.groups.extend(log.groups.iter().cloned());
    }
}

fn counters<W: Write>(traced: &Traced<'_>, events: &mut Events<'_, W>) -> io::Result<()> {
    let series = traced.series;
    let from = traced.from_ns as f64 / 1e9;
    for (n, t) in series.t.iter().enumerate().filter(|(_, t)| **t >= from) {
        let ts = us((t * 1e9) as u64);
        let mut put = |name: String, value: Json| {
            events.put(&json!({ "ph": "C", "name": name, "pid": 1, "ts": ts, "args": value }))
        };
        for (stage, meter) in series.stages.iter().zip(traced.stages) {
            let id = &meter.id;
            put(format!("buffer behind {id}, items"), json!({ "items": stage.buffer_items[n] }))?;
            put(format!("buffer behind {id}, bytes"), json!({ "bytes": stage.buffer_bytes[n] }))?;
        }
        put("memory".to_owned(), json!({ "bytes": series.rss[n] }))?;
    }
    Ok(())
}

/// Microseconds with their fraction.
fn us(ns: u64) -> f64 {
    ns as f64 / 1e3
}
