//! Paths: in trees they are bytes, in Python text or bytes.
//!
//! Names are UTF-8, and other bytes become surrogates in Python, as with `os.fsdecode` where file names are UTF-8
//! (`surrogateescape`). Names of a tree do not depend on the locale of the process.

use std::borrow::Cow;

use pyo3::prelude::*;
use pyo3::types::{PyBytes, PyString};

use crate::error::Failure;

/// Path in a tree: `str`, `bytes` or `os.PathLike`.
pub(crate) struct TreePath(pub(crate) Vec<u8>);

impl AsRef<[u8]> for TreePath {
    fn as_ref(&self) -> &[u8] {
        &self.0
    }
}

impl<'py> FromPyObject<'_, 'py> for TreePath {
    type Error = PyErr;

    fn extract(object: Borrowed<'_, 'py, PyAny>) -> PyResult<Self> {
        if let Ok(text) = object.cast::<PyString>() {
            return encode(&text);
        }
        if let Ok(bytes) = object.cast::<PyBytes>() {
            return Ok(Self(bytes.as_bytes().to_vec()));
        }
        let path = object.py().import("os")?.call_method1("fspath", (object,))?;
        match path.cast::<PyString>() {
            Ok(text) => encode(text),
            Err(_) => Ok(Self(path.cast::<PyBytes>()?.as_bytes().to_vec())),
        }
    }
}

fn encode(text: &Bound<'_, PyString>) -> PyResult<TreePath> {
    if let Ok(text) = text.to_cow() {
        return Ok(TreePath(Cow::into_owned(text).into_bytes()));
    }
    match text.call_method1("encode", ("utf-8", "surrogateescape")) {
        Ok(bytes) => Ok(TreePath(bytes.cast::<PyBytes>()?.as_bytes().to_vec())),
        Err(error) => Err(Failure::BadPath(format!("the path cannot be encoded: {error}")).into()),
    }
}

/// Converts a name or a path of a tree to text.
pub(crate) fn decode_name<'py>(py: Python<'py>, name: &[u8]) -> PyResult<Bound<'py, PyString>> {
    if let Ok(text) = std::str::from_utf8(name) {
        return Ok(PyString::new(py, text));
    }
    let text = PyBytes::new(py, name).call_method1("decode", ("utf-8", "surrogateescape"))?;
    Ok(text.cast_into::<PyString>()?)
}
