//! Projects: files that many agents change at once, under access rules.
//!
//! - A [`Policy`] gives an agent access to paths, and the settings for conflicts. [`AgentPolicy::explain`] says
//!   which rule decides and why.
//! - A [`view`] is the part of a tree that an agent may read, as a tree of its own.
//! - [`check_changes`] reverts the changes of an agent that its access does not allow.
//! - [`lift`] applies a change of a view to the full tree.
//! - [`projects`] stores projects, and merges the work of agents into their heads (the present files of a project).
//!
//! An agent starts from a view of the head, and hands in a changed tree. Its changes become part of the head in four
//! steps:
//!
//! 1. Check the changes between the view that the agent started from and its tree.
//! 2. Merge the allowed changes with the view of the present head.
//! 3. Check the differences between that view and the merged one: a merge follows renames, and can so move a change to
//!    another path.
//! 4. Lift the merged view.

mod check;
mod lift;
mod paths;
mod policy;
pub mod projects;
mod view;

pub use check::{Change, CheckError, Checked, RefusalReason, Refused, RenamedAddition, check_changes};
pub use lift::{LiftError, lift};
pub use policy::{
    Access, AgentPolicy, ConflictSettings, Explanation, GlobError, NameError, OutrankedRule, PathState,
    PatternError, Policy, PolicyDocument, PolicyError, ReviewTimeout, Rule, Setting, SettingDecision,
    ViewKey,
};
pub use view::{View, ViewCache, ViewError, view};
