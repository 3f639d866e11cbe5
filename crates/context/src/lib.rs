//! Projects: files that many agents change at once, under access rules.
//!
//! - A [`Policy`] gives an agent access to paths, and the settings for conflicts. [`AgentPolicy::explain`] says
//!   which rule decides and why.
//! - A [`view`] is the part of a tree that an agent may read, as a tree of its own.
//! - [`check_changes`] takes back the changes of an agent that its access does not allow.
//! - [`lift`] applies a change of a view to the full tree.
//!
//! The result of an agent lands in these steps: check the changes between the view that it started from and its
//! result; merge them with the view of the present head; check the differences between that view and the merged
//! one, because a merge follows renames and can carry a change to another path; lift the merged view.

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
