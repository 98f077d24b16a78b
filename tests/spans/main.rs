//! Spans and events for a subscriber of one's own. A binary of its own, because the subscriber is
//! the whole process's.

mod collect;
#[expect(dead_code, reason = "these tests need few of its troubles")]
#[path = "../zarr/server.rs"]
mod server;

/// What the server takes.
mod fixture {
    pub(crate) type Objects = std::collections::BTreeMap<String, Vec<u8>>;
}

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::time::Duration;

use forebay::prelude::*;
use forebay::trace::{self, RunStats};
use serde_json::json;
use tracing::level_filters::LevelFilter;

use crate::collect::{COARSE, SEEN, Seen, Told, listen, seen};
use crate::fixture::Objects;
use crate::server::{Fault as Trouble, Server};

fn numbers(name: &str, most: u64) -> Pipeline<u64> {
    let mut numbers = Pipeline::from(source::iter("numbers", 0..most));
    numbers.settings_mut().name = name.to_owned();
    numbers
}

/// A stage of each kind that makes calls; each call says what it works on, before and after it waits
/// where it can.
fn three_kinds(most: u64) -> RunStats {
    let ask = async |x: u64| {
        tracing::info!(x, "asked");
        tokio::time::sleep(Duration::from_micros(x % 7 * 100)).await;
        tracing::info!(x, "answered");
        Ok::<_, Never>(x)
    };
    let say = |x: u64| {
        tracing::info!(x, "computed");
        Ok::<_, Never>(x)
    };
    numbers("three", most)
        .then(io::map("ask", ask).workers(5))
        .then(cpu::map("square", say).workers(2))
        .then(device::map("touch", say))
        .run()
        .expect("runs")
        .drain()
        .expect("no failure")
}

#[test]
fn a_call_is_a_span_in_that_of_its_stage() {
    let _alone = listen(LevelFilter::TRACE);
    let stats = three_kinds(200);
    let seen = seen();
    for (id, kind, workers) in [
        ("numbers", "source", "1"),
        ("ask", "io", "5"),
        ("square", "cpu", "2"),
        ("touch", "device", "1"),
    ] {
        let is_it = |span: &&Told| span.name == "forebay.stage" && span.get("stage") == id;
        let stages: Vec<_> = seen.spans.iter().filter(is_it).collect();
        assert_eq!(stages.len(), 1, "{id}");
        let fields = ["kind", "workers", "run"].map(|field| stages[0].get(field));
        assert_eq!(fields, [kind, workers, "three"]);
        assert_eq!((stages[0].target, stages[0].around.len()), ("forebay::stage", 0));
    }
    for stage in &stats.stages[1..] {
        let items: Vec<_> = seen.items(&stage.id).collect();
        assert_eq!(items.len() as u64, stage.attempts, "{}", stage.id);
        for span in items {
            assert_eq!((span.target, span.get("attempt")), ("forebay::item", "1"));
            assert!(span.get("worker").parse::<usize>().is_ok_and(|n| n < stage.workers));
            let [("forebay.stage", around)] = &span.around[..] else { panic!("{span:?}") };
            assert_eq!(around["stage"], stage.id);
        }
    }
    assert_eq!(seen.closed, seen.spans.len(), "every span ends with the run");
}

#[test]
fn what_a_call_says_is_inside_its_item_and_its_stage() {
    let _alone = listen(LevelFilter::TRACE);
    three_kinds(200);
    let seen = seen();
    for (message, stages) in
        [("asked", &["ask"][..]), ("answered", &["ask"]), ("computed", &["square", "touch"])]
    {
        let events: Vec<_> = seen.said(message).collect();
        assert_eq!(events.len(), 200 * stages.len());
        for event in events {
            let [("forebay.item", item), ("forebay.stage", stage)] = &event.around[..] else {
                panic!("{event:?}");
            };
            assert_eq!(item["item"], event.get("x"), "{event:?}");
            assert_eq!(item["stage"], stage["stage"]);
            assert!(stages.contains(&&*stage["stage"]), "{event:?}");
        }
    }
}

