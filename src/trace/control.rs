//! A run's control socket: other programs of the same user ask it for its figures and change its
//! workers, while it goes on.

pub(crate) mod folder;
pub(crate) mod protocol;
mod serve;

pub use serve::{Serving, serve};
