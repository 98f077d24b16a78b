//! Where the time goes.

mod json;
mod meter;
mod report;
mod stats;
mod text;
mod verdict;

pub use json::{BufferReport, RunReport, ServiceReport, StageReport, VerdictReport};
pub use meter::measuring_cost;
pub(crate) use meter::{Meter, State, together};
pub use report::{Delivered, line_of, report};
pub use stats::{BufferStats, Ended, RunStats, Service, StageStats, States};
pub(crate) use text::{bytes, count};
pub use verdict::{Cause, Verdict, YOU, verdict};