#[test]
fn without_spans_of_items_what_a_call_says_is_inside_its_stage() {
    let _alone = listen(LevelFilter::INFO);
    three_kinds(50);
    let seen = seen();
    assert_eq!(seen.spans.iter().filter(|span| span.name == "forebay.item").count(), 0);
    assert_eq!(seen.events.len(), 4 * 50, "nothing of ours");
    assert!(seen.events.iter().all(|event| event.around.len() == 1));
}

#[test]
fn a_subscriber_without_spans_of_items_has_stages_although_another_has_them() {
    let _alone = listen(LevelFilter::TRACE);
    three_kinds(50);
    let coarse = COARSE.lock().clone();
    assert_eq!((coarse.spans.len(), coarse.events.len()), (4, 4 * 50));
    let is_in_stage =
        |event: &Told| event.around.len() == 1 && event.around[0].0 == "forebay.stage";
    assert!(coarse.events.iter().all(is_in_stage));
}

#[test]
fn nothing_is_made_when_nobody_listens() {
    let _alone = listen(LevelFilter::OFF);
    let stats = three_kinds(50);
    let seen = seen();
    assert_eq!((stats.items, seen.spans.len(), seen.events.len()), (50, 0, 0));
}

#[test]
fn each_item_of_a_call_that_makes_many_is_a_call() {
    let _alone = listen(LevelFilter::TRACE);
    let three = |x: u64| {
        Ok::<_, Never>((0..3).map(move |n| {
            tracing::info!(n, "made");
            Ok::<_, Never>(10 * x + n)
        }))
    };
    let stats = numbers("many", 20).then(cpu::flat_map("three", three).workers(2));
    let stats = stats.run().expect("runs").drain().expect("no failure");
    let seen = seen();
    assert_eq!(stats.items, 60);
    assert_eq!(seen.items("three").count() as u64, stats.stages[1].service.count);
    assert_eq!(seen.said("made").filter(|event| event.around.len() == 2).count(), 60);
}

#[test]
fn retries_skips_and_throttling_are_told_where_they_happen() {
    let _alone = listen(LevelFilter::DEBUG);
    let calls = Arc::new(AtomicU64::new(0));
    let ask = move |x: u64| {
        let first = calls.fetch_add(1, SeqCst) == 0;
        async move {
            match x {
                _ if first => Err("busy"),
                3 => Err("never"),
                5 => {
                    trace::throttled();
                    Ok(x)
                }
                _ => Ok(x),
            }
        }
    };
    let retry = Retry { backoff: Duration::from_millis(1), ..Retry::times(2) };
    let skip = OnError::Skip { max: SkipLimit::Count(1), log: None };
    let ask = io::map("ask", ask).workers(1).retry(retry).on_error(skip);
    let stats = numbers("retries", 9).then(ask).run().expect("runs").drain().expect("skips");
    let seen = seen();
    let retries: Vec<_> = seen.said("failed and is tried again").collect();
    assert_eq!((retries.len() as u64, stats.stages[1].retries), (3, 3));
    let told = ["stage", "item", "attempt", "error"].map(|field| retries[2].get(field));
    assert_eq!(told, ["ask", "3", "2", "never"]);
    assert!(retries[2].get("pause_ms").parse::<f64>().is_ok_and(|ms| ms < 10.0));
    let skips: Vec<_> = seen.said("skipped").collect();
    assert_eq!((skips.len(), skips[0].get("item"), skips[0].get("error")), (1, "3", "never"));
    let throttled: Vec<_> = seen.said("asked to ask less").collect();
    assert_eq!((throttled.len(), throttled[0].get("stage")), (1, "ask"));
    for event in retries.iter().chain(&skips).chain(&throttled) {
        let [("forebay.stage", stage)] = &event.around[..] else { panic!("{event:?}") };
        assert_eq!((&*stage["stage"], event.target), ("ask", "forebay::item"));
    }
}

