//! In place of `direct` where the feature is off: says what to build. There is never a file.

use std::path::Path;
use std::sync::Arc;

use super::Context;
use super::memory::Block;

/// See `direct`.
#[derive(Debug)]
pub(in crate::device::cuda) enum DirectFile {}

impl DirectFile {
    pub(in crate::device::cuda) fn open(_: &Arc<Context>, _: &Path) -> Result<Self, String> {
        Err("this forebay was built without it: build it with `--features cufile`".to_owned())
    }

    pub(in crate::device::cuda) fn read(&self, _: &Block, _: u64, _: usize) -> Result<(), String> {
        match *self {}
    }
}
