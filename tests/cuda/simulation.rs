//! Tests that run on a simulated GPU: each in a process of its own, whose `libcuda.so` is
//! `driver.rs`, built once by rustc.

use std::ffi::{CString, OsString};
use std::io::Write as _;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use cudarc::driver::sys;

/// Set in the process in which a test really runs.
const INSIDE: &str = "FOREBAY_TEST_ON_SIMULATED_GPU";

/// The simulated driver, asked from a test.
pub(crate) struct Gpu(());

impl Gpu {
    /// Sets a number of the simulation.
    pub(crate) fn set(&self, name: &str, value: f64) {
        let name = CString::new(name).unwrap();
        #[expect(unsafe_code, reason = "a function of the simulated driver")]
        // SAFETY: the function has this type, and the text ends with a NUL.
        unsafe {
            type Set = unsafe extern "C" fn(*const std::ffi::c_char, f64);
            sys::culib().get::<Set>(b"simulated_set").unwrap()(name.as_ptr(), value);
        }
    }

    /// How often something happened.
    pub(crate) fn count(&self, name: &str) -> f64 {
        let name = CString::new(name).unwrap();
        #[expect(unsafe_code, reason = "a function of the simulated driver")]
        // SAFETY: the function has this type, and the text ends with a NUL.
        unsafe {
            type Count = unsafe extern "C" fn(*const std::ffi::c_char) -> f64;
            sys::culib().get::<Count>(b"simulated_count").unwrap()(name.as_ptr())
        }
    }

    /// What was wrong so far, one line each.
    pub(crate) fn wrong(&self) -> String {
        let mut text = vec![0; 1 << 16];
        #[expect(unsafe_code, reason = "a function of the simulated driver")]
        // SAFETY: the function has this type, and writes no more than there is room for.
        let bytes = unsafe {
            type Wrong = unsafe extern "C" fn(*mut u8, usize) -> usize;
            sys::culib().get::<Wrong>(b"simulated_wrong").unwrap()(text.as_mut_ptr(), text.len())
        };
        text.truncate(bytes);
        String::from_utf8(text).unwrap()
    }

    /// Whether everything that was made on the GPU is gone, and nothing was wrong.
    pub(crate) fn check_clean(&self) {
        assert_eq!(self.wrong(), "");
        comes_true(|| self.count("contexts") == 0.0);
        for what in ["blocks", "pinned", "streams", "events", "modules", "contexts"] {
            assert_eq!(self.count(what), 0.0, "{what} are left");
        }
    }
}

/// Whether it becomes so: a run that was dropped ends by itself, on a busy machine a little later.
pub(crate) fn comes_true(what: impl Fn() -> bool) -> bool {
    (0..10_000).any(|_| {
        let is_so = what();
        if !is_so {
            std::thread::park_timeout(std::time::Duration::from_millis(1));
        }
        is_so
    })
}

/// Runs `test` on a simulated GPU, with these variables of the environment; `name` is the test's own.
pub(crate) fn on_gpu_with(name: &str, environment: &[(&str, &str)], test: impl FnOnce(&Gpu)) {
    run(name, environment, &[], test);
}

/// The same with a driver that is built with these arguments.
pub(crate) fn on_gpu_of(name: &str, driver: &[&str], test: impl FnOnce(&Gpu)) {
    run(name, &[], driver, test);
}

fn run(name: &str, environment: &[(&str, &str)], driver: &[&str], test: impl FnOnce(&Gpu)) {
    if std::env::var_os(INSIDE).is_some() {
        test(&Gpu(()));
        return;
    }
    let exe = std::env::current_exe().unwrap();
    let mut command = Command::new(exe);
    command.args(["--exact", name, "--nocapture", "--test-threads=1"]);
    command.env("LD_LIBRARY_PATH", library_path(driver)).env(INSIDE, "1");
    command.envs(environment.iter().copied());
    let output = command.output().unwrap();
    let (stdout, stderr) =
        (String::from_utf8_lossy(&output.stdout), String::from_utf8_lossy(&output.stderr));
    assert!(output.status.success(), "{}\n{stdout}\n{stderr}", output.status);
    assert!(stdout.contains("1 passed"), "no test of that name ran: {stdout}");
    // Figures that a test prints are for whoever runs it.
    for (_, figure) in stdout.lines().filter_map(|line| line.split_once("figure: ")) {
        println!("{name}: {figure}");
    }
}