#[test]
fn a_stage_says_at_its_end_what_it_did() {
    let _alone = listen(LevelFilter::DEBUG);
    let stats = three_kinds(30);
    let ends = |seen: &Seen| -> BTreeMap<String, Told> {
        let ends = seen.said("the stage has ended");
        ends.map(|end| (end.get("stage").to_owned(), end.clone())).collect()
    };
    let told = ends(&seen());
    for stage in &stats.stages {
        let end = &told[&stage.id];
        assert_eq!((end.get("ended"), end.around.len()), ("finished", 1));
        for (field, value) in [("items_out", stage.items_out), ("calls", stage.service.count)] {
            assert_eq!(end.get(field), value.to_string(), "{field} of {}", stage.id);
        }
    }

    *SEEN.lock() = Seen::default();
    let fail = cpu::map("fail", |x: u64| if x == 7 { Err("no more") } else { Ok(x) });
    let broken = numbers("broken", 1_000_000).then(fail).then(flow::batch(2)).run().expect("runs");
    broken.drain().expect_err("it fails");
    let told = ends(&seen());
    let how = ["numbers", "fail", "batch"].map(|id| told[id].get("ended"));
    assert_eq!(how, ["not wanted", "failed", "stopped"]);
    let fault = told["fail"].get("fault");
    assert_eq!(fault, "stage `fail` failed on item 7: no more");
    assert_eq!(seen().said("the stage has ended").count(), 3, "each once");
}

#[test]
fn every_span_ends_also_when_the_run_is_left_early() {
    let _alone = listen(LevelFilter::TRACE);
    for _ in 0..20 {
        let square = cpu::map("square", |x: u64| Ok::<_, Never>(x * x)).workers(2);
        let ask = io::map("ask", async |x: u64| {
            tokio::time::sleep(Duration::from_millis(x % 3)).await;
            Ok::<_, Never>(x)
        });
        let mut run = numbers("left", 1_000_000).then(ask).then(square).run().expect("runs");
        assert_eq!(run.by_ref().take(5).filter(Result::is_ok).count(), 5);
        run.close();
        let seen = seen();
        assert_eq!(seen.closed, seen.spans.len());
    }
}

#[test]
fn secrets_never_appear() {
    let _alone = listen(LevelFilter::TRACE);
    let secret = "Zm9yYmF5c2VjcmV0";
    let metadata = json!({
        "zarr_format": 3, "node_type": "array", "shape": [4, 8, 8], "data_type": "float32",
        "chunk_grid": { "name": "regular", "configuration": { "chunk_shape": [1, 8, 8] } },
        "chunk_key_encoding": { "name": "default" }, "fill_value": 0.0,
        "codecs": [{ "name": "bytes", "configuration": { "endian": "little" } }],
        "dimension_names": ["time", "y", "x"],
    });
    let group = json!({ "zarr_format": 3, "node_type": "group" });
    let mut objects = Objects::new();
    objects.insert("zarr.json".to_owned(), group.to_string().into());
    objects.insert("t2m/zarr.json".to_owned(), metadata.to_string().into());
    objects.extend((0..4).map(|t| (format!("t2m/c/{t}/0/0"), vec![0; 256])));
    let server = Server::start(objects);
    server.fault("t2m/c/1/0/0", Trouble::Busy(1));
    server.fault("t2m/c/2/0/0", Trouble::CutOff(1_000));
    let url = server.url.replace("http://", &format!("http://user:{secret}@"));
    let store = Store::open(&format!("{url}?sig={secret}")).expect("opens");
    let variables = vec!["t2m".to_owned()];
    let spec = WindowsSpec { variables, window: [("time", 1)].into(), ..Default::default() };
    let retry = Retry { backoff: Duration::from_millis(1), ..Retry::times(1) };
    let skip = OnError::Skip { max: SkipLimit::Any, log: None };
    let stats = Pipeline::from(zarr::windows(&store, &spec).expect("windows"))
        .then(flow::batch(1))
        .then(io::map("fetch", zarr::fetch).retry(retry).on_error(skip))
        .then(cpu::map("decode", zarr::decode(&Pool::default())))
        .run()
        .expect("runs")
        .drain()
        .expect("skips");
    assert_eq!((stats.items, stats.skipped), (3, 1));
    let seen = seen();
    let skips: Vec<_> = seen.said("skipped").collect();
    assert!(skips[0].get("error").contains("t2m/c/2/0/0"), "{skips:?}");
    assert!(seen.items("decode").all(|span| !span.get("name").is_empty()), "names are told");
    assert!(!format!("{seen:?}").contains(secret), "{seen:?}");
}
