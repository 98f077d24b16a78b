//! `--otlp`: sends the spans and the figures of a run to an OpenTelemetry collector.
//!
//! A collector that can't be reached is a warning and never holds up the run: everything is sent from
//! threads of its own, what waits is bounded, and what does not fit is dropped.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};
use std::time::{Duration, Instant};

use async_trait::async_trait;
use opentelemetry::KeyValue;
use opentelemetry::metrics::{Meter, MeterProvider as _};
use opentelemetry::trace::TracerProvider as _;
use opentelemetry_http::{Bytes, HttpClient, HttpError, Request, Response};
use opentelemetry_otlp::{
    MetricExporter, SpanExporter, WithExportConfig as _, WithHttpConfig as _,
};
use opentelemetry_sdk::Resource;
use opentelemetry_sdk::metrics::{PeriodicReader, SdkMeterProvider};
use opentelemetry_sdk::trace::{BatchConfigBuilder, BatchSpanProcessor, SdkTracerProvider};
use parking_lot::Mutex;
use tracing::Subscriber;
use tracing::level_filters::LevelFilter;
use tracing_subscriber::Layer;
use tracing_subscriber::filter::Targets;
use tracing_subscriber::registry::LookupSpan;
use url::Url;

use crate::running::Handle;
use crate::trace::{Figure, Labels, Sort, Unit, Value, figures, service_quantiles};

/// How often figures are sent.
const INTERVAL: Duration = Duration::from_secs(10);
/// How long one request may take.
const REQUEST: Duration = Duration::from_secs(3);
/// How long the last ones may take in all.
const LAST: Duration = Duration::from_secs(5);
/// Spans that wait to be sent at most, and that are sent at once.
const SPANS: usize = 16 << 10;
const SPANS_AT_ONCE: usize = 2 << 10;
/// Figures of this age are told again, so that those of one export are from one moment.
const FRESH: Duration = Duration::from_millis(100);

/// Where everything goes.
#[derive(Clone, Debug)]
pub(super) struct Collector(Url);

/// A collector's URL.
pub(super) fn collector(text: &str) -> Result<Collector, String> {
    let url = Url::parse(text).ok().filter(|url| matches!(url.scheme(), "http" | "https"));
    let url = url.filter(Url::has_host);
    url.map(Collector).ok_or_else(|| "write the collector's URL: http://localhost:4318".to_owned())
}

impl Collector {
    /// Where it takes what `path` says. What follows the path stays: it may be a key.
    fn at(&self, path: &str) -> String {
        let mut url = self.0.clone();
        url.set_path(&format!("{}/{path}", url.path().trim_end_matches('/')));
        url.into()
    }

    /// Its address without secrets.
    fn shown(&self) -> String {
        self.0.origin().ascii_serialization()
    }
}

/// Sends spans from its making on, and the figures of a run once there is one.
pub(super) struct Telemetry {
    client: Client,
    collector: Collector,
    spans: SdkTracerProvider,
    metrics: Option<(SdkMeterProvider, Arc<Snapshot>)>,
}

impl Telemetry {
    pub(super) fn to(collector: &Collector) -> Result<Self, String> {
        let told = |error: &dyn std::error::Error| error.to_string();
        let client = reqwest::blocking::Client::builder().timeout(REQUEST).build();
        let client = client.map_err(|error| told(&error.without_url()))?;
        let client = Client { client, shown: collector.shown(), warned: Arc::default() };
        let exporter = SpanExporter::builder()
            .with_http()
            .with_http_client(client.clone())
            .with_endpoint(collector.at("v1/traces"))
            .with_timeout(REQUEST)
            .build()
            .map_err(|error| told(&error))?;
        let batches = BatchConfigBuilder::default()
            .with_max_queue_size(SPANS)
            .with_max_export_batch_size(SPANS_AT_ONCE)
            .build();
        let sender = BatchSpanProcessor::builder(exporter).with_batch_config(batches).build();
        let spans =
            SdkTracerProvider::builder().with_resource(who()).with_span_processor(sender).build();
        Ok(Telemetry { client, collector: collector.clone(), spans, metrics: None })
    }

    /// Our spans, and what the program says itself.
    pub(super) fn layer<S>(&self) -> impl Layer<S> + use<S>
    where
        S: Subscriber + for<'a> LookupSpan<'a> + Send + Sync,
    {
        // What sending says of itself would be sent again.
        let quiet = ["hyper", "hyper_util", "reqwest", "opentelemetry"];
        let wanted = Targets::new()
            .with_default(LevelFilter::INFO)
            .with_target("forebay", LevelFilter::TRACE)
            .with_targets(quiet.map(|target| (target, LevelFilter::OFF)));
        let tracer = self.spans.tracer("forebay");
        let layer = tracing_opentelemetry::layer().with_tracer(tracer).with_location(false);
        layer.with_context_activation(false).with_filter(wanted)
    }

    /// Sends the figures of `run` from now on.
    pub(super) fn send(&mut self, run: Handle) {
        let exporter = MetricExporter::builder()
            .with_http()
            .with_http_client(self.client.clone())
            .with_endpoint(self.collector.at("v1/metrics"))
            .with_timeout(REQUEST)
            .build();
        let exporter = match exporter {
            Ok(exporter) => exporter,
            Err(error) => {
                tracing::warn!(%error, "the figures are not sent to the collector");
                return;
            }
        };
        let reader = PeriodicReader::builder(exporter).with_interval(INTERVAL).build();
        let provider = SdkMeterProvider::builder().with_resource(who()).with_reader(reader).build();
        let snapshot = Arc::new(Snapshot { run, last: Mutex::default() });
        let meter = provider.meter("forebay");
        for (index, figure) in snapshot.now().iter().enumerate() {
            observe(&meter, figure, index, &snapshot);
        }
        self.metrics = Some((provider, snapshot));
    }

