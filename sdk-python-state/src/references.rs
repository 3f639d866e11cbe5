//! The class `References`.

use std::sync::Arc;

use pyo3::prelude::*;
use workspace_state::{Expect as StateExpect, SnapshotId};

use crate::error::{Failure, Result};
use crate::handle::Handle;
use crate::snapshot::{DurabilityArgument, Expect, ExpectArgument, SnapshotArgument};

/// Names of snapshots, which are moved by compare-and-set.
#[pyclass(frozen, module = "workspace_state")]
pub(crate) struct References(pub(crate) Arc<Handle>);

#[pymethods]
impl References {
    /// Returns the id of the snapshot that a reference points to.
    fn get(&self, py: Python<'_>, name: String) -> Result<String> {
        let found = self.0.detached(py, |store| store.reference(&name)?.ok_or(Failure::NoReference(name)))?;
        Ok(found.to_string())
    }

    /// Returns names and snapshot ids of all references whose names begin with `prefix`, sorted by name.
    #[pyo3(signature = (*, prefix = ""))]
    fn list(&self, py: Python<'_>, prefix: &str) -> Result<Vec<(String, String)>> {
        let found: Vec<(String, SnapshotId)> =
            self.0.detached(py, |store| Ok(store.references_with_prefix(prefix)?))?;
        Ok(found.into_iter().map(|(name, id)| (name, id.to_string())).collect())
    }

    /// Points a reference to a snapshot if its present state is `expect`.
    #[pyo3(signature = (name, snapshot, *, expect = ExpectArgument::Known(Expect::Anything), durability = "synced"))]
    fn set(
        &self,
        py: Python<'_>,
        name: &str,
        snapshot: SnapshotArgument,
        expect: ExpectArgument,
        durability: &str,
    ) -> Result<()> {
        let durability: DurabilityArgument = durability.parse()?;
        self.0.detached(py, |store| {
            let expect = expect.resolve(store)?;
            let to = snapshot.resolve(store)?;
            Ok(store.set_reference(name, expect, to, durability.0)?)
        })
    }

    /// Deletes a reference if its present state is `expect`; its snapshot stays.
    #[pyo3(signature = (name, *, expect = ExpectArgument::Known(Expect::Anything)))]
    fn delete(&self, py: Python<'_>, name: String, expect: ExpectArgument) -> Result<()> {
        self.0.detached(py, |store| {
            let expect: StateExpect = expect.resolve(store)?;
            if store.reference(&name)?.is_none() {
                return Err(Failure::NoReference(name));
            }
            Ok(store.remove_reference(&name, expect)?)
        })
    }
}