/// The same with the environment as it is.
pub(crate) fn on_gpu(name: &str, test: impl FnOnce(&Gpu)) {
    on_gpu_with(name, &[], test);
}

fn library_path(driver: &[&str]) -> OsString {
    static BUILT: OnceLock<PathBuf> = OnceLock::new();
    let folder = match driver {
        [] => BUILT.get_or_init(|| build("simulated-gpu", &[])).clone(),
        arguments => build(&arguments.join("-"), arguments),
    };
    let folders = std::iter::once(folder).chain(compiler());
    let others = std::env::var_os("LD_LIBRARY_PATH").unwrap_or_default();
    let folders = folders.chain(std::env::split_paths(&others).collect::<Vec<_>>());
    std::env::join_paths(folders).unwrap()
}

/// Set to the folder of NVIDIA's compiler: tests that need it then fail without it.
const COMPILER: &str = "FOREBAY_NVRTC";

/// The folders in which NVIDIA's compiler may be: the one that is said, or where
/// `src/device/kernels/build.py` puts it.
fn compiler() -> Vec<PathBuf> {
    if let Some(said) = std::env::var_os(COMPILER) {
        return vec![PathBuf::from(said)];
    }
    let cache = std::env::var_os("XDG_CACHE_HOME").map(PathBuf::from);
    let home = || std::env::var_os("HOME").map(|home| PathBuf::from(home).join(".cache"));
    let cache = cache.or_else(home).unwrap_or_default().join("forebay");
    let versions = std::fs::read_dir(&cache).into_iter().flatten().flatten();
    let folders = versions.map(|entry| entry.path().join("nvidia/cuda_nvrtc/lib"));
    folders.filter(|path| path.exists()).collect()
}

/// The same where NVIDIA's compiler is needed. Without it the test is skipped, which is said aloud,
/// unless the environment says where the compiler is.
pub(crate) fn on_gpu_with_compiler(name: &str, test: impl FnOnce(&Gpu)) {
    let is_there = || compiler().iter().any(|folder| folder.join("libnvrtc.so.12").exists());
    if std::env::var_os(INSIDE).is_some() || is_there() {
        return on_gpu(name, test);
    }
    assert!(
        std::env::var_os(COMPILER).is_none(),
        "{COMPILER} names a folder without libnvrtc.so.12"
    );
    // Not by `eprintln!`, of which the test harness shows nothing where a test passes.
    let said = format!(
        "SKIPPED {name}: NVRTC is not here; `python3 src/device/kernels/build.py` gets it\n"
    );
    std::io::stderr().write_all(said.as_bytes()).unwrap();
}

/// Builds the driver into a folder of this name.
fn build(name: &str, arguments: &[&str]) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(name);
    std::fs::create_dir_all(&folder).unwrap();
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/cuda/driver.rs");
    // Built beside and then renamed, as another process may be using the last one.
    let (new, library) = (folder.join("new.so"), folder.join("libcuda.so"));
    let beside = Path::new(env!("CARGO")).with_file_name("rustc");
    let rustc = if beside.exists() { beside } else { PathBuf::from("rustc") };
    let built = Command::new(rustc)
        .args(["--edition", "2024", "--crate-type", "cdylib", "-O", "-o"])
        .args([&new, &source])
        .args(arguments)
        .output()
        .unwrap();
    assert!(built.status.success(), "{}", String::from_utf8_lossy(&built.stderr));
    std::fs::rename(new, &library).unwrap();
    // The same library, so that both see the same GPU.
    let files = folder.join("libcufile.so.0");
    let _there_before = std::fs::remove_file(&files);
    if !arguments.contains(&"without_cufile") {
        std::os::unix::fs::symlink(library, files).unwrap();
    }
    folder
}
