//! Building templates from recipes.
//!
//! Each step of a recipe turns one snapshot into the next. A `run` step does so in a sandbox of its own with a kept
//! root filesystem; `copy` and `workdir` change the tree without one. The result of each step is kept under a hash of
//! everything that it depends on, so that a build that failed, or was killed, continues where it stopped. The last
//! snapshot becomes an immutable version of a template.

mod cache;
mod context;
mod copy;
mod machine_root;
mod names;
mod progress;
mod publish;
pub mod recipe;
mod run_step;
pub(crate) mod state;
mod step_key;
mod steps;
mod target;
mod variables;

pub use context::{BuildContext, RECIPE_FILE};
pub use progress::BuildEvent;
pub use steps::{BuildRequest, BuiltTemplate, CacheMode};
