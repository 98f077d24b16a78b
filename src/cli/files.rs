//! Finds definitions, and the cases beside them: by path, or by name in `pipelines/`.

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
    all_yaml().into_iter().filter(|path| !is_cases(path)).collect()
}

/// All files of YAML in `pipelines/`.
pub(super) fn all_yaml() -> Vec<PathBuf> {
    let Ok(entries) = Path::new("pipelines").read_dir() else { return Vec::new() };
    let mut files: Vec<_> = entries.flatten().map(|entry| entry.path()).collect();
    files.retain(|path| is_yaml(path));
    files.sort();
    files
}

fn is_yaml(path: &Path) -> bool {
    path.extension().is_some_and(|extension| extension == "yaml" || extension == "yml")
}

/// Whether a file holds cases, by its name: `quickstart.test.yaml`.
pub(super) fn is_cases(path: &Path) -> bool {
    let stem = path.file_stem().map(Path::new);
    is_yaml(path) && stem.and_then(Path::extension).is_some_and(|extension| extension == "test")
}

/// All files of cases in `pipelines/`.
pub(super) fn all_cases() -> Vec<PathBuf> {
    all_yaml().into_iter().filter(|path| is_cases(path)).collect()
}

/// The file of the cases of a definition, or the file itself if it is one.
pub(super) fn cases_of(file: &Path) -> PathBuf {
    if is_cases(file) { file.to_owned() } else { file.with_extension("test.yaml") }
}

/// The definition that a file of cases stands beside.
pub(super) fn definition_of(cases: &Path) -> PathBuf {
    let file = cases.with_extension("").with_extension("yaml");
    if file.is_file() { file } else { file.with_extension("yml") }
}
