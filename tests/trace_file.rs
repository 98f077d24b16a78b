//! The trace of a run is one that viewers can open: valid JSON, slices that nest, arrows with two
//! ends, and each call in it.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use forebay::pipeline::TraceRule;
use forebay::prelude::*;
use forebay::running::Handle;
use forebay::trace;
use serde_json::Value as Json;

/// Requests, retries, groups, a call that yields many, and a filter.
fn pipeline() -> Pipeline<u64> {
    let asked = AtomicU64::new(0);
    let fetch = io::map("fetch", move |x: u64| {
        let fails = asked.fetch_add(1, SeqCst) == 5;
        async move {
            let mut request = trace::request(|| format!("GET store.example/{x}?\"<"));
            tokio::time::sleep(Duration::from_millis(1 + x % 3)).await;
            request.received(100);
            if fails { Err("503") } else { Ok(x) }
        }
    });
    let retry = Retry::times(2).backoff(Duration::from_millis(1), Duration::from_millis(2));
    Pipeline::from(source::iter("numbers", 0..40_u64))
        .then(fetch.workers(4).retry(retry))
        .then(flow::batch(4))
        .then(cpu::map("sum", |x: Vec<u64>| Ok::<_, Never>(x)).workers(2))
        .then(cpu::flat_map("each", |x: Vec<u64>| {
            Ok::<_, Never>(x.into_iter().map(Ok::<_, Never>))
        }))
        .then(device::map("upload", |x: u64| Ok::<_, Never>(x)))
        .named("traced \"so\"")
}

fn events(handle: &Handle) -> Vec<Json> {
    let mut text = Vec::new();
    handle.write_trace(&mut text).expect("memory is writable");
    let json: Json = serde_json::from_slice(&text).expect("valid JSON");
    json["traceEvents"].as_array().expect("a list").clone()
}

fn traced(rule: Option<TraceRule>) -> Vec<Json> {
    let mut pipeline = pipeline();
    pipeline.settings_mut().trace = rule;
    let mut run = pipeline.run().expect("runs");
    assert_eq!(run.by_ref().filter(Result::is_ok).count(), 40);
    let handle = run.handle();
    drop(run);
    events(&handle)
}

fn of<'a>(events: &'a [Json], ph: &'a str) -> impl Iterator<Item = &'a Json> {
    events.iter().filter(move |event| event["ph"] == ph)
}

fn number(value: &Json) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

#[test]
fn every_call_has_a_slice_and_slices_nest() {
    let events = traced(Some(TraceRule::default()));
    let mut tracks: BTreeMap<u64, Vec<(f64, f64)>> = BTreeMap::new();
    let mut calls: BTreeMap<String, usize> = BTreeMap::new();
    for slice in of(&events, "X") {
        let (start, took) = (number(&slice["ts"]), number(&slice["dur"]));
        let track = slice["tid"].as_u64().expect("a track");
        tracks.entry(track).or_default().push((start, start + took));
        let name = slice["name"].as_str().expect("a name");
        let stage = name.split(' ').next().unwrap_or_default().to_owned();
        *calls.entry(stage).or_default() += 1;
        assert!(slice["args"]["item"].is_string() && slice["args"]["attempt"].is_u64());
    }
    assert_eq!(calls.get("fetch"), Some(&41), "with the retry: {calls:?}");
    assert_eq!((calls.get("sum"), calls.get("upload")), (Some(&10), Some(&40)));
    for (track, mut slices) in tracks {
        slices.sort_by(|a, b| a.0.total_cmp(&b.0));
        for pair in slices.windows(2) {
            let apart = pair[0].1 <= pair[1].0 + 0.001;
            assert!(apart, "a worker makes one call at a time, track {track}: {pair:?}");
        }
    }
    let named: BTreeSet<_> = of(&events, "M")
        .filter(|event| event["name"] == "thread_name")
        .map(|event| event["tid"].as_u64())
        .collect();
    assert!(of(&events, "X").all(|slice| named.contains(&slice["tid"].as_u64())));
}

#[test]
fn arrows_follow_items_and_have_two_ends() {
    let events = traced(Some(TraceRule::default()));
    let slices: Vec<_> = of(&events, "X").collect();
    let ends = |ph| -> BTreeMap<u64, &Json> {
        of(&events, ph).map(|event| (event["id"].as_u64().expect("an id"), event)).collect()
    };
    let (from, to) = (ends("s"), ends("f"));
    assert_eq!(from.keys().collect::<Vec<_>>(), to.keys().collect::<Vec<_>>());
    let slice_at = |end: &Json| {
        let at = number(&end["ts"]);
        let found = slices.iter().find(|slice| {
            let start = number(&slice["ts"]);
            slice["tid"] == end["tid"] && start <= at && at <= start + number(&slice["dur"])
        });
        found.unwrap_or_else(|| panic!("{end} is in no slice"))["name"].as_str().expect("a name")
    };
    let mut hops: BTreeMap<(String, String), usize> = BTreeMap::new();
    for (n, start) in &from {
        let end = to[n];
        assert!(number(&start["ts"]) <= number(&end["ts"]), "{start} {end}");
        let stage = |end| slice_at(end).split(' ').next().unwrap_or_default().to_owned();
        *hops.entry((stage(start), stage(end))).or_default() += 1;
    }
    let hop = |a: &str, b: &str| hops.get(&(a.to_owned(), b.to_owned())).copied();
    // Each number goes into a batch; each batch was asked for all it yields.
    assert_eq!(hop("fetch", "sum"), Some(40), "{hops:?}");
    assert_eq!(hop("each", "upload"), Some(40), "{hops:?}");
}

#[test]
fn requests_and_buffers_are_shown() {
    let events = traced(Some(TraceRule::default()));
    let ids = |ph| of(&events, ph).map(|e| e["id"].as_str().map(str::to_owned)).collect();
    let (begun, ended): (BTreeSet<_>, BTreeSet<_>) = (ids("b"), ids("e"));
    assert_eq!((begun.len(), &begun), (41, &ended));
    let counters: BTreeSet<_> = of(&events, "C").filter_map(|e| e["name"].as_str()).collect();
    assert!(counters.contains("buffer behind fetch, items"), "{counters:?}");
}

#[test]
fn a_trace_is_no_longer_than_it_may_be() {
    // No time at all: what ended before the run did is left out.
    let rule = TraceRule { last: Duration::ZERO, ..TraceRule::default() };
    let events = traced(Some(rule));
    assert!(of(&events, "X").count() < 41, "{}", of(&events, "X").count());
    // Without a rule the last calls are still there, but no requests.
    let events = traced(None);
    assert_eq!(of(&events, "b").count(), 0);
    assert!(of(&events, "X").count() > 41);
}
