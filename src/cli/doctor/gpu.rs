//! Whether there is a GPU, and what a program needs to use it. Files are looked for; nothing is loaded.

use std::path::{Path, PathBuf};

use super::{Finding, Health};

/// Where the driver's library lies, beside what the environment says.
const FOLDERS: [&str; 8] = [
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "usr/lib",
    "usr/lib/wsl/lib",
    "usr/local/nvidia/lib64",
    "usr/local/cuda/compat",
    "lib64",
];

pub(super) fn gpu(root: &Path) -> Finding {
    let paths = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let named: Vec<PathBuf> = std::env::split_paths(&paths).collect();
    probe(root, &named)
}

fn probe(root: &Path, named: &[PathBuf]) -> Finding {
    let folders = named.iter().cloned().chain(FOLDERS.map(|folder| root.join(folder)));
    let library = folders
        .flat_map(|folder| ["libcuda.so.1", "libcuda.so"].map(|name| folder.join(name)))
        .find(|file| file.is_file());
    let finding = |health, found: String, advice| Finding::new("gpu", health, found, advice);
    match (driver(root), library) {
        (Some(driver), Some(library)) => {
            let gpus = gpus(root);
            let found = format!("driver {driver}, {gpus}, {}", library.display());
            finding(Health::Ok, found, "")
        }
        (Some(driver), None) => finding(
            Health::Warn,
            format!("driver {driver}, but no libcuda.so.1"),
            "name its folder in LD_LIBRARY_PATH; in a container: start it with `--gpus all`",
        ),
        (None, Some(library)) => finding(
            Health::Warn,
            format!("{}, but no driver", library.display()),
            "load the driver: `nvidia-smi` says what is missing; in a container: `--gpus all`",
        ),
        (None, None) => finding(
            Health::Ok,
            "none".to_owned(),
            "nothing to do: batches stay on the host; if there is one, install its driver",
        ),
    }
}

/// The version of the driver that is loaded.
fn driver(root: &Path) -> Option<String> {
    let text = std::fs::read_to_string(root.join("proc/driver/nvidia/version")).ok()?;
    let is_version =
        |word: &&str| word.contains('.') && word.chars().all(|c| c.is_ascii_digit() || c == '.');
    Some(text.split_whitespace().find(is_version).unwrap_or("of an unknown version").to_owned())
}

/// `2 x NVIDIA H100`.
fn gpus(root: &Path) -> String {
    let folders = root.join("proc/driver/nvidia/gpus").read_dir().into_iter().flatten().flatten();
    let model = |folder: std::fs::DirEntry| {
        let text = std::fs::read_to_string(folder.path().join("information")).ok()?;
        Some(text.lines().find_map(|line| line.strip_prefix("Model:"))?.trim().to_owned())
    };
    let models: Vec<_> = folders.filter_map(model).collect();
    match models.first() {
        Some(first) => format!("{} x {first}", models.len()),
        None => "no GPU is told".to_owned(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::doctor::made_up::write;

    const VERSION: &str =
        "NVRM version: NVIDIA UNIX x86_64 Kernel Module  550.54.15  Tue Mar  5 2024\n";

    #[test]
    fn a_driver_and_its_library_belong_together() {
        let root = tempfile::tempdir().expect("a folder");
        let root = root.path();
        let found = probe(root, &[]);
        assert_eq!((found.health, &*found.found), (Health::Ok, "none"));
        write(root, "proc/driver/nvidia/version", VERSION);
        let found = probe(root, &[]);
        assert_eq!(found.health, Health::Warn);
        assert_eq!(found.found, "driver 550.54.15, but no libcuda.so.1");
        write(root, "opt/cuda/libcuda.so.1", "");
        write(
            root,
            "proc/driver/nvidia/gpus/0000:01:00.0/information",
            "Model: \t NVIDIA H100\nIRQ: 1\n",
        );
        let found = probe(root, &[root.join("opt/cuda")]);
        assert_eq!(found.health, Health::Ok);
        assert!(found.found.starts_with("driver 550.54.15, 1 x NVIDIA H100, /"), "{found:?}");
        std::fs::remove_file(root.join("proc/driver/nvidia/version")).expect("removed");
        write(root, "usr/lib64/libcuda.so", "");
        assert!(probe(root, &[]).found.ends_with("usr/lib64/libcuda.so, but no driver"));
    }
}
