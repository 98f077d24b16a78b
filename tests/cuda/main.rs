//! The device path of CUDA, on a simulated GPU: what is copied arrives, nothing is used before it is
//! there or reused while it is read, nothing leaks, nothing waits for a stream while a run goes on, and
//! whatever the GPU refuses is an error that says so.
#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a failed unwrap fails the test; tests say why they skip, and figures are for whoever runs them"
)]

mod copies;
mod definitions;
mod failures;
mod kernels;
mod log;
mod pinning;
mod reads;
mod silence;
mod simulation;
mod support;
mod the_simulation;
mod transforms;
mod two;
mod uses;
