//! Batches that tests make, in memory of a pool.

use std::sync::Arc;

use forebay::item::Spec;
use forebay::prelude::*;

/// A tensor `x` of a batch: `rows` x `columns` elements counted from `first`.
pub(crate) fn batch(pool: &Pool, first: u64, rows: u64, columns: u64) -> Batch {
    let mut tensor = Tensor::take(pool, spec("x", DType::F32, rows, columns));
    for (i, x) in tensor.elements_mut::<f32>().iter_mut().enumerate() {
        *x = (first + i as u64) as f32;
    }
    Batch::new(vec![tensor], Vec::new())
}

pub(crate) fn spec(name: &str, dtype: DType, rows: u64, columns: u64) -> Spec {
    let dims = [Arc::from("row"), Arc::from("column")];
    Spec { name: Arc::from(name), dtype, dims: Arc::from(dims), shape: Arc::from([rows, columns]) }
}

/// Batches of which the n-th begins with n, made by a cpu stage in memory of `pool`.
pub(crate) fn batches(pool: &Pool, n: u64) -> Pipeline<Batch> {
    let pool = pool.clone();
    Pipeline::from(source::iter("numbers", 0..n)).then(
        cpu::map("decode", move |i: u64| Ok::<_, Never>(batch(&pool, i, 8, 512)))
            .workers(2)
            .buffer(4),
    )
}

/// The elements of the only tensor, copied back.
pub(crate) fn elements(batch: &DeviceBatch) -> Vec<f32> {
    let tensor = batch.tensors()[0].to_host(&Pool::default()).unwrap();
    tensor.elements().to_vec()
}
