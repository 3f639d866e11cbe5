//! Setting of a project: when the changes of running sandboxes are merged.

use std::time::Duration;

use serde_json::{Value, json};
use workspace_catalog::Project;

/// Key of this setting in the stored settings of a project.
pub(super) const MERGE_SETTING: &str = "merge";

/// Occasions at which the changes in sandboxes are merged into a project. In every mode, they are merged when a request
/// declares the work in the sandbox complete, or when the sandbox ends.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum MergeMode {
    /// Only when a request declares the work complete, or the sandbox ends.
    #[default]
    Completion,
    /// Also at intervals, while sandboxes run.
    Periodic(Duration),
    /// Also after each command and request that changed files.
    Write,
}

impl MergeMode {
    /// Minimum of the interval.
    pub const INTERVAL_MIN: Duration = Duration::from_secs(1);
    /// Maximum of the interval.
    pub const INTERVAL_MAX: Duration = Duration::from_secs(86_400);
    /// Interval if none is set.
    pub const INTERVAL_DEFAULT: Duration = Duration::from_secs(10);

    /// Returns the setting of a project, by default [`Self::Completion`].
    pub fn of(project: &Project) -> Self {
        let setting = project.settings.get(MERGE_SETTING);
        let field = |name: &str| setting.and_then(|setting| setting.get(name));
        match field("mode").and_then(Value::as_str) {
            Some("periodic") => {
                let seconds = field("interval").and_then(Value::as_u64).map(Duration::from_secs);
                let interval = seconds.unwrap_or(Self::INTERVAL_DEFAULT);
                Self::Periodic(interval.clamp(Self::INTERVAL_MIN, Self::INTERVAL_MAX))
            }
            Some("write") => Self::Write,
            _ => Self::Completion,
        }
    }

    /// Returns the setting as it is stored.
    pub(super) fn to_json(self) -> Value {
        match self {
            Self::Completion => json!({ "mode": "completion" }),
            Self::Periodic(interval) => json!({ "mode": "periodic", "interval": interval.as_secs() }),
            Self::Write => json!({ "mode": "write" }),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn project(settings: Value) -> Project {
        Project {
            id: "prj-1".to_owned(),
            owner: "alice".to_owned(),
            name: "website".to_owned(),
            sequence: 0,
            head: None,
            policy_version: 0,
            settings,
            created_at: 0,
            updated_at: 0,
        }
    }

    #[test]
    fn modes_round_trip_through_the_settings_of_a_project() {
        let periodic = MergeMode::Periodic(Duration::from_secs(30));
        for mode in [MergeMode::Completion, periodic, MergeMode::Write] {
            assert_eq!(MergeMode::of(&project(json!({ MERGE_SETTING: mode.to_json() }))), mode);
        }
    }

    #[test]
    fn a_project_without_the_setting_merges_on_completion() {
        for settings in [json!({}), json!({ "merge": null }), json!({ "merge": { "mode": "often" } })] {
            assert_eq!(MergeMode::of(&project(settings)), MergeMode::Completion);
        }
        let without_interval = project(json!({ "merge": { "mode": "periodic" } }));
        assert_eq!(MergeMode::of(&without_interval), MergeMode::Periodic(MergeMode::INTERVAL_DEFAULT));
        let often = project(json!({ "merge": { "mode": "periodic", "interval": 0 } }));
        assert_eq!(MergeMode::of(&often), MergeMode::Periodic(MergeMode::INTERVAL_MIN));
    }
}
