//! Where the time goes.

mod meter;
mod stats;

pub(crate) use meter::{Meter, State};
pub use stats::{BufferStats, Ended, RunStats, Service, StageStats, States};
