//! Which dtype an op computes in, as PyTorch's `result_type` and `can_cast`.

use crate::{Arg, DType};

/// The dtype of operands together. Tensors with axes decide; tensors without axes, and after them numbers, count only if
/// their kind (bool < integer < float) is above that of what stands before them.
///
/// ```
/// use raddle_tensor::{result_type, DType, Scalar};
/// assert_eq!(result_type(&[Scalar::Float(1.0).into()]), DType::F32);
/// ```
pub fn result_type(args: &[Arg<'_>]) -> DType {
    let mut state = State::default();
    args.iter().for_each(|arg| state.add(arg));
    state.finish()
}

/// The three classes of operands, strongest first.
#[derive(Default)]
pub(crate) struct State {
    with_axes: Option<DType>,
    without_axes: Option<DType>,
    number: Option<DType>,
}

impl State {
    #[inline]
    pub(crate) fn add(&mut self, arg: &Arg<'_>) {
        let (class, dtype) = match arg {
            Arg::Tensor(tensor) if tensor.rank() > 0 => (&mut self.with_axes, tensor.dtype()),
            Arg::Tensor(tensor) => (&mut self.without_axes, tensor.dtype()),
            Arg::Scalar(value) => (&mut self.number, DType::default_of(value.kind())),
        };
        *class = Some(class.map_or(dtype, |other| other.promote(dtype)));
    }

    #[inline]
    pub(crate) fn finish(self) -> DType {
        let higher = |strong: Option<DType>, weak: Option<DType>| match (strong, weak) {
            (Some(strong), Some(weak)) if weak.kind() > strong.kind() => Some(weak),
            (None, weak) => weak,
            (strong, _) => strong,
        };
        higher(higher(self.with_axes, self.without_axes), self.number).unwrap_or(DType::F32)
    }
}

/// May a result of dtype `from` be stored in an output of dtype `to`? Not from float to integer, nor to bool from
/// anything else.
pub fn can_cast(from: DType, to: DType) -> bool {
    from.kind() <= to.kind()
}
