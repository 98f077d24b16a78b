//! A subscriber that keeps what it is told.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::LazyLock;

use parking_lot::{Mutex, MutexGuard};
use tracing::field::{Field, Visit};
use tracing::level_filters::LevelFilter;
use tracing::span::{Attributes, Id};
use tracing::{Event, Subscriber};
use tracing_subscriber::filter::dynamic_filter_fn;
use tracing_subscriber::layer::{Context, SubscriberExt as _};
use tracing_subscriber::registry::LookupSpan;
use tracing_subscriber::{Layer, Registry};

pub(crate) type Fields = BTreeMap<&'static str, String>;

/// A span or an event.
#[derive(Clone, Debug)]
pub(crate) struct Told {
    pub(crate) target: &'static str,
    pub(crate) name: &'static str,
    pub(crate) fields: Fields,
    /// The spans around it, innermost first.
    pub(crate) around: Vec<(&'static str, Fields)>,
}

impl Told {
    pub(crate) fn get(&self, field: &str) -> &str {
        self.fields.get(field).map_or("", |text| text)
    }
}

/// What the subscriber has seen.
#[derive(Clone, Debug, Default)]
pub(crate) struct Seen {
    pub(crate) spans: Vec<Told>,
    pub(crate) events: Vec<Told>,
    pub(crate) closed: usize,
}

impl Seen {
    pub(crate) fn items<'a>(&'a self, stage: &'a str) -> impl Iterator<Item = &'a Told> {
        self.spans.iter().filter(move |s| s.name == "forebay.item" && s.get("stage") == stage)
    }

    pub(crate) fn said<'a>(&'a self, message: &'a str) -> impl Iterator<Item = &'a Told> {
        self.events.iter().filter(move |event| event.get("message") == message)
    }
}

pub(crate) static SEEN: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);
/// What a second subscriber has seen that wants no spans of items.
pub(crate) static COARSE: LazyLock<Mutex<Seen>> = LazyLock::new(Mutex::default);
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
pub(crate) fn listen(level: LevelFilter) -> MutexGuard<'static, ()> {
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

pub(crate) fn seen() -> Seen {
    SEEN.lock().clone()
}
