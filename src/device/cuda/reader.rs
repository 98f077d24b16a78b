//! Files that a lane reads past the host's memory, as long as that works.

use std::path::Path;
use std::sync::Arc;

use super::driver::{Context, DIRECT_UNIT, DirectFile};
use crate::device::FilePart;

/// What a lane knows of reading files so.
#[derive(Debug, Default)]
pub(super) struct Reader {
    /// The file that was read last.
    open: Option<(Arc<Path>, DirectFile)>,
    /// It failed, and is not tried again.
    is_off: bool,
    /// What was said last of a file that can't be read so.
    told: Option<String>,
}

impl Reader {
    /// The file of `part`, if the GPU can read that itself; what keeps it from that is said once.
    pub(super) fn file(
        &mut self,
        context: &Arc<Context>,
        part: &FilePart,
        stage: &str,
    ) -> Option<&DirectFile> {
        if self.is_off {
            return None;
        }
        let FilePart { path, offset, .. } = part;
        if !offset.is_multiple_of(DIRECT_UNIT) {
            let why = format!("`{}` is read where no multiple of {DIRECT_UNIT} is", path.display());
            self.tell(stage, why);
            return None;
        }
        if self.open.as_ref().is_none_or(|(open, _)| open != path) {
            match DirectFile::open(context, path) {
                Ok(file) => self.open = Some((Arc::clone(path), file)),
                Err(why) => {
                    self.fails(stage, why);
                    return None;
                }
            }
        }
        self.open.as_ref().map(|(_, file)| file)
    }

    /// It failed: from now on the host reads.
    pub(super) fn fails(&mut self, stage: &str, why: String) {
        self.tell(stage, why);
        (self.open, self.is_off) = (None, true);
    }

    fn tell(&mut self, stage: &str, why: String) {
        if self.told.as_ref() != Some(&why) {
            tracing::warn!("stage `{stage}`: the host reads for the GPU (no GPUDirect): {why}");
            self.told = Some(why);
        }
    }
}
