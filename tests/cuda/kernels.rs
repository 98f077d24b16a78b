//! Kernels of one's own: what they take and which tensors they are for is compared before they run.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

use forebay::device::Kernel;
use forebay::prelude::*;

use super::simulation::{Gpu, on_gpu, on_gpu_with_compiler};
use super::support::{batches, elements, spec};

/// The kernel `scale`, which the simulation knows, with these parameters.
fn ptx(params: &str) -> String {
    let head = "// by hand\n.version 8.0\n.target sm_70\n.address_size 64\n";
    format!("{head}.visible .entry scale({params}) {{ ret; }}\n")
}

fn scale() -> Kernel {
    let source = ptx(".param .u64 a, .param .u64 b, .param .f32 c");
    Kernel { numbers: vec![3.0], ..Kernel::new("scale", source) }
}

fn cuda(body: &str) -> Kernel {
    let source = format!(
        "extern \"C\" __global__ void scale(float *x, unsigned long long n, float by) {{\n\
             unsigned long long i = blockIdx.x * (unsigned long long)blockDim.x + threadIdx.x;\n\
             for (; i < n; i += (unsigned long long)gridDim.x * blockDim.x) {body};\n}}\n"
    );
    Kernel { numbers: vec![2.0], ..Kernel::new("scale", source) }
}

/// What four batches of f32 become.
fn through(kernel: Kernel) -> Result<Vec<f32>, String> {
    let device = device::named("cuda:0").unwrap();
    let run = batches(device.host_pool(), 4)
        .then(device::upload(&device))
        .then(device::kernel(kernel))
        .run()
        .map_err(|error| error.to_string())?;
    run.map(|batch| Ok(elements(&batch.map_err(|error| error.to_string())?)[1])).collect()
}

fn refused(kernel: Kernel) -> String {
    through(kernel).expect_err("it can't run")
}

/// Nothing was launched and nothing was wrong.
fn check_idle(gpu: &Gpu) {
    assert_eq!(gpu.count("kernels"), 0.0);
    gpu.check_clean();
}

#[test]
fn a_kernel_of_ones_own_runs() {
    on_gpu("kernels::a_kernel_of_ones_own_runs", |gpu| {
        let for_x = Kernel { variables: vec!["x".to_owned()], block: 128, ..scale() };
        assert_eq!(through(for_x).unwrap(), [3.0, 6.0, 9.0, 12.0]);
        let none = refused(Kernel { variables: vec!["y".to_owned()], ..scale() });
        assert!(none.contains("kernel `scale` is for `y`, but the batch has `x`"), "{none}");
        gpu.check_clean();
    });
}

#[test]
fn a_kernel_that_takes_other_arguments_is_refused_before_it_runs() {
    on_gpu("kernels::a_kernel_that_takes_other_arguments_is_refused_before_it_runs", |gpu| {
        let with = |params: &str, numbers: &[f32]| {
            let numbers = numbers.to_vec();
            refused(Kernel { numbers, ..Kernel::new("scale", ptx(params)) })
        };
        // The driver would read a third argument from behind the two.
        assert_eq!(
            with(".param .u64 a, .param .u64 b, .param .f32 c", &[]),
            "stage `kernel` failed: kernel `scale`: it takes 3 parameters (.u64, .u64, .f32), but is given \
             2 arguments (.u64 address, .u64): write one of `numbers` for each `float` behind the first \
             two: 1, not 0"
        );
        let count = with(".param .u64 a, .param .u32 b, .param .f32 c", &[1.0]);
        assert!(
            count.ends_with("write it as `scale(float *x, unsigned long long n, float a1)`"),
            "{count}"
        );
        let double = with(".param .u64 a, .param .u64 b, .param .f64 c", &[1.0]);
        assert!(double.contains("it takes 3 parameters (.u64, .u64, .f64)"), "{double}");
        assert!(with("", &[]).contains("it takes no parameters"));
        assert!(
            with(".param .u64 a, .param .u64 b", &[1.0])
                .ends_with("behind the first two: 0, not 1")
        );
        check_idle(gpu);
    });
}

#[test]
fn a_kernel_of_another_name_is_refused_with_those_that_are_there() {
    on_gpu("kernels::a_kernel_of_another_name_is_refused_with_those_that_are_there", |gpu| {
        let none = refused(Kernel { name: "square".to_owned(), ..scale() });
        assert!(
            none.contains("kernel `square`: its source has no function of that name"),
            "{none}"
        );
        let none = refused(Kernel { name: "cale".to_owned(), ..scale() });
        assert!(none.contains("no kernel of that name, but `scale`"), "{none}");
        let source = ptx("").replace("scale", "_Z5scalePfyf");
        let mangled = refused(Kernel::new("scale", source));
        assert!(mangled.contains("write `extern \"C\"` before it"), "{mangled}");
        check_idle(gpu);
    });
}

/// Batches of f16, which have half the bytes that a kernel for f32 would write.
fn halves(kernel: Kernel) -> Result<Vec<u16>, String> {
    let device = device::named("cuda:0").unwrap();
    let pool = device.host_pool().clone();
    let make = move |_: u64| {
        let mut tensor = Tensor::take(&pool, spec("x", DType::F16, 8, 512));
        tensor.bytes_mut().fill(0x11);
        Ok::<_, Never>(Batch::new(vec![tensor], Vec::new()))
    };
    let run = Pipeline::from(source::iter("numbers", 0..2_u64))
        .then(cpu::map("make", make))
        .then(device::upload(&device))
        .then(device::kernel(kernel))
        .then(device::download())
        .run()
        .map_err(|error| error.to_string())?;
    run.map(|batch| {
        let batch = batch.map_err(|error| error.to_string())?;
        Ok(u16::from_le_bytes(batch.tensors()[0].bytes()[..2].try_into().unwrap()))
    })
    .collect()
}

