//! Spans and events for a subscriber of one's own. A binary of its own, because the subscriber is
//! the whole process's.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, LazyLock};
use std::time::Duration;

use forebay::prelude::*;
use forebay::trace::{self, RunStats};
use parking_lot::{Mutex, MutexGuard};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

type Fields = BTreeMap<&'static str, String>;

/// A span or an event.
#[derive(Clone, Debug)]
struct Told {
    target: &'static str,
    name: &'static str,
    fields: Fields,
    /// The spans around it, innermost first.
    around: Vec<(&'static str, Fields)>,
}

impl Told {
    fn get(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", |text| text)
    }
}

/// What the subscriber has seen.
#[derive(Clone, Debug, Default)]
struct Seen {
    spans: Vec<Told>,
    events: Vec<Told>,
    closed: usize,
}

impl Seen {
    fn items<'a>(&'a self, stage: &'a str) -> impl Iterator<Item = &'a Told> {
        self.spans.iter().filter(move |s| s.name == "forebay.item" && s.get("stage") == stage)
    }

    fn said<'a>(&'a self, message: &'a str) -> impl Iterator<Item = &'a Told> {
        self.events.iter().filter(move |event| event.get("message") == message)
    }
}

static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);
/// What a second subscriber has seen that wants no spans of items.
static COARSE: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);
static LEVEL: Mutex<LevelFilter> = Mutex::new(LevelFilter::OFF);

struct Collect(&'static Mutex<Seen>);

struct Reading<'a>(&'a mut Fields);

impl Visit for Reading<'_> {
    fn record_str(&mut self, field: &Field, value: &str) {
        self.0.insert(field.name(), value.to_owned());
    }

    fn record_debug(&mut self, field: &Field, value: &dyn fmt::Debug) {
        self.0.insert(field.name(), format!("{value:?}"));
    }
}

impl<S: Subscriber + for<'a> LookupSpan<'a>> Layer<S> for Collect {
    fn on_new_span(&self, attributes: &Attributes<'_>, id: &Id, context: Context<'_, S>) {
        let mut fields = Fields::new();
        attributes.record(&mut Reading(&mut fields));
        let span = context.span(id).expect("it has just been made");
        let around = span
            .scope()
            .skip(1)
            .map(|span| (span.name(), span.extensions().get::<Fields>().expect("kept").clone()));
        let (target, name) = (span.metadata().target(), span.name());
        let told = Told { target, name, fields: fields.clone(), around: around.collect() };
        span.extensions_mut().replace(fields);
        self.0.lock().spans.push(told);
    }

    fn on_event(&self, event: &Event<'_>, context: Context<'_, S>) {
        let mut fields = Fields::new();
        event.record(&mut Reading(&mut fields));
        let around =
            context.event_scope(event).into_iter().flatten().map(|span| {
                (span.name(), span.extensions().get::<Fields>().expect("kept").clone())
            });
        let (target, name) = (event.metadata().target(), event.metadata().name());
        let told = Told { target, name, fields, around: around.collect() };
        self.0.lock().events.push(told);
    }

    fn on_close(&self, _: Id, _: Context<'_, S>) {
        self.0.lock().closed += 1;
    }
}

/// Has the process to itself, with a subscriber that wants what is up to `level`.
fn listen(level: LevelFilter) -> MutexGuard<'static, ()> {
    static ALONE: Mutex<()> = Mutex::new(());
    static SUBSCRIBED: LazyLock<()> = LazyLock::new(|| {
        let filter = dynamic_filter_fn(|meta, _| {
            let is_ours = meta.target().starts_with("forebay") || meta.target() == "spans";
            is_ours && *meta.level() <= *LEVEL.lock()
        });
        let coarse = Collect(&COARSE).with_filter(LevelFilter::INFO);
        let subscriber = Registry::default().with(coarse).with(Collect(&SEEN)).with(filter);
        tracing::subscriber::set_global_default(subscriber).expect("the first");
    });
    let alone = ALONE.lock();
    LazyLock::force(&SUBSCRIBED);
    *LEVEL.lock() = level;
    *SEEN.lock() = Seen::default();
    *COARSE.lock() = Seen::default();
    alone
}

fn seen() -> Seen {
    SEEN.lock().clone()
}

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
