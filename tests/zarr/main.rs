//! The Zarr path: what is read is what was written, whatever the layout, and bad input is an error.

mod cloud;
mod fixture;
mod fuzz;
mod hostile;
mod layouts;
mod nearest;
mod normalized;
mod once;
mod packed;
mod plan;
mod resume;
mod samples;
mod server;
mod windows;
mod write;
mod written;
