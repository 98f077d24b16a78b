//! Tensors handed to other libraries without a copy, by the DLPack protocol: PyTorch, CuPy and JAX take
//! them.
//!
//! What takes a tensor calls its deleter when it needs it no more; the memory then goes back to where
//! it came from, and is used again only after the work that was asked for before.
#![expect(unsafe_code, reason = "the protocol is one of pointers")]

use std::ffi::c_void;
use std::sync::Arc;

use dlpark::ffi::{DLDataType, DLDataTypeCode, DLDevice};
use dlpark::metadata::Dynamic;
pub use dlpark::versioned::Dlpack;

use super::cuda::{Exported, Stream};
use super::{DeviceTensor, Memory as _, NotHere};
use crate::fault::Result;
use crate::item::{DType, Spec, Tensor};

impl Tensor {
    /// The tensor as DLPack, in host memory. Nothing is copied: the memory goes back to its pool when
    /// whoever takes it is done with it.
    ///
    /// ```
    /// use std::sync::Arc;
    /// use forebay::item::Spec;
    /// use forebay::prelude::*;
    ///
    /// let pool = Pool::default();
    /// let dims = Arc::from([Arc::from("time"), Arc::from("x")]);
    /// let spec = Spec { name: Arc::from("t2m"), dtype: DType::F32, dims, shape: Arc::from([2, 3]) };
    /// let mut tensor = Tensor::take(&pool, spec);
    /// tensor.elements_mut::<f32>().fill(1.5);
    ///
    /// let dlpack = tensor.into_dlpack();
    /// assert_eq!(dlpack.validate()?.shape(), [2, 3]);
    /// drop(dlpack);
    /// assert_eq!(pool.stats().lent_bytes, 0);
    /// # Ok::<(), Box<dyn std::error::Error>>(())
    /// ```
    pub fn into_dlpack(mut self) -> Dlpack {
        let data = self.bytes_mut().as_mut_ptr().cast();
        let spec = self.spec().clone();
        // SAFETY: the bytes stay where they are for as long as the tensor is there, which nobody else
        // refers to any more.
        unsafe { export(&spec, data, DLDevice::CPU, self) }
    }
}

impl DeviceTensor {
    /// The tensor as DLPack, where it is. Nothing is copied.
    ///
    /// On a GPU its bytes may be on their way still. `stream` is the one on which the taker will work:
    /// that stream waits for them, and the host does not; and the memory is used again only after what
    /// the stream was told until the taker lets go of it. Without a stream the host waits for the bytes
    /// and for all work on them, and the taker lets go only after its own is done.
    ///
    /// # Errors
    /// The GPU failed, or `stream` is given for a tensor that is not on one.
    pub fn into_dlpack(self, stream: Option<Arc<Stream>>) -> Result<Dlpack> {
        let spec = self.spec().clone();
        let Some(memory) = self.memory().as_cuda() else {
            if stream.is_some() {
                return Err(NotHere { tensor: spec, device: "the stream's GPU".to_owned() }.into());
            }
            return Ok(self.into_host()?.into_dlpack());
        };
        spec.check_length(memory.bytes())?;
        let exported = Exported::new(self, stream)?;
        let (address, ordinal) = exported.place()?;
        // SAFETY: the memory is there for as long as what is exported, and nobody else refers to it.
        Ok(unsafe { export(&spec, address as *mut c_void, DLDevice::cuda(ordinal), exported) })
    }
}

/// Hands over `owner`, whose elements are at `data`.
///
/// # Safety
/// They are as `spec` says, stay there for as long as `owner`, and only `owner` refers to them.
unsafe fn export<T: Send + 'static>(
    spec: &Spec,
    data: *mut c_void,
    device: DLDevice,
    owner: T,
) -> Dlpack {
    let shape: Vec<i64> = spec.shape.iter().map(|&extent| extent as i64).collect();
    let mut exported = Dynamic::compact(shape)
        .initialize(Box::new(owner))
        .expect("a tensor that is in memory has a shape that can be counted");
    exported.set_data(data).set_dtype(data_type(spec.dtype)).set_device(device);
    // SAFETY: as this function's own, and the layout is C order.
    unsafe { exported.finish() }
}

fn data_type(dtype: DType) -> DLDataType {
    match dtype {
        DType::Bool => DLDataType::BOOL,
        DType::I8 => DLDataType::I8,
        DType::I16 => DLDataType::I16,
        DType::I32 => DLDataType::I32,
        DType::I64 => DLDataType::I64,
        DType::U8 => DLDataType::U8,
        DType::U16 => DLDataType::U16,
        DType::U32 => DLDataType::U32,
        DType::U64 => DLDataType::U64,
        DType::F16 => DLDataType::scalar(DLDataTypeCode::FLOAT, 16),
        DType::BF16 => DLDataType::scalar(DLDataTypeCode::BFLOAT, 16),
        DType::F32 => DLDataType::F32,
        DType::F64 => DLDataType::F64,
    }
}
