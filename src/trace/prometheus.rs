//! The figures of a run as the text that Prometheus reads.

use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, NoLabelSet, prometheus_text, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::exemplar::Exemplar;
use prometheus_client::registry::{self, Registry};

use super::RunStats;
use super::figures::{
    Figure, SERVICE, SERVICE_HELP, ServiceTimes, Sort, Unit, Value, figures, service_times,
};

/// A text format for metrics.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MetricsFormat {
    /// Prometheus' text format, version 0.0.4, which everything reads.
    Prometheus,
    /// OpenMetrics 1.0.
    OpenMetrics,
}

impl MetricsFormat {
    /// The content type of an answer in this format.
    pub fn content_type(self) -> &'static str {
        match self {
            MetricsFormat::Prometheus => prometheus_text::CONTENT_TYPE,
            MetricsFormat::OpenMetrics => {
                "application/openmetrics-text; version=1.0.0; charset=utf-8"
            }
        }
    }
}

/// The figures of a run as metrics, for a server of one's own; [`serve_metrics`](super::serve_metrics)
/// is one that is ready.
///
/// ```
/// use forebay::prelude::*;
/// use forebay::trace::{MetricsFormat, metrics_text};
///
/// let numbers = Pipeline::from(source::iter("numbers", 0..3_u64));
/// let stats = numbers.then(cpu::map("square", |x| Ok::<_, Never>(x * x))).run()?.drain()?;
/// let text = metrics_text(&stats, MetricsFormat::Prometheus);
/// assert!(text.contains(r#"forebay_stage_calls_total{stage="square",kind="cpu"} 3"#));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn metrics_text(stats: &RunStats, format: MetricsFormat) -> String {
    let mut registry = Registry::default();
    let (figures, times) = (figures(stats), service_times(stats));
    registry.register_collector(Box::new(Scrape { figures, times }));
    let mut out = String::new();
    let encoded = match format {
        MetricsFormat::Prometheus => prometheus_text::encode(&mut out, &registry),
        MetricsFormat::OpenMetrics => text::encode(&mut out, &registry),
    };
    encoded.expect("a string takes everything");
    out
}

/// One answer.
#[derive(Debug)]
struct Scrape {
    figures: Vec<Figure>,
    times: Vec<ServiceTimes>,
}

impl Collector for Scrape {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> std::fmt::Result {
        for Figure { name, unit, sort, help, points } in &self.figures {
            let unit = match unit {
                Unit::None => None,
                Unit::Bytes => Some(registry::Unit::Bytes),
                Unit::Seconds => Some(registry::Unit::Seconds),
            };
            let sort_of = match sort {
                Sort::Counter => MetricType::Counter,
                Sort::Gauge => MetricType::Gauge,
                Sort::Info => MetricType::Info,
            };
            let mut metric = encoder.encode_descriptor(name, help, unit.as_ref(), sort_of)?;
            for point in points {
                let mut one = metric.encode_family(&point.labels)?;
                match (sort, point.value) {
                    (Sort::Counter, Value::Whole(n)) => one.encode_counter(&n, NO_EXAMPLE)?,
                    (Sort::Counter, Value::Real(x)) => one.encode_counter(&x, NO_EXAMPLE)?,
                    (Sort::Gauge, Value::Whole(n)) => one.encode_gauge(&n)?,
                    (Sort::Gauge, Value::Real(x)) => one.encode_gauge(&x)?,
                    (Sort::Info, _) => metric.encode_info(&point.labels)?,
                }
            }
        }
        let unit = registry::Unit::Seconds;
        let kind = MetricType::Histogram;
        let mut metric = encoder.encode_descriptor(SERVICE, SERVICE_HELP, Some(&unit), kind)?;
        for ServiceTimes { labels, sum_s, count, buckets } in &self.times {
            let mut one = metric.encode_family(labels)?;
            one.encode_histogram::<NoLabelSet>(*sum_s, *count, buckets, None)?;
        }
        Ok(())
    }
}

const NO_EXAMPLE: Option<&Exemplar<NoLabelSet, u64>> = None;