#[test]
fn a_tensor_of_another_type_than_the_kernel_is_for_is_refused() {
    on_gpu("kernels::a_tensor_of_another_type_than_the_kernel_is_for_is_refused", |gpu| {
        let error = halves(scale()).unwrap_err();
        assert!(
            error.contains(
                "kernel `scale` is written for f32, but `x` has elements of type f16: put `device.cast: \
                 f32` before it, or write `dtype: f16` if the kernel takes that"
            ),
            "{error}"
        );
        assert_eq!((gpu.count("kernels"), gpu.wrong().as_str()), (0.0, ""));
        let source = ptx(".param .u64 a, .param .u64 b").replace("scale", "negate_f16");
        let negate = Kernel { dtype: DType::F16, ..Kernel::new("negate_f16", source) };
        assert_eq!(halves(negate).unwrap(), [0x9111, 0x9111]);
        gpu.check_clean();
    });
}

#[test]
fn a_bad_kernel_fails_before_anything_is_read() {
    on_gpu("kernels::a_bad_kernel_fails_before_anything_is_read", |gpu| {
        let device = device::named("cuda:0").unwrap();
        let read = Arc::new(AtomicU64::new(0));
        let numbers = || {
            let read = Arc::clone(&read);
            let pool = device.host_pool().clone();
            let source = source::iter(
                "numbers",
                (0..4_u64).inspect(move |_| {
                    read.fetch_add(1, SeqCst);
                }),
            );
            let make = move |i| Ok::<_, Never>(super::support::batch(&pool, i, 8, 512));
            Pipeline::from(source).then(cpu::map("make", make)).then(device::upload(&device))
        };
        let bad = Kernel { numbers: Vec::new(), ..scale() };
        let error = numbers().then(device::kernel(bad.clone())).run().err().unwrap().to_string();
        assert!(error.contains("it takes 3 parameters"), "{error}");
        // Nor is another branch read.
        let joined = flow::merge([numbers(), numbers().then(device::kernel(bad))]);
        assert!(joined.run().is_err());
        assert_eq!((read.load(SeqCst), gpu.count("copies")), (0, 0.0));
        numbers().then(device::kernel(scale())).run().unwrap().drain().unwrap();
        assert_eq!(read.load(SeqCst), 4);
        drop(device);
        gpu.check_clean();
    });
}

#[test]
fn a_grid_has_a_thread_for_each_element_unless_it_is_fixed() {
    on_gpu("kernels::a_grid_has_a_thread_for_each_element_unless_it_is_fixed", |gpu| {
        through(Kernel { block: 100, ..scale() }).unwrap();
        assert_eq!(gpu.count("last_blocks"), 41.0, "4096 elements in blocks of 100");
        through(Kernel { grid: Some(3), ..scale() }).unwrap();
        assert_eq!(gpu.count("last_blocks"), 3.0);
        let none = refused(Kernel { grid: Some(0), ..scale() });
        assert!(none.contains("a grid has 1 to 2147483647 blocks, not 0"), "{none}");
        let large = refused(Kernel { grid: Some(u32::MAX), ..scale() });
        assert!(large.contains("not 4294967295"), "{large}");
        let block = refused(Kernel { block: 1025, ..scale() });
        assert!(block.contains("blocks have 1 to 1024 threads, not 1025"), "{block}");
        gpu.check_clean();
    });
}

#[test]
fn a_kernel_from_source_is_compiled_for_the_gpu_at_hand() {
    on_gpu_with_compiler("kernels::a_kernel_from_source_is_compiled_for_the_gpu_at_hand", |gpu| {
        // NVRTC 12.0 knows none that is newer than 9.0.
        for (capability, target) in [(86.0, 86.0), (90.0, 90.0), (120.0, 90.0), (88.0, 87.0)] {
            gpu.set("capability", capability);
            assert_eq!(through(cuda("x[i] *= by")).unwrap(), [2.0, 4.0, 6.0, 8.0]);
            assert_eq!(gpu.count("last_target"), target, "for a GPU of {capability}");
        }
        gpu.check_clean();
    });
}

#[test]
fn a_kernel_that_does_not_compile_is_told_by_its_lines() {
    on_gpu_with_compiler("kernels::a_kernel_that_does_not_compile_is_told_by_its_lines", |gpu| {
        let wrong = refused(cuda("x[i] *= bye"));
        assert!(
            wrong.contains("its source does not compile:\nline 3: identifier \"bye\" is undefined"),
            "{wrong}"
        );
        let double = cuda("x[i] *= by");
        let source = double.source.replace("float by", "double by");
        let double = refused(Kernel { source, ..double });
        assert!(double.contains("it takes 3 parameters (.u64, .u64, .f64)"), "{double}");
        let nul = refused(cuda("x[i] *= by\0"));
        assert!(nul.contains("its source contains a NUL byte"), "{nul}");
        check_idle(gpu);
    });
}
