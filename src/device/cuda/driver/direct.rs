//! Files that a GPU reads itself, past the host's memory (NVIDIA's GPUDirect Storage), by `libcufile`,
//! which is looked for when it is asked for. What can't be read so is refused with the reason.
#![expect(unsafe_code, reason = "the library's functions are foreign")]

use std::ffi::{c_int, c_uint, c_void};
use std::fmt;
use std::fs::{File, OpenOptions};
use std::os::fd::AsRawFd as _;
use std::os::unix::fs::OpenOptionsExt as _;
use std::path::Path;
use std::sync::{Arc, OnceLock};

use libloading::{Library, Symbol};
use rustix::fs::OFlags;

use super::memory::Block;
use super::{Context, DIRECT_UNIT};

const NAMES: [&str; 2] = ["libcufile.so.0", "libcufile.so"];
/// The library's name for a file that is a number of the system.
const BY_NUMBER: c_int = 1;

type Handle = *mut c_void;

/// What the library's functions return.
#[derive(Clone, Copy)]
#[repr(C)]
struct Status {
    code: c_int,
    driver: c_int,
}

/// What a handle is made from.
#[repr(C)]
struct Description {
    sort: c_int,
    file: FileNumber,
    functions: *const c_void,
}

#[repr(C)]
union FileNumber {
    number: c_int,
    pointer: *mut c_void,
}

/// The beginning of what the library tells of itself, and room for the rest of it.
#[derive(Default)]
#[repr(C)]
struct Properties {
    version: [c_uint; 2],
    limits: [usize; 2],
    /// A bit for each file system that is served.
    serves: c_uint,
    rest: [c_uint; 32],
}

/// The library, started.
struct Direct {
    register: unsafe extern "C" fn(*mut Handle, *const Description) -> Status,
    deregister: unsafe extern "C" fn(Handle),
    read: unsafe extern "C" fn(Handle, *mut c_void, usize, i64, i64) -> isize,
    /// Where the functions are.
    _library: Library,
}

impl Direct {
    /// It is started once and stays.
    fn get(context: &Context) -> Result<&'static Self, String> {
        static STARTED: OnceLock<Result<Direct, String>> = OnceLock::new();
        STARTED.get_or_init(|| Direct::start(context)).as_ref().map_err(Clone::clone)
    }

    fn start(context: &Context) -> Result<Self, String> {
        context.bind().map_err(|error| error.to_string())?;
        // SAFETY: only NVIDIA's library has that name.
        let library = NAMES.iter().find_map(|name| unsafe { Library::new(*name) }.ok());
        let library = library.ok_or("`libcufile.so.0` was not found")?;
        // SAFETY: the functions have these types.
        unsafe {
            let open = *function::<unsafe extern "C" fn() -> Status>(&library, "cuFileDriverOpen")?;
            let properties = *function::<unsafe extern "C" fn(*mut Properties) -> Status>(
                &library,
                "cuFileDriverGetProperties",
            )?;
            let direct = Direct {
                register: *function(&library, "cuFileHandleRegister")?,
                deregister: *function(&library, "cuFileHandleDeregister")?,
                read: *function(&library, "cuFileRead")?,
                _library: library,
            };
            ok(open()).map_err(|code| format!("`libcufile` can't be started ({code})"))?;
            let mut told = Properties::default();
            ok(properties(&raw mut told)).map_err(|code| format!("`libcufile` fails ({code})"))?;
            // Without its driver the library would read by the host, and not say so.
            if told.serves == 0 {
                return Err("the driver `nvidia-fs` is not loaded or serves no file system".into());
            }
            Ok(direct)
        }
    }
}

/// # Safety
/// The function is of type `T`.
unsafe fn function<'a, T>(library: &'a Library, name: &str) -> Result<Symbol<'a, T>, String> {
    // SAFETY: as this function's own.
    unsafe { library.get(name.as_bytes()) }.map_err(|_| format!("`libcufile` has no `{name}`"))
}

fn ok(status: Status) -> Result<(), String> {
    match status {
        Status { code: 0, .. } => Ok(()),
        Status { code, driver: 0 } => Err(format!("error {code}")),
        Status { code, driver } => Err(format!("error {code}, of the driver {driver}")),
    }
}

/// A file that the GPU may read itself.
pub(in crate::device::cuda) struct DirectFile {
    handle: Handle,
    direct: &'static Direct,
    context: Arc<Context>,
    /// Open for as long as the handle.
    _file: File,
}

// SAFETY: the library may be called from all threads.
unsafe impl Send for DirectFile {}

impl DirectFile {
    pub(in crate::device::cuda) fn open(
        context: &Arc<Context>,
        path: &Path,
    ) -> Result<Self, String> {
        let direct = Direct::get(context)?;
        let shown = path.display();
        let mut options = OpenOptions::new();
        let options = options.read(true).custom_flags(OFlags::DIRECT.bits() as i32);
        let file = options.open(path).map_err(|error| {
            format!("`{shown}` can't be opened past the host's memory: {error}")
        })?;
        let file_number = FileNumber { number: file.as_raw_fd() };
        let description =
            Description { sort: BY_NUMBER, file: file_number, functions: std::ptr::null() };
        let mut handle: Handle = std::ptr::null_mut();
        // SAFETY: both are there for the call; deregistered once, when this is dropped.
        ok(unsafe { (direct.register)(&raw mut handle, &raw const description) }).map_err(
            |code| format!("`libcufile` can't read the file system of `{shown}` ({code})"),
        )?;
        Ok(DirectFile { handle, direct, context: Arc::clone(context), _file: file })
    }

    /// Reads `bytes` bytes at `offset`, a multiple of the unit, to the beginning of `to`, which nothing
    /// uses. The GPU has them when this returns.
    pub(in crate::device::cuda) fn read(
        &self,
        to: &Block,
        offset: u64,
        bytes: usize,
    ) -> Result<(), String> {
        self.context.bind().map_err(|error| error.to_string())?;
        // Whole units; the end of the file may come before.
        let whole = bytes.next_multiple_of(DIRECT_UNIT as usize);
        assert!(whole <= to.bytes, "a block is as long as what is read to it");
        let at = i64::try_from(offset).map_err(|_| "no file is so long".to_owned())?;
        // SAFETY: the block is as long as that, and nothing else uses it.
        let read =
            unsafe { (self.direct.read)(self.handle, to.address() as *mut c_void, whole, at, 0) };
        match usize::try_from(read) {
            Ok(read) if read >= bytes => Ok(()),
            Ok(read) => Err(format!("{read} of {bytes} bytes were read")),
            Err(_) if read == -1 => Err(std::io::Error::last_os_error().to_string()),
            Err(_) => Err(format!("error {}", -read)),
        }
    }
}

impl Drop for DirectFile {
    fn drop(&mut self) {
        if self.context.bind().is_ok() {
            // SAFETY: registered once; reads have ended, as they are waited for.
            unsafe { (self.direct.deregister)(self.handle) };
        }
    }
}

impl fmt::Debug for DirectFile {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("DirectFile").field("handle", &self.handle).finish_non_exhaustive()
    }
}
