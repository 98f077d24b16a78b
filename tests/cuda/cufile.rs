//! A `libcufile.so` that reads to the simulated GPU. It refuses what the real one serves only slowly:
//! reads that are not of whole pages, and files that are opened through the host's memory.

use super::*;
use std::os::unix::fs::FileExt as _;

const INVALID: c_int = 5022;

#[repr(C)]
pub struct Status {
    code: c_int,
    driver: c_int,
}

#[repr(C)]
pub struct Description {
    sort: c_int,
    fd: usize,
    functions: *const c_void,
}

fn status(setting: &str) -> Status {
    Status { code: world().setting(setting, 0.0) as c_int, driver: 0 }
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileDriverOpen() -> Status {
    status("cufile_open")
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileDriverGetProperties(to: *mut c_uint) -> Status {
    // Served are files on NVMe, unless the driver is not there.
    unsafe { *to.add(6) = world().setting("cufile_serves", 16.0) as c_uint };
    status("cufile_properties")
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileHandleRegister(to: *mut usize, what: *const Description) -> Status {
    let (sort, fd) = unsafe { ((*what).sort, (*what).fd as c_int) };
    let info = std::fs::read_to_string(format!("/proc/self/fdinfo/{fd}")).unwrap_or_default();
    let flags = info.lines().find_map(|line| line.strip_prefix("flags:"));
    let flags = flags.and_then(|flags| u32::from_str_radix(flags.trim(), 8).ok()).unwrap_or(0);
    let direct = if cfg!(target_arch = "aarch64") { 0o200_000 } else { 0o40_000 };
    let mut world = world();
    if sort != 1 || flags & direct == 0 {
        world.wrong("a file is registered that is not opened for direct access");
        return Status { code: INVALID, driver: 0 };
    }
    drop(world);
    let refused = status("cufile_register");
    if refused.code == 0 {
        self::world().count("files", 1.0);
        unsafe { *to = fd as usize + 1 };
    }
    refused
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileHandleDeregister(_: usize) {
    world().count("files", -1.0);
}

#[unsafe(no_mangle)]
pub unsafe extern "C" fn cuFileRead(
    handle: usize,
    base: u64,
    bytes: usize,
    offset: i64,
    into: i64,
) -> isize {
    let mut world = world();
    if CURRENT.get().is_none() {
        world.wrong("a direct read without a context");
    }
    if world.fails("cufile_read_fails_after") {
        return -5008;
    }
    if bytes % 4096 != 0 || offset % 4096 != 0 || into != 0 {
        world.wrong(format!("a direct read of {bytes} bytes at {offset}"));
    }
    // It is on no stream: all that was asked for before must be known to be done.
    let host = world.host.clone();
    let direct = Access { stream: usize::MAX, at: host.get(&usize::MAX).copied().unwrap_or(0) + 1 };
    let Some((at, block)) = world.block(base) else {
        world.wrong("a direct read to no memory of the GPU");
        return -INVALID as isize;
    };
    let in_use = block.read.iter().chain(&block.written).any(|access| !access.before(&host));
    let beyond = at != 0 || bytes as u64 > block.bytes;
    (block.written, block.read) = (Some(direct), Vec::new());
    let data = Arc::clone(&block.data);
    if in_use || beyond {
        world.wrong("a direct read to memory that is in use, or too short");
        return -INVALID as isize;
    }
    world.host.insert(usize::MAX, direct.at);
    world.count("direct_reads", 1.0);
    drop(world);
    let file = std::fs::File::open(format!("/proc/self/fd/{}", handle - 1)).unwrap();
    let (mut data, mut read) = (data.lock().unwrap(), 0);
    while read < bytes {
        match file.read_at(&mut data[read..bytes], offset as u64 + read as u64) {
            Ok(0) | Err(_) => break,
            Ok(more) => read += more,
        }
    }
    read as isize
}
