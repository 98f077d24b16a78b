//! Kernels: ours, made ahead as PTX, and those that users write, compiled when a stage starts.

use std::sync::Arc;

use super::compiler::{self, Flaw};
use super::driver::{Argument, Context, Grid, Module, Stream};
use super::entry::{Entries, entries, misfit};
use super::error::CudaError;
use crate::device::Kernel;
use crate::device::kernel::GRID_MAX;
use crate::item::DType;

/// Ours, as PTX: those of the device stages, and two for measurements.
pub const KERNELS: &str = include_str!("../kernels/kernels.ptx");

/// Threads of a block of our kernels.
pub(super) const BLOCK: u32 = 256;

/// A user's kernel on one GPU.
pub(super) fn compiled(context: &Arc<Context>, kernel: &Kernel) -> Result<Module, CudaError> {
    let ptx = checked(kernel, Some(context.capability)).map_err(|flaw| flaw.of(kernel))?;
    Module::load(context, &ptx)
}

/// Tells `stream` to run a user's kernel on `n` elements at `address`.
pub(super) fn launch(
    kernel: &Kernel,
    module: &Module,
    stream: &Stream,
    address: u64,
    n: u64,
) -> Result<(), CudaError> {
    if n == 0 {
        return Ok(());
    }
    let enough = n.div_ceil(u64::from(kernel.block));
    let blocks = match kernel.grid {
        Some(blocks) => blocks,
        None => u32::try_from(enough).ok().filter(|blocks| *blocks <= GRID_MAX).ok_or_else(|| {
            let why = format!(
                "{n} elements in blocks of {} threads are more than {GRID_MAX} blocks: write a larger \
                 `block`, or a `grid` and a loop in the kernel",
                kernel.block
            );
            wrong(kernel, why)
        })?,
    };
    let grid = Grid { blocks, threads: kernel.block };
    module.launch(stream, &kernel.name, grid, &mut arguments(kernel, address, n))
}

/// The kernel's PTX, as it is given or compiled for a GPU of this compute capability, if it takes what it
/// will be given.
pub(super) fn checked(kernel: &Kernel, capability: Option<i32>) -> Result<Arc<str>, Flaw> {
    kernel.check().map_err(|error| match error {
        CudaError::Kernel { why, .. } => Flaw::new(why),
        other => Flaw::new(other.to_string()),
    })?;
    let ptx = match is_ptx(kernel) {
        true => Arc::from(&*kernel.source),
        false => compiler::compile(&kernel.source, capability)?,
    };
    match unfit(kernel, &entries(&ptx)) {
        None => Ok(ptx),
        Some(flaw) => Err(Flaw { line: line_of(kernel), ..flaw }),
    }
}

/// Whether its PTX can be had here and now.
pub(super) fn can_be_checked(kernel: &Kernel) -> bool {
    is_ptx(kernel) || compiler::is_there()
}

fn is_ptx(kernel: &Kernel) -> bool {
    kernel.source.trim_start().starts_with("//") && kernel.source.contains(".entry")
}

/// What it is given: the address of the elements, their number, and the numbers.
fn arguments(kernel: &Kernel, address: u64, n: u64) -> Vec<Argument> {
    let numbers = kernel.numbers.iter().map(|&number| Argument::F32(number));
    [Argument::Address(address), Argument::U64(n)].into_iter().chain(numbers).collect()
}

/// Why none of the `entries` is this kernel, or why it can't be given what it would be.
fn unfit(kernel: &Kernel, entries: &Entries) -> Option<Flaw> {
    let Kernel { name, dtype, numbers, .. } = kernel;
    let Some(params) = entries.get(name) else {
        let mangled = format!("_Z{}{name}", name.len());
        if entries.keys().any(|entry| entry.starts_with(&mangled)) {
            let why = "C++ gives the function another name";
            return Some(Flaw::new(why).help("write `extern \"C\"` before it"));
        }
        let there: Vec<_> = entries.keys().map(|entry| format!("`{entry}`")).collect();
        let there = if there.is_empty() { "none".to_owned() } else { there.join(", ") };
        let why = format!("its source has no kernel of that name, but {there}");
        return Some(
            Flaw::new(why).help("write `extern \"C\" __global__ void` before the function"),
        );
    };
    let why = misfit(params, &arguments(kernel, 0, 0))?;
    // Are they right but for how many numbers there are?
    let floats = params.len().saturating_sub(2);
    let other = Kernel { numbers: vec![0.0; floats], ..kernel.clone() };
    let help = match misfit(params, &arguments(&other, 0, 0)) {
        None => {
            let given = numbers.len();
            format!(
                "write one of `numbers` for each `float` behind the first two: {floats}, not {given}"
            )
        }
        Some(_) => {
            let floats: String = (1..=numbers.len()).map(|i| format!(", float a{i}")).collect();
            format!("write it as `{name}({} *x, unsigned long long n{floats})`", c_type(*dtype))
        }
    };
    Some(Flaw::new(why).help(help))
}

/// The line of the source in which it is declared.
fn line_of(kernel: &Kernel) -> Option<usize> {
    let is_here = |line: &str| line.contains(&kernel.name) && !line.trim_start().starts_with("//");
    kernel.source.lines().position(is_here).map(|at| at + 1)
}

fn c_type(dtype: DType) -> &'static str {
    match dtype {
        DType::Bool => "bool",
        DType::I8 => "signed char",
        DType::I16 => "short",
        DType::I32 => "int",
        DType::I64 => "long long",
        DType::U8 => "unsigned char",
        DType::U16 => "unsigned short",
        DType::U32 => "unsigned int",
        DType::U64 => "unsigned long long",
        DType::F16 => "__half",
        DType::BF16 => "__nv_bfloat16",
        DType::F32 => "float",
        DType::F64 => "double",
    }
}

fn wrong(kernel: &Kernel, why: String) -> CudaError {
    CudaError::Kernel { name: kernel.name.clone(), why }
}
