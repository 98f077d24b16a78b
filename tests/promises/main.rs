//! The promises of the engine, one module each.

mod conformance;
mod faults;
mod flow;
mod in_flight;
mod known;
mod live;
mod memory;
mod order;
mod policies;
mod random;
mod resume;
mod runtimes;
mod shutdown;
mod states;
mod support;
mod tracing;
mod worker_state;
