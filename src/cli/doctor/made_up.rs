//! A machine that tests make up, in a folder.

use std::path::Path;

/// Writes a file of it.
pub(super) fn write(root: &Path, file: &str, text: &str) {
    let file = root.join(file);
    std::fs::create_dir_all(file.parent().expect("a folder")).expect("made");
    std::fs::write(file, text).expect("written");
}
