//! NVIDIA's compiler NVRTC, which makes PTX of CUDA C++ and needs no GPU. It is looked for when it is
//! asked for; where it is not there, that is an error that says where to get it.
#![expect(unsafe_code, reason = "looking into a library runs what it does when it is loaded")]

use std::collections::VecDeque;
use std::ffi::{c_int, c_void};
use std::sync::Arc;

use cudarc::nvrtc::{CompileError, CompileOptions, compile_ptx_with_opts, sys};
use parking_lot::Mutex;

use super::error::CudaError;
use crate::device::Kernel;

/// Functions of the compiler that are called below. One that it lacks would be a panic.
const FUNCTIONS: [&str; 10] = [
    "nvrtcCompileProgram",
    "nvrtcCreateProgram",
    "nvrtcDestroyProgram",
    "nvrtcGetNumSupportedArchs",
    "nvrtcGetPTX",
    "nvrtcGetPTXSize",
    "nvrtcGetProgramLog",
    "nvrtcGetProgramLogSize",
    "nvrtcGetSupportedArchs",
    "nvrtcVersion",
];

/// So many compiled sources are remembered: each lane asks for its own.
const REMEMBERED: usize = 16;
/// So many errors of a source are told.
const TOLD: usize = 8;

/// Why there is no PTX.
#[derive(Debug)]
pub(crate) struct Flaw {
    /// The line of the source that is to blame, from 1.
    pub(crate) line: Option<usize>,
    pub(crate) why: String,
    /// What to write instead.
    pub(crate) help: Option<String>,
}

impl Flaw {
    pub(super) fn new(why: impl Into<String>) -> Self {
        Flaw { line: None, why: why.into(), help: None }
    }

    pub(super) fn help(self, help: impl Into<String>) -> Self {
        Flaw { help: Some(help.into()), ..self }
    }

    pub(super) fn of(self, kernel: &Kernel) -> CudaError {
        let Flaw { why, help, .. } = self;
        let why = help.map_or(why.clone(), |help| format!("{why}: {help}"));
        CudaError::Kernel { name: kernel.name.clone(), why }
    }
}

/// What a source was compiled to.
struct Remembered {
    source: String,
    arch: i32,
    ptx: Arc<str>,
}

static REMEMBER: Mutex<VecDeque<Remembered>> = Mutex::new(VecDeque::new());

/// Whether there is a compiler that serves.
pub(super) fn is_there() -> bool {
    // SAFETY: only NVIDIA's library has that name; functions are looked for in it, not called.
    unsafe {
        let has = |name: &&str| sys::culib().get::<*const c_void>(name.as_bytes()).is_ok();
        // Asking a library that is not there would be a panic.
        sys::is_culib_present() && FUNCTIONS.iter().all(has)
    }
}

/// The PTX of `source` for a GPU of this compute capability (90 is 9.0); without one, for the newest
/// that the compiler knows.
pub(super) fn compile(source: &str, capability: Option<i32>) -> Result<Arc<str>, Flaw> {
    if source.contains('\0') {
        return Err(Flaw::new("its source contains a NUL byte"));
    }
    if !is_there() {
        let why = "its source needs NVIDIA's compiler NVRTC (libnvrtc.so), which was not found";
        return Err(Flaw::new(why).help(
            "install it (`pip install nvidia-cuda-nvrtc-cu12` and add its `lib` to LD_LIBRARY_PATH), or \
             give PTX",
        ));
    }
    let known = known().ok_or_else(|| Flaw::new("NVRTC does not say what it compiles for"))?;
    let arch = arch(&known, capability)?;
    if let Some(ptx) = remembered(source, arch) {
        return Ok(ptx);
    }
    let options = vec![format!("--gpu-architecture=compute_{arch}")];
    let options = CompileOptions { options, ..CompileOptions::default() };
    let ptx: Arc<str> = match compile_ptx_with_opts(source, options) {
        Ok(ptx) => Arc::from(ptx.to_src()),
        Err(CompileError::CompileError { log, .. }) => return Err(read(&log.to_string_lossy())),
        Err(error) => return Err(Flaw::new(format!("its source does not compile: {error}"))),
    };
    let mut all = REMEMBER.lock();
    all.truncate(REMEMBERED - 1);
    all.push_front(Remembered { source: source.to_owned(), arch, ptx: Arc::clone(&ptx) });
    Ok(ptx)
}

