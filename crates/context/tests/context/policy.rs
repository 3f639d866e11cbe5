//! Tests of policies (access of agents to paths, and settings for conflicts): the rule that decides, the agents that it
//! applies to, and invalid documents. A view key identifies the set of paths that an agent may read.

use proptest::prelude::*;
use workspace_context::{Access, AgentPolicy, Policy, PolicyDocument, PolicyError, Setting};
use workspace_merge::{Author, OnConflict, TreeOptions, merge_trees};

use crate::fixture::TestStore;

fn document(json: &str) -> PolicyDocument {
    serde_json::from_str(json).unwrap()
}

fn policy(rules: &str) -> Policy {
    let text = format!(r#"{{"groups": {{"team": ["t-*", "alice"]}}, "rules": [{rules}]}}"#);
    Policy::compile(document(&text)).unwrap()
}

fn agent_policy(rules: &str, agent: &str) -> AgentPolicy {
    policy(rules).for_agent(agent)
}

fn error(json: &str) -> String {
    Policy::compile(document(json)).unwrap_err().to_string()
}

#[test]
fn the_most_specific_path_decides() {
    let policy = agent_policy(
        r#"{"path": "**", "access": "R"}, {"path": "src/**", "access": "RW"},
           {"path": "src/*.lock", "access": "RW-"}, {"path": "src/Cargo.lock", "access": "none"},
           {"path": "**/secret/**", "access": "none"}"#,
        "a",
    );
    for (path, access) in [
        ("", Access::Read),
        ("README", Access::Read),
        ("src", Access::Full),
        ("src/a/b", Access::Full),
        ("src/x.lock", Access::NoDelete),
        ("src/Cargo.lock", Access::None),
        ("docs/secret", Access::None),
        ("docs/secret/x", Access::None),
        ("docs/secrets", Access::Read),
        ("src/secret/x", Access::Full),
        ("Src/x", Access::Read),
    ] {
        assert_eq!(policy.access(path.as_bytes()), access, "{path}");
    }
}

#[test]
fn the_subject_decides_among_equal_paths() {
    let rules = r#"{"path": "a", "access": "none"}, {"group": "team", "path": "a", "access": "R"},
        {"agent": "t-*", "path": "a", "access": "RA"}, {"agent": "t-1", "path": "a", "access": "RW"}"#;
    let policy = policy(rules);
    let access = |agent: &str| policy.for_agent(agent).access(b"a");
    assert_eq!(
        ["t-1", "t-2", "alice", "bob"].map(access),
        [Access::Full, Access::ReadAdd, Access::Read, Access::None]
    );
}

#[test]
fn the_stricter_access_decides_among_equal_rules() {
    let rules =
        r#"{"path": "a*", "access": "RW"}, {"path": "*b", "access": "R"}, {"path": "a*", "access": "RA"}"#;
    let policy = agent_policy(rules, "x");
    assert_eq!(policy.access(b"ab"), Access::Read);
    assert_eq!(policy.access(b"aa"), Access::ReadAdd);
}

#[test]
fn conflict_settings_are_decided_one_by_one() {
    let policy = agent_policy(
        r#"{"path": "**", "onConflict": "lww", "priority": 1, "reviewers": ["alice"],
            "reviewTimeout": "2h", "escalateTo": "boss"},
           {"path": "conf/**", "critical": true}, {"path": "conf/*.json", "keys": ["key"], "strategy": "json"},
           {"agent": "x", "path": "**", "priority": 9}, {"path": "conf/**", "critical": false}"#,
        "x",
    );
    let settings = policy.conflict_settings(b"conf/a.json");
    assert_eq!(settings.file.on_conflict, OnConflict::Lww);
    assert_eq!(settings.file.strategy.as_deref(), Some("json"));
    assert_eq!(settings.file.keys, ["key"]);
    assert_eq!((settings.priority, settings.critical), (9, true));
    assert_eq!(settings.reviewers, Some(vec!["alice".to_owned()]));
    assert_eq!(settings.review_timeout.and_then(|timeout| timeout.duration()).unwrap().as_secs(), 7_200);
    assert_eq!(settings.escalate_to.as_deref(), Some("boss"));
    let merge = policy.merge_rules();
    assert_eq!(merge.settings(b"conf/a.json").strategy.as_deref(), Some("critical"));
    assert_eq!(merge.settings(b"a.json").strategy, None);
    assert_eq!(merge.settings(b"a.json").on_conflict, OnConflict::Lww);
    assert!(merge.depends_on_author());
}

