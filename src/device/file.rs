//! Tensors that lie in files as they are: their elements, one after the other in C order, in this
//! machine's byte order.

use std::fs::File;
use std::io::{Read as _, Seek as _, SeekFrom};
use std::path::Path;
use std::sync::Arc;

use crate::fault::Result;
use crate::item::{Batch, Pool, Spec, Tensor};

/// A tensor in a file.
#[derive(Clone, Debug)]
pub struct FilePart {
    /// The file.
    pub path: Arc<Path>,
    /// Where its first element begins, in bytes. At a multiple of 4,096 a GPU can read it itself.
    pub offset: u64,
    /// What it is.
    pub spec: Spec,
}

impl FilePart {
    /// The tensor in memory from `pool`.
    ///
    /// # Errors
    /// The file can't be read, or ends before the tensor does.
    pub fn to_host(&self, pool: &Pool) -> Result<Batch> {
        let FilePart { path, offset, spec } = self;
        let failed = |error: std::io::Error| format!("`{}`: {error}", path.display());
        let mut file = File::open(path).map_err(failed)?;
        let len = file.metadata().map_err(failed)?.len();
        if offset.checked_add(spec.bytes()).is_none_or(|end| end > len) {
            return Err(format!(
                "`{}` has {len} bytes, but `{}` begins at {offset} and has {}: compare its dtype and \
                 shape with what wrote the file",
                path.display(),
                spec.name,
                spec.bytes()
            )
            .into());
        }
        let mut tensor = Tensor::try_take(pool, spec.clone())?;
        file.seek(SeekFrom::Start(*offset)).map_err(failed)?;
        file.read_exact(tensor.bytes_mut()).map_err(failed)?;
        Ok(Batch::new(vec![tensor], Vec::new()))
    }
}
