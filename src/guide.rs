//! The Rust of the guide in `docs/`, which is compiled and run as doctests.

#[doc = include_str!("../docs/src/checkpoints.md")]
struct Checkpoints;

#[doc = include_str!("../docs/src/gpu.md")]
struct Gpu;

#[doc = include_str!("../docs/src/rust.md")]
struct Rust;
