//! The simulation finds what it is there to find: otherwise the other tests would show nothing.
#![expect(unsafe_code, reason = "the driver is used as it must not be")]

use cudarc::driver::{result, sys};

use super::simulation::{on_gpu, on_gpu_with};

/// A context, a stream, a block of 4 KiB and as much pinned memory.
unsafe fn set_up() -> (sys::CUstream, sys::CUdeviceptr, &'static mut [u8]) {
    result::init().unwrap();
    // SAFETY: the functions are given what they take, and nothing else refers to the memory.
    unsafe {
        let context = result::primary_ctx::retain(result::device::get(0).unwrap()).unwrap();
        result::ctx::set_current(context).unwrap();
        let pinned = result::malloc_host(4096, 0).unwrap().cast::<u8>();
        pinned.write_bytes(1, 4096);
        let pinned = std::slice::from_raw_parts_mut(pinned, 4096);
        (stream(), result::malloc_sync(4096).unwrap(), pinned)
    }
}

fn stream() -> sys::CUstream {
    result::stream::create(result::stream::StreamKind::NonBlocking).unwrap()
}

#[test]
fn it_finds_memory_changed_before_its_copy() {
    on_gpu("the_simulation::it_finds_memory_changed_before_its_copy", |gpu| {
        gpu.set("copy_latency_s", 0.05);
        // SAFETY: all of it is the simulation's.
        unsafe {
            let (stream, block, pinned) = set_up();
            result::memcpy_htod_async(block, pinned, stream).unwrap();
            std::thread::park_timeout(std::time::Duration::from_millis(10));
            pinned[7] = 9;
            result::stream::synchronize(stream).unwrap();
        }
        assert_eq!(gpu.wrong(), "memory of the host changed before it was copied");
    });
}

#[test]
fn it_finds_a_read_that_no_event_orders() {
    on_gpu("the_simulation::it_finds_a_read_that_no_event_orders", |gpu| {
        // SAFETY: all of it is the simulation's.
        unsafe {
            let (copies, block, pinned) = set_up();
            result::memcpy_htod_async(block, pinned, copies).unwrap();
            let mut to = [0_u8; 16];
            assert!(result::memcpy_dtoh_async(&mut to, block, stream()).is_err());
            assert!(gpu.wrong().contains("before what was written there had arrived"));
            // With an event it is in order.
            let (other, event) =
                (stream(), result::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).unwrap());
            result::event::record(event, copies).unwrap();
            result::stream::wait_event(
                other,
                event,
                sys::CUevent_wait_flags::CU_EVENT_WAIT_DEFAULT,
            )
            .unwrap();
            result::memcpy_dtoh_async(&mut to, block, other).unwrap();
            result::stream::synchronize(other).unwrap();
            assert_eq!(to, [1; 16]);
        }
    });
}

#[test]
fn it_finds_memory_overwritten_while_it_is_read() {
    on_gpu("the_simulation::it_finds_memory_overwritten_while_it_is_read", |gpu| {
        // SAFETY: all of it is the simulation's.
        unsafe {
            let (first, block, pinned) = set_up();
            result::memcpy_htod_async(block, pinned, first).unwrap();
            result::stream::synchronize(first).unwrap();
            let (reader, mut to) = (stream(), [0_u8; 16]);
            result::memcpy_dtoh_async(&mut to, block, reader).unwrap();
            assert!(result::memcpy_htod_async(block, pinned, first).is_err());
            result::stream::synchronize(reader).unwrap();
        }
        assert!(gpu.wrong().contains("while it was still being read"), "{}", gpu.wrong());
    });
}

#[test]
fn it_finds_a_stream_that_is_waited_for() {
    on_gpu("the_simulation::it_finds_a_stream_that_is_waited_for", |gpu| {
        // SAFETY: all of it is the simulation's.
        unsafe {
            let (stream, _, _) = set_up();
            result::stream::synchronize(stream).unwrap();
            assert_eq!((gpu.wrong(), gpu.count("syncs")), (String::new(), 1.0));
            gpu.set("steady", 1.0);
            result::stream::synchronize(stream).unwrap();
        }
        assert_eq!(gpu.wrong(), "syncs in steady state");
    });
}

#[test]
fn it_finds_memory_of_one_gpu_on_another() {
    let name = "the_simulation::it_finds_memory_of_one_gpu_on_another";
    on_gpu_with(name, &[("SIMULATED_GPUS", "2")], |gpu| {
        // SAFETY: all of it is the simulation's.
        unsafe {
            let (_, block, pinned) = set_up();
            let other = result::primary_ctx::retain(result::device::get(1).unwrap()).unwrap();
            result::ctx::set_current(other).unwrap();
            assert!(result::memcpy_htod_async(block, pinned, stream()).is_err());
        }
        assert_eq!(gpu.wrong(), "a copy to the GPU: memory of GPU 0 on GPU 1");
    });
}

#[test]
fn it_finds_calls_without_a_context_and_leaks() {
    on_gpu("the_simulation::it_finds_calls_without_a_context_and_leaks", |gpu| {
        // SAFETY: all of it is the simulation's.
        unsafe {
            let (_, _, pinned) = set_up();
            let other = std::thread::spawn(|| result::malloc_sync(16).is_err());
            assert!(other.join().unwrap());
            assert!(gpu.wrong().contains("allocating without a context"));
            let (stream, block) = (stream(), result::malloc_sync(64).unwrap());
            assert!(result::memcpy_htod_async(block, pinned, stream).is_err());
            assert!(gpu.wrong().contains("4096 bytes reach beyond a block of 64"));
        }
        assert_eq!((gpu.count("blocks"), gpu.count("pinned")), (2.0, 1.0));
    });
}

#[test]
fn it_finds_a_kernel_that_reaches_beyond_its_memory() {
    on_gpu("the_simulation::it_finds_a_kernel_that_reaches_beyond_its_memory", |gpu| {
        let ptx = c".target sm_70\n.entry scale(.param .u64 a, .param .u64 b, .param .f32 c) {}";
        // SAFETY: all of it is the simulation's.
        unsafe {
            let (stream, block, pinned) = set_up();
            result::memcpy_htod_async(block, pinned, stream).unwrap();
            let module = result::module::load_data(ptx.as_ptr().cast()).unwrap();
            let scale = result::module::get_function(module, c"scale".into()).unwrap();
            let run = |mut n: u64| {
                let (mut at, mut by) = (block, 2.0_f32);
                let mut given: [*mut std::ffi::c_void; 3] =
                    [(&raw mut at).cast(), (&raw mut n).cast(), (&raw mut by).cast()];
                result::launch_kernel(scale, (1, 1, 1), (32, 1, 1), 0, stream, &mut given)
            };
            run(1024).unwrap();
            assert_eq!(gpu.wrong(), "");
            assert!(run(1025).is_err());
        }
        assert!(gpu.wrong().contains("4100 bytes reach beyond a block of 4096"), "{}", gpu.wrong());
    });
}
