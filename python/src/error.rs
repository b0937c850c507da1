//! Raddle's errors as Python's exceptions: each is Python's own kind as well as PyTorch's `RuntimeError`, with Raddle's text.

use pyo3::{
    PyTypeInfo,
    exceptions::{PyIndexError, PyMemoryError, PyOSError, PyRuntimeError, PyTypeError, PyValueError},
    prelude::*,
    sync::PyOnceLock,
    types::{IntoPyDict, PyTuple, PyType},
};
use raddle::{ViewError, runtime};

/// Why a call failed: a mistake that Raddle found, or an exception.
pub enum Failure {
    Raddle(Box<raddle::Error>),
    Python(PyErr),
}

pub type Result<T, E = Failure> = std::result::Result<T, E>;

impl From<PyErr> for Failure {
    fn from(error: PyErr) -> Failure {
        Failure::Python(error)
    }
}

macro_rules! from {
    ($($error:ty),*) => { $(
        impl From<$error> for Failure {
            fn from(error: $error) -> Failure {
                Failure::Raddle(Box::new(error.into()))
            }
        }
    )* };
}
from!(
    raddle::Error,
    runtime::Error,
    raddle::grad::Error,
    raddle::optim::Error,
    raddle::nn::checkpoint::CheckpointError
);

impl From<Failure> for PyErr {
    fn from(failure: Failure) -> PyErr {
        match failure {
            Failure::Python(error) => error,
            Failure::Raddle(error) => exception(&error),
        }
    }
}

/// A `TypeError`.
pub fn wrong_type<T>(text: impl Into<String>) -> Result<T> {
    Err(PyTypeError::new_err(text.into()).into())
}

/// A `ValueError`.
pub fn wrong_value<T>(text: impl Into<String>) -> Result<T> {
    Err(PyValueError::new_err(text.into()).into())
}

/// The kinds of exception: a name, what Python's kind it is besides `raddle.Error`, and what it tells.
macro_rules! kinds {
    ($($kind:ident($base:ty): $name:literal, $doc:literal;)*) => {
        #[derive(Clone, Copy, PartialEq)]
        enum Kind { $($kind),* }

        /// The types of the exceptions, made once: `Error` in front, then one a kind.
        fn types(py: Python<'_>) -> PyResult<&'static Vec<Py<PyType>>> {
            static TYPES: PyOnceLock<Vec<Py<PyType>>> = PyOnceLock::new();
            TYPES.get_or_try_init(py, || {
                let make = |name: &str, doc: &str, bases: &[Bound<'_, PyType>]| -> PyResult<Py<PyType>> {
                    let about = [("__module__", "raddle"), ("__doc__", doc)].into_py_dict(py)?;
                    let made = py.get_type::<PyType>().call1((name, PyTuple::new(py, bases)?, about))?;
                    Ok(made.cast_into::<PyType>()?.unbind())
                };
                let doc = "What Raddle refuses, or what failed. Its text says where, what, expected, found.";
                let error = make("Error", doc, &[PyRuntimeError::type_object(py)])?;
                let bases = |base| [error.bind(py).clone(), base];
                let kinds = [$(make($name, $doc, &bases(<$base>::type_object(py)))?),*];
                Ok(std::iter::once(error.clone_ref(py)).chain(kinds).collect())
            })
        }
    };
}
kinds! {
    Bounds(PyIndexError): "BoundsError", "An axis or an index that isn't there.";
    Shape(PyValueError): "ShapeError", "Shapes, or numbers of elements or axes, that don't fit.";
    DType(PyTypeError): "DTypeError", "A dtype that isn't taken.";
    Argument(PyValueError): "ArgumentError", "A parameter out of its range.";
    OutOfMemory(PyMemoryError): "OutOfMemoryError", "No memory is left on the device.";
    File(PyOSError): "FileError", "A file can't be read or written.";
}

/// Adds the types to the module.
pub fn register(module: &Bound<'_, PyModule>) -> PyResult<()> {
    for kind in types(module.py())? {
        let kind = kind.bind(module.py());
        module.add(kind.name()?, kind)?;
    }
    Ok(())
}

fn exception(error: &raddle::Error) -> PyErr {
    let text = error.to_string();
    Python::attach(|py| match types(py) {
        Ok(types) => {
            let index = kind(error).map_or(0, |kind| kind as usize + 1);
            PyErr::from_type(types[index].bind(py).clone(), text)
        }
        Err(error) => error,
    })
}

fn kind(error: &raddle::Error) -> Option<Kind> {
    use raddle::Error::*;
    Some(match error {
        View(error) => match **error {
            ViewError::Axis { .. } | ViewError::Index { .. } | ViewError::Range { .. } => Kind::Bounds,
            _ => Kind::Shape,
        },
        Shape { .. } | InnerSize { .. } | Strides { .. } | Rank { .. } | ElementCount { .. } => Kind::Shape,
        NotOneElement { .. } | Infer { .. } | EmptyAxis { .. } => Kind::Shape,
        DType { .. } | DTypesDiffer { .. } | Cast { .. } => Kind::DType,
        Argument { .. } | TensorCount { .. } | Count { .. } | UnknownDevice { .. } => Kind::Argument,
        TooLarge { .. } | Runtime(runtime::Error::OutOfMemory { .. }) => Kind::OutOfMemory,
        Runtime(runtime::Error::Kernel { .. }) => Kind::Bounds,
        Layer(inner) => match inner.downcast_ref::<raddle::nn::checkpoint::CheckpointError>() {
            Some(_) => Kind::File,
            None if inner.downcast_ref::<raddle::optim::Error>().is_some() => Kind::Argument,
            None => match inner.downcast_ref::<raddle::grad::Error>() {
                Some(raddle::grad::Error::Argument { .. } | raddle::grad::Error::Gradient { .. }) => {
                    Kind::Argument
                }
                Some(raddle::grad::Error::DType { .. }) => Kind::DType,
                Some(raddle::grad::Error::NotScalar { .. }) => Kind::Shape,
                _ => return None,
            },
        },
        _ => return None,
    })
}