fn remembered(source: &str, arch: i32) -> Option<Arc<str>> {
    let all = REMEMBER.lock();
    let found = all.iter().find(|one| one.arch == arch && one.source == source);
    found.map(|one| Arc::clone(&one.ptx))
}

/// The compute capabilities that the compiler makes PTX for.
fn known() -> Option<Vec<i32>> {
    let mut count: c_int = 0;
    // SAFETY: writes a number to where it is told, and then as many as it said.
    unsafe {
        sys::nvrtcGetNumSupportedArchs(&raw mut count).result().ok()?;
        let mut known = vec![0; usize::try_from(count).ok()?];
        sys::nvrtcGetSupportedArchs(known.as_mut_ptr()).result().ok()?;
        Some(known)
    }
}

/// The newest of `known` whose PTX a GPU of this capability takes.
fn arch(known: &[i32], capability: Option<i32>) -> Result<i32, Flaw> {
    let newest = capability.unwrap_or(i32::MAX);
    let shown = |capability: i32| format!("{}.{}", capability / 10, capability % 10);
    known.iter().copied().filter(|&arch| arch <= newest).max().ok_or_else(|| {
        let oldest = known.iter().copied().min().map_or_else(|| "none".to_owned(), shown);
        let why = format!(
            "NVRTC compiles for GPUs of compute capability {oldest} and newer, and this one has {}",
            shown(newest)
        );
        Flaw::new(why)
            .help("install an older NVRTC (`pip install nvidia-cuda-nvrtc-cu12`), or give PTX")
    })
}

/// The errors in the compiler's log: `default_program(3): error: identifier "y" is undefined`.
fn read(log: &str) -> Flaw {
    let error = |line: &str| {
        let (place, what) = line.split_once("): ")?;
        let what = what.split_once("error: ").filter(|(before, _)| !before.contains(':'))?.1;
        let line: usize = place.rsplit_once('(')?.1.parse().ok()?;
        Some((line, what.to_owned()))
    };
    let errors: Vec<_> = log.lines().filter_map(error).collect();
    let shown: Vec<_> =
        errors.iter().take(TOLD).map(|(line, what)| format!("line {line}: {what}")).collect();
    let shown = if shown.is_empty() { log.trim().to_owned() } else { shown.join("\n") };
    let line = errors.first().map(|(line, _)| *line);
    Flaw { line, ..Flaw::new(format!("its source does not compile:\n{shown}")) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ptx_is_made_for_the_gpu_or_else_for_the_newest_that_the_compiler_knows() {
        // NVRTC 12.0 and 13.0.
        let old = [50, 52, 53, 60, 61, 62, 70, 72, 75, 80, 86, 87, 89, 90];
        let new = [75, 80, 86, 87, 88, 89, 90, 100, 103, 110, 120, 121];
        let arch = |known, capability| arch(known, capability).map_err(|flaw| flaw.why);
        assert_eq!(arch(&old, Some(86)), Ok(86));
        assert_eq!(arch(&old, Some(120)), Ok(90), "the GPU is newer than the compiler");
        let refused = arch(&new, Some(70)).expect_err("CUDA 13 has no Volta");
        assert!(refused.contains("capability 7.5 and newer, and this one has 7.0"), "{refused}");
        assert_eq!(arch(&new, None), Ok(121));
    }

    #[test]
    fn errors_are_told_by_their_lines() {
        let log = "default_program(3): warning #177-D: variable \"a\" was declared\n\n\
                   default_program(4): error: identifier \"bye\" is undefined\n\n\
                   default_program(9): error: expected a \";\"\n\n2 errors detected";
        let Flaw { line, why, .. } = read(log);
        assert_eq!(line, Some(4));
        assert_eq!(
            why,
            "its source does not compile:\nline 4: identifier \"bye\" is undefined\nline 9: expected a \
             \";\""
        );
        assert_eq!(read("nothing told").line, None);
    }
}