#[test]
fn merges_use_the_priority_of_the_agent_at_each_path() {
    let policy = agent_policy(
        r#"{"path": "**", "onConflict": "priority", "priority": 1}, {"path": "mine/**", "priority": 9},
           {"path": "held/**", "critical": true, "onConflict": "review"}"#,
        "x",
    );
    let fixture = TestStore::new();
    let paths = ["held/a", "mine/a", "other/a"];
    let side = |content: &str| {
        fixture.build(|tree| paths.iter().for_each(|path| tree.write(path, content).unwrap()))
    };
    let (base, ours, theirs) = (side("base\n"), side("ours\n"), side("theirs\n"));
    let author = Author { time: 0, priority: 5 };
    let options = TreeOptions { rules: policy.merge_rules(), ours: author, ..TreeOptions::default() };
    let merge = merge_trees(&base, &ours, &theirs, &options).unwrap();
    let content = |path: &str| String::from_utf8(merge.tree.read(path).unwrap()).unwrap();
    assert_eq!(paths.map(content), ["ours\n", "theirs\n", "ours\n"]);
    let undecided: Vec<_> = merge.conflicts.iter().filter(|it| it.decided.is_none()).collect();
    assert_eq!(undecided.iter().map(|it| &it.path.0[..]).collect::<Vec<_>>(), [b"held/a"]);
}

#[test]
fn explanations_name_the_deciding_rule_and_the_outranked_ones() {
    let policy = agent_policy(
        r#"{"path": "**", "access": "R"}, {"group": "team", "path": "src/**", "access": "RA"},
           {"agent": "t-1", "path": "src/**", "access": "RW", "strategy": "text"}"#,
        "t-1",
    );
    let explanation = policy.explain(b"src/a");
    assert_eq!((explanation.access, explanation.access_decision.rule), (Access::Full, Some(2)));
    assert_eq!(
        explanation.access_decision.why,
        "rules[2] for agent `t-1` at `src/**` matches, and the name of the agent is more specific than a group, \
         to which rules[1] applies"
    );
    let outranked: Vec<_> = explanation.outranked.iter().map(|it| (it.rule, it.setting)).collect();
    assert_eq!(outranked, [(1, Setting::Access), (0, Setting::Access)]);
    assert!(explanation.outranked[1].why.contains("`src/**` is more specific than `**` of rules[0]"));
    assert_eq!(explanation.conflict_decisions.len(), 1);
    assert_eq!(explanation.conflict_decisions[0].rule, Some(2));

    let default = agent_policy("", "x").explain(b"a");
    assert_eq!((default.access, default.access_decision.rule), (Access::Full, None));
    let json = serde_json::to_value(&explanation).unwrap();
    assert_eq!(json["accessDecision"]["setting"], "access");
}

#[test]
fn view_keys_depend_only_on_the_readable_paths() {
    let policy = policy(
        r#"{"path": "secret/**", "access": "none"}, {"agent": "w", "path": "src/**", "access": "RW"},
           {"agent": "r", "path": "**", "access": "R"}, {"agent": "s", "path": "secret/**", "access": "RW"},
           {"agent": "h", "path": "other/**", "access": "none"}"#,
    );
    let key = |agent: &str| policy.for_agent(agent).view_key();
    assert_eq!(key("w"), key("r"));
    assert_eq!(key("w"), key("nobody"));
    assert_ne!(key("w"), key("s"));
    assert_ne!(key("w"), key("h"));
    assert!(policy.for_agent("s").reads_everything() && !policy.for_agent("w").reads_everything());
    assert_eq!(key("s"), Policy::compile(PolicyDocument::default()).unwrap().for_agent("a").view_key());
}

