//! Forebay keeps GPUs fed from cloud storage.
//!
//! A pipeline is a source and a chain of typed stages. Each has a kind (async I/O, CPU, device),
//! its own workers and a bounded buffer behind it. Running it gives an iterator of the last type,
//! and at any time a report of where the time goes.

#[cfg(doctest)]
#[doc = include_str!("../README.md")]
struct Readme;

mod assembly;
mod budget;
#[cfg(doctest)]
mod guide;
mod join;
mod limits;
mod nearest;
pub mod pipeline;
pub mod stage;

pub mod options;

pub mod running;

pub mod checkpoint;
pub mod entering;
pub mod position;
mod tracker;

pub mod fault;

pub mod link;

mod engine;
mod site;
mod work;

pub mod source;

pub mod flow;

pub mod item;

mod whole;

pub mod store;

pub mod ops;

pub mod device;

pub mod trace;

pub mod definition;

pub mod cli;

pub use store::{Store, zarr};
pub use work::{cpu, io};

/// An error that cannot happen, for calls that cannot fail: `Ok::<_, Never>(x)`.
pub type Never = std::convert::Infallible;

/// What most programs need: `use forebay::prelude::*`.
pub mod prelude {
    pub use crate::checkpoint::{Checkpoint, Every};
    pub use crate::device::{Device, DeviceBatch};
    pub use crate::entering::Entering;
    pub use crate::fault::{Fault, PlanError};
    pub use crate::item::{Batch, DType, Pool, Tensor};
    pub use crate::link::{Inlet, Outlet};
    pub use crate::options::{
        Buffer, OnError, Options, Ordered, Rate, Retry, RetryOn, SkipLimit, Workers,
    };
    pub use crate::pipeline::Pipeline;
    pub use crate::position::Position;
    pub use crate::running::{Handle, Running};
    pub use crate::source::{self, Index};
    pub use crate::stage::{Kind, Source, Stage, Stop, Worker};
    pub use crate::store::zarr::{self, Window, WindowsSpec};
    pub use crate::work::{Call, Finish, Staged, With, Work, Yield};
    pub use crate::{Never, Store, cpu, device, flow, io, ops};
}
