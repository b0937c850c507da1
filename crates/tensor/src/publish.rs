//! Versions of live tensors, for those who train and serve one model at once.
//!
//! Ops are atomic, models are not: whoever reads the weights one by one while somebody trains may see some before and some
//! after a step. [`Publisher::publish`] copies them all in one launch and then swaps a pointer. A reader takes the newest
//! version and keeps it as long as it likes; its tensors never change. Old versions go when their last reader drops them,
//! even while work that reads them is in flight: the runtime holds the memory until that is over.

use crate::{DType, Error, Result, Tensor, pointwise::check_device, record::refs};
use arc_swap::ArcSwap;
use raddle_base::Scalar;
use raddle_op::{Kernel, PARAM_COUNT_MAX, Pointwise};
use raddle_runtime::Operand;
use raddle_sync::{
    atomic::{AtomicU64, Ordering},
    fault,
};
use std::{borrow::Borrow, sync::Arc};

/// One version: copies of the published tensors, which nobody changes.
#[derive(Debug)]
pub struct Published {
    id: u64,
    tensors: Vec<Tensor>,
}

impl Published {
    /// The number of the version; the first is 0, and later ones are higher.
    pub fn id(&self) -> u64 {
        self.id
    }
    /// The copies, in the order of the tensors given to [`Publisher::publish`].
    pub fn tensors(&self) -> &[Tensor] {
        &self.tensors
    }
}

/// Where versions are published. Share it by reference or in an `Arc`; all methods may be called from any thread.
///
/// ```
/// # use raddle_tensor::{DType, Device, Publisher, Result, Tensor};
/// # fn main() -> Result<()> {
/// # let device = Device::open(Box::new(raddle_cpu::Cpu::new()))?;
/// let weights = [Tensor::zeros([2, 2], DType::F32, &device)?, Tensor::zeros([2], DType::F32, &device)?];
/// let publisher = Publisher::new(&weights)?;
/// std::thread::scope(|scope| {
///     let reader = scope.spawn(|| {
///         let version = publisher.load(); // the first or the second, and whole
///         Ok::<_, raddle_tensor::Error>([version.tensors()[0].sum(.., false)?, version.tensors()[1].sum(.., false)?])
///     });
///     weights[0].add_(1.0)?;
///     weights[1].add_(1.0)?;
///     publisher.publish(&weights)?;
///     let [matrix, vector] = reader.join().expect("it doesn't panic")?;
///     assert_eq!(matrix.item::<f32>()?, 2.0 * vector.item::<f32>()?);
///     Ok(())
/// })
/// # }
/// ```
#[derive(Debug)]
pub struct Publisher {
    current: ArcSwap<Published>,
    next_id: AtomicU64,
}

impl Publisher {
    /// Publishes a first version, of tensors or references to some.
    pub fn new<T: Borrow<Tensor>>(tensors: &[T]) -> Result<Publisher> {
        let tensors = &refs(tensors)[..];
        let first = Published { id: 0, tensors: like(tensors)? };
        copy(&first.tensors, tensors)?;
        Ok(Publisher { current: ArcSwap::from_pointee(first), next_id: AtomicU64::new(1) })
    }

    /// Copies the tensors (strides are kept) and makes the copies the newest version; returns its number. Doesn't wait for
    /// the copy, nor for readers. If two threads publish at once, the version with the higher number stays.
    ///
    /// The copy is one launch for each dtype to compute in: nothing is written between its parts.
    pub fn publish<T: Borrow<Tensor>>(&self, tensors: &[T]) -> Result<u64> {
        let tensors = &refs(tensors)[..];
        let copies = like(tensors)?;
        if !fault!(publish_before_copy) {
            copy(&copies, tensors)?;
        }
        // The number orders versions and nothing else: the swap publishes.
        let id = self.next_id.fetch_add(1, Ordering::Relaxed);
        let version = Arc::new(Published { id, tensors: copies });
        self.current.rcu(|current| if current.id < id { version.clone() } else { current.clone() });
        if fault!(publish_before_copy) {
            copy(&version.tensors, tensors)?;
        }
        Ok(id)
    }

    /// The newest version. Never blocks, and never makes a publisher wait.
    pub fn load(&self) -> Arc<Published> {
        self.current.load_full()
    }
}

const OP: &str = "publish";

/// Tensors to copy these to, all on one device.
fn like(tensors: &[&Tensor]) -> Result<Vec<Tensor>> {
    let Some((first, rest)) = tensors.split_first() else {
        return Err(Error::TensorCount { op: OP, expected: "at least 1", found: 0 });
    };
    let device = check_device(OP, first, rest)?;
    let allocate =
        |tensor: &&Tensor| Tensor::allocate(OP, tensor.layout().preserved(), tensor.dtype(), &device);
    tensors.iter().map(allocate).collect()
}

/// Copies all tensors, by one launch for each dtype to compute in.
fn copy(copies: &[Tensor], tensors: &[&Tensor]) -> Result<()> {
    for &compute in DType::ALL {
        let group: Vec<Operand<'_>> = copies
            .iter()
            .zip(tensors)
            .filter(|(copy, _)| copy.dtype().compute() == compute && !copy.layout().is_empty())
            .flat_map(|(copy, tensor)| [copy.write(copy.layout()), tensor.read(tensor.layout())])
            .collect();
        if !group.is_empty() {
            let kernel = Kernel::Pointwise {
                program: Pointwise::copy.into(),
                compute,
                params: [Scalar::Int(0); PARAM_COUNT_MAX],
                groups: group.len() / 2,
            };
            tensors[0].device().submit_named(OP, &kernel, &group)?;
        }
    }
    Ok(())
}
