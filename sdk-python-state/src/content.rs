//! Content of files.

use pyo3::prelude::*;
use pyo3::types::{PyByteArray, PyBytes, PyMemoryView, PyString};

use crate::error::Failure;

/// Content of a file: `bytes`, `bytearray` or `memoryview`, or text that is encoded as UTF-8.
pub(crate) struct Content(pub(crate) Vec<u8>);

impl<'py> FromPyObject<'_, 'py> for Content {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(bytes.as_bytes().to_vec()));
        }
        if let Ok(text) = object.cast::<PyString>() {
            let text = text.to_cow().map_err(|error| {
                Failure::Invalid(format!("the content cannot be encoded as UTF-8: {error}"))
            })?;
            return Ok(Self(text.into_owned().into_bytes()));
        }
        if let Ok(bytes) = object.cast::<PyByteArray>() {
            return Ok(Self(bytes.to_vec()));
        }
        // The stable ABI of Python 3.9 has no access to buffers.
        let bytes = object.cast::<PyMemoryView>()?.call_method0("tobytes")?;
        Ok(Self(bytes.cast::<PyBytes>()?.as_bytes().to_vec()))
    }
}
