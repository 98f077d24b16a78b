//! The promises of the engine, one module each.

mod conformance;
mod faults;
mod flow;
mod in_flight;
mod known;
mod live;
mod order;
mod policies;
mod random;
mod runtimes;
mod shutdown;
mod states;
mod support;
mod tracing;
mod worker_state;
