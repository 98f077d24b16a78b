//! Files that a command writes. Each is whole or as it was before; what is no file is never touched.

use std::io::{self, Write as _};
use std::path::{Path, PathBuf};

use crate::whole::write_whole;

/// The file itself, behind links; refused if it is there and no file.
fn target(file: &Path) -> io::Result<PathBuf> {
    if file.as_os_str() == "-" {
        return Err(io::Error::other("it is written to a file: give it a name"));
    }
    match std::fs::metadata(file) {
        Ok(found) if !found.is_file() => Err(io::Error::other("it is there, and no file")),
        Ok(_) => std::fs::canonicalize(file),
        Err(_) => Ok(file.to_owned()),
    }
}

/// Whether all of `files` can be written, known before the work is done: nothing is left of the try.
///
/// # Errors
/// What is wrong with the first that can't, or two that are the same. None may be `input`.
pub(super) fn check(files: &[Option<&PathBuf>], input: Option<&Path>) -> Result<(), String> {
    let mut seen: Vec<PathBuf> =
        input.and_then(|file| file.canonicalize().ok()).into_iter().collect();
    for file in files.iter().flatten() {
        let shown = file.display();
        let wrong = |error: io::Error| format!("{shown} can't be written: {error}");
        let target = target(file).map_err(wrong)?;
        let is_new = !target.exists();
        std::fs::OpenOptions::new().append(true).create(true).open(&target).map_err(wrong)?;
        let itself = target.canonicalize().map_err(wrong)?;
        if is_new {
            std::fs::remove_file(&target).map_err(wrong)?;
        }
        if seen.contains(&itself) {
            return Err(format!("{shown} is named twice, or is the definition: give another name"));
        }
        seen.push(itself);
    }
    Ok(())
}

/// Writes a file that is then whole, or as it was.
pub(super) fn write(file: &Path, text: &[u8]) -> io::Result<()> {
    write_with(file, |to| to.write_all(text))
}

/// The same for what `write` writes piece by piece.
pub(super) fn write_with(
    file: &Path,
    write: impl FnOnce(&mut io::BufWriter<std::fs::File>) -> io::Result<()>,
) -> io::Result<()> {
    let file = target(file)?;
    let mut aside = file.as_os_str().to_owned();
    aside.push(format!(".{}.part", std::process::id()));
    let aside = Path::new(&aside);
    write_whole(aside, &file, || {
        let mut to = io::BufWriter::new(std::fs::File::create(aside)?);
        write(&mut to)?;
        to.flush()?;
        match std::fs::metadata(&file) {
            Ok(before) => std::fs::set_permissions(aside, before.permissions()),
            Err(_) => Ok(()),
        }
    })
}