#[test]
fn agents_without_write_access_are_read_only() {
    let rules = r#"{"path": "**", "access": "R"}, {"agent": "w", "path": "in/**", "access": "RA"}"#;
    let policy = Policy::compile(document(&format!(r#"{{"default": "none", "rules": [{rules}]}}"#))).unwrap();
    assert!(policy.for_agent("r").is_read_only() && !policy.for_agent("w").is_read_only());
    // A rule for all paths decides in place of the less specific rules and the default.
    let rules = r#"{"agent": "r", "path": "**", "access": "R"}, {"path": "**", "access": "RW"}"#;
    let policy = Policy::compile(document(&format!(r#"{{"rules": [{rules}]}}"#))).unwrap();
    assert!(policy.for_agent("r").is_read_only() && !policy.for_agent("w").is_read_only());
}

#[test]
fn invalid_policies_are_rejected_with_an_error_that_names_the_rule() {
    for (rule, expected) in [
        (r#"{"path": "/a", "access": "R"}"#, "rules[1].path: `/a`: it starts with `/`"),
        (r#"{"path": "a[", "access": "R"}"#, "rules[1].path: `a[`: `[` has no matching `]`: add it"),
        (r#"{"path": "a"}"#, "rules[1]: the rule sets nothing: add `access`"),
        (r#"{"path": "a", "access": "R", "group": "x"}"#, "rules[1].group: there is no group `x`"),
        (r#"{"path": "a", "access": "R", "group": "g", "agent": "a"}"#, "remove one, or write two rules"),
        (r#"{"path": "a", "strategy": "guess"}"#, "rules[1].strategy: unknown strategy `guess`; known"),
        (r#"{"path": "a", "access": "R", "agent": ""}"#, "rules[1].agent: ``: it is empty"),
        (r#"{"path": "a", "keys": [""]}"#, "rules[1].keys: an entry is empty"),
        (r#"{"path": "a", "reviewers": ["[x"]}"#, "rules[1].reviewers[0]: `[x`"),
        (r#"{"path": "a", "reviewTimeout": 0}"#, "rules[1].reviewTimeout: "),
        (r#"{"path": "a", "reviewTimeout": "soon"}"#, "rules[1].reviewTimeout: "),
        (r#"{"path": "a", "escalateTo": "[x"}"#, "rules[1].escalateTo: `[x`"),
    ] {
        let text =
            format!(r#"{{"groups": {{"g": ["a"]}}, "rules": [{{"path": "ok", "access": "R"}}, {rule}]}}"#);
        let message = error(&text);
        assert!(message.contains(expected), "{message}");
    }
    assert!(error(r#"{"groups": {"g": ["a", "**"]}}"#).contains("groups.g[1]: `**`"));
    assert!(error(r#"{"groups": {"": []}}"#).contains("the name is empty"));
}

#[test]
fn policies_with_too_many_rules_groups_or_members_are_rejected() {
    let rule = document(r#"{"rules": [{"path": "a", "access": "R"}]}"#).rules.remove(0);
    let many = PolicyDocument { rules: vec![rule; 10_001], ..PolicyDocument::default() };
    assert_eq!(Policy::compile(many).unwrap_err(), PolicyError::TooManyRules { count: 10_001 });
    let groups = (0..1_001).map(|n| (format!("g{n}"), Vec::new())).collect();
    let many = PolicyDocument { groups, ..PolicyDocument::default() };
    assert_eq!(Policy::compile(many).unwrap_err(), PolicyError::TooManyGroups { count: 1_001 });
    let groups = [("g".to_owned(), vec!["a".to_owned(); 20_001])].into();
    let many = PolicyDocument { groups, ..PolicyDocument::default() };
    assert_eq!(Policy::compile(many).unwrap_err(), PolicyError::TooManyMembers { count: 20_001 });
}

/// Generates the rules of a policy, as JSON.
fn rules() -> impl Strategy<Value = String> {
    let name = prop::sample::select(vec!["a", "b", "*", "**", "a*", "{a,b}"]);
    let path = prop::collection::vec(name, 1..4).prop_map(|names| names.join("/"));
    let access = prop::sample::select(vec!["none", "R", "RA", "RW-", "RW"]);
    let subject =
        prop::sample::select(vec!["", r#""agent": "t-1", "#, r#""agent": "t*", "#, r#""group": "team", "#]);
    let rule = (path, access, subject).prop_map(|(path, access, subject)| {
        format!(r#"{{{subject}"path": "{path}", "access": "{access}"}}"#)
    });
    prop::collection::vec(rule, 0..8).prop_map(|rules| rules.join(", "))
}

fn path() -> impl Strategy<Value = String> {
    prop::collection::vec(prop::sample::select(vec!["a", "b", "ab", "c"]), 0..5)
        .prop_map(|names| names.join("/"))
}

/// Returns rules in which each level above `none` is replaced by `RW`.
fn reduced(rules: &str) -> String {
    rules.replace("\"R\"", "\"RW\"").replace("\"RA\"", "\"RW\"").replace("\"RW-\"", "\"RW\"")
}

proptest! {
    #[test]
    fn rules_that_differ_only_in_rights_to_write_have_one_view_key(rules in rules()) {
        // Among equally specific rules with levels above `none`, another rule may decide, but each allows to read.
        prop_assert_eq!(agent_policy(&rules, "t-1").view_key(), agent_policy(&reduced(&rules), "t-1").view_key());
    }

    #[test]
    fn an_agent_that_reads_everything_may_read_each_path(rules in rules(), path in path()) {
        let policy = agent_policy(&rules, "t-1");
        prop_assert!(!policy.reads_everything() || policy.access(path.as_bytes()).can_read());
    }

    #[test]
    fn explanations_have_the_access_that_applies(rules in rules(), path in path()) {
        let policy = agent_policy(&rules, "t-1");
        prop_assert_eq!(policy.explain(path.as_bytes()).access, policy.access(path.as_bytes()));
    }

    #[test]
    fn equal_view_keys_mean_equal_readable_sets(one in rules(), other in rules(), path in path()) {
        let policies = [agent_policy(&one, "t-1"), agent_policy(&other, "t-1")];
        if policies[0].view_key() == policies[1].view_key() {
            let [a, b] = policies.map(|policy| policy.access(path.as_bytes()).can_read());
            prop_assert_eq!(a, b);
        }
    }

    #[test]
    fn access_of_all_below_is_the_access_of_every_path_below(rules in rules(), path in path(), below in path()) {
        let policy = agent_policy(&rules, "t-1");
        if let (Some(access), false) = (policy.at(path.as_bytes()).access_of_all_below(), below.is_empty()) {
            prop_assert_eq!(policy.access(format!("{path}/{below}").as_bytes()), access);
        }
    }
}
