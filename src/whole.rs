//! Files that are whole or not there: written under another name and renamed.

use std::fs;
use std::io;
use std::path::Path;

/// Lets `write` write the file `part`, which then becomes `file`. If either fails nothing is left of it.
///
/// # Errors
/// It can't be written or renamed; `file` is then as it was.
pub(crate) fn write_whole(
    part: &Path,
    file: &Path,
    write: impl FnOnce() -> io::Result<()>,
) -> io::Result<()> {
    let written = write().and_then(|()| fs::rename(part, file));
    if written.is_err()
        && let Err(error) = fs::remove_file(part)
    {
        // What could be written of it is of no use.
        tracing::debug!(%error, "an unfinished file is left behind: {}", part.display());
    }
    written
}
