//! Finds definitions: by path, or by name in `pipelines/`.

use std::path::{Path, PathBuf};

/// The file that `given` means.
pub(super) fn find(given: &Path) -> PathBuf {
    if given.exists() {
        return given.to_owned();
    }
    let candidates =
        ["yaml", "yml"].map(|ext| Path::new("pipelines").join(given).with_extension(ext));
    candidates.into_iter().find(|path| path.is_file()).unwrap_or_else(|| given.to_owned())
}

/// All definitions in `pipelines/`.
pub(super) fn all() -> Vec<PathBuf> {
    let Ok(entries) = Path::new("pipelines").read_dir() else { return Vec::new() };
    let is_definition = |path: &PathBuf| {
        path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
    };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(is_definition);
    files.sort();
    files
}
