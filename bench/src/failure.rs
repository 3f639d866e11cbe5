//! Errors of measurements.

use std::error::Error;

/// Error that ends the program with its message; threads of a measurement return it.
pub(crate) type Failure = Box<dyn Error + Send + Sync>;
