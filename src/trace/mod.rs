//! Where the time goes.

mod chrome;
mod clock;
mod compare;
pub(crate) mod control;
mod cost;
mod device;
mod figures;
mod gain;
mod json;
mod live;
mod log;
mod meter;
mod outside;
mod process;
mod prometheus;
mod receipt;
mod record;
mod report;
mod series;
mod serve;
mod spans;
mod stall;
mod stats;
mod text;
mod under_way;
mod verdict;

pub(crate) use chrome::{Traced, chrome};
pub(crate) use clock::State;
pub use compare::{Change, Comparison, compare};
pub use control::{Serving, serve};
pub use cost::measuring_cost;
pub(crate) use device::DeviceMeter;
pub use device::DeviceStats;
#[cfg(feature = "otlp")]
pub(crate) use figures::{Figure, Labels, Sort, Unit, Value, figures, service_quantiles};
pub use gain::Gain;
pub use json::{
    BufferReport, ProcessReport, RunReport, ServiceReport, SlowReport, StageReport, VerdictReport,
};
pub use live::live;
pub(crate) use log::CallRecord;
pub(crate) use meter::{Meter, together};
pub use outside::{Request, request, throttled};
pub(crate) use outside::{fetched, retry_refused, used, working_for};
pub(crate) use process::forget_most_memory;
pub use prometheus::{MetricsFormat, metrics_text};
pub(crate) use receipt::receipt;
pub use receipt::{Receipt, Step, WaitCause, Whereabouts};
pub use record::{Machine, RunRecord};
pub use report::{Delivered, line_of, report};
pub(crate) use series::{Sample, Sampling};
pub use series::{Series, StageSeries};
pub(crate) use serve::MetricsListener;
pub use serve::{MetricsError, MetricsServer, serve_metrics};
pub(crate) use spans::{CallSpan, stage_ended, stage_span};
pub use stall::Stall;
pub(crate) use stall::{Flow, stall, stall_of_consumer};
pub use stats::{
    BufferStats, Ended, Failures, MemoryStats, Process, RunStats, Service, Slow, StageStats,
    States, Traffic,
};
pub(crate) use text::{bytes, count, duration, percent, rate};
pub use verdict::{Cause, Verdict, YOU, verdict};
