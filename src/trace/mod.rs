//! Where the time goes.

mod chrome;
pub(crate) mod control;
mod gain;
mod json;
mod log;
mod meter;
mod outside;
mod process;
mod receipt;
mod report;
mod series;
mod stall;
mod stats;
mod text;
mod under_way;
mod verdict;

pub(crate) use chrome::{Traced, chrome};
pub use control::{Serving, serve};
pub use gain::Gain;
pub use json::{
    BufferReport, ProcessReport, RunReport, ServiceReport, SlowReport, StageReport, VerdictReport,
};
pub(crate) use log::CallRecord;
pub use meter::measuring_cost;
pub(crate) use meter::{Meter, State, together};
pub(crate) use outside::working_for;
pub use outside::{Request, request, throttled};
pub(crate) use receipt::receipt;
pub use receipt::{Receipt, Step, WaitCause, Whereabouts};
pub use report::{Delivered, line_of, report};
pub(crate) use series::{Sample, Sampling};
pub use series::{Series, StageSeries};
pub use stall::Stall;
pub(crate) use stall::{Flow, stall, stall_of_consumer};
pub use stats::{
    BufferStats, Ended, Failures, Process, RunStats, Service, Slow, StageStats, States, Traffic,
};
pub(crate) use text::{bytes, count, duration, percent, rate};
pub use verdict::{Cause, Verdict, YOU, verdict};
