//! An array of numbers with its spec, in host memory.

use ndarray::{ArrayViewD, ArrayViewMutD, IxDyn};

use super::{Buffer, DType, Element, OtherLength, Pool, Spec};
use crate::fault::Result;

/// An array of numbers in host memory: C-contiguous, in a buffer from a pool.
#[derive(Debug)]
pub struct Tensor {
    spec: Spec,
    data: Buffer,
}

impl Tensor {
    /// A tensor in memory from `pool`, whose elements are left over from its last use.
    pub fn take(pool: &Pool, spec: Spec) -> Self {
        let data = pool.take(spec.bytes() as usize);
        Tensor { spec, data }
    }

    /// The same, for memory that the system may refuse, as it does pinned memory.
    ///
    /// # Errors
    /// There is no such amount of memory.
    pub fn try_take(pool: &Pool, spec: Spec) -> Result<Self> {
        let data = pool.try_take(spec.bytes() as usize)?;
        Ok(Tensor { spec, data })
    }

    /// What it is.
    pub fn spec(&self) -> &Spec {
        &self.spec
    }

    /// Its bytes.
    pub fn bytes(&self) -> &[u8] {
        &self.data
    }

    /// Its bytes.
    pub fn bytes_mut(&mut self) -> &mut [u8] {
        &mut self.data
    }

    /// Memory that it keeps, in bytes.
    pub fn capacity(&self) -> usize {
        self.data.capacity()
    }

    /// The pool that its memory belongs to.
    pub fn pool(&self) -> &Pool {
        self.data.pool()
    }

    /// A tensor whose bytes are in `data`, if that is as long as `spec` says.
    pub(crate) fn from_parts(spec: Spec, data: Buffer) -> Result<Self, OtherLength> {
        spec.check_length(data.len())?;
        Ok(Tensor { spec, data })
    }

    /// The same by another name.
    pub(crate) fn named(self, name: &str) -> Self {
        Tensor { spec: Spec { name: name.into(), ..self.spec }, data: self.data }
    }

    /// What it is, and the memory that it lies in.
    pub(crate) fn into_parts(self) -> (Spec, Buffer) {
        (self.spec, self.data)
    }

    /// Its elements in C order.
    ///
    /// # Panics
    /// If they are not of type `T`.
    pub fn elements<T: Element>(&self) -> &[T] {
        self.check(T::DTYPE);
        bytemuck::cast_slice(&self.data)
    }

    /// Its elements in C order.
    ///
    /// # Panics
    /// If they are not of type `T`.
    pub fn elements_mut<T: Element>(&mut self) -> &mut [T] {
        self.check(T::DTYPE);
        bytemuck::cast_slice_mut(&mut self.data)
    }

    /// A view with the spec's dimensions.
    ///
    /// # Panics
    /// If the elements are not of type `T`.
    pub fn view<T: Element>(&self) -> ArrayViewD<'_, T> {
        let shape = self.shape();
        ArrayViewD::from_shape(shape, self.elements()).expect("the buffer was made for the shape")
    }

    /// A view with the spec's dimensions.
    ///
    /// # Panics
    /// If the elements are not of type `T`.
    pub fn view_mut<T: Element>(&mut self) -> ArrayViewMutD<'_, T> {
        let shape = self.shape();
        ArrayViewMutD::from_shape(shape, self.elements_mut())
            .expect("the buffer was made for the shape")
    }

    fn shape(&self) -> IxDyn {
        IxDyn(&self.spec.shape.iter().map(|&n| n as usize).collect::<Vec<_>>())
    }

    fn check(&self, asked: DType) {
        let Spec { name, dtype, .. } = &self.spec;
        assert!(*dtype == asked, "`{name}` has elements of type {dtype}, not {asked}");
    }
}