    /// Sends what is left, for so long as that may take.
    pub(super) fn finish(self) {
        let spans = self.spans;
        let last_spans = std::thread::Builder::new()
            .name("forebay:otlp".into())
            .spawn(move || spans.shutdown_with_timeout(LAST));
        // It gives up after five seconds by itself.
        let figures = self.metrics.map_or(Ok(()), |(provider, snapshot)| {
            *snapshot.last.lock() = None;
            provider.shutdown()
        });
        if let Err(error) = figures {
            tracing::debug!(%error, "the last figures were not sent");
        }
        match last_spans.map(std::thread::JoinHandle::join) {
            Ok(Ok(Ok(()))) => {}
            Ok(Ok(Err(error))) => tracing::debug!(%error, "the last spans were not sent"),
            Ok(Err(_)) | Err(_) => tracing::debug!("the last spans were not sent"),
        }
    }
}

/// Who sends.
fn who() -> Resource {
    // The detectors read the variable too, but what is said here goes before.
    let name = std::env::var("OTEL_SERVICE_NAME").unwrap_or_else(|_| "forebay".to_owned());
    Resource::builder().with_service_name(name).build()
}

/// The figures of a run, read once for each export.
struct Snapshot {
    run: Handle,
    last: Mutex<Option<(Instant, Arc<Vec<Figure>>)>>,
}

impl Snapshot {
    fn now(&self) -> Arc<Vec<Figure>> {
        let mut last = self.last.lock();
        match &*last {
            Some((made, figures)) if made.elapsed() < FRESH => Arc::clone(figures),
            _ => {
                let stats = self.run.stats();
                let mut all = figures(&stats);
                all.extend(service_quantiles(&stats));
                let all = Arc::new(all);
                *last = Some((Instant::now(), Arc::clone(&all)));
                all
            }
        }
    }

    /// Gives the values of the figure at `index` to `take`.
    fn each(&self, index: usize, mut take: impl FnMut(Value, &[KeyValue])) {
        if let Some(figure) = self.now().get(index) {
            for point in &figure.points {
                take(point.value, &attributes(&point.labels));
            }
        }
    }
}

/// The instrument of a figure, named as Prometheus has it, with dots.
fn observe(meter: &Meter, figure: &Figure, index: usize, snapshot: &Arc<Snapshot>) {
    let (ending, unit) = match figure.unit {
        Unit::None => ("", "1"),
        Unit::Bytes => (".bytes", "By"),
        Unit::Seconds => (".seconds", "s"),
    };
    let name = figure.name.replace('_', ".") + ending;
    let snapshot = Arc::clone(snapshot);
    let (is_real, sort) = (figure.unit == Unit::Seconds, figure.sort);
    let whole = |value| match value {
        Value::Whole(n) => n,
        Value::Real(x) => x as u64,
    };
    let real = |value| match value {
        Value::Whole(n) => n as f64,
        Value::Real(x) => x,
    };
    // The provider keeps the callbacks; the instruments themselves say nothing.
    match (sort, is_real) {
        (Sort::Counter, false) => drop(
            meter
                .u64_observable_counter(name)
                .with_unit(unit)
                .with_description(figure.help)
                .with_callback(move |to| snapshot.each(index, |v, of| to.observe(whole(v), of)))
                .build(),
        ),
        (Sort::Counter, true) => drop(
            meter
                .f64_observable_counter(name)
                .with_unit(unit)
                .with_description(figure.help)
                .with_callback(move |to| snapshot.each(index, |v, of| to.observe(real(v), of)))
                .build(),
        ),
        (Sort::Gauge | Sort::Info, false) => drop(
            meter
                .u64_observable_gauge(name)
                .with_unit(unit)
                .with_description(figure.help)
                .with_callback(move |to| snapshot.each(index, |v, of| to.observe(whole(v), of)))
                .build(),
        ),
        (Sort::Gauge | Sort::Info, true) => drop(
            meter
                .f64_observable_gauge(name)
                .with_unit(unit)
                .with_description(figure.help)
                .with_callback(move |to| snapshot.each(index, |v, of| to.observe(real(v), of)))
                .build(),
        ),
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.iter().map(|(name, value)| KeyValue::new(*name, value.clone())).collect()
}

/// Sends requests, and warns once if nobody takes them.
#[derive(Clone, Debug)]
struct Client {
    client: reqwest::blocking::Client,
    shown: String,
    warned: Arc<AtomicBool>,
}

impl Client {
    fn warn(&self, why: &str) {
        if !self.warned.swap(true, Relaxed) {
            tracing::warn!(
                collector = self.shown,
                why,
                "the collector does not take what is sent; the run goes on"
            );
        }
    }
}

#[async_trait]
impl HttpClient for Client {
    async fn send_bytes(&self, request: Request<Bytes>) -> Result<Response<Bytes>, HttpError> {
        let answer = self.client.send_bytes(request).await;
        match &answer {
            Ok(response) if response.status().is_success() => {}
            Ok(response) => self.warn(response.status().as_str()),
            Err(error) => {
                // The URL in it may hold a key.
                let error = error.downcast_ref::<reqwest::Error>();
                self.warn(match error {
                    Some(error) if error.is_timeout() => "it does not answer",
                    Some(error) if error.is_connect() => "it can't be reached",
                    _ => "the connection broke",
                });
            }
        }
        answer
    }
}
