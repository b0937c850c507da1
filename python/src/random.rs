//! Random numbers in place.

use crate::{
    error::Result,
    tensor::{PyTensor, run},
};
use pyo3::prelude::*;
use raddle::Generator;

/// A source of random numbers of its own; without one a thread's is used.
#[pyclass(frozen, name = "Generator", module = "raddle")]
pub struct PyGenerator(Generator);

#[pymethods]
impl PyGenerator {
    #[new]
    #[pyo3(signature = (seed=0))]
    fn new(seed: u64) -> PyGenerator {
        PyGenerator(Generator::new(seed))
    }

    /// Key and counter, from which it can be made again.
    fn get_state(&self) -> (u64, u64) {
        self.0.state()
    }

    /// A generator that goes on from a state.
    #[staticmethod]
    fn from_state(state: (u64, u64)) -> PyGenerator {
        PyGenerator(Generator::from_state(state.0, state.1))
    }
}

macro_rules! draws {
    ($($name:ident($($param:ident: $type:ty = $default:literal),*) $doc:literal;)*) => { #[pymethods] impl PyTensor { $(
        #[doc = $doc]
        #[pyo3(signature = ($($param=$default,)* *, generator=None))]
        fn $name<'py>(
            slf: &Bound<'py, PyTensor>,
            $($param: $type,)*
            generator: Option<&Bound<'py, PyGenerator>>,
        ) -> Result<Bound<'py, PyTensor>> {
            let (tensor, generator) = (&slf.get().0, generator.map(|generator| &generator.get().0));
            run(slf.py(), tensor.element_count(), || tensor.$name($($param,)* generator).map(drop))?;
            Ok(slf.clone())
        }
    )* } };
}
draws! {
    normal_(mean: f64 = 0.0, std: f64 = 1.0) "Overwritten with random numbers of a normal distribution.";
    uniform_(from_: f64 = 0.0, to: f64 = 1.0) "Overwritten with random numbers, uniform in [from_, to).";
    exponential_(lambd: f64 = 1.0) "Overwritten with random numbers of an exponential distribution.";
    bernoulli_(p: f64 = 0.5) "Overwritten with ones, each with probability p, and zeros.";
}

#[pymethods]
impl PyTensor {
    /// Overwritten with random integers from `low` to before `high`.
    #[pyo3(signature = (low, high=None, *, generator=None))]
    fn random_<'py>(
        slf: &Bound<'py, PyTensor>,
        low: i64,
        high: Option<i64>,
        generator: Option<&Bound<'py, PyGenerator>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (low, high) = high.map_or((0, low), |high| (low, high));
        let (tensor, generator) = (&slf.get().0, generator.map(|generator| &generator.get().0));
        run(slf.py(), tensor.element_count(), || tensor.random_(low, high, generator).map(drop))?;
        Ok(slf.clone())
    }

    /// Ones, each with the probability that the element is, and zeros.
    #[pyo3(signature = (*, generator=None, out=None))]
    fn bernoulli<'py>(
        slf: &Bound<'py, PyTensor>,
        generator: Option<&Bound<'py, PyGenerator>>,
        out: Option<&Bound<'py, PyTensor>>,
    ) -> Result<Bound<'py, PyTensor>> {
        let (tensor, generator) = (&slf.get().0, generator.map(|generator| &generator.get().0));
        let into = |out: &raddle::Tensor| out.copy_(&tensor.bernoulli(generator)?).map(drop);
        crate::tensor::fresh_or_out(
            slf.py(),
            tensor.element_count(),
            out,
            || tensor.bernoulli(generator),
            into,
        )
    }
}
